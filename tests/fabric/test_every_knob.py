"""Does every knob of the fabric do something?

Each key of `switch`, `link`, `nic`, `transport` and `routing`, read off the schema, is changed alone on a
tiny fabric, and another course of events must come of it: the mixes of all devices' events are compared, and
no counter or report that a knob merely adds. What changes nothing is named in `RESTS`, with the reason, and
is held to that too. A new knob without an entry fails.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from actors.switch.buffer import Admission, PriorityGroup
from emu.engine.outcome import RunOptions
from emu.launch import run_scenario
from emu.preparing import prepare
from emu.scenario.reference import parts
from emu.scenario.section import OneOf, Section
from emu.scenario.yaml.problems import ListOf, field_shape, fields
from tests.fabric.knob_values import RESTS, TRIED, After
from tests.fabric.knobs import BASE, GIVEN

SECTIONS = ("switch", "link", "nic", "transport", "routing")


def knobs() -> list[tuple[str, str]]:
    """Every heading and key of these sections that holds a value of its own."""
    found = []
    for part in parts():
        if part.heading.replace(" ", ".").replace("[", ".").split(".")[0] not in SECTIONS:
            continue
        for key, field in fields(part.model).items():
            shape = field_shape(field)
            inner = shape.item if isinstance(shape, ListOf) else shape
            section = isinstance(inner, OneOf) or (isinstance(inner, type) and issubclass(inner, Section))
            if not section:
                found.append((part.heading, key))
    return found


def path_of(heading: str, key: str) -> str:
    """Where a knob is set: routing.link_weights[0].link for one under `routing (kind: ecmp)`."""
    plain, brackets, rest = heading.partition(" (")
    if brackets:
        plain += rest.partition(")")[2]
    return f"{plain.replace('[]', '[0]')}.{key}"


def events_of(overrides: Mapping[str, Any]) -> tuple[tuple[int, ...], ...]:
    """The mixes of every device."""
    return _events(tuple(sorted(overrides.items(), key=lambda item: (item[0].count("."), item[0]))))


def _events(overrides: tuple[tuple[str, Any], ...]) -> tuple[tuple[int, ...], ...]:
    key = repr(overrides)
    if key not in _KNOWN:
        prepared = prepare(dict(BASE), dict(overrides))
        outcome = run_scenario(prepared.scenario, prepared.topology, RunOptions(local=True, metrics=False))
        _KNOWN[key] = tuple((device.number, *device.mixes) for device in outcome.devices)
    return _KNOWN[key]


_KNOWN: dict[str, tuple[tuple[int, ...], ...]] = {}


class Nothing(Admission):
    """A group may hold nothing of the pool."""

    def threshold_bytes(self, group: PriorityGroup, now: int) -> int:
        return 0


def changed(heading: str, key: str) -> bool:
    """Whether another value of this knob, alone, makes another course of events."""
    value, more = TRIED[heading][key]
    before = {**GIVEN[heading], **more}
    path = path_of(heading, key)
    if f"{key}: " in heading and heading.endswith(")"):
        own = heading.rpartition(": ")[2].removesuffix(")")
        others: dict[str, Mapping[str, Any]] = {
            "none": {"transport.congestion_control.kind": "dcqcn"},
            "e_ecmp": {"routing.kind": "ecmp"},
            "thresholds": {"switch.buffer.admission.kind": f"{__name__}:Nothing"},
            "tcp": {"transport.congestion_control.kind": "none"},
            "reno": {"transport.congestion_control.kind": "cubic"},
            "cubic": {"transport.congestion_control.kind": "reno"},
            "multipath": {"transport.kind": "rc"},
            "round_robin": {"nic.arbiter.kind": "weighted", "nic.arbiter.strict": []},
        }
        plain = {k: v for k, v in before.items() if not k.startswith(path.rpartition(".")[0] + ".")}
        return events_of(before) != events_of({**plain, **others.get(own, {})})
    after: Mapping[str, Any] = value if isinstance(value, After) else {path: value}
    return events_of(before) != events_of({**before, **after})


@pytest.mark.parametrize(("heading", "key"), knobs(), ids=lambda text: text.replace(" ", ""))
def test_a_knob_changes_what_happens_or_is_named_with_the_reason(heading: str, key: str) -> None:
    assert key in TRIED.get(heading, {}), "try it: an entry in tests/fabric/knob_values.py"
    name = f"{heading}.{key}"
    assert changed(heading, key) == (name not in RESTS), RESTS.get(name, "it does nothing")


def test_what_is_tried_is_in_the_schema() -> None:
    known = {f"{heading}.{key}" for heading, key in knobs()}
    assert [name for name in RESTS if name not in known] == []
    tried = {f"{heading}.{key}" for heading, row in TRIED.items() for key in row}
    assert sorted(tried - known) == []
