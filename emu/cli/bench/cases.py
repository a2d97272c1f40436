"""The runs that measure the speed of the engine.

Fixed cases, so that a figure means the same next year: the leaf-spine on which independent simulators of
lossless RoCE were measured side by side (8 hosts a leaf, 8 spines, every link 400G and 500 ns, MTU 4,096, an
ACK for every packet, no latency in switches and NICs, hosts that cost nothing). Permutations send from every
host to a drawn other one; the incast sends sixteen to one; the rings have the collective library on top.

The loop is a yardstick of the machine: a fixed piece of plain Python, timed in turn with the cases, so that
two machines, or one machine on two days, can be compared by the ratio of the two.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from time import process_time
from typing import Any, Final, NamedTuple

HOSTS_PER_LEAF: Final = 8
SPINES: Final = 8
LOOP_ROUNDS: Final = 2_000_000


class Case(NamedTuple):
    """One run: what it is, and its scenario as a mapping with the keys of YAML."""

    name: str
    title: str
    scenario: Callable[[], dict[str, Any]]


_EVERY_KEY: Final[dict[str, Any]] = {
    "description": "",
    "seed": 1,
    "costs": "auto",
    "routing": {
        "kind": "e_ecmp",
        "hash": "mix",
        "fields": ["src", "dst", "protocol", "udp_source", "udp_destination", "qpn"],
        "polynomial": [],
        "bit_offset": [0],
        "seed": "per_switch",
        "weights": "equal",
        "link_weights": [],
        "paths": "auto",
        "convergence": "1ms",
        "local_convergence": "auto",
        "bgp": {"enabled": False, "hop": "1ms", "advertisement_interval": "0s", "hold_time": "9s"},
        "resilient_buckets": 0,
    },
    "switch": {
        "config_db": "",
        "pg_profile_lookup": "",
        "latency": "0s",
        "forwarding": "store_and_forward",
        "buffer": {
            "alpha": "1/8",
            "xoff": "auto",
            "xon": "auto",
            "xon_offset": "auto",
            "reserve": "4KiB",
            "headroom": "auto",
            "pool": "64MB",
            "headroom_pool": "auto",
            "admission": {"kind": "thresholds"},
            "profiles": [],
            "egress_limit": "0B",
            "egress_alpha": 0,
            "asic": "none",
            "lossless_egress_limit": "0B",
            "lossless_egress_alpha": 0,
        },
        "deep_buffer": {
            "where": "auto",
            "port_buffer": "64MB",
            "alpha": 1,
            "credit_delay": "3.8us",
            "initial_credit": "256KiB",
            "credit_growth": 2,
            "most_credit": "1MiB",
            "credit_quantum": "8KiB",
        },
        "pfc": {
            "enabled": True,
            "priorities": [3, 6],
            "quanta": 65535,
            "response": "auto",
            "watchdog": {
                "enabled": False,
                "detection": "200ms",
                "restoration": "200ms",
                "action": "drop",
                "drops": "auto",
            },
            "silent_to": [],
            "ignores": [],
        },
        "ecn": {
            "kmin": "800KB",
            "kmax": "3200KB",
            "pmax": "1/5",
            "enabled": False,
            "reference": "400Gbps",
            "scaled": True,
            "kind": "red",
            "priorities": [3],
            "profiles": [],
        },
        "scheduling": {
            "kind": "weighted",
            "strict": [0, 1, 2, 3, 4, 5, 6, 7],
            "weights": [1, 1, 1, 1, 1, 1, 1, 1],
        },
        "qos": {
            "dscp_to_tc": {},
            "tc_to_queue": {},
            "tc_to_priority_group": {},
            "pfc_priority_to_queue": {},
        },
        "static_routes": [],
    },
    "link": {
        "bit_error_rate": 0,
        "flow_control": "pfc",
        "credits": {"buffer": "256KiB", "update": "auto"},
        "rate": "auto",
        "delay": "auto",
        "down_debounce": "0s",
        "up_debounce": "0s",
    },
    "nic": {
        "latency": "0s",
        "pfc_response": "auto",
        "bond": "per_qp",
        "corrupt_every": 0,
        "jitter": "0ps",
        "ttl": 64,
        "arbiter": {"kind": "round_robin"},
        "receive": {
            "enabled": False,
            "rate": "504Gbps",
            "buffer": "512KiB",
            "xoff": "auto",
            "xon": "auto",
        },
        "dscp": {},
        "queue_pairs": 131_072,
        "context_cache": {"entries": 0, "miss_penalty": "42ns"},
    },
    "transport": {
        "kind": "rc",
        "paths": {
            "kind": "multipath",
            "paths": 8,
            "window": "auto",
            "placement": "auto",
            "silence": "8us",
            "silent_after": 2,
            "probe": "100us",
            "share_interval": "20us",
        },
        "mtu": 4096,
        "timeout": 14,
        "retry_count": 7,
        "recovery": {"kind": "go_back_n", "placement": "in_order", "reorder": 128, "window": "1MB"},
        "congestion_control": {"kind": "none", "cnp_interval": "50us", "cnp_delay": "0s", "cnp_priority": 6},
        "adaptive_retransmission": {"enabled": False, "least": "64us"},
        "receive_queue": {"depth": 0, "repost": "0s"},
        "rnr_timer": 12,
        "rnr_retry": 7,
        "remote_access": "read_write",
        "max_rd_atomic": 16,
        "ack_every": 1,
        "udp_source_port": "per_qp",
        "data_priority": 3,
        "control_priority": 6,
        "ack_priority": 6,
    },
    "host": {
        "link_rate": "512Gbps",
        "link_delay": "250ns",
        "nic_link_delay": "auto",
        "proxy_cost": "0s",
        "proxy_poll": "0s",
        "proxy_batched": "auto",
        "tail_delay": "0s",
        "head_delay": "0s",
        "gpudirect": True,
        "node": "none",
        "pcie": {"enabled": False, "rate": "504Gbps"},
        "nvlink": {
            "enabled": True,
            "rate": "3.6Tbps",
            "delay": "250ns",
            "nvls_latency": "25us",
            "nvls_efficiency": 0.85,
        },
        "memory": "2048GiB",
    },
    "gpu": {
        "model": "auto",
        "copy_rate": "24Tbps",
        "copy_latency": "0s",
        "lines_latency": "0s",
        "fence": "0s",
        "flush": "0s",
        "nic_copy_rate": "auto",
        "channel_rate": "3.6Tbps",
        "sms": 132,
        "speed_spread": 0,
    },
    "ncclx": {
        "version": "auto",
        "port_use": "bonded",
        "launch": "0s",
        "pxn": True,
        "channels": 1,
        "channels_per_peer": "auto",
        "ring_order": "by_channel",
        "sms_per_channel": 0,
        "buffsize": "4MiB",
        "steps": 8,
        "chunk_steps": 4,
        "slice_steps": 2,
        "slices": "filled",
        "protocol": "simple",
        "ll_buffsize": "512KiB",
        "ll128_buffsize": "4800KiB",
        "p2p_chunk": "auto",
        "qps_per_connection": 1,
        "qp_policy": "round_robin",
        "least_loaded_over": "host",
        "dqplb": {"segment": "512KiB", "most_outstanding": 128},
        "outstanding": {"connection": "auto", "rack": "auto", "zone": "auto", "pod": "auto"},
        "zero_copy": False,
        "admission": "receiver_driven",
        "control": "own_class",
        "init": {"store": "none", "operation": "125us", "lanes": 3, "barriers": "quadratic"},
        "connect": {"when": "beforehand", "pair": "1.4ms"},
        "tuner": {
            "model": "nccl",
            "gpu": "auto",
            "cpu": "intel",
            "base": "8.4us",
            "hop": "5us",
            "hop_inside": "3.4us",
            "nic_rate": "auto",
            "nvlink_rate": "auto",
            "rows": [],
            "among": ["ring", "double_binary_tree"],
        },
        "watchdog": "auto",
        "flight_recorder": 16,
        "env": {},
    },
    "fidelity": "packet",
    "payload": "sizes",
    "control": {"management_delay": "100us"},
    "run": {
        "stall_after": "auto",
        "sample_every": "100us",
        "sample_series": "plotted",
        "max_time": "60s",
        "repeat": False,
        "capture": [],
        "event_log": 0,
        "trace": {"every": "1us", "most_rows": 100_000},
        "span": {"at": 0, "for": 0},
        "kpis": [],
    },
    "overrides": [],
    "jobs": [
        {
            "name": "bench",
            "ranks": "all",
            "order": "contiguous",
            "placement": "numbered",
            "start": "0s",
            "enabled": True,
            "data_priority": "auto",
            "submitted": False,
            "absent": [],
            "shrink": [],
        }
    ],
    "frontend": {
        "enabled": False,
        "hosts_per_rsw": 16,
        "fsws": 4,
        "oversubscription": 1,
        "link": "100Gbps",
        "nic_delay": "500ns",
        "fsw_delay": "500ns",
        "storage": {"servers": 0, "link": "100Gbps", "disk": "2133333.333Kbps", "cache": "64MiB"},
        "metadata": {"servers": 0, "operation": "100us", "queue": 1024},
    },
    "faults": [],
    "expect": [],
}
"""Every key of a scenario but its name, and what differs from case to case: `topology`, `workload` of jobs.
So a default that changes later changes no figure; a test demands each new key here."""

_FLOWS: Final = {"verb": "write", "qps": 1, "tx_depth": 128, "message": "auto", "network": "backend"}
_PERMUTATION: Final = {**_FLOWS, "kind": "permutation", "racks": "any"}
_COLLECTIVE: Final = {
    "kind": "collective",
    "dtype": "fp32",
    "redop": "sum",
    "root": 0,
    "counts": [],
    "split": [],
    "iterations": 1,
    "warmup": 0,
}


_TRAINING: Final[dict[str, Any]] = {
    "kind": "training",
    "model": "llama3-8b",
    "layers": 4,
    "sequence": 1024,
    "scale": "1/200",
    "tp": 8,
    "cp": 1,
    "pp": 4,
    "ep": 1,
    "order": ["tp", "cp", "pp", "dp"],
    "micro_batches": 4,
    "micro_batch": 1,
    "virtual_stages": 1,
    "data": "fsdp",
    "replicas": 1,
    "overlap": {"fsdp_prefetch": True, "decoupled_pipeline": True, "tp_chunks": 1},
    "parallel_attention": False,
    "larger_batches": 1,
    "expert_skew": 0,
    "loading": {"time": "0s", "asynchronous": True, "shared": True},
    "kernels": {"gemm": "auto", "attention": "auto", "memory": "auto", "fused": True},
    "regather": True,
    "recompute": "none",
    "recompute_every": 1,
    "reshard": False,
    "reduce_each": False,
    "bucket": "auto",
    "peak_tflops": 989,
    "efficiency": "3/5",
    "jitter": 0,
    "stragglers": [],
    "steps": 1,
}


def over(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """A copy of `base` with these changes, section by section."""
    made = deepcopy(base)
    for key, value in changes.items():
        before = made.get(key)
        if isinstance(before, dict) and isinstance(value, dict):
            made[key] = over(before, value)
        else:
            made[key] = deepcopy(value)
    return made


def _ai_zone(racks: int, hosts_per_rack: int, gpus_per_host: int) -> dict[str, Any]:
    return {
        "kind": "ai_zone",
        "racks": racks,
        "hosts_per_rack": hosts_per_rack,
        "gpus_per_host": gpus_per_host,
        "spines": SPINES,
        "uplinks_per_leaf_spine": 1,
        "link": "400G",
        "uplink": "400G",
        "nic_delay": "500ns",
        "uplink_delay": "500ns",
    }


def _scenario(name: str, hosts: int, workload: dict[str, Any]) -> dict[str, Any]:
    (job,) = _EVERY_KEY["jobs"]
    topology = _ai_zone(max(hosts // HOSTS_PER_LEAF, 2), HOSTS_PER_LEAF, 1)
    return over(_EVERY_KEY, {"name": name, "topology": topology, "jobs": [{**job, "workload": workload}]})


def open_fabric(name: str, hosts: int) -> dict[str, Any]:
    """The same fabric for an open run, with every key."""
    return _scenario(name, hosts, {"kind": "open"})


def _permutation(hosts: int, size: str) -> Case:
    workload = {**_PERMUTATION, "size": size}
    name = f"permutation-{hosts}"
    return Case(name, f"{hosts}-host permutation of {size}", lambda: _scenario(name, hosts, workload))


def _verb(verb: str) -> Case:
    workload = {**_PERMUTATION, "size": "2MiB", "message": "64KiB", "verb": verb}
    name = f"{verb}-64"

    def made() -> dict[str, Any]:
        case = _scenario(name, 64, workload)
        case["transport"]["receive_queue"]["depth"] = 256
        return case

    return Case(name, f"64-host permutation of 2MiB, verb {verb}, 64KiB a message", made)


RECOVERIES: Final[dict[str, dict[str, Any]]] = {
    "go_back_n": _EVERY_KEY["transport"]["recovery"],
    "selective_repeat": {"kind": "selective_repeat", "reorder": 0, "window": "1MB"},
}


def _lossy(scheme: str) -> Case:
    workload = {**_PERMUTATION, "size": "4MiB", "message": "1MiB"}
    name = f"lossy-{scheme.replace('_', '-')}-64"

    def made() -> dict[str, Any]:
        case = _scenario(name, 64, workload)
        case["nic"]["corrupt_every"] = 256
        case["transport"]["recovery"] = deepcopy(RECOVERIES[scheme])
        case["transport"]["adaptive_retransmission"]["enabled"] = True
        return case

    return Case(name, f"64-host permutation of 4MiB, one packet in 256 lost, {scheme}", made)


def _short_of_receives() -> dict[str, Any]:
    workload = {**_PERMUTATION, "size": "1MiB", "message": "4KiB", "verb": "send"}
    case = _scenario("rnr-64", 64, workload)
    case["transport"] |= {"receive_queue": {"depth": 32, "repost": "200ns"}, "rnr_timer": 1}
    return case


def _with(name: str, title: str, sections: dict[str, Any]) -> Case:
    """The permutation of 64 hosts with something switched on: compare with `permutation-64`."""
    workload = {**_PERMUTATION, "size": "8MiB"}
    return Case(
        name, f"64-host permutation with {title}", lambda: over(_scenario(name, 64, workload), sections)
    )


def _ring(ranks: int, size: str = "16MiB") -> Case:
    workload = {**_COLLECTIVE, "op": "all_reduce", "algorithm": "ring", "sizes": [size]}
    name = f"ring-{ranks}"
    return Case(
        name, f"ring all_reduce of {size} over {ranks} ranks", lambda: _scenario(name, ranks, workload)
    )


def _all_to_all(ranks: int, size: str = "16MiB", **more: int) -> Case:
    workload = {**_COLLECTIVE, "op": "all_to_all", "algorithm": "direct", "sizes": [size], **more}
    name = f"all-to-all-{ranks}"
    return Case(
        name, f"direct all_to_all of {size} over {ranks} ranks", lambda: _scenario(name, ranks, workload)
    )


_HASHED: Final[dict[str, Any]] = _EVERY_KEY["routing"]
_CHOSEN: Final = {key: value for key, value in _HASHED.items() if key != "resilient_buckets"}
"""Policies that choose otherwise than by the hash alone."""
_BY_FLOWLET: Final = {"gap": "128us", "entries": 4096}

ROUTINGS: Final[dict[str, dict[str, Any]]] = {
    "ecmp": {
        **_HASHED,
        "kind": "ecmp",
        "fields": ["src", "dst", "protocol", "udp_source", "udp_destination"],
    },
    "crc32": {**_HASHED, "kind": "e_ecmp", "hash": "crc32"},
    "path-pinning": {**_CHOSEN, "kind": "path_pinning"},
    "flowlet": {**_CHOSEN, **_BY_FLOWLET, "kind": "flowlet"},
    "spray": {**_CHOSEN, "kind": "spray", "order": "round_robin", "allow_reordering": False},
    "adaptive": {
        **_CHOSEN,
        **_BY_FLOWLET,
        "kind": "adaptive",
        "granularity": "flowlet",
        "grade": "64KiB",
        "allow_reordering": False,
    },
    "adaptive-packet": {
        **_CHOSEN,
        **_BY_FLOWLET,
        "kind": "adaptive",
        "granularity": "packet",
        "grade": "64KiB",
        "allow_reordering": False,
    },
    "traffic-engineering": {
        **_CHOSEN,
        "kind": "traffic_engineering",
        "interval": "50us",
        "entries": 1024,
        "threshold": "10G",
        "fill": 1,
        "hysteresis": "1/20",
    },
}
"""What is measured against `permutation-64`, which routes by the default, `e_ecmp`."""


def _routing(name: str) -> Case:
    """The 64-host permutation by another policy, where overtaking is nobody's loss."""
    case = f"routing-{name}"

    def scenario() -> dict[str, Any]:
        made = _scenario(case, 64, {**_PERMUTATION, "size": "8MiB"})
        window = {"placement": "out_of_order", "window": "16MiB", "reorder": 4096}
        made = over(made, {"transport": {"recovery": window}, "control": {"management_delay": "5us"}})
        return {**made, "routing": deepcopy(ROUTINGS[name])}

    return Case(case, f"64-host permutation of 8MiB, routing {name.replace('-', ' ')}", scenario)


def _one_flow() -> dict[str, Any]:
    flow = {"src": 0, "dst": 8, "size": "512MiB", "start": 0, "priority": "auto"}
    return _scenario("one-flow", 16, {**_FLOWS, "kind": "flows", "flows": [flow]})


def _one_way(hosts: int, size: str) -> Case:
    """Each host of one half sends to one of the other, alone on its path: what trains are for."""

    def scenario() -> dict[str, Any]:
        half = hosts // 2
        flows = [
            {"src": src, "dst": src + half, "size": size, "start": 0, "priority": "auto"}
            for src in range(half)
        ]
        made = _scenario(f"one-way-{hosts}", hosts, {**_FLOWS, "kind": "flows", "flows": flows})
        return {**made, "routing": deepcopy(ROUTINGS["path-pinning"])}

    title = f"{hosts // 2} flows of {size} in one direction, each alone on its path"
    return Case(f"one-way-{hosts}", title, scenario)


def _incast() -> dict[str, Any]:
    workload = {
        **_FLOWS,
        "kind": "incast",
        "racks": "any",
        "fan_in": 16,
        "destination": 0,
        "size": "16MiB",
    }
    return _scenario("incast-16", 64, workload)


QUICKSTART: Final[dict[str, Any]] = {
    "seed": 7,
    "topology": {
        "kind": "ai_zone",
        "racks": 4,
        "hosts_per_rack": 2,
        "gpus_per_host": 8,
        "spines": 8,
        "link": "400G",
    },
    "routing": {"kind": "e_ecmp"},
    "transport": {"timeout": 8},
    "ncclx": {"qps_per_connection": 16},
}
"""The quickstart's fabric, 64 GPUs in four racks, and the settings of its NICs and library."""


def _quickstart() -> dict[str, Any]:
    sizes = ["1MiB", "2MiB", "4MiB", "8MiB"]
    made = _scenario(
        "quickstart", 64, {**_COLLECTIVE, "op": "all_reduce", "algorithm": "ring", "sizes": sizes}
    )
    made["topology"] = _ai_zone(4, 2, 8)
    made["faults"] = [{"at": "300us", "kind": "link_down", "target": "rtsw-0:ctsw-3", "for": "200us"}]
    latency = {"switch": {"latency": "300ns"}, "nic": {"latency": "300ns"}}
    return over(over(made, latency), QUICKSTART)


def _training() -> dict[str, Any]:
    made = _scenario("training-256", 256, _TRAINING)
    made["topology"] = _ai_zone(4, 8, 8)
    return made


def _bonded() -> dict[str, Any]:
    made = _scenario("bond-64", 64, {**_PERMUTATION, "size": "8MiB"})
    made["topology"] = {
        "kind": "dcn_plus",
        "pods": 1,
        "segments_per_pod": 8,
        "hosts_per_segment": 8,
        "gpus_per_host": 1,
        "nic_ports": 2,
        "aggs_per_pod": 8,
        "links_per_tor_agg": 1,
        "cores": 128,
        "core_uplinks_per_agg": 64,
        "tor_oversubscription": 1,
        "agg_oversubscription": 1,
        "link": "200G",
        "nic_delay": "500ns",
        "agg_delay": "500ns",
        "core_delay": "500ns",
    }
    return made


_DIRTY: Final = [{"devices": "rtsw-0:ctsw-0", "link": {"bit_error_rate": "1/100000000"}}]

CASES: Final[dict[str, Case]] = {
    case.name: case
    for case in (
        Case("one-flow", "one flow of 512MiB, empty fabric", _one_flow),
        _one_way(64, "64MiB"),
        _one_way(256, "32MiB"),
        _permutation(64, "8MiB"),
        _permutation(128, "8MiB"),
        _permutation(256, "8MiB"),
        _permutation(512, "8MiB"),
        _permutation(1024, "4MiB"),
        _with("cut-through-64", "cut-through switches", {"switch": {"forwarding": "cut_through"}}),
        _with("qos-maps-64", "DSCP maps on every switch", {"nic": {"dscp": {3: 26}}}),
        _with("bit-errors-64", "bit errors on one link", {"overrides": _DIRTY}),
        _with("dwrr-64", "deficit round robin", {"switch": {"scheduling": {"strict": [6, 7]}}}),
        _with("deep-buffer-64", "modular spines", {"switch": {"deep_buffer": {"where": "spines"}}}),
        Case("incast-16", "16:1 incast of 16MiB", _incast),
        _ring(64),
        _ring(128),
        _ring(256, "64MiB"),
        _all_to_all(64),
        _verb("send"),
        _verb("read"),
        _lossy("go_back_n"),
        _lossy("selective_repeat"),
        Case("rnr-64", "64-host permutation of 1MiB, SENDs that find no receive", _short_of_receives),
        Case("quickstart", "quickstart: all_reduce of 1 to 8MiB over 64 ranks, a link flap", _quickstart),
        *(_routing(name) for name in ROUTINGS),
    )
}
"""By name, in the order in which they are run."""


_STATIC: Final = {
    "priorities": [3],
    "alpha": "1/8",
    "xoff": "500KB",
    "xon": "400KB",
    "xon_offset": "auto",
    "reserve": "4KiB",
    "headroom": "auto",
}
_DCQCN: Final = {
    "gain_bits": 8,
    "alpha_timer": "55us",
    "increase_timer": "55us",
    "byte_counter": "10MB",
    "fast_recovery": 5,
    "least": "10M",
}
_BY_DELAY: Final = {"target": "25us", "beta_thousandths": 800, "most_decrease_thousandths": 500}
_HPCC: Final = {
    "base_rtt": "auto",
    "eta": "19/20",
    "max_stage": 5,
    "flows": 100,
    "additive": "auto",
    "int": "42B",
}


def _control(algorithm: str, knobs: dict[str, Any]) -> dict[str, Any]:
    return {"transport": {"congestion_control": {"kind": algorithm, **knobs}}}


_MARKING: Final = {"switch": {"ecn": {"enabled": True}}}
_WEIGHTED: Final = {"kind": "weighted", "strict": [6], "weights": [1, 1, 1, 1, 1, 1, 1, 1]}


def _multipath() -> dict[str, Any]:
    made = _scenario("with-multipath", 64, {**_PERMUTATION, "size": "8MiB"})
    marking = {"enabled": True, "kmin": "100KB", "kmax": "300KB", "pmax": 1}
    unused = {"kind": "go_back_n", "placement": "in_order", "reorder": 0, "window": "auto"}
    transport = {"kind": "multipath", "recovery": unused}
    return over(made, {"transport": transport, "switch": {"pfc": {"enabled": False}, "ecn": marking}})


FEATURES: Final[dict[str, Case]] = {
    case.name: case
    for case in (
        _with("with-receive", "a way to memory of 63GB/s", {"nic": {"receive": {"enabled": True}}}),
        _with("with-arbiter", "weighted arbiters", {"nic": {"arbiter": _WEIGHTED}}),
        _with("with-hpcc", "HPCC", _control("hpcc", _HPCC)),
        _with(
            "with-dcqcn",
            "DCQCN",
            _MARKING | _control("dcqcn", {**_DCQCN, "additive": "400M", "hyper": "4G"}),
        ),
        _with("with-ecn", "RED marking", _MARKING),
        _with("with-watchdog", "PFC watchdogs", {"switch": {"pfc": {"watchdog": {"enabled": True}}}}),
        _with(
            "with-hybrid",
            "round trip and ECN together",
            _MARKING | _control("hybrid", {**_DCQCN, **_BY_DELAY, "additive": "40M", "hyper": "400M"}),
        ),
        _with(
            "with-swift",
            "Swift",
            _control("swift", {**_BY_DELAY, "additive_thousandths": 1000, "window": "1MB"}),
        ),
        Case("with-multipath", "64-host permutation with transport.kind: multipath", _multipath),
        _with("with-credits", "credits in place of PFC", {"link": {"flow_control": "credits"}}),
        _with(
            "with-profiles",
            "static thresholds and limits of lossy queues",
            {"switch": {"buffer": {"profiles": [_STATIC], "egress_limit": "2MB", "egress_alpha": "1/2"}}},
        ),
        _with("with-stamps", "a TTL of its own in every packet", {"nic": {"ttl": 63}}),
    )
}
"""What a feature costs; run only by name (`--case`)."""

LONG: Final = Case(
    "permutation-64-long", "64-host permutation of 160MiB", _permutation(64, "160MiB").scenario
)
"""Long enough to be scraped many times."""

BOND: Final = Case("bond-64", "64-host permutation of 8MiB, two ports of 200G a NIC, dual-ToR", _bonded)
"""What two ports cost; on a fabric of its own."""

TRAINING: Final = Case(
    "training-256", "a step of training over 256 GPUs in servers of 8, TP 8 over NVLink, PP 4", _training
)
"""Most of its events are messages between hosts, GPUs and NVSwitches."""

LARGE: Final[dict[str, Case]] = {
    case.name: case for case in (_all_to_all(512, "32MiB", warmup=0, iterations=1), LONG, BOND, TRAINING)
}
"""What takes minutes, or compares with nothing; run only by name."""

EVERY: Final = CASES | FEATURES | LARGE


def loop_rounds_per_s() -> float:
    """Rounds of the fixed loop per CPU second, now. Takes some tenths of a second."""
    value = 1
    begun_s = process_time()
    for step in range(LOOP_ROUNDS):
        value = (value * 1_103_515_245 + 12_345 + step) & 0x7FFFFFFF
    spent_s = process_time() - begun_s
    assert value >= 0
    return LOOP_ROUNDS / spent_s


class Measured(NamedTuple):
    """One run of one case, as its process printed it."""

    packet_hops: int
    data_packet_hops: int
    events: int
    wall_s: float
    cpu_s: float
    build_s: float
    peak_rss_bytes: int
    virtual_ps: int
    digest: str
    compiled: bool
    workers: int
    snapshots: int = 0
    snapshots_s: float = 0.0
    """For how long the run stood still for them."""
    scrapes: int = 0
    """How often it was scraped."""

    @property
    def hops_per_cpu_s(self) -> float:
        """Packet-hops per CPU second."""
        return self.packet_hops / self.cpu_s if self.cpu_s > 0 else 0.0

    @property
    def events_per_cpu_s(self) -> float:
        """Events of all devices per CPU second: over NVLink, copies and host links, too."""
        return self.events / self.cpu_s if self.cpu_s > 0 else 0.0

    @property
    def data_hops_per_cpu_s(self) -> float:
        """Packet-hops of frames with payload per CPU second."""
        return self.data_packet_hops / self.cpu_s if self.cpu_s > 0 else 0.0
