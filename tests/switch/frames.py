"""How does a test put single frames and pauses in front of a switch?"""

from __future__ import annotations

from actors.kernel.event import ARRIVAL, PAUSE, Message, pack_key
from actors.wire.frame import WRITE_ONLY, Frame, wire_size
from actors.wire.message import PAUSE_FRAME
from tests.fabric.rig import Fabric

FULL_PS = 83_880
"""A WRITE_ONLY of 4,096 B at 400G: 4,194 B, 20 ps each."""


def frame_arrives(
    fabric: Fabric,
    at_ps: int,
    port: int,
    dst: int,
    priority: int = 3,
    payload_bytes: int = 4096,
    switch: str = "switch",
) -> Frame:
    """A WRITE_ONLY for the NIC of rank `dst` arrives at a port of the switch."""
    address = fabric.topology.address_of(fabric.topology.nics[dst])
    wire_bytes = wire_size(WRITE_ONLY, payload_bytes)
    frame = Frame(WRITE_ONLY, priority, 0, address, 50_000, 1, 0, payload_bytes, wire_bytes)
    frame.time_ps = at_ps
    frame.sent_ps = max(0, at_ps - 500_000)
    frame.key = pack_key(fabric.topology.node_named(switch).number, ARRIVAL, port, 0)
    fabric.queue.push(frame)
    return frame


def pause_arrives(
    fabric: Fabric,
    at_ps: int,
    port: int,
    stop: int = 0,
    resume: int = 0,
    quanta: int = 65535,
    node: str = "switch",
) -> None:
    """A PFC frame that stops and resumes these classes (bit masks) takes effect at a port."""
    message = Message(PAUSE_FRAME, stop, resume, quanta, 0, 0, max(0, at_ps - 500_000))
    message.time_ps = at_ps
    message.key = pack_key(fabric.topology.node_named(node).number, PAUSE, port, 0)
    fabric.queue.push(message)
