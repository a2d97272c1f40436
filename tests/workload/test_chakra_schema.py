"""Are files read as Google's protobuf writes them with Chakra's schema, in the ways of Chakra's own tools?"""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.ncclx.script import LINE
from emu.scenario.load import load_text
from emu.scenario.readers.chakra import (
    COLLECTIVE,
    COMPUTE,
    MOST_NODES,
    MOST_TRACE_BYTES,
    RECEIVE,
    SEND,
    SKIPPED,
    ChakraError,
    Trace,
    pared,
    read_chakra,
)
from emu.scenario.readers.chakra_plan import ChakraPlan, MisfitError
from emu.scenario.workloads.trace import ChakraTrace
from tests.workload.chakra_schema import KINDS, NODE_TYPES, attribute, message, nodes_of, written

SCENARIOS = Path(__file__).parents[2] / "scenarios"
COMPUTES, COLLECTS, METADATA = NODE_TYPES.index("COMP_NODE"), NODE_TYPES.index("COMM_COLL_NODE"), 1


def converted(number: int, kind: int, after: list[int], cpu: bool, *more: Any, **fields: Any) -> Any:
    """A node as the converter from PyTorch's traces writes it."""
    tensors = "[[86, 87, 0, 1024, 4, 'cuda:0']]"
    shown = message("IOInfo", values=tensors, shapes="[[1024]]", types="['Tensor(float)']")
    said = [
        *(
            attribute(name, int64_val=value)
            for name, value in (("rf_id", 7), ("fw_parent", 0), ("seq_id", -1))
        ),
        *(attribute(name, int64_val=value) for name, value in (("scope", 7), ("tid", 1), ("fw_tid", 0))),
        attribute("op_schema", string_val="aten::add.Tensor(Tensor self, Tensor other) -> Tensor " * 400),
        attribute("is_cpu_op", bool_val=cpu),
        attribute("stream", int64_val=7),
    ]
    node = message("Node", id=number, name=f"aten::op_{number}", type=kind, data_deps=after, **fields)
    node.inputs.CopyFrom(shown)
    node.outputs.CopyFrom(shown)
    node.attr.extend([*said, *more])
    return node


def from_pytorch(*, more: int = 0) -> bytes:
    """A file of five nodes, and more of computing."""
    metadata = message("GlobalMetadata")
    metadata.attr.extend(
        [
            attribute("schema", string_val="1.1.1-chakra.0.0.4"),
            attribute("pid", uint64_val=1 << 40),
            attribute("start_ts", uint64_val=1_726_000_000_000_000),
        ]
    )
    groups = """['[{"pg_name": "0", "pg_desc": "default_pg", "backend_config": "cuda:nccl", "ranks": []}, """
    groups += """{"pg_name": "3", "pg_desc": "tp", "backend_config": "cuda:nccl", "ranks": [0, 2]}]']"""
    listed = message("Node", id=2, name="## process_group:init ##", type=METADATA, ctrl_deps=[1])
    listed.inputs.CopyFrom(message("IOInfo", values=groups, shapes="[[]]", types="['String']"))
    said = [
        attribute("comm_type", int64_val=0),
        attribute("comm_size", int64_val=4096),
        attribute("pg_name", string_val="3"),
    ]
    return written(
        [
            metadata,
            converted(1, METADATA, [], True, duration_micros=0),
            listed,
            converted(3, COMPUTES, [1], True, ctrl_deps=[1], duration_micros=3),
            converted(1 << 50, COMPUTES, [3], False, ctrl_deps=[3], duration_micros=250, start_time_micros=9),
            converted(5, COLLECTS, [3, 1 << 50], False, *said, duration_micros=40),
            *(converted(6 + at, COMPUTES, [3], False, duration_micros=1) for at in range(more)),
        ]
    )


def test_a_trace_as_the_converter_from_pytorch_writes_it() -> None:
    trace = read_chakra(from_pytorch())
    assert trace.groups == {"0": (), "3": (0, 2)}
    found = [(one.id, one.what, one.after, one.duration_ps, one.cpu) for one in trace.nodes]
    assert found == [
        (1, SKIPPED, (), 0, False),
        (2, SKIPPED, (1,), 0, False),
        (3, COMPUTE, (1,), 3_000_000, True),
        (1 << 50, COMPUTE, (3,), 250_000_000, False),
        (5, COLLECTIVE, (3, 1 << 50), 0, False),
    ]
    last = trace.nodes[-1]
    assert (last.op, last.size_bytes, last.group) == ("all_reduce", 4096, "3")


def test_a_trace_as_the_converter_from_texts_writes_it() -> None:
    metadata = message("GlobalMetadata")
    metadata.attr.append(attribute("input_file", string_val="HYBRID_DATA_MODEL\n" * 500))
    computing = message("Node", id=0, name="COMP_NODE_conv1_FWD", type=COMPUTES, duration_micros=5)
    collective = message("Node", id=1, name="COMM_COLL_NODE_conv1_ALLGATHER", type=COLLECTS, data_deps=[0])
    collective.attr.append(attribute("comm_type", int64_val=2))
    collective.attr.append(attribute("comm_size", int64_val=1 << 20))
    trace = read_chakra(written([metadata, computing, collective]))
    assert [(one.what, one.after) for one in trace.nodes] == [(COMPUTE, ()), (COLLECTIVE, (0,))]
    assert (trace.nodes[1].op, trace.nodes[1].size_bytes) == ("all_gather", 1 << 20)


@pytest.mark.parametrize(
    "kind", ["int32", "int64", "uint32", "uint64", "sint32", "sint64", "fixed32", "fixed64"]
)
def test_a_number_is_read_whatever_its_type(kind: str) -> None:
    send = message("Node", id=4, type=NODE_TYPES.index("COMM_SEND_NODE"))
    receive = message("Node", id=5, type=NODE_TYPES.index("COMM_RECV_NODE"))
    for node, peer in ((send, "comm_dst"), (receive, "comm_src")):
        for name, value in ((peer, 3), ("comm_size", 70_000), ("comm_tag", 9)):
            node.attr.append(attribute(name, **{f"{kind}_val": value}))
    found = read_chakra(written([message("GlobalMetadata", version="0.0.4"), send, receive])).nodes
    assert [(one.what, one.peer, one.size_bytes, one.tag) for one in found] == [
        (SEND, 3, 70_000, 9),
        (RECEIVE, 3, 70_000, 9),
    ]


def test_attributes_of_every_type_are_passed_over() -> None:
    """The generator of Chakra writes such a node to try readers."""
    values = {"double": 1.5, "float": 2.5, "bool": True, "string": "12345", "bytes": b"12345"}
    node = message("Node", id=0, name="METADATA_NODE", type=METADATA)
    for kind in KINDS:
        value = values.get(kind, 12345)
        node.attr.append(attribute(kind, **{f"{kind}_val": value}))
        many = message(f"{kind.capitalize()}List", values=[value, value])
        node.attr.append(attribute(f"{kind}_list", **{f"{kind}_list": many}))
    assert len(node.attr) == 2 * 15
    trace = read_chakra(written([message("GlobalMetadata", version="0.0.4"), node]))
    assert [one.what for one in trace.nodes] == [SKIPPED]


def test_a_transfer_that_names_its_group_alone_is_with_the_other_one_of_two() -> None:
    """As the converter from PyTorch writes it."""

    def trace(kind: str, group: str) -> Trace:
        said = [attribute("comm_size", int64_val=4096), attribute("pg_name", string_val=group)]
        node = converted(3, NODE_TYPES.index(kind), [], False, *said)
        return read_chakra(written([message("GlobalMetadata"), node]))

    groups = {"5": (2, 0), "6": (0, 1, 2)}
    silent = read_chakra(written([message("GlobalMetadata"), converted(1, COMPUTES, [], False)]))
    traces = [trace("COMM_SEND_NODE", "5"), silent, trace("COMM_RECV_NODE", "5")]
    plan = ChakraPlan(traces, 3, groups, Fraction(1), 0)
    assert [(one.kind, one.members) for one in plan.groups] == [(LINE, (0, 2))]
    with pytest.raises(MisfitError, match=r"rank 0, message 2: does not say its peer, .* '6' has 3 ranks"):
        ChakraPlan([trace("COMM_SEND_NODE", "6"), silent, silent], 3, groups, Fraction(1), 0)


@pytest.mark.parametrize("rank", range(4))
def test_the_shown_traces_are_messages_of_the_schema(rank: int) -> None:
    data = (SCENARIOS / f"workloads/chakra.{rank}.et").read_bytes()
    nodes = nodes_of(data)
    for node in nodes:
        unknown = node.ByteSize()
        node.DiscardUnknownFields()
        assert node.ByteSize() == unknown
    again = read_chakra(written([message("GlobalMetadata", version="0.0.4"), *nodes]))
    assert again == read_chakra(data)
    kinds = {COMPUTE: COMPUTES, COLLECTIVE: COLLECTS, SEND: 5, RECEIVE: 6, SKIPPED: METADATA}
    for node, one in zip(nodes, again.nodes, strict=True):
        assert (node.id, node.type) == (one.id, kinds[one.what])
        assert sorted({*node.data_deps, *node.ctrl_deps}) == list(one.after)
        assert node.duration_micros * 10**6 == one.duration_ps


def test_what_nobody_reads_of_a_trace_does_not_get_into_a_scenario(tmp_path: Path) -> None:
    data = from_pytorch(more=400)
    assert len(data) > MOST_TRACE_BYTES
    kept = pared(data)
    assert len(kept) < len(data) // 40
    assert read_chakra(kept) == read_chakra(data)
    assert pared(kept) == kept
    (tmp_path / "large.et").write_bytes(data)
    wide = converted(9, COMPUTES, [3], False, attribute("stack", string_val="x" * (17 << 20)))
    (tmp_path / "wide.et").write_bytes(from_pytorch() + written([wide]))
    text = """
name: large
topology: {kind: star, hosts: 4}
jobs: [{name: a, workload: {kind: chakra_trace, file: FILE}}]
"""
    for file, nodes in (("large.et", 405), ("wide.et", 6)):
        scenario = load_text(text.replace("FILE", file), directory=tmp_path).scenario
        workload = scenario.jobs[0].workload
        assert isinstance(workload, ChakraTrace)
        assert workload.cut() == f"Chakra: {nodes} nodes in 1 file"


def test_paring_leaves_what_is_no_trace_to_the_reader() -> None:
    whole = from_pytorch()
    for data in (whole[:-1], b"\x05abc", bytes(MOST_NODES + 2), written([message("Node", id=1)])):
        outcomes = []
        for one in (data, pared(data)):
            with pytest.raises(ChakraError) as caught:
                read_chakra(one)
            outcomes.append((caught.value.line, caught.value.accepted))
        assert outcomes[0] == outcomes[1]


@given(st.binary(max_size=300), st.integers(0, 2 * 10**5))
def test_a_spoilt_trace_that_is_read_is_read_the_same_when_pared(spoilt: bytes, at: int) -> None:
    whole = from_pytorch()
    data = whole[:at] + spoilt + whole[at + len(spoilt) :]
    try:
        expected = read_chakra(data)
    except ChakraError:
        return
    assert read_chakra(pared(data)) == expected
