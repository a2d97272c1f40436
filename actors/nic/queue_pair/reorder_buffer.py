"""The reorder buffer: packets that arrived before one they follow.

It is a ring with a slot for each PSN of the window, as a NIC's reorder bitmap has a bit. The payload itself
is in memory already (a WRITE says where it goes); what the ring remembers is what becomes due once the
gap is filled: the end of a message, its immediate, whether an acknowledgement was asked for.

Source: Mittal et al., Revisiting Network Support for RDMA (IRN, SIGCOMM'18), section 5.
"""

from __future__ import annotations

from mypy_extensions import i64

from actors.kernel.device import Plain
from actors.kernel.state import as_list, load_frame, save_event
from actors.kernel.vectors import vec
from actors.wire.frame import PSN_MASK, Frame


class HeldPackets:
    """At most `window` packets, a power of two, beyond the expected one."""

    def __init__(self, window: int) -> None:
        assert window > 0 and window & (window - 1) == 0, window
        self.window: i64 = window
        self.count: i64 = 0
        self._frames: vec[Frame | None] = vec[Frame | None]([None] * window)

    def put(self, psn: i64, frame: Frame) -> bool:
        """Keep a packet less than `window` beyond the expected one; False if it is there already."""
        slot: i64 = psn & (self.window - 1)
        there = self._frames[slot]
        if there is not None:
            assert there.psn == psn & PSN_MASK, (there.psn, psn)
            return False
        self._frames[slot] = frame
        self.count += 1
        return True

    def holds(self, psn: i64) -> bool:
        """Whether a packet less than `window` beyond the expected one is kept."""
        return self._frames[psn & (self.window - 1)] is not None

    def take(self, psn: i64) -> Frame | None:
        """Take out the packet that is now expected; None if it has not come."""
        slot: i64 = psn & (self.window - 1)
        frame = self._frames[slot]
        if frame is not None:
            self._frames[slot] = None
            self.count -= 1
        return frame

    def save(self) -> list[Plain]:
        """What is held, by slot."""
        rows: list[Plain] = []
        for slot, frame in enumerate(self._frames):
            if frame is not None:
                row: list[Plain] = [slot, save_event(frame)]
                rows.append(row)
        return rows

    def load(self, state: Plain) -> None:
        """Take the state that `save` returned."""
        window: int = self.window
        frames: list[Frame | None] = [None] * window
        self.count = 0
        for row in as_list(state):
            slot, frame = as_list(row)
            assert isinstance(slot, int), slot
            frames[slot] = load_frame(frame)
            self.count += 1
        self._frames = vec[Frame | None](frames)
