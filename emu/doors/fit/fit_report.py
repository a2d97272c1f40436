"""The result of a fit in words: the residual by size, what could explain the largest misfit, the overlay."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from textwrap import wrap
from typing import Any, Final

from emu.base.spelling import listed
from emu.base.units import aligned, format_size
from emu.doors.fit.fitting import Fit, Row
from emu.doors.fit.knobs import text_of

LARGE_BYTES: Final = 1 << 20
SMALL_BYTES: Final = 64 << 10


def report(fit: Fit) -> list[str]:
    """The whole table."""
    lines: list[str] = []
    for log, rows in fit.rows:
        lines += [f"{log.file}: {log.operation}, {log.ranks or 'all'} ranks", *_sizes(rows), ""]
        lines += [*_shares(rows), f"  largest misfit of a size kept back: {_worst(rows)}", ""]
    lines += [
        "knobs fitted",
        *aligned([["knob", "scenario", "fitted", "misfit before", "after"], *_knobs(fit)]),
    ]
    lines += ["", "knobs left", *(f"  {one.knob.key}: {one.why}" for one in fit.left)]
    return [*lines, *_counters(fit), *_distrust(fit)]


def _distrust(fit: Fit) -> list[str]:
    """Why a fit is not to be trusted, as the last line; nothing where no knob is at the end of its range."""
    ended = [one.knob.key for one in fit.knobs if one.at_end]
    if not ended:
        return []
    many = "each of which" if len(ended) > 1 else "which"
    where = f"it ends at the range of {' and '.join(ended)}"
    return ["", f"do not trust this fit: {where}, {many} stands for something else"]


def _counters(fit: Fit) -> list[str]:
    """What NICs counted, and what that says of the misfit."""
    if not fit.counters:
        return []
    cells = [["counter", "measured", "emulated"]]
    cells += [[one.name, f"{one.measured:,}", f"{one.emulated:,}"] for one in fit.counters]
    alone = [one.name for one in fit.counters if one.measured and not one.emulated]
    said = (
        f"counted on the cluster and not here: {listed(alone)}. Congestion or loss slowed these tests, which"
        " no knob stands for: set transport.congestion_control and the switches' thresholds, or measure again"
    )
    lines = wrap(said, 78, initial_indent="  ", subsequent_indent="    ") if alone else []
    return ["", "counters of the NICs", *aligned(cells), *lines]


def _sizes(rows: Sequence[Row]) -> list[str]:
    head = ["size", "", "measured us", "unfitted", "fitted", "misfit", "by"]
    cells = [
        [
            format_size(row.size_bytes),
            "kept back" if row.kept_back else "fitted to",
            f"{row.measured_us:.1f}",
            f"{row.unfitted_us:.1f}",
            f"{row.fitted_us:.1f}",
            f"{100 * row.after:+.1f} %",
            row.way,
        ]
        for row in rows
    ]
    return aligned([head, *cells])


def _knobs(fit: Fit) -> list[list[str]]:
    return [
        [
            one.knob.key,
            text_of(one.knob, one.start) if one.start or one.knob.kind != "count" else "auto",
            text_of(one.knob, one.value) + (" (end of its range)" if one.at_end else ""),
            f"{100 * one.before:.1f} %",
            f"{100 * one.after:.1f} %",
        ]
        for one in fit.knobs
    ]


def figures(rows: Sequence[Row]) -> dict[str, float]:
    """The shares that judge a fit: medians, and the worst above 1 MiB, of both halves, before and after."""
    found: dict[str, float] = {}
    for name, half in (("fitted_to", False), ("kept_back", True)):
        of_half = [row for row in rows if row.kept_back is half]
        large = [row for row in of_half if row.size_bytes > LARGE_BYTES] or of_half
        found[f"{name}_median_before"] = median(abs(row.before) for row in of_half)
        found[f"{name}_median"] = median(abs(row.after) for row in of_half)
        found[f"{name}_worst_above_1mib_before"] = max(abs(row.before) for row in large)
        found[f"{name}_worst_above_1mib"] = max(abs(row.after) for row in large)
    return found


def _shares(rows: Sequence[Row]) -> list[str]:
    of = figures(rows)
    cells = [["misfit", "median, unfitted", "fitted", "worst above 1 MiB, unfitted", "fitted"]]
    for name in ("fitted_to", "kept_back"):
        keys = (
            f"{name}_median_before",
            f"{name}_median",
            f"{name}_worst_above_1mib_before",
            f"{name}_worst_above_1mib",
        )
        cells.append([name.replace("_", " "), *(f"{100 * of[key]:.1f} %" for key in keys)])
    return aligned(cells)


def _worst(rows: Sequence[Row]) -> str:
    at = max(
        (place for place, row in enumerate(rows) if row.kept_back), key=lambda place: abs(rows[place].after)
    )
    row = rows[at]
    return f"{100 * row.after:+.1f} % at {format_size(row.size_bytes)}; {explained(rows, at)}"


def explained(rows: Sequence[Row], at: int) -> str:
    """What could explain the misfit of a size, from what surrounds it."""
    row = rows[at]
    near = (*rows[max(at - 1, 0) : at], *rows[at + 1 : at + 2])
    others = list(dict.fromkeys(one.way for one in near if one.way != row.way))
    bend = _bend(rows)
    if others:
        return (
            f"the tuner's choice is {row.way} here, {' and '.join(others)} beside it: that NCCL's may differ"
        )
    if bend is not None and row.size_bytes >= bend:
        return (
            f"the measured rate leaps at {format_size(bend)}, where that NCCL takes another algorithm or"
            f" protocol; here it stays {row.way}"
        )
    if row.size_bytes <= SMALL_BYTES:
        return (
            "at small sizes latencies count: another protocol, or a launch that hides behind the call before"
        )
    if row.after < 0:
        if not row.way:
            return "a latency of each message that no knob has"
        return (
            "the measured rate grows with the size more than one rate and one latency let it: pipeline and"
            f" protocol of that NCCL; here it is {row.way}"
        )
    return "the fitted rates are a compromise over all sizes, and this one is measured faster"


def _bend(rows: Sequence[Row]) -> int | None:
    """The size above 1 MiB at which the measured rate grows by a quarter though it had stood still."""
    rates = [row.size_bytes / row.measured_us for row in rows]
    for at in range(2, len(rows)):
        if rows[at].size_bytes > LARGE_BYTES and rates[at - 1] < 1.05 * rates[at - 2] < 0.85 * rates[at]:
            return rows[at].size_bytes
    return None


def overlay(fit: Fit) -> str:
    """The fitted knobs as a file that `--set @FILE` takes, with the evidence beside each value."""
    lines = ["# Fitted by `emu fit`: emu run SCENARIO --set @THIS_FILE"]
    for log, rows in fit.rows:
        of = figures(rows)
        lines.append(
            f"# {log.file}: {log.operation}, {len(rows)} sizes; kept back: median"
            f" {100 * of['kept_back_median']:.1f} % (unfitted {100 * of['kept_back_median_before']:.1f} %),"
            f" worst above 1 MiB {100 * of['kept_back_worst_above_1mib']:.1f} %"
        )
    for one in fit.knobs:
        lines.append(
            f"# {one.knob.why}; misfit {100 * one.before:.1f} -> {100 * one.after:.1f} %; range"
            f" {text_of(one.knob, one.knob.least)} to {text_of(one.knob, one.knob.most)}: {one.knob.source}"
        )
        lines += [f"{key}={value}" for key, value in one.knob.with_it]
        lines.append(f"{one.knob.key}={text_of(one.knob, one.value)}")
    lines += [f"# left: {one.knob.key}: {one.why}" for one in fit.left]
    return "\n".join(lines) + "\n"


def plain(fit: Fit) -> dict[str, Any]:
    """The same as numbers, for JSON."""
    return {
        "knobs": [
            {
                "key": one.knob.key,
                "value": text_of(one.knob, one.value),
                "before": one.before,
                "after": one.after,
            }
            for one in fit.knobs
        ],
        "left": [{"key": one.knob.key, "why": one.why} for one in fit.left],
        "logs": [
            {
                "file": log.file,
                "operation": log.operation,
                **figures(rows),
                "sizes": [
                    {**row._asdict(), "misfit": row.after, "unfitted_misfit": row.before} for row in rows
                ],
            }
            for log, rows in fit.rows
        ],
        "counters": [one._asdict() for one in fit.counters],
        "runs": fit.runs,
    }
