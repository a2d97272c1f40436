"""Fault scripts that nobody would write, on three fabrics.

From a seed: a fabric, a little traffic, and up to eight faults of any kind that fits it, at any time and
place.
"""

from __future__ import annotations

from random import Random
from typing import Any

from actors.kernel.device import Device
from actors.kernel.event import Event
from emu import api
from emu.devices.drawing import blueprint_of
from emu.engine.blueprint import spread
from emu.engine.live.stepping import Stepped
from tests.fabric.invariants import broken
from tests.scenario.plain import plain

FABRICS: dict[str, dict[str, Any]] = {
    "ai_zone": {
        "kind": "ai_zone",
        "racks": 2,
        "hosts_per_rack": 2,
        "gpus_per_host": 2,
        "spines": 2,
        "link": "100G",
    },
    "fat_tree": {"kind": "fat_tree", "k": 4, "gpus_per_host": 2, "link": "100G"},
    "dual_tor": {
        "kind": "dcn_plus",
        "pods": 1,
        "aggs_per_pod": 2,
        "links_per_tor_agg": 1,
        "segments_per_pod": 2,
        "hosts_per_segment": 1,
        "gpus_per_host": 2,
    },
}
SWITCHES = {"ai_zone": "rtsw:ctsw", "fat_tree": "*:*", "dual_tor": "*:*"}
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "link_down": ("link", {}),
    "link_flap": ("link", {"down": "3us", "up": "4us", "flaps": 4}),
    "degrade": ("link", {"rate": "5G", "loss": "1/50"}),
    "delay": ("link", {"added": "1us", "jitter": "700ns"}),
    "port_down": ("port", {}),
    "pause_storm": ("port", {}),
    "pause_loss": ("port", {}),
    "switch_crash": ("switch", {}),
    "switch_reboot": ("switch", {"boot_time": "15us"}),
    "nic_down": ("nic", {}),
    "nic_port_down": ("nic", {}),
    "nic_reset": ("nic", {}),
    "qp_error": ("nic", {}),
    "slow_receiver": ("nic", {"rate": "15G"}),
    "gpu_slow": ("gpu", {"factor": 30}),
    "gpu_hung": ("gpu", {}),
    "gpu_lost": ("gpu", {}),
    "host_lost": ("host", {}),
    "straggler": ("host", {"factor": 3}),
    "headroom_drift": ("switch", {"headroom": "4KiB"}),
    "alpha_drift": ("switch", {"alpha": "1/256"}),
    "ecn_drift": ("switch", {"kmin": "2KB", "kmax": "9KB"}),
    "pfc_drift": ("port", {}),
    "dscp_drift": ("switch", {"dscp": 24, "queue": 1}),
    "hash_seed_drift": ("switch", {"seed": 77}),
    "hash_fields_drift": ("switch", {"policy": "ecmp"}),
}
"""What each hits, and its own keys. The rest cannot hit every fabric, or lasts from the start."""
OWN_TIMES = ("link_flap", "switch_reboot")


def script(seed: int) -> dict[str, Any]:
    """A scenario with faults, as a mapping."""
    random = Random(seed)
    name = sorted(FABRICS)[seed % len(FABRICS)]
    faults = []
    for _ in range(random.randint(1, 8)):
        kind = random.choice(sorted(KINDS))
        target_kind, keys = KINDS[kind]
        target = {"link": SWITCHES[name], "port": "any switch"}.get(target_kind, target_kind)
        if target_kind == "port" and random.random() < 0.5:
            target = "any nic"
        fault = {"kind": kind, "at": f"{random.randrange(200)}us", **keys}
        fault["target"] = target if target.startswith("any") else f"any {target}"
        if kind not in OWN_TIMES and random.random() < 0.8:
            fault["for"] = f"{random.randint(1, 60)}us"
            if random.random() < 0.3:
                fault |= {"every": f"{random.randint(61, 99)}us", "count": 3}
        faults.append(fault)
    _measure_and_end(faults, Random(seed + 1_000_000))
    return plain(
        {
            "name": "script",
            "seed": seed,
            "topology": FABRICS[name],
            "routing": {"kind": "e_ecmp", "convergence": f"{random.choice((0, 5, 50))}us"},
            "switch": {"ecn": {"enabled": True}},
            "transport": {"timeout": random.choice((2, 4)), "retry_count": random.choice((1, 7))},
            "run": {"max_time": "1ms", "stall_after": "400us"},
            "jobs": [
                {
                    "name": "ring",
                    "ranks": 4,
                    "order": "strided",
                    "workload": {
                        "kind": "collective",
                        "op": "all_reduce",
                        "sizes": ["64KiB"],
                        "iterations": 2,
                    },
                },
                {
                    "name": "incast",
                    "ranks": 4,
                    "workload": {"kind": "incast", "size": "128KiB", "fan_in": 3},
                },
            ],
            "faults": faults,
        }
    )


def _measure_and_end(faults: list[dict[str, Any]], random: Random) -> None:
    """Let one fault hit the busiest of what it may, and end another early, in some scripts."""
    one, other = random.choice(faults), random.choice(faults)
    if random.random() < 0.4 and KINDS[one["kind"]][0] in ("link", "port", "switch", "nic"):
        one["target"] = str(one["target"]).replace("any ", "busiest ")
    if random.random() < 0.4 and other["kind"] not in OWN_TIMES:
        other["until"] = f"{int(str(other['at']).removesuffix('us')) + random.randint(1, 150)}us"


def played(seed: int, parts: int = 1) -> tuple[Stepped, list[str]]:
    """A script, run to its end in steps, and the rules that were broken on the way."""
    prepared = api.prepare(script(seed))
    run = Stepped(spread(blueprint_of(prepared.scenario, prepared.topology), parts))
    found: list[str] = []
    for step in range(1, 11):
        if run.advance(step * 100_000_000) is not None or found:
            break
        found += broken(prepared.topology, devices_of(run), pending_of(run))
    return run, found


def devices_of(run: Stepped) -> list[Device]:
    """All devices of a run."""
    return list(run._devices)


def pending_of(run: Stepped) -> list[Event]:
    """All pending events of a run."""
    kernels = [one.partition.kernel for one in run._logical_processes]
    return [event for kernel in kernels for event in kernel.pending()]
