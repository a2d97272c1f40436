"""The effective scenario: every default spelled out, as YAML.

The effective scenario is YAML that loads back to an equal scenario, without any other file. Texts that YAML
1.1 or 1.2 would read as something else are quoted. PyYAML's emitter in C writes it, five times as fast as
the one in Python. The two break long quoted texts into lines at different places, and the one in C writes
characters beyond U+FFFF as escapes; they agree on everything else.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any, Final

import yaml

from emu.scenario.schema import Scenario
from emu.scenario.yaml.document import TAGS, resolved

_WIDTH: Final = 100
_DUMPER: Final[Any] = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


def to_mapping(scenario: Scenario) -> dict[str, Any]:
    """The scenario as YAML holds it: keys without units, quantities with them, lists, nothing left out.

    Only keys whose default is "none" (the `for` of a lasting fault) are absent.
    """
    return scenario.model_dump(mode="json", by_alias=True, exclude_none=True)


def to_yaml(scenario: Scenario) -> str:
    """The effective scenario; `load_text` reads it back as an equal one."""
    return mapping_to_yaml(to_mapping(scenario))


def mapping_to_yaml(mapping: dict[str, Any]) -> str:
    """A mapping as a scenario writes it."""
    text: str = yaml.serialize(
        _node(mapping, in_list=False),
        Dumper=_DUMPER,
        allow_unicode=True,
        width=_WIDTH,
    )
    return text


def canonical_bytes(scenario: Scenario) -> bytes:
    """The same bytes for equal scenarios, in every version of Python and PyYAML: JSON, keys sorted, ASCII."""
    return json.dumps(to_mapping(scenario), sort_keys=True, separators=(",", ":")).encode("ascii")


def _node(value: Any, *, in_list: bool) -> yaml.Node:
    """Lists of single values, and mappings of them within a list, go on one line; the rest gets lines."""
    if isinstance(value, dict):
        pairs = [(_scalar(key), _node(item, in_list=False)) for key, item in value.items()]
        one_line = in_list and not any(isinstance(item, (dict, list)) for item in value.values())
        return yaml.MappingNode(f"{TAGS}map", pairs, flow_style=one_line)
    if isinstance(value, list):
        one_line = not any(isinstance(item, (dict, list)) for item in value)
        return yaml.SequenceNode(
            f"{TAGS}seq", [_node(item, in_list=True) for item in value], flow_style=one_line
        )
    return _scalar(value)


def _scalar(value: Any) -> yaml.ScalarNode:
    if isinstance(value, bool):
        return yaml.ScalarNode(f"{TAGS}bool", "true" if value else "false")
    if isinstance(value, int):
        return yaml.ScalarNode(f"{TAGS}int", str(value))
    if isinstance(value, float):
        return yaml.ScalarNode(f"{TAGS}float", repr(value))
    return yaml.ScalarNode(f"{TAGS}str", value, style=_style(value))


@lru_cache(maxsize=4096)
def _style(text: str) -> str | None:
    """How a text is quoted, if that is not up to PyYAML.

    In double quotes everything has an escape; PyYAML's other styles lose some line breaks of Unicode.
    """
    return None if isinstance(resolved(text), str) and text.isprintable() else '"'
