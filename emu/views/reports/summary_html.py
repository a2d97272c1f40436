"""The report at the end of a run as one block of HTML, which is what a notebook shows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import Final

from emu.base.units import about_bandwidth, about_time, format_size, shown_time
from emu.results.summary import Collective, Summary
from emu.summary.step_bar import step_bar
from emu.summary.summary_report import diagnosis_lines, expectation_line, flow_lines, idle_lines

MOST_HTML_ROWS: Final = 50
"""Rows of a table, at most; the rest is counted."""
_HTML_COLUMNS: Final = ("job", "operation", "size", "iteration", "time", "algbw", "busbw", "status")


def summary_html(summary: Summary, verdict: str) -> str:
    """The summary of a run as one block of HTML; `verdict` says in words how it ended."""
    return "".join(_html_blocks(summary, verdict))


def _html_blocks(summary: Summary, verdict: str) -> Iterator[str]:
    facts = f"{verdict}, {shown_time(summary.virtual_ps)} of virtual time"
    yield f"<div><b>{escape(summary.scenario.name)}</b>: {escape(facts)}"
    rows = [_html_cells(name, one) for name, job in summary.jobs.items() for one in job.collectives]
    if rows:
        yield _html_table(_HTML_COLUMNS, rows)
    jobs = summary.jobs.items()
    lines = [line.removeprefix("# ") for line in idle_lines(summary.jobs)]
    for name, job in jobs:
        own = [line for result in job.of_kind().values() for line in result.lines(name)]
        lines += [line.removeprefix("# ") for line in (*flow_lines(name, job.flows), *own)]
        if job.training is not None:
            yield step_bar(job.training)
    lines += diagnosis_lines(summary.diagnosis, summary.uncompared_events)
    lines += [expectation_line(one) for one in summary.expectations]
    if lines:
        yield f"<pre>{escape(chr(10).join(lines))}</pre>"
    if summary.digest:
        yield f"<small>digest {escape(summary.digest)}</small>"
    yield "</div>"


def _html_cells(job: str, one: Collective) -> list[str]:
    time_ps = None if one.start_ps is None or one.end_ps is None else one.end_ps - one.start_ps
    return [
        job,
        f"{one.op} ({one.algorithm})" if one.algorithm else one.op,
        format_size(one.bytes),
        str(one.iteration),
        about_time(time_ps) if time_ps is not None else "",
        about_bandwidth(one.algbw) if one.algbw is not None else "",
        about_bandwidth(one.busbw) if one.busbw is not None else "",
        one.status,
    ]


def _html_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    body = "".join(
        f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows[:MOST_HTML_ROWS]
    )
    more = len(rows) - MOST_HTML_ROWS
    rest = f'<tr><td colspan="{len(columns)}">and {more} more</td></tr>' if more > 0 else ""
    return f"<table><tr>{head}</tr>{body}{rest}</table>"
