"""The campaign clock: one job from failure to failure, in whole milliseconds.

The job does steps. After so many it stands still for a checkpoint (the first stage), and goes on; the
checkpoint is whole some time later. Causes strike as Poisson processes of their own, whatever the job is
doing, and follow one from another:

    stop, hang   The step underway is lost. After `detection` somebody notices, then come the self-check,
                 spare hosts for the broken ones (a wait, where there is none), init, and the load of the
                 newest checkpoint that was whole when the job stopped. Steps since then are done again.
    slow         Steps take longer from the next one on. When it is noticed, the job makes a checkpoint,
                 waits until it is whole, and goes the same way; nothing is done again.
    silent       Nothing shows. When it is noticed, the job goes back to the newest kept checkpoint that was
                 begun before; where none is kept from then, to its beginning.
    planned      As `slow`, at once and without the self-check, and somebody works on it for `takes`.

What strikes while the job stands still: a stop or hang begins the recovery again from the self-check, which
finds all that is broken or slow; one that strikes before anybody has noticed the first is noticed for itself,
if that is sooner. Planned work is done then and there, whatever else breaks; slow and silent ones are found
by the check.

Everything is recorded as rows that follow one another without a gap, so that a reader can add them up again.
Draws depend on the seed and the cause's place alone.

Not modelled: hosts that break while they are spare, checkpoints that are lost, a job that goes on with fewer
ranks, failures that depend on one another (but `hosts` fail together).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, NamedTuple

from actors.kernel.mixing import Stream
from emu.campaign.campaign_file import UNITS_MS
from emu.campaign.failure_tables import Shows
from emu.campaign.sections import Campaign
from emu.scenario.faults.draws import exponential_gap

PURPOSE: Final = 1 << 22
"""Of the random streams."""

TRAINING: Final = "training"
SLOWED: Final = "slowed"
CHECKPOINT: Final = "checkpoint"
NOTICING: Final = "noticing"
SELF_CHECK: Final = "self_check"
WAITING: Final = "waiting_for_spares"
REPLACING: Final = "replacing"
INIT: Final = "init"
LOADING: Final = "loading"
PLANNED: Final = "planned"
PHASES: Final = (
    TRAINING,
    SLOWED,
    CHECKPOINT,
    NOTICING,
    SELF_CHECK,
    WAITING,
    REPLACING,
    INIT,
    LOADING,
    PLANNED,
)
_UNKNOWN: Final = -1


@dataclass(frozen=True, slots=True)
class Cause:
    """One cause, for the whole job."""

    name: str
    shows: Shows
    per_ms: Fraction
    hosts: int
    noticed_ms: int
    slow_step_ms: int
    """How long a step takes while it lasts."""
    takes_ms: int


@dataclass(frozen=True, slots=True)
class Course:
    """What a campaign goes by, in milliseconds."""

    lasts_ms: int
    step_ms: int
    steps_between: int
    """Checkpoints."""
    stalls_ms: int
    written_ms: int
    loads_ms: int
    kept: int
    self_check_ms: int
    replace_ms: int
    init_ms: int
    repaired_ms: int
    spare_hosts: int
    causes: tuple[Cause, ...]

    @property
    def stops_per_ms(self) -> Fraction:
        """Rate of what makes the job lose work and time at once."""
        return sum((one.per_ms for one in self.causes if one.shows in ("stop", "hang")), Fraction(0))

    def restart_ms(self) -> Fraction:
        """Mean time from a stop until the job goes on, with hosts to spare."""
        found = Fraction(0)
        for one in self.causes:
            if one.shows in ("stop", "hang"):
                fixed = self.self_check_ms + self.init_ms + self.loads_ms
                found += one.per_ms * (one.noticed_ms + fixed + (self.replace_ms if one.hosts else 0))
        return found / self.stops_per_ms if found else found


def course_of(campaign: Campaign, every_ms: int | None = None) -> Course:
    """What a campaign goes by; `every_ms` between checkpoints in place of its own, if that is `auto`."""
    step_ms = campaign.step.takes_ms
    detection = campaign.detection
    usual_ms = {
        "stop": detection.stop_ms,
        "hang": detection.hang_ms,
        "slow": detection.slow_ms,
        "silent": detection.silent_ms,
        "planned": 0,
    }
    causes = tuple(
        Cause(
            name=one.name,
            shows=one.shows,
            per_ms=campaign.per_hour(one) / UNITS_MS["h"],
            hosts=int(one.shows != "planned") if one.hosts is None else one.hosts,
            noticed_ms=usual_ms[one.shows] if one.noticed_after_ms is None else one.noticed_after_ms,
            slow_step_ms=-(-step_ms // (1 - one.slower_by)) if one.shows == "slow" else step_ms,
            takes_ms=one.takes_ms if one.shows == "planned" else 0,
        )
        for one in campaign.failures.all()
    )
    if every_ms is None:
        assert campaign.checkpoint.every_ms is not None, "auto: the caller works it out"
        every_ms = campaign.checkpoint.every_ms
    return Course(
        lasts_ms=campaign.lasts_ms,
        step_ms=step_ms,
        steps_between=max(round(Fraction(every_ms, step_ms)), 1),
        stalls_ms=campaign.checkpoint.stalls_ms,
        written_ms=campaign.checkpoint.written_after_ms,
        loads_ms=campaign.checkpoint.loads_ms,
        kept=campaign.checkpoint.kept,
        self_check_ms=campaign.recovery.self_check_ms,
        replace_ms=campaign.recovery.replace_ms,
        init_ms=campaign.recovery.init_ms,
        repaired_ms=campaign.recovery.repaired_after_ms,
        spare_hosts=campaign.spares,
        causes=causes,
    )


class Row(NamedTuple):
    """A phase of the job, from a time on until the next row's."""

    begin_ms: int
    end_ms: int
    phase: str
    cause: str
    """Why the job is in it; empty while it trains."""
    steps_from: int
    steps_to: int
    """Steps done before it and after it; fewer than before where the job went back."""
    stalled_ms: int
    """Of training: standing still for checkpoints."""


class Strike(NamedTuple):
    """A cause struck."""

    at_ms: int
    cause: str


class _Checkpoint(NamedTuple):
    steps: int
    begun_ms: int
    whole_ms: int


@dataclass(frozen=True, slots=True)
class Weeks:
    """What happened."""

    rows: tuple[Row, ...]
    strikes: tuple[Strike, ...]
    lasts_ms: int
    step_ms: int

    def kept_ms(self) -> int:
        """The time that the steps which count would have taken with nothing in the way."""
        return self.rows[-1].steps_to * self.step_ms if self.rows else 0

    def shares_ms(self) -> dict[str, int]:
        """The whole time by what it went into: `kept`, `redone`, `slowed`, and the phases but training."""
        found = dict.fromkeys(("kept", "redone", "slowed", *PHASES[2:]), 0)
        found["kept"] = self.kept_ms()
        worked_ms = 0
        for row in self.rows:
            length_ms = row.end_ms - row.begin_ms
            if row.phase not in (TRAINING, SLOWED):
                found[row.phase] += length_ms
                continue
            found[CHECKPOINT] += row.stalled_ms
            worked_ms += length_ms - row.stalled_ms
            if row.phase == SLOWED:
                own_ms = (row.steps_to - row.steps_from) * self.step_ms
                found["slowed"] += max(length_ms - row.stalled_ms - own_ms, 0)
        found["redone"] = worked_ms - found["kept"] - found["slowed"]
        return found


def strikes_of(causes: Sequence[Cause], seed: int, lasts_ms: int) -> list[tuple[int, int]]:
    """(time, place of the cause) of all that strikes, in order."""
    return list(heapq.merge(*(_strikes(one, place, seed, lasts_ms) for place, one in enumerate(causes))))


def _strikes(cause: Cause, place: int, seed: int, lasts_ms: int) -> Iterator[tuple[int, int]]:
    stream = Stream(seed, place, PURPOSE)
    at_ms = 0
    while True:
        at_ms += exponential_gap(stream.draw62(), cause.per_ms)
        if at_ms >= lasts_ms:
            return
        yield at_ms, place


def weeks(course: Course, seed: int) -> Weeks:
    """One campaign from its first step to its end, with what the seed draws."""
    return followed(course, strikes_of(course.causes, seed, course.lasts_ms))


def followed(course: Course, strikes: Sequence[tuple[int, int]]) -> Weeks:
    """One campaign, with these strikes: (time, place of the cause), in order."""
    job = _Job(course)
    for at_ms, place in strikes:
        job.until(at_ms)
        job.struck(place)
    job.until(course.lasts_ms)
    told = tuple(Strike(at_ms, course.causes[place].name) for at_ms, place in strikes)
    return Weeks(tuple(job.rows), told, course.lasts_ms, course.step_ms)


class _Ahead(NamedTuple):
    """A phase before the job goes on."""

    phase: str
    length_ms: int
    cause: str


class _Job:
    """The job at a time."""

    def __init__(self, course: Course) -> None:
        self._course = course
        self.rows: list[Row] = []
        self._now_ms = 0
        self._steps = 0
        self._since = 0
        """Steps since the last checkpoint."""
        self._left_ms = 0
        """Of the step or stall underway; 0 between them."""
        self._stalling = False
        self._step_ms = course.step_ms
        self._slowed_by = ""
        self._checkpoints = [_Checkpoint(0, 0, 0)]
        self._ahead: list[_Ahead] = []
        self._broken = 0
        """Hosts that the next self-check finds."""
        self._vacant = 0
        """Places that await a spare host."""
        self._spares = course.spare_hosts
        self._repaired_ms: list[int] = []
        """When hosts come back, as a heap."""
        self._notices: list[tuple[int, int, int]] = []
        """Of what is slow or silent: when it is noticed, when it began, and the cause's place."""
        self._begun_ms = 0
        """Of the row underway."""
        self._steps_from = 0
        self._stalled_ms = 0

    def until(self, limit_ms: int) -> None:
        """Go on to a time."""
        while self._now_ms < limit_ms:
            if self._ahead:
                self._stand(limit_ms)
            elif self._notices and self._notices[0][0] <= self._now_ms:
                self._notice(heapq.heappop(self._notices))
            else:
                self._train(min([limit_ms, *(one[0] for one in self._notices[:1])]))
        self.cut()

    def struck(self, place: int) -> None:
        """A cause strikes now."""
        cause = self._course.causes[place]
        standing = self._ahead[0].phase if self._ahead else TRAINING
        self._broken += cause.hosts if cause.shows not in ("slow", "silent") or self._ahead else 0
        if cause.shows == "planned":
            if not self._ahead:
                self._save_and_stop(cause, self._restart(cause))
            self._ahead.insert(int(standing == TRAINING), _Ahead(PLANNED, cause.takes_ms, cause.name))
        elif cause.shows in ("stop", "hang"):
            if standing in (TRAINING, CHECKPOINT):
                self._break_off()
                notice = _Ahead(NOTICING, cause.noticed_ms, cause.name)
                self._ahead = [notice, *self._planned(), *self._recovery(cause)]
            elif standing == NOTICING:
                sooner_ms = min(self._ahead[0].length_ms, cause.noticed_ms)
                self._ahead[0] = self._ahead[0]._replace(length_ms=sooner_ms)
            else:
                self._ahead = [*self._planned(), *self._recovery(cause)]
        elif not self._ahead:
            heapq.heappush(self._notices, (self._now_ms + cause.noticed_ms, self._now_ms, place))
            if cause.slow_step_ms > self._step_ms:
                self._step_ms, self._slowed_by = cause.slow_step_ms, cause.name

    # ---------------------------------------------------------------- training

    def _train(self, limit_ms: int) -> None:
        course = self._course
        while self._now_ms < limit_ms:
            if self._left_ms:
                spent_ms = min(self._left_ms, limit_ms - self._now_ms)
                self._now_ms += spent_ms
                self._left_ms -= spent_ms
                self._stalled_ms += spent_ms if self._stalling else 0
                if not self._left_ms:
                    self._finish()
            elif self._since == course.steps_between:
                self._stalling, self._left_ms = True, course.stalls_ms
                if not self._left_ms:
                    self._finish()
            else:
                room = (limit_ms - self._now_ms) // self._step_ms
                steps = min(course.steps_between - self._since, room)
                self._steps += steps
                self._since += steps
                self._now_ms += steps * self._step_ms
                if not steps:
                    self._left_ms = self._step_ms

    def _finish(self) -> None:
        """The step or the stall underway is over."""
        if self._stalling:
            self._stalling = False
            self._save(self._now_ms - self._course.stalls_ms, self._now_ms + self._course.written_ms)
        else:
            self._steps += 1
            self._since += 1

    def _save(self, begun_ms: int, whole_ms: int) -> None:
        self._since = 0
        self._checkpoints.append(_Checkpoint(self._steps, begun_ms, whole_ms))
        kept = self._course.kept
        while len(self._checkpoints) > kept and self._checkpoints[kept].whole_ms <= self._now_ms:
            del self._checkpoints[0]

    # ---------------------------------------------------------------- stopping

    def _recovery(self, cause: Cause) -> list[_Ahead]:
        self._find_slow()
        return [_Ahead(SELF_CHECK, self._course.self_check_ms, cause.name), *self._restart(cause)]

    def _find_slow(self) -> None:
        """A self-check is to come, which finds what is slow."""
        causes = self._course.causes
        self._broken += sum(causes[one[2]].hosts for one in self._notices if causes[one[2]].shows == "slow")
        self._notices = [one for one in self._notices if causes[one[2]].shows == "silent"]
        heapq.heapify(self._notices)
        self._step_ms, self._slowed_by = self._course.step_ms, ""

    def _planned(self) -> list[_Ahead]:
        """Work that somebody has begun, or is about to."""
        return [one for one in self._ahead if one.phase == PLANNED]

    def _restart(self, cause: Cause) -> list[_Ahead]:
        """The wait for spare hosts has a length once it begins."""
        phases = ((WAITING, _UNKNOWN), (INIT, self._course.init_ms), (LOADING, self._course.loads_ms))
        return [_Ahead(phase, length_ms, cause.name) for phase, length_ms in phases]

    def _save_and_stop(self, cause: Cause, then: list[_Ahead]) -> None:
        """Stop after a checkpoint; the step underway is lost."""
        self._stand_still()
        length_ms = self._course.stalls_ms + self._course.written_ms
        self._save(self._now_ms, self._now_ms + length_ms)
        self._ahead = [_Ahead(CHECKPOINT, length_ms, cause.name), *then]

    def _break_off(self) -> None:
        """Back to the newest checkpoint that is whole now."""
        self._stand_still()
        while self._checkpoints[-1].whole_ms > self._now_ms:
            self._checkpoints.pop()
        self._go_back()

    def _notice(self, notice: tuple[int, int, int]) -> None:
        _, began_ms, place = notice
        self.cut()
        cause = self._course.causes[place]
        self._broken += cause.hosts
        if cause.shows == "slow":
            self._save_and_stop(cause, self._recovery(cause))
            return
        self._stand_still()
        while self._checkpoints and self._checkpoints[-1].begun_ms > began_ms:
            self._checkpoints.pop()
        if not self._checkpoints:
            self._checkpoints = [_Checkpoint(0, 0, 0)]
        self._go_back()
        self._ahead = self._recovery(cause)

    def _stand_still(self) -> None:
        self._left_ms, self._stalling = 0, False

    def _go_back(self) -> None:
        """To the newest checkpoint; what was corrupted after it is undone."""
        newest = self._checkpoints[-1]
        self._steps = self._steps_from = newest.steps
        self._since = 0
        wrong = [one for one in self._notices if self._course.causes[one[2]].shows == "silent"]
        undone = [one for one in wrong if one[1] >= newest.begun_ms]
        self._notices = [one for one in self._notices if one not in undone]
        heapq.heapify(self._notices)

    # ---------------------------------------------------------------- standing still

    def _stand(self, limit_ms: int) -> None:
        """Spend what is ahead, up to a time."""
        first = self._ahead[0]
        if first.length_ms == _UNKNOWN:
            self._ahead[0:1] = self._replacing(first.cause)
            return
        spent_ms = min(first.length_ms, limit_ms - self._now_ms)
        self._now_ms += spent_ms
        self._ahead[0] = first._replace(length_ms=first.length_ms - spent_ms)
        if spent_ms < first.length_ms:
            return
        self.cut()
        del self._ahead[0]
        if first.phase == REPLACING:
            self._return_repaired()
            self._spares -= self._vacant
            self._vacant = 0

    def _replacing(self, cause: str) -> list[_Ahead]:
        """Broken hosts go to repair; then the wait for spare ones enough, and their taking over."""
        for _ in range(self._broken):
            heapq.heappush(self._repaired_ms, self._now_ms + self._course.repaired_ms)
        self._vacant += self._broken
        self._broken = 0
        if not self._vacant:
            return []
        self._return_repaired()
        replacing = _Ahead(REPLACING, self._course.replace_ms, cause)
        short = self._vacant - self._spares
        if short <= 0:
            return [replacing]
        wait_ms = heapq.nsmallest(short, self._repaired_ms)[-1] - self._now_ms
        return [_Ahead(WAITING, wait_ms, cause), replacing]

    def _return_repaired(self) -> None:
        while self._repaired_ms and self._repaired_ms[0] <= self._now_ms:
            heapq.heappop(self._repaired_ms)
            self._spares += 1

    def cut(self) -> None:
        """The row underway ends here."""
        if self._now_ms > self._begun_ms:
            phase, cause = (self._ahead[0].phase, self._ahead[0].cause) if self._ahead else (TRAINING, "")
            if phase == TRAINING and self._slowed_by:
                phase, cause = SLOWED, self._slowed_by
            span = self._begun_ms, self._now_ms
            self.rows.append(Row(*span, phase, cause, self._steps_from, self._steps, self._stalled_ms))
        self._begun_ms = self._now_ms
        self._steps_from = self._steps
        self._stalled_ms = 0
