"""What the servers of storage and metadata did, and which of them was the limit.

A server's disks have one rate for what it takes and gives, requests and answers included; a metadata server
works on its requests one after another. Both are counted by the payload on the server's link.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from actors.fabric.model import Topology
from actors.kernel.units import BIT_PS_PER_BYTE
from actors.optional.storage_clients import CONTROL_BYTES
from emu.results.summary import Fabric, ServerLoad
from emu.scenario.sections.frontend import FrontendSection
from emu.summary.fabric import share
from emu.topology.front_end import front_end_nic, metadata_hosts, storage_hosts

LIMIT: Final = 0.9
"""A server, or a link, that is busy for so much of the time is named as the limit."""


def server_loads(topology: Topology, frontend: FrontendSection, fabric: Fabric) -> list[ServerLoad]:
    """The load of every server of the front end, storage first."""
    came: dict[str, int] = {}
    left: dict[str, int] = {}
    for link in fabric.links:
        came[link.destination] = came.get(link.destination, 0) + link.data_bytes
        left[link.source] = left.get(link.source, 0) + link.data_bytes
    stores, ran_ps = storage_hosts(topology), fabric.ran_ps or 0
    loads: list[ServerLoad] = []
    for host in (*stores, *metadata_hosts(topology)):
        nic = topology.nodes[front_end_nic(topology, host)].name
        taken, given = came.get(nic, 0), left.get(nic, 0)
        busy_ps = taken // CONTROL_BYTES * frontend.metadata.operation_ps
        if host in stores:
            busy_ps = (taken + given) * BIT_PS_PER_BYTE // frontend.storage.disk_bps
        part = min(share(busy_ps, ran_ps), 1.0)
        name = topology.nodes[host].name
        loads.append(ServerLoad(server=name, taken_bytes=taken, given_bytes=given, utilisation=part))
    return loads


def limit_line(loads: Sequence[ServerLoad]) -> str:
    """Which server limited the clients of storage; empty if none was busy nearly all the time."""
    busiest = max(loads, key=lambda one: one.utilisation, default=None)
    if busiest is None or busiest.utilisation < LIMIT:
        return ""
    kind = busiest.server.rsplit("-", 1)[0]
    peers = [one.utilisation for one in loads if one.server.startswith(kind)]
    what = "disks" if kind == "store" else "metadata"
    mean = sum(peers) / len(peers)
    others = f"; {len(peers)} servers in the mean {mean:.1%}" if len(peers) > 1 else ""
    return f"the limit: {what} of {busiest.server} busy {busiest.utilisation:.1%} of the time{others}"
