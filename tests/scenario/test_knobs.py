"""Are knobs that a policy lists as data read, checked and refused as keys of the scenario?"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from actors.kernel.knobs import Knob, knobs_of
from actors.nic.congestion.control import CongestionControl
from actors.nic.congestion.dcqcn import Dcqcn
from emu.base.errors import ScenarioError
from emu.scenario.dump import to_yaml
from emu.scenario.load import load_text
from emu.scenario.plugins import OneOfOrPlugin
from emu.scenario.sections.nic import ARBITERS, CONTROLS, RECOVERIES
from emu.scenario.sections.routing import POLICIES
from emu.scenario.sections.switch import ADMISSIONS, SCHEDULERS
from tests.scenario.scenarios import SMALL


class Own(CongestionControl):
    """One knob of each unit."""

    knobs = (
        Knob("wait", "ps", "2us", "1us", "1ms"),
        Knob("room", "bytes", "4KiB", "mtu"),
        Knob("pace", "bps", "10G", "1G"),
        Knob("gap", "ps", "auto"),
        Knob("count", "number", 3, 1, 9),
        Knob("share", "fraction", "1/8", most=1),
        Knob("early", "flag", default=False),
        Knob("order", ("oldest", "newest"), "oldest"),
        Knob("first", "priorities", (6, 7)),
        Knob("shares", "weights", (1,) * 8, 1, 4),
    )


def own(name: str = "Own", **knobs: object) -> Any:
    """The section of a class of this module, in a scenario that is read from text."""
    written = ", ".join(f"{key}: {value}" for key, value in knobs.items())
    control = f"{{kind: '{__name__}:{name}'{', ' if written else ''}{written}}}"
    loaded = load_text(f"{SMALL}\ntransport:\n  congestion_control: {control}\n", "own.yaml").scenario
    assert load_text(to_yaml(loaded)).scenario == loaded
    return loaded.transport.congestion_control


def test_a_policy_reads_its_knobs_with_the_unit_last_in_the_name() -> None:
    found = own()
    assert (found.wait_ps, found.room_bytes, found.pace_bps, found.gap_ps) == (2 * 10**6, 4096, 10**10, None)
    assert (found.count, found.share, found.early, found.order) == (3, Fraction(1, 8), False, "oldest")
    assert (found.first, found.shares) == ((6, 7), (1,) * 8)
    given = own(wait="3us", room="8KiB", gap="5ns", share="1/3", order="newest", first="[0]", early="true")
    assert (given.wait_ps, given.room_bytes, given.gap_ps) == (3 * 10**6, 8192, 5000)
    assert (given.share, given.order, given.first, given.early) == (Fraction(1, 3), "newest", (0,), True)


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("wiat", "2us", "wiat: unknown key; did you mean 'wait'?"),
        ("wait", "2", "wait: 2 is a bare number: its unit would be a guess; accepted: a time"),
        ("wait", "2ms", "wait: '2ms' is too large; accepted: 1us to 1ms"),
        ("wait", "999ns", "wait: '999ns' is too small; accepted: 1us to 1ms"),
        ("room", "1KiB", "room: the room of 1024 bytes holds no packet of 4096; accepted: at least `mtu`"),
        ("pace", "auto", "pace: 'auto' is not a rate; accepted: a rate with its unit"),
        ("count", "10", "count: 10 is out of range; accepted: at most 9"),
        ("share", "9/8", "share: '9/8' is out of range; accepted: a fraction above 0 and up to 1"),
        ("early", "1", "early: 1 is not true or false; accepted: true or false"),
        (
            "order",
            "last",
            "order: 'last' is not one of the choices; did you mean 'oldest'?",
        ),
        ("first", "[6, 6]", "first: a priority is listed twice; accepted: each priority once"),
        ("shares", "[1, 1, 1, 1, 1, 1, 1, 5]", "shares[7]: 5 is out of range; accepted: at most 4"),
    ],
)
def test_what_a_knob_does_not_take_is_refused_in_one_line(key: str, value: str, said: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        own(**{key: value})
    (line,) = str(caught.value).splitlines()
    assert line.startswith("own.yaml:")
    assert f"transport.congestion_control.{said}" in line


class Section(CongestionControl):
    knobs = Own  # type: ignore[assignment]  # as plug-ins of 0.1.0 had it


class Unit(CongestionControl):
    knobs = (Knob("wait", "us", 2),)


class Taken(CongestionControl):
    knobs = (Knob("cnp_priority", "number", 2),)


class Bare(CongestionControl):
    knobs = (Knob("wait", "ps", 2),)


class Beyond(CongestionControl):
    knobs = (Knob("count", "number", 2, 3, 4),)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Section", "`knobs` of Section is no list of Knob; accepted: a list of Knob(name, unit, default"),
        ("Unit", "knob 'wait': there is no unit 'us'; accepted: ps, bytes, bps, number"),
        (
            "Taken",
            "knob 'cnp_priority' is a key of its section already; accepted: a name other than ",
        ),
        (
            "Bare",
            "knob 'wait': 2 is a bare number: its unit would be a guess; accepted: a time",
        ),
        ("Beyond", "the default of knob 'count' is out of range; accepted: Knob(name, unit, default"),
    ],
)
def test_knobs_that_are_none_are_refused_by_the_class(name: str, said: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        own(name)
    (line,) = str(caught.value).splitlines()
    assert f"transport.congestion_control.kind: '{__name__}:{name}' does not load: {said}" in line


class Faster(Dcqcn):
    """DCQCN with another default and one knob more."""

    knobs = (Knob("additive", "bps", "4G"), Knob("boost", "number", 2))


def test_a_class_has_the_knobs_of_its_bases_and_its_own_take_their_place() -> None:
    assert list(knobs_of(Faster)) == [*knobs_of(Dcqcn), "boost"]
    found = own("Faster", boost=5)
    assert (found.additive_bps, found.boost, found.hyper_bps) == (4 * 10**9, 5, 400_000_000)


TABLES = [CONTROLS, POLICIES, ARBITERS, RECOVERIES, ADMISSIONS, SCHEDULERS]


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.base.__name__)
def test_the_defaults_of_built_in_policies_could_be_written(table: OneOfOrPlugin) -> None:
    for kind, model in table.table.items():
        section = table.section(kind)
        written = section.model_dump(mode="json", by_alias=True)
        assert model.model_validate({**written, "kind": kind}) == section
        assert all(knob.doc.endswith(".") for knob in section.knobs.values()), kind
