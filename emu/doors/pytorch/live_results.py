"""What came of a live run: losses and steps of its ranks, beside gloo's, as JSON, lines and a page."""

from __future__ import annotations

import json
import math
from array import array
from bisect import bisect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from statistics import median
from typing import Any, Final

from emu.base.units import about_size, shown_time
from emu.views.reports.html_file import chart_places, document, table

LEFT: Final = 1e-3
"""Relative difference of losses from which a curve has left the other: far above rounding in fp32."""
BEYOND: Final = 4
"""A loss that is so many times the largest over gloo is not drawn."""
PAGE: Final = "page.html"
SUMMARY: Final = "live.json"


@dataclass
class Outcome:
    """A job over one transport: what each rank wrote at its end."""

    ranks: list[Mapping[str, Any]]
    parameters: list[array[float]] = field(default_factory=list)
    """Of each rank, as fp32."""

    @property
    def losses(self) -> list[float]:
        """Of each backward, the mean over ranks."""
        return [sum(one) / len(one) for one in zip(*(rank["losses"] for rank in self.ranks), strict=False)]


def outcome_of(folder: Path, ranks: int) -> Outcome:
    """Read what the ranks wrote, and remove it; their output stays."""
    found = Outcome([])
    for rank in range(ranks):
        facts, parameters = folder / f"rank_{rank}.json", folder / f"parameters_{rank}"
        if facts.exists() and parameters.exists():
            found.ranks.append(json.loads(facts.read_text("utf-8")))
            found.parameters.append(array("f", parameters.read_bytes()))
        facts.unlink(missing_ok=True)
        parameters.unlink(missing_ok=True)
    return found


@dataclass
class Live:
    """A live run that is over."""

    name: str
    words: str
    """The command."""
    emulated: Outcome
    digest: str
    reason: str = ""
    """Why the job failed."""
    gloo: Outcome | None = None
    faults: Sequence[tuple[str, int]] = ()
    """What was scripted to go wrong, and when; -1 of what was so from the start."""

    def left(self) -> tuple[int, float, float] | None:
        """The first step whose loss is not gloo's, with both losses."""
        if self.gloo is not None:
            for step, (mine, other) in enumerate(zip(self.emulated.losses, self.gloo.losses, strict=False)):
                if not abs(mine - other) <= LEFT * max(abs(other), LEFT):
                    return step, mine, other
        return None

    def apart(self) -> float | None:
        """How far parameters are from gloo's at most; None where there is nothing to compare."""
        if self.gloo is None or not self.gloo.parameters:
            return None
        pairs = zip(self.emulated.parameters, self.gloo.parameters, strict=False)
        apart = [abs(a - b) for mine, other in pairs for a, b in zip(mine, other, strict=False)]
        return math.nan if any(map(math.isnan, apart)) else max(apart, default=None)

    def step_ps(self) -> int:
        """The median step of the slowest rank, without the first; 0 if there are too few."""
        steps = [
            [b - a for a, b in zip(one["steps_ps"], one["steps_ps"][1:], strict=False)]
            for one in self.emulated.ranks
        ]
        return max((int(median(one)) for one in steps if one), default=0)

    def lines(self) -> Iterator[str]:
        """What is printed."""
        ranks = self.emulated.ranks
        if ranks:
            first = ranks[0]
            yield (
                f"{len(ranks)} ranks, {len(first['steps_ps'])} steps of {shown_time(self.step_ps())} "
                "(median), "
                f"{first['calls']} calls and {about_size(first['bytes'])} of tensors of rank {first['rank']}"
            )
        losses = self.emulated.losses
        if losses:
            yield f"loss {losses[0]:.6g} at first, {losses[-1]:.6g} at last"
        left, apart = self.left(), self.apart()
        if left is not None:
            step, mine, other = left
            yield f"the loss leaves that over gloo at step {step}: {mine:.6g}, over gloo {other:.6g}"
        elif self.gloo is not None:
            yield "the loss is that over gloo, to 1/1000"
        if apart is not None and math.isnan(apart):
            yield "parameters are not all numbers any more"
        elif apart is not None:
            yield f"parameters are at most {apart:.2g} from those over gloo"
        if self.digest:
            yield f"digest {self.digest}"

    def summary(self) -> dict[str, Any]:
        """As JSON."""
        left = self.left()
        return {
            "name": self.name,
            "command": self.words,
            "failed": self.reason or None,
            "digest": self.digest or None,
            "losses": _finite(self.emulated.losses),
            "gloo_losses": None if self.gloo is None else _finite(self.gloo.losses),
            "left_gloo_at_step": None if left is None else left[0],
            "parameters_from_gloo": _finite([self.apart()])[0],
            "step_ps": self.step_ps(),
            "ranks": [
                {key: value for key, value in one.items() if key != "losses"} for one in self.emulated.ranks
            ],
        }

    def page(self) -> str:
        """The page: the curve of the loss, beside gloo's, what went wrong, and the ranks."""
        lines = [("emulated", self.emulated.losses)]
        label, most = "loss by step, mean over ranks", math.inf
        if self.gloo is not None:
            lines.insert(0, ("over gloo", self.gloo.losses))
            most = BEYOND * max(map(abs, self.gloo.losses), default=math.inf)
        if any(not abs(loss) <= most for _, losses in lines for loss in losses):
            label += f"; points above {most:.3g} are left out"
        charts = [
            {
                "label": label,
                "x": "step",
                "y": "loss",
                "log": False,
                "lines": [
                    {
                        "name": name,
                        "points": [
                            [step, loss, []]
                            for step, loss in enumerate(losses)
                            if math.isfinite(loss) and abs(loss) <= most
                        ],
                    }
                    for name, losses in lines
                ],
            }
        ]
        return document(self.name, self._body(charts), {"charts": charts, "first": -1})

    def _body(self, charts: Sequence[Mapping[str, Any]]) -> Iterator[str]:
        yield f"<h1>{escape(self.name)}</h1><p><code>{escape(self.words)}</code></p>"
        if self.reason:
            yield f"<p><b>{escape(self.reason)}</b></p>"
        left = self.left()
        yield "".join(
            f"<p>{f'<b>{escape(line)}</b>' if left and 'leaves' in line else escape(line)}</p>"
            for line in self.lines()
        )
        yield from chart_places(charts)
        if self.faults:
            yield "<h2>Faults</h2>"
            yield table(
                ("fault", "from", "in step"), [self._fault(what, at_ps) for what, at_ps in self.faults]
            )
        yield "<h2>Ranks</h2>"
        yield table(
            ("rank", "steps", "calls", "tensors", "computed", "at the end", "parameters"),
            [
                (
                    str(one["rank"]),
                    str(len(one["steps_ps"])),
                    str(one["calls"]),
                    about_size(one["bytes"]),
                    shown_time(one["computed_ps"]),
                    shown_time(one["end_ps"]),
                    one["parameters"][:16],
                )
                for one in self.emulated.ranks
            ],
        )

    def _fault(self, what: str, at_ps: int) -> tuple[str, str, str]:
        if at_ps <= 0:
            return what, "the start", "0"
        steps: list[int] = max((one["steps_ps"] for one in self.emulated.ranks), key=len, default=[])
        step = bisect(steps, at_ps)
        return what, shown_time(at_ps), str(step) if step < len(steps) else "none: after the last"


def _finite(values: Sequence[float | None]) -> list[float | None]:
    """As JSON has numbers: None for what is none."""
    return [one if one is not None and math.isfinite(one) else None for one in values]
