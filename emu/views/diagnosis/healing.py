"""What healing a suspect gives back, and who is accused of that.

Suspects come from symptoms; whether one had an impact is found by emulating the same run with that component
as built (`emu.views.repairs.counterfactual`). One whose healing gives back nothing is not accused. What
counts is a job's time, a job that then ends well, and counters that an operator is called for, each by the
measure of `emu.views.diagnosis.impact`.

A suspected job is left out in place of healed; there, only the time of the others counts, since what it
counted itself is gone with it.

1. Up to `MOST_HEALED` suspects are healed one by one, the most direct evidence first. Of more, groups are
   healed together, those that can cost most first (`emu.views.diagnosis.costs`), and those that give
   something back are halved until single ones are left.
2. More jobs than that are left out in halves, split so that any two jobs are in different halves once: one
   may cost another time that is in the same half. Halves that give something back are halved again.
3. Beside those that give something back, the others are healed too: one may hide another. What that gives
   back beyond the first is theirs. This goes on as long as it gives more. Jobs beside a component that gives
   something back are tried so as well: without the job, nothing meets that component. Timers that are too
   short are accused beside components only of what they still cost with those healed: else they expired
   because of them.
4. Where all that is suspected is a difference from the fleet (`emu.views.diagnosis.fleet`), all are healed at
   once before: on a fabric that is meant to differ that mostly gives back nothing, and is one run.
5. Of three jobs that met or more, all but one are left out, for each: several may cost it time that none
   of them costs alone. Those that are needed for that are found by halves.
6. A run that lost packets or their order is chaotic (`emu.views.diagnosis.chaos`): there, a gain has to stand
   with NICs that are each some nanoseconds slower, in both of the runs that are compared. A job that
   lost a GPU or a server is mended with that as built, also where it fails of a link instead.
7. If none gives back time alone, or mends no job that failed, all are healed at once, and those without which
   that gives back as much are let go: each of several faults may be enough to stop a job, or to slow it. A
   count stands for no time: one less port that went down is no reason to stop looking. What gives back
   something alone is accused too if it still does with those healed. The same is tried beside those that
   give back time alone.
8. What is left beyond the time on the intended fabric once everybody accused is healed is reported.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from math import inf
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol

from actors.kernel.counters import NIC_LOCAL_ACK_TIMEOUT_ERR, NIC_OUT_OF_SEQUENCE
from emu.base.units import about_time, distinct_texts
from emu.results.summary import Counterfactual
from emu.views.diagnosis.chaos import stands
from emu.views.diagnosis.finding import (
    BIT_ERRORS,
    CONTENTION,
    EVERYTHING,
    EVIDENCE,
    GIVEN,
    ODD,
    TIMER_SHORT,
    Finding,
)
from emu.views.diagnosis.impact import risen

MOST_HEALED: Final = 5
MOST_PAIRED: Final = 16
"""Jobs that are left out one by one beside what is accused already, and jobs for which all others are."""
MOST_NAMED: Final = 4
"""Components that one sentence names; of more, the number of the rest."""


class Emulate(Protocol):
    """The run with suspects healed, each NIC slower by up to so many ns; None where that cannot be, or would
    take too long."""

    def __call__(self, suspects: Sequence[Finding], /, nudge_ns: int = 0) -> Counterfactual | None:
        """That run."""


class Gain(NamedTuple):
    """What one run has over another."""

    job: str = ""
    """The job that gains most, by share; empty where none does."""
    before_ps: int = 0
    after_ps: int = 0
    mended: tuple[str, ...] = ()
    """Jobs that failed, or came to no end, and do not any more."""
    under_way: tuple[str, ...] = ()
    """Those of them that were not done when the comparison was broken off."""
    unfinished: tuple[str, ...] = ()
    """Those of them that did not fail, and were not done when the run ended."""
    until_ps: int = 0
    """When that was."""
    alarms: tuple[str, ...] = ()
    """Counters that an operator is called for and that rise less."""
    behind: bool = False
    """Whether the job is one that nobody waits for."""

    @property
    def back_ps(self) -> int:
        """What it gives back of the job's time."""
        return self.before_ps - self.after_ps

    @property
    def share(self) -> float:
        """The same as a share of the time that the job took."""
        return round(self.back_ps / self.before_ps, 6) if self.before_ps else 0.0

    @property
    def slower(self) -> bool:
        """Whether the job took so much longer that it is an impact."""
        return risen(self.before_ps, self.after_ps)

    @property
    def timely(self) -> bool:
        """Whether it gives back time, or mends a job: a count stands for neither."""
        return self.slower or bool(self.mended)

    @property
    def worthwhile(self) -> bool:
        """Whether that is an impact undone."""
        return self.timely or bool(self.alarms)

    def order(self) -> tuple[bool, bool, float, int]:
        """Gains sorted by this come with the largest first; of jobs that nobody waits for, last."""
        return not self.mended, self.behind, -self.share, -len(self.alarms)

    def words(self) -> str:
        """In words."""
        parts: list[str] = []
        well = [name for name in self.mended if name not in self.under_way]
        not_done = [name for name in well if name in self.unfinished]
        if well[len(not_done) :]:
            parts.append(f"{' and '.join(one for one in well if one not in not_done)} would not fail")
        if not_done:
            parts.append(f"{' and '.join(not_done)} would come to an end")
        if self.under_way:
            parts.append(f"{' and '.join(self.under_way)} did not fail within {about_time(self.until_ps)}")
        if self.job and self.slower:
            times = " in place of ".join(distinct_texts([self.after_ps, self.before_ps], about_time))
            parts.append(f"{self.job} would take {times}: {about_time(self.back_ps)} ({self.share:.1%}) back")
        return ", ".join(parts or self.alarms) or "nothing back"


class Accused(NamedTuple):
    """A suspect, what healing it gives back, and what else has to be healed for that."""

    finding: Finding
    gain: Gain | None = None
    """None where nobody was healed."""
    beside: tuple[Finding, ...] = ()
    shared: Mapping[str, float] = MappingProxyType({})
    """Ports of a job that was left out, and its share of what crossed them."""
    notes: tuple[str, ...] = ()
    """What is to be said beside it."""

    def beside_of(self, lines: Sequence[str]) -> Accused:
        """The same with lines to be said beside it."""
        return self._replace(notes=(*self.notes, *lines))

    def order(self) -> tuple[bool, bool, float, int]:
        """Sorted by this, what gives back most comes first."""
        assert self.gain is not None
        return self.gain.order()

    @property
    def gain_of(self) -> str:
        """The job that gains most time; empty if none does."""
        return "" if self.gain is None else self.gain.job

    @property
    def gains_a_job(self) -> bool:
        """Whether healing it mends a job."""
        return self.gain is not None and bool(self.gain.mended)

    @property
    def ends_a_job(self) -> bool:
        """Whether a job that failed comes to its end with it healed, within the time of the comparison."""
        return self.gain is not None and any(one not in self.gain.under_way for one in self.gain.mended)

    @property
    def gains_time(self) -> bool:
        """Whether healing it gives back time, or mends a job."""
        return self.gain is not None and self.gain.timely

    def words(self) -> str:
        """What healing gives back."""
        assert self.gain is not None
        if self.finding.cause == CONTENTION:
            several = any(one.cause == CONTENTION for one in self.beside)
            whose = "theirs" if several else f"{self.finding.place}'s"
            ports = ", ".join(f"{port} ({share:.0%} of it {whose})" for port, share in self.shared.items())
            built = "".join(
                f" and {one.place}" if one.cause == CONTENTION else f" and with {_as_it_should_be(one)}"
                for one in sorted(self.beside, key=lambda one: one.cause != CONTENTION)
            )
            met = f"; they meet at {ports}" if ports else ""
            return f"without {self.finding.place}{built}, {self.gain.words()}{met}"
        if not self.beside:
            return f"with {_as_it_should_be(self.finding)}, {self.gain.words()}"
        healed = dict.fromkeys(_as_it_should_be(one) for one in (self.finding, *self.beside))
        return f"with {_together_as_they_should_be(healed)}, {self.gain.words()}"


def _together_as_they_should_be(healed: Iterable[str]) -> str:
    """Several suspects as they are where they are healed; of many, how many more."""
    some = list(healed)
    more = len(some) - MOST_NAMED if len(some) > MOST_NAMED + 1 else 0
    some = some[: len(some) - more]
    equal = [one.removesuffix(AS_BUILT) for one in some if one.endswith(AS_BUILT)]
    tail = f" and {more} more" if more else ""
    if len(equal) == len(some):
        return f"{' and '.join(equal)}{tail}{AS_BUILT}"
    return f"{' and '.join(some)}{tail}"


AS_BUILT: Final = " as built"


def _as_it_should_be(one: Finding) -> str:
    """A suspect as it is where it is healed."""
    if one.setting[0]:
        return ": ".join(one.setting)
    if one.cause == TIMER_SHORT:
        return "transport.timeout 20"
    if one.cause == BIT_ERRORS:
        return "no bit errors"
    if one.cause == GIVEN:
        return f"{one.place} as fast as the other ranks"
    return f"{one.place} as its peers" if one.cause == ODD else f"{one.place}{AS_BUILT}"


class Run(NamedTuple):
    """What a run came to."""

    times: Mapping[str, int]
    """Times of jobs that ended well, in ps."""
    failed: Mapping[str, str]
    """The status of each job that failed, or came to no end."""
    alarms: Mapping[str, int]
    under_way: Sequence[str] = ()
    """Jobs that were not done when it ended or was broken off."""
    until_ps: int = 0
    behind: frozenset[str] = frozenset()
    """Jobs that nobody waits for, such as a checkpoint beside training."""

    def only(self, job: str) -> Run:
        """The same of one job, without what was counted."""
        times = {job: self.times[job]} if job in self.times else {}
        failed = {job: self.failed[job]} if job in self.failed else {}
        return self._replace(times=times, failed=failed, alarms={})

    @property
    def chaotic(self) -> bool:
        """Whether packets came out of sequence or timers expired: small changes have large effects."""
        return bool(self.alarms.get(NIC_OUT_OF_SEQUENCE) or self.alarms.get(NIC_LOCAL_ACK_TIMEOUT_ERR))


def gain(before: Run, after: Run) -> Gain:
    """What `after` has over `before`."""
    best = Gain()
    for name, took_ps in before.times.items():
        one = Gain(name, took_ps, after.times.get(name, took_ps), behind=name in before.behind)
        worse = (not best.slower, best.behind, -best.share) if best.job else (True, True, 0.0)
        if one.back_ps > 0 and (not one.slower, one.behind, -one.share) < worse:
            best = one
    mended = tuple(name for name in before.failed if name not in after.failed)
    rises = tuple(
        f"{name} {after.alarms.get(name, 0)} in place of {count}"
        for name, count in before.alarms.items()
        if risen(count, after.alarms.get(name, 0))
    )
    under_way = tuple(name for name in mended if name in after.under_way)
    unfinished = tuple(name for name in mended if name in before.under_way)
    return best._replace(
        mended=mended, under_way=under_way, unfinished=unfinished, until_ps=after.until_ps, alarms=rises
    )


def _one_by_one(
    run: Run,
    group: Sequence[Finding],
    emulate: Emulate,
    tried: list[_Tried],
    beside: Sequence[Finding] = (),
) -> None:
    """Heal a group as one, and what is to be healed `beside` it; where that gives something back, or cannot
    be, its halves."""
    found = emulate((*beside, *group))
    if len(group) == 1 or (found is not None and not gain(run, _run(found, run)).worthwhile):
        tried += [_Tried(one, found, together=len(group) > 1) for one in group]
        return
    half = len(group) // 2
    _one_by_one(run, group[:half], emulate, tried, beside)
    _one_by_one(run, group[half:], emulate, tried, beside)


class _Tried(NamedTuple):
    """A suspect and the run with it healed; None where there is none."""

    finding: Finding
    found: Counterfactual | None
    together: bool
    """Whether it was one of a group that gave nothing back."""


def _jobs_in_halves(run: Run, jobs: Sequence[Finding], emulate: Emulate, tried: list[_Tried]) -> None:
    """Leave out many jobs in halves. In each split a job is in one of two halves by a digit of its place, so
    any two are apart once, and what one costs the other shows."""
    known: dict[str, _Tried] = {}
    for digit in range((len(jobs) - 1).bit_length()):
        for side in (0, 1):
            half = [one for place, one in enumerate(jobs) if place >> digit & 1 == side]
            answers: list[_Tried] = []
            _one_by_one(run, half, emulate, answers)
            for one in answers:
                if one.finding.key not in known or not one.together:
                    known[one.finding.key] = one
    tried += known.values()


def accused(
    run: Run, suspects: Sequence[Finding], emulate: Emulate, costs: Mapping[str, int] = MappingProxyType({})
) -> tuple[list[Accused], list[Finding], int]:
    """Those whose healing gives something back, the most first; those that could not be healed; and how many
    were not compared since that would take too many events.

    `suspects` have the most direct evidence first; `costs` is by key how much time each can cost at most.
    """
    if len(suspects) > 1 and all(one.cause == ODD for one in suspects):
        equal = emulate(suspects)
        if equal is not None and not gain(run, _run(equal, run)).worthwhile:
            return [], [], 0
    jobs = [one for one in suspects if one.cause == CONTENTION]
    parts = [one for one in suspects if one.cause not in (CONTENTION, *EVIDENCE[:1], *EVIDENCE[2:])]
    known = _healed_alone(run, jobs, parts, emulate, costs)
    tried: list[tuple[Finding, Run]] = []
    beyond: list[Finding] = []
    shared: dict[str, Mapping[str, float]] = {}
    untried = 0
    for one in suspects:
        answer = known.get(one.key)
        found = None if answer is None else answer.found
        if answer is None or found is None:
            beyond.append(one)
            untried += answer is not None and bool(getattr(emulate, "exhausted", False))
        else:
            tried.append((one, run if answer.together else _run(found, run)))
            shared[one.key] = found.shared
    alone = sorted(((gain(run, healed), one) for one, healed in tried), key=lambda pair: pair[0].order())
    guilty = [Accused(one, back, (), shared[one.key]) for back, one in alone if back.worthwhile]
    none_alone = not guilty
    if run.chaotic:
        guilty = _that_stand(guilty, run, emulate)
    if not any(one.gains_time for one in guilty) or (
        run.failed and not any(one.gains_a_job for one in guilty)
    ):
        together = _together(run, [one for one, _ in tried], emulate, timely=not none_alone)
        if together:
            return together + _beside(run, together, guilty, shared, emulate), beyond, untried
    guilty = [one for one in guilty if one.finding.cause != CONTENTION] or guilty
    components = [one for one in guilty if one.finding.cause not in (TIMER_SHORT, CONTENTION)]
    if components:
        timers = [Accused(one) for one, _ in tried if one.cause == TIMER_SHORT]
        others = [one for one, _ in tried if one.cause != TIMER_SHORT]
        suffices = [one for one in guilty if one.finding.cause == TIMER_SHORT and one.ends_a_job]
        guilty = [one for one in guilty if one.finding.cause != TIMER_SHORT]
        guilty = _once(guilty, _hidden(run, others, guilty, shared, emulate))
        guilty += suffices or _beside(run, guilty, timers, shared, emulate)
    else:
        guilty = _once(guilty, _hidden(run, [one for one, _ in tried], guilty, shared, emulate))
    crowds = _crowds(run, jobs, tried, guilty, costs, emulate)
    return _with_crowds(guilty, crowds) if crowds else guilty, beyond, untried


def _once(known: Sequence[Accused], more: Sequence[Accused]) -> list[Accused]:
    """Both, without those of the first that gave back counts there and time in the second."""
    timely = [one.finding for one in more if one.gains_time]
    kept = [one for one in known if one.gains_time or one.finding not in timely]
    return sorted((*kept, *more), key=lambda one: not one.gains_time)


def _healed_alone(
    run: Run,
    jobs: Sequence[Finding],
    parts: Sequence[Finding],
    emulate: Emulate,
    costs: Mapping[str, int],
) -> dict[str, _Tried]:
    """By key, what healing a suspect comes to; of many, what can cost most is healed first."""
    known: list[_Tried] = []
    for group in (parts, jobs):
        by_cost = sorted(group, key=lambda one: -costs.get(one.key, 0))
        if len(group) <= MOST_HEALED:
            for one in by_cost:
                _one_by_one(run, [one], emulate, known)
        elif group is jobs:
            _jobs_in_halves(run, by_cost, emulate, known)
        else:
            _one_by_one(run, by_cost, emulate, known)
    return {one.finding.key: one for one in known}


def _stands(
    more: Gain, run: Run, before: Sequence[Finding], healed: Sequence[Finding], emulate: Emulate
) -> bool:
    """Whether what the second group healed gives back beyond the first is there at nearby delays, too."""
    found, whole = emulate(healed), emulate(before) if before else None
    if found is None or (before and whole is None):
        return True
    if not _run(found, run).chaotic:
        return True  # what was lost was lost by what is healed

    def at(group: Sequence[Finding], nudge_ns: int) -> float | None:
        near = emulate(group, nudge_ns)
        return None if near is None else _value_of(more, run, _run(near, run), group)

    return stands(
        lambda nudge_ns: at(before, nudge_ns),
        lambda nudge_ns: at(healed, nudge_ns),
        _value_of(more, run, run if whole is None else _run(whole, run), before),
        _value_of(more, run, _run(found, run), healed),
    )


def _that_stand(found: Sequence[Accused], run: Run, emulate: Emulate) -> list[Accused]:
    """Those whose gain stands; of one whose time does not, the counters, if those do."""
    left = []
    for one in found:
        assert one.gain is not None
        counted = one.gain._replace(job="", before_ps=0, after_ps=0)
        for more in (one.gain, counted) if counted.worthwhile else (one.gain,):
            if _stands(more, run, one.beside, (*one.beside, one.finding), emulate):
                left.append(one._replace(gain=more))
                break
    return left


def _value_of(gained: Gain, run: Run, nearby: Run, healed: Sequence[Finding]) -> float:
    """What a gain is measured by in a run at a nearby delay: the mended jobs that fail there; the time of the
    job that gains, for ever where it fails; or how often the counters rise that rise less. A job that a lost
    GPU or server ended is mended with that as built, also where it then fails of something else.
    """
    if gained.mended:
        ended_by = {one.cause for one in healed}
        fails = [name for name in gained.mended if name in nearby.failed]
        mended = [name for name in fails if nearby.failed[name] != run.failed[name] in ended_by]
        return 1.0 + len(fails) - len(mended)
    if gained.slower:
        return inf if gained.job in nearby.failed else float(nearby.times.get(gained.job, 0))
    return float(sum(nearby.alarms.get(line.partition(" ")[0], 0) for line in gained.alarms))


def _hidden(
    run: Run,
    suspects: Sequence[Finding],
    guilty: Sequence[Accused],
    shared: Mapping[str, Mapping[str, float]],
    emulate: Emulate,
) -> list[Accused]:
    """Those that give something back once the one that gives back most is healed, or once more are; last,
    those of the others that give back time together. A suspect that gave back counts alone may give back time
    here.
    """
    found: list[Accused] = []
    base = [one.finding for one in guilty[:1]]
    while base:
        before = emulate(base)
        rest = _not_yet(suspects, (*guilty, *found))
        rest = [one for one in rest if one not in base]
        if before is None or not rest:
            break
        healed = _run(before, run)
        counted = [one.finding for one in (*guilty, *found) if not one.gains_time]
        answers: list[_Tried] = []
        jobs = [one for one in rest if one.cause == CONTENTION]
        parts = [one for one in rest if one.cause != CONTENTION]
        groups = [[one] for one in jobs[:MOST_PAIRED]]
        groups += [parts] if len(parts) > MOST_HEALED else [[one] for one in parts]
        for group in groups:
            _one_by_one(healed, group, emulate, answers, base)
        gains = [
            Accused(one.finding, more, tuple(base), shared[one.finding.key])
            for one in answers
            if not one.together
            and (more := _more(healed, one.found)).worthwhile
            and (more.timely or one.finding not in counted)
        ]
        if run.chaotic:
            gains = _that_stand(gains, run, emulate)
            gains = [one for one in gains if one.gains_time or one.finding not in counted]
        if not gains:
            break
        gains.sort(key=Accused.order)
        found += gains
        base.append(gains[0].finding)
    return found + _joint(run, suspects, (*guilty, *found), emulate)


def _not_yet(suspects: Sequence[Finding], known: Sequence[Accused]) -> list[Finding]:
    """The suspects that gave back no time so far."""
    timely = [one.finding for one in known if one.gains_time]
    return [one for one in suspects if one not in timely and one.cause not in EVIDENCE]


def _joint(
    run: Run, suspects: Sequence[Finding], known: Sequence[Accused], emulate: Emulate
) -> list[Accused]:
    """Those of the other components that give back time together, beside all that gave back some: each of
    them may be enough to cost it."""
    base = tuple(dict.fromkeys(one.finding for one in known if one.gains_time))
    others = [one for one in _not_yet(suspects, known) if one.cause not in (CONTENTION, TIMER_SHORT)]
    before = emulate(base) if base and len(others) > 1 else None
    if before is None:
        return []
    healed = _run(before, run)
    more = _more(healed, emulate((*base, *others)))
    if not more.timely:
        return []
    needed = list(others)
    _let_go(healed, needed, others, more, emulate, base)
    more = _more(healed, emulate((*base, *needed)))
    if run.chaotic and not _stands(more, run, base, (*base, *needed), emulate):
        return []
    return [Accused(one, more, (*base, *(other for other in needed if other is not one))) for one in needed]


def _beside(
    run: Run,
    together: Sequence[Accused],
    guilty: Sequence[Accused],
    shared: Mapping[str, Mapping[str, float]],
    emulate: Emulate,
) -> list[Accused]:
    """Those of `guilty` that still give something back once `together` are healed as well."""
    base = [one.finding for one in together if one.finding.cause != CONTENTION]
    others = [one for one in guilty if one.finding not in base]
    healed = emulate(base)
    if healed is None:
        return others
    before = _run(healed, run)
    found = []
    for one in others:
        more = _more(before, emulate((*base, one.finding)))
        if more.worthwhile:
            found.append(Accused(one.finding, more, tuple(base), shared[one.finding.key]))
    return _that_stand(found, run, emulate) if run.chaotic else found


def _crowds(
    run: Run,
    jobs: Sequence[Finding],
    tried: Sequence[tuple[Finding, Run]],
    guilty: Sequence[Accused],
    costs: Mapping[str, int],
    emulate: Emulate,
) -> list[Accused]:
    """Of three jobs or more, those that only together cost another job time: for each, all others are left
    out once, and where that gives it back more than leaving out any one, those that are needed for it are
    found by halves. Jobs that waited longest come first.
    """
    if len(jobs) < 3:
        return []
    base = tuple(one.finding for one in guilty if one.finding.cause != CONTENTION and one.gains_time)
    known = emulate(base) if base else None
    if base and known is None:
        return []
    healed = run if known is None else _run(known, run)
    waited = {
        one.key: costs.get(one.key, 0) - healed.times.get(one.place, costs.get(one.key, 0)) for one in jobs
    }
    found: list[Accused] = []
    for victim in sorted(jobs, key=lambda one: waited[one.key])[:MOST_PAIRED]:
        own = healed.only(victim.place)
        others = [one for one in jobs if one is not victim]
        answer = emulate((*base, *others))
        more = _more(own, answer)
        alone = (
            [] if base else [gain(own, one.only(victim.place)) for finding, one in tried if finding in others]
        )
        if answer is None or not more.timely or any(_as_good(one, more) for one in alone):
            continue
        needed = list(others)
        _let_go(own, needed, others, more, emulate, base)
        answer = emulate((*base, *needed))
        more = _more(own, answer)
        if answer is None or (run.chaotic and not _stands(more, run, base, (*base, *needed), emulate)):
            continue
        for one in needed:
            beside = (*base, *(other for other in needed if other is not one))
            found.append(Accused(one, more, beside, answer.shared))
    return found


def _with_crowds(guilty: Sequence[Accused], crowds: Sequence[Accused]) -> list[Accused]:
    """Each finding once, with its largest gain; gains of other jobs are said beside the first."""
    best: dict[str, Accused] = {}
    beside: dict[str, Gain] = {}
    for one in sorted((*crowds, *guilty), key=Accused.order):
        assert one.gain is not None
        if one.finding.key not in best:
            best[one.finding.key] = one
        elif one.finding.cause == CONTENTION and one.beside and one.gain.job != best[one.finding.key].gain_of:
            beside.setdefault(one.words(), one.gain)
    named = {one.gain_of for one in best.values()}
    first, *rest = best.values()
    return [first.beside_of([words for words, more in beside.items() if more.job not in named]), *rest]


def _together(run: Run, suspects: Sequence[Finding], emulate: Emulate, *, timely: bool) -> list[Accused]:
    """Those that have to be healed together: all components, or the likeliest pair, that give something back
    as a whole; that has to be time where `timely`, and where a job failed best that it does not. Suspects
    that this does not need are left out.
    """
    parts = tuple(one for one in suspects if one.cause != CONTENTION)
    groups: list[Sequence[Finding]] = [parts] if len(parts) > 1 else []
    groups += combinations(suspects[:MOST_HEALED], 2)
    chosen: Sequence[Finding] = ()
    whole = Gain()
    for group in groups:
        more = _more(run, emulate(group))
        if not chosen and (more.timely or (more.worthwhile and not timely and not run.failed)):
            chosen, whole = group, more
        if more.mended:
            chosen, whole = group, more
        if chosen and (whole.mended or not run.failed):
            break
    if not chosen:
        return []
    needed = list(chosen)
    _let_go(run, needed, chosen, whole, emulate)
    if len(needed) < 2:  # what the others add is no impact by itself, nor is what this one gives back
        most = _more(run, emulate(needed))
        if timely and most.back_ps * 4 >= whole.back_ps * 3:
            return []
        needed = list(chosen)
    whole = _more(run, emulate(needed))
    if run.chaotic and not _stands(whole, run, (), needed, emulate):
        return []
    return [Accused(one, whole, tuple(other for other in needed if other is not one)) for one in needed]


def _let_go(
    run: Run,
    needed: list[Finding],
    group: Sequence[Finding],
    whole: Gain,
    emulate: Emulate,
    beside: Sequence[Finding] = (),
) -> None:
    """Take those of a group off `needed` without which healing the others gives back as much, the least
    likely first; `beside` is healed in any case."""
    left = [one for one in needed if one not in group]
    found = emulate((*beside, *left)) if left else None
    if found is not None and _as_good(gain(run, _run(found, run)), whole):
        needed[:] = left
    elif len(group) > 1:
        half = len(group) // 2
        _let_go(run, needed, group[half:], whole, emulate, beside)
        _let_go(run, needed, group[:half], whole, emulate, beside)


def _as_good(one: Gain, whole: Gain) -> bool:
    """Whether one healing gives back as much as another, but for what is no impact."""
    if not set(whole.mended) <= set(one.mended):
        return False
    if whole.slower:
        return one.job == whole.job and not risen(one.after_ps, whole.after_ps)
    return bool(whole.mended) or len(one.alarms) >= len(whole.alarms)


def left_over(run: Run, guilty: Sequence[Accused], emulate: Emulate) -> list[str]:
    """What is still wrong with everybody accused healed, beside the intended fabric."""
    healed = [one.finding for one in guilty if one.finding.cause != CONTENTION and one.gain is not None]
    if not healed:
        return []
    found, intended = emulate(healed), emulate((EVERYTHING,))
    if found is None or intended is None:
        return []
    more = gain(_run(found, run), _run(intended, run))
    lines = []
    if more.slower:
        lines.append(
            f"{more.job} would still take {about_time(more.before_ps)}, "
            f"{about_time(more.after_ps)} on the intended fabric"
        )
    lines += [f"{name} would still fail" for name in more.mended]
    names = _together_as_they_should_be(dict.fromkeys(_as_it_should_be(one) for one in healed))
    return [f"with {names}, something else is left: {line}" for line in lines]


def _more(first: Run, found: Counterfactual | None) -> Gain:
    return Gain() if found is None else gain(first, _run(found, first))


def _run(found: Counterfactual, beside: Run) -> Run:
    """What a run came to, to be compared with another."""
    alarms = beside.alarms if found.left_out else found.alarms
    return Run(found.jobs, found.failed, alarms, found.under_way, found.until_ps, beside.behind)
