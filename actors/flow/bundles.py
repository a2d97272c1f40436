"""Bundles of ways: the links of many queue pairs' packets, each under a place.

What is sent on all ways of a place is added up by link at once. A large job has millions of ways, so they are
walked straight from the columns of a plan's queue pairs.
"""

from __future__ import annotations

from mypy_extensions import i32, i64, u8

from actors.flow.footprints import Footprint, Ground
from actors.kernel.vectors import append, vec
from actors.nic.queue_pair.pair_columns import PairColumns
from actors.switch.routing.walks import MOST_HOPS, Walks
from actors.wire.frame import Frame


class Amounts:
    """An amount for each directed link of a fabric."""

    def __init__(self, links: int) -> None:
        self.of_link: vec[i64] = vec[i64]([0] * links)

    def put(self, amounts: dict[int, int]) -> None:
        """Put amounts on single links."""
        for link, amount in amounts.items():
            self.of_link[link] = amount

    def add_to(self, counters: list[int]) -> None:
        """Add them to counters."""
        at: i64 = 0
        while at < len(self.of_link):
            if self.of_link[at] != 0:
                counters[at] += int(self.of_link[at])
            at += 1


class Bundle:
    """Ways that are used together, each under a place."""

    def __init__(self, walks: Walks) -> None:
        self.walks: Walks = walks
        self.hops: vec[i64] = vec[i64]()
        self.ends: vec[i64] = vec[i64]()
        """Where the hops of each path end."""
        self.places: vec[i64] = vec[i64]()

    def add(self, place: i64, nic: i64, port: i64, frame: Frame) -> i64:
        """Add the way of a frame that leaves a NIC; returns how many links it has."""
        walks = self.walks
        ports = walks.ports
        here: i64 = ports.first[nic] + port
        device: i64 = ports.peers[here]
        many: i64 = 1
        self.hops = append(self.hops, ports.links[here])
        while ports.switches[device] and many < MOST_HOPS:
            out: i64 = walks.exit(device, ports.arrivals[here], frame)
            if out < 0:
                break
            here = ports.first[device] + out
            self.hops = append(self.hops, ports.links[here])
            many += 1
            device = ports.peers[here]
        self.ends = append(self.ends, len(self.hops))
        self.places = append(self.places, place)
        return many

    def lengths(self) -> list[int]:
        """How many links each way has."""
        found: list[int] = []
        before: i64 = 0
        for end in self.ends:
            found.append(int(end - before))
            before = end
        return found

    def add_to(self, total: Amounts, amounts: list[int]) -> None:
        """Add to each link what is sent by the ways that use it, on each so much by its place."""
        each: vec[i64] = vec[i64](amounts)
        sums = total.of_link
        hop: i64 = 0
        way: i64 = 0
        while way < len(self.ends):
            amount: i64 = each[self.places[way]]
            end: i64 = self.ends[way]
            while hop < end:
                sums[self.hops[hop]] += amount
                hop += 1
            way += 1


class PairWays:
    """Where the packets of a plan's queue pairs go and their acknowledgements."""

    def __init__(
        self,
        walks: Walks,
        pairs: dict[int, PairColumns],
        addresses: dict[int, int],
        ports: dict[int, list[int]],
        opcodes: tuple[int, int],
        ack_priority: int,
    ) -> None:
        """`ports` are those of each NIC by which queue pairs send in turn; `opcodes` those of a packet and of
        an acknowledgement, whose priority is that of the queue pair if it is -1.
        """
        self.walks: Walks = walks
        self.pairs: dict[int, PairColumns] = pairs
        self.addresses: dict[int, int] = addresses
        self.ports: dict[int, list[int]] = ports
        self.data: i64 = opcodes[0]
        self.ack: i64 = opcodes[1]
        self.ack_priority: i64 = ack_priority
        self.frame: Frame = Frame(0, 0, 0, 0, 0, 0, 0, 0, 0)

    def add(
        self, there: Bundle, back: Bundle, place: i64, nic: int, first: i64, step: i64, count: i64
    ) -> int:
        """Add the ways of so many queue pairs of a NIC, from an index on and so far apart there, under places
        from one on, and of their acknowledgements; returns how many links all ways there have.
        """
        frame = self.frame
        own = self.pairs[nic]
        peer: int = -1
        other = own
        address: i64 = self.addresses[nic]
        peer_address: i64 = 0
        ports: vec[i64] = vec[i64](self.ports[nic])
        peer_ports: vec[i64] = vec[i64]()
        links: i64 = 0
        port: i64 = 0
        qpn: i64 = 0
        while count > 0:
            if int(own.remote_nics[first]) != peer:
                peer = int(own.remote_nics[first])
                other = self.pairs[peer]
                peer_address = self.addresses[peer]
                peer_ports = vec[i64](self.ports[peer])
            priority: i64 = own.priority(first)
            port = own.udp_sources[first]
            qpn = own.remote_qpns[first]
            frame.become(
                u8(self.data), u8(priority), i32(address), i32(peer_address), i32(port), i32(qpn), 0, 0, 0
            )
            links += there.add(place, nic, ports[own.turns[first] % len(ports)], frame)
            answering: i64 = own.remote_indices[first]
            priority = self.ack_priority
            if priority < 0:
                priority = other.priority(answering)
            port = other.udp_sources[answering]
            qpn = other.remote_qpns[answering]
            frame.become(
                u8(self.ack), u8(priority), i32(peer_address), i32(address), i32(port), i32(qpn), 0, 0, 0
            )
            back.add(place, peer, peer_ports[other.turns[answering] % len(peer_ports)], frame)
            first += step
            place += 1
            count -= 1
        return int(links)


class Grounds:
    """The links of a fabric, of which those are one on which all footprints put the same."""

    def __init__(self, capacities: list[int]) -> None:
        self.capacities: list[int] = capacities
        self.alike: vec[i64] = vec[i64]([0] * len(capacities))
        """By link: a number for what is on it so far; 0 for nothing."""
        self.count: i64 = 1
        self.laid: list[Laid] = []

    def lay(self, number: int, kind: int, on: Amounts) -> None:
        """A footprint has so many ways of a kind on each link."""
        self.laid.append(Laid(number, kind, on))
        known: dict[tuple[int, int], int] = {}
        at: i64 = 0
        while at < len(self.alike):
            many: i64 = on.of_link[at]
            if many != 0:
                before: i64 = self.alike[at]
                key = int(before) if before != 0 else -1 - self.capacities[at], int(many)
                found = known.get(key, 0)
                if found == 0:
                    found = int(self.count)
                    known[key] = found
                    self.count += 1
                self.alike[at] = found
            at += 1

    def found(self, footprints: int) -> tuple[list[Footprint], Ground, list[bool]]:
        """The footprint of each; the links; and which footprints share none."""
        firsts: vec[i64] = vec[i64]()
        seen: vec[i64] = vec[i64]([0] * int(self.count))
        at: i64 = 0
        while at < len(self.alike):
            alike: i64 = self.alike[at]
            if alike != 0 and seen[alike] == 0:
                seen[alike] = 1
                firsts = append(firsts, at)
            at += 1
        users: vec[i64] = vec[i64]([-1] * len(firsts))
        """By link, the footprint on it; -2 for several."""
        rows: list[list[tuple[int, int, int]]] = [[] for _ in range(footprints)]
        for one in self.laid:
            row = rows[one.number]
            at = 0
            while at < len(firsts):
                many: i64 = one.on.of_link[firsts[at]]
                if many != 0:
                    row.append((int(at), one.kind, int(many)))
                    if users[at] == -1:
                        users[at] = one.number
                    elif users[at] != one.number:
                        users[at] = -2
                at += 1
        made: list[Footprint] = []
        apart: list[bool] = []
        for row in rows:
            row.sort()
            made.append(
                Footprint([each[0] for each in row], [each[1] for each in row], [each[2] for each in row])
            )
            alone = True
            for link, _, _ in row:
                alone = alone and users[link] != -2
            apart.append(alone)
        return made, Ground([self.capacities[int(link)] for link in firsts]), apart


class Laid:
    """How many ways of a kind a footprint has on each link."""

    def __init__(self, number: int, kind: int, on: Amounts) -> None:
        self.number: int = number
        self.kind: int = kind
        self.on: Amounts = on
