"""The causes of a run's trouble, the likeliest first.

Every family of causes is asked for findings. What is reported of them depends on what the run suffered:

1. a job failed, or the run came to no end: everything that was found is reported;
2. otherwise the run is compared with the same jobs on the intended fabric (`emu.views.diagnosis.impact`), if
   it is not too large for that. If no job became slower by 5 % or more, and nothing that an operator is
   called for rose by so much, nothing is said but that results are wrong, what is meant to be so, and, unless
   jobs repeat, what was counted of losses: in every round alike they are no news;
3. where runs may be emulated, those are reported whose healing gives something back, and how much
   (`emu.views.diagnosis.healing`); beside them only what no single component heals;
4. otherwise findings with an impact of their own are reported: their evidence is something to be called for
   (`alarms`), a job became slower after they began (`emu.views.diagnosis.impact`), or nothing ended before
   they began and their evidence shows an impact (`has_impact`). If the run was slower or failed and no
   finding has one, all are reported, and so are groups of ports that are loaded less evenly than in the run
   compared with;
5. without a reference only findings with an impact of their own are reported;
6. a job that failed or became slower where nothing was found is reported as such.

What is left is ranked by what healing gives back, or by how direct the evidence is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from emu.base.units import about_time, counted, shown_time
from emu.results.summary import Diagnosed, OperatorResult, RankFailure, Reference
from emu.summary.jobs import UNFINISHED
from emu.views.diagnosis import (
    bad_links,
    configuration,
    contention,
    evidence,
    fleet,
    given_stragglers,
    lost_links,
    pauses,
    payload_errors,
    slow_gpus,
    true_warnings,
)
from emu.views.diagnosis.costs import most_ps
from emu.views.diagnosis.finding import CAUSES, CONTENTION, EVIDENCE, MEANT, ODD, TIMER_SHORT, WRONG, Finding
from emu.views.diagnosis.healing import MOST_HEALED, Accused, Emulate, Run, accused, left_over
from emu.views.diagnosis.impact import (
    SLOWER_PERMILLE,
    SlowOperation,
    failed_jobs,
    happened_under,
    impacts,
    slower,
    uneven_groups,
)
from emu.views.diagnosis.view import PORTS_DOWN, View
from emu.views.diagnosis.wait_chain import chain_of_waits, host_of, pairs_in_error, ranks_behind

FAMILIES: Final[tuple[Callable[[View], Iterator[Finding]], ...]] = (
    lost_links.found,
    bad_links.found,
    contention.found,
    pauses.found,
    slow_gpus.found,
    pairs_in_error,
    configuration.found,
    fleet.found,
    true_warnings.found,
    given_stragglers.found,
    payload_errors.found,
    evidence.found,
    ranks_behind,
)
MOST_REPORTED: Final = 5
MOST_ACCUSED: Final = 12
"""How many are reported whose healing gives something back."""
MOST_LISTED: Final = 8
"""How many of those beyond that are listed."""
UNEXPLAINED: Final = "unexplained_wait"
LAST: Final = (UNEXPLAINED, "imbalance", *EVIDENCE)
"""What is reported only where nothing else is."""


class Compared(NamedTuple):
    """A stretch of a run around a slow operation, which is emulated in place of the whole run."""

    slow: SlowOperation
    run: Run
    """What it comes to with everything that happened."""
    emulate: Emulate
    """The same with suspects healed."""


def diagnose(
    view: View,
    reference: Reference | None = None,
    emulate: Emulate | None = None,
    stretches: Sequence[Compared] = (),
) -> list[Diagnosed]:
    """What suffered, and from what, best first; at most `MOST_REPORTED`, or `MOST_ACCUSED`
    that were healed; beyond that the first has a list. `emulate` is the run with suspects
    healed; without it nobody is. Where there are `stretches`, these are compared in its place.
    """
    found = findings(view)
    impact = [] if reference is None else impacts(view.times(), view.alarmed(), reference, view.end_ps)
    if reference is not None and not impact and not broke_off(view):
        rounds = reference.span_ps is not None
        found = [
            one for one in found if one.cause in (*MEANT, WRONG) and not (rounds and one.cause in EVIDENCE)
        ]
    relevant = [one for one in found if matters(view, one)]
    if impact and not relevant:
        relevant = [one for one in found if one.cause not in MEANT]
    if reference is not None and impact:
        relevant += uneven_groups(view, reference)
    relevant.sort(key=Finding.order)
    reported = [Accused(one) for one in relevant]
    if stretches and found:
        reported = _in_stretches(view, found, relevant, stretches)
    elif emulate is not None and found:
        reported = _healed(view, found, relevant, emulate)
    if len(reported) > 1:
        reported = [one for one in reported if one.finding.cause != UNEXPLAINED]
    if not view.lost_or_waited or any(one.finding.cause not in (CONTENTION, *EVIDENCE) for one in reported):
        reported = [one for one in reported if one.finding.cause not in EVIDENCE] or reported
    if not reported:
        reported = [Accused(one) for one in _unexplained(view, _lasting(view, reference, impact))]
    most = max(MOST_REPORTED, min(sum(one.gain is not None for one in reported), MOST_ACCUSED))
    if len(reported) > most:
        others = ", ".join(
            f"{one.finding.cause} {one.finding.place}" for one in reported[most:][:MOST_LISTED]
        )
        more = f" and {len(reported) - most - MOST_LISTED} more" if len(reported) - most > MOST_LISTED else ""
        reported[0] = reported[0].beside_of([f"{len(reported) - most} more found: {others}{more}"])
    return [_reported(view, one, impact, first=not at) for at, one in enumerate(reported[:most])]


def _healed(
    view: View,
    found: list[Finding],
    relevant: list[Finding],
    emulate: Emulate,
) -> list[Accused]:
    """Those whose healing gives something back; then what could not be healed and shows an impact."""
    suspects = relevant + sorted((one for one in found if one not in relevant), key=Finding.order)
    cut_short = [name for name, job in view.jobs.items() if job.status == UNFINISHED]
    run = Run(view.times(), failed_jobs(view), view.alarmed(), cut_short, behind=_behind_others(view))
    many = len(suspects) > MOST_HEALED or sum(one.cause == CONTENTION for one in suspects) > 2
    costs = {one.key: most_ps(view, one) for one in suspects} if many else {}
    guilty, beyond, untried = accused(run, suspects, emulate, costs)
    if guilty and view.lost_or_waited and all(one.finding.cause == CONTENTION for one in guilty):
        # Where all is set as it should be, jobs that meet lose no lossless frames and wait for no timer.
        guilty = [*(Accused(one) for one in suspects if one.cause in (TIMER_SHORT, *EVIDENCE)), *guilty]
    if guilty:
        lines = [f"{counted(untried, 'suspect')} not compared: that takes too many events"] if untried else []
        guilty[0] = guilty[0].beside_of(lines + left_over(run, guilty, emulate))
    explained = {name for one in guilty if one.gain is not None for name in one.gain.mended}
    left = [
        one
        for one in beyond
        if one in relevant
        and not (guilty and one.cause in LAST)
        and not (one.cause == "rank_absent" and one.place.partition(" ")[0] in explained)
    ]
    return guilty + [Accused(one) for one in left]


def _in_stretches(
    view: View, found: list[Finding], relevant: list[Finding], stretches: Sequence[Compared]
) -> list[Accused]:
    """Those whose healing gives something back in a stretch; then what was there in none of them and shows an
    impact.
    """
    order = relevant + sorted((one for one in found if one not in relevant), key=Finding.order)
    best: dict[str, Accused] = {}
    compared: dict[str, bool] = {}
    for one in stretches:
        suspects = [suspect for suspect in order if one.slow.during(suspect)]
        costs = {suspect.key: most_ps(view, suspect) for suspect in suspects}
        guilty, beyond, untried = accused(one.run, suspects, one.emulate, costs)
        compared |= {suspect.key: True for suspect in suspects if suspect not in beyond}
        took, usual = about_time(one.slow.done.took_ps), about_time(one.slow.usual_ps)
        lines = [f"compared around {one.slow.label} alone: it took {took}, the median {usual}"]
        if untried:
            lines.append(f"{counted(untried, 'suspect')} not compared: that takes too many events")
        for suspect in guilty:
            if suspect.gains_time and suspect.finding.key not in best:
                best[suspect.finding.key] = suspect.beside_of(lines)
    named = sorted(best.values(), key=lambda one: one.order())
    rest = [one for one in relevant if one.key not in compared and one.key not in best]
    return named + [Accused(one) for one in rest if not (named and one.cause in LAST)]


def _behind_others(view: View) -> frozenset[str]:
    """Jobs that nobody waits for: those that only move files, where others run."""
    moving = {job.name for job in view.scenario.jobs if job.workload.parts == ("storage",)}
    return frozenset(moving) if any(plan.name not in moving for plan in view.plans) else frozenset()


def _lasting(view: View, reference: Reference | None, impact: list[str]) -> list[str]:
    """What is an impact for certain. Where jobs repeat and the run compared with was shorter, the usual round
    has to be longer: the longest of many takes longer than the longest of a few, and what is rarely counted
    may not be counted in those.
    """
    if reference is None or reference.span_ps is None or reference.span_ps >= view.end_ps:
        return impact
    return impacts(view.usual_times(), {}, reference)


def _unexplained(view: View, impact: list[str]) -> Iterator[Finding]:
    """Jobs that suffered where nothing tells from what; of one that has an operator, what that did."""
    failed = failed_jobs(view)
    tended = view.operator
    if tended is not None and tended.restarts and _suffers(tended.job, failed, impact):
        yield _restarted(tended)
        return
    for name, status in failed.items():
        if status != UNFINISHED:
            yield Finding("unexplained_impact", name, 50, f"{name} failed ({status}), and no cause was found")
            return
    if impact:
        job = next((name for name in view.jobs if impact[0].startswith(f"{name}:")), view.plans[0].name)
        yield Finding("unexplained_impact", job, 50, f"{impact[0]}, and no cause was found")


def _suffers(job: str, failed: Mapping[str, str], impact: list[str]) -> bool:
    """Whether a job failed, or the impact is on it."""
    return job in failed or any(line.startswith(f"{job}:") for line in impact)


def _restarted(tended: OperatorResult) -> Finding:
    """What the operator of a job did, which is why it took longer or failed."""
    lines = []
    for one in tended.restarts:
        where = f" on {one.host}" if one.host else ""
        went = (
            "and it was given up" if one.resumed_ps is None else f"on again at {shown_time(one.resumed_ps)}"
        )
        moved = ", ".join(one.placed) or "on the same hosts"
        lines.append(f"operator: {one.rule}{where} at {shown_time(one.alarm_ps)}, {moved}, {went}")
    spent = tended.spent
    away_ps = tended.end_ps - tended.begun_ps - spent.kept_ps - spent.between_ps
    first = tended.restarts[0]
    times = "once" if len(lines) == 1 else f"{len(lines)} times"
    whom = f" for {first.host}" if first.host else ""
    sentence = (
        f"the operator stopped {tended.job} {times}, the first time by its rule `{first.rule}`{whom};"
        f" restarts and work done again took {shown_time(away_ps)}"
    )
    return Finding("restarted", tended.job, 60, sentence, tuple(lines), first.alarm_ps)


def _reported(view: View, one: Accused, impact: list[str], *, first: bool) -> Diagnosed:
    finding, gain = one.finding, one.gain
    sentence = _with_waits(view, finding) if first else finding.sentence
    return Diagnosed(
        cause=finding.cause,
        place=finding.place,
        score=finding.score,
        since_ps=finding.since_ps,
        sentence=sentence if gain is None else f"{sentence}; {one.words()}",
        evidence=[
            *finding.evidence,
            *one.notes,
            *_behind(view, finding),
            *(impact or _slowdown(view, finding)),
        ],
        back_ps=None if gain is None else gain.back_ps,
        back=None if gain is None else gain.share,
    )


def _with_waits(view: View, finding: Finding) -> str:
    """The sentence of a finding, with who waits for whom because of it where a run came to no end, and who
    lost whom where a job failed. A circle of pauses says so itself.
    """
    if finding.cause in (UNEXPLAINED, "deadlock"):
        return finding.sentence
    waits = chain_of_waits(view, finding.place.partition(">")[0]) or _lost(view, finding)
    return f"{finding.sentence}; {waits}" if waits else finding.sentence


def _behind(view: View, finding: Finding) -> list[str]:
    """Who waits behind a circle of pauses or credits."""
    chain = chain_of_waits(view) if finding.cause == "deadlock" else ""
    return [chain] if chain else []


def _lost(view: View, finding: Finding) -> str:
    """The first failure of a rank that has to do with a finding: in a server, of a rank there or one
    whose queue pair leads there; in the fabric, any.
    """
    hosts = [host for part in re.split("[:>]", finding.place) if (host := host_of(view, part)) >= 0]
    for name in failed_jobs(view):
        failures = view.jobs[name].failures
        near = [one for one in failures if finding.place == f"{name} rank {one.peer}"]
        near += [one for one in failures if any(host in _ends(view, one) for host in hosts)]
        for one in (near or ([] if hosts else failures))[:1]:
            words = f"rank {one.rank} of {name}"
            if one.peer is not None:
                words += f" waited for rank {one.peer}"
            if one.nic is not None:
                words += f" on {one.nic}"
            if one.qpn is not None:
                words += f", queue pair {one.qpn}"
            return f"{words}: {one.status}"
    return ""


def _ends(view: View, failure: RankFailure) -> list[int]:
    """The hosts at both ends of the queue pair that a failure is of."""
    if failure.nic is None:
        return []
    own = view.topology.node_named(failure.nic).number
    far = [
        view.topology.nic_at(remote) for _, qpn, remote, _ in view.rows(own, "pairs") if qpn == failure.qpn
    ]
    return [view.topology.host_of(nic) for nic in (own, *far)]


def undecided(view: View) -> bool:
    """Whether it takes a reference to tell if what was found mattered: every job ended well, and no port went
    down, which nobody expects of a fabric that is well.
    """
    return not broke_off(view) and not view.alarmed()[PORTS_DOWN] and bool(findings(view))


def broke_off(view: View) -> bool:
    """Whether a job failed, or the run came to no end."""
    return bool(failed_jobs(view)) or view.ending in ("stalled", "time_limit")


def findings(view: View) -> list[Finding]:
    """Everything that is not as it should be, harmless or not."""
    if view.found is None:
        found = [one for family in FAMILIES for one in family(view)]
        assert all(one.cause in CAUSES for one in found), found
        view.found = [_with_symptoms(one, found) if one.cause == ODD else one for one in found]
    return view.found


def _with_symptoms(odd: Finding, found: list[Finding]) -> Finding:
    """What is configured otherwise, with what shows there."""
    there = [one.sentence for one in found if one.place == odd.place and one is not odd]
    return odd._replace(evidence=(*odd.evidence, *there))


def matters(view: View, finding: Finding) -> bool:
    """Whether a job or an alarm speaks for a finding."""
    if broke_off(view) and finding.cause not in MEANT:
        return True
    if finding.alarms and view.alarms():
        return True
    grown = slower(view, finding.since_ps, finding.until_ps)
    if finding.has_impact and (grown is None or finding.since_ps < 0):
        return True
    if grown is not None and grown[1] >= SLOWER_PERMILLE:
        return True
    return finding.cause not in MEANT and _happened_under(view, finding) is not None


def _happened_under(view: View, finding: Finding) -> SlowOperation | None:
    """The operation many medians long that a finding can explain."""
    return happened_under(view, finding, most_ps(view, finding))


def _slowdown(view: View, finding: Finding) -> list[str]:
    grown = slower(view, finding.since_ps, finding.until_ps)
    lines = []
    if grown is not None and grown[1] >= SLOWER_PERMILLE:
        lines.append(f"{grown[0]}: {grown[1] // 10}% more time since")
    under = None if finding.cause in MEANT else _happened_under(view, finding)
    if under is not None:
        times = f"{under.done.took_ps / max(under.usual_ps, 1):.0f} times the median"
        lines.append(f"{under.label} took {about_time(under.done.took_ps)} meanwhile, {times}")
    return lines
