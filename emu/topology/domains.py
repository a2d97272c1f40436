"""NVLink domains: which GPUs exchange without a NIC.

Those of one server: where it has two or more, each has an NVLink to the server's NVSwitch, `nvswitch-<h>`
(`nvswitch-` and the host's name in a fabric whose hosts are called otherwise). The domain is added to a
finished fabric, whatever drew it: its nodes go before the controller and its links after all others, so no
other device, link or port changes its number.

The NVLinks of a GPU are one link, and the NVSwitches of a server one switch: an H100's 18 links are spread
over four of them, evenly used, and none is ever in another's way.

Source: NVIDIA, "DGX H100 system architecture": 18 NVLinks of 25 GB/s each way a GPU, four NVSwitches.

Not modelled: domains of several servers (NVL72), single links or NVSwitches that fail.
"""

from __future__ import annotations

from dataclasses import replace

from actors.fabric.model import (
    MOST_DEVICES,
    MOST_LINKS,
    NVLINK,
    Fault,
    Link,
    Node,
    Role,
    Topology,
    TopologyError,
)


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
    return Topology([*nodes, replace(topology.nodes[-1], number=len(nodes))], links, topology.kind)
