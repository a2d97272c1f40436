"""What is a work request, from its posting until it is acknowledged?

The poster's number, how many bytes, what is to be done with them (`flags`, POST_* of `actors.wire.message`),
and which PSNs it takes: a packet each, for a READ those of the responses, and at least one. Where payload is
real, `data` is what it reads from memory: packets that are sent again are cut from it anew.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

REQUEST_FIELDS: Final = ("number", "size_bytes", "flags", "immediate", "first_psn", "packets", "data")


class WorkRequest:
    """One that was posted, with a number of the poster's own."""

    __slots__ = ("data", "first_psn", "flags", "following", "immediate", "number", "packets", "size_bytes")

    def __init__(
        self, number: i64, size_bytes: i64, flags: i64, immediate: i64, first_psn: i64, packets: i64
    ) -> None:
        self.number: i64 = number
        self.size_bytes: i64 = size_bytes
        self.flags: i64 = flags
        self.immediate: i64 = immediate
        self.first_psn: i64 = first_psn
        self.packets: i64 = packets
        self.data: bytes | None = None
        self.following: WorkRequest | None = None
