"""Section `frontend`: the network beside the fabric of the GPUs, and the storage servers on it.

Sources: Meta (SIGCOMM'24) for RSW and FSW and what they carry; Llama 3, section 3.3.1, for the disks: 2 TB/s
sustained over 7,500 servers is 267 MB/s each (derived).
"""

from collections.abc import Iterator
from fractions import Fraction
from typing import Annotated, Final

from emu.base.records import Field
from emu.base.units import parse_rate, parse_size, parse_time
from emu.scenario.section import Refusal, Section
from emu.scenario.yaml.values import DelayPs, PositiveFraction, PositiveSizeBytes, RateBps

Count = Annotated[int, Field(ge=1, le=65536)]
DISK_BPS: Final = 2_133_333_333


class StorageSection(Section):
    """Chunk servers: what is written to one goes to its disks, what is read comes from there."""

    servers: Annotated[int, Field(ge=0, le=65536)] = 0
    """Number of servers, `store-0` and so on."""
    link_bps: RateBps = parse_rate("100G")
    """Rate of a server's NIC. A choice."""
    disk_bps: RateBps = DISK_BPS
    """Rate of a server's disks, reads and writes together: 267 MB/s (Llama 3, derived)."""
    cache_bytes: PositiveSizeBytes = parse_size("64MiB")
    """Memory of a server in which what came waits for its disks. What finds no room is lost: give it room for
    the receive windows of all connections. A choice."""


class MetadataSection(Section):
    """Metadata servers: what is not data is asked of them, or, with `protocol: nfs`, of the filer."""

    servers: Annotated[int, Field(ge=0, le=65536)] = 0
    """Number of servers, `meta-0` and so on, beside the storage servers, with NICs as fast as theirs."""
    operation_ps: DelayPs = parse_time("100us")
    """Time of one request at a server, one after another: 10,000 a second. A choice."""
    queue: Annotated[int, Field(ge=1, le=2**20)] = 1024
    """Requests at a server, the one that it works on included. Another is refused, and asked again later."""


class FrontendSection(Section):
    """A NIC of each host's own, rack switches (RSW), fabric switches (FSW), storage."""

    enabled: bool = False
    """Whether there is one."""
    hosts_per_rsw: Count = 16
    """Hosts, or storage servers, under one rack switch. A choice."""
    fsws: Count = 4
    """Fabric switches, each joined to every rack switch; none where there is one rack switch. A choice."""
    oversubscription: PositiveFraction = Fraction(1)
    """Rate below an RSW over rate above it."""
    link_bps: RateBps = parse_rate("100G")
    """Rate of a host's NIC. A choice."""
    nic_delay_ps: DelayPs = parse_time("500ns")
    """Propagation between a NIC and its RSW."""
    fsw_delay_ps: DelayPs = parse_time("500ns")
    """Propagation between an RSW and an FSW."""
    storage: StorageSection = StorageSection.defaults()
    """Storage servers."""
    metadata: MetadataSection = MetadataSection.defaults()
    """Metadata servers."""

    def check(self) -> Iterator[Refusal]:
        """Refuse storage without a network."""
        if self.storage.servers and not self.enabled:
            reason = "storage stands on the front-end network, and there is none"
            yield Refusal(("storage", "servers"), reason, "frontend.enabled: true, or 0")
        if self.metadata.servers and not self.storage.servers:
            reason = "there is no storage that they could know of"
            yield Refusal(("metadata", "servers"), reason, "frontend.storage.servers: 1 or more, or 0")
