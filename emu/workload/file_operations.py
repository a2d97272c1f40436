"""Files on storage: how protocols save and read them, request by request.

A file is blocks, a block `stripe` chunks of data and `parity` more (Reed-Solomon; one and two are three
replicas): chunk i of block b of file f is on storage server (f + b x (stripe + parity) + i) modulo their
number. Whoever writes sends all of them; whoever reads, those of data.

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

Sources. Tectonic: Pan et al., Facebook's Tectonic Filesystem (FAST'21), sections 3.2 to 3.4. NFS 4.1 and
pNFS: RFC 8881, sections 12 and 13; writes are stable there, so that no COMMIT follows.

Not modelled: caches of names, layouts and sealed objects; sessions, leases, delegations; appends that need
not all chunks, hedged reads, partial stripes; what workers ask of metadata, reads of chunks that are lost.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from actors.host.storage_clients import KINDS, Chain, ClientScript, Group, Phase, Request
from actors.kernel.mixing import scramble

READ, WRITE, NAME, FILE, BLOCK, OPEN, CLOSE, LAYOUTGET, LAYOUTCOMMIT, LAYOUTRETURN = range(len(KINDS))
_FILES: Final = 1 << 40
"""More than there are; tells a layer's names apart."""


class Service(NamedTuple):
    """What clients find: servers, those of metadata after those of storage, and how blocks are laid out."""

    protocol: str
    servers: int
    metadata: int
    block_bytes: int
    stripe: int = 1
    parity: int = 0

    def partition(self, layer: int, number: int) -> int:
        """The metadata server that has an entry of a layer."""
        if self.protocol != "tectonic":
            return self.servers if self.metadata else 0
        return self.servers + int(scramble(layer * _FILES + number)) % self.metadata

    def _at(self, file: int, block: int, chunk: int) -> int:
        return (file + block * (self.stripe + self.parity) + chunk) % self.servers

    def chunks(self, file: int, block: int, block_bytes: int, *, save: bool) -> Group:
        """The requests that move a block."""
        chunk_bytes = -(-block_bytes // self.stripe)
        places = range(self.stripe + (self.parity if save else 0))
        if save:
            return tuple(Request(WRITE, self._at(file, block, at), up_bytes=chunk_bytes) for at in places)
        return tuple(Request(READ, self._at(file, block, at), down_bytes=chunk_bytes) for at in places)

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


def rebuilding(service: Service, lost: int, size_bytes: int, worker: int, workers: int) -> ClientScript:
    """A worker's part of what a lost server had: for each chunk it reads as many as hold a block's data, and
    writes the chunk. Chunks are dealt to workers, and sources and places to the survivors, in turn.
    """
    survivors = [server for server in range(service.servers) if server != lost]
    chains = []
    for number, chunk_bytes in _mine(service, size_bytes, worker, workers):
        turn = [survivors[(number + at) % len(survivors)] for at in range(service.stripe + 1)]
        sources = tuple(Request(READ, server, down_bytes=chunk_bytes) for server in turn[1:])
        chains.append((sources, (Request(WRITE, turn[0], up_bytes=chunk_bytes),)))
    return (Phase(tuple(chains)),) if chains else ()


def filling(service: Service, empty: int, size_bytes: int, worker: int, workers: int) -> ClientScript:
    """A worker's part of so many bytes that an empty server is given by all others in turn."""
    others = [server for server in range(service.servers) if server != empty]
    chains = []
    for number, chunk_bytes in _mine(service, size_bytes, worker, workers):
        source = Request(READ, others[number % len(others)], down_bytes=chunk_bytes)
        chains.append(((source,), (Request(WRITE, empty, up_bytes=chunk_bytes),)))
    return (Phase(tuple(chains)),) if chains else ()


def _mine(service: Service, size_bytes: int, worker: int, workers: int) -> list[tuple[int, int]]:
    """The chunks of a worker: number and bytes."""
    chunk_bytes = -(-service.block_bytes // service.stripe)
    return [
        (number, min(chunk_bytes, size_bytes - number * chunk_bytes))
        for number in range(worker, -(-size_bytes // chunk_bytes), workers)
    ]


def checkpoint(service: Service, rank: int, size_bytes: int, staged_ps: int, *, save: bool) -> ClientScript:
    """A rank's part of a checkpoint, a file in a directory of all, from `staged_ps` on."""
    return tuple(service.whole_file(0, rank, size_bytes, save=save, earliest_ps=staged_ps))


def reading(
    service: Service, reader: int, files: int, size_bytes: int, steps: int, every_ps: int, *, shared: bool
) -> ClientScript:
    """A reader that reads so many files in each step, its own or those of all, a step each `every_ps`."""
    phases: list[Phase] = []
    for step in range(steps):
        first = (step if shared else reader * steps + step) * files
        if files == 1:
            phases += service.whole_file(0, first, size_bytes, save=False, earliest_ps=step * every_ps)
        else:
            chains = tuple(service.one_by_one(0, first + one, size_bytes) for one in range(files))
            phases.append(Phase(chains, step * every_ps))
    return tuple(phases)
