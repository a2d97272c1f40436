"""Is SimAI's workload text read as it is meant, and nothing else taken for one?"""

from contextlib import suppress
from fractions import Fraction
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from actors.ncclx.script import COLLECTIVE, COMPUTE, EXCHANGE, RECORD, WAIT
from emu.base.errors import ScenarioError
from emu.results.training_result import TrainingResult
from emu.scenario.load import load_text
from emu.scenario.readers.simai import Piece, SimaiError, SimaiPlan, read_simai

HEAD = "HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 2 ep: 2 pp: 1 all_gpus: 8\n"
TEXT = HEAD + (
    "2\n"
    "attention -1 100 ALLGATHER 4096 200 REDUCESCATTER 4096 300 ALLREDUCE 8192 50\n"
    "moe -1 100 ALLTOALL_EP 2048 200 ALLTOALL_EP 2048 300 ALLREDUCE_DP_EP 1024 50\n"
)


def test_a_line_is_three_pieces_and_an_update() -> None:
    simai = read_simai(TEXT)
    assert (simai.tp, simai.ep, simai.ranks, len(simai.layers)) == (2, 2, 8, 2)
    first, second = simai.layers
    assert first.forward == Piece(100_000, "all_gather", "tp", 4096)
    assert first.weight_gradient == Piece(300_000, "all_reduce", "dp", 8192)
    assert second.forward == Piece(100_000, "all_to_all", "ep", 2048)
    assert second.weight_gradient == Piece(300_000, "all_reduce", "dp_ep", 1024)
    assert second.update_ps == 50_000


def test_groups_are_neighbours_for_tp_and_every_other_for_the_rest() -> None:
    plan = SimaiPlan(read_simai(TEXT), 8, Fraction(1))
    of_rank_2 = [(plan.groups[group].kind, plan.groups[group].members) for group in plan.scripts[2].groups]
    assert of_rank_2 == [
        (COLLECTIVE, (2, 3)),
        (EXCHANGE, (0, 2)),
        (COLLECTIVE, (2, 6)),
        (COLLECTIVE, (0, 2, 4, 6)),
    ]


def test_a_step_computes_all_times_and_sends_all_bytes() -> None:
    plan = SimaiPlan(read_simai(TEXT), 8, Fraction(1))
    for script in plan.scripts:
        assert sum(a for kind, a, _ in script.streams[0] if kind == COMPUTE) == 2 * 650_000
    pairs = 8 * (4096 + 4096) // 2
    exchanges = 8 * 2 * 2048 // 2
    gradients = 8 * 2 * 3 * 8192 // 4 + 8 * 2 * 1024 // 2
    sent = 0
    for script in plan.scripts:
        for group, calls in zip(script.groups, script.calls, strict=True):
            members = len(plan.groups[group].members)
            for call in calls:
                times = 2 if call.op == "all_reduce" else 1
                sent += times * (members - 1) * call.size_bytes // members
    assert sent == pairs + exchanges + gradients


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "line 1: ends before the layers"),
        ("DATA\n1\n", "line 1: the loop 'DATA' is not modelled"),
        (TEXT.replace("pp: 1", "pp: 4 vpp: 2 ga: 8"), "line 1: a pipeline of 4 sends nothing"),
        (TEXT.replace("pp: 1", "pp: 4 pp_comm 5"), "line 1: a pipeline without ga or vpp"),
        (TEXT.replace("pp: 1", "pp: 2000 vpp: 1 ga: 1 pp_comm 5"), "line 1: 2000 stages"),
        (
            TEXT.replace("pp: 1", "pp: 2 vpp: 1 ga: 3 pp_comm 5"),
            "line 2: 2 lines between those of the whole step do not divide into 3 micro-batches",
        ),
        (
            HEAD.rstrip() + " checkpoints: 2 0 4 checkpoint_initiates: 1 5\n1\n",
            "line 1: recomputation is not modelled",
        ),
        (HEAD + "3\n" + TEXT.partition("2\n")[2], "line 2: says 3 layers, and 2 follow"),
        (HEAD + "99999999\n", "line 2: 99999999 is out of range"),
        (HEAD + "1\na b c\n", "line 3: 3 words"),
        (TEXT.replace("all_gpus: 8", "all_gpus: 0"), "line 1: all_gpus: 0"),
        (TEXT.replace("ALLGATHER", "ALLGATTER"), "line 3: 'ALLGATTER' is no collective"),
        (TEXT.replace("4096", "-4096"), "line 3: '-4096' is not a whole number"),
        (TEXT.replace(" 100 ", " 1" + "0" * 30 + " "), "is not a whole number"),
    ],
)
def test_what_is_no_workload_is_named_by_its_line(text: str, reason: str) -> None:
    with pytest.raises(SimaiError, match=reason):
        read_simai(text)


@given(st.text(max_size=200) | st.text(max_size=200).map(lambda tail: HEAD + "1\n" + tail))
def test_any_text_is_read_or_refused(text: str) -> None:
    with suppress(SimaiError):
        assert read_simai(text).layers


STAGED = (
    "HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 1 ep: 1 "
    "pp: {} vpp: {} ga: {} pp_comm: 4096.0\n"
)


def staged(stages: int, chunks: int, batches: int) -> str:
    """A stage as AICB writes it: a line of the step, the layers of each micro-batch, lines of the step."""
    layer = "attention_layer\t-1\t30000000\tNONE\t0\t30000000\tNONE\t0\t30000000\tNONE\t0\t0\n"
    step = "{}\t-1\t0\tNONE\t0\t0\tNONE\t0\t0\tNONE\t0\t0\n"
    layers = 4 * batches
    return (
        STAGED.format(stages, chunks, batches)
        + f"{layers + 2}\n"
        + step.format("grad_gather")
        + layer * layers
        + step.format("optimizer1")
    )


@pytest.mark.parametrize(
    ("stages", "batches", "chunks", "bubble"), [(2, 4, 1, 1 / 5), (4, 8, 1, 3 / 11), (4, 8, 4, 3 / 35)]
)
def test_a_pipeline_takes_its_closed_form(
    tmp_path: Path, stages: int, batches: int, chunks: int, bubble: float
) -> None:
    """A micro-batch computes 4 x 90 ms here; latencies are a hundred-thousandth of that."""
    result = traced(tmp_path, staged(stages, chunks, batches), stages)
    assert result.step_ps == pytest.approx((batches + (stages - 1) / chunks) * 360e9, rel=1e-3)
    assert (result.bubble, result.bubble_ideal) == pytest.approx((bubble, bubble), rel=0.01)


def test_simais_formula_says_what_the_pipeline_takes_where_transfers_cost_nothing(tmp_path: Path) -> None:
    """One stage runs its 8 micro-batches of 360 ms; T (p - 1) / (ga x vpp) is the bubble of 3."""
    result = traced(tmp_path, staged(4, 1, 8), 4, pipeline="formula")
    assert (result.step_ps, result.formula_step_ps) == pytest.approx((8 * 360e9, 11 * 360e9), rel=1e-6)


def test_stages_have_data_parallel_groups_of_their_own() -> None:
    row = "attention_layer\t-1\t1\tALLGATHER\t64\t1\tNONE\t0\t1\tREDUCESCATTER\t64\t0\n"
    text = STAGED.replace("group: 1", "group: 2").format(2, 1, 1) + "1\n" + row
    plan = SimaiPlan(read_simai(text), 8, Fraction(1))
    groups = [[plan.groups[at].members for at in plan.scripts[rank].groups] for rank in (1, 6)]
    assert groups == [[(1, 5), (5, 1), (0, 1), (1, 3)], [(2, 6), (6, 2), (6, 7), (4, 6)]]
    sends = [(sender, receiver, send.size_bytes) for sender, send, receiver, _ in plan.transfers()]
    assert sorted(sends) == [(a, b, 4096) for a, b in sorted([(0, 4), (1, 5), (2, 6), (3, 7)] * 1)] + [
        (b, a, 4096) for a, b in [(0, 4), (1, 5), (2, 6), (3, 7)]
    ]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"pipeline": "interleaved"}, "6 micro-batches are no multiple of 4 stages"),
        ({"pipeline": "1f1b"}, ""),
        ({"pipeline": "interleaved", "micro_batches": 4}, ""),
        ({"micro_batches": 0}, "micro_batches"),
    ],
)
def test_a_pipeline_that_cannot_be_cut_as_asked_is_refused(
    tmp_path: Path, options: dict[str, object], reason: str
) -> None:
    (tmp_path / "trace.txt").write_text(staged(4, 2, 6), encoding="utf-8")
    if not reason:
        traced(tmp_path, staged(4, 2, 6), 4, **options)
        return
    with pytest.raises(ScenarioError, match=reason):
        traced(tmp_path, staged(4, 2, 6), 4, **options)


def traced(directory: Path, text: str, hosts: int, **options: object) -> TrainingResult:
    from emu import api  # noqa: PLC0415 - the whole library, for these alone

    (directory / "trace.txt").write_text(text, encoding="utf-8")
    workload = {"kind": "simai_trace", "file": "trace.txt", **options}
    written = yaml.safe_dump(
        {
            "name": "one",
            "topology": {"kind": "star", "hosts": hosts},
            "jobs": [{"name": "a", "workload": workload}],
        }
    )
    result = api.run(load_text(written, directory=directory), local=True).summary.jobs["a"]
    assert result.status == "success"
    assert result.training is not None
    return result.training


def scenario(directory: Path, text: str, hosts: int) -> str:
    (directory / "trace.txt").write_text(text, encoding="utf-8")
    return (
        f"name: one\ntopology: {{kind: star, hosts: {hosts}}}\n"
        "jobs:\n  - {name: a, workload: {kind: simai_trace, file: trace.txt}}\n"
    )


def test_the_text_takes_the_place_of_the_file(tmp_path: Path) -> None:
    loaded = load_text(scenario(tmp_path, TEXT, 8), directory=tmp_path)
    workload = loaded.scenario.jobs[0].workload
    assert (getattr(workload, "file", ""), getattr(workload, "text", "")) == (None, TEXT)


@pytest.mark.parametrize(
    ("text", "hosts", "reason"),
    [
        (TEXT.replace("ALLGATHER", "ALLGATTER"), 8, "line 3: 'ALLGATTER' is no collective"),
        (TEXT, 4, "the text is for 8 GPUs, the job has 4; accepted: 8 ranks, or any_ranks: true"),
        (
            TEXT.replace(" all_gpus: 8", ""),
            6,
            "tp 2 x ep 2 does not divide 6 ranks; accepted: a multiple of 4",
        ),
    ],
)
def test_a_scenario_with_a_wrong_trace_is_refused(tmp_path: Path, text: str, hosts: int, reason: str) -> None:
    from emu.api import prepare  # noqa: PLC0415 - the whole library, for this alone

    with pytest.raises(ScenarioError, match=reason):
        prepare(load_text(scenario(tmp_path, text, hosts), directory=tmp_path))


def test_headers_of_shipped_texts_are_read() -> None:
    """One stage with all that AICB writes, tabs and a word without its colon."""
    head = (
        "HYBRID_TRANSFORMER_FWD_IN_BCKWD\tmodel_parallel_NPU_group: 2 ep: 2 pp: 1 vpp: 1 ga: 4 all_gpus: 8 "
        "checkpoints: 0 checkpoint_initiates: 0 pp_comm 50331648\n"
    )
    simai = read_simai(head + TEXT.partition("\n")[2])
    assert (simai.tp, simai.ep, simai.ranks, len(simai.layers)) == (2, 2, 8, 2)


def test_a_broadcast_goes_over_the_tensor_parallel_group() -> None:
    row = "norm\t-1\t0\tBROADCAST\t16384\t1\tNONE\t0\t1\tNONE\t0\t100\n"
    plan = SimaiPlan(read_simai(HEAD + "1\n" + row), 8, Fraction(1))
    for rank, script in enumerate(plan.scripts):
        (group,) = script.groups
        assert plan.groups[group].members == (rank // 2 * 2, rank // 2 * 2 + 1)
        assert [(one.op, one.size_bytes, one.root) for one in script.calls[0]] == [("broadcast", 16_384, 0)]


def test_a_micro_benchmark_does_its_lines_one_after_the_other_over_all_ranks() -> None:
    row = "micro_test\t-1\t1\tNONE\t0\t1\tNONE\t0\t1\tALLGATHER\t{}\t1\n"
    text = "MICRO\n3\n" + "".join(row.format(4096 << at) for at in range(3))
    plan = SimaiPlan(read_simai(text), 4, Fraction(1))
    assert [group.members for group in plan.groups] == [(0, 1, 2, 3)]
    for script in plan.scripts:
        assert [(one.op, one.size_bytes) for one in script.calls[0]] == [
            ("all_gather", 4096),
            ("all_gather", 8192),
            ("all_gather", 16_384),
        ]
        kinds = [kind for kind, _, _ in script.streams[0]]
        assert kinds == [COMPUTE, RECORD, WAIT] * 3
