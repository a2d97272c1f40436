"""The fabrics by name (`topology.kind`), and what is done to a finished one: NVLink, swapped cables.

A generator is a function of keyword arguments (counts, rates and delays as plain integers, ratios as
fractions) that returns a checked `Topology` and raises TopologyError with every fault it sees. Its arguments
are called as the fields of the scenario's section are, and `host_link_rate_bps`, `host_link_delay_ps` and
`nic_link_delay_ps` come from the section `host`. A new fabric is one file, one line of the table here, and a
section in the scenario.

NVLink domains: which GPUs exchange without a NIC. Those of one server: where it has two or more, each has an
NVLink to the server's NVSwitch, `nvswitch-<h>` (`nvswitch-` and the host's name in a fabric whose hosts are
called otherwise). The domain is added to a finished fabric, whatever drew it: its nodes go before the
controller and its links after all others, so no other device, link or port changes its number.

The NVLinks of a GPU are one link, and the NVSwitches of a server one switch: an H100's 18 links are spread
over four of them, evenly used, and none is ever in another's way.

Swapped cables. Two are plugged into each other's sockets. The fabric is then another one: the second ends of
two links have changed places, and what is computed from the graph (groups, addresses) follows the cables, as
routing protocols do. The links keep the names that they were meant to have, as labels on cables would. Rate
and delay stay with the cable.

Source: NVIDIA, "DGX H100 system architecture": 18 NVLinks of 25 GB/s each way a GPU, four NVSwitches.

Not modelled: domains of several servers (NVL72), single links or NVSwitches that fail.
"""

from __future__ import annotations

from importlib import import_module
from typing import Final

from actors.fabric.model import (
    FABRIC,
    MOST_DEVICES,
    MOST_LINKS,
    NVLINK,
    Fault,
    Link,
    Node,
    Role,
    Topology,
    TopologyError,
    nearest,
)

GENERATORS: Final = {
    "ai_zone": "ai_zone",
    "llama3": "llama3",
    "hpn": "hpn",
    "dcn_plus": "dcn_plus",
    "megascale": "megascale",
    "multi_plane": "multi_plane",
    "fat_tree": "textbook",
    "rail_only": "textbook",
    "star": "textbook",
    "graph": "custom",
}
"""Fabric -> the module of `emu.topology.generators` whose function of that name draws it."""


def build(kind: str, **arguments: object) -> Topology:
    """The fabric of that kind. TopologyError where nothing is called that, or nothing can be built so."""
    if kind not in GENERATORS:
        accepted = nearest(kind, GENERATORS) or f"one of {', '.join(GENERATORS)}"
        raise TopologyError([Fault(("kind",), f"no fabric is called {kind!r}", accepted)])
    generator = getattr(import_module(f"emu.topology.generators.{GENERATORS[kind]}"), kind)
    drawn: Topology = generator(**arguments)
    return drawn


def with_domains(topology: Topology, rate_bps: int, delay_ps: int) -> Topology:
    """The fabric with an NVSwitch in every server of several GPUs; itself where there is none."""
    servers = [
        gpus
        for host in range(len(topology.hosts))
        if len(gpus := [one for one in topology.server(host) if topology.nodes[one].role is Role.GPU]) > 1
    ]
    if not servers:
        return topology
    taken = {node.name: node.number for node in topology.nodes}
    nodes, links = list(topology.nodes[:-1]), list(topology.links)
    for gpus in servers:
        host = topology.nodes[topology.host_of(gpus[0])]
        switch = len(nodes)
        name = f"nvswitch-{host.name.removeprefix('host-')}"
        if name in taken:
            accepted = "another name, or host.nvlink.enabled: false"
            raise TopologyError(
                [Fault((), f"{name} is what the NVSwitch of {host.name} is called", accepted)]
            )
        nodes.append(Node(switch, name, Role.NVSWITCH, "nvswitch", -1, "backend", host.rack, host.host, 0))
        for port, gpu in enumerate(gpus):
            ends = gpu, len(topology.ports(gpu)), switch, port
            label = f"{topology.nodes[gpu].name}:{name}"
            links.append(Link(len(links), label, *ends, NVLINK, rate_bps, delay_ps, "backend"))
    for many, most, what in ((nodes, MOST_DEVICES, "devices"), (links, MOST_LINKS, "links")):
        if len(many) > most:
            reason = f"the fabric has more than {most} {what}"
            accepted = "fewer racks, hosts or switches, or host.nvlink.enabled: false"
            raise TopologyError([Fault((), reason, accepted)])
    return Topology([*nodes, topology.nodes[-1]._replace(number=len(nodes))], links, topology.kind)


def swapped(topology: Topology, one: int, other: int) -> Topology:
    """The fabric with the second ends of two links exchanged. Raises TopologyError."""
    first, second = topology.links[one], topology.links[other]
    if one == other:
        raise TopologyError([Fault((), f"{first.name} cannot be swapped with itself", "two links")])
    if FABRIC not in (first.kind, second.kind) or first.kind != second.kind:
        raise TopologyError([Fault((), "cables inside a server cannot be swapped", "links of the fabric")])
    if first.a == second.b or second.a == first.b:
        raise TopologyError(
            [Fault((), f"{first.name} would end where it begins", "links without a common end")]
        )
    links = list(topology.links)
    links[one] = _moved(first, second)
    links[other] = _moved(second, first)
    return Topology(topology.nodes, links, topology.kind)


def _moved(link: Link, to: Link) -> Link:
    return link._replace(b=to.b, b_port=to.b_port)
