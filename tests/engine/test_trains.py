"""Trains: fewer events of the queue, and the answer packet by packet to the bit."""

from typing import Final

import pytest

from actors.compiled.finder import is_compiled
from actors.kernel.mixing import Stream
from actors.nic.nic import Nic
from actors.switch.routing.hashing import FIELDS, FieldHash
from actors.switch.routing.policy import Group, HashedRouting, SwitchView
from actors.wire.frame import Frame
from emu.engine.blueprint import RunPlan
from tests.conftest import SOAK
from tests.engine.spread_runs import ENDINGS, SpreadRun, between_racks, in_queue, plan_of, seen
from tests.fabric.random_fabric import random_fabric
from tests.fabric.rig import Fabric
from tests.fabric.sections import scenario, star

BRIEF: Final = {"run.max_time": "150us"}
US: Final = 10**6
SEEDS: Final = 20_000 if SOAK else 240 if is_compiled() else 40
MTU: Final = 4096
MIDDLE_PS: Final = 83_560
"""A full packet of the middle of a message on a link of 400G: 4,178 B with preamble and gap."""


def ran(plan: RunPlan, *, eager: bool = False) -> SpreadRun:
    """A run to its end, with a snapshot on the way. `eager` NICs try to make a train with every packet."""
    run = SpreadRun(plan)
    if eager:
        for logical_process in run.logical_processes:
            for device in logical_process.partition.built:
                if isinstance(device, Nic):
                    for port in device.ports():
                        for queue in port.queues:
                            queue.most_skip = 0
    run.snapshot_at(60 * US)
    run.start()
    assert run.run() in ENDINGS
    return run


@pytest.mark.parametrize(
    "name",
    ["tiny_all_reduce", "permutation", "incast", "tiny_flap", "split", "lost_peer", "dual_tor_failover"],
)
def test_trains_show_in_nothing_however_often_they_are_taken_apart(name: str) -> None:
    plain = seen(ran(plan_of(name, 1, BRIEF, trains=False)))
    assert seen(ran(plan_of(name, 1, BRIEF))) == plain
    assert seen(ran(plan_of(name, 1, BRIEF), eager=True)) == plain
    blocks = ran(plan_of(name, 1, BRIEF, 1), eager=True)
    assert (blocks.digest(), seen(blocks)[3]) == (plain[0], plain[3])
    assert ran(plan_of(name, 2, BRIEF, 2), eager=True).digest() == plain[0]


def fewer_events(seed: int) -> int:
    """How many events fewer a random fabric takes with trains, which give the same answer."""
    plain, coupled = (
        random_fabric(seed, lossy=seed % 5 == 0, varied=seed % 2 == 1, faulty=seed % 3 > 0) for _ in range(2)
    )
    coupled.couple()
    fewer = plain.run() - coupled.run()
    end_ps = max(int(plain.queue.now_ps), int(coupled.queue.now_ps)) + 1
    for fabric in (plain, coupled):
        fabric.kernel.reach(end_ps)
    assert coupled.digest() == plain.digest(), seed
    return fewer


@pytest.mark.parametrize("ten", range(10))
def test_random_fabrics_give_one_answer_with_trains_and_without(ten: int) -> None:
    assert sum(fewer_events(seed) for seed in range(ten, SEEDS, 10)) > 0


@pytest.mark.parametrize(
    ("seed", "what"),
    [
        (88, "a pause is mixed at a port behind what has not arrived yet"),
        (322, "a fault, likewise"),
        (724, "a delay begins while a port keeps when it sends next"),
        (1022, "the same with a train on the way"),
        (3182, "a frame of another class is discarded at the port at which a train arrives"),
    ],
)
def test_what_once_parted_the_two_answers(seed: int, what: str) -> None:
    assert fewer_events(seed) > 0, what


@pytest.mark.parametrize("seed", range(8))
def test_whoever_looks_in_between_sees_what_has_happened_and_changes_nothing(seed: int) -> None:
    plain, coupled = (random_fabric(seed, faulty=seed % 2 == 1) for _ in range(2))
    coupled.couple()
    draw = Stream(seed, 1, 3)
    sent = 0
    while coupled.run_events(1 + draw.below(40)):
        coupled.kernel.settle()
        now_ps = int(coupled.queue.now_ps)
        before = sent
        sent = sum(int(port.sent_frames) for nic in coupled.nics for port in nic.ports())
        assert sent >= before, "a counter never goes back"
        for nic in coupled.nics:
            for port in nic.ports():
                assert port.free_ps <= now_ps + 10 * MIDDLE_PS * 400, "no train is ahead of its link"
    plain.run()
    for fabric in (plain, coupled):
        fabric.kernel.reach(max(int(plain.queue.now_ps), int(coupled.queue.now_ps)) + 1)
    assert coupled.digest() == plain.digest()


def alone(size: str, *, trains: bool, ack_every: int = 1) -> SpreadRun:
    return between_racks([{"src": 0, "dst": 1, "size": size}], trains=trains, ack_every=ack_every)


@pytest.mark.parametrize(
    ("ack_every", "packets", "events"),
    [
        pytest.param(1, 6, 4 * 2, id="six packets and six acknowledgements"),
        pytest.param(16, 16, 4 * 5 + 3, id="six, six, three, one that asks, one acknowledgement"),
    ],
)
def test_a_flow_alone_takes_an_event_a_hop_for_six_packets(ack_every: int, packets: int, events: int) -> None:
    """A link of 500 ns holds five packets and the one that leaves: trains of six, in both directions, over
    four links. A packet that asks for the only acknowledgement of many goes alone, and waits a moment behind
    a train at three switches."""
    coupled, plain = (alone("6MiB", trains=trains, ack_every=ack_every) for trains in (True, False))
    assert coupled.digest() == plain.digest()
    sent = 6 * 256
    assert 1 + (500_000 - 1) // MIDDLE_PS == 6
    least = sent / packets * events
    assert least <= in_queue(coupled) <= 1.05 * least
    assert in_queue(plain) >= 4 * (sent + sent / ack_every)


def test_packets_that_wait_a_moment_for_the_first_of_their_message_pass_as_a_train() -> None:
    """The first packet of a WRITE is 16 B longer, so each one behind it waits 320 ps at every switch, held by
    nobody else: the most that a queue ever held is one packet, with trains and without."""
    for trains in (True, False):
        run = alone("1MiB", trains=trains)
        peaks = [
            counter
            for one in run.logical_processes
            for device in one.partition.devices
            for series, counter in zip(device.series(), device.counters(), strict=True)
            if series.metric == "buffer_peak_bytes"
        ]
        assert peaks == [4178 - 20] * 3, trains


@pytest.mark.parametrize("trains", [True, False])
def test_a_frame_of_a_higher_class_waits_for_the_packet_on_the_wire_and_not_for_its_train(
    trains: bool,
) -> None:
    """A megabyte from NIC 0 and 64 B in class 6 from NIC 1, both to NIC 2. FIRST (83,880 ps on the wire) is
    at the switch at 583,880, and packet k behind it leaves at 667,760 + (k - 1) x 83,560. The 64 B (162 B on
    the wire, 3,240 ps), sent at 3,546,760, come at 4,050,000. Packet 41 leaves until 4,093,720, then they."""
    fabric = Fabric(scenario(star(3)), [(0, 2), (1, 2)], (3, 6))
    if trains:
        fabric.couple()
    fabric.post(0, 0, 256 * MTU)
    fabric.post(3_546_760, 1, 64)
    events = fabric.run()
    (urgent,), (bulk,) = fabric.deliveries(1), fabric.deliveries(0)
    assert urgent.time_ps == 4_093_720 + 3_240 + 500_000
    assert bulk.time_ps == 667_760 + 254 * MIDDLE_PS + 3_240 + MIDDLE_PS + 500_000
    assert events < 4 * 256 if trains else events > 4 * 256


def test_a_fault_does_not_leave_serves_deferred_that_would_come_too_late() -> None:
    """A delay is added to a link while a port keeps when it sends next: that becomes an event again."""
    faults = [
        {
            "kind": "delay",
            "target": "nic-0:switch",
            "at": "2us",
            "for": "3us",
            "added": "300ns",
            "jitter": "500ns",
        }
    ]
    answers = []
    for deferring in (False, True):
        fabric = Fabric(scenario(star(2, d0="3us"), faults=faults), [(0, 1)])
        if deferring:
            for device in fabric.devices():
                device.let_defer()
        fabric.post(0, 0, 64 * MTU)
        fabric.run()
        answers.append(fabric.digest())
    assert answers[0] == answers[1]


@pytest.mark.skipif(is_compiled(), reason="compiled, nobody derives from the hash")
def test_a_policy_derived_from_the_hash_lets_no_train_pass_unless_it_says_so() -> None:
    class Busy(HashedRouting):
        """Chooses by something else than the flow."""

        def choose(self, frame: Frame, group: Group, ingress: int, now: int) -> int:
            return int(group.ports[now % group.count])

    fields = [FIELDS.index(name) for name in ("src", "dst", "udp_source")]
    view = SwitchView(1, 1, FieldHash(0, fields, 0, 0, 5), Stream(1, 1, 1))
    assert HashedRouting(view, None).by_flow
    assert not Busy(view, None).by_flow
    by_packet = SwitchView(1, 1, FieldHash(0, [*fields, FIELDS.index("psn")], 0, 0, 5), Stream(1, 1, 1))
    assert not HashedRouting(by_packet, None).by_flow
