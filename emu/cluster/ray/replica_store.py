"""The replica store: second copies of snapshots in the memory of other nodes.

The run directory lies on the node of the coordinator. Where the cluster has another node, a snapshot counts
only once that one has it too: the coordinator sends every share, in chunks, to an actor there, the *replica
store*, which answers with the digests of what it got. It keeps in memory the newest generations that count,
as many as the disk does. A share that is no longer on disk as it was written is written again from the
replica store.

When the replica store's node is lost, another node gets a replica store, which is given the snapshot that the
run goes back to; when the cluster has no other node any more, one copy is enough, as it is on one node from
the start.

Copying is done in steps, between which the coordinator goes on listening: a replica store takes seconds to
start, and a large snapshot seconds to send. Bounded: a chunk, a generation, how many are kept, and how long
an answer is waited for. The replica store belongs to its run, and ends with the coordinator's process.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import suppress
from itertools import repeat
from typing import Any, Final

from emu.cluster.ray.lost_servers import gone_errors
from emu.cluster.ray.nodes import Node, answering, cluster_nodes
from emu.engine.recovery.snapshots import KEPT, BrokenFile, SnapshotFiles, Steps, opened, write_file

CHUNK_BYTES: Final = 1 << 22
MOST_BYTES: Final = 1 << 32
"""Largest generation; a larger one is refused."""
UNDER_WAY: Final = 4
"""How many chunks are sent before the first is waited for."""
ANSWER_S: Final = 60.0


class ReplicaStore:
    """The actor that keeps copies; one of a run."""

    def __init__(self) -> None:
        self._held: dict[int, list[bytearray]] = {}
        """The files of each generation, by worker."""
        self._whole: list[int] = []
        """The generations that are complete, in the order in which they became so."""

    def begin(self, sync_ps: int, workers: int) -> None:
        """Expect so many files of a generation. Forgets what was begun and never completed."""
        self._whole = [one for one in self._whole if one != sync_ps]
        self._held = {one: self._held[one] for one in self._whole}
        self._held[sync_ps] = [bytearray() for _ in range(workers)]

    def put(self, sync_ps: int, worker: int, chunk: bytes) -> None:
        """The next bytes of a file. Raises ValueError for more than is taken."""
        if len(chunk) > CHUNK_BYTES or self._size(sync_ps) + len(chunk) > MOST_BYTES:
            raise ValueError(f"a copy takes {CHUNK_BYTES} bytes at once and {MOST_BYTES} in all")
        self._held[sync_ps][worker] += chunk

    def seal(self, sync_ps: int) -> list[bytes]:
        """The generation is complete: the digest of every file, as worked out here. Raises BrokenFile."""
        found = [opened(bytes(file), f"file {one}")[0] for one, file in enumerate(self._held[sync_ps])]
        self._whole.append(sync_ps)
        for older in self._whole[:-KEPT]:
            del self._held[older]
        del self._whole[:-KEPT]
        return found

    def get(self, sync_ps: int, worker: int, at: int) -> bytes:
        """The bytes of a file from `at` on, a chunk of them at most; empty behind its end, or without one."""
        if sync_ps not in self._whole:
            return b""
        return bytes(self._held[sync_ps][worker][at : at + CHUNK_BYTES])

    def _size(self, sync_ps: int) -> int:
        return sum(map(len, self._held[sync_ps]))


class SecondCopy:
    """The coordinator's side: sends what is to count, and fetches what is needed again."""

    def __init__(self, files: SnapshotFiles) -> None:
        self._files = files
        self._replica_store: Any = None
        self._node: Node | None = None
        """Where the replica store is."""
        self._sent: list[int] = []
        """What it has."""

    def put(self, sync_ps: int, digests: Sequence[bytes]) -> Steps:
        """Have another node keep a generation that is on disk. Raises OSError if it could not.

        A replica store that is gone is replaced, once.
        """
        import ray  # noqa: PLC0415  Ray only where it is needed

        if self._node is not None and not answering(self._node):
            self.close()
        lost: tuple[type[Exception], ...] = (*gone_errors(), ray.exceptions.GetTimeoutError)
        for _ in range(2):
            if sync_ps in self._sent or (self._replica_store is None and not self._open()):
                return
            try:
                yield from self._send(sync_ps, digests)
            except lost:
                self.close()
            except (ray.exceptions.RayTaskError, BrokenFile) as error:
                raise OSError(0, f"copy on another node: {_last_line(error)}") from None
            else:
                self._sent = [*self._sent, sync_ps][-KEPT:]
                return
        raise OSError(0, "no other node takes a copy")

    def mend(self, sync_ps: int, digests: Sequence[bytes]) -> bool:
        """Write what is not on disk as it was counted once more. Whether the generation was to be had."""
        import ray  # noqa: PLC0415  as above

        if self._replica_store is None or self._node is None or not answering(self._node):
            return False
        try:
            for worker, digest in enumerate(digests):
                content = b""
                while more := self._got(sync_ps, worker, len(content)):
                    content += more
                if opened(content, "copy")[0] != digest:
                    return False
                write_file(self._files.path_of(sync_ps, worker), content)
        except (ray.exceptions.RayError, BrokenFile, OSError):
            return False
        return True

    def close(self) -> None:
        """End the replica store. May be called again."""
        import ray  # noqa: PLC0415  as above

        replica_store, self._replica_store, self._node = self._replica_store, None, None
        self._sent.clear()
        if replica_store is not None:
            with suppress(*gone_errors()):
                ray.kill(replica_store)

    def _open(self) -> bool:
        """Start a replica store on another node, if there is one."""
        import ray  # noqa: PLC0415  as above
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy  # noqa: PLC0415  as above

        here = ray.get_runtime_context().get_node_id()
        others = [node for node in cluster_nodes(idle=True) if node.ident != here and answering(node)]
        if not others:
            return False
        # One with CPUs, if there is one: a head without is there to lead the cluster.
        chosen = min(others, key=lambda node: (node.cpus == 0, node))
        self._node = chosen
        place = NodeAffinitySchedulingStrategy(chosen.ident, soft=False)
        remote: Any = ray.remote(num_cpus=0, max_restarts=0)(ReplicaStore)
        self._replica_store = remote.options(scheduling_strategy=place).remote()
        return True

    def _got(self, sync_ps: int, worker: int, at: int) -> bytes:
        import ray  # noqa: PLC0415  as above

        chunk: bytes = ray.get(self._replica_store.get.remote(sync_ps, worker, at), timeout=ANSWER_S)
        return chunk

    def _send(self, sync_ps: int, digests: Sequence[bytes]) -> Steps:
        replica_store = self._replica_store
        under_way = [replica_store.begin.remote(sync_ps, len(digests))]
        for worker in range(len(digests)):
            with self._files.path_of(sync_ps, worker).open("rb") as file:
                while chunk := file.read(CHUNK_BYTES):
                    if len(under_way) >= UNDER_WAY:
                        yield from answered(under_way.pop(0))
                    under_way.append(replica_store.put.remote(sync_ps, worker, chunk))
        for ref in under_way:
            yield from answered(ref)
        if (yield from answered(replica_store.seal.remote(sync_ps))) != list(digests):
            raise BrokenFile("not what the workers wrote")


def brought(files: SnapshotFiles, sync_ps: int, shares: Mapping[int, Any]) -> Steps:
    """Write what other hosts have of a generation, by worker, as it comes. Raises OSError.

    Of who is gone nothing comes: the coordinator will notice, and go back to a generation that counts.
    """
    import ray  # noqa: PLC0415  as above

    for worker, ref in shares.items():
        try:
            share: bytes = yield from answered(ref)
        except gone_errors():
            yield from repeat(None)
            raise
        except ray.exceptions.RayError as error:
            raise OSError(0, f"share of worker {worker}: {_last_line(error)}") from None
        if not share:
            raise OSError(0, f"worker {worker} does not keep its share any more")
        write_file(files.path_of(sync_ps, worker), share)


def answered(ref: Any) -> Generator[None, None, Any]:
    """An actor's answer, once it is there. Raises Ray's errors."""
    import ray  # noqa: PLC0415  as above

    deadline_s = time.monotonic() + ANSWER_S
    while not ray.wait([ref], timeout=0)[0]:
        if time.monotonic() > deadline_s:
            raise ray.exceptions.GetTimeoutError
        yield
    return ray.get(ref)


def _last_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[-1][:300]
