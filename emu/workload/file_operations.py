"""Files on storage: how protocols save and read them, request by request.

A file is blocks, a block `stripe` chunks of data and `parity` more (Reed-Solomon; one and two are three
replicas). Whoever writes sends all of them; whoever reads, those of data.

Placement. The chunks of a block are on different storage servers. A client draws `SPARE` servers more than
the block has chunks, and takes those to which the job has given the fewest bytes so far (the power of several
choices). Blocks are placed in the order in which clients write them: the first block of every file, then the
second. The draw depends on the seed, the file and the block, so a job that reads files of the same sizes
finds them where another job wrote them.

- plain: the data and nothing else.
- nfs: OPEN, the data, CLOSE, all at one filer.
- pnfs: OPEN and LAYOUTGET at a metadata server, the data straight from and to the storage servers,
  LAYOUTCOMMIT after writing, LAYOUTRETURN and CLOSE.
- tectonic: the client looks a file up, or puts it, in the name layer and the file layer; for each block it
  asks the file layer (when it adds one) and the block layer; a file that was written is sealed in the file
  layer. Each layer is hash-partitioned over the metadata servers: names by directory, files by file, blocks
  by block.

Background services. Stateless workers, which run beside the metadata servers, rebuild what a lost server had
from what is left of its blocks, or move chunks to an empty one.

Sources. Tectonic: Pan et al., Facebook's Tectonic Filesystem (FAST'21), sections 3.2 to 3.4, and 5.2 for the
placement: a client asks 19 servers to reserve room for the 15 chunks of RS(9, 6). The number of choices:
Azar, Broder, Karlin and Upfal, Balanced Allocations (SIAM J. Comput. 1999). NFS 4.1 and
pNFS: RFC 8881, sections 12 and 13; writes are stable there, so that no COMMIT follows.

Not modelled: caches of names, layouts and sealed objects; sessions, leases, delegations; appends that need
not all chunks, hedged reads, partial stripes; what workers ask of metadata, reads of chunks that are lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

from actors.kernel.mixing import Stream, scramble
from actors.optional.storage_clients import KINDS, Chain, ClientScript, Group, Phase, Request

READ, WRITE, NAME, FILE, BLOCK, OPEN, CLOSE, LAYOUTGET, LAYOUTCOMMIT, LAYOUTRETURN = range(len(KINDS))
_FILES: Final = 1 << 40
"""More than there are; tells a layer's names apart."""
SPARE: Final = 4
"""Servers that are asked for a block beside those that it needs: 19 for 15 chunks (Tectonic, section 5.2)."""
_NAMES: Final = (1 << 30) - 1
_PURPOSE: Final = 0x504C4143
"""Names the random streams of placement ("PLAC")."""


class Draw:
    """Servers drawn for chunks, of which those with the fewest bytes so far are taken."""

    def __init__(self, seed: int, servers: Sequence[int]) -> None:
        self._seed = seed
        self._servers = servers
        self._bytes = dict.fromkeys(servers, 0)

    def take(self, name: int, count: int, chunk_bytes: int) -> tuple[int, ...]:
        """Choose `count` different servers for chunks of `chunk_bytes` each; `name` is their block's."""
        servers, wanted = self._servers, count + SPARE
        stream = Stream(self._seed, int(scramble(name)) & _NAMES, _PURPOSE)
        drawn: dict[int, int] = {}
        while len(drawn) < min(wanted, len(servers)):
            drawn.setdefault(servers[stream.draw62() % len(servers)], len(drawn))
        taken = sorted(drawn, key=lambda server: (self._bytes[server], drawn[server]))[:count]
        for server in taken:
            self._bytes[server] += chunk_bytes
        return tuple(taken)


class Service(NamedTuple):
    """What clients find: servers, those of metadata after those of storage, and how blocks are laid out."""

    protocol: str
    servers: int
    metadata: int
    block_bytes: int
    stripe: int = 1
    parity: int = 0
    seed: int = 1
    places: Mapping[tuple[int, int], tuple[int, ...]] = MappingProxyType({})
    """By file and block, the storage servers of its chunks."""

    def placed(self, waves: Iterable[Iterable[int]], size_bytes: int) -> Service:
        """With files of so many bytes placed: those of a wave block by block, wave after wave."""
        draw = Draw(self.seed, range(self.servers))
        places: dict[tuple[int, int], tuple[int, ...]] = {}
        for wave in waves:
            files = [file for file in wave if (file, 0) not in places]
            for block, block_bytes in enumerate(self.blocks(size_bytes)):
                chunk_bytes = -(-block_bytes // self.stripe)
                for file in files:
                    name = file << 20 | block
                    places[file, block] = draw.take(name, self.stripe + self.parity, chunk_bytes)
        return self._replace(places=places)

    def partition(self, layer: int, number: int) -> int:
        """The metadata server that has an entry of a layer."""
        if self.protocol != "tectonic":
            return self.servers if self.metadata else 0
        return self.servers + int(scramble(layer * _FILES + number)) % self.metadata

    def chunks(self, file: int, block: int, block_bytes: int, *, save: bool) -> Group:
        """The requests that move a block."""
        chunk_bytes = -(-block_bytes // self.stripe)
        servers = self.places[file, block]
        if save:
            return tuple(Request(WRITE, server, up_bytes=chunk_bytes) for server in servers)
        return tuple(Request(READ, server, down_bytes=chunk_bytes) for server in servers[: self.stripe])

    def blocks(self, size_bytes: int) -> list[int]:
        """The sizes of a file's blocks."""
        whole, rest = divmod(size_bytes, self.block_bytes)
        return [self.block_bytes] * whole + [rest] * (rest > 0)

    def _asks(self, layer: int, number: int) -> Group:
        return (Request(layer, self.partition(layer, number)),)

    def before(self, directory: int, file: int) -> Chain:
        """What is asked before a file's data."""
        if self.protocol == "plain":
            return ()
        if self.protocol == "tectonic":
            return self._asks(NAME, directory), self._asks(FILE, file)
        opened = (self._asks(OPEN, 0),)
        return (*opened, self._asks(LAYOUTGET, 0)) if self.protocol == "pnfs" else opened

    def after(self, file: int, *, save: bool) -> Chain:
        """What is asked when the data is through."""
        if self.protocol == "plain":
            return ()
        if self.protocol == "tectonic":
            return (self._asks(FILE, file),) if save else ()
        closed = (self._asks(CLOSE, 0),)
        if self.protocol == "nfs":
            return closed
        committed = (self._asks(LAYOUTCOMMIT, 0),) if save else ()
        return *committed, self._asks(LAYOUTRETURN, 0), *closed

    def block(self, file: int, block: int, block_bytes: int, *, save: bool) -> Chain:
        """What moves a block, and what has to be asked before."""
        data = self.chunks(file, block, block_bytes, save=save)
        if self.protocol != "tectonic":
            return (data,)
        placed = self._asks(BLOCK, file << 20 | block)
        return (self._asks(FILE, file), placed, data) if save else (placed, data)

    def whole_file(
        self, directory: int, file: int, size_bytes: int, *, save: bool, earliest_ps: int = 0
    ) -> list[Phase]:
        """A file whose blocks are moved side by side."""
        before, after = self.before(directory, file), self.after(file, save=save)
        blocks = tuple(
            self.block(file, number, block_bytes, save=save)
            for number, block_bytes in enumerate(self.blocks(size_bytes))
        )
        phases = [Phase((before,), earliest_ps)] if before else []
        phases.append(Phase(blocks, earliest_ps))
        return [*phases, Phase((after,))] if after else phases

    def one_by_one(self, directory: int, file: int, size_bytes: int) -> Chain:
        """A file that is read block after block."""
        blocks = [
            group
            for number, block_bytes in enumerate(self.blocks(size_bytes))
            for group in self.block(file, number, block_bytes, save=False)
        ]
        return *self.before(directory, file), *blocks, *self.after(file, save=False)


def rebuilding(service: Service, lost: int, size_bytes: int, workers: int) -> list[ClientScript]:
    """What each worker does to rebuild what a lost server had: for each chunk it reads as many as hold a
    block's data, and writes the chunk to a server that has none of them.
    """
    draw = Draw(service.seed, [server for server in range(service.servers) if server != lost])
    chains: list[Chain] = []
    for number, chunk_bytes in enumerate(_chunks(service, size_bytes)):
        place, *sources = draw.take(number, 1 + service.stripe, chunk_bytes)
        reads = tuple(Request(READ, server, down_bytes=chunk_bytes) for server in sources)
        chains.append((reads, (Request(WRITE, place, up_bytes=chunk_bytes),)))
    return _dealt(chains, workers)


def filling(service: Service, empty: int, size_bytes: int, workers: int) -> list[ClientScript]:
    """What each worker does to give an empty server so many bytes of the others."""
    draw = Draw(service.seed, [server for server in range(service.servers) if server != empty])
    chains: list[Chain] = []
    for number, chunk_bytes in enumerate(_chunks(service, size_bytes)):
        (source,) = draw.take(number, 1, chunk_bytes)
        read = Request(READ, source, down_bytes=chunk_bytes)
        chains.append(((read,), (Request(WRITE, empty, up_bytes=chunk_bytes),)))
    return _dealt(chains, workers)


def _chunks(service: Service, size_bytes: int) -> list[int]:
    """The sizes of chunks that hold so many bytes."""
    chunk_bytes = -(-service.block_bytes // service.stripe)
    whole, rest = divmod(size_bytes, chunk_bytes)
    return [chunk_bytes] * whole + [rest] * (rest > 0)


def _dealt(chains: Sequence[Chain], workers: int) -> list[ClientScript]:
    """Chains, dealt to workers in turn."""
    parts = [tuple(chains[worker::workers]) for worker in range(workers)]
    return [(Phase(part),) if part else () for part in parts]


def checkpoint(service: Service, rank: int, size_bytes: int, staged_ps: int, *, save: bool) -> ClientScript:
    """A rank's part of a checkpoint, a file in a directory of all, from `staged_ps` on."""
    return tuple(service.whole_file(0, rank, size_bytes, save=save, earliest_ps=staged_ps))


def files_of(reader: int, step: int, steps: int, files: int, *, shared: bool) -> range:
    """The files that a reader reads in a step, its own or those of all."""
    first = (step if shared else reader * steps + step) * files
    return range(first, first + files)


def reading(
    service: Service, reader: int, files: int, size_bytes: int, steps: int, every_ps: int, *, shared: bool
) -> ClientScript:
    """A reader that reads so many files in each step, a step each `every_ps`."""
    phases: list[Phase] = []
    for step in range(steps):
        its = files_of(reader, step, steps, files, shared=shared)
        if files == 1:
            phases += service.whole_file(0, its[0], size_bytes, save=False, earliest_ps=step * every_ps)
        else:
            chains = tuple(service.one_by_one(0, file, size_bytes) for file in its)
            phases.append(Phase(chains, step * every_ps))
    return tuple(phases)
