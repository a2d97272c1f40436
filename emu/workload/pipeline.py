"""Passes of a pipeline stage, in their order, and what it exchanges with its neighbours.

One forward, one backward (1F1B): stage r of p begins with p - r - 1 forwards, then alternates, then ends
with as many backwards. Interleaved: a stage has v chunks of layers (chunk c of stage r is stage c p + r of a
pipeline v times as long), takes p micro-batches of a chunk at a time, and begins with
2 (p - r - 1) + (v - 1) p forwards; micro-batches come in multiples of p.

Uncongested and with equal stages, a step takes m micro-batches and (p - 1) / v more, so that the bubble is
(p - 1) / (v m + p - 1) of it.

Sources: Narayanan et al., Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM
(SC'21), section 2.2; Megatron-LM, `core/pipeline_parallel/schedules.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

from actors.ncclx.script import LINE, REASONS, TRANSFER, UNLABELLED, Group, Script, ScriptPlan

PP = REASONS.index("pp")


class Pass(NamedTuple):
    """One pass of one micro-batch through one chunk."""

    forward: bool
    batch: int
    chunk: int


@lru_cache(maxsize=1024)
def schedule(stage: int, stages: int, batches: int, chunks: int) -> tuple[Pass, ...]:
    """The passes of one stage in their order. With `chunks` above 1, `batches` is a multiple of `stages`."""
    assert chunks == 1 or batches % stages == 0, (batches, stages, chunks)
    total = batches * chunks
    first = stages - stage - 1 if chunks == 1 else 2 * (stages - stage - 1) + (chunks - 1) * stages
    warm = min(first, total)
    forwards = [_pass(turn, stages, chunks, forward=True) for turn in range(total)]
    backwards = [_pass(turn, stages, chunks, forward=False) for turn in range(total)]
    order = forwards[:warm]
    for turn in range(total - warm):
        order += [forwards[warm + turn], backwards[turn]]
    return (*order, *backwards[total - warm :])


def _pass(turn: int, stages: int, chunks: int, *, forward: bool) -> Pass:
    if chunks == 1:
        return Pass(forward, turn, 0)
    group, within = divmod(turn, stages * chunks)
    chunk, place = divmod(within, stages)
    return Pass(forward, group * stages + place, chunk if forward else chunks - 1 - chunk)


def _unlabelled(stage: int, one: Pass) -> int:
    del stage, one
    return UNLABELLED


class Stage:
    """One rank's stage: its passes, and its lines to the ranks of the stages beside it.

    `ranks` has the rank of every stage. A line is a group of two, one for each direction and way, so that
    making a stage joins the groups that it has.
    """

    def __init__(
        self,
        plan: ScriptPlan,
        script: Script,
        ranks: Sequence[int],
        stage: int,
        *,
        batches: int,
        chunks: int,
        size_bytes: int,
        decoupled: bool = True,
        label: Callable[[int, Pass], int] = _unlabelled,
    ) -> None:
        self.order = schedule(stage, len(ranks), batches, chunks)
        self._script = script
        self._stage, self._stages = stage, len(ranks)
        self._batches, self._chunks = batches, chunks
        self._size_bytes = size_bytes
        self._decoupled = decoupled
        self._label = label
        """Of a transfer, by the stage and the pass that it is for."""
        self._places: dict[str, int] = {}
        self._arrivals: dict[Pass, int] = {}
        if len(ranks) > 1:
            self._join(plan, ranks)

    def _join(self, plan: ScriptPlan, ranks: Sequence[int]) -> None:
        stage, last, wraps = self._stage, len(ranks) - 1, self._chunks > 1
        here, there, back = ranks[stage], ranks[(stage + 1) % len(ranks)], ranks[stage - 1]
        lines: list[tuple[str, bool, int, int, int]] = [
            ("recv_forward", stage > 0 or wraps, back, here, 0),
            ("send_forward", stage < last or wraps, here, there, 0),
            ("recv_backward", stage < last or wraps, there, here, 1),
            ("send_backward", stage > 0 or wraps, here, back, 1),
        ]
        for name, has, source, destination, way in lines:
            if has:
                # With two stages both ways join the same two ranks: `way` keeps their groups apart.
                line = Group(LINE, PP + way * len(REASONS), (source, destination))
                self._places[name] = self._script.join(plan.group(line))

    def receive(self) -> None:
        """Receive what the neighbours send, in the order in which they send it."""
        for forward, name, step in ((True, "recv_forward", -1), (False, "recv_backward", 1)):
            if name not in self._places:
                continue
            peer = (self._stage + step) % self._stages
            for one in schedule(peer, self._stages, self._batches, self._chunks):
                goes = self._next(peer, one) if one.forward == forward else None
                if goes is not None:
                    label = self._label(self._stage, goes)
                    self._arrivals[goes] = self._script.call(
                        self._places[name], TRANSFER, self._size_bytes, label=label
                    )

    def begin(self, one: Pass) -> None:
        """Wait for what a pass begins with."""
        if one in self._arrivals:
            self._script.wait(self._arrivals[one], PP)

    def end(self, one: Pass) -> None:
        """Send what a pass ends with."""
        goes = self._next(self._stage, one)
        if goes is None:
            return
        place = self._places["send_forward" if one.forward else "send_backward"]
        to = (self._stage + (1 if one.forward else -1)) % self._stages
        done = self._script.record()
        sent = self._script.call(place, TRANSFER, self._size_bytes, (done,), self._label(to, goes))
        if not self._decoupled:
            self._script.wait(sent, PP)

    def _next(self, stage: int, one: Pass) -> Pass | None:
        """The same micro-batch where the result of a stage's pass goes, as that stage calls it."""
        if one.forward:
            if stage < self._stages - 1:
                return one
            return one._replace(chunk=one.chunk + 1) if one.chunk < self._chunks - 1 else None
        if stage > 0:
            return one
        return one._replace(chunk=one.chunk - 1) if one.chunk > 0 else None
