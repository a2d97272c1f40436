"""How are the members of a routing group named?

A group is the equal ports of a switch towards some destination, as they are while every link is up: its label
is their numbers, `0-2,5`. A port that is in several groups is a member of each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from actors.fabric.model import Topology
from actors.fabric.routing import routes
from emu.scenario.expect.span import direction_of


def members_of(topology: Topology, switch: int) -> Iterator[tuple[tuple[str, ...], int]]:
    """The members of a switch's groups of two ports and more: their labels (device, group, port, peer and
    direction), and the port.
    """
    nodes, ports = topology.nodes, topology.ports(switch)
    for group in sorted(dict.fromkeys(routes(topology).groups(switch))):
        if len(group) < 2:
            continue
        for at in group:
            peer = nodes[ports[at].peer]
            direction = direction_of(nodes[switch], peer)
            yield (nodes[switch].name, ranges(group), str(at), peer.name, direction), at


def ranges(numbers: Sequence[int]) -> str:
    """Ascending numbers in short: [0, 1, 2, 5] is "0-2,5"."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(f"{first}-{last}" if last > first else str(first) for first, last in runs)
