"""The report of two runs: what is the same, where they first part, and what differs by how much.

Runs on one fabric share a map, which shows either, or the second less the first; their samples are brought to
the intervals of the run that took longer. Of runs on two fabrics there are the tables and the time axis.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from html import escape
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from emu.base.units import about_size, about_time, distinct_texts, percent
from emu.results.summary import Collective, Link, Summary
from emu.run_directory.comparison import (
    Parting,
    load_run,
    main_numbers,
    parting,
    parting_lines,
)
from emu.views.reports.html_file import chart_places, document, packed, table
from emu.views.reports.page import (
    curves,
    fabric_data,
    fabric_pictures,
    finding_lines,
    jobs_data,
    over_time,
    step_panel,
    time_rows,
)
from emu.views.reports.recording import DROPS, PAUSED, UTILISATION, Recording, read_recording

NAMES: Final = ("A", "B")
Key = tuple[str, str, str, int, int]


def compared_page(one: Path, other: Path) -> str:
    """The page of the runs in two directories. UsageError if one cannot be read."""
    runs = (read_recording(one), read_recording(other))
    first, second = load_run(one), load_run(other)
    found, lines = parting(first, second), parting_lines(first, second)
    rows = [
        row | {"label": f"{name}: {row['label']}"}
        for name, run in zip(NAMES, runs, strict=True)
        for row in time_rows(run)
    ]
    data: dict[str, Any] = {
        "names": NAMES,
        "span": max(*(max(run.edges_ps[-1], run.summary.virtual_ps) for run in runs), 1),
        "rows": rows,
        "charts": _charts(runs[0].summary, runs[1].summary),
        "down": [],
        "weak": [],
        "first": -1,
    }
    shared = _one_fabric(*runs) and min(len(run.edges_ps) for run in runs) > 1
    if shared:
        data |= _fabrics(runs, found)
    title = f"{one.name} and {other.name}"
    return document(title, _body(runs, lines, data, shared), data)


def _one_fabric(one: Recording, other: Recording) -> bool:
    names = [[node.name for node in run.topology.nodes] for run in (one, other)]
    return names[0] == names[1] and [p[:3] for p in one.ports] == [p[:3] for p in other.ports]


def _fabrics(runs: Sequence[Recording], found: Parting | None) -> dict[str, Any]:
    longer = max(runs, key=lambda run: run.edges_ps[-1])
    figures = [[_brought(run, one, longer.edges_ps) for one in run.measures] for run in runs]
    count = len(longer.edges_ps) - 1
    apart = [
        max(((abs(b - a), cell) for cell, (a, b) in enumerate(zip(*pair, strict=True))), default=(0, 0))
        for pair in zip(*figures, strict=True)
    ]
    # What differs most tells most; drops and pauses before shares of a link, which differ in any two runs.
    measure = next((at for at in (DROPS, PAUSED, UTILISATION) if apart[at][0]), UTILISATION)
    start, port = divmod(apart[measure][1], len(longer.ports))
    if found is not None and found.device is not None and found.at_ps is not None:
        device = next(node.number for node in longer.topology.nodes if node.name == found.device)
        parted = [at for at, one in enumerate(longer.ports) if one.device == device]
        named = [at for at in parted if longer.ports[at].number == found.port]
        if parted:  # A host or a GPU has no port of the fabric: there the greatest difference tells more.
            start = min(max(bisect_left(longer.edges_ps, found.at_ps) - 1, 0), count - 1)
            port = (named or parted)[0]
            measure = max(
                (UTILISATION, PAUSED, DROPS),
                key=lambda at: (_differs(figures, at, start * len(longer.ports) + port), -at),
            )
    return fabric_data(longer.topology, longer.ports, longer.edges_ps, ()) | {
        "jobs": jobs_data(longer.scenario, longer.topology),
        "series": [[packed(one) for one in of_run] for of_run in figures],
        "measure": measure,
        "start": start,
        "first": port if any(most for most, _ in apart) else -1,
    }


def _differs(figures: Sequence[Sequence[bytes]], measure: int, cell: int) -> int:
    return abs(figures[0][measure][cell] - figures[1][measure][cell])


def _brought(run: Recording, figures: bytes, edges_ps: Sequence[int]) -> bytes:
    """A measure by other intervals: of each, what there was at its middle; nothing after the run's end."""
    if run.edges_ps == edges_ps:
        return figures
    own, wide = len(run.edges_ps) - 1, len(run.ports)
    middles = [(a + b) // 2 for a, b in pairwise(edges_ps)]
    places = [bisect_left(run.edges_ps, middle) - 1 for middle in middles]
    whole = figures + bytes(wide)
    starts = [min(max(place, 0), own) * wide for place in places]
    return b"".join(whole[start : start + wide] for start in starts)


def _charts(one: Summary, other: Summary) -> list[dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for name, summary in zip(NAMES, (one, other), strict=True):
        for chart in curves(summary, name):
            kept = found.setdefault(chart["label"], chart)
            if kept is not chart:
                kept["lines"] += chart["lines"]
    return list(found.values())


# ---- what stands there without the script


def _body(
    runs: Sequence[Recording], lines: Sequence[str], data: dict[str, Any], shared: bool
) -> Iterator[str]:
    one, other = (run.summary for run in runs)
    yield "<h1>Two runs</h1>"
    for name, run in zip(NAMES, runs, strict=True):
        about = f"{run.summary.scenario.name}, seed {run.summary.scenario.seed}"
        yield (
            f"<p><b>{name}</b> {escape(run.path.name)}: {escape(about)},"
            f' <span class="quiet">{run.summary.ending} after {about_time(run.summary.virtual_ps)},'
            f" digest {escape((run.summary.digest or 'none')[:16])}</span></p>"
        )
    headline, *rest = lines
    yield f"<p><b>{escape(headline)}</b></p>"
    yield f"<pre>{escape(chr(10).join(rest))}</pre>" if rest else ""
    yield "<h2>Causes</h2>"
    for name, summary in zip(NAMES, (one, other), strict=True):
        nothing = "the diagnosis found nothing" if summary.fidelity == "packet" else "not known at flow level"
        yield f'<p><b>{name}</b></p><ul class="found">'
        yield from list(finding_lines(summary)) or [f"<li>{nothing}</li>"]
        yield "</ul>"
    yield from over_time()
    yield "<h2>Main numbers</h2>"
    numbers = [
        (
            row.name,
            *("" if value is None else row.show(value) for value in (row.one, row.other)),
            "" if row.ratio is None else f"{row.ratio:.3f}",
        )
        for row in main_numbers(one, other)
        if row.one is not None or row.other is not None
    ]
    yield table(("", *NAMES, "B/A"), numbers)
    yield "<h2>Jobs</h2>"
    for name, summary in zip(NAMES, (one, other), strict=True):
        for job, result in summary.jobs.items():
            if result.training is not None:
                yield from step_panel(f"{name}: {job}", job, result.training)
    yield from chart_places(data["charts"])
    yield from _operations(one, other)
    yield "<h2>Fabric</h2>"
    if shared:  # one scale of time for both maps: that of the run that went on for longer
        longer = max(runs, key=lambda run: run.edges_ps[-1])
        count, names = len(longer.edges_ps) - 1, [job.name for job in longer.scenario.jobs]
        yield from fabric_pictures(longer.topology, count, names, (*NAMES, "B less A"))
    else:
        yield "<p>No map: the runs have two fabrics, or one of them recorded no samples.</p>"
    yield from _links(one, other)


def _operations(one: Summary, other: Summary) -> Iterator[str]:
    """Collectives of both runs, those first whose times differ most."""
    times = [_times_ps(summary) for summary in (one, other)]
    keys = [*times[0], *(key for key in times[1] if key not in times[0])]
    rows = []
    for key in keys:
        a, b = (of_run.get(key) for of_run in times)
        both = iter(distinct_texts([ps for ps in (a, b) if ps is not None], about_time))
        shown = ["-" if ps is None else next(both) for ps in (a, b)]
        ratio = b / a if a and b else None
        away = max(ratio, 1 / ratio) if ratio else 0.0
        job, op, size, iteration, _ = key
        cells = (job, op, size, str(iteration), *shown, "" if ratio is None else f"{ratio:.3f}")
        rows.append((away, cells))
    if rows:
        rows.sort(key=lambda row: -row[0])
        yield '<p class="quiet">Operations, those first whose times differ most</p>'
        yield table(("job", "operation", "size", "iteration", *NAMES, "B/A"), [cells for _, cells in rows])


def _times_ps(summary: Summary) -> dict[Key, int | None]:
    found: dict[Key, int | None] = {}
    for name, job in summary.jobs.items():
        seen: dict[tuple[str, int, int], int] = {}
        for row in job.collectives:
            equal = (row.op, row.bytes, row.iteration)
            seen[equal] = seen.get(equal, -1) + 1
            found[name, row.op, about_size(row.bytes), row.iteration, seen[equal]] = _time_ps(row)
    return found


def _time_ps(row: Collective) -> int | None:
    return None if row.start_ps is None or row.end_ps is None else row.end_ps - row.start_ps


def _links(one: Summary, other: Summary) -> Iterator[str]:
    """Directions of links, those first whose data or pauses differ most. Where only the length of the runs
    differs, so do utilisation and the share of pauses, and the link is left out."""
    sides = [
        {(link.source, link.destination, link.name): link for link in summary.fabric.links}
        for summary in (one, other)
    ]
    both = [
        (key, sides[0].get(key) or _unused(sides[1][key]), sides[1].get(key) or _unused(sides[0][key]))
        for key in dict.fromkeys((*sides[0], *sides[1]))
    ]
    both.sort(key=lambda row: -_distance(row[1], row[2]))
    rows = [
        (
            key[0],
            key[1],
            about_size(a.data_bytes),
            about_size(b.data_bytes),
            percent(a.utilisation),
            percent(b.utilisation),
            percent(a.paused),
            percent(b.paused),
        )
        for key, a, b in both
        if a.data_bytes != b.data_bytes or a.paused_ps != b.paused_ps
    ]
    head = ("from", "to", "data A", "data B", "utilisation A", "B", "paused A", "B")
    yield '<p class="quiet">Links that carried other data or were paused for another time, those'
    yield " first whose utilisation or pauses differ most</p>"
    yield table(head, rows) if rows else f"<p>All {len(both)} links carried the same.</p>"
    if rows and len(rows) < len(both):
        yield f'<p class="quiet">{len(both) - len(rows)} links carried the same in both runs</p>'


def _unused(link: Link) -> Link:
    """A link of which a run has no row, since neither of its ends did anything."""
    nothing = {"data_bytes": 0, "wire_bytes": 0, "utilisation": 0.0, "paused": 0.0, "paused_ps": 0}
    return link.model_copy(update=nothing)


def _distance(a: Link, b: Link) -> float:
    return abs(a.utilisation - b.utilisation) + abs((a.paused or 0) - (b.paused or 0))
