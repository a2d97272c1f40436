"""A drawing written as SVG.

One file without scripts, fonts or links to anything else, which every browser and editor shows. Planes have a
colour each; what belongs to none is grey.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import Final

from emu.topology.drawing.layout import BOX, Frame, Line, Scene

PLANES: Final = (
    "#1d4ed8",
    "#c2410c",
    "#15803d",
    "#7e22ce",
    "#0e7490",
    "#a16207",
    "#be185d",
    "#475569",
)
SERVER: Final = "#334155"
STYLE: Final = """\
text{font-family:ui-sans-serif,system-ui,"DejaVu Sans",Helvetica,Arial,sans-serif;fill:#0f172a}
.title{font-size:20px;font-weight:600}
.lead{font-size:13px;fill:#475569}
.row{font-size:14px;font-weight:600}
.side{font-size:12px;fill:#475569}
.skip{font-size:12px;fill:#64748b;text-anchor:middle}
.box{font-size:12px;text-anchor:middle}
.frame{font-size:12px;fill:#475569}
"""


def to_svg(scene: Scene) -> str:
    """The drawing as the text of an SVG file."""
    return "\n".join(_written(scene)) + "\n"


def _written(scene: Scene) -> Iterator[str]:
    size = f'width="{scene.width}" height="{scene.height}" viewBox="0 0 {scene.width} {scene.height}"'
    yield f'<svg xmlns="http://www.w3.org/2000/svg" {size}>'
    yield f"<style>\n{STYLE}</style>"
    yield f'<rect width="{scene.width}" height="{scene.height}" fill="#ffffff"/>'
    for frame in sorted(scene.frames, key=lambda frame: -frame.tier):
        yield _frame(frame)
    for line in scene.lines:
        yield _line(line)
    for box in scene.boxes:
        stroke = SERVER if box.plane < 0 else PLANES[box.plane % len(PLANES)]
        place = f'x="{box.x}" y="{box.y}" width="{box.width}" height="{BOX}" rx="5"'
        yield f'<rect {place} fill="#ffffff" stroke="{stroke}" stroke-width="1.5"/>'
        yield _text(box.x + box.width // 2, box.y + BOX // 2 + 4, box.name, "box")
    for note in scene.notes:
        yield _text(note.x, note.y, note.text, note.style)
    yield "</svg>"


def _frame(frame: Frame) -> str:
    fill = "#f8fafc" if frame.tier % 2 else "#eef2f7"
    place = f'x="{frame.x}" y="{frame.y}" width="{frame.width}" height="{frame.height}" rx="8"'
    name = _text(frame.x + 8, frame.y + frame.height - 8, frame.name, "frame")
    return f'<rect {place} fill="{fill}" stroke="#cbd5e1"/>{name}'


def _line(line: Line) -> str:
    colour = PLANES[line.plane % len(PLANES)] if line.plane >= 0 else "#94a3b8"
    wide = min(1 + line.links // 4, 3)
    stroke = f'fill="none" stroke="{colour}" stroke-width="{wide}" stroke-opacity="0.45"'
    if line.y1 != line.y2:
        return f'<path d="M{line.x1} {line.y1}L{line.x2} {line.y2}" {stroke}/>'
    bend = line.y1 - BOX
    return f'<path d="M{line.x1} {line.y1}Q{(line.x1 + line.x2) // 2} {bend} {line.x2} {line.y2}" {stroke}/>'


def _text(x: int, y: int, text: str, style: str) -> str:
    return f'<text x="{x}" y="{y}" class="{style}">{escape(text)}</text>'
