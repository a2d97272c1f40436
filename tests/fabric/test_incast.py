"""Does an incast end when independent simulators say it does, with pauses and without losses?

The fabric of all of them: 8 hosts a leaf, 8 spines, every link 400G and 500 ns, 4,096 B of payload. 16 hosts
of two other racks send to one.
"""

from __future__ import annotations

import pytest

import emu
from tests.fabric.rig import Fabric
from tests.fabric.sections import Section, scenario, star, zone

SENDERS = range(8, 24)
MIB = 1 << 20


def incast(size_bytes: int, **sections: Section) -> Fabric:
    """Each of the 16 posts one WRITE at time 0."""
    fabric = Fabric(scenario(zone(3, 8, 8), 7, **sections), [(sender, 0) for sender in SENDERS])
    for connection in range(16):
        fabric.post(0, connection, size_bytes)
    fabric.run()
    return fabric


def end_ps(fabric: Fabric) -> int:
    """When the last message was delivered."""
    return max(delivery.time_ps for connection in range(16) for delivery in fabric.deliveries(connection))


def test_incast_of_16_mib_ends_with_the_simulators_and_pauses_but_drops_nothing() -> None:
    # Interpreted, a 32nd of it, in a smaller buffer: the receiver's port is what everything waits for, so
    # the time is proportional.
    share, pool = (1, "64MB") if emu.is_compiled() else (32, "5MB")
    fabric = incast(16 * MIB // share, switch={"buffer": {"pool": pool}})
    assert 5_431_000_000 * 0.99 / share < end_ps(fabric) < 5_464_000_000 * 1.01 / share + 3_000_000
    assert fabric.total("pfc_transmit_xoff_frames") > 0
    assert fabric.congestion_drops() == 0
    assert fabric.nics[0].delivered_bytes == 16 * 16 * MIB // share
    assert fabric.broken(at_rest=True, lossless=True) == []


def test_the_receiver_s_port_is_never_idle_for_an_instant() -> None:
    fabric = incast(MIB // 4)
    # 16 x (a FIRST of 4,194 B and 63 of 4,178 B), 20 ps a byte: 16 x 5,348,160 = 85,570,560.
    # The first bit reaches the last port after three hops of 583,880; the last bit takes 500,000 more.
    assert end_ps(fabric) == 1_751_640 + 85_570_560 + 500_000


def test_a_sender_is_stopped_exactly_above_xoff_and_resumed_exactly_below_xon() -> None:
    # Four to one. Headroom of 5 ports x 2 priorities x 62,618 B and 40 reserves of 4,096 B leave 110,000 B.
    fabric = Fabric(scenario(star(5), switch={"buffer": {"pool": "900020B"}}), [(n, 0) for n in range(1, 5)])
    (switch,) = fabric.switches
    buffer = switch.buffer
    assert buffer.pool_bytes == 110_000
    for connection in range(4):
        fabric.post(1_000 * connection, connection, 400_000)
    groups = [buffer.groups[8 * port + 3] for port in range(5)]
    stops = resumes = 0
    stopped = [False] * 5
    while fabric.run_events(1):
        xoff_bytes = (110_000 - sum(group.shared_bytes for group in buffer.groups)) // 8
        for port, group in enumerate(groups):
            if group.stopped and not stopped[port]:
                assert group.shared_bytes > xoff_bytes
                assert group.headroom_used_bytes == 0
                stops += 1
            if stopped[port] and not group.stopped:
                assert group.shared_bytes <= max(0, xoff_bytes - 2 * 4178)
                assert group.headroom_used_bytes == 0
                resumes += 1
            stopped[port] = bool(group.stopped)
    assert stops == resumes > 4
    assert fabric.broken(at_rest=True, lossless=True) == []


def test_a_buffer_that_holds_everything_pauses_nobody() -> None:
    fabric = incast(MIB // 8, switch={"buffer": {"pool": "1GB"}})
    assert fabric.total("pfc_transmit_xoff_frames") == 0
    assert fabric.congestion_drops() == 0
    assert fabric.broken(at_rest=True, lossless=True) == []


@pytest.mark.parametrize("pool", ["1500KB", "4MB"])
def test_without_pfc_and_with_a_small_buffer_frames_are_lost_and_every_byte_arrives(pool: str) -> None:
    fabric = incast(
        MIB // 4,
        switch={"buffer": {"pool": pool}, "pfc": {"enabled": False}},
        transport={"timeout": 6},
    )
    assert fabric.total("port_dropped_frames", "no_shared_room") > 0
    assert fabric.total("port_dropped_frames", "headroom_overrun") == 0
    assert fabric.total("pfc_transmit_xoff_frames") == 0
    assert fabric.total("nic_retransmitted_frames") > 0
    assert fabric.nics[0].delivered_bytes == 16 * MIB // 4
    assert [len(fabric.deliveries(connection)) for connection in range(16)] == [1] * 16
    assert fabric.broken(at_rest=True) == []
