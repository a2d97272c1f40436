"""Faults as the journal tells them to a device that breaks, or is mended.

A *fault event* is a message of kind FAULT, at its exact virtual time, to one device:

    op   what of the device: one of the numbers below
    a    the fault's number, which tells overlapping faults apart
    b    BEGIN, END (of that fault), or REPAIR (of all that began before now)
    c    the place: a port, a link (ROUTE), a queue pair, a DSCP
    d-f  the new values

A device keeps the faults of each (op, place) in the order in which they began. The newest rules; when it
ends, the one before it rules again, and when none is left, what was built. Nothing else than a link's being
down adds up.

Everything that happens at one instant is ordered by the subject of the key: what begins goes before what ends
or is repaired, so that a link which is repaired and taken down at once does not blink.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

BEGIN_FAULT: Final[i64] = 1
END_FAULT: Final[i64] = 0
REPAIR_FAULT: Final[i64] = 2

HOLD: Final[i64] = 1
"""A port has no signal. Every fabric port."""
ROUTE: Final[i64] = 2
"""Routing takes a link (the place) out of use. Switches, and NICs with several ports."""
RATE: Final[i64] = 3
"""A port sends at d bit/s."""
ERRORS: Final[i64] = 4
"""Frames that arrive at a port are spoilt: d per bit and e per frame, fixed point; f names the dice."""
DELAY: Final[i64] = 5
"""What a port sends takes d ps longer, and up to e ps of jitter; f names the dice."""
STORM: Final[i64] = 6
"""A port tells its peer to stop the classes of the mask d, without end."""
DEAF: Final[i64] = 7
"""Pause frames that arrive at a port are lost."""
PFC_OFF: Final[i64] = 8
"""A port neither sends pauses nor obeys them, and its classes are lossy."""
HEADROOM: Final[i64] = 9
"""Each lossless priority group of a port has d bytes of headroom."""
ALPHA: Final[i64] = 10
"""The dynamic threshold's share of a switch is d, fixed point."""
ECN: Final[i64] = 11
"""The queues of a port mark from d bytes on, all from e, f (fixed point) before that."""
DSCP: Final[i64] = 12
"""A switch gives packets of a DSCP (the place) queue d and priority group e."""
HASH_SEED: Final[i64] = 13
"""A switch hashes with seed d."""
HASH_FIELDS: Final[i64] = 14
"""A switch hashes by policy d."""
CREDITS: Final[i64] = 15
"""The virtual output queues of a modular switch begin with a window of d bytes, and grow up to e."""
RESET: Final[i64] = 16
"""A NIC forgets: every queue pair is in error."""
PAIR_ERROR: Final[i64] = 17
"""A queue pair (the place) of a NIC is in error."""
RECEIVE: Final[i64] = 18
"""Memory behind a NIC takes what arrives at d bit/s."""
SLOW: Final[i64] = 19
"""A GPU, or the proxies of a host, take d thousandths of the time."""
HUNG: Final[i64] = 20
"""A GPU does nothing that it is asked for from now on."""
LOST: Final[i64] = 21
"""A GPU or host is gone, with all that it was doing."""
GPU_GONE: Final[i64] = 22
"""A host sees that the GPU behind a port (the place) is gone."""

FLIP: Final[i64] = 23
"""Bit d of what a GPU works on is turned over."""

COMPUTE: Final[i64] = 24
"""Computing on the GPU behind a port (the place) of a host takes d thousandths of the time."""
COMPUTE_HUNG: Final[i64] = 25
"""Computing on the GPU behind a port (the place) of a host stands still."""

ROWS: Final[i64] = 26
"""d rows of the memory of the GPU behind a port (the place) of a host were remapped, so far."""

TIMER_EXPIRED: Final[i64] = 27
"""In logs alone: the timer of a queue pair (the place) expired."""

FAULT_OPERATIONS: Final = (
    "none",
    "hold",
    "route",
    "rate",
    "errors",
    "delay",
    "storm",
    "deaf",
    "pfc_off",
    "headroom",
    "alpha",
    "ecn",
    "dscp",
    "hash_seed",
    "hash_fields",
    "credits",
    "reset",
    "pair_error",
    "receive",
    "slow",
    "hung",
    "lost",
    "gpu_gone",
    "flip",
    "compute",
    "compute_hung",
    "rows",
    "timer_expired",
)
PORT_FAULTS: Final[i64] = 0x3400BFA
"""A bit for each operation whose place is a port."""
SETTINGS: Final = frozenset({3, 4, 5, 8, 9, 10, 11, 12, 13, 14, 15, 18, 19})
"""What a snapshot does not hold by itself, and a device sets again after loading one."""
LOGGED: Final = frozenset({2, 3, 8, 9, 10, 11, 12, 13, 14, 15})
"""What a device writes into its log: routes withdrawn, a port's speed, changes of configuration."""
