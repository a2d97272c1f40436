"""Reader of Chakra execution traces (`.et`), one rank's each.

The file is a row of protobuf messages, each after its length: one `GlobalMetadata`, then a `Node` each. What
we read of a node: id, type, ctrl_deps, data_deps, duration_micros, and these attributes:

    is_cpu_op            computing on the CPU; else on the GPU
    num_ops              of computing without a duration
    comm_type, comm_size of a collective; pg_name names its group, comm_priority its priority, and root_rank
                         the root of one that has a root
    comm_dst / comm_src  of a send / a receive, with comm_size and comm_tag; where it is not said, pg_name, of
                         a group of two

Bytes count as ASTRA-sim counts them: what one rank puts in. A METADATA_NODE may list process groups, as
PyTorch's traces do (`inputs.values`, JSON with pg_name and ranks); other metadata and INVALID nodes only hand
on who waits for whom.

The file is not trusted: messages, nodes, dependencies, texts, sizes and times are bounded, and what is not of
this form is named by its message (the metadata is message 1).

Source: MLCommons Chakra, `schema/protobuf/et_def.proto`; ASTRA-sim 2, `Workload.cc`, `Ring.cc`.

Not modelled: remote memory, storage and checkpoint nodes (refused), tensors, recorded start times, gzipped
traces.

A scenario keeps of a trace what is read here, and nothing else. Traces taken from PyTorch carry schemas,
shapes and values of every operator: some kilobytes a node, of which less than a hundred bytes matter here.
`pared` leaves the rest out: names, inputs and outputs (but the process groups that a node lists), recorded
start times, and attributes that nobody reads. Messages stay as many, so what is wrong is named by the same
one.

`pared` checks nothing but where fields begin and end: what is no such file is handed on as it is, for the
reader to refuse. Where it counts bytes, it counts those that were kept.

Protobuf. A message is a row of fields; a field is a key (number, and how its value is written) and a value: a
varint, 4 or 8 bytes, or so many bytes as a varint says (texts, lists, messages). `fields` walks over them
without copying and refuses what is cut off, overlong, or written in a way that was given up long ago
(groups).

Source: protocol buffers, "Encoding" (protobuf.dev).
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from emu.base.errors import EmuError, FormatError
from emu.scenario.readers.foreign import LeftOut, limited

VARINT: Final = 0
FIXED_64: Final = 1
LENGTH: Final = 2
FIXED_32: Final = 5
_LONGEST_VARINT: Final = 10
_MASK: Final = (1 << 64) - 1


class WireError(EmuError):
    """Bytes that are no message. `at` counts bytes from the beginning of the file."""

    exit_status = 2

    def __init__(self, at: int, reason: str) -> None:
        super().__init__(at, reason)
        self.at = at
        self.reason = reason

    def __str__(self) -> str:
        return f"byte {self.at}: {self.reason}"


class Field(NamedTuple):
    """One field. `value` is the number; where bytes follow, their place, and `end` that after them."""

    number: int
    kind: int
    value: int
    end: int


def varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """The number that begins at `at`, without a sign, and where the next thing begins."""
    value = 0
    for place in range(_LONGEST_VARINT):
        if at + place >= end:
            raise WireError(at, "a number is cut off")
        byte = data[at + place]
        value |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return value & _MASK, at + place + 1
    raise WireError(at, f"a number is longer than {_LONGEST_VARINT} bytes")


def written(value: int) -> bytes:
    """A number without a sign, as a varint."""
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def fields(data: bytes, start: int, end: int) -> Iterator[Field]:
    """The fields of the message from `start` to `end`. WireError where they are none."""
    at = start
    while at < end:
        begun = at
        key, at = varint(data, at, end)
        number, kind = key >> 3, key & 7
        if number == 0:
            raise WireError(begun, "a field has no number")
        if kind == VARINT:
            value, at = varint(data, at, end)
            yield Field(number, kind, value, at)
            continue
        if kind == LENGTH:
            size, at = varint(data, at, end)
        elif kind in (FIXED_32, FIXED_64):
            size = 4 if kind == FIXED_32 else 8
        else:
            raise WireError(begun, f"a field is written in the unknown way {kind}")
        if size > end - at:
            raise WireError(begun, f"a field of {size} bytes is cut off after {end - at}")
        if kind == LENGTH:
            yield Field(number, kind, at, at + size)
        else:
            yield Field(number, kind, int.from_bytes(data[at : at + size], "little"), at + size)
        at += size


def numbers(data: bytes, field: Field) -> list[int]:
    """What a repeated number adds: one, or as many as are packed into the field."""
    if field.kind == VARINT:
        return [field.value]
    if field.kind != LENGTH:
        raise WireError(field.end, "a list of numbers is not written as one")
    found = []
    at = field.value
    while at < field.end:
        value, at = varint(data, at, field.end)
        found.append(value)
    return found


def text(data: bytes, field: Field, most: int) -> str:
    """A text of at most so many bytes."""
    if field.kind != LENGTH:
        raise WireError(field.end, "a text is not written as one")
    if field.end - field.value > most:
        raise WireError(field.value, f"a text of {field.end - field.value} bytes is longer than {most}")
    try:
        return data[field.value : field.end].decode("utf-8")
    except UnicodeDecodeError as error:
        raise WireError(field.value, "a text is not UTF-8") from error


def signed(value: int) -> int:
    """A varint of the types int32 and int64."""
    return value - (1 << 64) if value >> 63 else value


def zigzag(value: int) -> int:
    """A varint of the types sint32 and sint64."""
    return (value >> 1) ^ -(value & 1)


MOST_FILE_BYTES: Final = 64 * 2**20
"""Largest size of all ranks' files together, as they are."""
MOST_TRACE_BYTES: Final = 8 * 2**20
"""Largest part of them that is read (`emu.scenario.readers.chakra`)."""
MOST_NODES: Final = 2**17
MOST_DEPENDENCIES: Final = 2**20
"""Dependencies of one rank's nodes together, at most."""
MOST_ATTRIBUTES: Final = 256
MOST_BYTES: Final = 2**40
MOST_MICROS: Final = 10**9
MOST_OPERATIONS: Final = 10**18
MOST_RANKS: Final = 2**16
MOST_GROUPS: Final = 1024
_LONGEST_NAME: Final = 256
_LONGEST_GROUPS: Final = 2**18
_PS_PER_MICRO: Final = 10**6

SKIPPED: Final = "skipped"
COMPUTE: Final = "compute"
COLLECTIVE: Final = "collective"
SEND: Final = "send"
RECEIVE: Final = "receive"
METADATA: Final = 1
TYPES: Final = {0: SKIPPED, METADATA: SKIPPED, 4: COMPUTE, 5: SEND, 6: RECEIVE, 7: COLLECTIVE}
UNMODELLED: Final = {
    2: "MEM_LOAD_NODE",
    3: "MEM_STORE_NODE",
    8: "STORAGE_NODE",
    9: "BATCH_NODE",
    10: "CHECKPOINT_NODE",
}
COLLECTIVES: Final = {
    0: "all_reduce",
    1: "reduce",
    2: "all_gather",
    3: "gather",
    4: "scatter",
    5: "broadcast",
    6: "all_to_all",
    7: "reduce_scatter",
    8: "reduce_scatter",
    9: "barrier",
}
GROUP_NAME: Final = re.compile(r"[A-Za-z0-9_.:-]{0,64}")
_SIGNED: Final = (7, 9)
_UNSIGNED: Final = (11, 13, 19, 21, 23, 25, 27)
_ZIGZAG: Final = (15, 17)
_STRING: Final = 29


class ChakraError(FormatError):
    """A file that is no such trace; `line` counts messages."""

    unit = "message"


class Node(NamedTuple):
    """What a rank does at one time."""

    id: int
    message: int
    """Its place in the file, from 1."""
    what: str
    after: tuple[int, ...]
    """Ids of nodes that are to be over before."""
    duration_ps: int = 0
    operations: int = 0
    """FLOPs, where there is no duration."""
    cpu: bool = False
    op: str = ""
    size_bytes: int = 0
    group: str = ""
    priority: int = 0
    peer: int = -1
    """Peer of a send or receive; below zero for the other one of its group."""
    tag: int = 0
    root: int = -1
    """Root of a rooted collective, by rank; below zero where nothing is said."""
    called_by: tuple[int, ...] = ()
    """The ctrl_deps among `after`: in traces from PyTorch, the operator that called this one."""


class Trace(NamedTuple):
    """One rank's file. `groups` are the process groups that it lists: name to ranks, empty for all."""

    nodes: tuple[Node, ...]
    groups: dict[str, tuple[int, ...]]


Attributes = dict[str, int | str]


def read_chakra(data: bytes) -> Trace:
    """The trace in a file. Raises ChakraError."""
    nodes: list[Node] = []
    groups: dict[str, tuple[int, ...]] = {}
    seen: dict[int, int] = {}
    at, message, dependencies = 0, 0, 0
    while at < len(data):
        message += 1
        try:
            size, begin = varint(data, at, len(data))
            if size > len(data) - begin:
                left = len(data) - begin
                raise WireError(at, f"a message of {size} bytes is cut off after {left}")
            at = begin + size
            if message == 1:
                _metadata(data, begin, at)
                continue
            limited(ChakraError, message, len(nodes) + 1, MOST_NODES, "nodes of a rank")
            node = _node(data, begin, at, message, groups)
        except WireError as error:
            accepted = "GlobalMetadata, then Nodes of Chakra's et_def.proto, each after its length"
            raise ChakraError(message, str(error), accepted) from error
        dependencies += len(node.after)
        limited(ChakraError, message, dependencies, MOST_DEPENDENCIES, "dependencies of a rank")
        if node.id in seen:
            reason = f"node {node.id} is there already (message {seen[node.id]})"
            raise ChakraError(message, reason, "an id for each node")
        seen[node.id] = message
        nodes.append(node)
    if not nodes:
        raise ChakraError(max(message, 1), "ends before the first node", "GlobalMetadata, then Nodes")
    _check_posted(nodes)
    return Trace(tuple(_with_those_there(node, seen) for node in nodes), groups)


def _with_those_there(node: Node, seen: Mapping[int, int]) -> Node:
    """A node without the callers that Chakra's converter left out (the root, threads, operators without a
    kernel). Data of a node that is not there is refused.
    """
    left_out = [one for one in node.after if one not in seen]
    for one in left_out:
        if one not in node.called_by:
            raise ChakraError(node.message, f"waits for data of node {one}", "nodes of the same file")
    return node._replace(after=tuple(one for one in node.after if one in seen)) if left_out else node


def _check_posted(nodes: Sequence[Node]) -> None:
    """Refuse communication of a CPU alone.

    A linked trace has each communication twice: the call (`c10d::allreduce_`), which is skipped, and the
    kernel that it posted, which is carried out.
    """
    posted = [node for node in nodes if node.cpu and node.what == SKIPPED]
    if posted and not any(node.what in (SEND, RECEIVE, COLLECTIVE) for node in nodes):
        reason = "communication of a CPU, and no node of communication on a GPU in the trace"
        accepted = "is_cpu_op: false, or a trace that is linked with its kernels"
        raise ChakraError(posted[0].message, reason, accepted)


def _metadata(data: bytes, start: int, end: int) -> None:
    for field in fields(data, start, end):
        if field.kind != LENGTH or field.number not in (1, 2):
            raise WireError(start, "the first message is no GlobalMetadata")


def _node(data: bytes, start: int, end: int, message: int, groups: dict[str, tuple[int, ...]]) -> Node:
    number, kind, micros = 0, 0, 0
    data_of: list[int] = []
    called_by: list[int] = []
    attributes: Attributes = {}
    many = 0
    listed: Field | None = None
    for field in fields(data, start, end):
        if field.number in (4, 5):
            found = numbers(data, field)
            if field.number == 4:
                called_by += found
            else:
                data_of += found
        elif field.number in (8, 10):
            if field.kind != LENGTH:
                raise WireError(start, "an attribute is no message")
            if field.number == 8:
                listed = field
                continue
            many += 1
            limited(ChakraError, message, many, MOST_ATTRIBUTES, "attributes")
            _attribute(data, field, attributes)
        elif field.number in (1, 3, 7):
            if field.kind != VARINT:
                raise WireError(start, "an id, a type or a duration is no number")
            if field.number == 1:
                number = field.value
            elif field.number == 3:
                kind = field.value
            else:
                micros = field.value
    if kind in UNMODELLED:
        raise ChakraError(message, f"{UNMODELLED[kind]} is not modelled", "COMP_NODE and COMM_*_NODE")
    if kind not in TYPES:
        raise ChakraError(message, f"there is no node type {kind}", "those of Chakra's et_def.proto")
    if kind == METADATA and listed is not None:
        _process_groups(data, listed, message, groups)
    # Fields of et_def.proto: 4 control dependencies, 5 data dependencies, 8 the inputs, 10 attributes.
    after = tuple(sorted({*data_of, *called_by}))
    only_called_by = tuple(sorted({*called_by} - {*data_of}))
    node = Node(number, message, TYPES[kind], after, called_by=only_called_by)
    return _said(node, micros, attributes)


def _said(node: Node, micros: int, attributes: Attributes) -> Node:
    """The node with what its attributes say, each held against its bounds."""

    def of(name: str, most: int) -> int:
        value = attributes.get(name, 0)
        if isinstance(value, str) or not 0 <= value <= most:
            reason = f"{name} is {str(value)[:40]!r}" if isinstance(value, str) else f"{name} is {value}"
            raise ChakraError(node.message, reason, f"a whole number from 0 to {most}")
        return value

    if node.what == SKIPPED:
        return node
    cpu = bool(of("is_cpu_op", 1))
    if node.what == COMPUTE:
        if micros > MOST_MICROS:
            raise ChakraError(node.message, f"takes {micros} us", f"at most {MOST_MICROS}")
        operations = of("num_ops", MOST_OPERATIONS) if micros == 0 else 0
        return node._replace(duration_ps=micros * _PS_PER_MICRO, operations=operations, cpu=cpu)
    if cpu:
        return node._replace(what=SKIPPED, cpu=True)
    size = of("comm_size", MOST_BYTES)
    group = str(attributes.get("pg_name", ""))
    if GROUP_NAME.fullmatch(group) is None:
        reason = f"pg_name is {group[:40]!r}"
        raise ChakraError(node.message, reason, "up to 64 letters, digits, _ . : or -")
    if node.what == COLLECTIVE:
        kind = of("comm_type", 9)
        return node._replace(
            op=COLLECTIVES[kind],
            size_bytes=size,
            group=group,
            priority=of("comm_priority", 2**31),
            root=of("root_rank", MOST_RANKS) if "root_rank" in attributes else -1,
        )
    peer = "comm_dst" if node.what == SEND else "comm_src"
    if peer not in attributes and not group:
        accepted = "the peer's rank, or the pg_name of a group of two"
        raise ChakraError(node.message, f"a {node.what} without {peer}", accepted)
    known = of(peer, MOST_RANKS) if peer in attributes else -1
    return node._replace(size_bytes=size, peer=known, tag=of("comm_tag", 2**32), group=group)


def _attribute(data: bytes, whole: Field, attributes: Attributes) -> None:
    """Take one AttributeProto that is a number or a text."""
    name = ""
    value: int | str | None = None
    for field in fields(data, whole.value, whole.end):
        if field.number == 1:
            name = text(data, field, _LONGEST_NAME)
        elif field.number == _STRING:
            # Some texts are long and none of our business; what we read of is short.
            long = field.kind == LENGTH and field.end - field.value > _LONGEST_NAME
            value = None if long else text(data, field, _LONGEST_NAME)
        elif field.kind in (VARINT, FIXED_32, FIXED_64):
            if field.number in _SIGNED:
                value = signed(field.value)
            elif field.number in _ZIGZAG:
                value = zigzag(field.value)
            elif field.number in _UNSIGNED:
                value = field.value
    if value is not None:
        attributes[name] = value


def _process_groups(data: bytes, listed: Field, message: int, groups: dict[str, tuple[int, ...]]) -> None:
    """Take the process groups that a METADATA_NODE lists, if it does."""
    values = ""
    for field in fields(data, listed.value, listed.end):
        if field.number == 1:
            values = text(data, field, _LONGEST_GROUPS)
    first, last = values.find("[{"), values.rfind("}]")
    if "pg_name" not in values or not 0 <= first < last:
        return
    accepted = 'a list of {"pg_name": .., "ranks": [..]}'
    try:
        read = json.loads(values[first : last + 2])
    except (ValueError, RecursionError) as error:
        raise ChakraError(message, "process groups are no JSON", accepted) from error
    for one in read:
        name = one.get("pg_name") if isinstance(one, dict) else None
        ranks = one.get("ranks") if isinstance(one, dict) else None
        known = isinstance(name, str) and isinstance(ranks, list) and GROUP_NAME.fullmatch(name) is not None
        if not known or not all(type(rank) is int and 0 <= rank < MOST_RANKS for rank in ranks or ()):
            raise ChakraError(message, "a process group is not of the form that PyTorch writes", accepted)
        assert isinstance(name, str) and isinstance(ranks, list), one
        groups[name] = tuple(ranks)
        limited(ChakraError, message, len(groups), MOST_GROUPS, "process groups")


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
"""Fields of a node that are read: id, type, dependencies, duration."""
_UNREAD: Final = {2: "names of nodes", 6: "start times", 8: "inputs", 9: "outputs"}
"""What fields of a node are that are not read."""
_CALLED: Final = ("is_cpu_op", "comm_size", "pg_name")
_READ_OF: Final = {
    SKIPPED: (),
    COMPUTE: ("is_cpu_op", "num_ops"),
    COLLECTIVE: (*_CALLED, "comm_type", "comm_priority", "root_rank"),
    SEND: (*_CALLED, "comm_tag", "comm_dst"),
    RECEIVE: (*_CALLED, "comm_tag", "comm_src"),
}
"""Attributes that are read of a node, by what it is."""
_INPUTS: Final = 8
_ATTRIBUTE: Final = 10
MOST_FIELDS: Final = 2**22
"""Fields of nodes, at most; who has more, in however few bytes, is left as it is."""


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


def left_out(data: bytes) -> LeftOut:
    """What a valid trace says and is not read, by the names of fields and attributes."""
    found = LeftOut()
    at = messages = 0
    while at < len(data):
        size, begin = varint(data, at, len(data))
        at = begin + size
        messages += 1
        if messages == 1:
            if size:
                found.add("GlobalMetadata")
            continue
        _left_out_of_node(data, begin, at, found)
    return found


def _left_out_of_node(data: bytes, begin: int, end: int, found: LeftOut) -> None:
    every = list(fields(data, begin, end))
    kind = TYPES.get(next((one.value for one in every if one.number == 3), 0), SKIPPED)
    micros = next((one.value for one in every if one.number == 7), 0)
    names: dict[str, Field] = {}
    for field in every:
        if field.number == _ATTRIBUTE:
            first = next((one for one in fields(data, field.value, field.end) if one.number == 1), None)
            names["" if first is None else text(data, first, _LONGEST_NAME)] = field
        elif field.number == _INPUTS and _matters(data, field):
            continue
        elif field.number not in _KEPT:
            found.add(_UNREAD.get(field.number, f"field {field.number} of nodes"))
    read = _READ_OF[kind] if kind != COMPUTE or not micros else ("is_cpu_op",)
    cpu = names.get("is_cpu_op")
    if kind in (COLLECTIVE, SEND, RECEIVE) and cpu is not None and _number_in(data, cpu):
        read = ("is_cpu_op",)
    for name in names:
        if name not in read:
            found.add(f"attribute {name} of {kind} nodes")
    if micros and kind != COMPUTE:
        found.add(f"duration of {kind} nodes")


def _number_in(data: bytes, attribute: Field) -> int:
    """The number that an attribute has."""
    own: Attributes = {}
    _attribute(data, attribute, own)
    return next((one for one in own.values() if isinstance(one, int)), 0)


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
