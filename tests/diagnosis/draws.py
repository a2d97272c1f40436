"""Faults drawn at random in kind, place and time, on small fabrics with a repeated collective.

From a seed: a fabric with a job (one of a pool, so that each runs only once without faults), and a fault with
what is right to say of it: causes and places, as the words of a diagnosis have them. Kinds that look alike
from outside share their answers: a NIC's only port, its NIC and its link; a flap that came once, and a link
that was down once. A drift has to be named with its item.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from random import Random
from typing import Any, NamedTuple

from actors.fabric.model import FABRIC, Role, Topology
from emu import api
from emu.scenario.faults.targets import fabric_ports
from tests.scenario.plain import plain

US = 10**6
FABRICS: dict[str, dict[str, Any]] = {
    "ai_zone": {
        "kind": "ai_zone",
        "racks": 2,
        "hosts_per_rack": 2,
        "gpus_per_host": 2,
        "spines": 2,
        "link": "100G",
    },
    "fat_tree": {"kind": "fat_tree", "k": 4, "gpus_per_host": 1, "link": "100G"},
    "dual_tor": {
        "kind": "dcn_plus",
        "pods": 1,
        "aggs_per_pod": 2,
        "links_per_tor_agg": 1,
        "segments_per_pod": 2,
        "hosts_per_segment": 2,
        "gpus_per_host": 2,
    },
}
WORKLOADS: tuple[dict[str, Any], ...] = (
    {"op": "all_reduce", "sizes": ["512KiB"]},
    {"op": "all_gather", "sizes": ["1MiB"]},
    {"op": "all_to_all", "sizes": ["1MiB"]},
    {"op": "reduce_scatter", "sizes": ["512KiB"]},
)
POOL = 24
"""Different fabrics with jobs."""
ITERATIONS = 10

KINDS: dict[str, tuple[str, tuple[dict[str, Any], ...]]] = {
    "link_down": ("link", ({},)),
    "link_flap": ("link", ({"down": "20us", "up": "50us", "flaps": 5},)),
    "degrade": ("link", ({"rate": "40G"}, {"rate": "10G"}, {"loss": "1/100"}, {"bit_errors": "1/1000000"})),
    "delay": ("link", ({"added": "2us"}, {"added": "10us"}, {"added": "3us", "jitter": "10us"})),
    "port_down": ("port", ({},)),
    "pause_storm": ("port", ({},)),
    "pause_loss": ("port", ({},)),
    "miscabling": ("links", ({},)),
    "switch_crash": ("switch", ({},)),
    "switch_reboot": ("switch", ({"boot_time": "100us"},)),
    "switch_drain": ("upper", ({},)),
    "nic_down": ("nic", ({},)),
    "nic_port_down": ("nic", ({},)),
    "nic_reset": ("nic", ({},)),
    "qp_error": ("nic", ({"pair": 0}, {"pair": 1}, {"pair": 2})),
    "slow_receiver": ("nic", ({"rate": "5G"}, {"rate": "20G"}, {"rate": "60G"})),
    "gpu_slow": ("gpu", ({"factor": 3}, {"factor": 50}, {"factor": 300})),
    "gpu_hung": ("gpu", ({},)),
    "gpu_lost": ("gpu", ({},)),
    "host_lost": ("host", ({},)),
    "straggler": ("host", ({"factor": 3}, {"factor": 50}, {"factor": 300})),
    "headroom_drift": ("switch", ({"headroom": "0B"}, {"headroom": "8KiB"})),
    "alpha_drift": ("switch", ({"alpha": "1/128"}, {"alpha": "4"})),
    "ecn_drift": ("switch", ({"kmin": "2KB", "kmax": "9KB"}, {"kmin": "2MB", "kmax": "4MB"})),
    "pfc_drift": ("port", ({},)),
    "dscp_drift": ("switch", ({"dscp": 24, "queue": 0},)),
    "hash_seed_drift": ("switch", ({"seed": 77}, {"seed": 1234567})),
    "hash_fields_drift": ("switch", ({"policy": "ecmp"},)),
    "credit_drift": ("upper", ({"initial_credit": "4KiB", "most_credit": "8KiB"},)),
}
"""Every kind but `link_up`, which mends, and `random`, which draws others: what it hits, its keys."""
ITEMS = {
    "headroom_drift": "headroom",
    "alpha_drift": "buffer alpha",
    "ecn_drift": "ECN thresholds",
    "pfc_drift": "PFC",
    "dscp_drift": "DSCP map",
    "hash_seed_drift": "hash seed",
    "hash_fields_drift": "hash fields",
    "credit_drift": "credit window",
}
OWN_TIMES = ("link_flap", "switch_reboot", "miscabling", "gpu_lost", "qp_error", "nic_reset")


class Answer(NamedTuple):
    """What is right to say."""

    cause: str
    places: tuple[str, ...]
    words: str = ""
    """What the sentence has to contain."""
    time: bool = False
    """Whether it has to say what time, or which job, a repair gives back."""


class Drawn(NamedTuple):
    """A fault on a fabric with a job."""

    seed: int
    base: int
    fault: dict[str, Any]
    answers: tuple[Answer, ...]


def base_scenario(number: int) -> dict[str, Any]:
    """A fabric with a job, without faults."""
    random = Random(1000 + number)
    names = sorted(FABRICS)
    name = names[number % len(names)]
    switch: dict[str, Any] = {
        "buffer": {"pool": "16MiB" if name == "dual_tor" else random.choice(["1MiB", "4MiB"])}
    }
    transport: dict[str, Any] = {"timeout": 4, "retry_count": 3}
    if random.random() < 0.4:
        switch["ecn"] = {"enabled": True, "kmin": "40KB", "kmax": "160KB"}
        transport["congestion_control"] = {"kind": "dcqcn"}
    if name == "ai_zone" and random.random() < 0.4:
        switch["deep_buffer"] = {"where": "spines"}
    workload = WORKLOADS[number // len(names) % len(WORKLOADS)]
    return plain(
        {
            "name": "scored",
            "seed": random.randrange(1 << 30),
            "topology": FABRICS[name],
            "routing": {"kind": random.choice(["ecmp", "e_ecmp", "e_ecmp"]), "convergence": "20us"},
            "control": {"management_delay": "5us"},
            "transport": transport,
            "switch": switch,
            "ncclx": {"qps_per_connection": random.choice([1, 4])},
            "run": {"sample_every": "50us", "stall_after": "4ms", "max_time": "30ms"},
            "jobs": [
                {
                    "name": "train",
                    "order": random.choice(["contiguous", "strided"]),
                    "workload": {"kind": "collective", "iterations": ITERATIONS, **workload},
                }
            ],
        }
    )


@cache
def fabric_of(base: int) -> Topology:
    """The fabric of a base."""
    return api.prepare(base_scenario(base)).topology


def base_of(seed: int) -> int:
    """The base of a seed."""
    return Random(seed).randrange(POOL)


def drawn(seed: int, span_ps: Callable[[int], int]) -> Drawn | None:
    """The fault of a seed; None if it does not fit its fabric. `span_ps` says how long a base takes."""
    random = Random(seed)
    base = random.randrange(POOL)
    kind = random.choice(sorted(KINDS))
    target_kind, choices = KINDS[kind]
    topology = fabric_of(base)
    scenario = base_scenario(base)
    fault: dict[str, Any] = {"kind": kind, **random.choice(choices)}
    if kind == "credit_drift" and "deep_buffer" not in scenario["switch"]:
        return None
    if kind == "ecn_drift" and "ecn" not in scenario["switch"]:
        return None
    answers = _with_target(random, kind, target_kind, topology, fault)
    if kind == "degrade" and random.random() < 0.5:
        fault["sender"] = random.choice(fault["target"].partition("/")[0].split(":"))
    if kind != "miscabling":
        span = span_ps(base)
        at_ps = 0 if random.random() < 0.2 else random.randrange(span // 8, span * 6 // 10)
        fault["at"] = f"{at_ps // 1000}ns"
        if kind not in OWN_TIMES and random.random() < 0.5:
            fault["for"] = f"{random.randrange(span // 10, span // 2) // 1000}ns"
    return Drawn(seed, base, fault, answers)


def _with_target(
    random: Random, kind: str, target_kind: str, topology: Topology, fault: dict[str, Any]
) -> tuple[Answer, ...]:
    """Give the fault a target; what is right to say of it."""
    links = [link for link in topology.links if link.kind == FABRIC]
    if target_kind == "link":
        name = random.choice(links).name
        fault["target"] = name
        causes = {"degrade": "degraded_link", "delay": "delayed_link"}
        return (Answer(causes.get(kind, kind), (name,)),)
    if target_kind == "links":
        upper = [link for link in links if topology.nodes[link.a].role is Role.SWITCH]
        one = random.choice(upper)
        others = [
            link
            for link in upper
            if topology.nodes[link.a].tier == topology.nodes[one.a].tier and link.b != one.b
        ]
        other = random.choice(others)
        fault |= {"target": one.name, "swapped_with": other.name}
        return (Answer("miscabling", (one.name, other.name)),)
    if target_kind == "port":
        node = random.choice([*topology.switches, *topology.nics])
        port = random.choice(fabric_ports(topology, node))
        end = topology.ports(node)[port]
        fault["target"] = f"{topology.nodes[node].name}/{port}"
        if kind == "port_down":
            return (Answer("link_down", (topology.links[end.link].name,)),)
        place = f"{topology.nodes[node].name}>{topology.nodes[end.peer].name}"
        return (Answer("configuration_drift" if kind in ITEMS else kind, (place,), ITEMS.get(kind, "")),)
    return _device(random, kind, target_kind, topology, fault)


def _device(
    random: Random, kind: str, target_kind: str, topology: Topology, fault: dict[str, Any]
) -> tuple[Answer, ...]:
    upper = [one for one in topology.switches if topology.nodes[one].tier > 1]
    among = {
        "switch": topology.switches,
        "upper": upper,
        "nic": topology.nics,
        "gpu": topology.gpus,
        "host": topology.hosts,
    }
    node = random.choice(among[target_kind])
    name = topology.nodes[node].name
    fault["target"] = name
    if kind in ("nic_down", "nic_port_down"):
        ends = [topology.ports(node)[port] for port in fabric_ports(topology, node)]
        if kind == "nic_down" and len(ends) > 1:
            return (Answer("nic_down", (name,)),)
        return (Answer("link_down", (topology.links[ends[0].link].name,)),)
    if kind in ITEMS:
        return (Answer("configuration_drift", (name,), ITEMS[kind]),)
    causes = {"switch_crash": "switch_down", "switch_reboot": "switch_down", "switch_drain": "switch_drained"}
    if kind in ("gpu_slow", "straggler"):
        host = topology.nodes[topology.host_of(node)].name if target_kind == "gpu" else name
        gpus = [one for one in topology.server(topology.nodes[node].host) if one in topology.gpus]
        if len(gpus) == 1:  # a server with one GPU: either is right
            gpu = topology.nodes[gpus[0]].name
            return (Answer("gpu_slow", (gpu,)), Answer("straggler", (host,)))
    return (Answer(causes.get(kind, kind), (name,)),)
