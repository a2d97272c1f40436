"""Which recovery schemes are there? The table that a scenario's `transport.recovery.scheme` is looked up
in."""

from __future__ import annotations

from typing import Final

from actors.nic.recovery.go_back_0 import GoBack0
from actors.nic.recovery.go_back_n import GoBackN
from actors.nic.recovery.scheme import Recovery
from actors.nic.recovery.selective_repeat import SelectiveRepeat

RECOVERIES: Final[dict[str, type[Recovery]]] = {
    "go_back_n": GoBackN,
    "go_back_0": GoBack0,
    "selective_repeat": SelectiveRepeat,
}
"""Scheme to class; all are built from (hold_packets, reorder_packets, window_packets)."""
