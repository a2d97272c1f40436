"""Do scripts say what a training step is: shapes, pipelines, groups, bytes?"""

from fractions import Fraction

import pytest

from actors.ncclx.script import CALL, COLLECTIVE, COMPUTE, LINE, RECORD, WAIT
from emu.api import run
from emu.base.errors import ScenarioError
from emu.scenario.workloads.training import TrainingWorkload
from emu.workload.pipeline import Pass, schedule
from emu.workload.step_facts import TrainingFacts
from emu.workload.training import PRESETS, Model, Plan, Training
from tests.scenario.plain import plain

BILLION = 10**9
OWN = {"layers": 4, "hidden": 64, "heads": 4, "kv_heads": 2, "ffn": 256, "sequence": 32}


def training(ranks: int, **knobs: object) -> Training:
    """A small model: hidden 64, 4 heads, MLP 256, 32 tokens."""
    workload = TrainingWorkload.model_validate({"model": "own", "own": OWN, **knobs})
    fitted = workload.fitted(ranks)
    assert isinstance(fitted, Training), fitted
    return fitted


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        ("llama3-8b", 7.0),
        ("llama3-70b", 68.5),
        ("llama3-405b", 401.6),
        ("gpt3-175b", 173.9),
        ("mixtral-8x7b", 46.4),
    ],
)
def test_presets_have_the_parameters_they_are_named_after_but_embeddings(name: str, billions: float) -> None:
    model = PRESETS[name]
    assert model.layers * (
        model.attention_parameters() + model.experts * model.expert_parameters()
    ) / BILLION == pytest.approx(billions, rel=0.005)


def test_step_flops_are_six_per_parameter_and_token_and_attention() -> None:
    model = Model(layers=2, hidden=8, heads=2, kv_heads=2, ffn=32, vocab=10, sequence=4, gated=False)
    parameters = 2 * (4 * 8 * 8 + 2 * 8 * 32) + 8 * 10
    assert model.step_flops(100) == 100 * (6 * parameters + 12 * 2 * 8 * 4)


def test_one_forward_one_backward() -> None:
    order = schedule(1, 3, 4, 1)
    assert [("F" if one.forward else "B") + str(one.batch) for one in order] == (
        ["F0", "F1", "B0", "F2", "B1", "F3", "B2", "B3"]
    )


@pytest.mark.parametrize(("stages", "batches", "chunks"), [(1, 3, 1), (4, 2, 1), (4, 8, 2), (2, 4, 3)])
def test_every_stage_does_every_pass_once_and_forward_first(stages: int, batches: int, chunks: int) -> None:
    for stage in range(stages):
        order = schedule(stage, stages, batches, chunks)
        assert len(order) == 2 * batches * chunks == len(set(order))
        for batch in range(batches):
            for chunk in range(chunks):
                assert order.index(Pass(True, batch, chunk)) < order.index(Pass(False, batch, chunk))


def test_interleaving_takes_a_chunk_for_as_many_batches_as_there_are_stages() -> None:
    order = [one for one in schedule(0, 2, 4, 2) if one.forward]
    assert [(one.batch, one.chunk) for one in order] == [
        (0, 0),
        (1, 0),
        (0, 1),
        (1, 1),
        (2, 0),
        (3, 0),
        (2, 1),
        (3, 1),
    ]


def test_the_first_dimension_of_the_order_changes_fastest() -> None:
    inner = training(8, tp=2, pp=2, dp=2)
    assert [inner.coordinates(rank)["tp"] for rank in range(4)] == [0, 1, 0, 1]
    outer = training(8, tp=2, pp=2, dp=2, order=("dp", "pp", "cp", "tp"))
    assert [outer.coordinates(rank)["tp"] for rank in range(8)] == [0, 0, 0, 0, 1, 1, 1, 1]
    assert all(outer.rank_at(outer.coordinates(rank)) == rank for rank in range(8))


def test_groups_hold_the_ranks_that_differ_in_one_dimension() -> None:
    plan = Plan(training(8, tp=2, pp=2, dp=2), 1, 0)
    rings = [group.members for group in plan.groups if group.kind == COLLECTIVE]
    lines = [group.members for group in plan.groups if group.kind == LINE]
    assert sorted(rings) == [(0, 1), (0, 4), (1, 5), (2, 3), (2, 6), (3, 7), (4, 5), (6, 7)]
    assert sorted(lines) == [(0, 2), (1, 3), (2, 0), (3, 1), (4, 6), (5, 7), (6, 4), (7, 5)]


def test_where_two_layers_are_missing_the_first_and_the_last_chunk_have_one_fewer() -> None:
    """126 layers over 16 stages are 7, 14 times 8, and 7 (Llama 3); interleaved, the last stage's first chunk
    is whole."""
    llama = {"model": "llama3-405b", "tp": 8, "pp": 16, "micro_batches": 16}
    for chunks in (1, 8):
        whole = TrainingWorkload.model_validate({**llama, "virtual_stages": chunks}).fitted(128)
        assert isinstance(whole, Training)
        assert [whole.first_layer(stage, chunks) for stage in range(16)] == [7] + [8] * 14 + [7]
        assert whole.first_layer(0, 1) == 8 // chunks - 1
    cut = training(4, pp=2, virtual_stages=2, micro_batches=2, layers=14, own={**OWN, "layers": 14})
    before = [[cut.first_layer(stage, chunk) for chunk in range(3)] for stage in (0, 1)]
    assert before == [[0, 3, 7], [0, 4, 7]]
    plain = training(2, pp=2, layers=6, own={**OWN, "layers": 6}, data="none", peak_tflops=1)
    uneven = training(3, pp=3, layers=4, own={**OWN, "layers": 4}, data="none", peak_tflops=1)
    layer_ps = plain.rank_compute_ps(0) // 3
    assert [uneven.rank_compute_ps(stage) for stage in range(3)] == [layer_ps, 2 * layer_ps, layer_ps]
    totals = [
        sum(a for kind, a, _ in script.streams[0] if kind == COMPUTE) for script in Plan(uneven, 1, 0).scripts
    ]
    assert totals == [layer_ps, 2 * layer_ps, layer_ps]


def test_bytes_of_each_dimension_follow_from_the_shape() -> None:
    plan = Plan(training(8, tp=2, cp=2, dp=2, micro_batches=3), 1, 0)
    script = plan.scripts[0]
    tp, cp, dp = script.calls
    activations = 32 // 2 * 64 * 2
    assert {call.size_bytes for call in tp} == {activations}
    assert len(tp) == 4 * 3 * (4 + 6)
    assert [call.op for call in tp].count("all_gather") == 4 * 3 * (2 + 4)
    assert (
        len(Plan(training(8, tp=2, cp=2, dp=2, micro_batches=3, regather=False), 1, 0).scripts[0].calls[0])
        == 96
    )
    assert {(call.op, call.size_bytes) for call in cp} == {
        ("all_gather", 32 * 2 * 32 // 2 * 2),
        ("reduce_scatter", 32 * 2 * 32 // 2 * 2),
    }
    layer = (64 * (2 * 64 + 64) + 3 * 64 * 256) // 2
    assert [call.size_bytes for call in dp] == [2 * layer] * 4 + [4 * layer] * 4
    assert plan.groups[script.groups[2]].members == (0, 2, 4, 6)


def test_computing_is_the_flops_over_the_rate() -> None:
    plain = training(2, dp=2, peak_tflops=1, efficiency=0.5, data="none", micro_batches=2)
    script = Plan(plain, 1, 0).scripts[1]
    flops = plain.model.step_flops(32) * 2
    assert sum(a for kind, a, _ in script.streams[0] if kind == COMPUTE) == pytest.approx(
        flops / 0.5, abs=100
    )
    slow = training(
        2, dp=2, peak_tflops=1, efficiency=0.5, data="none", stragglers=({"rank": 1, "slowdown": 2},)
    )
    scripts = Plan(slow, 1, 0).scripts
    totals = [sum(a for kind, a, _ in one.streams[0] if kind == COMPUTE) for one in scripts]
    assert totals[1] == 2 * totals[0]


def test_jitter_stays_in_its_bounds_and_comes_from_the_seed() -> None:
    def pieces(seed: int, jitter: object) -> list[int]:
        one = training(2, dp=2, peak_tflops=1, data="none", micro_batches=8, jitter=jitter)
        return [a for kind, a, _ in Plan(one, seed, 0).scripts[0].streams[0] if kind == COMPUTE]

    exact, drawn = pieces(1, 0), pieces(1, 0.1)
    assert drawn == pieces(1, 0.1) != pieces(2, 0.1)
    assert all(abs(one - other) <= other // 10 + 1 for one, other in zip(drawn, exact, strict=True))
    assert len(set(drawn)) > len(set(exact))


def test_every_event_that_is_waited_for_is_recorded_once() -> None:
    plan = Plan(training(16, tp=2, cp=2, pp=2, dp=2, micro_batches=2, virtual_stages=2), 1, 0)
    for script in plan.scripts:
        recorded = [a for line in script.streams for kind, a, _ in line if kind == RECORD]
        waited = {a for line in script.streams for kind, a, _ in line if kind == WAIT}
        assert sorted(recorded) == list(range(script.events))
        assert waited <= set(recorded)
        for place, line in enumerate(script.streams[1:]):
            assert [b for kind, a, b in line if kind == CALL] == list(range(len(script.calls[place])))


def test_both_sides_of_a_line_agree_on_every_transfer() -> None:
    plan = Plan(training(4, pp=4, micro_batches=4, layers=4), 1, 0)
    for number, group in enumerate(plan.groups):
        calls = [plan.scripts[rank].calls[plan.scripts[rank].groups.index(number)] for rank in group.members]
        assert calls[0] == calls[1]


def test_scale_shrinks_bytes_and_computing_alike() -> None:
    whole, small = training(4, tp=2, dp=2), training(4, tp=2, dp=2, scale="1/4")
    assert small.duration_ps(10**9) == whole.duration_ps(10**9) // 4
    assert small.bytes_of(1000) == whole.bytes_of(1000) // 4
    assert small.step_flops() == whole.step_flops() * Fraction(1, 4)


@pytest.mark.parametrize(
    ("knobs", "reason"),
    [
        ({"model": "llama3-8b", "layers": 33}, "at most 32"),
        ({"model": "llama3-8b", "pp": 3}, "32 layers do not divide into 3 x 1 chunks"),
        ({"model": "llama3-8b", "pp": 4, "layers": 2}, "2 layers leave a stage without one"),
        (
            {"model": "llama3-8b", "stragglers": [{"rank": 1}, {"rank": 0}, {"rank": 1}]},
            "rank 1 is listed already",
        ),
        ({"model": "llama3-8b", "pp": 2, "virtual_stages": 2, "micro_batches": 3}, "in multiples of 2"),
        ({"model": "llama3-8b", "order": ["tp", "tp", "pp", "dp"]}, "each dimension once"),
        ({"model": "llama3-8b", "tp": 3}, "does not divide 32 heads"),
        ({"model": "llama3-8b", "scale": 2}, "accepted: a fraction above 0 and up to 1"),
        ({"model": "own"}, "goes with `model: own`"),
        ({"model": "llama3-8c"}, "did you mean 'llama3-8b'"),
        ({"model": "llama3-8b", "ep": 2}, "does not divide the experts"),
        ({"model": "llama3-8b", "expert_skew": 1}, "no rank exchanges tokens"),
        ({"model": "llama3-8b", "overlap": {"tp_chunks": 2}}, "no rank waits for tensor parallelism"),
        ({"model": "llama3-8b", "kernels": {"fused": False}}, "take no time without `kernels.memory`"),
        ({"model": "mixtral-8x7b", "parallel_attention": True}, "experts are exchanged between"),
        ({"model": "llama3-8b", "tp": 4}, "tp 4 x cp 1 x pp 1 x dp 1 is 4 ranks, the job has 2"),
        ({"model": "llama3-8b", "stragglers": [{"rank": 2}]}, "there is no rank 2 to be slow"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(knobs: dict[str, object], reason: str) -> None:
    from emu.api import prepare  # noqa: PLC0415

    jobs = [{"name": "train", "workload": {"kind": "training", **knobs}}]
    with pytest.raises(ScenarioError, match=reason):
        prepare(plain({"name": "wrong", "topology": {"kind": "star", "hosts": 2}, "jobs": jobs}))


def test_a_scaled_mfu_is_marked_as_not_comparable() -> None:
    from emu.api import prepare  # noqa: PLC0415

    for scale, marked in (("1/200", True), (1, False)):
        workload = {"kind": "training", "model": "llama3-8b", "layers": 2, "scale": scale}
        jobs = [{"name": "train", "workload": workload}]
        prepared = prepare({"name": "scaled", "topology": {"kind": "star", "hosts": 2}, "jobs": jobs})
        facts = prepared.jobs[0].facts
        assert isinstance(facts, TrainingFacts)
        assert ("MFU is not comparable" in facts.shrunk) == marked


def computing(one: Training) -> int:
    """What the first rank computes in a step."""
    return sum(a for kind, a, _ in Plan(one, 1, 0).scripts[0].streams[0] if kind == COMPUTE)


PLAIN = {"tp": 1, "peak_tflops": 1, "efficiency": 1, "data": "none"}


def test_a_sliding_window_shortens_the_scores_alone() -> None:
    whole, half = training(1, **PLAIN), training(1, **PLAIN, window=16)
    scores = 3 * 4 * 32 * 4 * 32 * 64  # passes, layers, tokens, and 4 s h
    assert computing(whole) - computing(half) == pytest.approx(scores // 2, abs=50)  # a ps a FLOP
    assert half.model.step_flops(32) == whole.model.step_flops(32) - scores // 2
    assert training(1, **PLAIN, window=1000).model == whole.model


def test_scores_have_an_efficiency_of_their_own() -> None:
    slow = training(1, **PLAIN, kernels={"attention": 0.5})
    scores = 3 * 4 * 32 * 4 * 32 * 64
    assert computing(slow) - computing(training(1, **PLAIN)) == pytest.approx(scores, abs=50)


@pytest.mark.parametrize(("fused", "passes"), [(True, 1), (False, 3)])
def test_elementwise_operators_and_the_optimizer_take_their_bytes(fused: bool, passes: int) -> None:
    kernels = {"memory": "1GB/s", "fused": fused}
    more = computing(training(1, **PLAIN, kernels=kernels)) - computing(training(1, **PLAIN))
    values = passes * (2 * 2 * 64 + 3 * 256) + 2 * 3 * 64
    parameters = 4 * (3 * 64**2 + 3 * 64 * 256)
    expected = 3 * 4 * 32 * 2 * values + 30 * parameters
    assert more == pytest.approx(expected * 1000, rel=1e-3)


@pytest.mark.parametrize(("parallel", "gathers"), [(False, 2), (True, 1)])
def test_a_parallel_block_gathers_and_scatters_once(parallel: bool, gathers: int) -> None:
    one = training(2, tp=2, data="none", parallel_attention=parallel)
    (calls,) = Plan(one, 1, 0).scripts[0].calls
    ops = [call.op for call in calls]
    assert (ops.count("all_gather"), ops.count("reduce_scatter")) == (4 * 3 * gathers, 4 * 2 * gathers)


def test_experts_share_gradients_with_those_that_have_the_same_experts() -> None:
    own = OWN | {"layers": 1, "experts": 4}
    one = training(4, own=own, dp=4, ep=2, data="ddp")
    plan = Plan(one, 1, 0)
    script = plan.scripts[1]
    members = [plan.groups[at].members for at in script.groups]
    sizes = dict(zip(members, script.calls, strict=True))
    assert [call.size_bytes for call in sizes[0, 1, 2, 3] if call.op == "all_reduce"] == [4 * 3 * 64**2]
    assert [call.size_bytes for call in sizes[1, 3]] == [4 * 2 * 3 * 64 * 256]


@pytest.mark.parametrize(("shared", "readers"), [(True, 1), (False, 4)])
@pytest.mark.parametrize("microseconds", [90, 1000])
def test_a_step_takes_its_data_and_the_rest_or_beside_it_the_longer_of_both(
    microseconds: int, shared: bool, readers: int
) -> None:
    """MegaScale, section 3.4: four ranks that read for themselves share the disk. A step of 397 us."""

    def step_of(loading: dict[str, object]) -> int:
        job = {"kind": "training", "model": "own", "own": OWN, "tp": 4, "data": "none", "peak_tflops": 1}
        jobs = [{"name": "train", "workload": job | {"steps": 2, "loading": loading}}]
        scenario = {"name": "read", "topology": {"kind": "star", "hosts": 4}, "jobs": jobs}
        result = run(scenario | {"fidelity": "flow"}, local=True, diagnose=False)
        facts = result.summary.jobs["train"].training
        assert facts is not None
        assert facts.step_ps is not None
        return facts.step_ps

    alone = step_of({})
    data = microseconds * readers * 10**6
    reading: dict[str, object] = {"time": f"{microseconds}us", "shared": shared}
    assert step_of(reading | {"asynchronous": False}) == alone + data
    assert step_of(reading) == max(alone, data)


def test_an_optimizer_has_the_shard_that_its_rank_gathers() -> None:
    """Of experts, too: over those data-parallel ranks that have the same ones."""
    own, sharing = OWN | {"layers": 1, "experts": 4}, {"dp": 4, "kernels": {"memory": "1GB/s"}}
    values = (3 * 64**2 + 4 * 3 * 64 * 256) // 4
    for ep in (1, 2, 4):
        one = training(4, own=own, ep=ep, **sharing)
        written = Plan(one, 1, 0).scripts[0].streams[0]
        last = next(a for kind, a, _ in reversed(written) if kind == COMPUTE)
        assert last == values * 30 * 1000


def sizes_of(one: Training, op: str, rank: int = 0) -> list[int]:
    """Bytes of each call of an operation by a rank, by group."""
    return [
        call.size_bytes for calls in Plan(one, 1, 0).scripts[rank].calls for call in calls if call.op == op
    ]


def alone(**knobs: object) -> int:
    """Computing of one GPU in a step, ps, of round numbers: a FLOP takes 1 ns."""
    return computing(training(1, data="none", peak_tflops=1, efficiency="1/1000", **knobs))


def test_recomputing_costs_a_forward_pass_of_the_layers_or_the_scores_that_are_done_again() -> None:
    model = training(1).model
    tokens = 32
    layer = model.attention_flops(tokens) + model.mlp_flops(tokens)
    kept = alone()
    assert kept == 3 * 4 * layer * 1000
    assert alone(recompute="full") == 4 * 4 * layer * 1000
    assert alone(recompute="full", recompute_every=2) == kept + 2 * layer * 1000
    assert alone(recompute="selective") == kept + 4 * 4 * tokens * 32 * 64 * 1000  # 4 s h a token and layer
    two = training(2, pp=2, data="none", micro_batches=2, recompute="full", peak_tflops=1)
    assert two.rank_compute_ps(0) * 3 == training(2, pp=2, data="none", peak_tflops=1).rank_compute_ps(0) * 4


def test_a_full_recomputation_does_the_collectives_of_the_forward_pass_again() -> None:
    shape: dict[str, object] = {"tp": 2, "regather": False}
    kept, again = (training(2, **shape), training(2, **shape, recompute="full"))
    # attention and MLP of four layers, forward and backward; a third time where they are done again
    for op in ("all_gather", "reduce_scatter"):
        assert (len(sizes_of(kept, op)), len(sizes_of(again, op))) == (16, 24)


@pytest.mark.parametrize("prefetch", [True, False])
def test_resharded_parameters_are_gathered_for_each_pass_of_each_micro_batch(prefetch: bool) -> None:
    shape: dict[str, object] = {"micro_batches": 3, "overlap": {"fsdp_prefetch": prefetch}}
    assert len(sizes_of(training(4, **shape), "all_gather")) == 4
    each = training(4, **shape, reshard=True, reduce_each=True)
    assert len(sizes_of(each, "all_gather")) == 4 * 2 * 3
    assert len(sizes_of(each, "reduce_scatter")) == 4 * 3
    assert len(sizes_of(training(4, **shape, reshard=True), "reduce_scatter")) == 4


@pytest.mark.parametrize("bucket", [1000, 20_000, 1_000_000])
def test_buckets_hold_the_gradients_of_all_layers_and_all_but_the_last_are_full(bucket: int) -> None:
    one = training(4, data="ddp", bucket=f"{bucket}B")
    sizes = sizes_of(one, "all_reduce")
    assert sum(sizes) == sum(sizes_of(training(4, data="ddp"), "all_reduce"))
    assert set(sizes[:-1]) <= {bucket}
    assert 0 < sizes[-1] <= bucket


@pytest.mark.parametrize(
    ("knobs", "said"),
    [
        ({"recompute_every": 2}, "is of whole layers"),
        ({"data": "ddp", "reshard": True}, "`data: ddp` shards nothing"),
        ({"reduce_each": True}, "there is one micro-batch, or nothing is reduced"),
        ({"bucket": "1MiB"}, "buckets are of gradients that all data-parallel ranks reduce"),
    ],
)
def test_keys_that_would_do_nothing_are_refused(knobs: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        training(4, **knobs)
