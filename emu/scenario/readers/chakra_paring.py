"""What of a Chakra trace is worth keeping in a scenario? What `emu.scenario.readers.chakra` reads, and
nothing else.

Traces taken from PyTorch carry schemas, shapes and values of every operator: some kilobytes a node, of which
less than a hundred bytes matter here. `pared` leaves the rest out: names, inputs and outputs (but the process
groups that a node lists), recorded start times, and attributes that nobody reads. Messages stay as many, so
what is wrong is named by the same one.

Nothing is checked here but where fields begin and end: what is no such file is handed on as it is, for the
reader to refuse. Where it counts bytes, it counts those that were kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from emu.scenario.readers.chakra import MOST_NODES
from emu.scenario.readers.protobuf import LENGTH, Field, WireError, fields, varint, written

KEPT_ATTRIBUTES: Final = frozenset(
    (
        b"is_cpu_op",
        b"num_ops",
        b"comm_type",
        b"comm_size",
        b"comm_priority",
        b"comm_src",
        b"comm_dst",
        b"comm_tag",
        b"pg_name",
        b"root_rank",
    )
)
_KEPT: Final = (1, 3, 4, 5, 7)
"""Of a node: id, type, dependencies, duration."""
_INPUTS: Final = 8
_ATTRIBUTE: Final = 10
MOST_FIELDS: Final = 2**22
"""Of nodes; who has more, in however few bytes, is left as it is."""


def pared(data: bytes) -> bytes:
    """The same trace without what nobody reads."""
    try:
        return b"".join(_messages(data))
    except WireError:
        return data


def _messages(data: bytes) -> Iterator[bytes]:
    at = messages = seen = 0
    while at < len(data):
        size, begin = varint(data, at, len(data))
        if size > len(data) - begin:
            raise WireError(at, "a message is cut off")
        at = end = begin + size
        kept: list[bytes] = []
        for field in fields(data, begin, end):
            seen += 1
            if _matters(data, field) if messages else field.kind != LENGTH or field.number > 2:
                kept.append(data[begin : field.end])
            begin = field.end
        messages += 1
        if messages > MOST_NODES + 1 or seen > MOST_FIELDS:
            raise WireError(at, "there is too much in it")
        node = b"".join(kept)
        yield written(len(node)) + node


def _matters(data: bytes, field: Field) -> bool:
    """Whether a field of a node is read, or refused."""
    if field.number in _KEPT:
        return True
    if field.kind != LENGTH:
        return field.number in (_INPUTS, _ATTRIBUTE)
    if field.number == _INPUTS:
        return data.find(b"pg_name", field.value, field.end) >= 0
    if field.number != _ATTRIBUTE:
        return False
    names = [one for one in fields(data, field.value, field.end) if one.number == 1]
    return any(one.kind != LENGTH or data[one.value : one.end] in KEPT_ATTRIBUTES for one in names)
