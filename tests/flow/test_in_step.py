"""Does a step of ranks that are alike, gone through once, come out as rank by rank?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.flow.filling import QUIET, UNIT, Filling
from actors.flow.footprints import DATA, Footprint, Ground, Transfer
from emu.api import prepare, run
from emu.flow import group_samples, in_step
from emu.flow.cross import differences
from emu.flow.equal_ranks import EqualRanks, equal_ranks
from emu.results.summary import Summary

POD = {"kind": "llama3", "pods": 1, "racks_per_pod": 4}
TRAINING = {
    "kind": "training",
    "model": "llama3-405b",
    "layers": 4,
    "scale": "1/8",
    "tp": 8,
    "pp": 2,
    "virtual_stages": 2,
    "micro_batches": 2,
}


def step(**changes: Any) -> dict[str, Any]:
    """A step of 64 GPUs, eight queue pairs a connection, on switches with shared buffers."""
    return {
        "name": "step",
        "fidelity": "flow",
        "topology": POD,
        "switch": {"deep_buffer": {"where": "none"}},
        "ncclx": {"channels": 1, "protocol": "simple", "qps_per_connection": 8, "tuner": {"among": ["ring"]}},
        "jobs": [{"name": "train", "workload": TRAINING | changes}],
    }


def parted(**changes: Any) -> EqualRanks:
    """Who is alike in it."""
    wired = prepare(step(**changes)).plan.jobs[0].wired
    assert wired is not None
    return equal_ranks(wired.script)


def answer(scenario: Mapping[str, Any], fewest: int, monkeypatch: pytest.MonkeyPatch) -> Summary:
    """The summary by closed forms, where jobs of so many ranks go in step."""
    monkeypatch.setattr(in_step, "FEWEST_RANKS", fewest)
    for bound in ("MOST_HOPS", "MOST_PAIRS"):
        monkeypatch.setattr(f"emu.flow.requests.{bound}", 0)
    return run(scenario, local=True).summary


@pytest.mark.parametrize("changes", [{}, {"tp": 4, "cp": 2}, {"data": "ddp"}], ids=["tp", "cp", "ddp"])
def test_a_step_of_ranks_that_are_alike_comes_out_as_rank_by_rank(
    changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    apart = answer(step(**changes), 1 << 20, monkeypatch)
    together = answer(step(**changes), 1, monkeypatch)
    assert [link.data_bytes for link in together.fabric.links] == [
        link.data_bytes for link in apart.fabric.links
    ]
    assert [link.wire_bytes for link in together.fabric.links] == [
        link.wire_bytes for link in apart.fabric.links
    ]
    one, other = together.jobs["train"].training, apart.jobs["train"].training
    assert one is not None
    assert other is not None
    assert one.step_ps == pytest.approx(other.step_ps, rel=0.003)
    assert one.compute == pytest.approx(other.compute, rel=0.003)
    assert together.digest != apart.digest


def test_ranks_of_a_stage_are_alike_and_share_their_script() -> None:
    found = parted()
    assert sorted(map(len, found.ranks)) == [32, 32]
    assert found.callers == [2 if len(groups) == 32 else 1 for groups in found.groups]


def test_a_slow_rank_is_like_nobody_and_neither_are_those_that_wait_for_it() -> None:
    found = parted(stragglers=[{"rank": 3, "slowdown": 1.5}])
    sizes = {rank: len(found.ranks[found.of_rank[rank]]) for rank in range(64)}
    assert sizes[3] == 1
    assert sizes[0] == 7, "the others of its tensor-parallel group"


@given(st.data())
def test_footprints_have_the_max_min_rates_of_filling(data: st.DataObject) -> None:
    capacities = data.draw(st.lists(st.integers(10_000, 400_000_000), min_size=1, max_size=6))
    links = st.sampled_from(range(len(capacities)))
    many = st.dictionaries(links, st.integers(1, 50), min_size=1)
    found = data.draw(st.lists(st.tuples(many, st.integers(1, 8)), min_size=1, max_size=5))
    filling = Filling(capacities, pauses=False)
    transfers = []
    for counts, weight in found:
        number = filling.transfer(weight * UNIT)
        for link, count in counts.items():
            filling.strand(number, count * UNIT, [link], QUIET)
        rows = sorted(counts.items())
        footprint = Footprint([link for link, _ in rows], [DATA] * len(rows), [count for _, count in rows])
        transfers.append(Transfer(footprint, [UNIT, 0, 0], weight * UNIT, 0))
    assert Ground(capacities).rates(transfers) == pytest.approx(filling.rates(), rel=1e-3, abs=16)


def by_turns(**changes: Any) -> dict[str, Any]:
    """A step of 64 GPUs over 16 queue pairs by turns: what one call takes is most of it."""
    large = step(**({"layers": 2, "scale": "1/128", "sequence": 8192, "virtual_stages": 1} | changes))
    large["ncclx"] |= {"qps_per_connection": 16, "qp_policy": "round_robin", "slices": "filled"}
    return large


def test_calls_in_step_whose_queue_pairs_take_turns_take_what_their_packets_take(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(in_step, "FEWEST_RANKS", 1)
    packets = run(by_turns() | {"fidelity": "packet"}, local=True, diagnose=False).summary
    flows = run(by_turns(), local=True, diagnose=False).summary
    assert all(one.holds for one in differences(packets, flows))


def test_first_members_and_slices_of_rings_stand_for_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_step, "FEWEST_RANKS", 1)
    # with channels as fast as the NVLinks, dp is half of the step and not what tp leaves of it
    large = by_turns(pp=1, micro_batches=1) | {"gpu": {"channel_rate": "2966.4G"}}
    whole, part = (_dp_ps(large, most, monkeypatch) for most in (None, 600_000))
    assert part != whole
    assert part == pytest.approx(whole, rel=0.05)
    # of so few events nothing is posted in the second half: no rate follows from that
    assert _dp_ps(large, 100_000, monkeypatch) < whole


def _dp_ps(scenario: Mapping[str, Any], most_events: int | None, monkeypatch: pytest.MonkeyPatch) -> float:
    """What the collectives of the data-parallel groups take beside all else."""
    if most_events is not None:
        monkeypatch.setattr(group_samples, "MOST_WHOLE_HOPS", 0)
        monkeypatch.setattr(group_samples, "MOST_SAMPLED_PAIRS", 768)
        monkeypatch.setattr("emu.flow.requests.MOST_HOPS", 0)
        monkeypatch.setattr("emu.flow.requests.LEAST_EVENTS", most_events)
    training = run(scenario, local=True, diagnose=False).summary.jobs["train"].training
    assert training is not None
    assert training.step_ps is not None
    return training.exposed["dp"] * training.step_ps


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("policy", ["split", "round_robin"])
def test_a_step_of_3072_gpus_in_step_takes_what_its_packets_take(policy: str) -> None:
    """118 million packet-hops: two minutes of CPU, compiled."""
    large = step(layers=16, scale="1/128", sequence=8192, pp=16, virtual_stages=1, micro_batches=4)
    large["topology"] = {"kind": "llama3", "pods": 1}
    large["switch"]["buffer"] = {"pool": "512MB"}
    large["ncclx"] |= {"qps_per_connection": 16, "qp_policy": policy, "slices": "filled"}
    packets, flows = (
        run(large | {"routing": {"kind": "e_ecmp"}, "fidelity": one}, local=True, diagnose=False).summary
        for one in ("packet", "flow")
    )
    steps = differences(packets, flows)
    assert [one.what for one in steps if abs(one.part) > 1e-5] == ["train: step"]
    assert all(one.holds for one in steps if not one.what.startswith("payload"))
