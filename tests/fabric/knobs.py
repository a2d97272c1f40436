"""On what fabric is each knob tried?

`BASE` is a tiny fabric under pressure; `GIVEN` says, for every section that `emu schema` knows under
`switch`, `link`, `nic`, `transport` and `routing`, what it needs besides for that section to matter.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

Overrides = Mapping[str, Any]

_LINKS: Final = (
    *((f"nic-{n}", f"rtsw-{n // 2}", "200G") for n in range(4)),
    *((f"rtsw-{n}", "ctsw-0", "200G") for n in range(2)),
    *((f"rtsw-{n}", "ctsw-1", "100G") for n in range(2)),
    *((f"rtsw-{n}", "ctsw-2", "200G") for n in range(2)),
)
_NODES: Final = (
    *({"name": f"host-{n}", "role": "host"} for n in range(4)),
    *({"name": f"gpu-{n}", "role": "gpu", "host": f"host-{n}"} for n in range(4)),
    *({"name": f"nic-{n}", "role": "nic", "host": f"host-{n}"} for n in range(4)),
    *({"name": f"rtsw-{n}", "role": "switch", "tier": 1} for n in range(2)),
    *({"name": f"ctsw-{n}", "role": "switch", "tier": 2} for n in range(3)),
)
BASE: Final[Mapping[str, Any]] = {
    "name": "knobs",
    "topology": {
        "kind": "graph",
        "nodes": list(_NODES),
        "links": [{"a": a, "b": b, "rate": rate, "delay": "200ns"} for a, b, rate in _LINKS],
    },
    "switch": {"buffer": {"pool": "1MB", "alpha": "1/16"}},
    "transport": {"mtu": 1024},
    "jobs": [
        {
            "name": "data",
            "workload": {
                "kind": "flows",
                "qps": 4,
                "message": "8KiB",
                "flows": [
                    {"src": 0, "dst": 2, "size": "64KiB"},
                    {"src": 1, "dst": 2, "size": "64KiB"},
                    {"src": 3, "dst": 2, "size": "64KiB"},
                    {"src": 2, "dst": 1, "size": "32KiB", "start": "1us"},
                    {"src": 0, "dst": 3, "size": "32KiB", "start": "2us"},
                ],
            },
        },
        {
            "name": "more",
            "data_priority": 6,
            "workload": {
                "kind": "flows",
                "flows": [{"src": 0, "dst": 2, "size": "48KiB"}, {"src": 1, "dst": 3, "size": "16KiB"}],
            },
        },
    ],
    "run": {"max_time": "400us"},
}
"""Two leaves with two NICs each under three spines, one of them slower: an incast, flows the other way, and a
class beside it."""

FLAP: Final = {
    "faults": [{"kind": "link_down", "at": "3us", "target": "rtsw-0:ctsw-0", "for": "30us"}],
    "transport.timeout": 2,
}
LONG: Final = {
    "jobs[0].workload.qps": 1,
    "jobs[0].workload.message": "128KiB",
    "jobs[0].workload.flows[0].size": "256KiB",
    "jobs[0].workload.flows[1].size": "256KiB",
}
LOSSES: Final = {"nic.corrupt_every": 20, "transport.timeout": 3}
MARKS: Final = {"switch.ecn.enabled": True, "switch.ecn.kmin": "2KB", "switch.ecn.kmax": "20KB"}
SPINES: Final = {"switch.deep_buffer.where": "spines", "switch.deep_buffer.port_buffer": "200KB"}
STORM: Final = {
    "switch.pfc.watchdog.enabled": True,
    "switch.pfc.watchdog.detection": "2us",
    "switch.pfc.watchdog.restoration": "2us",
    "switch.buffer.alpha": "1/64",
}
SENDS: Final = {
    "jobs[0].workload.verb": "send",
    "transport.receive_queue.depth": 1,
    "transport.receive_queue.repost": "500ns",
    "transport.rnr_timer": 1,
}
TWO_PORTS: Final = {
    "topology": {
        "kind": "dcn_plus",
        "pods": 1,
        "segments_per_pod": 2,
        "hosts_per_segment": 2,
        "gpus_per_host": 1,
        "aggs_per_pod": 2,
        "links_per_tor_agg": 1,
    },
    "switch.buffer.pool": "64MB",
}
CONTROLLED: Final = {
    "routing.kind": "traffic_engineering",
    "routing.interval": "10us",
    "routing.threshold": "1G",
    "control.management_delay": "2us",
}
OUT_OF_ORDER: Final = {
    "transport.recovery.kind": "go_back_n",
    "transport.recovery.placement": "out_of_order",
}


_TIMES: Final = {
    "least_timeout": "20us",
    "first_timeout": "50us",
    "most_timeout": "100us",
    "delayed_ack": "4us",
}
TCP: Final = {
    **LONG,
    "nic.corrupt_every": 20,
    "switch.pfc.enabled": False,
    "transport.recovery.kind": "tcp",
    **{f"transport.recovery.{key}": value for key, value in _TIMES.items()},
    "transport.congestion_control.kind": "reno",
}
CUT: Final = {"faults": [{"kind": "link_down", "at": "1us", "target": "rtsw-1:nic-2", "for": "200us"}]}


def _policy(name: str, **more: Any) -> Overrides:
    return {"routing.kind": name, **{f"routing.{key}": value for key, value in more.items()}}


def _control(name: str, **more: Any) -> Overrides:
    knobs = {f"transport.congestion_control.{key}": value for key, value in more.items()}
    return {**MARKS, **LONG, "transport.congestion_control.kind": name, **knobs}


_RATES: Final = {
    "cnp_interval": "2us",
    "cnp_delay": "500ns",
    "alpha_timer": "2us",
    "increase_timer": "2us",
    "byte_counter": "10KB",
    "fast_recovery": 1,
    "additive": "1G",
    "hyper": "5G",
}
POLICIES: Final[dict[str, Overrides]] = {
    "ecmp": _policy("ecmp"),
    "e_ecmp": _policy("e_ecmp"),
    "path_pinning": {**_policy("path_pinning", convergence="500ns"), **FLAP},
    "flowlet": _policy("flowlet", gap="500ns", entries=4),
    "spray": {**_policy("spray"), **OUT_OF_ORDER},
    "adaptive": _policy("adaptive", gap="500ns", entries=4),
    "traffic_engineering": CONTROLLED,
}

GIVEN: Final[Mapping[str, Overrides]] = {
    **{f"routing (kind: {name})": given for name, given in POLICIES.items()},
    **{
        f"routing (kind: {name}).link_weights[]": {
            **given,
            "routing.link_weights": [{"link": "rtsw-0:ctsw-0", "weight": 2}],
        }
        for name, given in POLICIES.items()
    },
    **{
        f"routing (kind: {name}).bgp": {key: knob for key, knob in given.items() if "convergence" not in key}
        for name, given in POLICIES.items()
    },
    "switch": {},
    "switch.buffer": {},
    "switch.buffer.profiles[]": {
        "switch.buffer.profiles": [{"priorities": [3], "alpha": "1/32", "xon_offset": "3KB"}]
    },
    "switch.buffer.admission (kind: thresholds)": {},
    "switch.deep_buffer": SPINES,
    "switch.pfc": {},
    "switch.pfc.watchdog": STORM,
    "switch.ecn (kind: red)": {**MARKS, "transport.congestion_control.kind": "dcqcn"},
    "switch.ecn (kind: red).profiles[]": {
        **MARKS,
        "switch.ecn.profiles": [{"priorities": [3], "kmin": "8KB", "kmax": "30KB"}],
        "transport.congestion_control.kind": "dcqcn",
    },
    "switch.scheduling (kind: weighted)": {"switch.scheduling.strict": [7]},
    "switch.qos": {},
    "switch.static_routes[]": {
        "switch.static_routes": [{"switch": "rtsw-0", "destination": "nic-2", "via": "ctsw-0"}]
    },
    "link": {},
    "link.credits": {"link.flow_control": "credits", "link.credits.buffer": "8KB"},
    "nic": {},
    "nic.arbiter (kind: round_robin)": {},
    "nic.arbiter (kind: weighted)": {"nic.arbiter.kind": "weighted", "nic.arbiter.strict": []},
    "nic.context_cache": {"nic.context_cache.entries": 1, "nic.context_cache.miss_penalty": "1us"},
    "nic.receive": {"nic.receive.enabled": True, "nic.receive.rate": "50G", "nic.receive.buffer": "200KB"},
    "transport": {},
    "transport.paths (kind: multipath)": {"transport.kind": "multipath"},
    "transport.recovery (kind: go_back_n)": {**LOSSES, **OUT_OF_ORDER, "transport.recovery.reorder": 8},
    "transport.recovery (kind: go_back_0)": {**LOSSES, "transport.recovery.kind": "go_back_0"},
    "transport.recovery (kind: selective_repeat)": {
        **LOSSES,
        "transport.recovery.kind": "selective_repeat",
        "transport.recovery.window": "16KB",
    },
    "transport.recovery (kind: tcp)": TCP,
    "transport.congestion_control (kind: reno)": {**MARKS, **TCP},
    "transport.congestion_control (kind: cubic)": {
        **MARKS,
        **TCP,
        "transport.congestion_control.kind": "cubic",
    },
    "transport.congestion_control (kind: none)": _control("none"),
    "transport.congestion_control (kind: dcqcn)": _control("dcqcn", **_RATES),
    "transport.congestion_control (kind: swift)": _control("swift", target="6us", window="64KB"),
    "transport.congestion_control (kind: hybrid)": _control("hybrid", target="8us", **_RATES),
    "transport.congestion_control (kind: hpcc)": _control("hpcc", base_rtt="4us"),
    "transport.adaptive_retransmission": {
        **LOSSES,
        "transport.timeout": 5,
        "transport.adaptive_retransmission.enabled": True,
        "transport.adaptive_retransmission.least": "10us",
    },
    "transport.receive_queue": SENDS,
}
