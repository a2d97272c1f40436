"""In-band telemetry: what switches write into a packet about its way (INT).

A record for each hop, in the order of the hops, in the frame's tail: where (device and port), when the frame
began to leave, how many bytes waited behind it, how many the port had sent before it, and the port's rate.
In memory a record is five 64-bit integers; on the wire INT is as many bytes as the scenario says, from the
NIC on, whatever the number of hops: HPCC's header of two bytes, and eight a hop, is 42 bytes for five hops.

Source: Li et al., HPCC: High Precision Congestion Control (SIGCOMM'19), section 4.1 and figure 7.

Not modelled: the widths of HPCC's fields (24-bit time, 20-bit counters), which wrap on the wire and not here.
"""

from __future__ import annotations

from typing import Final

from librt.strings import BytesWriter, read_i64_le, write_i64_le
from mypy_extensions import i64

RECORD_BYTES: Final[i64] = 40

PLACE: Final[i64] = 0
TIME: Final[i64] = 8
QUEUE: Final[i64] = 16
SENT: Final[i64] = 24
RATE: Final[i64] = 32


def with_hop(tail: bytes, place: i64, now: i64, queued_bytes: i64, sent_bytes: i64, rate_bps: i64) -> bytes:
    """The records with one more."""
    writer = BytesWriter()
    writer.write(tail)
    write_i64_le(writer, place)
    write_i64_le(writer, now)
    write_i64_le(writer, queued_bytes)
    write_i64_le(writer, sent_bytes)
    write_i64_le(writer, rate_bps)
    return writer.getvalue()


def field_of(tail: bytes, hop: i64, field: i64) -> i64:
    """One field of the record of one hop, counted from 0."""
    return read_i64_le(tail, hop * RECORD_BYTES + field)
