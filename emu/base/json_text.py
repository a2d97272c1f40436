"""Records and plain values as JSON, indented by two spaces.

A module of its own because it is compiled: the summary of a large fabric has a hundred thousand rows. The
standard library's encoder in C does not indent.
"""

from collections.abc import Callable
from json.encoder import encode_basestring
from typing import Any

Heads = Callable[[Any], tuple[tuple[str, str], ...]]
"""Of a record: attributes in order, each with its key as JSON begins a line with it; nothing of others."""


def json_text(value: object, heads_of: Heads, line: str = "\n") -> str:
    """`line` begins a line at this depth. Characters beyond ASCII stay as they are, what is no finite number
    is null."""
    if value is None:
        return "null"
    if isinstance(value, str):
        return encode_basestring(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(int(value))
    if isinstance(value, float):
        return repr(value) if value - value == 0 else "null"
    inner = line + "  "
    found: list[str] = []
    if isinstance(value, (list, tuple)):
        for one in value:
            found.append(json_text(one, heads_of, inner))  # noqa: PERF401 - compiled, and no closure
        return _between("[", found, inner, line, "]")
    if isinstance(value, dict):
        for key, below in value.items():
            found.append(encode_basestring(key) + ": " + json_text(below, heads_of, inner))
        return _between("{", found, inner, line, "}")
    held: dict[str, object] = value.__dict__
    for name, head in heads_of(type(value)):
        found.append(head + json_text(held[name], heads_of, inner))
    return _between("{", found, inner, line, "}")


def _between(begin: str, lines: list[str], inner: str, line: str, end: str) -> str:
    return begin + inner + ("," + inner).join(lines) + line + end if lines else begin + end
