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

Not modelled: pipelines (`pp` above 1: the text has one stage, and says neither where its micro-batches begin
nor when they are sent; SimAI itself adds a bubble by a formula), recomputation (`checkpoints` above 0), other
kinds of loop. All are refused.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import count
from typing import Final, NamedTuple

from actors.ncclx.script import REASONS, Group, Script, ScriptPlan, kind_of
from emu.errors import FormatError
from emu.scenario.readers.foreign import whole_number

MICRO: Final = "MICRO"
KINDS: Final = ("HYBRID_TRANSFORMER", "HYBRID_TRANSFORMER_FWD_IN_BCKWD", MICRO)
_LISTS: Final = ("checkpoints", "checkpoint_initiates")
"""Words of the first line after which a count stands, and so many numbers of layers."""
COLLECTIVES: Final = {
    "ALLREDUCE": "all_reduce",
    "ALLGATHER": "all_gather",
    "REDUCESCATTER": "reduce_scatter",
    "ALLTOALL": "all_to_all",
    "BROADCAST": "broadcast",
}
"""Word -> operation."""
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
        named[key] = _number(1, words[1], MOST_BYTES if key == "pp_comm" else 2**20)
        del words[: 2 + (named[key] if key in _LISTS else 0)]
    if named.get("pp", 1) > 1:
        reason = f"it is one stage of a pipeline of {named['pp']}, and does not say when stages exchange what"
        raise SimaiError(1, reason, "pp: 1, or a workload of kind training")
    if named.get("checkpoints"):
        raise SimaiError(1, "recomputation is not modelled here", "checkpoints: 0")
    count = _number(2, lines[1].strip(), MOST_LAYERS)
    rows = [(at, line) for at, line in enumerate(lines[2:], start=3) if line.strip()]
    if len(rows) != count or not rows:
        raise SimaiError(2, f"says {count} layers, and {len(rows)} follow", "as many as follow, one or more")
    layers = tuple(_layer(at, line.split()) for at, line in rows)
    return Simai(
        max(named.get("model_parallel_NPU_group", 1), 1),
        max(named.get("ep", 1), 1),
        named.get("all_gpus"),
        layers,
        kind == MICRO,
    )


def _layer(at: int, words: list[str]) -> Layer:
    if len(words) != _WORDS:
        raise SimaiError(at, f"{len(words)} words", _ACCEPTED)
    pieces = [
        _piece(at, words[2 + 3 * place : 5 + 3 * place], "dp" if place == 2 else "tp") for place in range(3)
    ]
    return Layer(pieces[0], pieces[1], pieces[2], _number(at, words[11], MOST_NS) * 1000)


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

    The caller has looked that the groups divide the ranks.
    """

    def __init__(self, simai: Simai, ranks: int, scale: Fraction) -> None:
        super().__init__()
        assert ranks % (simai.tp * simai.ep) == 0, (ranks, simai.tp, simai.ep)
        self._simai = simai
        self._ranks = ranks
        self._scale = scale
        self.scripts = [self._script(rank) for rank in range(ranks)]
        self.list_if_few()

    def _members(self, name: str, rank: int) -> tuple[int, ...]:
        tp, ep = self._simai.tp, self._simai.ep
        lane, place = rank % tp, rank // tp
        if name == "tp":
            return tuple(range(rank - lane, rank - lane + tp))
        places = {
            "dp": range(self._ranks // tp),
            "ep": range(place // ep * ep, place // ep * ep + ep),
            "dp_ep": range(place % ep, self._ranks // tp, ep),
        }[name]
        return tuple(one * tp + lane for one in places)

    def _script(self, rank: int) -> Script:
        script = Script(rank)
        places: dict[tuple[str, str], int] = {}
        pending: list[tuple[int, int]] = []
        labels = count()

        def piece(one: Piece, *, waits: bool) -> None:
            script.compute(int(one.time_ps * self._scale))
            members = self._members(one.group, rank)
            if one.op == "none" or len(members) < 2:
                return
            reason = REASONS.index(one.group.removeprefix("dp_") if one.group != "dp_ep" else "dp")
            kind = kind_of(one.op)
            if (kind, one.group) not in places:
                places[kind, one.group] = script.join(self.group(Group(kind, reason, members)))
            size = max(int(one.size_bytes * self._scale), 1)
            done = script.call(places[kind, one.group], one.op, size, (script.record(),), next(labels))
            if waits:
                script.wait(done, reason)
            else:
                pending.append((done, reason))

        if self._simai.micro:
            for layer in self._simai.layers:
                piece(layer.weight_gradient, waits=True)
            return script
        for layer in self._simai.layers:
            piece(layer.forward, waits=True)
        for layer in reversed(self._simai.layers):
            piece(layer.input_gradient, waits=True)
            piece(layer.weight_gradient, waits=False)
            script.compute(int(layer.update_ps * self._scale))
        for done, reason in pending:
            script.wait(done, reason)
        return script
