"""Dumps of PyTorch's flight recorder: which collectives a rank called, when, and which of them are over.

PyTorch dumps a pickle (`TORCH_NCCL_DUMP_ON_TIMEOUT`, `_dump_nccl_trace`) or JSON. A pickle can call any
function when it is read as pickles are; here it is read by `literal`, which knows numbers, texts, lists,
dictionaries and tuples and refuses everything else by the name of its opcode.

A dump has calls and no kernels. The time between two calls on the host (`time_created_ns`) is computing; each
group has a stream. Nothing says where the script waited, so it waits for all calls at the end alone. A call
that was never over is called all the same: dumps of all ranks of a hang hang again, at the same call. Roots
are not written down: the first rank of the group is taken.

Source: PyTorch, `torch/csrc/distributed/c10d/FlightRecorder.hpp`; Python, `Lib/pickletools.py`.
"""

from __future__ import annotations

import math
import pickletools
import re
from collections.abc import Callable, Mapping
from pathlib import PurePath
from typing import Any, ClassVar, Final

from emu.base.errors import FormatError
from emu.base.outside import MOST_PARTS, json_of
from emu.doors.pytorch.kineto import CALLS, ELEMENTS, ROOTED, members, whole_of
from emu.doors.pytorch.record import Call, Kernel, Mark, Record, Step, Wait

MOST_BYTES: Final = 2**26
MOST_OPCODES: Final = 2_000_000
"""Of a pickle: some sixty to an entry, and PyTorch keeps 2,000 entries unless told otherwise."""
MOST_ENTRIES: Final = 10**6
_TRANSFER: Final = re.compile(r"(send|recv) (\d+)(?:->|<-)(\d+)")
_RANK: Final = re.compile(r"(\d+)(?:\.json)?$")
_MARK: Final = object()


class DumpError(FormatError):
    """A dump that cannot be read."""

    unit: ClassVar[str] = "entry"


def is_dump(data: bytes) -> bool:
    """Whether this looks like a dump of the flight recorder."""
    return data[:1] == b"\x80" or (data.lstrip()[:1] == b"{" and b'"entries"' in data)


def literal(data: bytes) -> Any:
    """What a pickle of plain values holds. DumpError at an opcode that makes anything else."""
    stack = _Stack()
    try:
        for number, (opcode, argument, at) in enumerate(pickletools.genops(data)):
            if number == MOST_OPCODES:
                raise DumpError(0, f"byte {at}: the pickle goes on", f"at most {MOST_OPCODES} opcodes")
            name = opcode.name
            if name == "STOP":
                return stack.values.pop()
            if name in _CONSTANTS:
                stack.values.append(_CONSTANTS[name]())
            elif name in _VALUES:
                stack.values.append(argument)
            elif name in _STEPS:
                _STEPS[name](stack, argument)
            elif name not in ("PROTO", "FRAME"):
                raise DumpError(
                    0, f"byte {at}: the pickle wants {name}", "numbers, texts, lists and dictionaries"
                )
    except (ValueError, IndexError, KeyError, TypeError, AttributeError) as error:
        raise DumpError(0, f"is no whole pickle: {error}", "what PyTorch's flight recorder dumps") from error
    raise DumpError(0, "is no whole pickle: it does not end", "what PyTorch's flight recorder dumps")


class _Stack:
    """What a pickle has made so far."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self._kept: dict[int, Any] = {}

    def since_mark(self) -> list[Any]:
        """Take what lies above the last mark, and the mark."""
        at = len(self.values) - 1
        while self.values[at] is not _MARK:
            at -= 1
        found = self.values[at + 1 :]
        del self.values[at:]
        return found

    def keep(self, place: int | None) -> None:
        """Remember the topmost value."""
        self._kept[len(self._kept) if place is None else place] = self.values[-1]

    def fetch(self, place: int) -> None:
        """Put a remembered value on top."""
        self.values.append(self._kept[place])

    def append(self, several: list[Any]) -> None:
        """Append to the list on top."""
        self.values[-1].extend(several)

    def set_items(self, several: list[Any]) -> None:
        """Put keys and values, in turns, into the dictionary on top."""
        self.values[-1].update(zip(several[::2], several[1::2], strict=True))

    def take(self, count: int) -> list[Any]:
        """Take the topmost values."""
        if len(self.values) < count:
            raise ValueError("too few values")
        found = self.values[len(self.values) - count :]
        del self.values[len(self.values) - count :]
        return found


_STEPS: Final[Mapping[str, Callable[[_Stack, Any], None]]] = {
    "MARK": lambda stack, _: stack.values.append(_MARK),
    "BINPUT": _Stack.keep,
    "LONG_BINPUT": _Stack.keep,
    "PUT": _Stack.keep,
    "MEMOIZE": _Stack.keep,
    "BINGET": _Stack.fetch,
    "LONG_BINGET": _Stack.fetch,
    "GET": _Stack.fetch,
    "APPEND": lambda stack, _: stack.append(stack.take(1)),
    "APPENDS": lambda stack, _: stack.append(stack.since_mark()),
    "SETITEM": lambda stack, _: stack.set_items(stack.take(2)),
    "SETITEMS": lambda stack, _: stack.set_items(stack.since_mark()),
    "TUPLE": lambda stack, _: stack.values.append(tuple(stack.since_mark())),
    "TUPLE1": lambda stack, _: stack.values.append(tuple(stack.take(1))),
    "TUPLE2": lambda stack, _: stack.values.append(tuple(stack.take(2))),
    "TUPLE3": lambda stack, _: stack.values.append(tuple(stack.take(3))),
    "LIST": lambda stack, _: stack.values.append(stack.since_mark()),
    "DICT": lambda stack, _: _dictionary(stack),
}


def _dictionary(stack: _Stack) -> None:
    several = stack.since_mark()
    stack.values.append({})
    stack.set_items(several)


_CONSTANTS: Final[Mapping[str, Any]] = {
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
    "EMPTY_LIST": list,
    "EMPTY_DICT": dict,
    "EMPTY_TUPLE": tuple,
}
_VALUES: Final = frozenset(
    [
        "BININT", "BININT1", "BININT2", "INT", "LONG", "LONG1", "LONG4", "BINFLOAT", "FLOAT", "BINUNICODE",
        "SHORT_BINUNICODE", "BINUNICODE8", "UNICODE", "SHORT_BINSTRING", "BINSTRING",
    ]
)  # fmt: skip


def dump_of(data: bytes, file: str) -> Record:
    """The calls of one rank. Raises DumpError."""
    if len(data) > MOST_BYTES:
        raise DumpError(0, "is too large", f"at most {MOST_BYTES} bytes")
    if data[:1] == b"\x80":
        whole = literal(data)
    else:
        try:
            whole = json_of(data, 4 * MOST_PARTS)
        except ValueError as error:
            raise DumpError(0, f"is no JSON: {error}", "what PyTorch's flight recorder dumps") from error
    entries = whole.get("entries") if isinstance(whole, dict) else None
    if not isinstance(entries, list) or not entries:
        raise DumpError(0, "has no entries", "what PyTorch's flight recorder dumps")
    if len(entries) > MOST_ENTRIES:
        raise DumpError(0, "has too many entries", f"at most {MOST_ENTRIES}")
    record = Record(_rank_of(whole, file), 1, file, "")
    configured = whole.get("pg_config")
    for name, one in configured.items() if isinstance(configured, dict) else ():
        if isinstance(one, dict):
            record.groups[str(name)] = members(one.get("ranks"), 0)
            record.descriptions[str(name)] = str(one.get("desc") or "")
    record.world = max([1, *(1 + max(ranks) for ranks in record.groups.values() if ranks)])
    last_ns: int | None = None
    streams: dict[str, int] = {}
    events = 0
    for number, entry in enumerate(entries, start=1):
        if not isinstance(entry, dict):
            raise DumpError(number, "is no entry", "a dictionary")
        call = _call(entry, number, record)
        if call is None:
            continue
        created_ns = whole_of(entry.get("time_created_ns", 0))
        if last_ns is not None and created_ns > last_ns:
            record.operations.append(Kernel(0, "host", "", (), 0, 0, us=(created_ns - last_ns) / 1e3))
        last_ns = created_ns
        stream = streams.setdefault(call.group, len(streams) + 1)
        events += 1
        record.operations += [
            Mark(0, events),
            Wait(stream, events),
            Call(stream, call.op, call.group, call.bytes, call.dtype, number, call.peer),
        ]
    for stream in streams.values():
        events += 1
        record.operations += [Mark(stream, events), Wait(0, events)]
    record.operations.append(Step())
    return record


def _rank_of(whole: Mapping[str, Any], file: str) -> int:
    """Dumps do not say whose they are, but by the end of the file's name."""
    found = _RANK.search(PurePath(file).name)
    return int(found[1]) if found is not None and len(found[1]) < 7 else whole_of(whole.get("rank", 0))


def _call(entry: Mapping[str, Any], number: int, record: Record) -> Call | None:
    """What an entry says was called; None for what brackets others."""
    name = str(entry.get("profiling_name", "")).removeprefix("nccl:")
    group = entry.get("process_group")
    group = str(group[0]) if isinstance(group, list | tuple) and group else "0"
    ranks = record.groups.get(group)
    if not ranks:
        raise DumpError(
            number, f"group {group!r} has no ranks in pg_config", "dumps of PyTorch 2.4 and later"
        )
    if name in ("coalesced", "all_reduce_barrier"):
        return None if name == "coalesced" else Call(0, "barrier", group, 0, "", number)
    transfer = _TRANSFER.search(name)
    op = transfer[1] if transfer else CALLS.get(name)
    if op is None:
        raise DumpError(number, f"calls {name[:40]!r}", ", ".join(sorted(CALLS)))
    sent, received = (_bytes(entry, end) for end in ("input", "output"))
    size = {"all_gather": received, "recv": received, "gather": received}.get(op, sent) or sent or received
    dtypes = entry.get("input_dtypes") or entry.get("output_dtypes")
    dtype = ELEMENTS.get(str(dtypes[0]) if isinstance(dtypes, list) and dtypes else "", ("uint8", 1))[0]
    peer = -1
    if transfer:
        mine, other = int(transfer[2]), int(transfer[3])
        if not (mine < len(ranks) and other < len(ranks)):
            raise DumpError(number, f"{name[:40]!r} in a group of {len(ranks)}", "places of the group")
        peer = ranks[other]
    elif op in ROOTED:
        peer = ranks[0]
    return Call(0, op, group, size, dtype, number, peer)


def _bytes(entry: Mapping[str, Any], end: str) -> int:
    sizes, dtypes = entry.get(f"{end}_sizes"), entry.get(f"{end}_dtypes")
    if not isinstance(sizes, list | tuple) or not isinstance(dtypes, list | tuple):
        return 0
    total = 0
    for at, size in enumerate(sizes):
        element = ELEMENTS.get(str(dtypes[min(at, len(dtypes) - 1)]) if dtypes else "", ("", 1))[1]
        total += math.prod(whole_of(n) for n in size) * element if isinstance(size, list | tuple) else 0
    return total
