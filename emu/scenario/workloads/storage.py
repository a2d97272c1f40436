"""Workloads on storage: checkpoints and reads, by a protocol, over the front-end network.

What a protocol asks of whom is in `emu.workload.file_operations`.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, ClassVar, Final, Literal

from actors.fabric.model import Topology
from actors.kernel.units import serialisation_ps
from actors.optional.storage_clients import ClientScript, Manners, flattened
from actors.wire.frame import LARGEST_HEADERS_BYTES
from emu.base.records import Field
from emu.base.units import format_size, parse_size, parse_time
from emu.scenario.environment import Environment
from emu.scenario.section import Refusal, Section
from emu.scenario.workloads.flows import LONGEST_MESSAGE_BYTES
from emu.scenario.workloads.workload import Clients, Copying, MisfitError, Site, Workload
from emu.scenario.yaml.values import DelayPs, PositiveSizeBytes, TimePs
from emu.topology.front_end import metadata_hosts
from emu.topology.server_presets import copy_rates_bps
from emu.workload.file_operations import Service, checkpoint, files_of, filling, reading, rebuilding
from emu.workload.storage_facts import StorageFacts

MOST_REQUESTS: Final = 2**22
"""Requests of the clients of one job, over all."""


class FuseSection(Section):
    """A daemon in user space that every request of a host goes through."""

    enabled: bool = False
    """Whether there is one, for each job on each host."""
    operation_ps: DelayPs = parse_time("20us")
    """Time of a request in the daemon. A choice."""
    request_bytes: PositiveSizeBytes = parse_size("128KiB")
    """Data of a request at most; a larger one is several. Of Linux before 4.20 (FUSE_MAX_PAGES_PER_REQ)."""


class StorageWorkload(Workload):
    """What all clients of storage share."""

    parts: ClassVar[tuple[str, ...]] = ("storage",)
    calls_library: ClassVar[bool] = False
    never_absent: ClassVar[str] = "clients of storage do not wait for one another"

    size_bytes: PositiveSizeBytes
    """How much."""
    protocol: Literal["plain", "nfs", "pnfs", "tectonic"] = "plain"
    """What else they ask: nothing; OPEN and CLOSE of the one filer that has all bytes; OPEN, layouts and
    CLOSE of the first metadata server; Tectonic's name, file and block layers, hash-partitioned over all."""
    block_bytes: PositiveSizeBytes = parse_size("8MiB")
    """Size of a block of a file; a block is on one storage server, or on `stripe` and `parity`. A choice."""
    stripe: Annotated[int, Field(ge=1, le=255)] = 1
    """Chunks that a block's data is cut into, each on another server."""
    parity: Annotated[int, Field(ge=0, le=255)] = 0
    """Chunks that are written beside them: Reed-Solomon; with one of data, copies."""
    parallel: Annotated[int, Field(ge=1, le=65536)] = 16
    """Blocks, or files where there are several, that a client moves at a time. A choice."""
    backoff_ps: DelayPs = parse_time("1ms")
    """Before a request that a metadata server refused is asked again; doubles, half of it drawn. A choice."""
    retries: Annotated[int, Field(ge=0, le=20)] = 10
    """Retries before the client gives up. A choice."""
    timeout_ps: TimePs = parse_time("60s")
    """Without an answer for so long a client gives a server up: it writes to another, and cannot read. 60 s:
    `timeo` of Linux's NFS over TCP. Longer than a server takes for what its clients have under way."""
    fuse: FuseSection = FuseSection.defaults()
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

    def fit(self, site: Site) -> Clients:
        """The requests of each client."""
        self._check_service(site)
        self._check_own(site)
        count = self.requests_of(len(site.gpus))
        if count > MOST_REQUESTS:
            accepted = f"at most {MOST_REQUESTS}: larger blocks, fewer files or steps"
            raise site.misfit(("workload", "block"), f"about {count} requests", accepted)
        frontend, fuse = site.environment.frontend, self.fuse
        service = Service(
            protocol=self.protocol,
            servers=frontend.storage.servers,
            metadata=frontend.metadata.servers,
            block_bytes=self.block_bytes,
            stripe=self.stripe,
            parity=self.parity,
            seed=site.seed,
        )
        manners = Manners(
            parallel=self.parallel,
            daemon_ps=fuse.operation_ps if fuse.enabled else 0,
            piece_bytes=fuse.request_bytes,
            backoff_ps=self.backoff_ps,
            retries=self.retries,
            timeout_ps=self.timeout_ps,
        )
        copies = self._copies(site)
        scripts = tuple(self._scripts(site, service, copies))
        known = copies if site.environment.host.node != "none" else ()
        asking = [script for _, script in scripts if script]
        requests = flattened(tuple(asking))
        saving = any(one.up_bytes for one in requests)
        facts = StorageFacts(
            clients=len(asking),
            stored_bytes=sum(one.up_bytes + one.down_bytes for one in requests),
            staged=saving and any(script[0].earliest_ps > 0 for script in asking),
        )
        return Clients(scripts, manners, self.stripe + self.parity, tuple(known), facts)

    def _check_service(self, site: Site) -> None:
        """Refuse what the storage of the scenario has no place for. Raises MisfitError."""
        frontend, where = site.environment.frontend, "workload"
        stores = frontend.storage.servers
        if not stores:
            accepted = "frontend.storage.servers: 1 or more, with frontend.enabled"
            raise site.misfit((where, "kind"), f"there is no storage for {self.kind}", accepted)
        if self.protocol == "nfs" and stores > 1:
            reason = f"all bytes go through one filer, and there are {stores} storage servers"
            accepted = "frontend.storage.servers: 1, or another protocol"
            raise site.misfit((where, "protocol"), reason, accepted)
        if self.protocol in ("pnfs", "tectonic") and not frontend.metadata.servers:
            reason = f"{self.protocol} asks metadata servers, and there are none"
            accepted = "frontend.metadata.servers: 1 or more, or another protocol"
            raise site.misfit((where, "protocol"), reason, accepted)
        if self.stripe + self.parity > stores:
            reason = f"{self.stripe} + {self.parity} chunks of a block on {stores} storage servers"
            raise site.misfit((where, "stripe"), reason, f"at most {stores} in all")
        packet_bytes = max(one.mtu_bytes for one in site.environment.transports) + LARGEST_HEADERS_BYTES
        if frontend.storage.cache_bytes < packet_bytes:
            reason = f"{format_size(frontend.storage.cache_bytes)} hold no packet of {packet_bytes} B"
            accepted = "the receive windows of all connections of a server"
            raise MisfitError([Refusal(("frontend", "storage", "cache"), reason, accepted)])

    def _check_own(self, site: Site) -> None:
        """Refuse what this kind has no place for. Raises MisfitError."""

    def _copies(self, site: Site) -> list[Copying]:
        """By rank, the way of what it saves from GPU to host memory; of what saves nothing, none."""
        del site
        return []

    def _scripts(
        self, site: Site, service: Service, copies: Sequence[Copying]
    ) -> Iterable[tuple[int, ClientScript]]:
        """Host and requests of each client."""
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
    """Size of one rank's checkpoint: 1 MB to 4 GB (Llama 3, section 3.3.1)."""

    def requests_of(self, clients: int) -> int:
        """As many for each block as it has chunks, and what is asked beside."""
        return clients * (8 + self._blocks(self.size_bytes) * (2 + self.stripe + self.parity))

    def saved_layout(self) -> tuple[int, int] | None:
        """With `direction: save`."""
        return (self.stripe, self.parity) if self.direction == "save" else None

    def _check_own(self, site: Site) -> None:
        refusal = memory_refusal(site.environment, site.topology, site.servers, self.size_bytes)
        if refusal is not None:
            raise site.misfit(("workload", "size"), *refusal)

    def _copies(self, site: Site) -> list[Copying]:
        if self.direction == "load":
            return []
        host, size = site.environment.host, self.size_bytes
        rates_bps = copy_rates_bps(host.node, host.link_rate_bps, site.topology, site.gpus)
        return [
            Copying(gpu, rate_bps, serialisation_ps(size, rate_bps))
            for gpu, rate_bps in zip(site.gpus, rates_bps, strict=True)
        ]

    def _scripts(
        self, site: Site, service: Service, copies: Sequence[Copying]
    ) -> Iterable[tuple[int, ClientScript]]:
        save, size = self.direction == "save", self.size_bytes
        service = service.placed([range(len(site.gpus))], size)
        for rank, host in enumerate(site.servers):
            yield host, checkpoint(service, rank, size, copies[rank].takes_ps if save else 0, save=save)


class Reads(StorageWorkload):
    """Files that are read: data loading, or many small ones."""

    kind: Literal["reads"] = "reads"
    """Files that are read, step by step."""
    size_bytes: PositiveSizeBytes
    """Size of a file."""
    files: Annotated[int, Field(ge=1, le=2**20)] = 1
    """Files that a reader reads in a step."""
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

    def _scripts(
        self, site: Site, service: Service, copies: Sequence[Copying]
    ) -> Iterable[tuple[int, ClientScript]]:
        hosts, size, steps, files = site.servers, self.size_bytes, self.steps, self.files
        first = {host: rank for rank, host in reversed(list(enumerate(hosts)))}
        readers = [rank for rank, host in enumerate(hosts) if self.readers == "gpu" or first[host] == rank]
        waves = (
            (number for rank in readers for number in files_of(rank, step, steps, files, shared=self.shared))
            for step in range(steps)
        )
        service = service.placed(waves, size)
        for rank in readers:
            yield (
                hosts[rank],
                reading(service, rank, files, size, steps, self.every_ps, shared=self.shared),
            )


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

    def _check_own(self, site: Site) -> None:
        frontend = site.environment.frontend
        stores = frontend.storage.servers
        if not site.every_rank:
            reason = f"{self.kind} is done beside the metadata servers, by no rank"
            raise site.misfit(("ranks",), reason, "no `ranks`")
        if not frontend.metadata.servers:
            reason = f"{self.kind} is done beside the metadata servers, and there are none"
            raise site.misfit(("workload", "kind"), reason, "frontend.metadata.servers: 1 or more")
        if self.server >= stores:
            reason = f"there is no storage server {self.server} among {stores}"
            raise site.misfit(("workload", "server"), reason, f"0 to {stores - 1}")
        self._check_saved(site)
        if stores < self.least_servers():
            reason = f"{self.kind} takes {self.least_servers()} storage servers, and there are {stores}"
            accepted = f"frontend.storage.servers: {self.least_servers()} or more, or fewer chunks"
            raise site.misfit(("workload", "stripe"), reason, accepted)

    def _check_saved(self, site: Site) -> None:
        """Refuse to be about chunks that nobody saves. Raises MisfitError."""

    def _scripts(
        self, site: Site, service: Service, copies: Sequence[Copying]
    ) -> Iterable[tuple[int, ClientScript]]:
        workers = metadata_hosts(site.topology)
        return zip(workers, self._shares(service, len(workers)), strict=True)

    def _shares(self, service: Service, workers: int) -> list[ClientScript]:
        """What each worker does."""
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

    def _check_saved(self, site: Site) -> None:
        saved = [layout for one in site.beside if (layout := one.saved_layout()) is not None]
        if saved and (self.stripe, self.parity) not in saved:
            reason = f"no checkpoint saves blocks of {self.stripe} + {self.parity} chunks"
            known = ", ".join(sorted({f"{a} + {b}" for a, b in saved}))
            raise site.misfit(("workload", "stripe"), reason, f"the stripe and parity of one: {known}")

    def _shares(self, service: Service, workers: int) -> list[ClientScript]:
        return rebuilding(service, self.server, self.size_bytes, workers)


class Rebalance(Maintenance):
    """An empty server is given chunks of the others."""

    kind: Literal["rebalance"] = "rebalance"
    """Chunks of all other servers, in turn, to an empty one; `ranks` have no part in it."""

    def least_servers(self) -> int:
        """One to read from, and the empty one."""
        return 2

    def _shares(self, service: Service, workers: int) -> list[ClientScript]:
        return filling(service, self.server, self.size_bytes, workers)


def memory_refusal(
    environment: Environment, topology: Topology, servers: Sequence[int], size_bytes: int
) -> tuple[str, str] | None:
    """Why parts of a checkpoint, one of each rank, do not fit the memory of these servers, and what does."""
    for server, ranks in Counter(servers).items():
        memory = environment.at(topology, server).host.memory_bytes
        if ranks * size_bytes > memory:
            name = topology.nodes[server].name
            reason = f"{ranks} ranks of {name} have {format_size(ranks * size_bytes)}, more than its memory"
            return reason, f"at most {format_size(memory // ranks)} a rank (host.memory)"
    return None
