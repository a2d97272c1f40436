"""What healing a suspect gives back, and who is accused of that.

Suspects come from symptoms; whether one did harm is found by emulating the same run with that component as
built (`emu.counterfactual`). One whose healing gives back nothing is not accused. What counts is a job's
time, a job that then ends well, and counters that an operator is called for, each by the measure of
`emu.diagnosis.impact`.

A suspected job is left out in place of healed; there, only the time of the others counts, since what it
counted itself is gone with it.

1. Up to `MOST_HEALED` suspects are healed one by one, the most direct evidence first.
2. Beside the one that gives back most, each other that gave back nothing is healed too: one may hide
   another. What that gives back beyond the first is the second's. So it is with a job where a component gives
   something back: without the job, nothing meets that component.
3. Where all that is suspected is a difference from the fleet (`emu.diagnosis.fleet`), all are healed at once
   before: on a fabric that is meant to differ that mostly gives back nothing, and is one run.
4. If none gives back anything alone, or no job that failed, pairs are healed, the likeliest first, and then
   all: each of two faults may be enough to stop a job.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from types import MappingProxyType
from typing import Final, NamedTuple

from emu.base.units import about_time
from emu.diagnosis.finding import CONTENTION, ODD, Finding
from emu.diagnosis.impact import risen
from emu.results.summary import Counterfactual

MOST_HEALED: Final = 5
Emulate = Callable[[Sequence[Finding]], Counterfactual | None]
"""The run with suspects healed; None where that cannot be, or would take too long."""


class Gain(NamedTuple):
    """What one run has over another."""

    job: str = ""
    """The job that gains most, by share; empty where none does."""
    before_ps: int = 0
    after_ps: int = 0
    mended: tuple[str, ...] = ()
    """Jobs that failed, or came to no end, and do not any more."""
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
        if self.mended:
            parts.append(f"{' and '.join(self.mended)} would not fail")
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
            built = "".join(f" and with {one.place} as built" for one in self.beside)
            return (
                f"without {self.finding.place}{built}, {self.gain.words()}; they meet at {ports or 'no port'}"
            )
        every = (self.finding, *self.beside)
        how = {one.place: "as its peers" if one.cause == ODD else "as built" for one in every}
        if len({*how.values()}) == 1:
            return f"with {' and '.join(how)} {how[self.finding.place]}, {self.gain.words()}"
        return f"with {' and '.join(f'{place} {word}' for place, word in how.items())}, {self.gain.words()}"


class Run(NamedTuple):
    """What a run came to."""

    times: Mapping[str, int]
    """Of jobs that ended well, in ps."""
    failed: Sequence[str]
    """Jobs that failed, or came to no end."""
    alarms: Mapping[str, int]


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
    return best._replace(mended=mended, alarms=rises)


def accused(run: Run, suspects: Sequence[Finding], emulate: Emulate) -> tuple[list[Accused], list[Finding]]:
    """Those whose healing gives something back, the most first; and those that could not be healed.

    `suspects` have the most direct evidence first.
    """
    tried: list[tuple[Finding, Run]] = []
    beyond: list[Finding] = []
    shared: dict[str, Mapping[str, float]] = {}
    if len(suspects) > 1 and all(one.cause == ODD for one in suspects):
        alike = emulate(suspects)
        if alike is not None and not gain(run, _run(alike, run)).worthwhile:
            return [], []
    for one in suspects:
        found = emulate((one,)) if len(tried) < MOST_HEALED else None
        if found is None:
            beyond.append(one)
        else:
            tried.append((one, _run(found, run)))
            shared[one.key] = found.shared
    alone = sorted(((gain(run, healed), one) for one, healed in tried), key=lambda pair: pair[0].order())
    guilty = [Accused(one, back, (), shared[one.key]) for back, one in alone if back.worthwhile]
    if not guilty or (run.failed and not guilty[0].gains_a_job):
        together = _together(run, [one for one, _ in tried], emulate)
        if together:
            return together + [
                one for one in guilty if one.finding not in [two.finding for two in together]
            ], beyond
    guilty = [one for one in guilty if one.finding.cause != CONTENTION] or guilty
    for first in guilty[:1]:
        healed = next(one for finding, one in tried if finding is first.finding)
        for other, _ in tried:
            if all(other is not one.finding for one in guilty):
                more = _more(healed, emulate((first.finding, other)))
                if more.worthwhile:
                    guilty.append(Accused(other, more, (first.finding,), shared[other.key]))
    return guilty, beyond


def _together(run: Run, suspects: Sequence[Finding], emulate: Emulate) -> list[Accused]:
    """Those of a group that has to be healed as a whole: the likeliest pair that gives something back, or
    all; where a job failed, so that it does not.
    """
    groups: list[tuple[Finding, ...]] = [*combinations(suspects, 2)]
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
    return Run(found.jobs, found.failed, alarms)
