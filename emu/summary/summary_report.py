"""The report at the end of a run: as text, as JUnit XML for build servers.

Lines of plain text, made from the summary alone, so that a terminal, a log and a run directory read weeks
later show the same. Sections that have nothing to tell are left out. Colour and the live part belong to
`emu.terminal.terminal`.

JUnit XML (`emu run --junit FILE`). One test case for each expectation, and one, `ending`, for the run itself:
it fails where the exit status would not be 0 for another reason than an expectation. The time is the wall
time of the whole run.

Source: the dialect that Jenkins, GitLab and GitHub Actions read: testsuites, testsuite, testcase, failure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from emu.base.units import (
    about_bandwidth,
    about_rate,
    about_size,
    about_time,
    aligned,
    counted,
    distinct_texts,
    format_size,
    percent,
    shown_time,
)
from emu.results.places import quantity
from emu.results.summary import (
    KIND_FIELDS,
    Collective,
    Diagnosed,
    Expectation,
    Fabric,
    FaultEffect,
    Flow,
    GroupLoad,
    Init,
    Job,
    Link,
    Plane,
    Reconfigured,
    ServerLoad,
    Summary,
)
from emu.scenario.expect import RELATIONS
from emu.summary.recoveries import operator_lines
from emu.summary.storage_servers import limit_line
from emu.summary.timers import timer_lines

WORST: Final = 5
GROUPS_COLUMNS: Final = 78
"""Columns for the groups of a line."""
MOST_GROUPS: Final = 24
CUTS: Final = frozenset(
    {"link_down", "link_flap", "port_down", "switch_crash", "switch_reboot", "nic_down", "nic_port_down"}
    | {"nic_reset", "host_lost", "random"}
)
"""Kinds of fault that take links down, so that frames may be lost on them."""
MOST_CAUSES: Final = 3
"""Causes of a diagnosis that are shown, at most."""
BANDWIDTHS: Final = (".algbw", ".busbw")
"""Ends of the places that are bandwidths."""
MOST_RANKS: Final = 8
"""Ranks that gave up and are named, at most."""


def flow_lines(name: str, flows: Sequence[Flow]) -> list[str]:
    """One line about the flows of a job: how many, and when they were delivered."""
    if not flows:
        return []
    done = sorted(flow.delivered_ps for flow in flows if flow.delivered_ps is not None)
    failed = sum(flow.status not in ("success", "unfinished") for flow in flows)
    sizes = sorted(dict.fromkeys(flow.bytes for flow in flows))
    size = (
        format_size(sizes[0]) if len(sizes) == 1 else f"{format_size(sizes[0])} to {format_size(sizes[-1])}"
    )
    text = f"# {name}: {len(done)} of {len(flows)} flows delivered, {size} each"
    if done:
        middle, last = done[len(done) // 2], done[-1]
        text += f"; first at {about_time(done[0])}, median {about_time(middle)}, last {about_time(last)}"
    return [text + (f"; {failed} failed" if failed else "")]


def _link_lines(title: str, links: Sequence[Link], count: int, what: str) -> list[str]:
    """A table of the first of `count` links, and that there are more of which that is so."""
    if not links:
        return []
    rows = [("", "data", "utilisation", "paused")]
    rows += [
        (
            f"{link.source} -> {link.destination}" + ("" if "/" not in link.name else f" ({link.name})"),
            about_size(link.data_bytes),
            percent(link.utilisation),
            percent(link.paused),
        )
        for link in links
    ]
    more = count - len(links)
    left_out = [f"  {counted(more, 'more link')} {what}; all are in ports.csv"] if more else []
    return [title, *aligned(rows), *left_out]


def plane_table(planes: Sequence[Plane]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """What each plane of a fabric carried: the head of a table and its rows."""
    rows: list[tuple[str, ...]] = [
        (
            f"plane {one.plane}",
            about_size(one.up_bytes),
            percent(one.up_utilisation),
            about_size(one.down_bytes),
            "-" if one.drops is None else str(one.drops),
        )
        for one in planes
    ]
    return ("", "from NICs", "utilisation", "to NICs", "drops"), rows


def plane_lines(planes: Sequence[Plane]) -> list[str]:
    """The same in lines; none where there is one plane."""
    head, rows = plane_table(planes)
    return ["planes", *aligned([head, *rows])] if planes else []


def busiest_links(links: Sequence[Link]) -> list[Link]:
    """The five with the highest utilisation, the first of equals first; idle links are none."""
    ranked = sorted(range(len(links)), key=lambda at: (-links[at].utilisation, at))
    return [links[at] for at in ranked[:WORST] if links[at].wire_bytes]


def most_paused_links(links: Sequence[Link]) -> list[Link]:
    """The five that were paused for longest; links that never were are none."""
    ranked = sorted(range(len(links)), key=lambda at: (-(links[at].paused_ps or 0), at))
    return [links[at] for at in ranked[:WORST] if links[at].paused_ps]


def balance_lines(title: str, groups: Sequence[GroupLoad]) -> list[str]:
    """The imbalance of groups of equal ports, several to a line; the worst of them where there are many."""
    used = [row for row in groups if row.max_over_mean is not None]
    if not used:
        return []
    ranked = sorted(range(len(used)), key=lambda at: (-(used[at].max_over_mean or 0.0), at))
    shown = [used[at] for at in sorted(ranked[:MOST_GROUPS])]
    cells = [f"{row.switch} {row.max_over_mean:.2f} ({row.idle} of {row.members} idle)" for row in shown]
    width = max(len(cell) for cell in cells)
    in_line = max((GROUPS_COLUMNS + 3) // (width + 3), 1)
    lines = [
        "  " + "   ".join(cell.ljust(width) for cell in cells[at : at + in_line]).rstrip()
        for at in range(0, len(cells), in_line)
    ]
    if len(used) > len(shown):
        most = used[ranked[MOST_GROUPS]].max_over_mean or 0.0
        lines.append(f"  {len(used) - len(shown)} more at {most:.2f} or below; all are in summary.json")
    worst = used[ranked[0]]
    members = sorted(range(worst.members), key=lambda at: (-worst.loads[at], at))
    ends = [f"{worst.towards[at]} {about_size(worst.loads[at])}" for at in (members[0], members[-1])]
    lines.append(f"  most uneven {worst.switch}: most to {ends[0]}, least to {ends[1]}")
    idle = len(groups) - len(used)
    if idle:
        lines.append(f"  no payload on the uplinks of {idle} more")
    return [f"{title}, payload of the fullest over the mean", *lines]


def so_far(failed: Sequence[str], dropped: Mapping[str, int], retransmitted: int) -> list[str]:
    """What is known against a run that goes on: jobs that failed, drops by reason, frames sent again."""
    said = [f"{', '.join(failed)} failed"] if failed else ["no job failed"]
    reasons = ", ".join(f"{reason} {count}" for reason, count in dropped.items() if count)
    if reasons:
        said.append(f"{counted(sum(dropped.values()), 'frame')} dropped ({reasons})")
    else:
        said.append("no frame dropped")
    return [*said, f"{retransmitted} retransmitted"]


def fabric_line(fabric: Fabric) -> str:
    """One line of what went wrong or waited in the fabric."""
    drops = fabric.drops
    if drops is None or fabric.pfc_paused_ps is None or fabric.buffer_peak_bytes is None:
        return "flow level: drops, pauses, queues and packets sent again are not known"
    reasons = "".join(f"; {reason} {number}" for reason, number in drops.by_reason.items() if number)
    where = f" on {fabric.buffer_peak_switch}" if fabric.buffer_peak_switch else ""
    return (
        f"drops {drops.total} (congestion {drops.congestion}{reasons}), "
        f"pause frames {fabric.pfc_transmit_xoff_frames}, paused {about_time(fabric.pfc_paused_ps)}, "
        f"retransmitted {fabric.nic_retransmitted_frames}, "
        f"peak buffer {about_size(fabric.buffer_peak_bytes)}{where}"
    )


def fault_lines(faults: Sequence[FaultEffect]) -> list[str]:
    """One line for each fault."""
    lines: list[str] = []
    for at, fault in enumerate(faults):
        until = "" if fault.until_ps is None else f" to {shown_time(fault.until_ps)}"
        if fault.kind == "random" and not fault.target:
            lines.append(f"fault {at}: random: none was drawn")
            continue
        effect = "after the end of the run"
        if fault.happened:
            often = [f"{fault.times} times"] if fault.times > 1 else []
            known = fault.frames_lost is not None and (fault.frames_lost or fault.kind in CUTS)
            lost = [f"{fault.frames_lost} frames lost"] if known else []
            effect = ", ".join(often + lost) or "took effect"
        target = f" {fault.target}" if fault.target else ""
        lines.append(f"fault {at}: {fault.kind}{target} at {shown_time(fault.at_ps)}{until}: {effect}")
    return lines


def diagnosis_lines(
    found: Sequence[Diagnosed], uncompared_events: int | None = None, *, evidence: bool = False
) -> list[str]:
    """What a run suffered from: the likeliest cause with its evidence, the others in a line each, and how far
    that goes, wherever it is reported."""
    lines: list[str] = []
    for at, one in enumerate(found[:MOST_CAUSES]):
        lines.append(f"diagnosis: {one.sentence}" if at == 0 else f"  or: {one.sentence}")
        if evidence or at == 0:
            lines += [f"    {line}" for line in one.evidence]
    return [*lines, *_uncompared_lines(uncompared_events)]


def _uncompared_lines(events: int | None) -> list[str]:
    """That what showed was not measured against the intended fabric, and what makes up for it."""
    if events is None:
        return []
    another = f"which would take another {events / 1e6:.1f} M events, so less certain"
    how = "`emu diagnose RUN --emulate` does it"
    return [f"not compared with the same jobs on the intended fabric, {another}; {how}"]


def _like(bound: object, actual: object, is_bandwidth: bool) -> str:
    """`actual` in the kind of unit that `bound` was written in; a time so that it is told from the bounds."""
    if is_bandwidth and isinstance(actual, int):
        return about_bandwidth(actual)
    bounds = [quantity(one) for one in bound.split(" and ")] if isinstance(bound, str) else [None]
    measured = [one for one in bounds if one is not None]
    if not measured or not isinstance(actual, int) or isinstance(actual, bool):
        return str(actual)
    kind = measured[0][0]
    if kind == "time":
        return distinct_texts([actual, *(amount for _, amount in measured)], about_time)[0]
    return {"size": about_size, "rate": about_rate}[kind](actual)


def expectation_line(one: Expectation) -> str:
    """PASS or FAIL, what was expected, and what it is."""
    verdict = "PASS" if one.passed else "FAIL"
    shown = (
        str(one.actual)
        if one.relation in RELATIONS
        else f"is {_like(one.expected, one.actual, one.value.endswith(BANDWIDTHS))}"
    )
    found = shown if one.passed else one.reason
    return f"{verdict} {one.value} {one.relation} {one.expected}: {found}"


def engine_line(summary: Summary) -> str:
    """One line on how the run was carried out."""
    engine = summary.engine
    rate = f", {engine.packet_hops / engine.cpu_s / 1e6:.2f} M per CPU second" if engine.cpu_s > 0 else ""
    how = "compiled" if summary.compiled else "interpreted"
    if summary.fidelity == "flow":
        return (
            f"{about_time(summary.virtual_ps)} of virtual time in {engine.wall_s:.1f}s at flow level; {how}; "
            f"rates worked out {engine.solves} times; {about_size(engine.peak_rss_bytes)} of memory"
        )
    workers = "1 worker" if engine.workers == 1 else f"{engine.workers} workers"
    return (
        f"{about_time(summary.virtual_ps)} of virtual time in {engine.wall_s:.1f}s; {how}, {workers} "
        f"({engine.placement}); {engine.packet_hops / 1e6:.2f} M packet-hops{rate}; "
        f"{about_size(engine.peak_rss_bytes)} of memory"
    )


def wrong_jobs(summary: Summary) -> list[str]:
    """Jobs with elements that came out wrong, unless an expectation is about that job's."""
    asked = [one.value for one in summary.expectations if one.value.endswith("wrong")]
    return [
        name
        for name, job in summary.jobs.items()
        if any(one.wrong for one in job.collectives)
        and not any(path.startswith(f"jobs.{name}.") for path in asked)
    ]


def lost_jobs(summary: Summary) -> list[str]:
    """Jobs that did not succeed, unless an expectation asks for that job's status."""
    asked = [one.value.partition(".")[2] for one in summary.expectations if one.value.endswith("status")]
    return [
        name
        for name, job in summary.jobs.items()
        if job.status not in ("success", "disabled")
        and not any(path.startswith(f"{name}.") for path in asked)
    ]


def verdict_line(summary: Summary) -> str:
    """The first line after a run: PASS, FAIL or (where nothing is expected) DONE, why, and the likeliest
    cause with the time that its repair gives back."""
    expected = len(summary.expectations)
    failed = sum(not one.passed for one in summary.expectations)
    ends_as_asked = any(one.value == "ending" and one.passed for one in summary.expectations)
    reasons = [f"{failed} of {counted(expected, 'expectation')} failed"] if failed else []
    if not ends_as_asked:
        if summary.ending != "finished":
            reasons.append(f"the run {_ENDED.get(summary.ending, summary.ending)}")
        reasons += [f"{name}: {summary.jobs[name].status}" for name in lost_jobs(summary)]
    reasons += [f"{name}: wrong elements" for name in wrong_jobs(summary)]
    word = "FAIL" if reasons else "PASS" if expected else "DONE"
    held = f"{counted(expected, 'expectation')} met" if expected else "no expectations"
    line = f"{word} {summary.scenario.name}: {', '.join(reasons) or held}"
    for cause in summary.diagnosis[:1]:
        line += f"; cause: {cause.cause} at {cause.place}"
        if cause.back_ps and cause.back is not None:
            line += f", {about_time(cause.back_ps)} ({percent(cause.back)}) back"
    return line


_ENDED: Final = {
    "stalled": "stalled",
    "time_limit": "reached its time limit",
    "interrupted": "was interrupted",
}


def closing_lines(summary: Summary) -> list[str]:
    """Everything after the rows of the jobs, the verdict first."""
    broken = summary.fidelity == "flow" and summary.ending != "finished"
    links = summary.fabric.links
    busiest = "busiest links, all that was begun counted whole" if broken else "busiest links"
    blocks: list[list[str]] = [
        [verdict_line(summary)],
        idle_lines(summary.jobs),
        [line for name, job in summary.jobs.items() for line in flow_lines(name, job.flows)],
        [line for name, job in summary.jobs.items() for line in init_lines(name, job.ranks, job.init)],
        *(kind_lines(summary.jobs, field) for field in KIND_FIELDS),
        server_lines(summary.fabric.servers),
        operator_lines(summary.operator),
        [] if summary.operator is not None else survived_lines(summary.jobs),
        unfinished_lines(summary.jobs),
        plane_lines(summary.fabric.planes),
        _link_lines(busiest, busiest_links(links), sum(bool(one.wire_bytes) for one in links), "in use"),
        _link_lines(
            "most paused links",
            most_paused_links(links),
            sum(bool(one.paused_ps) for one in links),
            "paused",
        ),
        balance_lines("uplinks", summary.fabric.uplinks),
        balance_lines("other groups of equal ports", summary.fabric.groups),
        [
            fabric_line(summary.fabric),
            *timer_lines(summary.fabric.timers),
            *fault_lines(summary.faults),
        ],
        diagnosis_lines(summary.diagnosis, summary.uncompared_events),
        change_lines(summary.changes),
        [f"never fired: {one.feature}: {one.reason}" for one in summary.never_fired],
        [f"doubtful at flow level: {one}" for one in summary.engine.doubts],
        [expectation_line(one) for one in summary.expectations],
        [engine_line(summary), f"digest {summary.digest or 'none: the run is partial'}"],
    ]
    lines: list[str] = []
    for block in blocks:
        if block:
            lines += [*block, ""]
    return lines[:-1]


MOST_CHANGES: Final = 8


def change_lines(changes: Sequence[Reconfigured]) -> list[str]:
    """Changes of configuration that devices reported, a line each; of many, how many more."""
    lines = [
        f"changed: {one.device} at {shown_time(one.at_ps)}: {one.what}" for one in changes[:MOST_CHANGES]
    ]
    if len(changes) > MOST_CHANGES:
        lines.append(f"changed: {len(changes) - MOST_CHANGES} more in summary.json (changes)")
    return lines


def idle_lines(jobs: dict[str, Job]) -> list[str]:
    """Lines for each job of which NICs and ports carried nothing."""
    return [
        f"# {name}: {idle}" for name, job in jobs.items() for idle in (job.idle_nics, job.idle_ports) if idle
    ]


def kind_lines(jobs: dict[str, Job], field: str) -> list[str]:
    """What one field that kinds of workload add (`KIND_FIELDS`) says, job after job."""
    found = ((name, job.of_kind().get(field)) for name, job in jobs.items())
    return [line for name, result in found if result is not None for line in result.lines(name)]


def init_lines(name: str, ranks: int, init: Init | None) -> list[str]:
    """How long the ranks of a job took to meet."""
    if init is None:
        return []
    if init.time_ps is not None:
        return [f"# {name}: init {about_time(init.time_ps)}, {ranks} ranks {init.rounds} times at the store"]
    missing = f"; waited for rank {', '.join(map(str, init.missing))}" if init.missing else ""
    return [f"# {name}: init not over, {init.done} of {init.rounds} rounds at the store{missing}"]


def server_lines(loads: Sequence[ServerLoad]) -> list[str]:
    """The busiest servers of storage and metadata, and whether one of them was the limit."""
    ranked = sorted(range(len(loads)), key=lambda at: (-loads[at].utilisation, at))
    busiest = [loads[at] for at in ranked[:WORST] if loads[at].utilisation]
    if not busiest:
        return []
    rows: list[Sequence[str]] = [("", "came", "went", "busy")]
    rows += [
        (one.server, about_size(one.taken_bytes), about_size(one.given_bytes), percent(one.utilisation))
        for one in busiest
    ]
    limit = limit_line(loads)
    more = sum(bool(one.utilisation) for one in loads) - len(busiest)
    left_out = [f"  {counted(more, 'more server')} in use; all are in summary.json"] if more else []
    return ["busiest storage servers", *aligned(rows), *left_out, *([limit] if limit else [])]


def survived_lines(jobs: dict[str, Job]) -> list[str]:
    """One line for each job that went on though ranks failed (`shrink`, `recover`)."""
    lines: list[str] = []
    for name, job in jobs.items():
        if job.status == "success" and job.failures:
            ranks = sorted({one.rank for one in job.failures})
            who = f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks[:MOST_RANKS]))}"
            more = f" and {len(ranks) - MOST_RANKS} more" if len(ranks) > MOST_RANKS else ""
            first = min(job.failures, key=lambda one: one.at_ps)
            when = f"the first at {shown_time(first.at_ps)}: {first.status}"
            lines.append(f"# {name}: went on after {who}{more} gave up ({when})")
    return lines


def unfinished_lines(jobs: dict[str, Job]) -> list[str]:
    """One line for each job that is not done or failed."""
    lines: list[str] = []
    for name, job in jobs.items():
        if job.status == "success":
            continue
        parts: list[Collective | Flow] = [*job.collectives, *job.flows]
        undone = sum(part.status != "success" for part in parts)
        counted = f"; {undone} of {len(parts)} not done" if parts and job.status != "disabled" else ""
        lines.append(f"# {name}: {job.status}{counted}")
        lines += [f"  {line}" for line in job.suspects]
    return lines


def junit(summary: Summary, exit_status: int) -> str:
    """A run's expectations and its ending as JUnit XML."""
    from emu.summary.junit import Case, junit_text  # noqa: PLC0415 - only where it is asked for

    broke = "" if exit_status in (0, 1) else f"the run ended {summary.ending}, exit status {exit_status}"
    cases = [
        Case(f"{one.value} {one.relation} {one.expected}", "" if one.passed else expectation_line(one))
        for one in summary.expectations
    ]
    return junit_text(
        summary.scenario.name, [*cases, Case("ending", broke)], f'time="{summary.engine.wall_s}"'
    )
