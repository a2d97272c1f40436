"""Does anything but the protocol error come out of what a peer may send, and does memory stay flat?

`python -m tests.wire.fuzz [COUNT]` takes bodies of frames as workers send them, spoils each in one to four
ways (bits flipped, bytes cut, doubled, inserted or swapped with another body's, integers replaced by the
edges of their ranges), and gives it to the decoder as a socket would: cut into bodies, envelope, batch.
What is taken is as good as what is refused; any other exception ends the run with the seed and number that
repeat it. The resident memory after a tenth of the frames is held against that at the end.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from random import Random
from typing import Final

from mypy_extensions import i64

from actors.kernel.block import new_queue
from actors.kernel.event import ARRIVAL, MESSAGE, NEVER_PS, PAUSE, Event, Message, pack_key
from actors.kernel.vectors import vec
from actors.wire.batch import BatchReader
from actors.wire.codec import BATCH, GATHER, SPREAD
from actors.wire.frame import ACKNOWLEDGE, CNP, WRITE_LAST_IMM, WRITE_MIDDLE, Frame, wire_size
from actors.wire.message import COMPLETION, PAUSE_FRAME, REPORT
from emu.base.errors import ProtocolError
from emu.cluster.workers.exchange import Unframer, framed
from emu.engine.sync.rounds import (
    PeerLeft,
    SyncMessage,
    decode_sync_message,
    encode_leave,
    encode_sync_message,
)
from tests.wire.batches import batch_of

COUNT: Final = 10_000_000
SEED: Final = 1
MOST_GROWTH_BYTES: Final = 16 << 20
MANAGEMENT: Final = 2047
PENDING: Final = new_queue(1024)
"""Where frames that are taken wait, as in a worker of one block."""
EDGES: Final = tuple(
    edge.to_bytes(8, "little", signed=True)
    for power in (0, 7, 8, 15, 16, 20, 31, 32, 61, 62, 63)
    for edge in (max(-(1 << power), -(1 << 63)), (1 << power) - 1, -1, 0)
)


def corpus() -> list[bytes]:
    """Bodies as workers send them, one of each kind and some larger."""
    bodies = [
        encode_sync_message(SyncMessage(GATHER, 7, vec[i64]([1, 2, 3, 4]), None)),
        encode_sync_message(SyncMessage(SPREAD, 8, vec[i64]([5, 6, 7, 8]), None)),
        encode_sync_message(SyncMessage(BATCH, 9, vec[i64]([1 << 61, 0, 5]), None)),
        encode_leave("a device failed"),
    ]
    for count in (1, 2, 8):
        packets: list[Event] = []
        for place in range(count):
            for opcode, payload in ((WRITE_MIDDLE, 4096), (WRITE_LAST_IMM, 100), (ACKNOWLEDGE, 0), (CNP, 0)):
                size = wire_size(opcode, payload)
                frame = Frame(opcode, 3, 1, 1025, 50_000, 77, 123_456 + place, payload, size)
                frame.time_ps, frame.key, frame.sent_ps = (
                    2_000_000,
                    pack_key(2, ARRIVAL, place % 4, 0),
                    900_000,
                )
                frame.tail = b"telemetry" if place % 2 else None
                packets.append(frame)
            for op, device, kind, port in (
                (COMPLETION, 2, MESSAGE, 5),
                (REPORT, 5, MESSAGE, MANAGEMENT),
                (PAUSE_FRAME, 2, PAUSE, 1),
            ):
                message = Message(op, 1, 2, 3, 0, 0, 6)
                message.time_ps, message.key = 2_000_000 + place, pack_key(device, kind, port, 0)
                packets.append(message)
        bodies.append(
            encode_sync_message(SyncMessage(BATCH, 10, vec[i64]([1, 2, 3, 4, 5]), batch_of(*packets)))
        )
    return bodies


def reader() -> BatchReader:
    """Of 7 devices 2 (4 fabric ports, 2 host links) and 5 (management alone) are hosted; 32 NICs."""
    hosted = [-1, -1, 6, -1, -1, 0, -1]
    return BatchReader(hosted, MANAGEMENT, 4096, 64, [-1, -1, 4, -1, -1, 0, -1], [16, 16])


def spoil(body: bytes, others: list[bytes], random: Random) -> bytes:
    """A body with something wrong with it, most times."""
    spoilt = bytearray(body)
    for _ in range(1 + random.getrandbits(2)):
        drawn = random.getrandbits(64)
        way, at = drawn & 7, (drawn >> 3) % (len(spoilt) + 1)
        if way <= 1 and at < len(spoilt):
            spoilt[at] ^= 1 << (drawn >> 60 & 7)
        elif way == 2:
            spoilt[at : at + 1] = bytes([drawn >> 50 & 255])
        elif way == 3:
            del spoilt[at : at + (drawn >> 50 & 15)]
        elif way == 4:
            spoilt[at:at] = spoilt[at : at + (drawn >> 50 & 63)]
        elif way == 5:
            other = others[(drawn >> 40) % len(others)]
            spoilt[at : at + 16] = other[at : at + 16]
        else:
            spoilt[at : at + 8] = EDGES[(drawn >> 40) % len(EDGES)]
    return bytes(spoilt)


def feed(body: bytes, batches: BatchReader) -> bool:
    """Give one body to the decoder as a socket would. Returns whether it was taken."""
    try:
        for one in Unframer().feed(framed(body)) if body else ():
            sync_message = decode_sync_message(one)
            if sync_message.batch is not None:
                batches.decode(sync_message.batch, 1_000_000)
                batches.take_frames(sync_message.batch, 1_000_000, PENDING)
    except (ProtocolError, PeerLeft):
        return False
    finally:
        if PENDING.next_time_ps() < NEVER_PS:
            PENDING.clear()
    return True


def resident_bytes() -> int:
    """Of this process, now."""
    return int(Path("/proc/self/statm").read_text("ascii").split()[1]) * 4096


def fuzz(count: int, seed: int = SEED) -> tuple[int, int]:
    """Feed so many spoilt frames. Returns how many were taken, and by how much memory grew after a tenth."""
    bodies, batches, random = corpus(), reader(), Random(seed)
    assert all(feed(body, batches) for body in bodies if b"leave" not in body), "as workers send them"
    taken, before = 0, 0
    for number in range(count):
        body = spoil(bodies[number % len(bodies)], bodies, random)
        try:
            taken += feed(body, batches)
        except BaseException:
            sys.stderr.write(f"frame {number} of seed {seed}: {body.hex()}\n")
            raise
        if number == count // 10:
            before = resident_bytes()
    return taken, resident_bytes() - before


def main() -> int:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else COUNT
    begin_s = time.process_time()
    taken, grown = fuzz(count)
    took_s = time.process_time() - begin_s
    lines = (
        f"{count} spoilt frames in {took_s:.0f} CPU s: {taken} taken, {count - taken} refused, nothing else",
        f"resident memory grew by {grown / 2**20:.1f} MiB after the first tenth",
    )
    sys.stdout.write("\n".join(lines) + "\n")
    return 0 if grown <= MOST_GROWTH_BYTES else 1


if __name__ == "__main__":
    sys.exit(main())
