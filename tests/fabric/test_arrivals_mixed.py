"""Does every port of a fabric mix what arrives there, once, as documented, and its losses behind it?"""

from __future__ import annotations

import pytest

from actors.port.tap import Tap
from actors.switch.egress import TTL_EXPIRED
from actors.wire.frame import Frame
from tests.fabric.rig import Fabric
from tests.fabric.sections import scenario, star


def mixed(words: list[int]) -> int:
    """The mix of these words, as `actors.kernel.mixing` documents it."""
    state = 0
    for word in words:
        state = ((state ^ word) * 0x2545F4914F6CDD1D) % 2**62
        state ^= state >> 29
    return state


class Recorder(Tap):
    """Writes down the words of what arrives at a port; has the switch lose the frame with one number."""

    def __init__(self, lost: int = -1) -> None:
        self.lost = lost
        self.count = 0
        self.words: list[int] = []

    def saw(self, frame: Frame, now: int) -> None:
        word = int(frame.psn) << 38 | int(frame.qpn) << 14 | int(frame.wire_bytes)
        self.words += [now | frame.opcode << 52 | frame.ecn << 60, word]
        if self.count == self.lost:
            frame.ttl = 1
            self.words += [now | 48 + TTL_EXPIRED << 52, word]
        self.count += 1


def recorded(forwarding: str, lost: int = -1) -> tuple[Fabric, dict[tuple[int, int], Recorder]]:
    """Two senders of ten packets into one receiver, and what came to each port, by device and port."""
    fabric = Fabric(scenario(star(3), switch={"forwarding": forwarding}), [(0, 2), (1, 2)])
    recorders = {}
    for device in (*fabric.switches, *fabric.nics):
        for number in range(3 if device in fabric.switches else 1):
            recorder = recorders[device.number, number] = Recorder(lost if device in fabric.switches else -1)
            fabric.port(device.number, number).set_tap(recorder)
    for connection in (0, 1):
        fabric.post(0, connection, 40_960)
    fabric.run()
    assert fabric.broken(at_rest=True) == []
    return fabric, recorders


@pytest.mark.parametrize("forwarding", ["store_and_forward", "cut_through"])
def test_each_port_mixes_each_arrival_once_and_no_tail_that_waited(forwarding: str) -> None:
    fabric, recorders = recorded(forwarding)
    if forwarding == "cut_through":  # else no tail waited
        assert 0 < fabric.total("cut_through_frames") < fabric.switches[0].frames_received()
    for (device, port), recorder in recorders.items():
        assert recorder.count >= 10, (device, port)
        assert fabric.kernel.device(device).all_mixes()[port + 1] == mixed(recorder.words), (device, port)


@pytest.mark.parametrize("forwarding", ["store_and_forward", "cut_through"])
def test_a_loss_follows_its_arrival_in_the_mix_of_the_port(forwarding: str) -> None:
    fabric, recorders = recorded(forwarding, lost=3)
    (switch,) = fabric.switches
    assert fabric.total("port_dropped_frames", "ttl") == 3
    for port in range(3):
        assert switch.all_mixes()[port + 1] == mixed(recorders[switch.number, port].words), port
