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

Recorded failures (`failures.log`) are replayed at their own times and hosts, or resampled: each host of the
job gets the record of a host of the log, drawn with replacement and shifted by a draw, over and over until
the campaign ends. So hosts that fail again and again, and the times between their failures, stay; that
several hosts failed at once does not. A host is a place in the job: a spare one takes over its record.

Everything is recorded as rows that follow one another without a gap, so that a reader can add them up again.
Draws depend on the seed and the cause's place alone, those of the log on the seed and the host's.

Not modelled: hosts that break while they are spare, checkpoints that are lost, a job that goes on with fewer
ranks, drawn failures that depend on one another (but `hosts` fail together).
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, NamedTuple

from actors.kernel.mixing import Stream
from emu.doors.weeks.campaign_file import UNITS_MS
from emu.doors.weeks.failure_log import FailureLog
from emu.doors.weeks.failure_tables import Shows
from emu.doors.weeks.sections import Campaign, CauseSection
from emu.scenario.faults.draws import exponential_gap

PURPOSE: Final = 1 << 22
"""Purpose of the random streams."""
HOST_PURPOSE: Final = 1 << 24
"""Purpose of the streams that draw which host a cause strikes."""
LOG_PURPOSE: Final = 1 << 25
"""Purpose of the streams that draw records of a log for the hosts of the job."""

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
    logged: bool = False
    """Its strikes are those of a log, at `per_ms` in the mean."""


class Hit(NamedTuple):
    """A cause strikes a host."""

    at_ms: int
    place: int
    """Number of the cause."""
    host: str = ""
    """The host that is struck, the first of several; empty if none is taken out."""
    hosts: int = -1
    """How many are taken out; -1: as many as the cause has."""
    repaired_ms: int = -1
    """Until they are back; -1: as long as any repair."""


class Logged(NamedTuple):
    """Recorded failures as the causes of a course, and how they are used."""

    by_host: tuple[tuple[Hit, ...], ...]
    """Hits of each host that failed."""
    of_none: tuple[Hit, ...]
    """Without a host."""
    hosts: int
    """That the log is of, those that never failed included."""
    lasts_ms: int
    times: Fraction
    """How many times as often as recorded."""
    replayed: bool


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
    gpus: int = 1
    job_hosts: int = 1
    """Hosts of the job."""
    log: Logged | None = None

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


def course_of(campaign: Campaign, every_ms: int | None = None, log: FailureLog | None = None) -> Course:
    """What a campaign goes by; `every_ms` between checkpoints in place of its own, if that is `auto`.

    As many whole steps between two checkpoints as come nearest to `every_ms`, and no fewer than it takes to
    write one.
    """
    step_ms = campaign.step.takes_ms
    drawn = campaign.failures.drawn()
    causes = [_cause(campaign, one, campaign.per_hour(one) / UNITS_MS["h"]) for one in drawn]
    logged = None if log is None else _logged(campaign, log, causes)
    if every_ms is None:
        assert campaign.checkpoint.every_ms is not None, "auto: the caller works it out"
        every_ms = campaign.checkpoint.every_ms
    written_ms = campaign.checkpoint.written_after_ms
    return Course(
        lasts_ms=campaign.lasts_ms,
        step_ms=step_ms,
        steps_between=max(round(Fraction(every_ms, step_ms)), -(-written_ms // step_ms), 1),
        stalls_ms=campaign.checkpoint.stalls_ms,
        written_ms=written_ms,
        loads_ms=campaign.checkpoint.loads_ms,
        kept=campaign.checkpoint.kept,
        self_check_ms=campaign.recovery.self_check_ms,
        replace_ms=campaign.recovery.replace_ms,
        init_ms=campaign.recovery.init_ms,
        repaired_ms=campaign.recovery.repaired_after_ms,
        spare_hosts=campaign.spares,
        causes=tuple(causes),
        gpus=campaign.gpus,
        job_hosts=campaign.hosts,
        log=logged,
    )


def _cause(campaign: Campaign, one: CauseSection, per_ms: Fraction, *, logged: bool = False) -> Cause:
    step_ms, detection = campaign.step.takes_ms, campaign.detection
    usual_ms = {
        "stop": detection.stop_ms,
        "hang": detection.hang_ms,
        "slow": detection.slow_ms,
        "silent": detection.silent_ms,
        "planned": 0,
    }
    return Cause(
        name=one.name,
        shows=one.shows,
        per_ms=per_ms,
        hosts=int(one.shows != "planned") if one.hosts is None else one.hosts,
        noticed_ms=usual_ms[one.shows] if one.noticed_after_ms is None else one.noticed_after_ms,
        slow_step_ms=-(-step_ms // (1 - one.slower_by)) if one.shows == "slow" else step_ms,
        takes_ms=one.takes_ms if one.shows == "planned" else 0,
        logged=logged,
    )


def _logged(campaign: Campaign, log: FailureLog, causes: list[Cause]) -> Logged:
    """The failures of a log; its causes are added to the others'."""
    failures = campaign.failures
    hosts = failures.log_hosts or max(campaign.hosts, len(log.hosts))
    lasts_ms = failures.log_lasts_ms or log.lasts_ms
    described = {one.name: one for one in failures.causes if one.per_hour is None}
    share = (
        Fraction(1) if failures.log_use == "replayed" else Fraction(campaign.hosts, hosts) * failures.times
    )
    counts = Counter(one.cause for one in log.records)
    places: dict[str, int] = {}
    for name in log.causes:
        places[name] = len(causes)
        section = described.get(name) or CauseSection(name=name, shows="stop")
        causes.append(_cause(campaign, section, counts[name] * share / lasts_ms, logged=True))
    by_host: dict[str, list[Hit]] = {}
    for one in log.records:
        place = places[one.cause]
        taken = causes[place].hosts if one.host else 0
        back_ms = -1 if one.repaired_after_ms is None else one.repaired_after_ms
        by_host.setdefault(one.host, []).append(Hit(one.at_ms, place, one.host, taken, back_ms))
    of_none = tuple(by_host.pop("", ()))
    known = tuple(tuple(one) for one in by_host.values())
    return Logged(known, of_none, hosts, lasts_ms, failures.times, failures.log_use == "replayed")


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
    """Time for which training stood still for checkpoints."""
    host: str = ""
    """The host that was struck; empty while it trains, and where the cause takes no host."""


class Strike(NamedTuple):
    """A cause struck."""

    at_ms: int
    cause: str
    host: str = ""


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
    noticed_ms: tuple[int, ...] = ()
    """Time to notice each failure that was noticed."""

    def recovered_ms(self, planned: Container[str]) -> list[int]:
        """How long each standstill by a failure lasted that was over by the end."""
        found: list[int] = []
        begun_ms = None
        failed = False
        for row in self.rows:
            if row.phase in (TRAINING, SLOWED):
                if begun_ms is not None and failed:
                    found.append(row.begin_ms - begun_ms)
                begun_ms, failed = None, False
            else:
                begun_ms = row.begin_ms if begun_ms is None else begun_ms
                failed = failed or row.cause not in planned
        return found

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


def strikes_of(course: Course, seed: int) -> list[Hit]:
    """All that strikes, in order of time and of causes."""
    drawn = (_drawn(one, place, seed, course) for place, one in enumerate(course.causes) if not one.logged)
    found = list(heapq.merge(*drawn))
    if course.log is not None:
        log = course.log
        hits = _replayed(log) if log.replayed else _resampled(log, seed, course)
        found = sorted([*found, *(one for one in hits if one.at_ms < course.lasts_ms)])
    return found


def _drawn(cause: Cause, place: int, seed: int, course: Course) -> Iterator[Hit]:
    stream = Stream(seed, place, PURPOSE)
    hosts = Stream(seed, place, HOST_PURPOSE)
    at_ms = 0
    while cause.per_ms:
        at_ms += exponential_gap(stream.draw62(), cause.per_ms)
        if at_ms >= course.lasts_ms:
            return
        struck = cause.hosts and cause.shows != "planned"
        yield Hit(at_ms, place, str(hosts.draw62() * course.job_hosts >> 62) if struck else "")


def _replayed(log: Logged) -> Iterator[Hit]:
    for hits in (*log.by_host, log.of_none):
        yield from hits


def _resampled(log: Logged, seed: int, course: Course) -> Iterator[Hit]:
    """For each host of the job a record of the log, drawn with replacement; then those of no host."""
    for host in range(course.job_hosts):
        stream = Stream(seed, host, LOG_PURPOSE)
        for _ in range(_copies(log.times, stream)):
            of = stream.draw62() * log.hosts >> 62
            shift_ms = stream.draw62() * log.lasts_ms >> 62
            if of < len(log.by_host):
                yield from _shifted(log.by_host[of], shift_ms, str(host), log.lasts_ms, course.lasts_ms)
    stream = Stream(seed, course.job_hosts, LOG_PURPOSE)
    for _ in range(_copies(log.times * course.job_hosts / log.hosts, stream)):
        shift_ms = stream.draw62() * log.lasts_ms >> 62
        yield from _shifted(log.of_none, shift_ms, "", log.lasts_ms, course.lasts_ms)


def _copies(mean: Fraction, stream: Stream) -> int:
    """A whole number that is `mean` in the mean."""
    whole = mean.numerator // mean.denominator
    return whole + (Fraction(stream.draw62(), 1 << 62) < mean - whole)


def _shifted(hits: Iterable[Hit], shift_ms: int, host: str, span_ms: int, lasts_ms: int) -> Iterator[Hit]:
    """A record from another time on, again and again until the end of the campaign."""
    for one in hits:
        for at_ms in range((one.at_ms - shift_ms) % span_ms, lasts_ms, span_ms):
            yield one._replace(at_ms=at_ms, host=host)


def weeks(course: Course, seed: int) -> Weeks:
    """One campaign from its first step to its end, with what the seed draws."""
    return followed(course, strikes_of(course, seed))


def followed(course: Course, strikes: Iterable[tuple[int, int]] | Iterable[Hit]) -> Weeks:
    """One campaign, with these strikes, in order: (time, place of the cause), or with their hosts."""
    job = _Job(course)
    hits = [one if isinstance(one, Hit) else Hit(*one) for one in strikes]
    for hit in hits:
        job.until(hit.at_ms)
        job.struck(hit)
    job.until(course.lasts_ms)
    struck = tuple(Strike(one.at_ms, course.causes[one.place].name, one.host) for one in hits)
    return Weeks(tuple(job.rows), struck, course.lasts_ms, course.step_ms, tuple(job.noticed_ms))


class _Ahead(NamedTuple):
    """A phase before the job goes on."""

    phase: str
    length_ms: int
    cause: str
    host: str = ""


class _Notice(NamedTuple):
    """A notice of what is slow or silent: when it is noticed, and what struck when."""

    at_ms: int
    hit: Hit


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
        """What is left of the step or stall underway; 0 between them."""
        self._stalling = False
        self._step_ms = course.step_ms
        self._slowed_by = self._slowed_host = ""
        self._checkpoints = [_Checkpoint(0, 0, 0)]
        self._ahead: list[_Ahead] = []
        self._broken: list[int] = []
        """How long each repair takes of hosts that the next self-check finds."""
        self._vacant = 0
        """Places that await a spare host."""
        self._spares = course.spare_hosts
        self._repaired_ms: list[int] = []
        """When hosts come back, as a heap."""
        self._notices: list[_Notice] = []
        """Notices of what is slow or silent, as a heap."""
        self.noticed_ms: list[int] = []
        """Time to notice each failure that was noticed."""
        self._struck_ms = 0
        """The failure that nobody has noticed yet."""
        self._begun_ms = 0
        """When the row underway began."""
        self._steps_from = 0
        self._stalled_ms = 0

    def until(self, limit_ms: int) -> None:
        """Go on to a time."""
        while self._now_ms < limit_ms:
            if self._ahead:
                self._stand(limit_ms)
            elif self._notices and self._notices[0].at_ms <= self._now_ms:
                self._notice(heapq.heappop(self._notices).hit)
            else:
                self._train(min([limit_ms, *(one.at_ms for one in self._notices[:1])]))
        self.cut()

    def struck(self, hit: Hit) -> None:
        """A cause strikes now."""
        cause = self._course.causes[hit.place]
        next_phase = self._ahead[0].phase if self._ahead else TRAINING
        if cause.shows not in ("slow", "silent") or self._ahead:
            self._break(hit)
        if cause.shows == "planned":
            if not self._ahead:
                self._save_and_stop(hit, self._restart(hit))
            planned = _Ahead(PLANNED, cause.takes_ms, cause.name, hit.host)
            self._ahead.insert(int(next_phase == TRAINING), planned)
        elif cause.shows in ("stop", "hang"):
            if next_phase in (TRAINING, CHECKPOINT):
                self._break_off()
                self._struck_ms = self._now_ms
                notice = _Ahead(NOTICING, cause.noticed_ms, cause.name, hit.host)
                self._ahead = [notice, *self._planned(), *self._recovery(hit)]
            elif next_phase == NOTICING:
                sooner_ms = min(self._ahead[0].length_ms, cause.noticed_ms)
                self._ahead[0] = self._ahead[0]._replace(length_ms=sooner_ms)
            else:
                self._ahead = [*self._planned(), *self._recovery(hit)]
        elif not self._ahead:
            heapq.heappush(self._notices, _Notice(self._now_ms + cause.noticed_ms, hit))
            if cause.slow_step_ms > self._step_ms:
                self._step_ms, self._slowed_by = cause.slow_step_ms, cause.name
                self._slowed_host = hit.host

    def _break(self, hit: Hit) -> None:
        """Hosts are out of order, for the next self-check to find."""
        hosts = self._course.causes[hit.place].hosts if hit.hosts < 0 else hit.hosts
        repaired_ms = self._course.repaired_ms if hit.repaired_ms < 0 else hit.repaired_ms
        self._broken += [repaired_ms] * hosts

    def _shows(self, hit: Hit) -> Shows:
        return self._course.causes[hit.place].shows

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

    def _recovery(self, hit: Hit) -> list[_Ahead]:
        self._find_slow()
        name = self._course.causes[hit.place].name
        return [_Ahead(SELF_CHECK, self._course.self_check_ms, name, hit.host), *self._restart(hit)]

    def _find_slow(self) -> None:
        """A self-check is to come, which finds what is slow."""
        for one in self._notices:
            if self._shows(one.hit) == "slow":
                self._break(one.hit)
        self._notices = [one for one in self._notices if self._shows(one.hit) == "silent"]
        heapq.heapify(self._notices)
        self._step_ms = self._course.step_ms
        self._slowed_by = self._slowed_host = ""

    def _planned(self) -> list[_Ahead]:
        """Work that somebody has begun, or is about to."""
        return [one for one in self._ahead if one.phase == PLANNED]

    def _restart(self, hit: Hit) -> list[_Ahead]:
        """The wait for spare hosts has a length once it begins."""
        phases = ((WAITING, _UNKNOWN), (INIT, self._course.init_ms), (LOADING, self._course.loads_ms))
        name = self._course.causes[hit.place].name
        return [_Ahead(phase, length_ms, name, hit.host) for phase, length_ms in phases]

    def _save_and_stop(self, hit: Hit, then: list[_Ahead]) -> None:
        """Stop after a checkpoint; the step underway is lost."""
        self._stand_still()
        length_ms = self._course.stalls_ms + self._course.written_ms
        self._save(self._now_ms, self._now_ms + length_ms)
        name = self._course.causes[hit.place].name
        self._ahead = [_Ahead(CHECKPOINT, length_ms, name, hit.host), *then]

    def _break_off(self) -> None:
        """Back to the newest checkpoint that is whole now."""
        self._stand_still()
        while self._checkpoints[-1].whole_ms > self._now_ms:
            self._checkpoints.pop()
        self._go_back()

    def _notice(self, hit: Hit) -> None:
        self.cut()
        self.noticed_ms.append(self._now_ms - hit.at_ms)
        self._break(hit)
        if self._shows(hit) == "slow":
            self._save_and_stop(hit, self._recovery(hit))
            return
        self._stand_still()
        while self._checkpoints and self._checkpoints[-1].begun_ms > hit.at_ms:
            self._checkpoints.pop()
        if not self._checkpoints:
            self._checkpoints = [_Checkpoint(0, 0, 0)]
        self._go_back()
        self._ahead = self._recovery(hit)

    def _stand_still(self) -> None:
        self._left_ms, self._stalling = 0, False

    def _go_back(self) -> None:
        """To the newest checkpoint; what was corrupted after it is undone."""
        newest = self._checkpoints[-1]
        self._steps = self._steps_from = newest.steps
        self._since = 0
        wrong = [one for one in self._notices if self._shows(one.hit) == "silent"]
        undone = [one for one in wrong if one.hit.at_ms >= newest.begun_ms]
        self._notices = [one for one in self._notices if one not in undone]
        heapq.heapify(self._notices)

    # ---------------------------------------------------------------- standing still

    def _stand(self, limit_ms: int) -> None:
        """Spend what is ahead, up to a time."""
        first = self._ahead[0]
        if first.length_ms == _UNKNOWN:
            self._ahead[0:1] = self._replacing(first.cause, first.host)
            return
        spent_ms = min(first.length_ms, limit_ms - self._now_ms)
        self._now_ms += spent_ms
        self._ahead[0] = first._replace(length_ms=first.length_ms - spent_ms)
        if spent_ms < first.length_ms:
            return
        self.cut()
        del self._ahead[0]
        if first.phase == NOTICING:
            self.noticed_ms.append(self._now_ms - self._struck_ms)
        if first.phase == REPLACING:
            self._return_repaired()
            self._spares -= self._vacant
            self._vacant = 0

    def _replacing(self, cause: str, host: str) -> list[_Ahead]:
        """Broken hosts go to repair; then the wait for spare ones enough, and their taking over."""
        for repaired_ms in self._broken:
            heapq.heappush(self._repaired_ms, self._now_ms + repaired_ms)
        self._vacant += len(self._broken)
        self._broken = []
        if not self._vacant:
            return []
        self._return_repaired()
        replacing = _Ahead(REPLACING, self._course.replace_ms, cause, host)
        short = self._vacant - self._spares
        if short <= 0:
            return [replacing]
        wait_ms = heapq.nsmallest(short, self._repaired_ms)[-1] - self._now_ms
        return [_Ahead(WAITING, wait_ms, cause, host), replacing]

    def _return_repaired(self) -> None:
        while self._repaired_ms and self._repaired_ms[0] <= self._now_ms:
            heapq.heappop(self._repaired_ms)
            self._spares += 1

    def cut(self) -> None:
        """The row underway ends here."""
        if self._now_ms > self._begun_ms:
            if self._ahead:
                phase, cause, host = self._ahead[0].phase, self._ahead[0].cause, self._ahead[0].host
            else:
                phase, cause, host = TRAINING, self._slowed_by, self._slowed_host
                phase = SLOWED if cause else phase
            span = self._begun_ms, self._now_ms
            self.rows.append(Row(*span, phase, cause, self._steps_from, self._steps, self._stalled_ms, host))
        self._begun_ms = self._now_ms
        self._steps_from = self._steps
        self._stalled_ms = 0
