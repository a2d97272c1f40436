"""Passes of a pipeline stage, in their order, and what it exchanges with its neighbours.

One forward, one backward (1F1B): stage r of p begins with p - r - 1 forwards, then alternates, then ends
with as many backwards. Interleaved: a stage has v chunks of layers (chunk c of stage r is stage c p + r of a
pipeline v times as long), takes p micro-batches of a chunk at a time, and begins with
2 (p - r - 1) + (v - 1) p forwards; micro-batches come in multiples of p.

Coupled, as Megatron-LM is, a rank goes on when all that it exchanges at one point has come and gone: after
each pass what that sends and what the next begins with; interleaved, after a forward and the backward behind
it, what both send and what the next two begin with. Decoupled (MegaScale), a pass waits for its own input
alone, and sends beside the passes that follow.

Uncongested and with equal stages, a decoupled step takes m micro-batches and (p - 1) / v more, so that the
bubble is (p - 1) / (v m + p - 1) of it.

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
    warm = _forwards_first(stage, stages, batches, chunks)
    forwards = [_pass(turn, stages, chunks, forward=True) for turn in range(total)]
    backwards = [_pass(turn, stages, chunks, forward=False) for turn in range(total)]
    order = forwards[:warm]
    for turn in range(total - warm):
        order += [forwards[warm + turn], backwards[turn]]
    return (*order, *backwards[total - warm :])


def _forwards_first(stage: int, stages: int, batches: int, chunks: int) -> int:
    """How many forwards come before the first backward's forward."""
    first = stages - stage - 1 if chunks == 1 else 2 * (stages - stage - 1) + (chunks - 1) * stages
    return min(first, batches * chunks)


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
        """Label of a transfer, by the stage and the pass that it is for."""
        self._partners: dict[Pass, Pass] = {}
        """Coupled and interleaved: of a forward the backward with which it exchanges, and back."""
        if chunks > 1 and not decoupled:
            warm = _forwards_first(stage, len(ranks), batches, chunks)
            alternating = self.order[warm : len(self.order) - warm]
            pairs = list(zip(alternating[::2], alternating[1::2], strict=True))
            self._partners = dict(pairs) | {backward: forward for forward, backward in pairs}
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
                line = Group(LINE, PP + way * len(plan.reasons), (source, destination))
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
        """Wait for what a pass begins with, and for what was to come with it."""
        for awaited in (one, self._partners.get(one)):
            if awaited in self._arrivals:
                self._script.wait(self._arrivals.pop(awaited), PP)

    def end(self, one: Pass) -> None:
        """Send what a pass ends with, unless a backward behind it is to go with it."""
        partner = self._partners.get(one)
        if partner is not None and one.forward:
            return
        sent = [self._send(each) for each in (partner, one) if each is not None]
        for call in sent:
            if call is not None and not self._decoupled:
                self._script.wait(call, PP)

    def _send(self, one: Pass) -> int | None:
        """Send the result of a pass to where it goes; the call, or None if it goes nowhere."""
        goes = self._next(self._stage, one)
        if goes is None:
            return None
        place = self._places["send_forward" if one.forward else "send_backward"]
        to = (self._stage + (1 if one.forward else -1)) % self._stages
        done = self._script.record()
        return self._script.call(place, TRANSFER, self._size_bytes, (done,), self._label(to, goes))

    def _next(self, stage: int, one: Pass) -> Pass | None:
        """The same micro-batch where the result of a stage's pass goes, as that stage calls it."""
        if one.forward:
            if stage < self._stages - 1:
                return one
            return one._replace(chunk=one.chunk + 1) if one.chunk < self._chunks - 1 else None
        if stage > 0:
            return one
        return one._replace(chunk=one.chunk - 1) if one.chunk > 0 else None
