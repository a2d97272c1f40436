"""Buffers that boxes ship, by switch chip: pool, and headroom in cells of small frames and a fixed part.

A chip keeps frames in cells, and the worst case for headroom is the smallest frame: 64 B, which take a whole
cell and 84 B of the wire, with preamble and gap. So what may arrive after XOFF counts one cell for each 84 B
(192 B in the files of Tomahawk 3): 2 x propagation x rate, and a fixed part at each rate for frames that had
begun at both ends (9,216 B), the chip's pipeline and the time that the peer takes to obey.

A box has less headroom than all its ports would take at once: their priority groups share
`headroom_pool_bytes`.

Source: pg_profile_lookup.ini and buffers_defaults of SONiC platforms (sonic-buildimage, 2026): Dell Z9332F
for Tomahawk 3, Z9664F for Tomahawk 4, Z9864F for Tomahawk 5. This gives their `xoff` at 5, 40 and 300 m to
the byte, with 5 ns for a metre. The fixed parts are read off these files; they are the middle of the few
dozen bytes that give the same cells.

Not modelled: cells in the accounting of frames, so a switch here never needs all of it.
"""

from bisect import bisect_left
from functools import lru_cache
from typing import Final, NamedTuple


class Asic(NamedTuple):
    """A switch chip."""

    title: str
    switching_bps: int
    """What its ports have in all."""
    pool_bytes: int
    headroom_pool_bytes: int
    """The part of the pool that priority groups share for what arrives after XOFF."""
    cell_bytes: int
    frame_wire_bytes: int
    """What a cell's worth takes of the wire, at worst."""
    fixed: tuple[tuple[int, int], ...]
    """Rate of a port in Gb/s, and what arrives beside the cable's part, in bytes of the wire."""

    @lru_cache(maxsize=4096)  # noqa: B019 - thousands of ports, and a handful of rates and lengths
    def headroom_bytes(self, rate_bps: int, delay_ps: int) -> int:
        """What it sets aside for one port and lossless priority."""
        flight_bytes = -(-2 * delay_ps * rate_bps // (8 * 10**12)) + self._fixed_bytes(rate_bps)
        return -(-flight_bytes // self.frame_wire_bytes) * self.cell_bytes

    def _fixed_bytes(self, rate_bps: int) -> int:
        """The fixed part at a rate: between and beyond those of the files, on the line through two."""
        rates = [rate * 10**9 for rate, _ in self.fixed]
        at = min(max(bisect_left(rates, rate_bps), 1), len(rates) - 1)
        (low, least), (high, most) = self.fixed[at - 1 : at + 1]
        rise = (most - least) * (rate_bps - low * 10**9)
        return max(least + -(-rise // ((high - low) * 10**9)), 0)


ASICS: Final = {
    "tomahawk3": Asic(
        "Tomahawk 3", 12_800 * 10**9, 66_394_076, 27_200_352, 254, 192, ((100, 51_134), (400, 132_450))
    ),
    "tomahawk4": Asic(
        "Tomahawk 4",
        25_600 * 10**9,
        113_620_296,
        50_653_696,
        254,
        84,
        ((25, 24_760), (50, 29_990), (100, 42_000), (200, 69_555), (400, 120_294)),
    ),
    "tomahawk5": Asic(
        "Tomahawk 5",
        51_200 * 10**9,
        162_539_680,
        33_374_584,
        254,
        84,
        ((25, 30_040), (50, 35_000), (100, 47_966), (200, 74_554), (400, 127_480), (800, 236_220)),
    ),
}
"""By the name that `switch.buffer.asic` has, smallest first."""


def smallest_for(rate_bps: int) -> str:
    """The smallest chip whose ports have this rate in all, or the largest."""
    return next((name for name, asic in ASICS.items() if asic.switching_bps >= rate_bps), "tomahawk5")
