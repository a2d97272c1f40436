"""Published figures beside ours: the runs, the verdicts, the table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from textwrap import wrap
from typing import Any, Final, Literal, NamedTuple, get_args

from emu.api import run
from emu.base.units import aligned, counted
from emu.doors.reproduce.published import BUILT, FITTED, Answers, Basis, Case, Figure, Row
from emu.many_runs import Machines
from emu.many_runs import answers as worked_out
from emu.results.summary import Summary
from emu.views.reports import plot

Verdict = Literal["in band", "outside", "shown"]
COLUMNS: Final = 80
DIGITS: Final = 4


class ComparedFigure(NamedTuple):
    """One figure, ours beside it."""

    figure: Figure
    ours: float

    @property
    def verdict(self) -> Verdict:
        """`shown`: nobody says what it should be."""
        least, most = self.figure.least, self.figure.most
        if least is None and most is None:
            return "shown"
        low = least is not None and self.ours < least
        return "outside" if low or (most is not None and self.ours > most) else "in band"

    @property
    def difference(self) -> float | None:
        """In points where the unit is %, else in percent of the published figure."""
        published = self.figure.published
        if published is None:
            return None
        if self.figure.unit == "%":
            return self.ours - published
        return 100 * (self.ours / published - 1) if published else None


class Reproduced(NamedTuple):
    """One row, run."""

    row: Row
    figures: tuple[ComparedFigure, ...]
    answers: Answers


def reproduce(
    rows: Sequence[Row], machines: Machines, tell: Callable[[str], None] | None
) -> list[Reproduced]:
    """Run the cases of these rows, each once, and set ours beside the published figures."""
    cases = list(dict.fromkeys(case for row in rows for case in row.cases))
    answers: dict[Case, Summary] = {}
    for case, summary in zip(cases, worked_out(machines, _summary, cases), strict=True):
        answers[case] = summary
        if tell is not None:
            tell(f"{len(answers)} of {len(cases)} runs: {case.scenario}")
    return [
        Reproduced(row, tuple(ComparedFigure(one, one.ours(answers)) for one in row.figures), answers)
        for row in rows
    ]


def _summary(case: Case) -> Summary:
    return run(case.scenario, overrides=dict(case.overrides), local=True).summary


def table(rows: Iterable[Reproduced]) -> list[str]:
    """Lines of at most `COLUMNS`."""
    lines: list[str] = []
    for row, figures, _ in rows:
        cells = [["", "published", "ours", "diff", "band", "verdict"]]
        for one in figures:
            figure = one.figure
            unit = f" {figure.unit}" if figure.unit else ""
            published = figure.said or _number(figure.published)
            published += unit if published != "-" else ""
            cells.append(
                [
                    figure.what,
                    published,
                    _number(one.ours) + unit,
                    _difference(one),
                    _band(figure),
                    one.verdict,
                ]
            )
        head = _head(row.name, row.title, row.source)
        lines += [*head, *aligned(cells), *_bases(figures), *_why(row.reason), ""]
    return lines[:-1]


def _bases(figures: Sequence[ComparedFigure]) -> list[str]:
    """Which figures are no predictions."""
    lines: list[str] = []
    for basis in (FITTED, BUILT):
        named = [one.figure.what for one in figures if one.figure.basis == basis]
        if named:
            said = "all" if len(named) == len(figures) else "; ".join(named)
            lines += wrap(f"{basis}: {said}", COLUMNS, initial_indent="  ", subsequent_indent="  ")
    return lines


def counts(rows: Iterable[Reproduced]) -> dict[Basis, Counter[Verdict]]:
    """How many figures of each basis have each verdict."""
    found: dict[Basis, Counter[Verdict]] = {basis: Counter() for basis in get_args(Basis)}
    for _, figures, _ in rows:
        for one in figures:
            found[one.figure.basis][one.verdict] += 1
    return found


def closing(rows: Iterable[Reproduced]) -> list[str]:
    """A line for each basis: how many figures, and with which verdicts."""
    lines = []
    for basis, verdicts in counts(rows).items():
        each = ", ".join(f"{verdicts[one]} {one}" for one in get_args(Verdict) if verdicts[one])
        lines.append(f"{basis}: {counted(verdicts.total(), 'figure')}" + (f", {each}" if each else ""))
    return lines


def _why(reason: str) -> list[str]:
    return wrap(f"why: {reason}", COLUMNS, initial_indent="  ", subsequent_indent="  ")


def _head(name: str, title: str, source: str) -> list[str]:
    return wrap(f"{name}  {title} ({source})", COLUMNS, subsequent_indent="    ")


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    text = f"{value:.0f}" if abs(value) >= 10 ** (DIGITS - 1) else f"{value:.{DIGITS - 1}g}"
    return "0" if text in ("-0", "0") else text


def _difference(one: ComparedFigure) -> str:
    if one.difference is None:
        return "-"
    return f"{one.difference:+.1f}" + ("" if one.figure.unit == "%" else "%")


def _band(figure: Figure) -> str:
    least, most = figure.least, figure.most
    if least is None and most is None:
        return "-"
    if least is None:
        return f"<= {_number(most)}"
    if most is None:
        return f">= {_number(least)}"
    return f"{_number(least)}..{_number(most)}"


def plain(rows: Sequence[Reproduced]) -> dict[str, Any]:
    """The same as numbers, for JSON."""
    return {
        "rows": [
            {
                "name": row.name,
                "title": row.title,
                "source": row.source,
                "reason": row.reason,
                "figures": [
                    {
                        "what": one.figure.what,
                        "published": one.figure.published,
                        "said": one.figure.said,
                        "unit": one.figure.unit,
                        "ours": one.ours,
                        "difference": one.difference,
                        "least": one.figure.least,
                        "most": one.figure.most,
                        "verdict": one.verdict,
                        "basis": one.figure.basis,
                    }
                    for one in figures
                ],
            }
            for row, figures, _ in rows
        ],
        "counts": {basis: dict(verdicts) for basis, verdicts in counts(rows).items()},
    }


def draw(rows: Iterable[Reproduced], directory: Path) -> list[Path]:
    """A picture for each row that is a curve, with its data beside it; the pictures."""
    directory.mkdir(parents=True, exist_ok=True)
    made = []
    for row, _, answers in rows:
        if row.picture is not None:
            path = directory / f"{row.name}.svg"
            plot.draw(row.picture(answers), path)
            made.append(path)
    return made
