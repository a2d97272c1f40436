"""Which member of an equal-cost group does a frame take?

ECMP hashes the 5-tuple (addresses, protocol, ports); protocol and destination port are the same for all
RoCEv2, so that source and destination address and UDP source port are what tells flows apart. E-ECMP adds
the BTH destination queue pair, as a user-defined field, so that the queue pairs of one connection spread.
The hash is non-linear (`mix32`); its high bits choose the member, so no group size is favoured. Seeds
differ from switch to switch unless the scenario makes them equal, which is how polarisation is shown.
Other hashes and fields are in `actors.switch.routing.hash_functions`; this one is written out because every
hop of a default run computes it.

Source: RDMA over Ethernet for Distributed AI Training at Meta Scale (SIGCOMM 2024), section 3.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from actors.kernel.mixing import mix32
from actors.wire.frame import Frame

ECMP: Final[i64] = 0
E_ECMP: Final[i64] = 1

POLICIES: Final = {"ecmp": ECMP, "e_ecmp": E_ECMP}


def flow_hash(frame: Frame, policy: i64, seed: i64) -> i64:
    """A 32-bit hash of the fields that the policy looks at."""
    h: i64 = mix32(mix32(mix32(seed, frame.src), frame.dst), frame.udp_source)
    if policy == E_ECMP:
        h = mix32(h, frame.qpn)
    return mix32(h, 0x5BD1E995)


def choose(hash32: i64, members: i64) -> i64:
    """Which of `members` a 32-bit hash stands for: 0 <= choice < members <= 2**20."""
    return (hash32 * members) >> 32
