"""Reader of MSCCL's algorithms (XML, as msccl-tools writes them and RCCL has them) as send/receive graphs.

An `algo` has a `gpu` for each rank, a `gpu` thread blocks (`tb`), each with at most one peer to send to and
one to receive from on a channel, a thread block steps in order. Here a rank has one list of steps, which wait
for the steps whose chunks they use; it is an order that the thread blocks and their dependences allow.

    s, r, rcs       send, receive, receive and send on
    rrc, rrcs, rrs  the same with what is there added; what `rrs` makes is written, too: MSCCL forgets it
    cpy, nop        a copy of the input; a dependence alone
    i, o            `data`, in which a collective works in place; of alltoall `data` and `output`
    s               `scratch`
    chan            `lane`

Refused: `re` (a sum of two places of one rank), a sum that is written elsewhere than it is added to, a copy
of what is in scratch or output, more scratch than the buffer has chunks, channels from 32 on.

Left out: which steps share a thread block (no step waits for an earlier one of its block without need),
`proto`, `minBytes` and `maxBytes`.

Algorithms of one's own go by the Simple protocol.

Source: msccl-tools (MIT), `msccl/language/ir.py`; RCCL, `src/misc/msccl/msccl_parser.cc`.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple
from xml.etree import ElementTree as ET

from emu.base.errors import FormatError
from emu.scenario.readers.foreign import LONGEST_SHOWN, LeftOut
from emu.scenario.readers.nccl_topology import read_xml

OPERATIONS: Final = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "reducescatter": "reduce_scatter",
    "alltoall": "all_to_all",
}
MOST_LANES: Final = 32
MOST_NUMBER: Final = 1 << 16
_READ: Final = {
    "algo": ("coll",),
    "gpu": ("id", "i_chunks", "o_chunks"),
    "tb": ("id", "send", "recv", "chan"),
    "step": ("type", "srcbuf", "srcoff", "dstbuf", "dstoff", "cnt", "depid", "deps"),
}
"""Attributes that are read, by element. `proto` of an <algo> is said by whoever reads it."""
_TYPES: Final = ("s", "r", "rcs", "rrc", "rrcs", "rrs", "cpy", "nop")


class MscclError(FormatError):
    """A file that is no algorithm of MSCCL, or one that a send/receive graph cannot say."""


class Msccl(NamedTuple):
    """An algorithm."""

    op: str
    name: str
    protocol: str
    """As MSCCL spells it."""
    chunks: int
    steps: list[list[dict[str, object]]]
    """For each rank, steps with the keys of a send/receive graph."""


class _Form(NamedTuple):
    op: str
    chunks: int
    ranks: int


def read_msccl(text: str) -> Msccl:
    """The algorithm of a file. Raises FormatError."""
    root = read_xml(text, "an <algo> of MSCCL")
    if root.tag != "algo":
        raise MscclError(1, f"a <{root.tag[:40]}>", "an <algo>, as msccl-tools writes it")
    named = root.get("coll", "")
    if named not in OPERATIONS:
        raise MscclError(1, f"coll={named[:40]!r} is not modelled", ", ".join(OPERATIONS))
    gpus = root.findall("gpu")
    if [gpu.get("id") for gpu in gpus] != [str(at) for at in range(max(len(gpus), 2))]:
        raise MscclError(1, "the <gpu>s are not numbered in order", "id 0, 1 .. for each rank, at least two")
    each = (_number(gpu, key, f"gpu {at}") for at, gpu in enumerate(gpus) for key in ("i_chunks", "o_chunks"))
    form = _Form(OPERATIONS[named], max(each), len(gpus))
    if form.chunks < 1 or (form.op != "all_reduce" and form.chunks % form.ranks):
        accepted = "i_chunks or o_chunks a multiple of the ranks"
        raise MscclError(1, f"{form.chunks} chunks for {form.ranks} ranks", accepted)
    steps = [list(_steps(gpu, rank, form)) for rank, gpu in enumerate(gpus)]
    return Msccl(form.op, root.get("name", ""), root.get("proto", ""), form.chunks, steps)


def left_out(text: str) -> LeftOut:
    """What a valid file says and a send/receive graph does not."""
    found = LeftOut(
        "thread blocks (id) and depid and deps but for the order that they allow",
        "what the type of a step does not use of srcbuf and srcoff and dstbuf and dstoff",
        "send and recv and chan of thread blocks whose steps do not use them",
    )
    for element in read_xml(text, "an <algo> of MSCCL").iter():
        for name, value in element.attrib.items():
            if name not in _READ.get(element.tag, ()):
                shown = f" {value[:LONGEST_SHOWN]}" if element.tag == "algo" else ""
                found.add(f"{name}{shown} of <{element.tag[:LONGEST_SHOWN]}>")
    return found


def _number(element: ET.Element, key: str, where: str, least: int = 0, default: str = "0") -> int:
    value = element.get(key, default)
    if not value.lstrip("-").isascii() or not value.removeprefix("-").isdecimal() or len(value) > 6:
        raise MscclError(1, f"{where}: {key}={value[:40]!r}", "a whole number")
    if not least <= int(value) <= MOST_NUMBER:
        raise MscclError(1, f"{where}: {key}={value}", f"{least} to {MOST_NUMBER}")
    return int(value)


def _steps(gpu: ET.Element, rank: int, form: _Form) -> Iterator[dict[str, object]]:
    """The steps of a rank in an order that its thread blocks and their dependences allow."""
    blocks = {block.get("id", ""): block for block in gpu.findall("tb")}
    done = dict.fromkeys(blocks, 0)
    left = sum(len(block) for block in blocks.values())
    while left:
        before = left
        for name, block in blocks.items():
            for step in block[done[name] :]:
                where = f"gpu {rank}, tb {name}, step {done[name]}"
                needed, place = step.get("depid", "-1"), _number(step, "deps", where, -1, "-1")
                if needed != "-1" and done.get(needed, -1) <= place:
                    break
                yield from _step(step, block, rank, where, form)
                done[name] += 1
                left -= 1
        if left == before:
            reason = f"gpu {rank}: {left} steps wait for one another, or for a thread block that is not there"
            raise MscclError(1, reason, "dependences (depid, deps) that can be met")


def _step(
    step: ET.Element, block: ET.Element, rank: int, where: str, form: _Form
) -> Iterator[dict[str, object]]:
    kind = step.get("type", "")
    if step.tag != "step" or kind not in _TYPES:
        reason = "adds up two places of one rank, for which a send/receive graph has no step"
        shown = f"<{step.tag[:20]} type={kind[:20]!r}>"
        raise MscclError(1, f"{where}: {shown}{' ' + reason if kind == 're' else ''}", ", ".join(_TYPES))
    if kind == "nop":
        return
    lane = _number(block, "chan", where)
    if lane >= MOST_LANES:
        raise MscclError(1, f"{where}: channel {lane}", f"0 to {MOST_LANES - 1}")
    source, target = (_place(step, end, rank, where, form) for end in ("src", "dst"))
    if kind in ("rrc", "rrcs") and source != target:
        raise MscclError(1, f"{where}: the sum is written elsewhere", "source and destination alike")
    if kind == "cpy":
        if source == target:
            return
        if source[0] != "data":
            raise MscclError(1, f"{where}: copies from {source[0]}", "copies of the input")
        yield {"copied": source[1], "buffer": target[0], "chunks": target[1]}
        return
    # Letters are what a step does in turn: receive, copy or reduce, send. Those that only send, or that
    # reduce and send on without keeping the sum, name the place that they read.
    buffer, chunks = source if kind in ("s", "rrs") else target
    made: dict[str, object] = {"buffer": buffer, "chunks": chunks, "lane": lane}
    if kind.startswith("r"):
        made["receive"] = _number(block, "recv", where)
        made["reduce"] = kind.startswith("rr")
    if kind.endswith("s"):
        made["send"] = [_number(block, "send", where)]
    yield made


def _place(step: ET.Element, end: str, rank: int, where: str, form: _Form) -> tuple[str, list[int]]:
    """Buffer and chunks of one end of a step."""
    buffer = step.get(f"{end}buf", "")
    first, count = _number(step, f"{end}off", where, -1), _number(step, "cnt", where, 1, "1")
    names = {"i": "data", "o": "output" if form.op == "all_to_all" else "data", "s": "scratch"}
    if buffer not in names:
        raise MscclError(1, f"{where}: {end}buf={buffer[:20]!r}", ", ".join(names))
    if (form.op, buffer) in (("all_gather", "i"), ("reduce_scatter", "o")):
        first += rank * (form.chunks // form.ranks)
    if first + count > form.chunks:
        reason = f"{where}: chunk {first + count - 1} of {names[buffer]}"
        raise MscclError(1, reason, f"0 to {form.chunks - 1}, of scratch as well")
    return names[buffer], list(range(first, first + count))
