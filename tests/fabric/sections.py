"""Which scenarios does a hand-wired fabric start from?

Topologies as their sections, and a scenario without latencies, so that times can be worked out by hand.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from emu.scenario.load import load_mapping
from emu.scenario.schema import Scenario

Section = Mapping[str, Any]


def zone(racks: int, hosts: int, spines: int, **more: Any) -> dict[str, Any]:
    """An AI Zone with one GPU and one NIC a host."""
    return {
        "kind": "ai_zone",
        "racks": racks,
        "hosts_per_rack": hosts,
        "gpus_per_host": 1,
        "spines": spines,
        **more,
    }


def graph(
    links: Sequence[tuple[str, str]], rates: Mapping[int, str] | None = None, **delays: str
) -> dict[str, Any]:
    """A fabric from its cables: what is called `nic...` is a NIC with a host of its own, the rest switches.

    Every link is 400G and 500 ns; `rates` (by the link's number) and `delays` (by `d<number>`) have the
    exceptions.
    """
    names = list(dict.fromkeys(name for link in links for name in link))
    nodes: list[dict[str, Any]] = []
    for name in names:
        if name.startswith("nic"):
            host = name.replace("nic", "host")
            nodes += [{"name": host, "role": "host"}, {"name": name, "role": "nic", "host": host}]
        else:
            nodes.append({"name": name, "role": "switch"})
    rates = rates or {}
    return {
        "kind": "graph",
        "nodes": nodes,
        "links": [
            {"a": a, "b": b, "rate": rates.get(number, "400G"), "delay": delays.get(f"d{number}", "500ns")}
            for number, (a, b) in enumerate(links)
        ],
    }


def star(nics: int, rates: Mapping[int, str] | None = None, **delays: str) -> dict[str, Any]:
    """NICs around one switch; NIC n is at port n of it, over link n."""
    return graph([(f"nic-{number}", "switch") for number in range(nics)], rates, **delays)


def scenario(topology: Section, seed: int = 7, **sections: Any) -> Scenario:
    """A scenario on this fabric without latencies or response times, except as `sections` say."""
    quiet: dict[str, Any] = {
        "switch": {"latency": 0, "pfc": {"response": 0}, "buffer": {"asic": "none"}},
        "nic": {"latency": 0, "pfc_response": 0},
        "host": {"nic_link_delay": "auto"},
        "faults": sections.pop("faults", ()),
        "overrides": sections.pop("overrides", ()),
    }
    for name, section in sections.items():
        merged = dict(quiet.get(name, {}))
        for key, value in section.items():
            before = merged.get(key)
            merged[key] = {**before, **value} if isinstance(before, dict) else value
        quiet[name] = merged
    flow = {"src": 0, "dst": 1, "size": "1KiB"}
    job = {"name": "unused", "workload": {"kind": "flows", "flows": [flow]}}
    return load_mapping(
        {"name": "rig", "seed": seed, "topology": dict(topology), "jobs": [job], **quiet}
    ).scenario
