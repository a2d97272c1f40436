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
import struct
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from emu.base.errors import UsageError
from emu.measure.collected import DeviceRecord

KIND: Final = 2
"""Which way of hashing this is; a run directory says so, and one of another kind is refused."""
OTHER_RELEASE: Final = (
    "written by another release of emu; accepted: a run of this one, so run its scenario again"
)
"""Why a run directory is refused."""
FORMAT: Final = b"emu digest %d\n" % KIND
"""Hashed first, so that another way of hashing never looks like another answer."""


def check_kind(file: Path, kind: object) -> None:
    """UsageError unless `file`, of a run directory, has digests of our kind."""
    if kind != KIND:
        raise UsageError(f"{file}: {OTHER_RELEASE}")


def run_digest(devices: Iterable[DeviceRecord]) -> str:
    """The run's digest in hexadecimal; `devices` are all devices of the run, in any order."""
    hashed = hashlib.sha256(FORMAT)
    alike: dict[tuple[int, int, int], bytes] = {}
    for record in sorted(devices, key=lambda record: record.number):
        hashed.update(_integers((record.number,)))
        if not record.idle:
            for part in _parts(record):
                hashed.update(part)
            continue
        # Devices of a kind that did nothing share all that they have.
        key = (id(record.counters), id(record.end_states), id(record.results))
        known = alike.get(key)
        if known is None:
            known = alike[key] = b"".join(_parts(record))
        hashed.update(known)
    return hashed.hexdigest()


def _parts(record: DeviceRecord) -> Iterator[bytes]:
    """What is hashed of a device, behind its number."""
    yield _integers([part for at in enumerate(record.mixes) if at[1] for part in at])
    yield _integers(record.counters)
    yield _integers(record.end_states)
    yield _integers((len(record.results),))
    for name, rows in sorted(record.results.items()):
        text = name.encode()
        yield _integers((len(text), len(rows))) + text
        for row in rows:
            yield _integers(row)


def _integers(values: Sequence[int]) -> bytes:
    return struct.pack(f"<{len(values) + 1}q", len(values), *values)
