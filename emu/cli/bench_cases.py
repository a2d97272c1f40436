"""Which runs measure the speed of the engine?

Fixed cases, so that a figure means the same next year: the leaf-spine on which independent simulators of
lossless RoCE were measured side by side (8 hosts a leaf, 8 spines, every link 400G and 500 ns, MTU 4,096, an
ACK for every packet, no latency in switches and NICs, hosts that cost nothing). Permutations send from every
host to a drawn other one; the incast sends sixteen to one; the rings have the collective library on top.

The loop is a yardstick of the machine: a fixed piece of plain Python, timed in turn with the cases, so that
two machines, or one machine on two days, can be compared by the ratio of the two.
"""

from __future__ import annotations

from collections.abc import Callable
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


def _scenario(name: str, hosts: int, workload: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": name,
        "seed": 1,
        "topology": {
            "kind": "ai_zone",
            "racks": max(hosts // HOSTS_PER_LEAF, 2),
            "hosts_per_rack": HOSTS_PER_LEAF,
            "gpus_per_host": 1,
            "spines": SPINES,
            "link": "400G",
            "nic_delay": "500ns",
            "uplink_delay": "500ns",
        },
        "switch": {"latency": 0},
        "nic": {"latency": 0},
        "transport": {"mtu": 4096, "ack_every": 1},
        "jobs": [{"name": "bench", "workload": workload}],
    }


def _permutation(hosts: int, size: str) -> Case:
    workload = {"kind": "flows", "pattern": "permutation", "size": size}
    name = f"permutation-{hosts}"
    return Case(name, f"{hosts}-host permutation of {size}", lambda: _scenario(name, hosts, workload))


def _verb(verb: str) -> Case:
    workload = {"kind": "flows", "pattern": "permutation", "size": "2MiB", "message": "64KiB", "verb": verb}
    name = f"{verb}-64"

    def made() -> dict[str, Any]:
        case = _scenario(name, 64, workload)
        case["transport"]["receive_queue"] = {"depth": 256}
        return case

    return Case(name, f"64-host permutation of 2MiB, verb {verb}, 64KiB a message", made)


def _lossy(scheme: str) -> Case:
    workload = {"kind": "flows", "pattern": "permutation", "size": "4MiB", "message": "1MiB"}
    name = f"lossy-{scheme.replace('_', '-')}-64"

    def made() -> dict[str, Any]:
        case = _scenario(name, 64, workload)
        case["nic"]["corrupt_every"] = 256
        case["transport"]["recovery"] = {"scheme": scheme}
        case["transport"]["adaptive_retransmission"] = {"enabled": True}
        return case

    return Case(name, f"64-host permutation of 4MiB, one packet in 256 lost, {scheme}", made)


def _short_of_receives() -> dict[str, Any]:
    workload = {"kind": "flows", "pattern": "permutation", "size": "1MiB", "message": "4KiB", "verb": "send"}
    case = _scenario("rnr-64", 64, workload)
    case["transport"] |= {"receive_queue": {"depth": 32, "repost": "200ns"}, "rnr_timer": 1}
    return case


def _with(name: str, title: str, sections: dict[str, Any]) -> Case:
    """The permutation of 64 hosts with something switched on: compare with `permutation-64`."""
    workload = {"kind": "flows", "pattern": "permutation", "size": "8MiB"}

    def scenario() -> dict[str, Any]:
        made = _scenario(name, 64, workload)
        for key, section in sections.items():
            made[key] = made.get(key, {}) | section
        return made

    return Case(name, f"64-host permutation with {title}", scenario)


def _ring(ranks: int, size: str = "16MiB") -> Case:
    workload = {"kind": "collective", "op": "all_reduce", "sizes": [size]}
    name = f"ring-{ranks}"
    return Case(
        name, f"ring all_reduce of {size} over {ranks} ranks", lambda: _scenario(name, ranks, workload)
    )


def _all_to_all(ranks: int, size: str = "16MiB", **more: int) -> Case:
    workload = {"kind": "collective", "op": "all_to_all", "algorithm": "direct", "sizes": [size], **more}
    name = f"all-to-all-{ranks}"
    return Case(
        name, f"direct all_to_all of {size} over {ranks} ranks", lambda: _scenario(name, ranks, workload)
    )


ROUTINGS: Final[dict[str, dict[str, Any]]] = {
    "ecmp": {"policy": "ecmp"},
    "crc32": {"policy": "e_ecmp", "hash": "crc32"},
    "path-pinning": {"policy": "path_pinning"},
    "flowlet": {"policy": "flowlet"},
    "spray": {"policy": "spray"},
    "adaptive": {"policy": "adaptive"},
    "adaptive-packet": {"policy": "adaptive", "granularity": "packet"},
    "traffic-engineering": {"policy": "traffic_engineering", "interval": "50us"},
}
"""What is measured against `permutation-64`, which routes by the default, `e_ecmp`."""


def _routing(name: str) -> Case:
    """The 64-host permutation by another policy, where overtaking is nobody's loss."""
    case = f"routing-{name}"

    def scenario() -> dict[str, Any]:
        made = _scenario(case, 64, {"kind": "flows", "pattern": "permutation", "size": "8MiB"})
        made["transport"]["recovery"] = {
            "scheme": "go_back_n",
            "placement": "out_of_order",
            "window": "16MiB",
            "reorder": 4096,
        }
        made["control"] = {"management_delay": "5us"}
        return {**made, "routing": ROUTINGS[name]}

    return Case(case, f"64-host permutation of 8MiB, routing {name.replace('-', ' ')}", scenario)


def _one_flow() -> dict[str, Any]:
    flow = {"src": 0, "dst": 8, "size": "512MiB"}
    return _scenario("one-flow", 16, {"kind": "flows", "pattern": "list", "flows": [flow]})


def _incast() -> dict[str, Any]:
    workload = {"kind": "flows", "pattern": "incast", "fan_in": 16, "size": "16MiB"}
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
    "routing": {"policy": "e_ecmp"},
    "transport": {"timeout": 8},
    "ncclx": {"qps_per_connection": 16},
}
"""The quickstart's fabric, 64 GPUs in four racks, and what is told to its NICs and library."""


def _quickstart() -> dict[str, Any]:
    workload = {"kind": "collective", "op": "all_reduce", "sizes": ["1MiB", "2MiB", "4MiB", "8MiB"]}
    return {
        "name": "quickstart",
        **QUICKSTART,
        "jobs": [{"name": "bench", "ranks": "all", "workload": workload}],
        "faults": [{"at": "300us", "kind": "link_down", "target": "rtsw-0:ctsw-3", "for": "200us"}],
    }


def _bonded() -> dict[str, Any]:
    made = _scenario("bond-64", 64, {"kind": "flows", "pattern": "permutation", "size": "8MiB"})
    made["topology"] = {
        "kind": "dcn_plus",
        "pods": 1,
        "segments_per_pod": 8,
        "hosts_per_segment": 8,
        "gpus_per_host": 1,
        "aggs_per_pod": 8,
        "links_per_tor_agg": 1,
    }
    return made


_DIRTY: Final = [{"link": "rtsw-0:ctsw-0", "rate": "1/100000000"}]

CASES: Final[dict[str, Case]] = {
    case.name: case
    for case in (
        Case("one-flow", "one flow of 512MiB, empty fabric", _one_flow),
        _permutation(64, "8MiB"),
        _permutation(128, "8MiB"),
        _permutation(256, "8MiB"),
        _permutation(512, "8MiB"),
        _permutation(1024, "4MiB"),
        _with("cut-through-64", "cut-through switches", {"switch": {"forwarding": "cut_through"}}),
        _with("qos-maps-64", "DSCP maps on every switch", {"nic": {"dscp": {3: 26}}}),
        _with("bit-errors-64", "bit errors on one link", {"link": {"bit_errors": _DIRTY}}),
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


_STATIC: Final = {"priorities": [3], "xoff": "500KB", "xon": "400KB"}


FEATURES: Final[dict[str, Case]] = {
    case.name: case
    for case in (
        _with("with-receive", "a way to memory of 63GB/s", {"nic": {"receive": {"enabled": True}}}),
        _with("with-arbiter", "weighted arbiters", {"nic": {"arbiter": {"policy": "weighted"}}}),
        _with("with-hpcc", "HPCC", {"transport": {"congestion_control": {"algorithm": "hpcc"}}}),
        _with(
            "with-dcqcn",
            "DCQCN",
            {
                "switch": {"ecn": {"enabled": True}},
                "transport": {
                    "congestion_control": {"algorithm": "dcqcn", "additive": "400M", "hyper": "4G"}
                },
            },
        ),
        _with("with-ecn", "RED marking", {"switch": {"ecn": {"enabled": True}}}),
        _with("with-watchdog", "PFC watchdogs", {"switch": {"pfc": {"watchdog": {"enabled": True}}}}),
        _with(
            "with-hybrid",
            "round trip and ECN together",
            {
                "switch": {"ecn": {"enabled": True}},
                "transport": {"congestion_control": {"algorithm": "hybrid"}},
            },
        ),
        _with("with-swift", "Swift", {"transport": {"congestion_control": {"algorithm": "swift"}}}),
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

LARGE: Final[dict[str, Case]] = {
    case.name: case for case in (_all_to_all(512, "32MiB", warmup=0, iterations=1), LONG, BOND)
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
    def data_hops_per_cpu_s(self) -> float:
        """Packet-hops of frames with payload per CPU second."""
        return self.data_packet_hops / self.cpu_s if self.cpu_s > 0 else 0.0
