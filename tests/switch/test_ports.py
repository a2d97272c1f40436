"""Does a port that could send always send, and in the right order?"""

import pytest

from actors.wire.frame import Frame
from tests.fabric.rig import Fabric
from tests.fabric.sections import scenario, star
from tests.switch.frames import FULL_PS, frame_arrives, pause_arrives


def test_a_frame_that_takes_the_wire_at_the_instant_of_a_serve_puts_nobody_to_sleep() -> None:
    fabric = Fabric(scenario(star(3)))
    port = fabric.port(fabric.topology.node_named("switch").number, 2)
    frame_arrives(fabric, 0, 0, 2)
    waits = frame_arrives(fabric, 10, 1, 2)  # a serve is due at 83,880, when the first has left
    pause_arrives(fabric, 50_000, 2, stop=1 << 3)
    frame_arrives(fabric, FULL_PS, 0, 2, priority=6)  # finds the wire free: class 3 is stopped
    pause_arrives(fabric, FULL_PS, 2, resume=1 << 3)
    fabric.run(FULL_PS + 1)
    assert port.free_ps == 2 * FULL_PS
    assert port.waiting == 1 << 3
    assert port.serve_pending
    fabric.run()
    assert waits.sent_ps == 2 * FULL_PS


def test_nor_does_it_delay_a_pause_frame_longer_than_itself() -> None:
    # No reserve, and a threshold of nothing: the first frame that has to wait crosses XOFF.
    buffer = {"reserve": 0, "alpha": "1/65536"}
    fabric = Fabric(scenario(star(3), switch={"buffer": buffer}))
    port = fabric.port(fabric.topology.node_named("switch").number, 2)
    assert port.pfc is not None
    frame_arrives(fabric, 0, 0, 2)
    frame_arrives(fabric, 10, 1, 2)  # a serve of port 2 is due at 83,880
    pause_arrives(fabric, 50_000, 2, stop=1 << 3)
    frame_arrives(fabric, 60_000, 1, 0)  # these two keep port 0 busy until 227,760
    frame_arrives(fabric, 60_001, 0, 0)
    frame_arrives(fabric, FULL_PS, 0, 2, priority=6)
    frame_arrives(fabric, FULL_PS, 2, 0)  # waits for port 0: its sender at port 2 is to be told
    fabric.run(FULL_PS + 1)
    assert port.pfc.pending_stop == 1 << 3
    fabric.run(2 * FULL_PS + 1)
    assert port.pfc.signalled == 1 << 3
    assert port.free_ps == 2 * FULL_PS + 84 * 20


@pytest.mark.parametrize("priorities", [(0, 1, 2, 3, 4, 5, 6, 7), (7, 0, 3, 5, 1, 6, 2, 4)])
def test_higher_priorities_go_first_and_within_one_the_first_come(priorities: tuple[int, ...]) -> None:
    fabric = Fabric(scenario(star(3)))
    frame_arrives(fabric, 0, 0, 2)
    frames: list[Frame] = []
    for turn in range(2):
        for place, priority in enumerate(priorities):
            at_ps = 1000 * (8 * turn + place) + 1
            frames.append(frame_arrives(fabric, at_ps, place % 2, 2, priority, payload_bytes=64))
    fabric.run()
    order = sorted(frames, key=lambda frame: frame.sent_ps)
    assert [frame.priority for frame in order] == [7, 7, 6, 6, 5, 5, 4, 4, 3, 3, 2, 2, 1, 1, 0, 0]
    for one, other in zip(order[::2], order[1::2], strict=True):
        assert frames.index(one) < frames.index(other)
    # 64 B + 62 + 16 + 20 = 162 B, back to back behind the full frame.
    assert [frame.sent_ps for frame in order] == [FULL_PS + 3240 * place for place in range(16)]
