"""Does a queue that its peer never lets go do what the watchdog says, and come back?"""

from __future__ import annotations

from typing import Any

import pytest

from tests.fabric.rig import Fabric
from tests.fabric.sections import scenario, star
from tests.switch.frames import FULL_PS, frame_arrives, pause_arrives

US = 1_000_000
QUANTA = 1000
"""Of 64 B at 400G: 1.28 us."""


def fabric(action: str = "drop", **more: Any) -> Fabric:
    watchdog = {"enabled": True, "detection": "10us", "restoration": "20us", "action": action, **more}
    return Fabric(scenario(star(3), switch={"pfc": {"watchdog": watchdog}}))


def storm(one: Fabric, until_ps: int, port: int = 2) -> None:
    """Pauses for class 3 at a port, each before the last one ends."""
    for at_ps in range(0, until_ps, US):
        pause_arrives(one, at_ps, port, stop=1 << 3, quanta=QUANTA)


def test_a_storm_drops_what_waits_and_what_comes_until_it_is_over() -> None:
    one = fabric()
    storm(one, 30 * US)
    waits = [frame_arrives(one, 100 + turn, turn % 2, 2) for turn in range(4)]
    late = frame_arrives(one, 15 * US, 0, 2)
    # The last pause ends at 29 + 1.28 us, and 20 us later the queue is as before.
    quiet = frame_arrives(one, 50 * US + 279_999, 0, 2)
    after = frame_arrives(one, 50 * US + 280_001, 0, 2)
    one.run(10 * US)
    assert one.total("port_dropped_frames", "watchdog") == 0
    one.run()
    assert [frame.sent_ps for frame in waits] == [0, 0, 0, 0]
    assert (late.sent_ps, quiet.sent_ps) == (14 * US + 500_000, 49 * US + 779_999)
    assert after.sent_ps == 50 * US + 280_001
    assert one.total("port_dropped_frames", "watchdog") == 6
    assert one.total("pfc_watchdog_storms") == 1
    assert one.congestion_drops() == 0
    assert one.switch("switch").buffer.held_bytes == 0


def test_forwarding_sends_in_spite_of_the_pauses_and_obeys_again_afterwards() -> None:
    one = fabric("forward")
    storm(one, 30 * US)
    waits = [frame_arrives(one, 100 + turn, turn % 2, 2) for turn in range(3)]
    pause_arrives(one, 60 * US, 2, stop=1 << 3, quanta=QUANTA)
    held = frame_arrives(one, 60 * US + 1, 0, 2)
    one.run()
    assert [frame.sent_ps for frame in waits] == [10 * US + turn * FULL_PS for turn in range(3)]
    assert held.sent_ps == 61 * US + 280_000
    assert one.total("port_dropped_frames", "watchdog") == 0


@pytest.mark.parametrize(("action", "dropped"), [("drop", 3), ("forward", 0)])
def test_a_storm_goes_on_after_a_snapshot(action: str, dropped: int) -> None:
    one, other = fabric(action), fabric(action)
    storm(one, 30 * US)
    waits = [frame_arrives(one, 100 + turn, 0, 2) for turn in range(2)]
    frame_arrives(one, 15 * US, 0, 2)
    one.run(14 * US)
    other.load(one.save())
    other.run()
    assert [frame.sent_ps > 0 for frame in waits] == [action == "forward"] * 2
    assert other.total("port_dropped_frames", "watchdog") == dropped
    assert other.total("port_transmit_frames") == 3 - dropped


def test_other_classes_go_on_in_a_storm() -> None:
    one = fabric()
    storm(one, 30 * US)
    frame_arrives(one, 100, 0, 2)
    other = frame_arrives(one, 15 * US, 0, 2, priority=6)
    one.run()
    assert other.sent_ps == 15 * US


def test_a_pause_that_is_lifted_in_time_is_no_storm() -> None:
    one = fabric()
    for begin in (0, 9 * US):
        for at_ps in range(begin, begin + 8 * US, US):
            pause_arrives(one, at_ps, 2, stop=1 << 3, quanta=QUANTA)
        pause_arrives(one, begin + 8 * US + 1, 2, resume=1 << 3)
    frame = frame_arrives(one, 9 * US + 100, 0, 2)
    one.run()
    assert frame.sent_ps == 17 * US + 1
    assert one.total("pfc_watchdog_storms") == 0


def test_a_stopped_queue_without_frames_is_no_storm() -> None:
    one = fabric()
    storm(one, 30 * US)
    one.run()
    assert one.total("pfc_watchdog_storms") == 0


def test_without_a_watchdog_nothing_of_it_is_counted() -> None:
    one = Fabric(scenario(star(3)))
    metrics = {series.metric for device in one.devices() for series in device.series()}
    assert "pfc_watchdog_storms" not in metrics


def test_a_link_without_pfc_loses_and_the_others_stop() -> None:
    buffer = {"reserve": 0, "alpha": "1/65536"}
    off = [{"devices": "nic-0", "switch": {"pfc": {"enabled": False}}}]
    one = Fabric(scenario(star(3), switch={"buffer": buffer}, overrides=off))
    for turn in range(10):
        frame_arrives(one, turn * 2, 0, 2)
        frame_arrives(one, turn * 2 + 1, 1, 2)
    one.run()
    switch = one.switch("switch")
    assert switch.ports[0].pfc is None
    stopped = switch.ports[1].pfc
    assert stopped is not None
    assert stopped.sent[3] == 1
    assert switch.ports[0].dropped[1] > 0
    assert switch.ports[1].dropped[1] == switch.ports[1].dropped[2] == 0


@pytest.mark.parametrize(
    ("drops", "asic", "lost"),
    [
        ("egress", "tomahawk4", 0),
        ("both", "none", 2),
        ("auto", "tomahawk4", 2),
        ("auto", "none", 0),
    ],
)
def test_broadcom_s_chips_drop_what_enters_by_the_port_of_a_storm_as_well(
    drops: str, asic: str, lost: int
) -> None:
    watchdog = {"enabled": True, "detection": "10us", "restoration": "20us", "drops": drops}
    section = {"pfc": {"watchdog": watchdog}, "buffer": {"asic": asic}}
    one = Fabric(scenario(star(3), switch=section))
    storm(one, 30 * US)
    frame_arrives(one, 100, 0, 2)  # waits there, so that the pauses are a storm
    before = frame_arrives(one, 5 * US, 2, 1)
    during = [frame_arrives(one, at * US, 2, 1) for at in (15, 45)]
    another_class = frame_arrives(one, 16 * US, 2, 1, priority=6)
    after = frame_arrives(one, 51 * US, 2, 1)
    one.run()
    assert one.total("port_dropped_frames", "watchdog") == 1 + lost
    arrived = [frame.sent_ps for frame in (before, another_class, after)]
    assert arrived == [5 * US, 16 * US, 51 * US]
    # What was dropped keeps the time at which it left its NIC.
    assert [frame.sent_ps in (15 * US, 45 * US) for frame in during] == [lost == 0, lost == 0]
    assert one.congestion_drops() == 0
