"""Traces of `torch.profiler` (Kineto): what a rank did on its GPU, with the times that its kernels took.

A trace is JSON in the format of Chrome's traces, plain or gzipped. Read are kernels and copies with their
streams, the calls of the CUDA runtime that launched them (`correlation`), what PyTorch says of NCCL's
kernels (`Collective name`, `In msg nelems`, `Process Group Ranks`), `ProfilerStep#N`, and `distributedInfo`.
The result is a `Record`, as a played script has, of the last step that was recorded whole.

Order. Operations are in the order in which the host launched them; a stream does its own one after the other.
Which stream waited for which is written down only in part: with `enable_cuda_sync_events` the waiting stream,
on some drivers the event too. Elsewhere the wait is that of the stream that the thread launches to next. It
waits for the stream that the thread launched to before, if that is another one (c10d lets the stream of
collectives wait for the current one, then launches); else for what ended last on another stream before the
launched operation began. An operation that was launched, did not begin when its stream was free, and began
within `REACTION_NS` of the end of a collective on another stream, waited for that one.

Times. Kernels and copies keep theirs. Time in which the stream that computes had nothing to do because the
host had launched nothing is kept, and so is that by which an operation of another stream was launched after
all that it waits for. Time in which a stream waited for another one is not, nor that in which a kernel found
no SM free.

The file is not trusted: its size is bounded, and an event of another form is named by its number.

Source: PyTorch, `torch/csrc/profiler` and `torch/csrc/distributed/c10d/ParamCommsUtils.hpp`; Kineto,
`libkineto/src/output_json.cpp`.
"""

from __future__ import annotations

import ast
import json
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median
from typing import Any, ClassVar, Final, NamedTuple

from emu.base.errors import FormatError
from emu.base.outside import GZIP, MOST_PARTS, parts_in, unpacking
from emu.doors.pytorch.record import Call, Kernel, Mark, Operation, Record, Step, Wait

MOST_BYTES: Final = 2**28
"""Largest trace, unpacked."""
LEAST_PART: Final = 6
"""Bytes of a value of a trace at least, on the average; 11 in those of PyTorch 2."""
MOST_WITHOUT_KERNEL: Final = 4 << 20
"""Bytes of a file without a kernel that is still parsed, some 100 MB then, so that its first wrong event is
named; of a larger one only the lack is."""
REACTION_NS: Final = 20_000
"""How soon a kernel begins after what it waited for. Measured between two streams of an H200: 1 to 3 us."""
ON_GPU: Final = {"kernel", "gpu_memcpy", "gpu_memset", "Kernel", "Memcpy", "Memset"}
ON_HOST: Final = {"cuda_runtime", "cuda_driver", "Runtime"}
STREAM_WAITS: Final = {"cudaStreamWaitEvent", "hipStreamWaitEvent", "cuStreamWaitEvent"}
NCCL: Final = re.compile(r"^(nccl|rccl)(Dev)?Kernel|^nccl[A-Z]")
CALLS: Final = {
    "allreduce": "all_reduce",
    "all_reduce": "all_reduce",
    "allreduce_coalesced": "all_reduce",
    "_allgather_base": "all_gather",
    "_all_gather_base": "all_gather",
    "allgather": "all_gather",
    "all_gather": "all_gather",
    "allgather_into_tensor_coalesced": "all_gather",
    "all_gather_into_tensor_coalesced": "all_gather",
    "_reduce_scatter_base": "reduce_scatter",
    "reduce_scatter": "reduce_scatter",
    "reduce_scatter_tensor_coalesced": "reduce_scatter",
    "all_to_all": "all_to_all",
    "alltoall_base": "all_to_all",
    "all_to_allv": "all_to_all",
    "broadcast": "broadcast",
    "_broadcast_oop": "broadcast",
    "reduce": "reduce",
    "_reduce_oop": "reduce",
    "gather": "gather",
    "scatter": "scatter",
    "barrier": "barrier",
    "send": "send",
    "recv": "recv",
}
"""What PyTorch calls a collective, by what nccl-tests calls it."""
ROOTED: Final = ("broadcast", "reduce", "gather", "scatter")
ELEMENTS: Final = {
    "BFloat16": ("bfloat16", 2),
    "Half": ("float16", 2),
    "Float": ("float32", 4),
    "Double": ("float64", 8),
    "Long": ("int64", 8),
    "Int": ("int32", 4),
    "Short": ("int16", 2),
    "Byte": ("uint8", 1),
    "Char": ("int8", 1),
    "Bool": ("bool", 1),
    "Float8_e4m3fn": ("float8_e4m3fn", 1),
    "Float8_e5m2": ("float8_e5m2", 1),
}
"""Type and bytes of an element, by its name in a trace."""
TYPES: Final = {"float": "float32", "double": "float64", "c10::BFloat16": "bfloat16", "c10::Half": "float16"}
"""Floating types of operators' inputs, by their names in C++."""
_STEP: Final = re.compile(r"^ProfilerStep#\d+$")
_NUMBER: Final = re.compile(r"\d+")
_ATTENTION: Final = {
    "scaled_dot_product_attention": "scaled_dot_product_attention",
    "_scaled_dot_product_flash_attention_backward": "scaled_dot_product_attention_backward",
    "_scaled_dot_product_cudnn_attention_backward": "scaled_dot_product_attention_backward",
    "_scaled_dot_product_efficient_attention_backward": "scaled_dot_product_attention_backward",
}


class KinetoError(FormatError):
    """A trace that cannot be read."""

    unit: ClassVar[str] = "event"


class GpuOperation(NamedTuple):
    """A kernel, a copy or a memset, on the clock of the trace."""

    name: str
    stream: int
    begin_ns: int
    duration_ns: int
    launched_ns: int
    """When the host called for it."""
    thread: int
    arguments: Mapping[str, Any]
    number: int
    """Number of its event."""

    @property
    def end_ns(self) -> int:
        """When it was over."""
        return self.begin_ns + self.duration_ns


class HostWait(NamedTuple):
    """A stream waits for an event from here on."""

    at_ns: int
    thread: int
    stream: int | None
    """Which stream waits; None: it is not written down."""
    awaited: tuple[int, int] | None
    """The stream of the event, and when the host recorded it."""


@dataclass
class Trace:
    """What is read of one rank's trace."""

    rank: int
    world: int
    torch: str = ""
    operations: list[GpuOperation] = field(default_factory=list)
    """In the order in which they were launched."""
    waits: list[HostWait] = field(default_factory=list)
    steps: list[tuple[int, int]] = field(default_factory=list)
    """Begin and end of each on the host."""
    groups: dict[str, tuple[str, list[int]]] = field(default_factory=dict)
    """Description and members of the process groups, by name."""
    host: list[dict[str, Any]] = field(default_factory=list)
    """Operators and annotations of the host, as they stand in the trace."""


def unpacked(data: bytes) -> bytes:
    """What a plain or gzipped file holds. KinetoError if it is too large, no gzip, or plainly no trace: that
    is found before any of it is kept."""
    size = parts = 0
    kernels = False
    tail = b""
    try:
        for chunk in unpacking(data):
            size += len(chunk)
            parts += parts_in(chunk)
            kernels = kernels or b"kernel" in (tail + chunk).lower()
            tail = chunk[-8:]
            if size > MOST_BYTES:
                raise KinetoError(0, "is too large", f"at most {MOST_BYTES} bytes, unpacked")
    except ValueError as error:
        raise KinetoError(0, str(error), "a whole gzip file") from error
    if parts > size // LEAST_PART + MOST_PARTS // 10:
        raise KinetoError(0, f"has {parts} values in {size} bytes", "what torch.profiler exports")
    if not kernels and size > MOST_WITHOUT_KERNEL:
        raise KinetoError(0, "no kernel in it", "a trace with ProfilerActivity.CUDA")
    return b"".join(unpacking(data))


def is_trace(data: bytes) -> bool:
    """Whether this looks like a trace of a profiler (the first bytes are enough)."""
    if data.startswith(GZIP):
        try:
            data = zlib.decompressobj(wbits=31).decompress(data, 4096)
        except zlib.error:
            return False
    head = data[:4096].lstrip()
    return head.startswith(b"{") and (b'"traceEvents"' in data or b'"schemaVersion"' in head)


def read_trace(data: bytes) -> Trace:
    """Read a trace. Raises KinetoError."""
    try:
        whole = json.loads(unpacked(data))
    except (ValueError, RecursionError) as error:
        raise KinetoError(0, f"is no JSON: {error}", "what torch.profiler exports") from error
    events = whole.get("traceEvents") if isinstance(whole, dict) else None
    if not isinstance(events, list):
        raise KinetoError(0, "has no traceEvents", "what torch.profiler exports")
    info = whole.get("distributedInfo")
    info = info if isinstance(info, dict) else {}
    trace = Trace(whole_of(info.get("rank", 0)), whole_of(info.get("world_size", 0)))
    for one in info.get("pg_config") or ():
        if isinstance(one, dict):
            ranks = members(one.get("ranks"), whole_of(one.get("pg_size", 0)))
            if ranks:
                trace.groups[str(one.get("pg_name"))] = (str(one.get("pg_desc") or ""), ranks)
    sorted_out = _Events(trace)
    for number, event in enumerate(events):
        sorted_out.take(number, event)
    sorted_out.finish()
    return trace


class _Events:
    """The events of a trace, sorted out: what is on the GPU is put together with who launched it."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._launches: dict[int, tuple[int, int]] = {}
        """By correlation: when, and by which thread."""
        self._records: dict[int, int] = {}
        """Recordings of events among these."""
        self._waits: list[int] = []
        """Those among these that let a stream wait."""
        self._on_gpu: list[tuple[int, dict[str, Any]]] = []
        self._synchronised: list[dict[str, Any]] = []

    def take(self, number: int, event: Any) -> None:
        """Sort one in."""
        if not isinstance(event, dict):
            raise KinetoError(number, "is no event", "events of Chrome's trace format")
        kind, name = event.get("cat"), str(event.get("name", ""))
        if event.get("ph") != "X" or kind is None:
            return
        arguments = event.get("args")
        event["args"] = arguments = arguments if isinstance(arguments, dict) else {}
        if kind in ON_GPU:
            self._on_gpu.append((number, event))
        elif kind in ON_HOST:
            self._called(number, name, event)
        elif kind == "cuda_sync" and arguments.get("cuda_sync_kind") == "Stream Wait Event":
            self._synchronised.append(arguments)
        elif kind in ("cpu_op", "user_annotation", "Operator"):
            self._trace.host.append(event)
            if kind == "user_annotation" and _STEP.match(name):
                begin_ns = _ns(event, "ts", number)
                self._trace.steps.append((begin_ns, begin_ns + _ns(event, "dur", number)))

    def _called(self, number: int, name: str, event: dict[str, Any]) -> None:
        correlation = event["args"].get("correlation")
        if isinstance(correlation, int):
            at_ns = _ns(event, "ts", number)
            self._launches[correlation] = (at_ns, whole_of(event.get("tid", 0)))
            if name in STREAM_WAITS:
                self._waits.append(correlation)
            elif "EventRecord" in name:
                self._records[correlation] = at_ns

    def finish(self) -> None:
        """Put operations and waits in the order in which the host called for them."""
        trace, launches = self._trace, self._launches
        trace.steps.sort()
        for number, event in self._on_gpu:
            arguments = event["args"]
            stream = arguments.get("stream", event.get("tid"))
            if not isinstance(stream, int):
                raise KinetoError(number, "a kernel has no stream", "args.stream, a whole number")
            begin_ns = _ns(event, "ts", number)
            launched_ns, thread = launches.get(arguments.get("correlation", -1), (begin_ns, -1))
            name, launched_ns = str(event.get("name", "")), min(launched_ns, begin_ns)
            duration_ns = _ns(event, "dur", number)
            trace.operations.append(
                GpuOperation(name, stream, begin_ns, duration_ns, launched_ns, thread, arguments, number)
            )
        trace.operations.sort(key=lambda one: (one.launched_ns, one.begin_ns, one.number))
        said: set[int] = set()
        for arguments in self._synchronised:
            correlation = arguments.get("correlation", -1)
            if correlation in launches:
                recorded = self._records.get(arguments.get("wait_on_cuda_event_record_corr_id", -1))
                other = arguments.get("wait_on_stream", -1)
                exact = (whole_of(other), recorded) if recorded is not None and other != -1 else None
                waiting = whole_of(arguments.get("stream", 0))
                trace.waits.append(HostWait(*launches[correlation], waiting, exact))
                said.add(correlation)
        trace.waits += [HostWait(*launches[one], None, None) for one in self._waits if one not in said]
        trace.waits.sort(key=lambda one: one.at_ns)


def record_of(trace: Trace, script: str) -> Record:
    """The last step that was recorded, with measured times. Raises KinetoError."""
    operations = _of_a_step(trace)
    if not operations:
        raise KinetoError(0, "no kernel in it", "a trace with ProfilerActivity.CUDA")
    calls = _Calls(trace)
    main = _busiest(operations)
    record = Record(trace.rank, trace.world, script, trace.torch, groups=calls.groups)
    record.descriptions = calls.descriptions
    waits = iter(trace.waits)
    pending: list[HostWait] = []
    wait = next(waits, None)
    done: dict[int, list[GpuOperation]] = {}
    """Operations of the step so far, by stream."""
    last_stream: dict[int, int] = {}
    marks: dict[int, int] = {}
    """By the event number of an operation: the mark behind it."""
    idle_ns = 0
    found: list[list[Operation]] = []
    places: dict[int, int] = {}
    for one in operations:
        while wait is not None and wait.at_ns <= one.launched_ns:
            pending.append(wait)
            wait = next(waits, None)
        mine = [each for each in pending if each.stream == one.stream]
        mine += [each for each in pending if each.stream is None and each.thread == one.thread]
        pending = [each for each in pending if each not in mine]
        awaited = _awaited(one, mine, done, last_stream.get(one.thread))
        before = done.get(one.stream)
        free_ns = before[-1].end_ns if before else None
        late = _late(one, done, free_ns)
        if late is not None and late not in awaited:
            awaited.append(late)
        here: list[Operation] = []
        for other in awaited:
            if other.number not in marks:
                marks[other.number] = len(marks) + 1
                found[places[other.number]].append(Mark(other.stream, marks[other.number]))
            here.append(Wait(one.stream, marks[other.number]))
        ends_ns = [other.end_ns for other in awaited] + ([] if free_ns is None else [free_ns])
        unlaunched_ns = one.begin_ns - max(ends_ns, default=one.begin_ns)
        if unlaunched_ns > 0 and (one.stream == main or one.launched_ns > max(ends_ns)):
            idle_ns += unlaunched_ns * (one.stream == main)
            here.append(_lasting("host", one.stream, unlaunched_ns))
        call = calls.of(one)
        here.append(_lasting(one.name[:64], one.stream, one.duration_ns) if call is None else call)
        places[one.number] = len(found)
        found.append(here)
        done.setdefault(one.stream, []).append(one)
        last_stream[one.thread] = one.stream
    # streams are renumbered: 0 computes
    record.operations = [_on_stream(one, main) for here in found for one in here]
    record.operations.append(Step())
    if idle_ns:
        record.notes.append(f"{idle_ns / 1e6:.3f} ms a step in which the GPU waited for launches are kept")
    if not all(one.awaited for one in trace.waits):
        record.notes.append(
            "the trace does not say which event a stream waited for: it is told by order and times"
        )
    record.world = max([trace.world, 1, *(1 + max(ranks) for ranks in calls.groups.values())])
    return record


def kernel_rows(trace: Trace) -> Iterator[tuple[str, str, str, float]]:
    """The median time of the kernels of each operator call, as a table of kernels has them: op, dtype, shapes
    and microseconds. Needs `record_shapes=True`; operators without shapes are left out."""
    times: dict[int, int] = {}
    for one in trace.operations:
        external = one.arguments.get("External id")
        if isinstance(external, int):
            times[external] = times.get(external, 0) + one.duration_ns
    found: dict[tuple[str, str, str], list[int]] = {}
    for thread in _by_thread(trace.host).values():
        stack: list[tuple[int, str, str, str, list[int]]] = []

        def close(until_ns: int, stack: list[tuple[int, str, str, str, list[int]]] = stack) -> None:
            while stack and stack[-1][0] <= until_ns:
                _, op, dtype, shapes, total = stack.pop()
                if total[0] and shapes:
                    found.setdefault((op, dtype, shapes), []).append(total[0])

        for event in thread:
            begin_ns = _ns(event, "ts", 0)
            close(begin_ns)
            name = str(event.get("name", ""))
            entry = (begin_ns + _ns(event, "dur", 0), *_operator(name, event["args"]), [0])
            spent = times.get(event["args"].get("External id", -1), 0)
            if event.get("cat") != "user_annotation" and name.startswith("aten::"):
                stack.append(entry)
            if spent and event.get("cat") != "user_annotation":
                for _, _, _, _, total in stack:
                    total[0] += spent
        close(2**63)
    for (op, dtype, shapes), spent_ns in sorted(found.items()):
        yield op, dtype, shapes, median(spent_ns) / 1e3


def _operator(name: str, arguments: Mapping[str, Any]) -> tuple[str, str, str]:
    """Op, dtype and shapes of an operator, as a record has them; no shapes: not all are written down."""
    op = name.removeprefix("aten::")
    kinds, sizes = arguments.get("Input type"), arguments.get("Input Dims")
    if not isinstance(kinds, list) or not isinstance(sizes, list) or "TensorList" in kinds:
        return op, "", ""
    shapes = [
        size
        for kind, size in zip(kinds, sizes, strict=False)
        if size and kind not in ("", "Scalar") and all(isinstance(n, int) and n > 0 for n in size)
    ]
    dtype = next((TYPES[kind] for kind in kinds if kind in TYPES), "int64")
    if op in _ATTENTION:
        shapes = shapes[:3] if not op.endswith("_backward") else shapes[1:4]
        values = arguments.get("Concrete Inputs")
        causal = isinstance(values, list) and "True" in values
        op = _ATTENTION[op] + ("(causal)" if causal else "")
    return op, dtype, ";".join("x".join(map(str, shape)) for shape in shapes)


def _by_thread(host: Iterable[dict[str, Any]]) -> dict[int, list[dict[str, Any]]]:
    """Events of each thread, the enclosing ones first."""
    threads: dict[int, list[dict[str, Any]]] = {}
    for event in host:
        threads.setdefault(whole_of(event.get("tid", 0)), []).append(event)
    for events in threads.values():
        events.sort(key=lambda event: (_ns(event, "ts", 0), -_ns(event, "dur", 0)))
    return threads


def _of_a_step(trace: Trace) -> list[GpuOperation]:
    """What the last step launched, or, of a trace without steps, all."""
    for begin_ns, end_ns in reversed(trace.steps):
        inside = [one for one in trace.operations if begin_ns <= one.launched_ns < end_ns]
        if inside:
            return inside
    return trace.operations


def _busiest(operations: Sequence[GpuOperation]) -> int:
    """The stream that computes most."""
    spent: dict[int, int] = {}
    for one in operations:
        if not NCCL.search(one.name):
            spent[one.stream] = spent.get(one.stream, 0) + one.duration_ns
    return max(spent, key=lambda stream: (spent[stream], -stream), default=operations[0].stream)


def _awaited(
    one: GpuOperation,
    waits: Sequence[HostWait],
    done: Mapping[int, list[GpuOperation]],
    last_stream: int | None,
) -> list[GpuOperation]:
    """What an operation waited for: the last of each stream that its waits are for."""
    chosen: dict[int, GpuOperation] = {}
    others: list[GpuOperation] = []
    for stream, operations in done.items():
        ended = [other for other in operations if other.end_ns <= one.begin_ns + REACTION_NS // 10]
        if stream != one.stream and ended:
            others.append(ended[-1])
    others.sort(key=lambda other: -other.end_ns)
    for wait in waits:
        if wait.awaited is not None:
            stream, recorded_ns = wait.awaited
            before = [other for other in done.get(stream, ()) if other.launched_ns <= recorded_ns]
            if before and stream != one.stream:
                chosen[stream] = max(before[-1], chosen.get(stream, before[-1]), key=lambda a: a.launched_ns)
        elif last_stream is not None and last_stream != one.stream and last_stream not in chosen:
            before = [other for other in done.get(last_stream, ()) if other.launched_ns <= wait.at_ns]
            if before:
                chosen[last_stream] = before[-1]
        else:
            left = [
                other for other in others if other.stream not in chosen and other.launched_ns <= wait.at_ns
            ]
            if left:
                chosen[left[0].stream] = left[0]
    return [chosen[stream] for stream in sorted(chosen)]


def _late(
    one: GpuOperation, done: Mapping[int, list[GpuOperation]], free_ns: int | None
) -> GpuOperation | None:
    """The collective of another stream at whose end an operation began that could have begun before."""
    ready_ns = max(one.launched_ns, free_ns or 0)
    for stream, operations in done.items():
        if stream == one.stream:
            continue
        for other in operations[::-1]:
            if other.end_ns <= ready_ns:
                break
            if NCCL.search(other.name) and other.end_ns <= one.begin_ns <= other.end_ns + REACTION_NS:
                return other
    return None


def _lasting(name: str, stream: int, duration_ns: int) -> Kernel:
    return Kernel(stream, name, "", (), 0, 0, us=duration_ns / 1e3)


def _on_stream(one: Operation, main: int) -> Operation:
    """The same on streams of which 0 computes: `main` and 0 change places."""
    if isinstance(one, Step):
        return one
    number = {main: 0, 0: main}.get(one.stream, one.stream)
    if isinstance(one, Kernel):
        return Kernel(number, one.op, one.dtype, one.shapes, one.flops, one.bytes, us=one.us)
    if isinstance(one, Call):
        return Call(number, one.op, one.group, one.bytes, one.dtype, one.number, one.peer, one.counts)
    return type(one)(number, one.event)


class _Calls:
    """What NCCL's kernels are, and the groups that they name."""

    def __init__(self, trace: Trace) -> None:
        self.groups = {name: ranks for name, (_, ranks) in trace.groups.items()}
        self.descriptions = {name: described for name, (described, _) in trace.groups.items()}
        self._world = trace.world
        self._count = 0
        self._said = {
            event["args"]["External id"]: event["args"]
            for event in trace.host
            if "Collective name" in event["args"] and isinstance(event["args"].get("External id"), int)
        }
        self._annotated = {
            thread: [one for one in events if str(one.get("name", "")).startswith("nccl:")]
            for thread, events in _by_thread(trace.host).items()
        }

    def of(self, one: GpuOperation) -> Call | None:
        """The call that an operation on the GPU is; None: it is none."""
        if not NCCL.search(one.name):
            return None
        said = one.arguments
        if "Collective name" not in said:
            said = self._said.get(said.get("External id", -1), {})
        if "Collective name" not in said:
            said = self._by_annotation(one)
        name = str(said.get("Collective name", ""))
        op = CALLS.get(name)
        if op is None:
            what = f"call {name!r}" if name else f"kernel {one.name[:40]!r} whose size is not written down"
            raise KinetoError(
                one.number, f"is a {what}", "traces of PyTorch 2.3 and later, or with record_shapes=True"
            )
        dtype, element = ELEMENTS.get(str(said.get("dtype")), ("uint8", 1))
        sent, received = (whole_of(said.get(key, 0)) * element for key in ("In msg nelems", "Out msg nelems"))
        size = (
            {"all_gather": received, "recv": received, "gather": received}.get(op, sent) or sent or received
        )
        group = self._group(said, one)
        counts = _numbers(said.get("In split size")) if op == "all_to_all" else []
        if len(set(counts)) < 2 or len(counts) != len(self.groups[group]):
            counts = []
        self._count += 1
        peer = -1
        if op in ROOTED:
            root = said.get("Root rank")
            peer = self.groups[group][0] if not isinstance(root, int) or root < 0 else root
        elif op in ("send", "recv"):
            peer = self._peer(said, op, one)
        return Call(one.stream, op, group, size, dtype, self._count, peer, tuple(counts))

    def _peer(self, said: Mapping[str, Any], op: str, one: GpuOperation) -> int:
        other = said.get("Dst Rank" if op == "send" else "Src Rank")
        if not isinstance(other, int) or other < 0:
            raise KinetoError(one.number, f"a {op} does not say its peer", "traces of PyTorch 2.6 and later")
        return other

    def _group(self, said: Mapping[str, Any], one: GpuOperation) -> str:
        name = str(said.get("Process Group Name", "0"))
        if name not in self.groups:
            size = whole_of(said.get("Group size", 0)) or self._world
            ranks = members(said.get("Process Group Ranks"), size)
            if not ranks:
                if size != self._world or not size:
                    raise KinetoError(
                        one.number, f"group {name!r} does not say its members", "Process Group Ranks"
                    )
                ranks = list(range(size))
            self.groups[name] = ranks
            self.descriptions[name] = str(said.get("Process Group Description", ""))
        return name

    def _by_annotation(self, one: GpuOperation) -> dict[str, Any]:
        """The shapes of `nccl:all_reduce` around the launch, in the group of all ranks: older traces have no
        more."""
        for event in reversed(self._annotated.get(one.thread, [])):
            begin_ns = _ns(event, "ts", 0)
            if begin_ns <= one.launched_ns <= begin_ns + _ns(event, "dur", 0):
                kinds, sizes = event["args"].get("Input type"), event["args"].get("Input Dims")
                if not isinstance(sizes, list) or not sizes or not isinstance(kinds, list):
                    break
                count = 0
                for size in sizes:
                    product = 1
                    for n in size if isinstance(size, list) else ():
                        product *= whole_of(n)
                    count += product
                name = str(event["name"]).removeprefix("nccl:")
                dtype = TYPES.get(str(kinds[0]), "uint8")
                short = next((key for key, (full, _) in ELEMENTS.items() if full == dtype), "Byte")
                wide = count * self._world if CALLS.get(name) == "all_gather" else count
                return {
                    "Collective name": name, "dtype": short, "In msg nelems": count, "Out msg nelems": wide,
                    "Process Group Name": "0", "Group size": self._world,
                }  # fmt: skip
        return {}


def members(ranks: Any, size: int) -> list[int]:
    """Ranks of a group, written as a list or as the text of one, of which a long one is cut off: then they go
    on as they begin."""
    found = _numbers(ranks)
    if size > len(found) >= 2:
        step = found[1] - found[0]
        if all(b - a == step for a, b in pairwise(found)):
            found = [found[0] + step * at for at in range(size)]
    return found if not size or len(found) == size else []


def _numbers(text: Any) -> list[int]:
    if isinstance(text, str):
        try:
            text = ast.literal_eval(text)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            return [int(one) for one in _NUMBER.findall(str(text))]
    if not isinstance(text, list | tuple):
        return []
    return [one for one in text if isinstance(one, int) and 0 <= one < 2**31]


def whole_of(value: Any) -> int:
    """A whole number from 0, as JSON or as text; else 0."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 20:
        return int(value)
    return value if isinstance(value, int) and 0 <= value < 2**63 else 0


def _ns(event: Mapping[str, Any], key: str, number: int) -> int:
    """A time of an event, in nanoseconds; traces have microseconds with three decimals."""
    value = event.get(key)
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            value = None
    if not isinstance(value, int | float) or not 0 <= value < 2**60:
        raise KinetoError(number, f"{key} is {str(value)[:40]}", "microseconds from 0")
    return round(value * 1000)
