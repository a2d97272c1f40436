"""Do training steps take what closed forms say, and does each overlap gain what it is there for?"""

from collections.abc import Mapping
from fractions import Fraction

import pytest

from emu import api
from emu.base.errors import ScenarioError
from emu.results.job_facts import JobRows
from emu.results.training_result import TrainingResult
from emu.workload.step_facts import TrainingFacts
from tests.scenario.plain import plain

OWN = {"layers": 8, "hidden": 256, "heads": 4, "kv_heads": 4, "ffn": 1024, "sequence": 128}
SLOW = {"model": "own", "own": OWN, "peak_tflops": 1, "efficiency": 0.5, "micro_batch": 8, "data": "none"}
"""GPUs so slow that communication costs next to nothing."""


def step(ranks: int, knobs: Mapping[str, object], **overrides: str | int) -> TrainingResult:
    """One step on hosts around one switch."""
    scenario = plain(
        {
            "name": "step",
            "topology": {"kind": "star", "hosts": 8},
            "jobs": [{"name": "train", "ranks": ranks, "workload": {"kind": "training", **knobs}}],
        }
    )
    result = api.run(scenario, overrides=overrides, local=True).summary.jobs["train"]
    assert result.status == "success"
    assert result.training is not None
    return result.training


def time_of(result: TrainingResult) -> int:
    assert result.step_ps is not None
    return result.step_ps


def test_mfu_of_computing_alone_is_the_kernels_efficiency() -> None:
    result = step(2, SLOW | {"dp": 2, "micro_batches": 2})
    assert (result.mfu, result.compute, result.other) == (0.5, 1.0, 0.0)


@pytest.mark.parametrize(
    ("stages", "batches", "chunks", "bubble"),
    [(2, 4, 1, 1 / 5), (4, 4, 1, 3 / 7), (4, 8, 1, 3 / 11), (4, 8, 2, 3 / 19), (2, 4, 4, 1 / 17)],
)
def test_bubble_of_an_uncongested_pipeline_is_its_closed_form(
    stages: int, batches: int, chunks: int, bubble: float
) -> None:
    result = step(stages, SLOW | {"pp": stages, "micro_batches": batches, "virtual_stages": chunks})
    assert result.bubble_ideal == pytest.approx(bubble, abs=1e-6)
    assert result.bubble == pytest.approx(bubble, rel=0.01)
    assert result.mfu == pytest.approx(0.5 * (1 - bubble), rel=0.01)


def test_shares_add_up_to_the_step() -> None:
    fast = SLOW | {"peak_tflops": 100, "data": "fsdp", "tp": 2, "cp": 2, "pp": 2, "micro_batches": 2}
    small = OWN | {"layers": 2}
    result = step(8, fast | {"own": small, "dp": 1})
    assert result.compute is not None
    assert result.bubble is not None
    assert result.other is not None
    whole = result.compute + sum(result.exposed.values()) + result.bubble + result.other
    assert whole == pytest.approx(1, abs=1e-4)
    assert all(result.exposed[dimension] > 0 for dimension in ("tp", "cp", "dp"))
    assert sum(result.other_parts.values()) == pytest.approx(result.other, abs=1e-5)
    assert result.tokens_per_s == pytest.approx(2 * 8 * 128 / (time_of(result) / 1e12), rel=1e-6)


@pytest.mark.parametrize(
    ("rows", "bubble", "parts"),
    [
        # Two stages of two ranks; a step of 100. Rows: rank, begin, end.
        ([(0, 0, 100), (1, 0, 90), (2, 0, 60), (3, 0, 60)], 0, {"other_stages": 80, "own_stage": 10}),
        ([(0, 0, 100), (1, 0, 90), (2, 0, 60), (3, 0, 60)], 30, {"other_stages": 20}),
        ([(0, 0, 100), (1, 20, 100), (2, 0, 100), (3, 0, 100)], 0, {"late_begin": 20}),
    ],
)
def test_other_is_told_by_what_is_waited_for(
    rows: list[tuple[int, int, int]], bubble: int, parts: dict[str, int]
) -> None:
    facts = TrainingFacts(1, Fraction(0), 0, (bubble,) * 4, 0.0, "", "", ("pp",), stages=(0, 0, 1, 1))
    steps = [(rank, 0, a, b, b - a, 0) for rank, a, b in rows]
    found = facts.training_result(JobRows(4, 0, {}, (), steps, (), 0, ()))
    assert found.other_parts == {name: share / 400 for name, share in parts.items()}


def test_a_straggler_sets_the_pace() -> None:
    even = step(2, SLOW | {"dp": 2})
    slow = step(2, SLOW | {"dp": 2, "stragglers": [{"rank": 1, "slowdown": 1.25}]})
    assert time_of(slow) == pytest.approx(1.25 * time_of(even), rel=1e-6)
    assert slow.other == pytest.approx(0.1, abs=1e-4)


BALANCED = SLOW | {"own": OWN | {"layers": 2}, "peak_tflops": 40, "efficiency": 1}
"""Communication and computing of about the same length."""


@pytest.mark.parametrize(
    ("ranks", "knobs", "overlap", "dimension"),
    [
        (2, {"dp": 2, "data": "fsdp"}, {"fsdp_prefetch": False}, "dp"),
        (2, {"pp": 2, "micro_batches": 4}, {"decoupled_pipeline": False}, "pp"),
    ],
)
def test_an_overlap_that_is_off_costs_time_in_its_dimension(
    ranks: int, knobs: dict[str, object], overlap: dict[str, object], dimension: str
) -> None:
    small = {"ncclx.buffsize": "64KiB"}
    on = step(ranks, BALANCED | knobs, **small)
    off = step(ranks, BALANCED | knobs | {"overlap": overlap}, **small)
    assert time_of(off) > 1.01 * time_of(on)
    assert off.exposed[dimension] > on.exposed[dimension]


def test_interleaved_and_coupled_each_pair_of_passes_pays_for_its_exchange() -> None:
    # Megatron-LM: a rank goes on when both results are sent and both inputs of the next pair are there. Both
    # NICs of a pair of neighbours carry two messages each way.
    message, wire_ps_a_byte = 16 * 128 * 256 * 2, 4194 / 4096 * 1e12 / 50e9
    knobs = SLOW | {"pp": 4, "virtual_stages": 2, "micro_batch": 16, "peak_tflops": 40}
    for decoupled, exchange_ps in ((True, 0), (False, 2 * message * wire_ps_a_byte)):
        lost_ps = []
        for batches in (8, 16):
            whole = step(4, knobs | {"micro_batches": batches, "overlap": {"decoupled_pipeline": decoupled}})
            assert whole.compute is not None
            lost_ps.append((1 - whole.compute) * time_of(whole))
        pairs = (16 - 8) * 2
        # The rest is latency: two hops, and the notice that data is there.
        assert (lost_ps[1] - lost_ps[0]) / pairs == pytest.approx(exchange_ps, rel=0.01, abs=4e6)


def test_chunks_of_tensor_parallelism_hide_communication_behind_computing() -> None:
    # One gather a pass: with the second, what chunks could hide is hidden already, and the wire decides.
    wide = BALANCED | {"tp": 2, "micro_batch": 32, "peak_tflops": 80, "regather": False}
    whole, cut = step(2, wide), step(2, wide | {"overlap": {"tp_chunks": 4}})
    assert time_of(cut) < 0.95 * time_of(whole)


def test_experts_exchange_what_tokens_and_top_k_say() -> None:
    own = OWN | {"layers": 1, "experts": 4, "top_k": 2}
    scenario = plain(
        {
            "name": "experts",
            "topology": {"kind": "star", "hosts": 4},
            "jobs": [
                {
                    "name": "train",
                    "workload": {"kind": "training", **SLOW, "own": own, "micro_batch": 1, "dp": 4, "ep": 4},
                }
            ],
            "ncclx": {"admission": "none"},
        }
    )
    summary = api.run(scenario, local=True).summary
    exchange = 128 * 2 * 256 * 2
    assert summary.fabric.tiers[0].up_bytes == 4 * 4 * exchange * 3 // 4


def test_larger_batches_pay_for_the_pipeline_once() -> None:
    """LAMB: four times the batch leaves 3 (p - 1) / (4 m + p - 1) of four steps' bubbles away."""
    small, large = (
        step(4, SLOW | {"pp": 4, "micro_batches": 4, "larger_batches": factor}) for factor in (1, 4)
    )
    assert large.bubble_ideal == pytest.approx(3 / 19, abs=1e-6)
    assert time_of(large) / time_of(small) == pytest.approx(19 / 7, rel=0.01)


def test_the_hottest_expert_sets_the_pace() -> None:
    """Of four ranks by Zipf's law with exponent 1 the first has 12/25 of the tokens: 1.92 of its share."""
    own = OWN | {"layers": 1, "experts": 4}
    knobs = SLOW | {"own": own, "micro_batch": 1, "dp": 4, "ep": 4}
    even, skewed = step(4, knobs), step(4, knobs | {"expert_skew": 1})
    attention = 128 * (2 * 4 * 256**2 + 4 * 128 * 256)
    mlp = 128 * 2 * 3 * 256 * 1024
    factor = (attention + mlp * 48 / 25) / (attention + mlp)
    assert time_of(skewed) / time_of(even) == pytest.approx(factor, rel=0.02)


def test_a_step_is_the_same_in_parts_and_steps_repeat() -> None:
    scenario = plain(
        {
            "name": "parts",
            "topology": {"kind": "ai_zone", "racks": 2, "hosts_per_rack": 1, "gpus_per_host": 2, "spines": 1},
            "jobs": [
                {
                    "name": "train",
                    "workload": {
                        "kind": "training",
                        **BALANCED,
                        "data": "fsdp",
                        "micro_batch": 1,
                        "pp": 2,
                        "steps": 2,
                        "jitter": 0.05,
                    },
                }
            ],
        }
    )
    runs = [api.run(scenario, local=True, parts=parts).summary for parts in (1, 3)]
    assert runs[0].digest == runs[1].digest
    result = runs[0].jobs["train"].training
    assert result is not None
    assert result.steps == 2


SHARED = {"own": OWN | {"layers": 4}, "peak_tflops": 10, "efficiency": 0.5, "data": "fsdp", "dp": 2}
"""Each layer's weights are gathered and its gradients scattered while others compute."""


def test_computing_lengthens_by_the_sms_that_channels_hold_while_they_run() -> None:
    # While collectives run for c, computing does c (SMs - k) / SMs: the step is longer by c k / SMs, so twice
    # as much with twice the channels' SMs, and not at all with none.
    def longer_ps(taken: int) -> int:
        taking = {"gpu.sms": 16, "ncclx.sms_per_channel": taken}
        return time_of(step(2, SLOW | SHARED, **taking)) - alone_ps

    alone_ps = time_of(step(2, SLOW | SHARED))
    c_ps = longer_ps(1) * 16
    assert 0 < c_ps < alone_ps
    assert [longer_ps(taken) for taken in (2, 4, 8)] == [
        pytest.approx(c_ps * taken / 16, rel=1e-4) for taken in (2, 4, 8)
    ]


def test_more_channels_take_more_sms_than_they_are_worth_to_one_network() -> None:
    taking = {"gpu.sms": 16, "ncclx.sms_per_channel": 2}
    one, four = (step(2, SLOW | SHARED, **taking, **{"ncclx.channels": channels}) for channels in (1, 4))
    assert time_of(four) > time_of(one)


@pytest.mark.parametrize(("channels", "fits"), [(7, True), (8, False)])
def test_channels_leave_computing_an_sm(channels: int, fits: bool) -> None:
    overrides = {"gpu.sms": 16, "ncclx.sms_per_channel": 2, "ncclx.channels": channels}
    if fits:
        assert step(2, SLOW | SHARED, **overrides).step_ps
        return
    with pytest.raises(ScenarioError, match="8 channels take all 16 SMs of a GPU"):
        step(2, SLOW | SHARED, **overrides)
