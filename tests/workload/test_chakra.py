"""Are Chakra's execution traces read as they are meant, and nothing else taken for one?"""

from collections.abc import Sequence
from contextlib import suppress
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.ncclx.script import CALL, COLLECTIVE, COMPUTE, EXCHANGE, LINE
from emu import api
from emu.base.errors import ScenarioError
from emu.scenario.load import load_mapping, load_text
from emu.scenario.readers.chakra import MOST_FILE_BYTES, MOST_TRACE_BYTES, ChakraError, Trace, read_chakra
from emu.scenario.readers.chakra_plan import ChakraPlan, MisfitError
from tests.scenario.plain import TEXT, plain
from tests.workload import chakra_files as et

SCENARIOS = Path(__file__).parents[2] / "scenarios"


def plan(*files: bytes, ranks: int = 0, groups: dict[str, Sequence[int]] | None = None) -> ChakraPlan:
    traces = [read_chakra(one) for one in files]
    return ChakraPlan(traces, ranks or len(files), groups or {}, Fraction(1), 10**12)


def coll(kind: int, size: int, group: str = "") -> dict[str, int | str]:
    named: dict[str, int | str] = {"pg_name": group} if group else {}
    return {"comm_type": kind, "comm_size": size, **named}


def test_a_node_is_read_with_its_attributes_however_they_are_written() -> None:
    one = et.node(1, et.COMPUTE, micros=12, cpu=True)
    two = et.node(2, et.COLLECTIVE, [1], attributes=coll(et.ALL_GATHER, 4096, "3"), packed=False)
    sizes = [et.attribute("comm_size", 512, kind) for kind in ("int32", "uint64", "sint64", "fixed64")]
    others = [et.node(3 + at, et.COLLECTIVE) + size for at, size in enumerate(sizes)]
    last = et.node(9, et.SEND, [1], attributes={"comm_dst": 5, "comm_size": 7, "comm_tag": 2}, control=True)
    nodes = read_chakra(et.trace(one, two, *others, last)).nodes
    assert (nodes[0].what, nodes[0].duration_ps, nodes[0].cpu) == ("compute", 12_000_000, True)
    assert (nodes[1].op, nodes[1].size_bytes, nodes[1].group, nodes[1].after) == (
        "all_gather",
        4096,
        "3",
        (1,),
    )
    assert [node.size_bytes for node in nodes[2:6]] == [512] * 4
    assert (nodes[6].what, nodes[6].peer, nodes[6].tag, nodes[6].after) == ("send", 5, 2, (1,))


def test_unknown_attributes_and_long_texts_are_passed_over() -> None:
    strange = et.attribute("stack", "x" * 5000) + et.chunk(
        10, et.chunk(1, "list") + et.chunk(10, b"\x01\x02")
    )
    (node,) = read_chakra(et.trace(et.node(1, et.COMPUTE, micros=1) + strange)).nodes
    assert node.duration_ps == 1_000_000


def test_the_shown_scenario_s_files_are_what_the_writer_of_the_tests_makes() -> None:
    for rank in range(4):
        assert (SCENARIOS / f"workloads/chakra.{rank}.et").read_bytes() == et.shown(rank)


def test_process_groups_come_from_the_trace_or_from_the_scenario() -> None:
    called = et.node(1, et.COLLECTIVE, attributes=coll(et.ALL_REDUCE, 64, "7"))
    listed = [et.trace(et.groups(0, {"7": [1, 0]}), called)] * 2
    given_ = plan(*[et.trace(called)] * 2, groups={"7": [1, 0]})
    assert plan(*listed).groups == given_.groups
    assert [(group.kind, group.members) for group in given_.groups] == [(COLLECTIVE, (1, 0))]
    with pytest.raises(MisfitError, match="rank 0, message 2: there is no process group '7'"):
        plan(*[et.trace(called)] * 2)


@pytest.mark.parametrize("packed", [True, False])
def test_a_caller_that_the_converter_left_out_is_not_waited_for(packed: bool) -> None:
    """Traces from PyTorch name the operator above as ctrl_deps, the root (0) and threads among them."""
    called = et.node(5, et.COMPUTE, [0, 3], 7, control=True, packed=packed)
    plain_ = et.node(5, et.COMPUTE, (), 7)
    scripts = [plan(et.trace(BARE, one)).scripts[0] for one in (called, plain_)]
    assert scripts[0].streams == scripts[1].streams


def test_sizes_count_what_one_rank_puts_in() -> None:
    kinds = (et.ALL_REDUCE, et.ALL_GATHER, et.REDUCE_SCATTER, et.ALL_TO_ALL, et.BARRIER)
    nodes = [et.node(at, et.COLLECTIVE, attributes=coll(kind, 4096)) for at, kind in enumerate(kinds)]
    made = plan(et.trace(*nodes), ranks=4)
    rings, meshes = ([(call.op, call.size_bytes) for call in calls] for calls in made.scripts[0].calls)
    assert rings == [
        ("all_reduce", 4096),
        ("all_gather", 16_384),
        ("reduce_scatter", 4096),
        ("all_reduce", 4),
    ]
    assert meshes == [("all_to_all", 4096)]
    assert [group.kind for group in made.groups] == [COLLECTIVE, EXCHANGE]
    # One communicator, so one stream, in the order of the trace.
    (stream,) = [line for line in made.scripts[0].streams[1:] if line]
    assert [place for kind, place, _ in stream if kind == CALL] == [0, 0, 0, 1, 0]


def test_rooted_collectives_have_their_root_and_priorities_a_communicator_each() -> None:
    said = coll(et.BROADCAST, 4096) | {"root_rank": 2}
    urgent = coll(et.ALL_REDUCE, 64) | {"comm_priority": 3}
    gathered = coll(3, 1024)
    calls = (said, urgent, gathered, coll(et.ALL_REDUCE, 64))
    nodes = [et.node(at, et.COLLECTIVE, attributes=one) for at, one in enumerate(calls)]
    made = plan(et.trace(*nodes), ranks=4)
    assert [(group.kind, group.priority) for group in made.groups] == [
        (COLLECTIVE, 0),
        (COLLECTIVE, 3),
        (EXCHANGE, 0),
    ]
    assert [
        [(call.op, call.algorithm, call.size_bytes, call.root) for call in calls]
        for calls in made.scripts[1].calls
    ] == [
        [("broadcast", "ring", 4096, 2), ("all_reduce", "ring", 64, 0)],
        [("all_reduce", "ring", 64, 0)],
        [("gather", "direct", 4096, 0)],
    ]
    with pytest.raises(MisfitError, match="root_rank 9 is not in its process group"):
        plan(et.trace(et.node(1, et.COLLECTIVE, attributes=said | {"root_rank": 9})), ranks=4)


def test_computing_takes_its_duration_or_its_operations_at_the_peak_rate() -> None:
    timed = et.node(1, et.COMPUTE, micros=5, attributes={"num_ops": 10**9})
    counted = et.node(2, et.COMPUTE, attributes={"num_ops": 3 * 10**9})
    nothing = et.node(3, et.COMPUTE)
    script = plan(et.trace(timed, counted, nothing), ranks=2).scripts[0]
    # 3e9 FLOPs at 1e12 FLOP/s: 3 ms.
    assert script.streams[0] == [(COMPUTE, 5_000_000, 0), (COMPUTE, 3_000_000_000, 0)]


def test_nodes_that_take_no_time_hand_on_who_waits_for_whom() -> None:
    first = et.node(1, et.COLLECTIVE, attributes=coll(et.ALL_REDUCE, 64))
    nothing, metadata = et.node(2, 0, [1]), et.node(3, et.METADATA, [2])
    last = et.node(4, et.COMPUTE, [3], micros=1)
    script = plan(et.trace(first, nothing, metadata, last), ranks=2).scripts[0]
    # Stream 0 waits (2) for the event that stream 1 records (3) after its call (1).
    assert script.streams == [[(2, 0, 0), (0, 1_000_000, 0)], [(1, 0, 0), (3, 0, 0)]]


@pytest.mark.parametrize("kind", [0, 2, 5, 6, 7, 9])
def test_the_call_of_a_linked_trace_is_skipped_and_its_kernel_carried_out(kind: int) -> None:
    before = et.node(1, et.COMPUTE, cpu=True, micros=3)
    call = et.node(2, et.COLLECTIVE, [1], cpu=True, attributes=coll(kind, 4096))
    linked = et.trace(before, call, et.node(3, et.COLLECTIVE, [2], attributes=coll(kind, 4096)))
    kernel = et.trace(before, et.node(3, et.COLLECTIVE, [1], attributes=coll(kind, 4096)))
    scripts = [plan(one, one).scripts[0].streams for one in (linked, kernel)]
    assert scripts[0] == scripts[1] != []


def test_the_least_id_comes_first_among_those_that_may() -> None:
    late = et.node(1, et.COMPUTE, [4], micros=1)
    nodes = [late, et.node(5, et.COMPUTE, micros=2), et.node(4, et.COMPUTE, micros=3)]
    script = plan(et.trace(*nodes), ranks=2).scripts[0]
    assert [a for _, a, _ in script.streams[0]] == [3_000_000, 1_000_000, 2_000_000]


def test_receives_follow_the_order_of_the_sender_by_tag() -> None:
    def transfer(number: int, kind: int, peer: str, tag: int, size: int) -> bytes:
        said = {peer: 1 if kind == et.SEND else 0, "comm_size": size, "comm_tag": tag}
        return et.node(number, kind, attributes=said)

    sender = et.trace(*(transfer(at, et.SEND, "comm_dst", tag, 100 + tag) for at, tag in enumerate((2, 1))))
    receiver = et.trace(
        *(transfer(at, et.RECEIVE, "comm_src", tag, 100 + tag) for at, tag in enumerate((1, 2)))
    )
    made = plan(sender, receiver)
    assert [group.kind for group in made.groups] == [LINE]
    assert [call.size_bytes for call in made.scripts[0].calls[0]] == [102, 101]
    assert made.scripts[0].calls == made.scripts[1].calls


BARE = et.node(1, et.COLLECTIVE, attributes=coll(et.ALL_REDUCE, 64))
SENT = et.node(1, et.SEND, attributes={"comm_dst": 1, "comm_size": 8})
RECEIVED = et.node(1, et.RECEIVE, attributes={"comm_src": 0, "comm_size": 8})


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ((et.trace(BARE), et.trace(et.node(2, et.COMPUTE))), "rank 1: call 1 of world is missing, rank 0's"),
        (
            (et.trace(BARE), et.trace(et.node(1, et.COLLECTIVE, attributes=coll(et.ALL_REDUCE, 65)))),
            "rank 1: call 1 of world is all_reduce of 65 B, rank 0's all_reduce of 64 B",
        ),
        (
            (et.trace(SENT), et.trace(et.node(2, et.COMPUTE))),
            "sends rank 1 1 times, which receives 0 times",
        ),
        ((et.trace(SENT), et.trace(RECEIVED.replace(b"\x48\x08", b"\x48\x09"))), "receives 9 B with tag 0"),
        (
            (et.trace(et.node(2, et.COMPUTE)), et.trace(RECEIVED)),
            "receives more with tag 0 than rank 0 sends",
        ),
        ((et.trace(SENT.replace(b"\x48\x01", b"\x48\x00")),) * 2, "its peer is rank 0 of 2"),
        (
            (et.trace(et.node(1, et.COMPUTE, [2]), et.node(2, et.COMPUTE, [1])),) * 2,
            "node 1 waits for itself",
        ),
    ],
    ids=lambda one: "" if isinstance(one, tuple) else None,
)
def test_what_does_not_fit_together_is_named_by_rank(files: tuple[bytes, ...], reason: str) -> None:
    with pytest.raises(MisfitError, match=reason):
        plan(*files)


WRONG_GROUPS = (
    et.number(1, 1) + et.number(3, et.METADATA) + et.chunk(8, et.chunk(1, "['[{\"pg_name\": 3}]']"))
)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "message 1: ends before the first node"),
        (et.trace(), "message 1: ends before the first node"),
        (et.trace(BARE)[:-1], "message 2: byte 8: a message of .* is cut off after"),
        (b"\xff" * 30, "message 1: byte 0: a number is longer than 10 bytes"),
        (et.trace(b"\x0b"), "a field is written in the unknown way 3"),
        (et.trace(b"\x00\x01"), "a field has no number"),
        (et.trace(et.chunk(1, b"x")), "an id, a type or a duration is no number"),
        (b"\x02\x08\x01", "the first message is no GlobalMetadata"),
        (et.trace(et.node(1, 2)), "message 2: MEM_LOAD_NODE is not modelled"),
        (et.trace(et.node(1, 99)), "message 2: there is no node type 99"),
        (et.trace(BARE, BARE), "message 3: node 1 is there already"),
        (et.trace(et.node(1, et.COMPUTE, [8])), "message 2: waits for data of node 8"),
        (et.trace(et.node(1, et.COMPUTE, micros=10**9 + 1)), "takes 1000000001 us"),
        (et.trace(et.node(1, et.COLLECTIVE, attributes=coll(77, 1))), "comm_type is 77"),
        (et.trace(et.node(1, et.COLLECTIVE, attributes=coll(0, -1))), "comm_size is -1"),
        (et.trace(et.node(1, et.COLLECTIVE, attributes=coll(0, 2**41))), "comm_size is 2199023255552"),
        (et.trace(et.node(1, et.COLLECTIVE, attributes=coll(0, 1, "a b"))), "pg_name is 'a b'"),
        (et.trace(et.node(1, et.COLLECTIVE, attributes={"comm_size": "x"})), "comm_size is 'x'"),
        (et.trace(et.node(1, et.SEND, attributes={"comm_size": 1})), "a send without comm_dst"),
        (
            et.trace(et.node(1, et.COLLECTIVE, cpu=True)),
            "communication of a CPU, and no node of communication on a GPU",
        ),
        (et.trace(WRONG_GROUPS), "a process group is not of the form"),
        (et.trace(WRONG_GROUPS.replace(b": 3", b"  3")), "process groups are no JSON"),
    ],
    ids=lambda one: "" if isinstance(one, bytes) else None,
)
def test_what_is_no_trace_is_named_by_its_message(data: bytes, reason: str) -> None:
    with pytest.raises(ChakraError, match=reason):
        read_chakra(data)


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    with suppress(ChakraError):
        assert read_chakra(data).nodes


@given(st.data(), st.integers(0, 3))
def test_a_spoilt_trace_is_read_or_refused_and_planned_or_refused(data: st.DataObject, rank: int) -> None:
    spoilt = bytearray(et.shown(rank))
    for _ in range(data.draw(st.integers(1, 4))):
        spoilt[data.draw(st.integers(0, len(spoilt) - 1))] = data.draw(st.integers(0, 255))
    traces: list[Trace] = [read_chakra(et.shown(one)) for one in range(4)]
    with suppress(ChakraError, MisfitError):
        traces[rank] = read_chakra(bytes(spoilt))
        made = ChakraPlan(traces, 4, {}, Fraction(1), 0)
        assert len(made.scripts) == 4


SCENARIO = """
name: one
topology: {kind: star, hosts: 2}
jobs:
  - {name: a, workload: {kind: chakra_trace, file: FILE}}
"""


def test_a_scenario_with_a_wrong_trace_is_refused_in_one_line_with_status_2(tmp_path: Path) -> None:
    (tmp_path / "t.0.et").write_bytes(et.trace(BARE))
    (tmp_path / "t.1.et").write_bytes(et.trace(BARE)[:-2])
    with pytest.raises(
        ScenarioError, match=r"rank 1, message 2: byte 8: a message of \d+ bytes is cut"
    ) as caught:
        load_text(SCENARIO.replace("FILE", "t"), directory=tmp_path)
    assert (len(caught.value.problems), caught.value.exit_status) == (1, 2)
    (tmp_path / "t.1.et").write_bytes(et.trace(et.node(1, et.COLLECTIVE, attributes=coll(0, 65))))
    with pytest.raises(ScenarioError, match="rank 1: call 1 of world is all_reduce of 65 B"):
        api.prepare(load_text(SCENARIO.replace("FILE", "t"), directory=tmp_path))
    (tmp_path / "t.2.et").write_bytes(et.trace(BARE))
    with pytest.raises(
        ScenarioError, match="the traces are for 3 ranks, the job has 2; accepted: 3 ranks, or"
    ):
        api.prepare(load_text(SCENARIO.replace("FILE", "t"), directory=tmp_path))
    circle = et.node(1, et.COMPUTE, [2]), et.node(2, et.COMPUTE, [1])
    (tmp_path / "circle.et").write_bytes(et.trace(*circle))
    with pytest.raises(ScenarioError) as caught:
        api.prepare(load_text(SCENARIO.replace("FILE", "circle.et"), directory=tmp_path))
    (problem,) = caught.value.problems
    assert problem.key == "jobs[0].workload.traces"
    assert problem.reason == "rank 0, message 2: node 1 waits for itself, by way of others"
    assert problem.accepted == "dependencies without a cycle"
    with pytest.raises(ScenarioError, match=r"nothing\.0\.et: there is no such file") as missing:
        load_text(SCENARIO.replace("FILE", "nothing"), directory=tmp_path)
    assert len(missing.value.problems) == 1
    with pytest.raises(ScenarioError, match="is no Base64"):
        load_text(SCENARIO.replace("file: FILE", "traces: ['!']"))
    (tmp_path / "large.et").write_bytes(bytes(MOST_TRACE_BYTES + 1))
    with pytest.raises(ScenarioError, match="there is too much in the traces"):
        load_text(SCENARIO.replace("FILE", "large.et"), directory=tmp_path)
    (tmp_path / "huge.et").write_bytes(bytes(MOST_FILE_BYTES + 1))
    with pytest.raises(ScenarioError, match="the traces are too large"):
        load_text(SCENARIO.replace("FILE", "huge.et"), directory=tmp_path)


def test_every_collective_of_a_trace_runs_and_sends_its_bytes(tmp_path: Path) -> None:
    nodes = [
        et.node(kind, et.COLLECTIVE, [kind - 1] if kind else [], attributes=coll(kind, 8192))
        for kind in range(10)
    ]
    (tmp_path / "all.et").write_bytes(et.trace(*nodes))
    scenario = SCENARIO.replace("FILE", "all.et").replace("hosts: 2", "hosts: 4")
    loaded = load_text(scenario + TEXT.replace("ncclx: {", "ncclx: {admission: none, "), directory=tmp_path)
    summary = api.run(loaded, local=True).summary
    assert summary.jobs["a"].status == "success"
    # all_reduce, reduce, all_gather, gather, scatter, broadcast, all_to_all, reduce_scatter twice; a barrier.
    shares = [Fraction(one) for one in (6, 3, 12, 3, "3/4", 3, 3, 3, 3)]
    barrier = 2 * 3 * 4
    assert summary.fabric.tiers[0].up_bytes == 8192 * sum(shares, Fraction(0)) + barrier


def test_one_file_serves_all_ranks_and_the_effective_scenario_needs_none(tmp_path: Path) -> None:
    nodes = [
        et.node(1, et.COMPUTE, micros=50),
        et.node(2, et.COLLECTIVE, [1], attributes=coll(et.ALL_REDUCE, 65_536)),
    ]
    (tmp_path / "one.et").write_bytes(et.trace(*nodes))
    loaded = load_text(SCENARIO.replace("FILE", "one.et"), directory=tmp_path)
    again = load_text(api.effective(loaded.scenario))
    assert again.scenario == loaded.scenario
    result = api.run(again, local=True).summary.jobs["a"]
    assert result.training is not None
    assert result.training.step_ps is not None
    assert result.training.step_ps > 50_000_000
    assert result.training.compute == pytest.approx(50_000_000 / result.training.step_ps, abs=1e-6)


def test_a_trace_of_communication_alone_has_a_row_for_each_call_and_is_all_exposed(tmp_path: Path) -> None:
    """Two all_reduces and a send, with no computing: rows in their order, and a step that only waits."""
    first, second = coll(et.ALL_REDUCE, 65_536), coll(et.ALL_REDUCE, 131_072)
    for rank in range(4):
        nodes = [
            et.node(1, et.COLLECTIVE, attributes=first),
            et.node(2, et.COLLECTIVE, [1], attributes=second),
        ]
        if rank == 0:
            sent: dict[str, int | str] = {"comm_size": 32_768, "comm_dst": 1, "comm_tag": 7}
            nodes.append(et.node(3, et.SEND, [2], attributes=sent))
        if rank == 1:
            received: dict[str, int | str] = {"comm_size": 32_768, "comm_src": 0, "comm_tag": 7}
            nodes.append(et.node(3, et.RECEIVE, [2], attributes=received))
        (tmp_path / f"t.{rank}.et").write_bytes(et.trace(*nodes))
    scenario = plain(
        {
            "name": "alone",
            "topology": {"kind": "star", "hosts": 4, "link": "400G"},
            "jobs": [{"name": "a", "workload": {"kind": "chakra_trace", "file": "t"}}],
        }
    )
    result = api.run(load_mapping(scenario, tmp_path), local=True)
    job = result.summary.jobs["a"]
    assert [(one.op, one.algorithm, one.communicator, one.bytes, one.ranks) for one in job.collectives] == [
        ("all_reduce", "ring", "world", 65_536, 4),
        ("all_reduce", "ring", "world", 131_072, 4),
        ("send", "", "p2p", 32_768, 2),
    ]
    starts_ps = [one.start_ps or 0 for one in job.collectives]
    assert starts_ps == sorted(starts_ps)
    assert all(0 < (one.busbw or 0) < 400 * 10**9 for one in job.collectives)
    assert job.training is not None
    assert job.training.compute == 0
    assert sum(job.training.exposed.values()) > 0.9
    assert job.training.other is not None
    assert job.training.other < 0.1
