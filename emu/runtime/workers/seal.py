"""How does a worker know that what arrives over TCP is what its peer sent, all of it, in order, and once?

Between hosts a connection can be tampered with by whoever is on the path; that it was authenticated when it
began is not enough. Each direction of a connection has a key of its own, derived from the run's secret and
both hellos (`emu.runtime.workers.handshake`), so what was recorded on another connection or in the other
direction is worth nothing. Before every body goes a keyed BLAKE2b hash (RFC 7693) of its number in the stream
and the body. The number itself does not travel: both ends count.

Not covered: secrecy, and who cuts the connection.
"""

from __future__ import annotations

import hmac
from hashlib import blake2b
from typing import Final

from emu.errors import ProtocolError

MAC_BYTES: Final = 16
_NUMBER_BYTES: Final = 8


class Seal:
    """One direction of one connection, at one end."""

    def __init__(self, key: bytes) -> None:
        self._keyed = blake2b(digest_size=MAC_BYTES, key=key)
        """The hash when it has taken in the key and nothing else: a copy costs two thirds of a new one."""
        self._number = 0

    def close(self, body: bytes) -> bytes:
        """The next body, sealed."""
        return self._mac(body) + body

    def open(self, sealed: bytes) -> bytes:
        """The body in the next sealed one. Raises ProtocolError if it is not what the peer sent next."""
        mac, body = sealed[:MAC_BYTES], sealed[MAC_BYTES:]
        number = self._number
        if not hmac.compare_digest(mac, self._mac(body)):
            raise ProtocolError(f"frame {number} was changed, repeated or left out on the way: a broken seal")
        return body

    def _mac(self, body: bytes) -> bytes:
        hashed = self._keyed.copy()
        hashed.update(self._number.to_bytes(_NUMBER_BYTES, "little"))
        hashed.update(body)
        self._number += 1
        return hashed.digest()
