"""What a training step is made of, as one bar: computing, exposed communication by group, bubble, other.

An SVG with its legend, which a page and a notebook show without a script or a style sheet. A colour-blind
reader tells its colours apart, and neither red nor green is among them: those stand for bad and good.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import Final

from emu.base.units import about_time
from emu.results.training_result import TrainingResult

HUES: Final = {"computing": "#0072b2", "bubble": "#8c6d31", "other": "#8a9199"}
EXPOSED_HUES: Final = ("#e69f00", "#9467bd", "#56b4e9", "#d9c84a", "#c06090")
"""Of the groups that a rank waits for, in their order."""
HEIGHT: Final = 18
LEAST: Final = 0.0005
"""A smaller share is not drawn."""


def parts_of(result: TrainingResult) -> list[tuple[str, float, str]]:
    """Name, share of the step and colour of each part, in the order of the bar."""
    if result.compute is None or result.bubble is None or result.other is None:
        return []
    parts = [("computing", result.compute, HUES["computing"])]
    for at, (name, share) in enumerate(result.exposed.items()):
        parts.append((f"exposed {name}", share, EXPOSED_HUES[at % len(EXPOSED_HUES)]))
    parts += [
        (name, share, HUES[name]) for name, share in (("bubble", result.bubble), ("other", result.other))
    ]
    return [part for part in parts if part[1] >= LEAST]


def step_bar(result: TrainingResult) -> str:
    """The bar and its legend as HTML; empty where no step was finished."""
    return "".join(_blocks(result))


def _blocks(result: TrainingResult) -> Iterator[str]:
    parts = parts_of(result)
    if not parts or result.step_ps is None:
        return
    named = ", ".join(f"{name} {share:.1%}" for name, share, _ in parts)
    yield f'<svg class="step" role="img" aria-label="{escape(named)}" width="100%" height="{HEIGHT}">'
    left = 0.0
    for name, share, hue in parts:
        words = f"{name} {share:.1%} of the step: {about_time(round(share * result.step_ps))}"
        yield (
            f'<rect x="{100 * left:.3f}%" y="0" width="{100 * share:.3f}%" height="{HEIGHT}" fill="{hue}">'
            f"<title>{escape(words)}</title></rect>"
        )
        left += share
    yield "</svg><p>"
    for name, share, hue in parts:
        key = f'<svg class="key" width="10" height="10"><rect width="10" height="10" fill="{hue}"/></svg>'
        yield f"<span>{key} {escape(name)} {share:.1%} </span>"
    yield "</p>"
