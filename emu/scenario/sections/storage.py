"""Workloads on storage: checkpoints and reads, by a protocol, over the front-end network.

What a protocol asks of whom is in `emu.workload.file_operations`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Final, Literal

from pydantic import Field

from emu.base.units import parse_size, parse_time
from emu.scenario.section import Refusal, Section
from emu.scenario.sections.flows import LONGEST_MESSAGE_BYTES
from emu.scenario.yaml.values import DelayPs, PositiveSizeBytes, TimePs

MOST_REQUESTS: Final = 2**22
"""Of the clients of one job, over all."""


class FuseSection(Section):
    """A daemon in user space that every request of a host goes through."""

    enabled: bool = False
    """Whether there is one, for each job on each host."""
    operation_ps: DelayPs = parse_time("20us")
    """What a request takes it. A choice."""
    request_bytes: PositiveSizeBytes = parse_size("128KiB")
    """Data of a request at most; a larger one is several. Of Linux before 4.20 (FUSE_MAX_PAGES_PER_REQ)."""


class StorageWorkload(Section):
    """What all clients of storage share."""

    kind: str
    """What they do."""
    size_bytes: PositiveSizeBytes
    """How much."""
    protocol: Literal["plain", "nfs", "pnfs", "tectonic"] = "plain"
    """What else they ask: nothing; OPEN and CLOSE of the one filer that has all bytes; OPEN, layouts and
    CLOSE of the first metadata server; Tectonic's name, file and block layers, hash-partitioned over all."""
    block_bytes: PositiveSizeBytes = parse_size("8MiB")
    """Of a file; a block is on one storage server, or on `stripe` and `parity`. A choice."""
    stripe: Annotated[int, Field(ge=1, le=255)] = 1
    """Chunks that a block's data is cut into, each on another server."""
    parity: Annotated[int, Field(ge=0, le=255)] = 0
    """Chunks that are written beside them: Reed-Solomon; with one of data, copies."""
    parallel: Annotated[int, Field(ge=1, le=65536)] = 16
    """Blocks, or files where there are several, that a client moves at a time. A choice."""
    backoff_ps: DelayPs = parse_time("1ms")
    """Before a request that a metadata server refused is asked again; doubles, half of it drawn. A choice."""
    retries: Annotated[int, Field(ge=0, le=20)] = 10
    """How often, before the client gives up. A choice."""
    timeout_ps: TimePs = parse_time("60s")
    """Without an answer for so long a client gives a server up: it writes to another, and cannot read. 60 s:
    `timeo` of Linux's NFS over TCP. Longer than a server takes for what its clients have under way."""
    fuse: FuseSection = FuseSection()
    """Whether files are reached through FUSE."""

    def check(self) -> Iterator[Refusal]:
        """Refuse what no server could hold."""
        if self.protocol == "nfs" and self.stripe + self.parity > 1:
            key = "stripe" if self.stripe > 1 else "parity"
            yield Refusal((key,), "one filer has all bytes", "stripe 1 and parity 0 with nfs")
        if self.block_bytes > LONGEST_MESSAGE_BYTES:
            yield Refusal(("block",), "a message would be longer than 2 GiB", "at most 2GiB")

    def requests_of(self, clients: int) -> int:
        """About how many requests so many clients make."""
        raise NotImplementedError

    def _blocks(self, size_bytes: int) -> int:
        return -(-size_bytes // self.block_bytes)


class Checkpoint(StorageWorkload):
    """A synchronised checkpoint: every rank's part goes to storage, or comes from there."""

    kind: Literal["checkpoint"] = "checkpoint"
    """A checkpoint that is saved or loaded."""
    direction: Literal["save", "load"] = "save"
    """`save`: from GPU to host memory over PCIe first, then to storage. `load`: from storage to host memory;
    the way on to the GPU takes `size` / `host.link_rate` and is not emulated."""
    size_bytes: PositiveSizeBytes
    """Of one rank: 1 MB to 4 GB (Llama 3, section 3.3.1)."""

    def requests_of(self, clients: int) -> int:
        """As many for each block as it has chunks, and what is asked beside."""
        return clients * (8 + self._blocks(self.size_bytes) * (2 + self.stripe + self.parity))


class Reads(StorageWorkload):
    """Files that are read: data loading, or many small ones."""

    kind: Literal["reads"] = "reads"
    """Files that are read, step by step."""
    size_bytes: PositiveSizeBytes
    """Of a file."""
    files: Annotated[int, Field(ge=1, le=2**20)] = 1
    """That a reader reads in a step."""
    steps: Annotated[int, Field(ge=1, le=2**20)] = 1
    """How often."""
    every_ps: TimePs = 0
    """A step is not asked for before so much time after the one before it; 0: at once."""
    readers: Literal["gpu", "node"] = "gpu"
    """Whether each rank reads, or the first of each server for all of them there."""
    shared: bool = False
    """Whether all read the same files, as code; otherwise each its own, as samples."""

    def requests_of(self, clients: int) -> int:
        """The same for each file."""
        blocks = self._blocks(self.size_bytes) * (1 + self.stripe)
        return clients * self.steps * self.files * (4 + blocks)


class Maintenance(StorageWorkload):
    """A background service: workers beside the metadata servers read chunks and write chunks."""

    size_bytes: PositiveSizeBytes
    """Bytes of chunks that are to be written."""
    server: Annotated[int, Field(ge=0, le=65535)] = 0
    """The storage server that it is about, by number."""

    def check(self) -> Iterator[Refusal]:
        """Refuse what only clients go through."""
        yield from super().check()
        if self.protocol != "plain" or self.fuse.enabled:
            key = "fuse" if self.protocol == "plain" else "protocol"
            yield Refusal((key,), "a background service opens no files", "plain, without fuse")

    def requests_of(self, clients: int) -> int:
        """The same for each chunk, whoever does it."""
        return self._blocks(self.size_bytes) * self.stripe * (1 + self.stripe)

    def least_servers(self) -> int:
        """How many storage servers it takes."""
        raise NotImplementedError


class Repair(Maintenance):
    """What a lost server had is rebuilt on the others."""

    kind: Literal["repair"] = "repair"
    """The chunks of a lost server, rebuilt from `stripe` others each; `ranks` have no part in it."""

    def check(self) -> Iterator[Refusal]:
        """Refuse what is lost for good."""
        yield from super().check()
        if self.parity == 0:
            reason = "without copies or parity there is nothing to rebuild from"
            yield Refusal(("parity",), reason, "1 or more")

    def least_servers(self) -> int:
        """Those to read from, one to write to, and the lost one."""
        return self.stripe + 2


class Rebalance(Maintenance):
    """An empty server is given chunks of the others."""

    kind: Literal["rebalance"] = "rebalance"
    """Chunks of all other servers, in turn, to an empty one; `ranks` have no part in it."""

    def least_servers(self) -> int:
        """One to read from, and the empty one."""
        return 2
