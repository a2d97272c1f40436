"""Results as HTML, for a notebook: a heading, and a table each of collectives, flows and expectations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import Final

from emu.measure.formatting import about_rate, about_time, shown_time
from emu.measure.summary.summary import Collective, Summary
from emu.measure.tables.report import diagnosis_lines, expectation_line, flow_lines
from emu.units import format_size

MOST_ROWS: Final = 50
"""Of a table; the rest is counted."""
_COLUMNS: Final = ("job", "operation", "size", "iteration", "time", "algbw", "busbw", "status")


def summary_html(summary: Summary, verdict: str) -> str:
    """The summary of a run as one block of HTML; `verdict` says in words how it ended."""
    return "".join(_blocks(summary, verdict))


def _blocks(summary: Summary, verdict: str) -> Iterator[str]:
    facts = f"{verdict}, {shown_time(summary.virtual_ps)} of virtual time"
    yield f"<div><b>{escape(summary.scenario.name)}</b>: {escape(facts)}"
    rows = [_cells(name, one) for name, job in summary.jobs.items() for one in job.collectives]
    if rows:
        yield _table(_COLUMNS, rows)
    jobs = summary.jobs.items()
    lines = [line.removeprefix("# ") for name, job in jobs for line in flow_lines(name, job.flows)]
    lines += diagnosis_lines(summary.diagnosis)
    lines += [expectation_line(one) for one in summary.expectations]
    if lines:
        yield f"<pre>{escape(chr(10).join(lines))}</pre>"
    if summary.digest:
        yield f"<small>digest {escape(summary.digest)}</small>"
    yield "</div>"


def _cells(job: str, one: Collective) -> list[str]:
    time_ps = None if one.start_ps is None or one.end_ps is None else one.end_ps - one.start_ps
    return [
        job,
        f"{one.op} ({one.algorithm})" if one.algorithm else one.op,
        format_size(one.bytes),
        str(one.iteration),
        about_time(time_ps) if time_ps is not None else "",
        about_rate(one.algbw) if one.algbw is not None else "",
        about_rate(one.busbw) if one.busbw is not None else "",
        one.status,
    ]


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    body = "".join(
        f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows[:MOST_ROWS]
    )
    more = len(rows) - MOST_ROWS
    rest = f'<tr><td colspan="{len(columns)}">and {more} more</td></tr>' if more > 0 else ""
    return f"<table><tr>{head}</tr>{body}{rest}</table>"
