"""Do both halves of priority flow control do what 802.1Qbb says, whatever happens meanwhile?

Port 0 of a switch tells NIC 0, over 400G and 500 ns: a pause frame takes 84 x 20 = 1,680 ps to send, so it is
obeyed 501,680 ps after it began to be sent. A quantum is 512 bit times, 1,280 ps.
"""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from actors.kernel.event import PAUSE, Message, key_device, key_kind
from actors.port.pfc import Pfc
from actors.port.port import Port
from emu.base.errors import ScenarioError
from emu.scenario.resolve import resolve
from tests.fabric.invariants import Pending, _pauses
from tests.fabric.rig import Fabric
from tests.fabric.sections import Section, scenario, star
from tests.switch.frames import FULL_PS, frame_arrives, pause_arrives

FLIGHT_PS = 501_680


class Sides:
    """The port that tells and the port that is told."""

    def __init__(self, quanta: int = 65535, nic: Section | None = None) -> None:
        switch: Section = {"pfc": {"quanta": quanta}}
        self.fabric = Fabric(scenario(star(2), switch=switch, nic=nic or {}))
        self.teller: Port = self.fabric.port(self.fabric.topology.switches[0], 0)
        self.reported: Port = self.fabric.port(self.fabric.topology.nics[0], 0)

    def pfc(self) -> Pfc:
        """The telling side's flow control."""
        assert self.teller.pfc is not None
        return self.teller.pfc

    def heard(self) -> Pfc:
        """The told side's."""
        assert self.reported.pfc is not None
        return self.reported.pfc

    def at(self, now_ps: int) -> None:
        """Execute everything before `now_ps`, and let that be the time."""
        self.fabric.run(now_ps)
        self.fabric.queue.now_ps = now_ps

    def stop(self, now_ps: int, *priorities: int) -> None:
        """The buffer wants these classes stopped."""
        self.at(now_ps)
        for priority in priorities:
            self.pfc().stop(priority, now_ps)

    def resume(self, now_ps: int, *priorities: int) -> None:
        """The buffer has room for these classes again."""
        self.at(now_ps)
        for priority in priorities:
            self.pfc().resume(priority, now_ps)

    def keep_busy(self, at_ps: int) -> None:
        """The telling port begins to send a full frame."""
        frame_arrives(self.fabric, at_ps, 1, 0, priority=0)

    def blocked(self, before_ps: int) -> int:
        """What the told port may not send, after everything before a time."""
        self.at(before_ps)
        return self.reported.blocked

    def frames_under_way(self) -> list[Message]:
        """The pause frames that were sent and not yet obeyed."""
        nic = self.reported.owner.number
        return [
            event
            for event in self.fabric.queue.pending()
            if key_kind(event.key) == PAUSE and key_device(event.key) == nic and isinstance(event, Message)
        ]


def test_a_pause_is_obeyed_when_its_frame_has_arrived_and_the_response_time_is_over() -> None:
    cases: list[tuple[Section, int]] = [
        ({}, 0),
        ({"pfc_response": "100ns"}, 100_000),
        ({"pfc_response": "auto"}, 1_158_400),
    ]
    for nic, response_ps in cases:
        sides = Sides(nic=nic)
        sides.stop(1_000, 3)
        assert sides.blocked(1_000 + FLIGHT_PS + response_ps) == 0
        assert sides.blocked(1_001 + FLIGHT_PS + response_ps) == 1 << 3


def test_a_pause_frame_waits_for_the_frame_in_progress_and_for_nothing_else() -> None:
    sides = Sides()
    sides.keep_busy(0)
    for number in range(5):
        frame_arrives(sides.fabric, 1_000 * (number + 1), 1, 0, priority=7)
    sides.stop(10_000, 3)
    assert sides.blocked(FULL_PS + FLIGHT_PS) == 0
    assert sides.blocked(FULL_PS + FLIGHT_PS + 1) == 1 << 3


def test_one_frame_speaks_for_every_class_that_changed_meanwhile() -> None:
    sides = Sides()
    sides.stop(0, 5)
    sides.keep_busy(5_000)
    sides.stop(6_000, 3)
    sides.stop(7_000, 6)
    sides.resume(8_000, 5)
    sides.at(FULL_PS + 5_001)
    first, second = sides.frames_under_way()
    assert (first.a, first.b) == (1 << 5, 0)
    assert (second.a, second.b, second.c) == (1 << 3 | 1 << 6, 1 << 5, 65535)
    assert sides.blocked(10**6) == 1 << 3 | 1 << 6
    assert list(sides.pfc().sent) == [0, 0, 0, 1, 0, 1, 1, 0]
    assert list(sides.pfc().resumed) == [0, 0, 0, 0, 0, 1, 0, 0]


def test_a_stop_that_was_never_sent_is_taken_back_silently() -> None:
    sides = Sides()
    sides.keep_busy(0)
    sides.stop(1_000, 3)
    sides.resume(2_000, 3)
    sides.at(10**7)
    assert sides.frames_under_way() == []
    assert sum(sides.pfc().sent) == sum(sides.pfc().resumed) == sum(sides.heard().received) == 0
    assert not sides.teller.serve_pending


def test_a_pause_lapses_when_its_quanta_end_unless_it_is_repeated() -> None:
    sides = Sides()
    pause_arrives(sides.fabric, 1_000_000, 0, stop=1 << 3, quanta=100, node="nic-0")
    assert sides.blocked(1_000_001) == 1 << 3
    assert sides.blocked(1_128_000) == 1 << 3
    assert sides.blocked(1_128_001) == 0
    pause_arrives(sides.fabric, 2_000_000, 0, stop=1 << 3, quanta=100, node="nic-0")
    pause_arrives(sides.fabric, 2_100_000, 0, stop=1 << 3, quanta=100, node="nic-0")
    assert sides.blocked(2_228_000) == 1 << 3
    assert sides.blocked(2_228_001) == 0
    # 128 ns, and 228 ns.
    assert sides.heard().paused_time_ps(3, 10**7) == 356_000
    assert sides.heard().received[3] == 3


def test_a_quantum_is_rounded_up_where_a_bit_time_is_no_whole_number() -> None:
    fabric = Fabric(scenario(star(2, {0: "56G"})))
    pause_arrives(fabric, 0, 0, stop=1, quanta=7, node="nic-0")
    port = fabric.port(fabric.topology.nics[0], 0)
    fabric.run(64_001)  # 512 bit at 56G are 9,142.86 ps: 7 x 9,143 = 64,001
    assert port.blocked == 1
    fabric.run(64_002)
    assert port.blocked == 0


def test_while_a_class_stays_stopped_the_peer_is_reported_again_at_half_the_quanta() -> None:
    sides = Sides(quanta=1000)  # 1,280 ns, so every 640 ns
    sides.stop(0, 3)
    for moment_ps in range(FLIGHT_PS + 1, 20_000_000, 100_000):
        assert sides.blocked(moment_ps) == 1 << 3
    sides.resume(20_000_000, 3)
    assert sides.blocked(20_000_000 + FLIGHT_PS) == 1 << 3
    assert sides.blocked(20_000_000 + FLIGHT_PS + 1) == 0
    assert sides.pfc().sent[3] == 32  # at 0, 640, ... 19,840 ns
    assert sides.heard().paused_time_ps(3, 10**8) == 20_000_000
    sides.fabric.run()
    assert sides.blocked(10**8) == 0


def test_a_class_stopped_again_while_its_resume_waits_stays_stopped() -> None:
    sides = Sides(quanta=600)  # 768 ns; told again every 384 ns
    sides.stop(0, 3)
    sides.keep_busy(380_000)  # until 463,880
    sides.resume(382_000, 3)  # the reminder of 384,000 finds nothing to repeat
    sides.stop(390_000, 3)
    for moment_ps in range(FLIGHT_PS + 1, 5_000_000, 50_000):
        assert sides.blocked(moment_ps) == 1 << 3, moment_ps


def test_a_link_that_goes_down_makes_both_sides_forget_and_one_that_comes_up_tells_again() -> None:
    sides = Sides()
    sides.stop(0, 3, 6)
    sides.fabric.set_link("nic-0:switch", 1_000_000, up=False, converge=False)
    sides.fabric.set_link("nic-0:switch", 2_000_000, up=True, converge=False)
    assert sides.blocked(1_000_000) == 1 << 3 | 1 << 6
    assert sides.blocked(1_000_001) == 0
    sides.resume(1_500_000, 6)
    assert sides.pfc().signalled == 0
    assert sides.blocked(2_000_000) == 0
    # Both are held after link-up, for a frame of 4,198 B (83,960 ps), the pause frame (1,680) and the link
    # (500,000); a pause takes over one of them. A hold counts as nobody's pause.
    assert sides.blocked(2_000_001) == 1 << 3 | 1 << 6
    assert sides.blocked(2_585_640) == 1 << 3 | 1 << 6
    assert sides.blocked(2_585_641) == 1 << 3
    # The pause of class 6 left behind that of class 3, 1,680 ps later.
    assert sides.heard().paused_time_ps(6, 3_000_000) == 1_000_000 - FLIGHT_PS - 1_680
    assert sides.heard().paused_time_ps(3, 3_000_000) == 2 * (1_000_000 - FLIGHT_PS)


def test_a_pause_in_flight_when_the_link_goes_down_is_lost() -> None:
    sides = Sides()
    sides.fabric.set_link("nic-0:switch", 100_000, up=False, converge=False)
    sides.fabric.set_link("nic-0:switch", 200_000, up=True, converge=False)
    sides.stop(0, 3)
    sides.resume(150_000, 3)
    assert sides.blocked(10**6) == 0
    assert sum(sides.heard().received) == 0


CLASSES = (1, 3, 6)
SETTLED_PS = FULL_PS + 1_680 + FLIGHT_PS + 1
"""The longest a word can take: behind a full frame and a pause frame in progress."""


class Conversation(RuleBasedStateMachine):
    """The buffer changes its mind at any moment, frames are in the way, and the link comes and goes."""

    @initialize(quanta=st.sampled_from([400, 600, 5_000]))
    def build(self, quanta: int) -> None:
        self.sides = Sides(quanta)
        self.now_ps = 0
        self.since_ps = dict.fromkeys(CLASSES, 0)
        self.up_since_ps = 0
        self.up = True

    @rule(step_ps=st.one_of(st.integers(0, 90_000), st.integers(0, 3_000_000)))
    def pass_time(self, step_ps: int) -> None:
        until_ps = self.now_ps + step_ps
        while self.now_ps < until_ps:
            pending = self.sides.fabric.queue.next_time_ps()
            self.now_ps = min(until_ps, pending + 1)
            self.sides.at(self.now_ps)
            self.agree()

    def agree(self) -> None:
        """Who was told long enough ago obeys."""
        for priority in CLASSES:
            settled_ps = max(self.since_ps[priority], self.up_since_ps) + SETTLED_PS
            if self.up and self.now_ps > settled_ps:
                wanted = self.sides.pfc().stopping >> priority & 1
                assert self.sides.reported.blocked >> priority & 1 == wanted, (priority, self.now_ps)

    @rule(priority=st.sampled_from(CLASSES))
    def stop(self, priority: int) -> None:
        if not self.sides.pfc().stopping >> priority & 1:
            self.sides.stop(self.now_ps, priority)
            self.since_ps[priority] = self.now_ps

    @rule(priority=st.sampled_from(CLASSES))
    def resume(self, priority: int) -> None:
        if self.sides.pfc().stopping >> priority & 1:
            self.sides.resume(self.now_ps, priority)
            self.since_ps[priority] = self.now_ps

    @rule()
    def get_in_the_way(self) -> None:
        if self.up:
            self.sides.keep_busy(self.now_ps)
            self.pass_time(1)

    @rule()
    def change_link(self) -> None:
        self.up = not self.up
        self.up_since_ps = self.now_ps
        self.sides.fabric.set_link("nic-0:switch", self.now_ps, self.up, converge=False)
        self.pass_time(1)

    @invariant()
    def nobody_is_forgotten(self) -> None:
        if not hasattr(self, "sides"):
            return
        pending = Pending(self.sides.fabric.queue.pending())
        for port in (self.sides.teller, self.sides.reported):
            assert list(_pauses(port, pending, at_rest=False)) == []

    def teardown(self) -> None:
        if not hasattr(self, "sides"):
            return
        if not self.up:
            self.change_link()
        for priority in CLASSES:
            self.resume(priority)
        self.pass_time(10_000_000)
        self.sides.fabric.run()
        for port in (self.sides.teller, self.sides.reported):
            assert list(_pauses(port, Pending([]), at_rest=True)) == []


TestConversation = Conversation.TestCase
TestConversation.settings = settings(stateful_step_count=40)


def half(device: str, **pfc: list[str]) -> Fabric:
    """Two NICs into a third, at a switch that stops them almost at once, and one device with half of PFC."""
    buffer = {"reserve": 0, "alpha": "1/65536"}
    own = [{"devices": device, "switch": {"pfc": pfc}}]
    return Fabric(scenario(star(3), switch={"buffer": buffer}, overrides=own), [(0, 2), (1, 2)])


def run_both(fabric: Fabric) -> None:
    """Each NIC writes 1 MiB."""
    for connection in (0, 1):
        fabric.post(0, connection, 1 << 20)
    fabric.run(200_000_000)


def test_a_port_that_does_not_obey_counts_the_pauses_and_goes_on_until_headroom_is_full() -> None:
    fabric = half("nic-0", ignores=["*"])
    run_both(fabric)
    reported, deaf = fabric.switch("switch").ports[0], fabric.port(fabric.topology.nics[0], 0).pfc
    assert deaf is not None
    assert deaf.received[3] > 0
    assert deaf.paused_ps[3] == 0
    assert reported.dropped[2] > 0
    # The other NIC obeys and loses nothing.
    other = fabric.switch("switch").ports[1]
    assert (other.dropped[1], other.dropped[2]) == (0, 0)


def test_a_port_that_does_not_send_is_lossy_and_still_obeys() -> None:
    fabric = half("switch", silent_to=["nic-0"])
    pause_arrives(fabric, 1_000, 0, stop=1 << 3)
    held = frame_arrives(fabric, 2_000, 1, 0)
    run_both(fabric)
    silent, other = fabric.switch("switch").ports[0], fabric.switch("switch").ports[1]
    assert silent.pfc is not None
    assert other.pfc is not None
    assert held.sent_ps > 80_000_000  # 65,535 quanta of 1,280 ps
    assert (silent.pfc.sent[3], silent.dropped[2]) == (0, 0)
    assert silent.dropped[1] > 0
    assert other.pfc.sent[3] > 0
    assert (other.dropped[1], other.dropped[2]) == (0, 0)


def test_half_of_pfc_that_is_none_or_towards_nobody_is_refused() -> None:
    with pytest.raises(ScenarioError, match=r"ignores\[0\]: with 'switch' in silent_to is no PFC in either"):
        half("nic-0", ignores=["switch"], silent_to=["switch"])
    own = [{"devices": "nic-0", "switch": {"pfc": {"silent_to": ["nic-*"]}}}]
    reported = r"overrides\[0\].switch.pfc.silent_to\[0\]: no link leads to 'nic-\*'"
    with pytest.raises(ScenarioError, match=reported):
        resolve(scenario(star(2), overrides=own), Fabric(scenario(star(2))).topology)
