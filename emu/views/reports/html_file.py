"""One HTML file from a title, a body and the data that its script draws.

The file holds its data, style and script, and a content security policy that lets it load nothing else, so
it can be sent to somebody without `emu`, a network or trust. A page that is served (`emu.views.reports.live`)
may ask its own server for what changed, and nobody else.
"""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib.resources import files
from typing import Any, Final

MOST_ROWS: Final = 40
"""Rows of a table, at most."""

SCRIPTS: Final = ("words", "time_axis", "fabric", "steps", "charts", "page")
"""Parts of the script, in order."""


def document(title: str, body: Iterable[str], data: Mapping[str, Any], *, asks: str = "'none'") -> str:
    """The page; `asks` says to whom its script may speak, as a content security policy does."""
    style, script = _shipped("page.css"), "".join(_shipped(f"script/{name}.js") for name in SCRIPTS)
    whole = _shipped("page.html")
    for name, text in (
        ("STYLE_HASH", _hash(style)),
        ("SCRIPT_HASH", _hash(script)),
        ("ASKS", asks),
        ("TITLE", escape(title)),
        ("STYLE", style),
        ("BODY", "\n".join(body)),
        ("DATA", json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")),
        ("SCRIPT", script),
    ):
        whole = whole.replace(f"@{name}@", text, 1)
    return whole


def _shipped(name: str) -> str:
    return files("emu.views.reports").joinpath(name).read_text("utf-8")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def packed(figures: bytes) -> str:
    """Bytes as the script unpacks them: deflate, base64."""
    return base64.b64encode(zlib.compress(figures, 9)).decode()


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table; beyond `MOST_ROWS` it says how many more there are."""
    top = "".join(f"<th>{escape(words)}</th>" for words in head)
    lines = "".join(
        f"<tr>{''.join(f'<td>{escape(words)}</td>' for words in row)}</tr>" for row in rows[:MOST_ROWS]
    )
    rest = len(rows) - MOST_ROWS
    more = f'<p class="quiet">and {rest:,} more</p>' if rest > 0 else ""
    return f'<div class="wide"><table><tr>{top}</tr>{lines}</table></div>{more}'


def folded(summary: str, inside: str) -> str:
    """What is shown when somebody asks for it."""
    return f"<details><summary>{escape(summary)}</summary>{inside}</details>"


def chart_places(charts: Sequence[Mapping[str, Any]]) -> Iterable[str]:
    """Where the script draws charts, each with its points as a table."""
    for index, chart in enumerate(charts):
        yield f'<p class="quiet">{escape(chart["label"])}</p><div id="chart-{index}"></div>'
        rows = [
            (line["name"], str(point[0]), f"{point[1]:g}", ", ".join(f"{one:g}" for one in point[2]))
            for line in chart["lines"]
            for point in line["points"]
        ]
        seeds = any(row[3] for row in rows)
        head = ("line", chart["x"], chart["y"], "of each seed")
        width = len(head) if seeds else len(head) - 1
        yield folded("as a table", table(head[:width], [row[:width] for row in rows]))
