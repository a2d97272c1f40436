"""Where must PFC and ECN thresholds lie so that ECN speaks before PFC does?

The arithmetic of DCQCN (SIGCOMM 2015, section 4) for a shared-buffer switch with `ports` ports and eight
priorities, exact:

* every port and priority keeps `flight` bytes of headroom for what is in flight after a pause;
* a static PFC threshold can be no more than an equal share of the rest;
* ECN at egress must fire before PFC at ingress where, in the worst case, all ports feed one queue from one
  share:
  a static ECN threshold below the PFC threshold over the number of ports, less than a frame;
* with the dynamic threshold beta x (free) / 8 the bound is what the pool allows while it fills, and is
  usable.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Final, NamedTuple

PRIORITIES: Final = 8


class Thresholds(NamedTuple):
    """Upper bounds in bytes."""

    headroom_bytes: int
    """Over all ports and priorities."""
    static_pfc_bytes: Fraction
    static_ecn_bytes: Fraction
    dynamic_ecn_bytes: Fraction


def dcqcn_thresholds(buffer_bytes: int, ports: int, flight_bytes: int, beta: int) -> Thresholds:
    """The bounds of the paper. ValueError if headroom leaves nothing."""
    headroom_bytes = PRIORITIES * ports * flight_bytes
    shared_bytes = buffer_bytes - headroom_bytes
    if shared_bytes <= 0:
        raise ValueError(f"headroom of {headroom_bytes} bytes leaves nothing of {buffer_bytes}")
    static_pfc = Fraction(shared_bytes, PRIORITIES * ports)
    dynamic_ecn = Fraction(beta * shared_bytes, PRIORITIES * ports * (beta + 1))
    static_ecn = Fraction(shared_bytes, PRIORITIES * ports * ports)
    return Thresholds(headroom_bytes, static_pfc, static_ecn, dynamic_ecn)
