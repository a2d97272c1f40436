"""Reader of workload texts of SimAI (made by AICB, in ASTRA-sim's form).

The first line names the kind and the groups, the second how many layers follow, each a line of twelve words:

    name  id  forward: time, collective, bytes  input gradient: time, collective, bytes
              weight gradient: time, collective, bytes  update time

Times are nanoseconds (cycles of 1 GHz). A collective is NONE, ALLREDUCE, ALLGATHER, REDUCESCATTER, ALLTOALL
or BROADCAST (from the first of the group); forward and input gradient over the tensor-parallel group,
weight gradient over the data-parallel one; with _EP over the expert group, with _DP_EP over the ranks that
hold the same experts.

A step: every layer's forward time and collective in their order; then from the last layer to the first,
input gradient and its collective, weight gradient, whose collective runs beside what follows, and the
update; at the end it waits for those collectives. Ranks of a tensor-parallel group are neighbours.

The kind MICRO is a benchmark: of each line the weight gradient's time and collective, over all ranks, one
after the other.

The text is not trusted: sizes, times and counts are bounded, and a line that is not of this form is named.

Source: SimAI, `astra-sim-alibabacloud/astra-sim/workload/Workload.cc`; AICB, README; ASTRA-sim, format of
workloads.

Pipelines. With `pp` above 1 the text is one stage, written as AICB writes it: lines of the whole step
(`STEP_NAMES`), then the layers once for each of `ga` micro-batches, then lines of the whole step again.
Every stage does the same lines, with passes in the order of `emu.workload.pipeline`, and sends `pp_comm`
bytes to its neighbour after each, as one rank to another. `vpp` is the number of chunks of a stage: a
micro-batch is cut before the line whose name comes that often. The lines of the whole step are done forward
before the first pass and backward after the last, those at the end both ways after the last pass. Ranks:
tensor parallelism fastest, then data, then stages.

SimAI itself has one stage run the text, and adds a bubble by a formula: its computing and its waiting for
tensor and expert parallelism, times (pp - 1) / (ga x vpp). `pipeline: formula` does that (SimAI leaves lines
named embedding_layer out of that sum, and adds time for transfers where it is told how far they overlap;
here neither).

Not modelled: recomputation (`checkpoints` above 0), other kinds of loop. Both are refused.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from itertools import count, pairwise
from typing import Final, Literal, NamedTuple

from actors.ncclx.script import REASONS, Group, Script, ScriptPlan, kind_of
from emu.base.errors import FormatError
from emu.scenario.readers.foreign import LONGEST_SHOWN, LeftOut, whole_number
from emu.workload.pipeline import Pass, Stage

MICRO: Final = "MICRO"
KINDS: Final = ("HYBRID_TRANSFORMER", "HYBRID_TRANSFORMER_FWD_IN_BCKWD", MICRO)
_LISTS: Final = ("checkpoints", "checkpoint_initiates")
"""Words of the first line after which a count stands, and so many numbers of layers."""
_READ: Final = (*_LISTS, "model_parallel_NPU_group", "ep", "all_gpus", "pp", "vpp", "ga", "pp_comm")
"""Words of the first line that are read."""
COLLECTIVES: Final = {
    "ALLREDUCE": "all_reduce",
    "ALLGATHER": "all_gather",
    "REDUCESCATTER": "reduce_scatter",
    "ALLTOALL": "all_to_all",
    "BROADCAST": "broadcast",
}
"""Word -> operation."""
STEP_NAMES: Final = re.compile(
    r"norm|grad_norm|grad_gather|grad_param(_comm|_compute)?|layernorm|embedding_grads|moe_grad_norm\d*"
    r"|cross_entropy\d*|optimizer\d*"
)
"""Names of lines that a step has once, whatever its micro-batches."""
Pipelining = Literal["auto", "interleaved", "1f1b", "formula"]
MOST_STAGES: Final = 1024
MOST_LAYERS: Final = 10_000
MOST_BYTES: Final = 2**40
MOST_NS: Final = 10**12
_WORDS: Final = 12
_ACCEPTED: Final = "name, id, three times time, collective and bytes, update time"


class SimaiError(FormatError):
    """A text that is no such workload."""


class Piece(NamedTuple):
    """Computing and the collective after it."""

    time_ps: int
    op: str
    """As in COLLECTIVES; "none" where nothing follows."""
    group: str
    """tp, dp, ep or dp_ep."""
    size_bytes: int


class Layer(NamedTuple):
    """One line."""

    name: str
    forward: Piece
    input_gradient: Piece
    weight_gradient: Piece
    update_ps: int


class Simai(NamedTuple):
    """A whole text. `ranks` is None where it does not say."""

    tp: int
    ep: int
    ranks: int | None
    layers: tuple[Layer, ...]
    micro: bool = False
    """Whether it is a benchmark, line after line."""
    stages: int = 1
    chunks: int = 1
    """Chunks of a stage."""
    stage_bytes: int = 0
    """What a rank sends to its neighbour's after a pass."""
    batches: tuple[tuple[Layer, ...], ...] = ()
    """The lines of each micro-batch, where there are stages."""
    before: tuple[Layer, ...] = ()
    """Lines of the whole step, before the micro-batches."""
    after: tuple[Layer, ...] = ()
    """Layers after them."""


def read_simai(text: str) -> Simai:
    """The workload in a text. Raises SimaiError."""
    lines = text.splitlines()
    if len(lines) < 2:
        raise SimaiError(max(len(lines), 1), "ends before the layers", "a line of groups, a count, layers")
    kind, *words = lines[0].split()[:256] or [""]
    if kind not in KINDS:
        raise SimaiError(1, f"the loop {kind[:40]!r} is not modelled", " or ".join(KINDS))
    named: dict[str, int] = {}
    while len(words) > 1:
        key = words[0].rstrip(":")
        text = words[1].removesuffix(".0") if key == "pp_comm" else words[1]  # AICB divides
        named[key] = _number(1, text, MOST_BYTES if key == "pp_comm" else 2**20)
        del words[: 2 + (named[key] if key in _LISTS else 0)]
    if named.get("all_gpus") == 0:
        raise SimaiError(1, "all_gpus: 0", "all_gpus: how many there are, or without it")
    if named.get("checkpoints"):
        raise SimaiError(1, "recomputation is not modelled here", "checkpoints: 0")
    count = _number(2, lines[1].strip(), MOST_LAYERS)
    rows = [(at, line) for at, line in enumerate(lines[2:], start=3) if line.strip()]
    if len(rows) != count or not rows:
        raise SimaiError(2, f"says {count} layers, and {len(rows)} follow", "as many as follow, one or more")
    layers = tuple(_layer(at, line.split()) for at, line in rows)
    simai = Simai(
        max(named.get("model_parallel_NPU_group", 1), 1),
        max(named.get("ep", 1), 1),
        named.get("all_gpus"),
        layers,
        kind == MICRO,
    )
    return _staged(simai, named) if named.get("pp", 1) > 1 and not simai.micro else simai


def left_out(text: str) -> LeftOut:
    """What a valid text says and no rank does."""
    lines = [line.split() for line in text.splitlines() if line.strip()]
    kind, *words = lines[0]
    found = LeftOut()
    while len(words) > 1:
        key, value = words[0].rstrip(":"), words[1]
        if key not in _READ:
            found.add(f"{key[:LONGEST_SHOWN]} {value[:LONGEST_SHOWN]}")
        elif key in ("pp", "vpp", "ga", "pp_comm") and ("pp:", "1") in pairwise([*words, ""]):
            found.add(f"{key} {value} of one stage")
        del words[: 2 + (int(value) if key in _LISTS else 0)]
    for row in lines[2:]:
        found.add(f"id {row[1][:LONGEST_SHOWN]}")
        pieces = [row[2 + 3 * place : 5 + 3 * place] for place in range(3)]
        if kind == MICRO and any(piece != ["0", "NONE", "0"] for piece in pieces[:2]):
            shown = " ".join((*pieces[0], *pieces[1]))[: 2 * LONGEST_SHOWN]
            found.add(f"forward and input gradient of a benchmark ({shown})")
        if kind == MICRO and row[11] != "0":
            found.add(f"update time {row[11]} of a benchmark")
        for _, collective, size in pieces[2 if kind == MICRO else 0 :]:
            if collective == "NONE" and size != "0":
                found.add(f"{size} bytes of NONE")
            elif collective != "NONE" and size == "0":
                found.add(f"{collective} of 0 bytes")
    found.add("names of lines")
    return found


def _staged(simai: Simai, named: dict[str, int]) -> Simai:
    """The same with the lines parted by micro-batches."""
    stages, batches, chunks = named["pp"], named.get("ga", 0), named.get("vpp", 0)
    if stages > MOST_STAGES:
        raise SimaiError(1, f"{stages} stages", f"at most {MOST_STAGES}")
    if not named.get("pp_comm"):
        raise SimaiError(1, f"a pipeline of {stages} sends nothing", "pp_comm: bytes from stage to stage")
    if not batches or not chunks:
        raise SimaiError(1, "a pipeline without ga or vpp", "ga: micro-batches and vpp: chunks of a stage")
    layers = simai.layers
    first, last = 0, len(layers)
    while first < last and STEP_NAMES.fullmatch(layers[first].name):
        first += 1
    while last > first and STEP_NAMES.fullmatch(layers[last - 1].name):
        last -= 1
    each, rest = divmod(last - first, batches)
    if rest or not each:
        reason = f"{last - first} lines between those of the whole step do not divide into {batches}"
        raise SimaiError(2, f"{reason} micro-batches", "as many lines for each of `ga` micro-batches")
    return simai._replace(
        stages=stages,
        chunks=chunks,
        stage_bytes=named["pp_comm"],
        batches=tuple(layers[at : at + each] for at in range(first, last, each)),
        before=layers[:first],
        after=layers[last:],
    )


def chunks_of(simai: Simai, pipeline: Pipelining) -> int | str:
    """Into how many chunks a stage is cut, or why it cannot be as asked."""
    if simai.stages == 1 or simai.chunks == 1 or pipeline in ("1f1b", "formula"):
        return 1
    reason = ""
    if len(simai.batches) % simai.stages:
        reason = f"{len(simai.batches)} micro-batches are no multiple of {simai.stages} stages"
    elif any(chunked(batch, simai.chunks) is None for batch in dict.fromkeys(simai.batches)):
        reason = f"no line's name cuts a micro-batch into {simai.chunks} chunks"
    if reason and pipeline == "interleaved":
        return reason
    return 1 if reason else simai.chunks


def chunked(batch: Sequence[Layer], chunks: int) -> list[Sequence[Layer]] | None:
    """A micro-batch cut before the line whose name comes so often, or a multiple of it; None if none does.

    What is before the first is in the first chunk.
    """
    names = [layer.name for layer in batch]
    for name in dict.fromkeys(names):
        places = [at for at, one in enumerate(names) if one == name]
        if len(places) % chunks == 0:
            starts = [0, *places[:: len(places) // chunks][1:], len(batch)]
            return [batch[start:end] for start, end in pairwise(starts)]
    return None


def _layer(at: int, words: list[str]) -> Layer:
    if len(words) != _WORDS:
        raise SimaiError(at, f"{len(words)} words", _ACCEPTED)
    pieces = [
        _piece(at, words[2 + 3 * place : 5 + 3 * place], "dp" if place == 2 else "tp") for place in range(3)
    ]
    return Layer(words[0], pieces[0], pieces[1], pieces[2], _number(at, words[11], MOST_NS) * 1000)


def _piece(at: int, words: list[str], group: str) -> Piece:
    time, collective, size = words
    time_ps, size_bytes = _number(at, time, MOST_NS) * 1000, _number(at, size, MOST_BYTES)
    for suffix, other in (("_DP_EP", "dp_ep"), ("_EP", "ep")):
        if collective.endswith(suffix):
            collective, group = collective.removesuffix(suffix), other
            break
    if collective == "NONE" or size_bytes == 0:
        return Piece(time_ps, "none", group, 0)
    if collective not in COLLECTIVES:
        accepted = f"NONE, {', '.join(COLLECTIVES)}, with _EP or _DP_EP"
        raise SimaiError(at, f"{words[1][:40]!r} is no collective", accepted)
    return Piece(time_ps, COLLECTIVES[collective], group, size_bytes)


def _number(at: int, text: str, most: int) -> int:
    return whole_number(SimaiError, at, text, 0, most)


class SimaiPlan(ScriptPlan):
    """The groups and scripts of a workload over so many ranks; sizes and durations times `scale`.

    The caller has looked that the groups divide the ranks, that micro-batches can be cut into `chunks`, and,
    above 1, that their number is a multiple of the stages. `formula`: one stage does everything.
    """

    def __init__(
        self, simai: Simai, ranks: int, scale: Fraction, chunks: int = 1, *, formula: bool = False
    ) -> None:
        super().__init__()
        assert ranks % (simai.tp * simai.ep * simai.stages) == 0, (ranks, simai.tp, simai.ep, simai.stages)
        self._simai = simai
        self._width = ranks // simai.stages
        self._scale = scale
        self._staged = simai.stages > 1 and not formula
        self._chunks = chunks
        self._cut: list[list[Sequence[Layer]]] = []
        if self._staged:
            cut = {batch: chunked(batch, chunks) for batch in dict.fromkeys(simai.batches)}
            self._cut = [cut[batch] or [batch] for batch in simai.batches]
        self._counted = sum(_calls(layer) for layer in simai.layers)
        self.scripts = [self._script(rank) for rank in range(ranks)]
        self.list_if_few()

    def bubble_ps(self) -> int:
        """(p - 1) / v times what a micro-batch computes, in the mean."""
        simai = self._simai
        if not simai.batches:
            return 0
        pieces = sum(_computing_ps(layer) for batch in simai.batches for layer in batch)
        return int(pieces * self._scale * (simai.stages - 1) / (self._chunks * len(simai.batches)))

    def bubble_ideal(self) -> float:
        """(p - 1) / (v m + p - 1) of a pipeline that is run."""
        simai = self._simai
        if not self._staged:
            return 0.0
        return (simai.stages - 1) / (self._chunks * len(simai.batches) + simai.stages - 1)

    def formula(self) -> Fraction | None:
        """(p - 1) / (v m), where SimAI's formula stands for the pipeline."""
        simai = self._simai
        if self._staged or simai.stages == 1:
            return None
        return Fraction(simai.stages - 1, simai.chunks * len(simai.batches))

    def _members(self, name: str, rank: int) -> tuple[int, ...]:
        tp, ep = self._simai.tp, self._simai.ep
        stage, within = divmod(rank, self._width)
        lane, place = within % tp, within // tp
        if name == "tp":
            return tuple(range(rank - lane, rank - lane + tp))
        places = {
            "dp": range(self._width // tp),
            "ep": range(place // ep * ep, place // ep * ep + ep),
            "dp_ep": range(place % ep, self._width // tp, ep),
        }[name]
        return tuple(stage * self._width + one * tp + lane for one in places)

    def _script(self, rank: int) -> Script:
        simai = self._simai
        writer = _Writer(self, rank, self._scale, self._counted * (rank // self._width))
        if simai.micro:
            for layer in simai.layers:
                writer.piece(layer.weight_gradient, waits=True)
        elif not self._staged:
            writer.forward(simai.layers)
            writer.backward(simai.layers)
        else:
            self._stage(rank, writer)
        writer.finish()
        return writer.script

    def _stage(self, rank: int, writer: _Writer) -> None:
        simai = self._simai
        number, place = divmod(rank, self._width)
        batches = len(simai.batches)
        labels = self._counted * simai.stages

        # A transfer's label follows from stage and pass, so that both of its ends work out the same one.
        def label(stage: int, one: Pass) -> int:
            turn = (one.forward * batches + one.batch) * self._chunks + one.chunk
            return labels + turn * simai.stages + stage

        stage = Stage(
            self,
            writer.script,
            [one * self._width + place for one in range(simai.stages)],
            number,
            batches=batches,
            chunks=self._chunks,
            size_bytes=max(int(simai.stage_bytes * self._scale), 1),
            label=label,
        )
        stage.receive()
        writer.forward(simai.before)
        for one in stage.order:
            stage.begin(one)
            layers = self._cut[one.batch][one.chunk]
            if one.forward:
                writer.forward(layers)
            else:
                writer.backward(layers)
            stage.end(one)
        writer.forward(simai.after)
        writer.backward(simai.after)
        writer.backward(simai.before)

    def joined(self, one: Piece, rank: int) -> Group | None:
        """The group of a piece's collective; None where a rank does it alone."""
        members = self._members(one.group, rank)
        if len(members) < 2:
            return None
        reason = REASONS.index(one.group.removeprefix("dp_") if one.group != "dp_ep" else "dp")
        return Group(kind_of(one.op), reason, members)


class _Writer:
    """Writes one rank's script, piece by piece."""

    def __init__(self, plan: SimaiPlan, rank: int, scale: Fraction, label: int) -> None:
        self.script = Script(rank)
        self._plan, self._rank, self._scale = plan, rank, scale
        self._groups: dict[tuple[str, str], Group | None] = {}
        self._places: dict[tuple[str, str], int] = {}
        self._pending: list[tuple[int, int]] = []
        self._labels = count(label)

    def forward(self, layers: Sequence[Layer]) -> None:
        """The forward pass of some lines."""
        for layer in layers:
            self.piece(layer.forward, waits=True)

    def backward(self, layers: Sequence[Layer]) -> None:
        """The backward pass of some lines."""
        for layer in reversed(layers):
            self.piece(layer.input_gradient, waits=True)
            self.piece(layer.weight_gradient, waits=False)
            self.script.compute(int(layer.update_ps * self._scale))

    def finish(self) -> None:
        """Wait for what runs beside."""
        for done, reason in self._pending:
            self.script.wait(done, reason)

    def piece(self, one: Piece, *, waits: bool) -> None:
        """Compute, then call a collective, and wait for its end or leave that to the step's."""
        script = self.script
        script.compute(int(one.time_ps * self._scale))
        if one.op == "none":
            return
        key = (kind_of(one.op), one.group)
        if key not in self._groups:
            self._groups[key] = self._plan.joined(one, self._rank)
        group = self._groups[key]
        if group is None:
            return
        if key not in self._places:
            self._places[key] = script.join(self._plan.group(group))
        size = max(int(one.size_bytes * self._scale), 1)
        done = script.call(self._places[key], one.op, size, (script.record(),), next(self._labels))
        if waits:
            script.wait(done, group.reason)
        else:
            self._pending.append((done, group.reason))


def _calls(layer: Layer) -> int:
    return sum(one.op != "none" for one in layer[1:4])


def _computing_ps(layer: Layer) -> int:
    return (
        layer.forward.time_ps + layer.input_gradient.time_ps + layer.weight_gradient.time_ps + layer.update_ps
    )
