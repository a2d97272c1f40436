"""Figures for papers and slides: a run's or a sweep's curves as SVG, PNG or PDF, with their data as CSV.

A figure is lines of points, drawn by matplotlib (the extra `plot`): one column of a two-column paper wide,
colours that the colour-blind tell apart (Okabe and Ito, 2008), a marker of its own for each line. The same
run gives the same file to the byte.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from actors.kernel.counters import Kind
from emu.base.errors import UsageError
from emu.base.spelling import did_you_mean, listed
from emu.base.units import about_size
from emu.results.metrics import METRIC_OF
from emu.results.percentiles import nearest_rank
from emu.results.summary import Flow, Summary
from emu.run_directory.comparison import load_summary
from emu.run_directory.recorded import csv_text
from emu.run_directory.run_directory import write_whole
from emu.run_directory.sample_rows import recorded, tidy_rows
from emu.scenario.set_options import labels
from emu.views.reports.sweep_page import number_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

FORMATS: Final = (".svg", ".png", ".pdf")
COLOURS: Final = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS: Final = "os^Dv*P"
SIZE_IN: Final = (3.5, 2.4)
STYLE: Final[Any] = {
    "font.size": 8,
    "svg.hashsalt": "emu",
    "svg.fonttype": "none",
    "axes.spines.right": False,
    "axes.spines.top": False,
    "legend.frameon": False,
}
MOST_LINES: Final = 20
MOST_LETTERS: Final = 40
"""Letters of categories side by side, before they are turned."""
UNITS: Final = (
    ("_ps", "us", 1e-6),
    ("_bytes", "bytes", 1.0),
    ("_bps", "Gb/s", 1e-9),
    ("busbw", "GB/s", 1 / 8e9),
    ("algbw", "GB/s", 1 / 8e9),
    ("_s", "s", 1.0),
)
"""Units of values by the end of their names: the one on an axis, and what one of the value's own is in it."""
DASHES: Final = ("-", "--", "-.", ":")
"""Dashes of lines that may lie on one another."""
LARGE: Final = 10_000
"""From here on numbers have k, M and G."""


class Curve(NamedTuple):
    """One line: points in the order of x; `low` and `high` bound a band, of seeds, where there is one."""

    label: str
    points: tuple[tuple[float, float], ...]
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()


class Figure(NamedTuple):
    """What is drawn."""

    x_label: str
    y_label: str
    curves: tuple[Curve, ...]
    log_x: bool = False
    stepped: bool = False
    """A value holds up to its point; otherwise points are marked and joined."""
    categories: tuple[str, ...] = ()
    """What stands at x = 0, 1, ... where x is no number: points are marked, and nothing lies between them."""


def busbw(runs: Sequence[Path]) -> Figure:
    """Bus bandwidth by size of each operation, of its best iteration."""
    curves: list[Curve] = []
    for run, summary in _summaries(runs):
        best: dict[str, dict[int, float]] = {}
        for name, job in summary.jobs.items():
            for one in job.collectives:
                if one.busbw and one.bytes:
                    label = _label(run, f"{name} {one.op}", runs)
                    points = best.setdefault(label, {})
                    points[one.bytes] = max(points.get(one.bytes, 0.0), one.busbw / 8e9)
        curves += [Curve(label, tuple(sorted(points.items()))) for label, points in best.items()]
    return Figure("size (bytes)", "busbw (GB/s)", _some(curves, "a finished collective"), log_x=True)


def completion(runs: Sequence[Path]) -> Figure:
    """Shares of flows that were delivered within a time, from their post on."""
    curves: list[Curve] = []
    for run, summary in _summaries(runs):
        for name, job in summary.jobs.items():
            times_us = sorted(_time_us(flow) for flow in job.flows if flow.delivered_ps is not None)
            if times_us:
                shares = ((at + 1) / len(times_us) for at in range(len(times_us)))
                curves.append(Curve(_label(run, name, runs), tuple(zip(times_us, shares, strict=True))))
    found = _some(curves, "a delivered flow")
    return Figure("completion time (us)", "share of flows", found, log_x=True, stepped=True)


def slowdown(runs: Sequence[Path]) -> Figure:
    """Median and 99th percentile of slowdown of flows by size, each size from a power of two to the next."""
    curves: list[Curve] = []
    for run, summary in _summaries(runs):
        for name, job in summary.jobs.items():
            by_size: dict[int, list[float]] = {}
            for flow in job.flows:
                if flow.slowdown is not None:
                    by_size.setdefault(1 << (flow.bytes.bit_length() - 1), []).append(flow.slowdown)
            for words, permille in (("median", 500), ("99th percentile", 990)):
                points = tuple(
                    (size, nearest_rank(sorted(found), permille)) for size, found in sorted(by_size.items())
                )
                if points:
                    curves.append(Curve(f"{_label(run, name, runs)}, {words}", points))
    return Figure(
        "size (bytes)", "slowdown", _some(curves, "a delivered flow with an ideal time"), log_x=True
    )


def over_time(runs: Sequence[Path], series: str, devices: Sequence[str]) -> Figure:
    """A counter's rate, or a gauge's value, over time: the sum over ports and classes of each device."""
    curves: list[Curve] = []
    metric = METRIC_OF.get(series)
    if metric is None:
        hint = did_you_mean(series, METRIC_OF) or f"; accepted: {listed(METRIC_OF, 30)}"
        raise UsageError(f"--series {series}: no such counter{hint}")
    for run in runs:
        names, reader = recorded(run)
        sums: dict[str, dict[int, int]] = {}
        for virtual_ps, device, _, _, _, _, value in tidy_rows(reader, names, [series], devices):
            of_device = sums.setdefault(device, {})
            of_device[virtual_ps] = of_device.get(virtual_ps, 0) + value
        for device, values in sums.items():
            points = list(values.items())
            if metric.kind is Kind.GAUGE:
                drawn = tuple((at / 1e6, float(value)) for at, value in points)
            else:
                steps = zip([(0, 0), *points], points, strict=False)
                drawn = tuple((b[0] / 1e6, (b[1] - a[1]) / ((b[0] - a[0]) / 1e12)) for a, b in steps)
            curves.append(Curve(_label(run, device, runs), drawn))
    if len(curves) > MOST_LINES:
        most = f"patterns that fit at most {MOST_LINES}"
        raise UsageError(f"--device: {len(curves)} devices counted {series}; accepted: {most}")
    quantity, scale = _quantity(series)
    unit = quantity if metric.kind is Kind.GAUGE else f"{series} per second"
    if metric.kind is Kind.GAUGE:
        curves = [_scaled(curve, scale) for curve in curves]
    found = _some(curves, f"a device that counted {series}")
    return Figure("time (us)", unit, found, stepped=True)


def uplinks(runs: Sequence[Path]) -> Figure:
    """Payload of each uplink over the mean of its switch's, from the fullest to the emptiest."""
    curves: list[Curve] = []
    for run, summary in _summaries(runs):
        loads: list[float] = []
        for one in summary.fabric.uplinks:
            mean = sum(one.loads) / len(one.loads)
            loads += [load / mean for load in one.loads] if mean else []
        points = tuple((at + 1.0, load) for at, load in enumerate(sorted(loads, reverse=True)))
        if points:
            curves.append(Curve(_label(run, "uplinks", runs), points))
    found = _some(curves, "an uplink with payload")
    return Figure("uplink, fullest first", "payload over mean", found, stepped=True)


def sweep(file: Path, x: str, y: str, by: str | None) -> Figure:
    """The column y against x of a sweep: the median over seeds, and a band from the least to the greatest; a
    line for each combination of the axes that have several values at one x.
    """
    table = file / "sweep.csv" if file.is_dir() else file
    try:
        with table.open(encoding="utf-8", newline="") as opened:
            rows = list(csv.DictReader(opened))
    except OSError as error:
        raise UsageError(f"{table}: {error.strerror}; accepted: --out of `emu sweep`, or its CSV") from error
    columns = list(rows[0]) if rows else []
    for option, column in (("--x", x), ("--y", y), ("--by", by)):
        if column is not None and column not in columns:
            hint = did_you_mean(column, columns) or f"; accepted: {listed(columns, 30)}"
            raise UsageError(f"{option} {column}: no column of {table}{hint}")
    rows = [row for row in rows if row[y]]
    axes = [one for one in columns[: columns.index("seed") if "seed" in columns else 0] if one not in (x, by)]
    within = {(row[x], row[by] if by else ""): row for row in rows}
    apart = [
        one for one in axes if any(row[one] != within[row[x], row[by] if by else ""][one] for row in rows)
    ]
    short = {one: labels([row[one] for row in rows]) for one in (*apart, *([by] if by else []))}
    groups: dict[str, dict[str, list[float]]] = {}
    for row in rows:
        words = [short[by][row[by]]] if by else []
        words += [f"{one.rpartition('.')[2]}={short[one][row[one]]}" for one in apart]
        groups.setdefault(", ".join(words) or y, {}).setdefault(row[x], []).append(_number("--y", row[y]))
    if len(groups) > MOST_LINES:
        reason = f"{len(groups)} combinations of {', '.join(short)} are lines"
        raise UsageError(f"--by: {reason}; accepted: a sweep with at most {MOST_LINES}")
    numeric = all(number_of(value) is not None for group in groups.values() for value in group)
    written = list(dict.fromkeys(row[x] for row in rows))
    at = {value: _number("--x", value) if numeric else float(place) for place, value in enumerate(written)}
    quantity, scale = _quantity(y)
    curves = [
        _scaled(_band(label, {at[value]: group[value] for value in group}), scale)
        for label, group in groups.items()
    ]
    categories = () if numeric else tuple(labels(written).values())
    return Figure(x, quantity, _some(curves, f"a value of {y}"), categories=categories)


def _band(label: str, group: Mapping[float, Sequence[float]]) -> Curve:
    places = sorted(group.items())
    middles = tuple((x, float(median(values))) for x, values in places)
    if all(len(values) == 1 for _, values in places):
        return Curve(label, middles)
    return Curve(
        label, middles, tuple(min(values) for _, values in places), tuple(max(values) for _, values in places)
    )


def _quantity(name: str) -> tuple[str, float]:
    """A value's name and unit as an axis has them, and what one of its own units is in that."""
    for suffix, unit, scale in UNITS:
        if name.endswith(suffix):
            return f"{name.removesuffix(suffix) if suffix[0] == '_' else name} ({unit})", scale
    return name, 1.0


def _scaled(curve: Curve, scale: float) -> Curve:
    points = tuple((x, y * scale) for x, y in curve.points)
    return curve._replace(
        points=points, low=tuple(y * scale for y in curve.low), high=tuple(y * scale for y in curve.high)
    )


def draw(figure: Figure, file: Path) -> Path:
    """Write the figure, and its data beside it as CSV; the path of the CSV. Raises UsageError."""
    if file.suffix not in FORMATS:
        raise UsageError(f"--out {file}: accepted: a name that ends in {', '.join(FORMATS)}")
    try:
        import matplotlib as mpl  # noqa: PLC0415 - an extra, and slow to import
    except ModuleNotFoundError:
        raise UsageError("emu plot needs matplotlib; `pip install matplotlib`") from None
    dates: dict[str, dict[str, None]] = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
    with mpl.rc_context(STYLE):
        try:
            _canvas(figure).savefig(file, dpi=300, metadata=dates.get(file.suffix, {}))
        except OSError as error:
            raise UsageError(f"--out {file}: cannot be written: {error.strerror}") from error
    data = file.with_suffix(".csv")
    write_whole(data, csv_text(["line", figure.x_label, figure.y_label, "low", "high"], _rows(figure.curves)))
    return data


def _rows(curves: Iterable[Curve]) -> Iterable[list[str | float | None]]:
    for curve in curves:
        for at, (x, y) in enumerate(curve.points):
            bounds = (curve.low[at], curve.high[at]) if curve.low else (None, None)
            yield [curve.label, x, y, *bounds]


def _canvas(figure: Figure) -> Canvas:
    from matplotlib.figure import Figure as Canvas  # noqa: PLC0415 - an extra, and slow to import
    from matplotlib.ticker import EngFormatter, LogLocator, NullFormatter  # noqa: PLC0415

    canvas = Canvas(figsize=SIZE_IN, layout="constrained")
    axes = canvas.add_subplot()
    for at, curve in enumerate(figure.curves):
        xs, ys = [x for x, _ in curve.points], [y for _, y in curve.points]
        (line,) = axes.plot(xs, ys, color=COLOURS[at % len(COLOURS)], label=curve.label, linewidth=1.2)
        if figure.stepped:
            line.set_drawstyle("steps-pre")
            line.set_linestyle(DASHES[at % len(DASHES)])
        else:
            line.set_marker(MARKERS[at % len(MARKERS)])
            line.set_markersize(3.5)
        if figure.categories:
            line.set_linestyle("")
        if curve.low and figure.categories:
            axes.vlines(xs, curve.low, curve.high, color=line.get_color(), alpha=0.4)
        elif curve.low:
            axes.fill_between(xs, curve.low, curve.high, color=line.get_color(), alpha=0.2, linewidth=0)
    sizes = "bytes" in figure.x_label
    if figure.log_x:
        axes.set_xscale("log", base=2 if sizes else 10)
    if sizes:
        axes.xaxis.set_major_formatter(lambda value, _: about_size(int(value)))
    elif figure.log_x:  # as numbers, within a decade too
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.xaxis.set_minor_formatter(NullFormatter())
    if figure.categories:
        axes.set_xticks(range(len(figure.categories)), figure.categories)
        axes.set_xlim(-0.5, len(figure.categories) - 0.5)
        if sum(map(len, figure.categories)) > MOST_LETTERS:
            axes.tick_params(axis="x", rotation=30)
    if max(y for curve in figure.curves for _, y in curve.points) >= LARGE:
        axes.yaxis.set_major_formatter(EngFormatter(sep=""))
    axes.set_xlabel(figure.x_label)
    axes.set_ylabel(figure.y_label)
    axes.set_ylim(bottom=0)
    axes.grid(visible=True, linewidth=0.3, alpha=0.6)
    if len(figure.curves) > 1:
        axes.legend(fontsize=6)
    return canvas


def _summaries(runs: Sequence[Path]) -> list[tuple[Path, Summary]]:
    return [(run, load_summary(run)) for run in runs]


def _label(run: Path, name: str, runs: Sequence[Path]) -> str:
    return f"{run.name} {name}" if len(runs) > 1 else name


def _some(curves: Sequence[Curve], wanted: str) -> tuple[Curve, ...]:
    if not curves:
        raise UsageError(f"nothing to draw; accepted: a run with {wanted}")
    return tuple(curves)


def _time_us(flow: Flow) -> float:
    assert flow.delivered_ps is not None
    assert flow.start_ps is not None
    return (flow.delivered_ps - flow.start_ps) / 1e6


def _number(option: str, text: str) -> float:
    found = number_of(text)
    if found is None:
        raise UsageError(f"{option}: {text!r} is no number; accepted: a column of numbers")
    return found
