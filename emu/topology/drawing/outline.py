"""How is a fabric of any size drawn in a few lines of a terminal?

As a tree of its blocks, one line for each shape:

    8 ctsw
    └─ 4 racks of 1 rtsw, each 8 x 400Gbps up
       └─ 2 hosts of 8 GPUs and 8 NICs, each 8 x 400Gbps up

What goes up is what the block's own switches (or a server's NICs) are joined to above them.
"""

from __future__ import annotations

from collections.abc import Sequence

from actors.fabric.model import FABRIC, Attachment, Role, Topology
from emu.topology.blocks import Block, blocks, plane_word, planes, word
from emu.topology.drawing.text import about_rate
from emu.units import counted


def outline(topology: Topology) -> str:
    """The tree."""
    of_switch = planes(topology)
    lines: list[str] = []
    roots = blocks(topology)
    lines += _lines(topology, of_switch, [root for root in roots if not root.tier], "")
    for root in (root for root in roots if root.tier):
        lines.append(_switches(topology, of_switch, root.switches))
        lines += _below(topology, of_switch, root, "")
    return "\n".join(lines)


def _below(topology: Topology, of_switch: dict[int, int], block: Block, indent: str) -> list[str]:
    servers = [Block(0, (), (), (host,), _server_shape(topology, host)) for host in block.hosts]
    return _lines(topology, of_switch, [*block.below, *servers], indent)


def _lines(topology: Topology, of_switch: dict[int, int], found: Sequence[Block], indent: str) -> list[str]:
    """A line for each shape among sibling blocks, and what hangs below it."""
    alike: dict[object, list[Block]] = {}
    for block in found:
        alike.setdefault((block.shape, _up(topology, block)), []).append(block)
    lines: list[str] = []
    for place, group in enumerate(alike.values()):
        last = place + 1 == len(alike)
        block = group[0]
        up = _up(topology, block)
        each = "each " if len(group) > 1 else ""
        text = _name(topology, of_switch, block, len(group)) + (f", {each}{up} up" if up else "")
        lines.append(f"{indent}{'└' if last else '├'}─ {text}")
        if block.tier:
            lines += _below(topology, of_switch, block, indent + ("   " if last else "│  "))
    return lines


def _name(topology: Topology, of_switch: dict[int, int], block: Block, count: int) -> str:
    if block.tier:
        noun = counted(count, word(topology, block.tier))
        return f"{noun} of {_switches(topology, of_switch, block.switches)}"
    inside = topology.server(topology.nodes[block.hosts[0]].host)
    roles = [topology.nodes[node].role for node in inside]
    gpus, nics = counted(roles.count(Role.GPU), "GPU"), counted(roles.count(Role.NIC), "NIC")
    domain = " on an NVSwitch" if Role.NVSWITCH in roles else ""
    return f"{counted(count, 'host')} of {gpus}{domain} and {nics}"


def _switches(topology: Topology, of_switch: dict[int, int], switches: Sequence[int]) -> str:
    """`120 agg in 2 planes`."""
    models = "/".join(dict.fromkeys(topology.nodes[switch].model for switch in switches))
    apart = len(dict.fromkeys(of_switch[switch] for switch in switches))
    return f"{len(switches):,} {models}" + (
        f" in {counted(apart, plane_word(topology))}" if apart > 1 else ""
    )


def _up(topology: Topology, block: Block) -> str:
    """What leads up from a block: `8 x 400Gbps`."""
    rates: dict[int, int] = {}
    for port in _ports_up(topology, block):
        rates[port.rate_bps] = rates.get(port.rate_bps, 0) + 1
    return " and ".join(f"{count:,} x {about_rate(rate)}" for rate, count in rates.items())


def _ports_up(topology: Topology, block: Block) -> list[Attachment]:
    nodes = topology.nodes
    ends = block.switches if block.tier else topology.server(nodes[block.hosts[0]].host)
    return [
        port
        for end in ends
        for port in topology.ports(end)
        if port.kind == FABRIC and nodes[port.peer].tier > max(nodes[end].tier, 0)
    ]


def _server_shape(topology: Topology, host: int) -> tuple[object, ...]:
    return tuple(topology.nodes[node].model for node in topology.server(topology.nodes[host].host))
