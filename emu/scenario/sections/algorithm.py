"""How does a scenario name the algorithm of a collective?

One of the library, the tuner's choice, or one's own:

`default` and `auto` are words; a file (`.yaml`, `.yml`, `.json`) is a send/receive graph, which loading puts
into `graph` beside it (`emu.scenario.sections.graph`); `module:Class` is a class with a method `steps`.
"""

from __future__ import annotations

from typing import Annotated, Final

from actors.ncclx.collectives import ALGORITHMS
from emu.scenario.plugins import SEPARATOR, load_plugin
from emu.scenario.sections.section import RefusedError
from emu.scenario.yaml.values import Reading
from emu.spelling import did_you_mean, shown

DEFAULT: Final = "default"
AUTO: Final = "auto"
GRAPH: Final = "graph"
_WORDS: Final = (DEFAULT, AUTO, *ALGORITHMS)
ACCEPTED: Final = ", ".join((*_WORDS, "FILE.yaml", "module:Class"))


def _read(value: object) -> str:
    if isinstance(value, str) and (value in _WORDS or value == GRAPH):
        return value
    if isinstance(value, str) and SEPARATOR in value:
        if not callable(getattr(load_plugin(value), "steps", None)):
            raise RefusedError(
                f"{value!r} has no method `steps`", "a class like actors.ncclx.graph.Algorithm"
            )
        return value
    hint = did_you_mean(value, _WORDS) if isinstance(value, str) else ""
    raise RefusedError(f"{shown(value)} is not one of the choices{hint}", ACCEPTED)


AlgorithmChoice = Annotated[
    str,
    Reading(
        _read,
        str,
        ACCEPTED,
        {"anyOf": [{"enum": [*_WORDS, GRAPH]}, {"type": "string", "pattern": "[.:]"}]},
        "name, file or `module:Class`",
    ),
]


def by_default(op: str) -> str:
    """The algorithm that `default` stands for."""
    return "ring" if op in ALGORITHMS["ring"] else "direct"


def able(op: str) -> list[str]:
    """The algorithms of the library that can do an operation."""
    return [name for name, known in ALGORITHMS.items() if op in known]
