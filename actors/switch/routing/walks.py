"""The ways of packets through a fabric, by the hashes of its switches.

A walk asks every switch for the port that it gives a packet, as the switch itself would, with every link up.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from actors.kernel.vectors import vec
from actors.switch.routing.hashing import FieldHash, choose, flow_hash
from actors.switch.routing.policy import INDEX_MASK, VIA_BRANCH, Group, Routes
from actors.wire.frame import Frame

_INDEX_BITS: Final[i64] = 10
MOST_HOPS: Final[i64] = 64


class PortTable:
    """Ports of all devices, by number: those of one device stand side by side."""

    def __init__(
        self, first: list[int], peers: list[int], arrivals: list[int], links: list[int], switches: list[bool]
    ) -> None:
        self.first: vec[i64] = vec[i64](first)
        """By device: the number of its first port."""
        self.peers: vec[i64] = vec[i64](peers)
        self.arrivals: vec[i64] = vec[i64](arrivals)
        """The peer's port there."""
        self.links: vec[i64] = vec[i64](links)
        """Directed links."""
        self.switches: list[bool] = switches
        """By device."""


class Walks:
    """Ways on one fabric. `policy` is that of `flow_hash`; -1: `hashes` has every switch's."""

    def __init__(
        self, ports: PortTable, routes: Routes, policy: int, seeds: list[int], hashes: dict[int, FieldHash]
    ) -> None:
        self.ports: PortTable = ports
        self.routes: Routes = routes
        self.policy: i64 = policy
        self.seeds: vec[i64] = vec[i64](seeds)
        """By device."""
        self.hashes: dict[int, FieldHash] = hashes
        self.groups: list[list[Group] | None] = [None] * len(ports.switches)

    def walk(self, nic: int, port: int, frame: Frame) -> list[int]:
        """The numbers of the ports by which packets leave the devices on their way, from the NIC on.

        The last one leads to their destination, unless a switch has no route.
        """
        ports = self.ports
        here: i64 = ports.first[nic] + port
        found: list[int] = [int(here)]
        device: i64 = ports.peers[here]
        while ports.switches[device] and len(found) < MOST_HOPS:
            out: i64 = self.exit(device, ports.arrivals[here], frame)
            if out < 0:
                break
            here = ports.first[device] + out
            found.append(int(here))
            device = ports.peers[here]
        return found

    def members(self, switch: int, address: int) -> list[int]:
        """The ports among which a switch chooses for an address, each once for each unit of its weight."""
        group = self._group(switch, address)
        if not group.by_address:
            return [int(port) for port in group.ports]
        index: i64 = address & int(INDEX_MASK)
        port: i64 = group.ports[index] if index < group.count else -1
        return [int(port)] if port >= 0 else []

    def _group(self, switch: i64, address: i64) -> Group:
        """What a switch has for an address: a group by choice, or one by address that has a port for it."""
        groups = self.groups[switch]
        if groups is None:
            groups = self.groups[switch] = self.routes.groups(int(switch), [])
        group = groups[address >> _INDEX_BITS]
        if group.by_address:
            index: i64 = address & INDEX_MASK
            at: i64 = group.ports[index] if index < group.count else -1
            if at <= VIA_BRANCH:
                return group.branches[VIA_BRANCH - at]
        return group

    def exit(self, switch: i64, arrival: i64, frame: Frame) -> i64:
        """The port by which a switch sends a frame on; -1 where it has no route."""
        address: int = frame.dst
        group = self._group(switch, address)
        if group.by_address:
            index: i64 = address & INDEX_MASK
            return group.ports[index] if index < group.count else -1
        if group.count < 2:
            return group.ports[0] if group.count > 0 else -1
        if self.policy >= 0:
            return group.ports[choose(flow_hash(frame, self.policy, self.seeds[switch]), group.count)]
        frame.whence = int(arrival << 3)
        return group.ports[self.hashes[int(switch)].member(frame, group.count)]
