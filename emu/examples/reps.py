"""REPS: recycled entropies, so that packets take the paths that answered without a mark.

Each packet goes by an entropy (a UDP source port) of its own. One whose answer came back unmarked is used
again, once; while there is none, entropies are drawn. So a path that is congested or dead loses its packets
within a round trip. For `freeze` after a loss nothing is drawn: the last good entropies are used over and
over.

`Reps` paces nothing. To spray under a control of its own, derive from both: `class Both(Reps, Nscc)`.

Source: Bonato et al., REPS: Recycled Entropy Packet Spraying for Adaptive Load Balancing and Failure
Mitigation (2024).
"""

from __future__ import annotations

from mypy_extensions import i64

from actors.kernel.device import Plain
from actors.kernel.knobs import Knob, Knobs
from actors.kernel.mixing import mix
from actors.kernel.state import load_fields, save_fields
from actors.nic.congestion.control import CongestionControl

FIRST_PORT = 49152
"""First of the 2^14 dynamic UDP ports."""
FIELDS = ("good", "recent", "frozen_ps", "now", "turn")


class Reps(CongestionControl):
    """One queue pair's entropies."""

    knobs = (
        Knob("cached", "number", 8, 1, 65536, "Entropies that wait to be used again, at most."),
        Knob("freeze", "ps", "100us", doc="For how long after a loss none is drawn."),
    )

    def __init__(self, line_bps: int, mtu_bytes: int, knobs: Knobs) -> None:
        super().__init__(line_bps, mtu_bytes, knobs)
        self.wants_echo = self.picks_entropy = True
        self.cached = knobs.cached
        self.good: list[Plain] = []
        """To be used again, the oldest first."""
        self.recent: list[Plain] = []
        """The last good ones, used or not."""
        self.freeze_ps = knobs.freeze_ps
        self.frozen_ps = 0
        """Until when none is drawn."""
        self.now = 0
        self.turn = 0

    @staticmethod
    def by_packet(knobs: Knobs) -> bool:
        del knobs
        return True

    def entropy(self, psn: i64) -> i64:
        if self.good:
            port = self.good.pop(0)
        elif self.now < self.frozen_ps and self.recent:
            self.turn = (self.turn + 1) % len(self.recent)
            port = self.recent[self.turn]
        else:
            port = FIRST_PORT + (mix(psn, 0) >> 20) % 16384
        assert isinstance(port, int), port
        return port

    def on_path(self, entropy: i64, marked: bool, now: i64) -> None:
        self.now = now
        if not marked:
            self.good = [*self.good, entropy][-self.cached :]
            self.recent = [*self.recent, entropy][-self.cached :]
        super().on_path(entropy, marked, now)

    def on_loss(self, now: i64) -> None:
        self.now = now
        self.frozen_ps = now + self.freeze_ps
        super().on_loss(now)

    def save(self) -> list[Plain]:
        return [super().save(), save_fields(self, FIELDS)]

    def load(self, state: list[Plain]) -> None:
        base, own = state
        assert isinstance(base, list), base
        super().load(base)
        load_fields(self, FIELDS, own)
