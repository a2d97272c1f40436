"""What if PCIe is slower than the NIC's link?

With GPUDirect a NIC reads what it sends out of GPU memory, over PCIe, as it sends it: payload after payload
at `rate`, for all its ports together. A packet occupies its port until its payload has been read, so nothing
else leaves there meanwhile, acknowledgements neither. Where PCIe is as fast as the links a packet leaves
never waits, since it is longer on the wire than in memory.

The other direction, what arrives, is `actors.nic.receive` at the same rate.

Source: GPUDirect RDMA (NVIDIA), a NIC that reads and writes GPU memory through the PCIe switch that both hang
on.

Not modelled: latency of a read (it is part of what a NIC has), its requests and headers, the GPU's own link,
which several NICs of one GPU would share.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from actors.kernel.device import Plain
from actors.kernel.state import load_fields, save_fields
from actors.kernel.units import serialisation_ps

_FIELDS: Final = ("free_ps", "wait_ps")


class Fetch:
    """The way from memory to one NIC."""

    def __init__(self, rate_bps: int) -> None:
        self.rate_bps: i64 = rate_bps
        self.free_ps: i64 = 0
        """When the last payload that was asked for has been read."""
        self.wait_ps: i64 = 0
        """How long ports had nothing to put on the wire because of it."""

    def take(self, payload_bytes: i64, now: i64, sent_ps: i64) -> i64:
        """Read the payload of a packet that leaves now and has left the wire free by `sent_ps`; when the port
        is free again.
        """
        start: i64 = self.free_ps
        if now > start:
            start = now
        end: i64 = start + serialisation_ps(payload_bytes, self.rate_bps)
        self.free_ps = end
        if end <= sent_ps:
            return sent_ps
        self.wait_ps += end - sent_ps
        return end

    def save(self) -> list[Plain]:
        """When it is free, and what it has counted."""
        return save_fields(self, _FIELDS)

    def load(self, state: Plain) -> None:
        """Take the state that `save` returned."""
        load_fields(self, _FIELDS, state)
