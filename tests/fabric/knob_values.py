"""What is each knob tried with?

`TRIED` has for each key a value other than the one that it has on the fabric of `tests.fabric.knobs`, and
what else this key needs to matter. `RESTS` has the knobs that change nothing, with the reason. A kind's own
tag (`kind: spray`) is tried against another kind.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from tests.fabric.knobs import CUT, FLAP, LONG, OUT_OF_ORDER, POLICIES, SENDS, TWO_PORTS, Overrides

HERE: Final = Path(__file__).parent
SCENARIOS: Final = HERE.parents[1] / "scenarios"


BOX: Final[Overrides] = {
    **LONG,
    "switch.buffer.pool": "20MB",
    "nic.dscp": {3: 26, 6: 48},
    "transport.congestion_control.kind": "dcqcn",
}
"""What a SONiC box's configuration needs to matter: room for it, the DSCPs of its maps, somebody who heeds
its marks."""


class After(dict[str, Any]):
    """Overrides in place of a value, where one key cannot change alone."""


Try = tuple[Any, Overrides]
"""Another value, and what else this key needs."""

_LOST: Final = {
    "faults": [{"kind": "link_down", "at": "2us", "target": "ctsw-0:rtsw-1"}],
    "routing.local_convergence": "100ns",
    "routing.convergence": "20us",
    "transport.timeout": 2,
}
"""A spine that routes around the link it lost, as long as leaves do not know."""
_HASHED: Final[Mapping[str, Try]] = {
    "kind": ("", {}),
    "hash": ("crc32", {}),
    "fields": (["src", "qpn"], {}),
    "polynomial": ([0x8005], {"routing.hash": "crc16"}),
    "bit_offset": ([3], {}),
    "seed": ("equal", {}),
    "weights": ("capacity", {}),
    "convergence": ("5us", FLAP),
    "local_convergence": ("100ns", FLAP),
    "paths": ("valley_free", _LOST),
}
_SILENT: Final = {
    "faults": [{"kind": "degrade", "at": "3us", "target": "rtsw-0:ctsw-0", "for": "30us", "loss": 1}],
    "transport.timeout": 2,
}
_BGP: Final[Mapping[str, Try]] = {
    "enabled": (True, {**FLAP, "routing.bgp.hop": "1us"}),
    "hop": ("2us", {**FLAP, "routing.bgp.enabled": True, "routing.bgp.hop": "1us"}),
    "advertisement_interval": ("10us", {**FLAP, "routing.bgp.enabled": True, "routing.bgp.hop": "1us"}),
    "hold_time": ("5us", {**_SILENT, "routing.bgp.enabled": True, "routing.bgp.hop": "1us"}),
}
_WEIGHT: Final[Mapping[str, Try]] = {"link": ("rtsw-0:ctsw-1", {}), "weight": (1, {})}
_MAPS: Final[Mapping[str, Try]] = {
    "dscp_to_tc": ({24: 6}, {}),
    "tc_to_queue": ({3: 7}, {}),
    "tc_to_priority_group": ({3: 6}, {}),
    "pfc_priority_to_queue": ({3: 4, 4: 3}, {}),
}
_SHARE: Final[Mapping[str, Try]] = {
    "alpha": ("1/64", {}),
    "xoff": ("20KB", {}),
    "xon": ("5KB", {}),
    "xon_offset": (0, {}),
    "reserve": ("1KiB", {}),
    "headroom": ("60KB", {}),
}
_DCQCN: Final[Mapping[str, Try]] = {
    "kind": ("", {}),
    "cnp_interval": ("5us", {}),
    "cnp_delay": ("1us", {}),
    "cnp_priority": (0, {"jobs[0].workload.flows[3].size": "256KiB"}),
    "gain_bits": (2, {}),
    "alpha_timer": ("1us", {}),
    "increase_timer": ("1us", {}),
    "byte_counter": ("5KB", {}),
    "fast_recovery": (4, {}),
    "additive": ("20G", {}),
    "hyper": ("40G", {}),
    "least": ("60G", {}),
}
_DELAY: Final[Mapping[str, Try]] = {
    "target": ("2us", {}),
    "beta_thousandths": (100, {}),
    "most_decrease_thousandths": (100, {}),
}

_WINDOW: Final[Mapping[str, Try]] = {
    "kind": ("", {}),
    "cnp_interval": ("5us", {}),
    "cnp_delay": ("1us", {}),
    "cnp_priority": (5, {}),
    "initial_window": (2, {}),
    "ecn": (True, {}),
}

TRIED: Final[Mapping[str, Mapping[str, Try]]] = {
    **{f"routing (kind: {name})": {**_HASHED, "resilient_buckets": (64, {})} for name in ("ecmp", "e_ecmp")},
    "routing (kind: path_pinning)": _HASHED,
    **{f"routing (kind: {name}).bgp": _BGP for name in POLICIES},
    "routing (kind: flowlet)": {**_HASHED, "gap": ("5us", {}), "entries": (1, {})},
    "routing (kind: spray)": {
        **_HASHED,
        "order": ("random", {}),
        "allow_reordering": (True, {}),
    },
    "routing (kind: adaptive)": {
        **_HASHED,
        "granularity": ("packet", OUT_OF_ORDER),
        "grade": ("1B", {**OUT_OF_ORDER, "routing.granularity": "packet"}),
        "gap": ("5us", {}),
        "entries": (1, {}),
        "allow_reordering": (True, {}),
    },
    "routing (kind: traffic_engineering)": {
        **_HASHED,
        "interval": ("5us", {}),
        "entries": (0, {}),
        "threshold": ("100G", {}),
        "fill": ("1/100", {}),
        "hysteresis": ("1", {}),
    },
    **{f"routing (kind: {name}).link_weights[]": _WEIGHT for name in POLICIES},
    "switch": {
        "config_db": (str(SCENARIOS / "switch/sonic_config_db.json"), BOX),
        "pg_profile_lookup": (
            str(HERE / "box_pg_profile_lookup.ini"),
            {**LONG, "switch.config_db": str(HERE / "box_config_db.json")},
        ),
        "latency": ("400ns", {}),
        "forwarding": ("cut_through", {}),
    },
    "switch.buffer": {
        **_SHARE,
        "pool": ("2MB", {}),
        "headroom_pool": ("100KB", {}),
        "egress_limit": ("4KB", {"switch.pfc.enabled": False, "transport.timeout": 2}),
        "egress_alpha": ("1/128", {"switch.pfc.enabled": False, "transport.timeout": 2}),
        "asic": ("tomahawk5", {"switch.buffer.pool": "3MB"}),
        "lossless_egress_limit": ("4KB", {"transport.timeout": 2}),
        "lossless_egress_alpha": ("1/128", {"transport.timeout": 2}),
    },
    "switch.buffer.profiles[]": {
        **_SHARE,
        "priorities": ([6], {}),
    },
    "switch.buffer.admission (kind: thresholds)": {"kind": ("", {})},
    "switch.deep_buffer": {
        "where": ("none", {}),
        "port_buffer": ("400KB", {}),
        "alpha": ("1/64", {}),
        "credit_delay": ("1us", {}),
        "initial_credit": ("9KB", {}),
        "credit_growth": (1, {"switch.deep_buffer.initial_credit": "9KB"}),
        "most_credit": ("9KB", {"switch.deep_buffer.initial_credit": "9KB"}),
        "credit_quantum": ("64KiB", {}),
    },
    "switch.pfc": {
        "enabled": (False, {}),
        "priorities": ([3], {}),
        "quanta": (20, {}),
        "response": ("50ns", {}),
        "silent_to": (["ctsw-0"], {"switch.buffer.alpha": "1/64"}),
        "ignores": (["rtsw-1"], {"switch.buffer.alpha": "1/64"}),
    },
    "switch.pfc.watchdog": {
        "enabled": (False, {}),
        "detection": ("1us", {}),
        "restoration": ("5us", {}),
        "action": ("forward", {}),
        "drops": ("both", {}),
    },
    "switch.ecn (kind: red)": {
        "kind": ("", {}),
        "enabled": (False, {}),
        "kmin": ("10KB", {}),
        "kmax": ("60KB", {}),
        "pmax": ("1", {}),
        "reference": ("100G", {}),
        "scaled": (False, {}),
        "priorities": ([6], {}),
    },
    "switch.ecn (kind: red).profiles[]": {
        "kmin": (0, {}),
        "kmax": ("60KB", {}),
        "pmax": ("1", {}),
        "priorities": ([6], {}),
    },
    "switch.scheduling (kind: weighted)": {
        "kind": ("", {}),
        "strict": ([3], {}),
        "weights": ([1, 1, 1, 9, 1, 1, 1, 1], {}),
    },
    "switch.qos": _MAPS,
    "switch.static_routes[]": {
        "switch": ("rtsw-1", {}),
        "destination": ("nic-3", {}),
        "via": ("ctsw-1", {}),
    },
    "link": {
        "flow_control": ("credits", {}),
        "rate": ("100G", {}),
        "delay": ("100ns", {}),
        "bit_error_rate": ("1/20000", {"transport.timeout": 3}),
        "down_debounce": ("2us", FLAP),
        "up_debounce": ("2us", FLAP),
    },
    "link.credits": {"buffer": ("32KB", {}), "update": ("1KB", {})},
    "nic": {
        "latency": ("500ns", {}),
        "pfc_response": ("50ns", {}),
        "bond": ("first", TWO_PORTS),
        "corrupt_every": (7, {"transport.timeout": 3}),
        "jitter": ("1us", {}),
        "ttl": (2, {}),
        "queue_pairs": (1000, {}),
        "dscp": ({3: 48}, {}),
    },
    "nic.arbiter (kind: round_robin)": {"kind": ("", {})},
    "nic.arbiter (kind: weighted)": {
        "kind": ("", {}),
        "strict": ([6], {}),
        "weights": ([1, 1, 1, 9, 1, 1, 1, 1], {}),
    },
    "nic.context_cache": {"entries": (0, {}), "miss_penalty": ("2us", {})},
    "nic.receive": {
        "enabled": (False, {}),
        "rate": ("20G", {}),
        "buffer": ("150KB", {}),
        "xoff": ("10KB", {}),
        "xon": ("1KB", {}),
    },
    "transport.paths (kind: multipath)": {
        "kind": ("", {}),
        "paths": (2, {}),
        "window": ("8KB", {}),
        "placement": ("4KB", {}),
        "silence": ("2us", FLAP),
        "silent_after": (1, FLAP),
        "probe": ("5us", FLAP),
        "share_interval": ("1us", LONG),
    },
    "transport": {
        "kind": ("multipath", {"transport.recovery": {"kind": "go_back_n"}}),
        "mtu": (512, {}),
        "timeout": (1, FLAP),
        "retry_count": (0, FLAP),
        "rnr_timer": (2, SENDS),
        "rnr_retry": (1, {**SENDS, "transport.receive_queue.repost": "20us"}),
        "remote_access": ("read", {}),
        "max_rd_atomic": (1, {"jobs[0].workload.verb": "read", "jobs[0].workload.message": "2KiB"}),
        "ack_every": (4, {}),
        "udp_source_port": ("per_pair", {}),
        "data_priority": (6, {}),
        "control_priority": (5, {}),
        "ack_priority": (5, {}),
    },
    "transport.recovery (kind: go_back_n)": {
        "kind": ("", {}),
        "placement": ("in_order", {}),
        "reorder": (1, {}),
        "window": ("1KiB", {"transport.recovery.reorder": 1}),
    },
    "transport.recovery (kind: go_back_0)": {"kind": ("", {})},
    "transport.recovery (kind: selective_repeat)": {
        "kind": ("", {}),
        "reorder": (4, {}),
        "window": ("4KB", {}),
    },
    "transport.recovery (kind: tcp)": {
        "kind": ("", {}),
        "reorder": (1, {}),
        "window": ("4KB", {}),
        "least_timeout": ("10us", {}),
        "first_timeout": ("30us", CUT),
        "most_timeout": ("60us", CUT),
        "retries": (1, CUT),
        "delayed_ack": ("1us", {}),
    },
    "transport.congestion_control (kind: reno)": {**_WINDOW, "byte_counting": (False, {})},
    "transport.congestion_control (kind: cubic)": {**_WINDOW, "fast_convergence": (False, {})},
    "transport.congestion_control (kind: none)": {
        "kind": ("", {}),
        "cnp_interval": ("5us", {}),
        "cnp_delay": ("1us", {}),
        "cnp_priority": (5, {}),
    },
    "transport.congestion_control (kind: dcqcn)": _DCQCN,
    "transport.congestion_control (kind: swift)": {
        "kind": ("", {}),
        "cnp_interval": ("5us", {}),
        "cnp_delay": ("1us", {}),
        "cnp_priority": (5, {}),
        **_DELAY,
        "most_decrease_thousandths": (10, {"transport.congestion_control.target": "2us"}),
        "additive_thousandths": (5000, {}),
        "window": ("16KB", {}),
    },
    "transport.congestion_control (kind: hybrid)": {**_DCQCN, **_DELAY},
    "transport.congestion_control (kind: hpcc)": {
        "kind": ("", {}),
        "cnp_interval": ("5us", {}),
        "cnp_delay": ("1us", {}),
        "cnp_priority": (5, {}),
        "base_rtt": ("8us", {}),
        "eta": ("1/2", {}),
        "max_stage": (0, {}),
        "flows": (2, {}),
        "additive": ("2KB", {}),
        "int": ("0B", {}),
    },
    "transport.adaptive_retransmission": {"enabled": (False, {}), "least": ("20us", {})},
    "transport.receive_queue": {"depth": (2, {}), "repost": ("5us", {})},
}

_UNHASHED: Final = "no hash is taken: a table in turn, or the random stream"
_LIFTS: Final = "lifts a refusal, and is no part of the model"
_WHOLE: Final = "the place in the table is by the whole hash"
_UNMARKED: Final = "queue pairs that answer to no CNP send packets that are not ECN-capable"
RESTS: Final[Mapping[str, str]] = {
    **{
        f"routing (kind: spray).{key}": _UNHASHED
        for key in ("hash", "fields", "polynomial", "bit_offset", "seed")
    },
    "routing (kind: spray).allow_reordering": _LIFTS,
    "routing (kind: adaptive).allow_reordering": _LIFTS,
    "routing (kind: flowlet).bit_offset": _WHOLE,
    "routing (kind: adaptive).bit_offset": _WHOLE,
    "nic.queue_pairs": "a limit: a run that passes it does not begin",
    "transport.control_priority": "of the library's clear-to-sends, and flows of plain verbs have none",
    "routing (kind: traffic_engineering).hysteresis": "no entry moves in so short a run",
    **{
        f"transport.congestion_control (kind: {name}).{key}": _UNMARKED
        for name in ("none", "swift", "hpcc")
        for key in ("cnp_interval", "cnp_delay", "cnp_priority")
    },
    "transport.congestion_control (kind: cubic).fast_convergence": "at microseconds W_est leads, not W_max",
    **{
        f"transport.congestion_control (kind: {name}).{key}": "TCP's marks come back with acknowledgements"
        for name in ("reno", "cubic")
        for key in ("cnp_interval", "cnp_delay", "cnp_priority")
    },
}
"""By `heading.key`: why it changes nothing."""
