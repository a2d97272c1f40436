"""Ports that keep when they send next: it saves events of the queue, and shows in nothing."""

from typing import Final

import pytest

from actors.nic.nic import Nic
from actors.switch.switch import Switch
from tests.engine.spread_runs import ENDINGS, SpreadRun, between_racks, in_queue, plan_of, seen

BRIEF: Final = {"run.max_time": "150us"}
US: Final = 10**6


def ran(name: str, parts: int, *, deferring: bool, block: int | None = None) -> SpreadRun:
    """A run over parts, in blocks, in which ports may keep when they send next, or none may."""
    run = SpreadRun(plan_of(name, parts, BRIEF, block, trains=False))  # those take serves together, too
    for logical_process in run.logical_processes:
        devices = logical_process.partition.devices  # all are built, in either case
        if not deferring:
            for device in devices:
                if isinstance(device, Switch):
                    for port in device.ports:
                        port.defers = False
                elif isinstance(device, Nic):
                    for end in device.ports():
                        end.defers = False
    run.snapshot_at(60 * US)
    run.start()
    assert run.run() in ENDINGS
    return run


@pytest.mark.parametrize("name", ["incast_lossy", "tiny_flap", "all_to_all", "dual_tor_failover"])
def test_what_is_deferred_shows_in_nothing(name: str) -> None:
    plain = ran(name, 1, deferring=False)
    whole = ran(name, 1, deferring=True)
    assert seen(whole) == seen(plain)
    assert in_queue(plain) == sum(seen(plain)[2])
    assert in_queue(whole) < sum(seen(whole)[2]), "a deferred serve is no event of the queue"
    blocks = ran(name, 1, deferring=True, block=1)
    assert (blocks.digest(), seen(blocks)[3]) == (plain.digest(), seen(plain)[3])
    assert ran(name, 2, deferring=True).digest() == plain.digest()


def test_what_comes_while_the_wire_is_taken_costs_an_event_a_hop_too() -> None:
    """Two hosts send to each other: on each link an acknowledgement comes while a packet leaves, and a packet
    320 ps before the acknowledgement has left, since the first of its message was 16 B longer."""
    run = between_racks(
        [{"src": 0, "dst": 1, "size": "2MiB"}, {"src": 1, "dst": 0, "size": "2MiB"}], trains=False
    )
    devices = [device for one in run.logical_processes for device in one.partition.devices]
    hops = sum(device.frames_received() for device in devices)
    assert hops == 2 * 512 * 2 * 4
    assert sum(int(device.executed) for device in devices) > 1.9 * hops, "nearly all of them wait"
    assert hops < in_queue(run) < 1.02 * hops


def test_nothing_is_deferred_on_a_device_that_wants_a_peer_stopped() -> None:
    run = SpreadRun(plan_of("incast", 1, {"switch.buffer.xoff": "64KiB"}))
    run.start()
    (one,) = run.logical_processes
    deferring = stopping = 0
    while one.partition.run(100 * US, 50) == 50:
        for device in one.partition.devices:
            if device.stopping > 0:
                stopping += 1
                assert not device.deferred(), device.number
            elif device.deferred():
                deferring += 1
    assert stopping > 0
    assert deferring > 0
