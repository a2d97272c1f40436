"""Paths of queue pairs, and what was sent on every link.

A queue pair has the number, the UDP source port and so the hashes that it has at packet level, so its packets
take the same links there; its acknowledgements go back by hashes of their own. Where every packet gets a port
of its own (`spray`, `adaptive` by packet) a queue pair takes all equal paths at once: of equal ports the same
share, or, where the load chooses, what their rates are. A queue pair of a transport with paths sends the same
by every port of its NIC, and there over all equal paths: what one of its own cannot take goes by another.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from actors.fabric.model import Topology
from actors.flow.bundles import PairWays
from actors.flow.filling import UNIT
from actors.flow.progress import Strand
from actors.gpu.nvlink import SHARE
from actors.kernel.units import serialisation_ps
from actors.ncclx.transport.wiring import PlannedPairs
from actors.wire.frame import ACKNOWLEDGE, WRITE_MIDDLE, Frame, pathed_size, wire_size
from emu.devices.buffer_sizes import is_deep
from emu.devices.hashed_paths import HashedPaths
from emu.devices.nics import acknowledged_every, path_mtu_bytes
from emu.devices.plan import Plan
from emu.flow.messages import Ends, Load, directed
from emu.scenario.schema import Scenario
from emu.scenario.sections.routing import RoutingSection

_INDEX_BITS: Final = 24
"""A pair's number is its NIC's, above so many bits of its index there: a NIC has fewer than 2^24 pairs."""
CONTROL: Final = 1 << 56
"""In the number of a pair whose messages a strand of acknowledgements stands for: clear-to-sends."""
SPREADING: Final = ("spray", "adaptive")
"""Policies that give every packet a port of its own."""


def is_spread(routing: RoutingSection) -> bool:
    """Whether each packet of a queue pair gets a port of its own."""
    return routing.kind in SPREADING and routing.by_packet


class Path(NamedTuple):
    """The share of packets that take one path, in units of 2^-20, and its links."""

    share: int
    links: tuple[int, ...]


Paths = tuple[Path, ...]
"""Where packets go: one path by hashes, all equal ones where packets are sprayed."""


class Way:
    """Where the packets of one queue pair go, and their acknowledgements."""

    __slots__ = ("back", "ends", "line_kbps", "pair", "ports", "there")

    def __init__(self, pair: int, ends: Ends, there: Paths, back: Paths, line_kbps: int) -> None:
        self.pair = pair
        """Its number in strands; -1 where no path ever changes."""
        self.ends = ends
        """The links of the first path; others are as long."""
        self.there = there
        self.back = back
        self.line_kbps = line_kbps
        """What it takes at most, if nobody else sends."""
        self.ports = len({path.links[0] for path in there})
        """Of its NIC, by which it sends."""

    @property
    def ports_kbps(self) -> int:
        """Their rate."""
        return self.ports * (self.ends[0][1].rate_bps // 1000)

    def whole_ps(self, load: Load, packet_bytes: int) -> int:
        """How long the port that has most of several is busy: packets are whole."""
        if self.ports == 1:
            return 0
        packets = -(-load.wire_bytes // packet_bytes)
        return serialisation_ps(-(-packets // self.ports) * packet_bytes, self.ends[0][1].rate_bps)


def strands_of(paths: Paths, share: int, kind: int, pair: int) -> list[Strand]:
    """A share of a transfer's rate on these paths."""
    parts = parted(share, paths)
    return [
        Strand(max(part, 1), path.links, kind, pair) for part, path in zip(parts, paths, strict=True) if share
    ]


def parted(amount: int, paths: Paths) -> list[int]:
    """What each path takes of it."""
    found: list[int] = []
    before = 0
    for path in paths:
        after = before + path.share
        found.append(amount * after // UNIT - amount * before // UNIT)
        before = after
    return found


class FlowFabric:
    """The queue pairs of a plan on its fabric, and the links' counters."""

    def __init__(self, scenario: Scenario, topology: Topology, plan: Plan) -> None:
        self.topology = topology
        self.payload_bytes = [0] * (2 * len(topology.links))
        """By directed link."""
        self.wire_bytes = [0] * (2 * len(topology.links))
        self._scenario = scenario
        self.inside = plan.inside
        """Pairs of GPUs over NVLink."""
        self._pairs = plan.pairs
        self.paths = HashedPaths(scenario, topology)
        """Where switches lead packets now."""
        self._changes = bool(scenario.faults)
        """Whether that may change."""
        self.rates_bps = [link.rate_bps for link in topology.links for _ in (0, 1)]
        """By directed link."""
        self.slowness: dict[int, int] = {}
        """How long computing takes on a GPU, in thousandths of the usual time."""
        self.credit_ps = {
            switch: scenario.switch.deep_buffer.credit_delay_ps
            for switch in topology.switches
            if is_deep(scenario, topology, switch)
        }
        """The time that a report or a grant takes in a modular switch."""
        self.epoch = 0
        """Raised whenever something of this changes."""
        self._ways: dict[tuple[int, int], Way] = {}
        self._mtus: dict[tuple[int, int], int] = {}
        transport = scenario.transport
        self.ack_every = transport.ack_every
        self.max_reads = transport.max_rd_atomic
        self._ack_priority = transport.ack_priority
        self.pathed = not transport.is_rc
        """Whether a queue pair sends by all ports of its NIC."""
        self.spread = scenario.routing.kind if is_spread(scenario.routing) else ""
        """The policy that gives every packet a port of its own, if one does."""

    def nvlink_shares(self, shares: tuple[int, int]) -> list[int]:
        """How long a transfer has its two NVLinks, by what it takes of each, in units of 2^-16."""
        efficiency = self._scenario.host.nvlink.nvls_share
        return [share * int(SHARE) // efficiency if share else int(SHARE) for share in shares]

    def way(self, nic: int, index: int) -> Way:
        """The route of a queue pair of a NIC."""
        found = self._ways.get((nic, index))
        if found is None:
            found = self._ways[nic, index] = self._way(nic, index)
        return found

    def way_of(self, pair: int) -> Way:
        """That of the number in strands."""
        return self.way((pair & ~CONTROL) >> _INDEX_BITS, pair & (1 << _INDEX_BITS) - 1)

    def _way(self, nic: int, index: int) -> Way:
        packet, ack = (*self.packet(nic, index), nic), self.acknowledgement(nic, index)
        ends, there = self._paths_of(*packet)
        _, back = self._paths_of(*ack)
        pair = nic << _INDEX_BITS | index if self._changes else -1
        return Way(pair, ends, there, back, self._line_kbps(there))

    def _paths_of(self, frame: Frame, port: int, nic: int) -> tuple[Ends, Paths]:
        """The first path of a packet that leaves a NIC by a port, and all of them."""
        topology = self.topology
        found = self._spread(frame, port, nic)
        return found[0][1], tuple(Path(share, directed(topology, ends)) for share, ends in found)

    def _spread(self, frame: Frame, port: int, nic: int) -> list[tuple[int, Ends]]:
        """Every path of such a packet, with its share of them."""
        by_rate = self.spread == "adaptive"
        if self.pathed:
            return list(self.paths.over_ports(frame, nic, by_rate=by_rate))
        if not self.spread:
            return [(UNIT, self.paths.ends_of(frame, port, nic))]
        return list(self.paths.spread(frame, port, nic, by_rate=by_rate))

    def every_path(self, frame: Frame, port: int, nic: int) -> list[Ends]:
        """The paths that a packet may take which leaves a NIC by a port."""
        return [ends for _, ends in self._spread(frame, port, nic)]

    # ---- what faults change

    def route(self, switch: int, avoided: Iterable[int]) -> None:
        """A switch forwards without these links from now on."""
        self.paths.walks.groups[switch] = self.paths.walks.routes.groups(switch, sorted(avoided))
        self._changed()

    def set_rate(self, link: int, rate_bps: int) -> None:
        """A directed link has another rate from now on."""
        self.rates_bps[link] = rate_bps
        self._changed()

    def slow(self, gpu: int, thousandths: int) -> None:
        """A GPU takes so many thousandths of the usual time from now on."""
        self.slowness[gpu] = thousandths
        self._changed()

    def _changed(self) -> None:
        self.epoch += 1
        self._ways.clear()

    def _line_kbps(self, paths: Paths) -> int:
        shares: dict[int, int] = {}
        for path in paths:
            for link in path.links:
                shares[link] = shares.get(link, 0) + path.share
        return min(self.rates_bps[link] // 1000 * UNIT // share for link, share in shares.items())

    def pair_ways(self) -> PairWays:
        """What walks the ways of a whole plan's queue pairs, many at a time."""
        paths, acks = self.paths, self._ack_priority
        columns = {
            nic: pairs.columns for nic, pairs in self._pairs.items() if isinstance(pairs, PlannedPairs)
        }
        opcodes = int(WRITE_MIDDLE), int(ACKNOWLEDGE)
        return PairWays(
            paths.walks, columns, paths.addresses, paths.turning, opcodes, -1 if acks is None else acks
        )

    def packet(self, nic: int, index: int) -> tuple[Frame, int]:
        """A data packet of a queue pair of a NIC, and the port by which it leaves."""
        pair = self._pairs[nic][index]
        frame = self.paths.frame(
            nic, pair.remote_nic, pair.udp_source, pair.remote_qpn, pair.priority, int(WRITE_MIDDLE)
        )
        return frame, self.paths.port_of(nic, pair.turn)

    def acknowledgement(self, nic: int, index: int) -> tuple[Frame, int, int]:
        """One that comes back to a queue pair, the port by which it leaves the peer, and the peer."""
        pair = self._pairs[nic][index]
        other = self._pairs[pair.remote_nic][pair.remote_index]
        priority = other.priority if self._ack_priority is None else self._ack_priority
        frame = self.paths.frame(
            other.nic, nic, other.udp_source, other.remote_qpn, priority, int(ACKNOWLEDGE)
        )
        return frame, self.paths.port_of(other.nic, other.turn), other.nic

    def packet_bytes(self, payload_bytes: int) -> int:
        """A data packet on the wire."""
        return int((pathed_size if self.pathed else wire_size)(int(WRITE_MIDDLE), payload_bytes))

    def reported_ps(self, ends: Ends) -> int:
        """By how much later all of several packets crosses modular switches than one: what came while the
        report of the first was under way is reported after it.
        """
        return sum(self.credit_ps.get(end.peer, 0) for _, end in ends) if self.credit_ps else 0

    def mtu_bytes(self, nic: int, peer: int) -> int:
        """The MTU of the queue pairs between two NICs."""
        return path_mtu_bytes(self._scenario, self.topology, nic, peer)

    def acknowledged_every(self, peer: int) -> int:
        """How many packets a NIC acknowledges at a time."""
        return acknowledged_every(self._scenario, self.topology, peer)

    def count(self, way: Way, load: Load) -> None:
        """Messages were sent."""
        payload, wire = parted(load.payload_bytes, way.there), parted(load.wire_bytes, way.there)
        for path, payload_bytes, wire_bytes in zip(way.there, payload, wire, strict=True):
            for link in path.links:
                self.payload_bytes[link] += payload_bytes
                self.wire_bytes[link] += wire_bytes
        for path, ack_bytes in zip(way.back, parted(load.ack_bytes, way.back), strict=True):
            for link in path.links:
                self.wire_bytes[link] += ack_bytes
