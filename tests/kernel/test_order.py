"""Do events happen in the order of their content, once each?"""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.kernel.device import Device
from actors.kernel.event import (
    ARRIVAL,
    JOB,
    LINK_STATE,
    MESSAGE,
    NEVER_PS,
    PAUSE,
    PAUSE_REFRESH,
    SERVE,
    WATCHDOG,
    Event,
    Message,
    pack_key,
)
from actors.kernel.kernel import Kernel
from actors.kernel.queue import EventQueue
from actors.wire.frame import WRITE_ONLY, Frame
from actors.wire.message import PAUSE_FRAME, POST

Happening = tuple[int, int, int, int, int]
"""Time, device, kind, port, subject."""


class Witness(Device):
    """Writes down what it executes."""

    def __init__(self, number: int, queue: EventQueue, story: list[Happening]) -> None:
        super().__init__(number, queue)
        self.story = story

    def witness(self, kind: int, port: int, subject: int) -> None:
        self.story.append((self.queue.now_ps, self.number, kind, port, subject))

    def on_frame(self, frame: Frame, port: int) -> None:
        self.mix_arrival(port, frame)
        self.witness(ARRIVAL, port, 0)

    def on_message(self, message: Message, port: int, subject: int) -> None:
        self.witness(MESSAGE, port, subject)

    def on_pause(self, message: Message, port: int) -> None:
        self.witness(PAUSE, port, 0)

    def on_timer(self, kind: int, port: int, subject: int) -> bool:
        self.witness(kind, port, subject)
        return True


class Stage:
    """A kernel full of witnesses."""

    def __init__(self, devices: int = 4) -> None:
        self.kernel = Kernel(devices)
        self.story: list[Happening] = []
        for number in range(devices):
            self.kernel.add(Witness(number, self.kernel.queue, self.story))

    def push(self, happening: Happening) -> None:
        """Make pending what belongs to this kind."""
        time_ps, device, kind, port, subject = happening
        event: Event
        if kind == ARRIVAL:
            event = Frame(WRITE_ONLY, 3, 1, 2, 50_000, 77, 5, 4096, 4194)
        elif kind == PAUSE:
            event = Message(PAUSE_FRAME, 8, 0, 65535, 0, 0, 0)
        elif kind == MESSAGE:
            event = Message(POST, 0, 0, 0, 0, 0, 0)
        else:
            event = Event(0, 0)
        event.time_ps = time_ps
        event.key = pack_key(device, kind, port, subject)
        self.kernel.queue.push(event)

    def mixes(self) -> list[list[int]]:
        return [device.all_mixes() for device in self.kernel.hosted()]


def happenings(seed: int, count: int) -> list[Happening]:
    """Different ones, with many at the same instant."""
    random = Random(seed)
    found: dict[Happening, None] = {}
    while len(found) < count:
        kind = random.randrange(1, 15)
        subject = 0 if kind in (ARRIVAL, PAUSE) else random.randrange(3)
        time_ps = random.choice((0, 20, 1_000, 10**6, 10**9)) * random.randrange(3)
        found[time_ps, random.randrange(4), kind, random.randrange(3), subject] = None
    return list(found)


@pytest.mark.parametrize("seed", range(5))
def test_order_is_by_content_however_events_were_pushed(seed: int) -> None:
    events = happenings(seed, 300)
    mixes = []
    for shuffle in range(3):
        stage = Stage()
        Random(shuffle).shuffle(events)
        for event in events:
            stage.push(event)
        assert stage.kernel.run(NEVER_PS, 10**9) == 300
        assert stage.story == sorted(events)
        mixes.append(stage.mixes())
    assert mixes[0] == mixes[1] == mixes[2]


@given(st.integers(0, 10**6), st.lists(st.tuples(st.integers(1, 40), st.integers(0, 10**9))))
def test_slices_and_windows_are_invisible(seed: int, slices: list[tuple[int, int]]) -> None:
    events = happenings(seed, 60)
    whole, cut = Stage(), Stage()
    for event in events:
        whole.push(event)
        cut.push(event)
    whole.kernel.run(NEVER_PS, 10**9)
    until_ps = 0
    for budget, step_ps in slices:
        until_ps += step_ps
        while cut.kernel.run(until_ps, budget) == budget:
            pass
        assert all(happening[0] < until_ps for happening in cut.story)
    cut.kernel.run(NEVER_PS, 10**9)
    assert cut.story == whole.story
    assert cut.mixes() == whole.mixes()
    assert cut.kernel.events == whole.kernel.events == 60


class Slow(Device):
    """Whose every event takes as long as eight."""

    def on_timer(self, kind: int, port: int, subject: int) -> bool:
        self.queue.extra += 7
        return True


def test_an_event_that_takes_as_long_as_many_uses_up_as_much_of_a_slice() -> None:
    kernel = Kernel(1)
    kernel.add(Slow(0, kernel.queue))
    for time_ps in range(10):
        kernel.push(Event(time_ps, pack_key(0, JOB, 0, 0)))
    executed = []
    while kernel.run(NEVER_PS, 20) == 20:
        executed.append(int(kernel.events))
    assert executed == [3, 6, 9]
    assert kernel.events == 10


def test_run_stops_before_its_time_and_before_the_announced_end() -> None:
    stage = Stage()
    for time_ps in (10, 20, 30):
        stage.push((time_ps, 0, JOB, 0, 0))
    assert stage.kernel.run(20, 100) == 1
    stage.kernel.queue.stop_ps = 30
    assert stage.kernel.run(NEVER_PS, 100) == 1
    assert [happening[0] for happening in stage.story] == [10, 20]
    assert stage.kernel.queue.next_time_ps() == 30


@pytest.mark.parametrize("kind", [LINK_STATE, ARRIVAL, PAUSE, MESSAGE, SERVE, WATCHDOG])
def test_two_pending_events_with_one_key_are_a_mistake_that_is_found(kind: int) -> None:
    stage = Stage()

    def push_twice_and_run() -> None:
        for port in (1, 2, 1):
            stage.push((1_000, 2, kind, port, 0))
        stage.kernel.run(NEVER_PS, 100)

    with pytest.raises(AssertionError, match=r"device 2 .* port 1 subject 0"):
        push_twice_and_run()


def test_one_key_at_two_times_is_none() -> None:
    stage = Stage()
    stage.push((1_000, 2, SERVE, 1, 0))
    stage.push((1_001, 2, SERVE, 1, 0))
    assert stage.kernel.run(NEVER_PS, 100) == 2


def test_an_event_in_the_past_is_a_mistake_that_is_found() -> None:
    stage = Stage()
    stage.push((5_000, 1, JOB, 0, 0))
    stage.push((5_000_000, 1, JOB, 0, 0))
    stage.kernel.run(NEVER_PS, 1)

    def push_and_run() -> None:
        stage.push((4_999, 1, JOB, 0, 1))
        stage.kernel.run(NEVER_PS, 100)

    with pytest.raises(AssertionError):
        push_and_run()


def test_an_event_for_a_device_that_is_not_here_is_a_mistake_that_is_found() -> None:
    kernel = Kernel(3)
    kernel.add(Device(1, kernel.queue))
    kernel.queue.push(Event(5, pack_key(2, JOB, 0, 0)))
    with pytest.raises(AssertionError, match="device 2 is not hosted here"):
        kernel.run(NEVER_PS, 1)


def test_work_is_pending_until_only_upkeep_is() -> None:
    stage = Stage()
    assert not stage.kernel.work_pending()
    stage.push((1_000, 0, PAUSE_REFRESH, 0, 0))
    stage.push((2_000, 0, WATCHDOG, 0, 0))
    assert not stage.kernel.work_pending()
    stage.push((500, 0, SERVE, 0, 0))
    assert stage.kernel.work_pending()
    stage.kernel.run(501, 10)
    assert not stage.kernel.work_pending()
