"""Chakra's execution traces as its own tools write them, and the one that `scenarios/` shows."""

import json
from collections.abc import Mapping, Sequence

COMPUTE, SEND, RECEIVE, COLLECTIVE, METADATA = 4, 5, 6, 7, 1
ALL_REDUCE, ALL_GATHER, BROADCAST, ALL_TO_ALL, REDUCE_SCATTER, BARRIER = 0, 2, 5, 6, 7, 9
# Fields of AttributeProto by the name of the value.
VALUES = {"int32": 7, "int64": 9, "uint32": 11, "uint64": 13, "sint64": 17, "fixed64": 21, "bool": 27}
STRING = 29


def varint(value: int) -> bytes:
    """As protobuf writes a number."""
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def number(field: int, value: int) -> bytes:
    """A field that is a varint."""
    return varint(field << 3) + varint(value)


def chunk(field: int, content: bytes | str) -> bytes:
    """A field that is a text, a list or a message."""
    data = content.encode() if isinstance(content, str) else content
    return varint(field << 3 | 2) + varint(len(data)) + data


def attribute(name: str, value: int | str, kind: str = "int64") -> bytes:
    """A field `attr` of a node."""
    if isinstance(value, str):
        return chunk(10, chunk(1, name) + chunk(STRING, value))
    if kind == "fixed64":
        return chunk(10, chunk(1, name) + varint(VALUES[kind] << 3 | 1) + value.to_bytes(8, "little"))
    return chunk(10, chunk(1, name) + number(VALUES[kind], 2 * value if kind == "sint64" else value))


def node(
    number_: int,
    kind: int,
    after: Sequence[int] = (),
    micros: int = 0,
    attributes: Mapping[str, int | str] | None = None,
    **wire: bool,
) -> bytes:
    """One node; dependencies are data dependencies, packed unless `packed=False`, and `control=True`."""
    field = 4 if wire.get("control") else 5
    deps = chunk(field, b"".join(map(varint, after))) if after else b""
    if not wire.get("packed", True):
        deps = b"".join(number(field, one) for one in after)
    said = b"".join(attribute(key, value) for key, value in (attributes or {}).items())
    cpu = chunk(10, chunk(1, "is_cpu_op") + number(27, int(wire.get("cpu", False))))
    return (
        number(1, number_)
        + chunk(2, f"node {number_}")
        + number(3, kind)
        + deps
        + number(7, micros)
        + cpu
        + said
    )


def groups(number_: int, named: Mapping[str, Sequence[int]]) -> bytes:
    """A METADATA_NODE with process groups, as PyTorch's traces have it."""
    listed = [{"pg_name": name, "pg_desc": "x", "ranks": list(ranks)} for name, ranks in named.items()]
    inputs = chunk(8, chunk(1, f"['{json.dumps(listed)}']") + chunk(3, "['String']"))
    return number(1, number_) + chunk(2, "## process_group:init ##") + number(3, METADATA) + inputs


def trace(*nodes: bytes) -> bytes:
    """A whole file."""
    messages = [chunk(1, "0.0.4"), *nodes]
    return b"".join(varint(len(one)) + one for one in messages)


def shown(rank: int) -> bytes:
    """The trace of `scenarios/workloads/chakra.yaml`: two stages of two ranks, one micro-batch."""
    pairs = {"1": (0, 1), "2": (2, 3)}
    group, first = ("1", True) if rank < 2 else ("2", False)
    tensor: dict[str, int | str] = {"comm_type": ALL_REDUCE, "comm_size": 262_144, "pg_name": group}
    arrival = {"comm_src": rank - 2, "comm_size": 131_072, "comm_tag": 7}
    gradient = {"comm_src": rank + 2, "comm_size": 131_072, "comm_tag": 8}
    return trace(
        groups(0, pairs),
        *([] if first else [node(1, RECEIVE, [0], attributes=arrival)]),
        node(2, COMPUTE, [0] if first else [1], micros=20),
        node(3, COLLECTIVE, [2], attributes=tensor),
        *(
            [node(4, SEND, [3], attributes={"comm_dst": rank + 2, "comm_size": 131_072, "comm_tag": 7})]
            if first
            else []
        ),
        *([node(5, RECEIVE, [4], attributes=gradient)] if first else []),
        node(6, COMPUTE, [5] if first else [3], micros=40),
        node(7, COLLECTIVE, [6], attributes=tensor),
        *(
            []
            if first
            else [node(8, SEND, [7], attributes={"comm_dst": rank - 2, "comm_size": 131_072, "comm_tag": 8})]
        ),
        node(9, COLLECTIVE, [6], attributes={"comm_type": ALL_REDUCE, "comm_size": 524_288}),
        node(10, COMPUTE, [7], micros=30),
        node(11, COMPUTE, [9, 10], micros=5),
    )
