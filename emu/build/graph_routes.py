"""Groups of a switch, in the graph as routing knows it.

Equal-cost groups from the topology without the links that are down, weighted as the scenario says; an address
that hangs on this switch, or goes its own way, branches off its prefix. Static routes come last and go before
all: they know nothing of links that are down.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd

from actors.fabric.model import INDEX_BITS, INDEX_MASK, Topology
from actors.fabric.routing import equal_cost_groups, host_groups, local_ports
from actors.switch.routing.groups import VIA_BRANCH, Group, Routes
from emu.scenario.sections.routing import RoutingSection
from emu.scenario.sections.switch import StaticRoute


class GraphRoutes(Routes):
    """Groups read off the topology, each distinct one shared by the prefixes that have it."""

    def __init__(
        self, topology: Topology, routing: RoutingSection, static: Sequence[StaticRoute] = ()
    ) -> None:
        self._topology = topology
        self._static: list[tuple[int, int, int]] = []
        """Switch, address and port of every static route."""
        for one in static:
            node = topology.node_named(one.switch).number
            via = topology.node_named(one.via).number
            port = next(at for at, end in enumerate(topology.ports(node)) if end.peer == via)
            address = topology.address_of(topology.node_named(one.destination).number)
            self._static.append((node, address, port))
        self._by_capacity = routing.weights == "capacity"
        self._weight: dict[int, int] = {
            link: one.weight for one in routing.link_weights for link in topology.links_named(one.link)
        }

    def _weighted(self, switch: int, ports: Sequence[int]) -> list[int]:
        """Each port once for each unit of its weight, in lowest terms."""
        if (not self._by_capacity and not self._weight) or len(ports) < 2:
            return list(ports)
        ends = [self._topology.ports(switch)[port] for port in ports]
        units = [self._weight.get(end.link, 1) * (end.rate_bps if self._by_capacity else 1) for end in ends]
        common = gcd(*units)
        return [
            port for port, unit in zip(ports, units, strict=True) for _ in range(min(unit // common, 1024))
        ]

    def _install_static(self, switch: int, result: list[Group]) -> None:
        """Static routes go before what the graph says; they know nothing of links that are down."""
        for switch_at, address, port in self._static:
            if switch_at == switch:
                prefix = address >> INDEX_BITS
                whole = result[prefix]
                if not whole.by_address:
                    count = len(self._topology.prefix_nics(prefix))
                    result[prefix] = Group([VIA_BRANCH] * count, by_address=True, branches=[whole])
                result[prefix].branch_off(address & INDEX_MASK, [port])

    def groups(self, switch: int, down: list[int]) -> list[Group]:
        out_of_use = frozenset(down)
        shared: dict[tuple[int, ...], Group] = {}
        result: list[Group] = []
        for ports in equal_cost_groups(self._topology, switch, out_of_use):
            group = shared.get(ports)
            if group is None:
                group = shared[ports] = Group(self._weighted(switch, ports), by_address=False)
            result.append(group)
        by_address: dict[int, dict[int, int]] = {}
        for address, port in local_ports(self._topology, switch, out_of_use).items():
            by_address.setdefault(address >> INDEX_BITS, {})[address & INDEX_MASK] = port
        for prefix in range(self._topology.prefixes):
            if switch in self._topology.prefix_switches(prefix):
                result[prefix] = _delivering(by_address.get(prefix, {}))
        for address, ports in host_groups(self._topology, switch, out_of_use).items():
            prefix = address >> INDEX_BITS
            if not result[prefix].by_address:
                count = len(self._topology.prefix_nics(prefix))
                whole = result[prefix]
                result[prefix] = Group([VIA_BRANCH] * count, by_address=True, branches=[whole])
            result[prefix].branch_off(address & INDEX_MASK, self._weighted(switch, ports))
        self._install_static(switch, result)
        return result


def _delivering(local: dict[int, int]) -> Group:
    """The group of a prefix that hangs on this switch: a port for each address, by its index."""
    count = max(local, default=-1) + 1
    return Group([local.get(index, -1) for index in range(count)], by_address=True)
