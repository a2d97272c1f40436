"""Go-back-N: after a loss, everything from the lost packet on is sent again.

The responder takes packets in order only and answers the first one out of order with a NAK; the requester
goes back to the PSN that is expected, and likewise when its timer runs out. A loss wastes what was sent
in a round trip. With out-of-order placement the responder keeps what overtook, so that a fabric which
reorders within `reorder_packets` costs nothing; after a loss the same packets come again nevertheless.

Source: InfiniBand Architecture Specification volume 1, section 9.7.5.
"""

from __future__ import annotations

from actors.nic.recovery.scheme import Recovery


class GoBackN(Recovery):
    """The scheme whose rules are the defaults."""
