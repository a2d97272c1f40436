"""Does flow level answer as packet level does on fabrics of 64 to 256 GPUs?

Bounds are those of `emu.flow.cross`: payload of every link the same, collectives and steps 3 %, flows 5 %, or
10 % where ports were paused. A call that is alone takes what its packets take. Few incasts, permutations and
jobs that meet are here: which packet is first decides on most of them, and rates say that they are doubtful.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emu.api import run
from emu.flow.cross import differences

pytestmark = pytest.mark.long

ZONE: Final = {"kind": "ai_zone", "gpus_per_host": 8, "hosts_per_rack": 2, "spines": 4}
POD: Final = {"kind": "llama3", "pods": 1, "racks_per_pod": 4, "ctsws_per_pod": 4}
"""Of the cluster whose aggregation is of modular switches."""
MODULAR: Final = {"kind": "ai_zone", "gpus_per_host": 1, "hosts_per_rack": 4, "racks": 4, "spines": 4}
HPN: Final = {
    "kind": "hpn",
    "pods": 1,
    "segments_per_pod": 2,
    "hosts_per_segment": 2,
    "gpus_per_host": 2,
}
BARE: Final = {"kind": "ai_zone", "gpus_per_host": 1, "hosts_per_rack": 16, "spines": 16}


def collective(op: str, algorithm: str, size: str, **job: Any) -> list[dict[str, Any]]:
    """One job of one collective."""
    workload = {"kind": "collective", "op": op, "algorithm": algorithm, "sizes": [size]}
    return [{"name": "job", "workload": workload} | job]


def flows(kind: str, **workload: Any) -> list[dict[str, Any]]:
    """One job of this kind."""
    return [{"name": "job", "workload": {"kind": kind} | workload}]


OUT_OF_ORDER: Final[dict[str, Any]] = {
    "ack_every": 16,
    "recovery": {"kind": "go_back_n", "placement": "out_of_order"},
}
"""A transport that takes packets as they come."""
CONVERGING: Final = {"local_convergence": "10us", "convergence": "60us"}
STEP: Final[dict[str, Any]] = {
    "model": "llama3-8b",
    "layers": 4,
    "sequence": 1024,
    "scale": "1/200",
    "tp": 8,
    "pp": 2,
    "micro_batches": 4,
}

CALLS: Final[dict[str, dict[str, Any]]] = {
    "a ring through 64 GPUs of eight servers": {
        "topology": ZONE | {"racks": 4},
        "jobs": collective("all_reduce", "ring", "4MiB"),
    },
    "a ring of 64 over 16 queue pairs by turns": {
        "topology": BARE | {"racks": 4},
        "ncclx": {"channels": 1, "protocol": "simple", "qps_per_connection": 16},
        "jobs": collective("reduce_scatter", "ring", "8MiB", order="strided"),
    },
    "two trees of 64": {
        "topology": ZONE | {"racks": 4},
        "jobs": collective("all_reduce", "double_binary_tree", "1MiB"),
    },
    "trees over servers whose NVSwitches reduce, 64": {
        "topology": ZONE | {"racks": 4},
        "ncclx": {"channels": 4},
        "jobs": collective("all_reduce", "nvls_tree", "1MiB"),
    },
    "halving and doubling among 128": {
        "topology": BARE | {"racks": 8},
        "ncclx": {"channels": 1, "protocol": "simple"},
        "jobs": collective("all_reduce", "halving_doubling", "1MiB"),
    },
    "a reduction by servers and rails, 64": {
        "topology": ZONE | {"racks": 4},
        "ncclx": {"channels": 4},
        "jobs": collective("all_reduce", "hierarchical", "1MiB"),
    },
    "an exchange of 64": {
        "topology": BARE | {"racks": 4},
        "ncclx": {"channels": 1},
        "jobs": collective("all_to_all", "direct", "2MiB"),
    },
    "a ring of 64 through modular switches": {
        "topology": POD,
        "ncclx": {"channels": 2, "protocol": "simple"},
        "jobs": collective("all_gather", "ring", "4MiB"),
    },
    "two trees of 64 through modular switches": {
        "topology": POD,
        "ncclx": {"channels": 2},
        "jobs": collective("all_reduce", "double_binary_tree", "256KiB"),
    },
    "a ring over NICs with two ports": {
        "topology": HPN,
        "ncclx": {"channels": 2, "qps_per_connection": 2},
        "jobs": collective("all_reduce", "ring", "256KiB"),
    },
    "trees over NICs of which one port waits": {
        "topology": HPN,
        "nic": {"bond": "first"},
        "jobs": collective("all_reduce", "double_binary_tree", "256KiB"),
    },
}
"""One call each."""

CASES: Final[dict[str, dict[str, Any]]] = {
    "a ring of 128 of which every step crosses the spines": {
        "topology": BARE | {"racks": 8},
        "ncclx": {"channels": 1, "protocol": "simple", "qps_per_connection": 4},
        "jobs": collective("all_gather", "ring", "8MiB", order="strided"),
    },
    "a ring of 256": {
        "topology": ZONE | {"racks": 16},
        "ncclx": {"channels": 1, "protocol": "simple"},
        "jobs": collective("all_gather", "ring", "16MiB"),
    },
    "a ring of 64 over four queue pairs that share each slice": {
        "topology": BARE | {"racks": 4},
        "ncclx": {"channels": 1, "protocol": "simple", "qps_per_connection": 4, "qp_policy": "split"},
        "jobs": collective("all_reduce", "ring", "8MiB", order="strided"),
    },
    "15 to one, with pauses": {
        "topology": BARE | {"racks": 4},
        "switch": {"buffer": {"pool": "10MB"}},
        "jobs": flows("incast", fan_in=15, size="2MiB"),
    },
    "a permutation of 64 whose packets are sprayed": {
        "topology": BARE | {"racks": 4},
        "routing": {"kind": "spray"},
        "transport": OUT_OF_ORDER,
        "jobs": flows("permutation", size="16MiB", racks="distinct"),
    },
    "a ring of 64 with slow uplinks": {
        "topology": ZONE | {"racks": 4},
        "ncclx": {"channels": 1, "protocol": "simple"},
        "jobs": collective("all_gather", "ring", "16MiB"),
        "faults": [{"kind": "degrade", "at": "100us", "rate": "100G", "target": "rtsw-0:ctsw-*"}],
    },
    "a sprayed permutation of 64 while a spine is drained": {
        "topology": BARE | {"racks": 4},
        "routing": CONVERGING | {"kind": "spray"},
        "transport": OUT_OF_ORDER,
        "jobs": flows("permutation", size="16MiB", racks="distinct"),
        "faults": [{"kind": "switch_drain", "at": "50us", "target": "ctsw-1"}],
    },
    "a victim beside an incast through a modular switch": {
        "topology": MODULAR | {"spines": 1, "uplink": "1600G"},
        "switch": {"buffer": {"pool": "4MB"}, "deep_buffer": {"where": "spines"}},
        "jobs": flows(
            "flows",
            flows=[
                *({"src": at, "dst": 4, "size": "2MiB"} for at in (0, 1, 2)),
                {"src": 3, "dst": 8, "size": "1MiB"},
            ],
        ),
    },
    "two jobs of which one begins later, over uplinks that pause": {
        "topology": BARE | {"hosts_per_rack": 4, "racks": 4, "spines": 1},
        "switch": {"buffer": {"pool": "2MB"}},
        "ncclx": {"channels": 1, "protocol": "simple"},
        "jobs": [
            *collective(
                "all_gather", "ring", "8MiB", name="even", ranks=list(range(0, 16, 2)), order="strided"
            ),
            *collective(
                "all_gather",
                "ring",
                "8MiB",
                name="odd",
                ranks=list(range(1, 16, 2)),
                order="strided",
                start="100us",
            ),
        ],
    },
    "a training step of 64 with a slow GPU": {
        "topology": ZONE | {"racks": 4},
        "ncclx": {"channels": 1},
        "jobs": flows("training", **STEP | {"micro_batches": 2}),
        "faults": [{"kind": "gpu_slow", "at": "100us", "for": "300us", "factor": 2, "target": "gpu-3-1"}],
    },
    "a training step of 64": {
        "topology": ZONE | {"racks": 4},
        "ncclx": {"channels": 1},
        "jobs": flows("training", **STEP),
    },
}


def scenario(name: str, fidelity: str) -> Mapping[str, Any]:
    """A case at one level."""
    return {"name": "cross", "fidelity": fidelity} | (CALLS | CASES)[name]


@pytest.mark.parametrize("name", CASES)
def test_rates_are_within_their_bounds(name: str) -> None:
    packet, flow = (run(dict(scenario(name, one)), local=True).summary for one in ("packet", "flow"))
    found = differences(packet, flow, by_load=bool(CASES[name].keys() & {"routing", "faults"}))
    assert len(found) > 1
    assert ("pause" not in name) or packet.fabric.pfc_transmit_xoff_frames
    assert [one for one in found if not one.holds] == []


@pytest.mark.parametrize("name", CALLS)
def test_a_call_alone_takes_what_its_packets_take(name: str) -> None:
    packet, flow = (run(dict(scenario(name, one)), local=True).summary for one in ("packet", "flow"))
    found = differences(packet, flow)
    assert [one.part for one in found if one.what.startswith("job")] == pytest.approx([0.0], abs=1e-5)
    assert [one for one in found if one.what.startswith("payload")] == []
    assert flow.engine.doubts == []


@pytest.mark.parametrize(("tp", "pp"), [(1, 4), (2, 4), (4, 2), (4, 4)])
def test_a_small_step_takes_what_its_packets_take(tp: int, pp: int) -> None:
    """Stages send so little that the waits of a transfer, added up, are more than all of it takes."""
    small = STEP | {"scale": "1/400", "tp": tp, "pp": pp, "micro_batches": 3}
    step = {"topology": ZONE | {"racks": 1}, "ncclx": {"channels": 1}, "jobs": flows("training", **small)}
    packet, flow = (
        run({"name": "cross", "fidelity": one} | step, local=True).summary for one in ("packet", "flow")
    )
    assert (flow.ending, flow.engine.doubts) == ("finished", [])
    assert next(one.part for one in differences(packet, flow)) == pytest.approx(0.0, abs=0.004)


def test_a_long_ring_is_known_from_how_it_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("emu.flow.requests.MOST_HOPS", 10_000)
    monkeypatch.setattr("emu.flow.requests.MOST_WHOLE_HOPS", 10_000)
    monkeypatch.setattr("emu.flow.requests.LEAST_EVENTS", 60_000)
    long: dict[str, Any] = {
        "topology": BARE | {"racks": 1},
        "ncclx": {"channels": 1, "protocol": "simple", "buffsize": "256KiB"},
        "jobs": collective("all_reduce", "ring", "12MiB", order="strided"),
    }
    packet, flow = (
        run({"name": "cross", "fidelity": one} | long, local=True).summary for one in ("packet", "flow")
    )
    assert [one for one in differences(packet, flow) if not one.holds] == []
    (doubt,) = flow.engine.doubts
    assert doubt.startswith("calls are known from how they begin")


@settings(max_examples=12, derandomize=True, deadline=None)
@given(st.data())
def test_calls_on_drawn_fabrics_are_within_the_bounds_or_doubted(data: st.DataObject) -> None:
    """Delays at which buffer slots decide, uplinks on which rings collide, several queue pairs."""
    draw = data.draw
    delay = f"{draw(st.integers(100, 6000))}ns"
    star = {"kind": "star", "hosts": draw(st.integers(3, 6)), "nic_delay": delay}
    zone = {"kind": "ai_zone", "racks": 2, "hosts_per_rack": 2, "gpus_per_host": 1, "spines": 2}
    call = draw(st.sampled_from(["ring", "double_binary_tree"]))
    drawn = {
        "name": "drawn",
        "topology": draw(st.sampled_from([star, zone | {"nic_delay": delay}])),
        "ncclx": {"qps_per_connection": draw(st.sampled_from([1, 2])), "protocol": "simple"},
        "jobs": collective("all_reduce", call, f"{draw(st.integers(1, 512))}KiB"),
    }
    packet, flow = (run(drawn | {"fidelity": one}, local=True).summary for one in ("packet", "flow"))
    found = [one for one in differences(packet, flow) if not one.holds]
    assert found == [] or flow.engine.doubts


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_a_whole_pod_of_hpn_with_two_ports_a_nic_carries_what_its_rings_send() -> None:
    ranks, size_bytes = 15 * 128 * 8, 1 << 30
    scenario = {
        "name": "hpn",
        "topology": {"kind": "hpn"},
        "fidelity": "flow",
        "ncclx": {"protocol": "simple"},
        "jobs": collective("all_reduce", "ring", "1GiB"),
    }
    summary = run(scenario, local=True).summary
    (done,) = summary.jobs["job"].collectives
    assert (done.ranks, done.status) == (ranks, "success")
    sent = [link.data_bytes for link in summary.fabric.links if link.source.startswith("nic-")]
    assert len(sent) == 2 * ranks
    assert len(set(sent)) == 1, "the two ports of every NIC carry the same"
    # each of the 1,920 servers sends a round of the ring to the next one, in one channel or another
    assert 1 <= sum(sent) / (1920 * 2 * (ranks - 1) / ranks * size_bytes) < 1.02
