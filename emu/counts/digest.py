"""The digest of a run: one number that says whether two runs gave the same answer.

Every port of every device keeps a 62-bit mix of what the model did there, in order, and every device one of
what concerns no port (`actors.kernel.mixing`). The digest of a run is SHA-256 over, in device order: the
number of the device, its mixes with their places, its final counters, its end states (sequence numbers of
queue pairs, results of jobs) and the rows it reports. One picosecond, one PSN or one ECN bit that changes
anywhere changes it; how the devices were spread over workers, slices and windows, and in which events the
engine did the work, does not.

What is fed to the hash is unambiguous: every integer is eight bytes, every list is preceded by its length,
and every name by the length of its UTF-8 text.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from librt.strings import BytesWriter, write_i64_le

from emu.base.errors import UsageError
from emu.counts.collected import DeviceRecord

KIND: Final = 2
"""Which way of hashing this is; a run directory says so, and one of another kind is refused."""
OTHER_RELEASE: Final = (
    "written by another release of emu; accepted: a run of this one, so run its scenario again"
)
"""Why a run directory is refused."""
FORMAT: Final = b"emu digest %d\n" % KIND
"""Hashed first, so that another way of hashing never looks like another answer."""
PIECE_BYTES: Final = 1 << 18
"""How much is hashed at once."""


def check_kind(file: Path, kind: object) -> None:
    """UsageError unless `file`, of a run directory, has digests of our kind."""
    if kind != KIND:
        raise UsageError(f"{file}: {OTHER_RELEASE}")


def run_digest(devices: Iterable[DeviceRecord]) -> str:
    """The run's digest in hexadecimal; `devices` are all devices of the run, in any order."""
    hashed = hashlib.sha256(FORMAT)
    out = BytesWriter()
    alike: dict[tuple[int, int, int], bytes] = {}
    for record in sorted(devices, key=number_of):
        write_i64_le(out, 1)
        write_i64_le(out, record.number)
        if not record.idle:
            write_record(out, record)
        else:
            # Devices of a kind that did nothing share all that they have.
            key = (id(record.counters), id(record.end_states), id(record.results))
            known = alike.get(key)
            if known is None:
                own = BytesWriter()
                write_record(own, record)
                known = alike[key] = own.getvalue()
            out.write(known)
        if len(out) >= PIECE_BYTES:
            hashed.update(out.getvalue())
            out.truncate(0)
    hashed.update(out.getvalue())
    return str(hashed.hexdigest())


def number_of(record: DeviceRecord) -> int:
    """What devices are ordered by."""
    return record.number


def write_record(out: BytesWriter, record: DeviceRecord) -> None:
    """What is hashed of a device, behind its number."""
    mixed: list[int] = []
    for place, mix in enumerate(record.mixes):
        if mix != 0:
            mixed.append(place)
            mixed.append(mix)
    write_integers(out, mixed)
    write_integers(out, record.counters)
    write_integers(out, record.end_states)
    write_i64_le(out, 1)
    write_i64_le(out, len(record.results))
    for name, rows in sorted(record.results.items()):
        text = name.encode()
        write_i64_le(out, 2)
        write_i64_le(out, len(text))
        write_i64_le(out, len(rows))
        out.write(text)
        for row in rows:
            write_integers(out, row)


def write_integers(out: BytesWriter, values: Sequence[int]) -> None:
    """A list: its length, and each of its integers."""
    write_i64_le(out, len(values))
    for value in values:
        write_i64_le(out, value)
