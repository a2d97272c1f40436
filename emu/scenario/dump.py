"""The effective scenario: every default spelled out, as YAML.

The effective scenario is YAML that loads back to an equal scenario, without any other file. Texts that YAML
1.1 or 1.2 would read as something else are quoted. PyYAML's emitter in C writes it, five times as fast as
the one in Python. The two break long quoted texts into lines at different places, and the one in C writes
characters beyond U+FFFF as escapes; they agree on everything else.
"""

from __future__ import annotations

import json
from functools import cache, lru_cache
from typing import Any, Final, NamedTuple

import yaml

from emu.scenario.schema import Scenario
from emu.scenario.section import Section
from emu.scenario.yaml.document import TAGS, resolved
from emu.scenario.yaml.problems import ListOf, Shape, field_shape
from emu.scenario.yaml.values import Reading

_WIDTH: Final = 100
_DUMPER: Final[Any] = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


def to_mapping(scenario: Scenario) -> dict[str, Any]:
    """The scenario as YAML holds it: keys without units, quantities with them, lists, nothing left out.

    Only keys whose default is "none" (the `for` of a lasting fault) are absent.
    """
    return _plain(scenario)


class _Key(NamedTuple):
    """How a field of a section is written."""

    key: str
    shape: Shape
    always: bool
    """Whether the shape has a text for None, too."""


@cache
def _keys(model: type[Section]) -> dict[str, _Key]:
    return {
        name: _Key(
            field.alias or name,
            field_shape(field),
            any(isinstance(mark, Reading) for mark in field.metadata),
        )
        for name, field in model.model_fields.items()
    }


def _plain(section: Section) -> dict[str, Any]:
    """A section's keys that have a value. pydantic's dump gives the same (a test holds that), once it has
    compiled a writer for every section of the scenario, most of which are at their defaults."""
    found = {}
    for name, (key, shape, always) in _keys(type(section)).items():
        value = getattr(section, name)
        if value is not None or always:
            value = _shown(value, shape)
        if value is not None:
            found[key] = value
    return found


def _shown(value: Any, shape: Shape) -> Any:
    if isinstance(shape, Reading):
        return _listed(shape.show(value))
    if isinstance(value, Section):
        return _plain(value)
    if isinstance(value, (tuple, list)):
        item = shape.item if isinstance(shape, ListOf) else None
        return [_shown(one, item) for one in value]
    return _listed(value)


def _listed(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _shown(item, None) for key, item in value.items() if item is not None}
    if isinstance(value, (tuple, list)):
        return [_shown(item, None) for item in value]
    return value


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
