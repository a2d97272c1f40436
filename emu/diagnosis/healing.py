"""What healing a suspect gives back, and who is accused of that.

Suspects come from symptoms; whether one did harm is found by emulating the same run with that component as
built (`emu.counterfactual`). One whose healing gives back nothing is not accused. What counts is a job's
time, a job that then ends well, and counters that an operator is called for, each by the measure of
`emu.diagnosis.impact`.

A suspected job is left out in place of healed; there, only the time of the others counts, since what it
counted itself is gone with it.

1. Up to `MOST_HEALED` suspects are healed one by one, the most direct evidence first. Of more, groups are
   healed together, and those that give something back are halved until single ones are left.
2. Beside the one that gives back most, each other that gave back nothing is healed too: one may hide
   another. What that gives back beyond the first is the second's. So it is with a job where a component gives
   something back: without the job, nothing meets that component. And so with timers that are too short, if a
   component gives back as much: they wait for what that delays.
3. Where all that is suspected is a difference from the fleet (`emu.diagnosis.fleet`), all are healed at once
   before: on a fabric that is meant to differ that mostly gives back nothing, and is one run.
4. Of three jobs that met or more, pairs are left out too: each of two may hide the other.
5. A run that lost packets or their order is chaotic: a nanosecond moves its end by percents. There, a small
   gain has to stand with NICs that are a nanosecond slower, and two, in both of the runs that are compared.
6. If none gives back anything alone, or no job that failed, pairs are healed, the likeliest first, and then
   all: each of two faults may be enough to stop a job.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol

from actors.kernel.counters import NIC_LOCAL_ACK_TIMEOUT_ERR, NIC_OUT_OF_SEQUENCE
from emu.base.units import about_time
from emu.diagnosis.finding import BIT_ERRORS, CONTENTION, EVIDENCE, ODD, TIMER_SHORT, Finding
from emu.diagnosis.impact import risen
from emu.results.summary import Counterfactual

MOST_HEALED: Final = 5
MOST_PAIRED: Final = 16
"""Suspects, the likeliest, of which pairs are healed."""
NUDGES_NS: Final = (1, 2)
CERTAIN: Final = 0.25
"""A share of a job's time that no chaos gives back."""


class Emulate(Protocol):
    """The run with suspects healed, NICs slower by so many ns; None where that cannot be, or would take too
    long."""

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
        """Whether the job took so much longer that it is harm."""
        return risen(self.before_ps, self.after_ps)

    @property
    def worthwhile(self) -> bool:
        """Whether that is harm undone."""
        return self.slower or bool(self.mended) or bool(self.alarms)

    def order(self) -> tuple[bool, float, int]:
        """Gains sorted by this come with the largest first."""
        return not self.mended, -self.share, -len(self.alarms)

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
            times = f"{about_time(self.after_ps)} in place of {about_time(self.before_ps)}"
            parts.append(f"{self.job} would take {times}: {about_time(self.back_ps)} ({self.share:.1%}) back")
        return ", ".join(parts or self.alarms) or "nothing back"


class Accused(NamedTuple):
    """A suspect, what healing it gives back, and what else has to be healed for that."""

    finding: Finding
    gain: Gain | None = None
    """None where nobody was healed."""
    beside: tuple[Finding, ...] = ()
    shared: Mapping[str, float] = MappingProxyType({})
    """Of a job that was left out: ports, and its share of what crossed them."""
    notes: tuple[str, ...] = ()
    """What is to be said beside it."""

    def beside_of(self, lines: Sequence[str]) -> Accused:
        """The same with lines to be said beside it."""
        return self._replace(notes=(*self.notes, *lines))

    @property
    def gains_a_job(self) -> bool:
        """Whether healing it mends a job."""
        return self.gain is not None and bool(self.gain.mended)

    def words(self) -> str:
        """What healing gives back."""
        assert self.gain is not None
        if self.finding.cause == CONTENTION:
            ports = ", ".join(
                f"{port} ({share:.0%} of it {self.finding.place}'s)" for port, share in self.shared.items()
            )
            built = "".join(
                f" and {one.place}" if one.cause == CONTENTION else f" and with {_as_it_should_be(one)}"
                for one in sorted(self.beside, key=lambda one: one.cause != CONTENTION)
            )
            met = f"; they meet at {ports}" if ports else ""
            return f"without {self.finding.place}{built}, {self.gain.words()}{met}"
        if not self.beside:
            return f"with {_as_it_should_be(self.finding)}, {self.gain.words()}"
        healed = dict.fromkeys(_as_it_should_be(one) for one in (self.finding, *self.beside))
        alike = [one.removesuffix(AS_BUILT) for one in healed if one.endswith(AS_BUILT)]
        if len(alike) == len(healed):
            return f"with {' and '.join(alike)}{AS_BUILT}, {self.gain.words()}"
        return f"with {' and '.join(healed)}, {self.gain.words()}"


AS_BUILT: Final = " as built"


def _as_it_should_be(one: Finding) -> str:
    """A suspect as it is where it is healed."""
    if one.cause == TIMER_SHORT:
        return "transport.timeout 20"
    if one.cause == BIT_ERRORS:
        return "no bit errors"
    return f"{one.place} as its peers" if one.cause == ODD else f"{one.place}{AS_BUILT}"


class Run(NamedTuple):
    """What a run came to."""

    times: Mapping[str, int]
    """Of jobs that ended well, in ps."""
    failed: Sequence[str]
    """Jobs that failed, or came to no end."""
    alarms: Mapping[str, int]
    under_way: Sequence[str] = ()
    """Jobs that were not done when it ended or was broken off."""
    until_ps: int = 0

    @property
    def chaotic(self) -> bool:
        """Whether packets came out of sequence or timers expired: small changes have large effects."""
        return bool(self.alarms.get(NIC_OUT_OF_SEQUENCE) or self.alarms.get(NIC_LOCAL_ACK_TIMEOUT_ERR))


def gain(before: Run, after: Run) -> Gain:
    """What `after` has over `before`."""
    best = Gain()
    for name, took_ps in before.times.items():
        one = Gain(name, took_ps, after.times.get(name, took_ps))
        if one.back_ps > 0 and (not best.job or one.share > best.share):
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


def _stands(one: Accused, emulate: Emulate) -> bool:
    """Whether what healing gives back is there with NICs that are a little slower, too."""
    assert one.gain is not None
    if one.gain.mended or one.gain.share >= CERTAIN:
        return True
    for nudge_ns in NUDGES_NS:
        whole = emulate(one.beside, nudge_ns)
        healed = emulate((one.finding, *one.beside), nudge_ns)
        if whole is None or healed is None:
            return True
        before = Run(whole.jobs, whole.failed, whole.alarms, whole.under_way)
        near = gain(before, _run(healed, before))
        if not (near.slower if one.gain.slower else near.worthwhile):
            return False
    return True


def _one_by_one(run: Run, group: Sequence[Finding], emulate: Emulate, tried: list[_Tried]) -> None:
    """Heal a group as one; where that gives something back, or cannot be, its halves."""
    found = emulate(group)
    if len(group) == 1 or (found is not None and not gain(run, _run(found, run)).worthwhile):
        tried += [_Tried(one, found, together=len(group) > 1) for one in group]
        return
    half = len(group) // 2
    _one_by_one(run, group[:half], emulate, tried)
    _one_by_one(run, group[half:], emulate, tried)


class _Tried(NamedTuple):
    """A suspect and the run with it healed; None where there is none."""

    finding: Finding
    found: Counterfactual | None
    together: bool
    """Whether it was one of a group that gave nothing back."""


def accused(
    run: Run, suspects: Sequence[Finding], emulate: Emulate
) -> tuple[list[Accused], list[Finding], int]:
    """Those whose healing gives something back, the most first; those that could not be healed; and how many
    were not compared since that would take too many events.

    `suspects` have the most direct evidence first.
    """
    tried: list[tuple[Finding, Run]] = []
    beyond: list[Finding] = []
    shared: dict[str, Mapping[str, float]] = {}
    untried = 0
    if len(suspects) > 1 and all(one.cause == ODD for one in suspects):
        alike = emulate(suspects)
        if alike is not None and not gain(run, _run(alike, run)).worthwhile:
            return [], [], 0
    known: list[_Tried] = []
    jobs = [one for one in suspects if one.cause == CONTENTION]
    parts = [one for one in suspects if one.cause not in (CONTENTION, *EVIDENCE[:1], *EVIDENCE[2:])]
    for group in [[one] for one in jobs] + (
        [parts] if len(parts) > MOST_HEALED else [[one] for one in parts]
    ):
        _one_by_one(run, group, emulate, known)
    answers = {one.finding.key: one for one in known}
    for one in suspects:
        answer = answers.get(one.key)
        found = None if answer is None else answer.found
        if answer is None or found is None:
            beyond.append(one)
            untried += answer is not None and bool(getattr(emulate, "exhausted", False))
        else:
            tried.append((one, run if answer.together else _run(found, run)))
            shared[one.key] = found.shared
    alone = sorted(((gain(run, healed), one) for one, healed in tried), key=lambda pair: pair[0].order())
    guilty = [Accused(one, back, (), shared[one.key]) for back, one in alone if back.worthwhile]
    if not guilty or (run.failed and not guilty[0].gains_a_job):
        together = _together(run, [one for one, _ in tried], emulate)
        if together:
            rest = [one for one in guilty if one.finding not in [two.finding for two in together]]
            return together + rest, beyond, untried
    if run.chaotic:
        guilty = [one for one in guilty if _stands(one, emulate)]
    guilty = [one for one in guilty if one.finding.cause != CONTENTION] or guilty
    guilty = [one for one in guilty if not _waited_for(one, guilty)]
    for first in guilty[:1]:
        healed = next(one for finding, one in tried if finding is first.finding)
        for other, _ in tried:
            if all(other is not one.finding for one in guilty):
                more = _more(healed, emulate((first.finding, other)))
                if more.worthwhile:
                    guilty.append(Accused(other, more, (first.finding,), shared[other.key]))
    pairs = _pairs_of_jobs(run, jobs, guilty, emulate)
    return sorted([*pairs, *guilty], key=_order) if pairs else guilty, beyond, untried


def _waited_for(timer: Accused, guilty: Sequence[Accused]) -> bool:
    """Whether a timer was too short for what a component did: that gives back as much."""
    if timer.finding.cause != TIMER_SHORT or timer.gain is None:
        return False
    return any(
        set(timer.gain.mended) <= set(one.gain.mended) and timer.gain.share <= one.gain.share
        for one in guilty
        if one.finding.cause not in (TIMER_SHORT, CONTENTION) and one.gain is not None
    )


def _order(one: Accused) -> tuple[bool, float, int]:
    assert one.gain is not None
    return one.gain.order()


def _pairs_of_jobs(
    run: Run, jobs: Sequence[Finding], guilty: Sequence[Accused], emulate: Emulate
) -> list[Accused]:
    """Two jobs of three or more, where leaving out both gives back more than leaving out any one."""
    if len(jobs) < 3 or run.failed:
        return []
    best = max((one.gain.share for one in guilty if one.gain is not None), default=0.0)
    for first, second in combinations(jobs, 2):
        found = emulate((first, second))
        more = _more(run, found)
        if found is not None and more.slower and more.share > best * 1.05:
            return [Accused(first, more, (second,), found.shared)]
    return []


def _together(run: Run, suspects: Sequence[Finding], emulate: Emulate) -> list[Accused]:
    """Those of a group that has to be healed as a whole: the likeliest pair that gives something back, or
    all; where a job failed, so that it does not.
    """
    groups: list[tuple[Finding, ...]] = [*combinations(suspects[:MOST_PAIRED], 2)]
    if len(suspects) > 2:
        groups.append(tuple(suspects))
    for group in groups:
        more = _more(run, emulate(group))
        if more.mended or (more.worthwhile and not run.failed):
            return [Accused(one, more, tuple(other for other in group if other is not one)) for one in group]
    return []


def _more(first: Run, found: Counterfactual | None) -> Gain:
    return Gain() if found is None else gain(first, _run(found, first))


def _run(found: Counterfactual, beside: Run) -> Run:
    """What a run came to, to be compared with another."""
    alarms = beside.alarms if found.left_out else found.alarms
    return Run(found.jobs, found.failed, alarms, found.under_way, found.until_ps)
