"""A campaign drawn as SVG: a row for each day, in the colours of what the job did, and a line where something
struck."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import Final

from emu.doors.weeks.campaign_file import UNITS_MS
from emu.doors.weeks.weeks import (
    CHECKPOINT,
    INIT,
    LOADING,
    NOTICING,
    PLANNED,
    REPLACING,
    SELF_CHECK,
    SLOWED,
    TRAINING,
    WAITING,
    Weeks,
)

COLOURS: Final = {
    TRAINING: "#b8d8be",
    SLOWED: "#e6c229",
    CHECKPOINT: "#5b8e7d",
    NOTICING: "#d1495b",
    SELF_CHECK: "#8d5b9f",
    WAITING: "#30323d",
    REPLACING: "#f28f3b",
    INIT: "#2e86ab",
    LOADING: "#88c0e0",
    PLANNED: "#a0a0a0",
}
"""Colour of each phase. Neighbours differ in lightness, so that they can be distinguished without colour."""
WORDS: Final = {SELF_CHECK: "self-check", WAITING: "waiting for spares"}
SIDE: Final = 64
WIDTH: Final = 960
TOP: Final = 84
ROW: Final = 14
LEGEND_WIDTH: Final = 190


def timeline(one: Weeks, title: str) -> str:
    """The drawing. Rows of more than 400 days would be no drawing: longer campaigns get a row for a week."""
    day_ms = UNITS_MS["d"] * (1 if one.lasts_ms <= 400 * UNITS_MS["d"] else 7)
    rows = -(-one.lasts_ms // day_ms)
    height = TOP + rows * ROW + 24
    body = [*_legend(title), *_days(rows, day_ms), *_phases(one, day_ms), *_strikes(one, day_ms)]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {SIDE + WIDTH + 16} {height}" '
        'font-family="sans-serif" font-size="11">\n'
        f'<rect width="100%" height="100%" fill="#ffffff"/>\n{chr(10).join(body)}\n</svg>\n'
    )


def _legend(title: str) -> Iterator[str]:
    yield f'<text x="{SIDE}" y="22" font-size="15">{escape(title)}</text>'
    for at, (phase, colour) in enumerate(COLOURS.items()):
        x, y = SIDE + at % 5 * LEGEND_WIDTH, 36 + at // 5 * 18
        yield f'<rect x="{x}" y="{y}" width="12" height="12" fill="{colour}"/>'
        yield f'<text x="{x + 18}" y="{y + 10}">{WORDS.get(phase, phase)}</text>'


def _days(rows: int, day_ms: int) -> Iterator[str]:
    word = "day" if day_ms == UNITS_MS["d"] else "week"
    for at in range(rows):
        if at % 5 == 0:
            yield f'<text x="{SIDE - 8}" y="{TOP + at * ROW + 10}" text-anchor="end">{word} {at + 1}</text>'


def _phases(one: Weeks, day_ms: int) -> Iterator[str]:
    """Each phase on the rows that it spans; neighbours of one phase on a row are one rectangle."""
    open_row, open_phase, left_ms, right_ms = -1, "", 0, 0
    for row in one.rows:
        begin_ms = row.begin_ms
        while begin_ms < row.end_ms:
            at = begin_ms // day_ms
            end_ms = min(row.end_ms, (at + 1) * day_ms)
            if (at, row.phase) == (open_row, open_phase):
                right_ms = end_ms
            else:
                if open_phase:
                    yield _bar(open_row, open_phase, left_ms, right_ms, day_ms)
                open_row, open_phase, left_ms, right_ms = at, row.phase, begin_ms, end_ms
            begin_ms = end_ms
    if open_phase:
        yield _bar(open_row, open_phase, left_ms, right_ms, day_ms)


def _bar(at: int, phase: str, left_ms: int, right_ms: int, day_ms: int) -> str:
    x = SIDE + (left_ms - at * day_ms) * WIDTH / day_ms
    width = (right_ms - left_ms) * WIDTH / day_ms
    y = TOP + at * ROW
    return f'<rect x="{x:.2f}" y="{y}" width="{width:.2f}" height="{ROW - 3}" fill="{COLOURS[phase]}"/>'


def _strikes(one: Weeks, day_ms: int) -> Iterator[str]:
    for strike in one.strikes:
        at = strike.at_ms // day_ms
        x = SIDE + (strike.at_ms - at * day_ms) * WIDTH / day_ms
        y = TOP + at * ROW
        line = f'<path d="M{x:.2f} {y - 1}v{ROW - 1}" stroke="#000000" stroke-width="0.8"/>'
        yield line.replace("/>", f"><title>{escape(strike.cause)}</title></path>")
