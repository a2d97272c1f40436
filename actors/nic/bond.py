"""The bond of a NIC's ports: through which one each queue pair sends.

The ports have one address. Each queue pair has a home port (`per_qp`): those that send data are dealt over
the ports in turn, and so is each other kind by itself (those that receive data, those that carry
clear-to-sends). Dealt together they might all have one port, since connections are made of pairs of several
kinds in one order. With `first` the home of all is the first port.

When a port's link goes down, its queue pairs go on through the next port that is up, and send again what is
not acknowledged, since the NIC knows that what was on that link is lost: no timer needs to run out at this
end. The context of a queue pair is the NIC's, so neither shows in verbs. Acknowledgements leave where the
packet came in.

The other end learns of it with the switches, a convergence delay after the loss, and until then both data
towards the lost port and acknowledgements of what leaves by the other one are lost. So at that time, where
the fabric joins the planes, every queue pair between the two NICs sends again what is not acknowledged, at
both ends. When the link is back, queue pairs go home as soon as routing knows: before, what answers them
would be lost. They send again then, too: packets on the new way overtake those on the old one, and a gap is
asked for only once.

Where nothing joins the planes of a fabric, a peer that lost its port on one plane cannot be reached from
there. The NIC learns it with the switches, a convergence delay after the loss: a leaf that has no route to
the peer's address is as good as a port that is down, for queue pairs to that peer.

Source: HPN (SIGCOMM'24), section 4: dual-ToR without stacking, queue pair context shared by both ports. How
its hosts learn of a remote loss the paper does not say; that they hear what their leaves know is ours.

Not modelled: LACP, ARP and route announcements of the host.
"""

from __future__ import annotations

from mypy_extensions import i64, mypyc_attr

from actors.kernel.device import Plain
from actors.kernel.event import CONFIGURATION
from actors.kernel.state import load_fields, save_fields
from actors.nic.egress_port import NicPort
from actors.nic.queue_pair.queue_pair import ERROR, QueuePair
from actors.nic.queue_pair.requester import Requester
from actors.port.link import SETTLED, learn


@mypyc_attr(allow_interpreted_subclasses=True)
class Reach:
    """What the leaves of a NIC know of its peers."""

    def ports_to(self, addresses: list[int], down: list[int]) -> list[int]:
        """For each address the ports (a mask) whose leaf has a route there without the links `down`."""
        raise NotImplementedError

    def nics_at(self, links: list[int]) -> list[int]:
        """The addresses of the NICs that these links end at."""
        raise NotImplementedError

    def own_links(self) -> list[int]:
        """The links of the NIC's own ports, in order."""
        raise NotImplementedError


def _by_one_port(ports_to: dict[int, int], address: int) -> bool:
    """Whether one port alone leads to an address: nothing joins the planes."""
    mask: int = ports_to.get(address, 0)
    return mask != 0 and mask & (mask - 1) == 0


class Bond:
    """The ports of a NIC that has several, as routing knows them."""

    def __init__(self, nic: Requester, ports: list[NicPort], reach: Reach) -> None:
        self.nic: Requester = nic
        self.ports: list[NicPort] = ports
        self.reach: Reach = reach
        self.down: list[int] = []
        """Links that routing knows to be out of use."""
        self.settling: bool = False
        """Whether queue pairs are to be moved at the end of this instant's changes."""
        self.away: i64 = 0
        """Ports (a mask) that were down since routing last took their link back."""
        self._own_links: list[int] = reach.own_links()
        self._changed: list[int] = []
        """Links that routing took out of use or back at this instant."""
        self._homes: list[int] = []
        """By queue pair, through which port it sends as long as that is up."""
        self._ports_to: dict[int, int] = {}
        """By the address of a peer or of this NIC, while anything is down."""

    def set_homes(self, pairs: list[QueuePair], turns: list[int], *, spread: bool) -> None:
        """Give queue pairs their home ports, before they send anything, by their places in their kind."""
        for pair, turn in zip(pairs, turns, strict=True):
            home = turn % len(self.ports) if spread else 0
            self._homes.append(home)
            pair.port = home

    def converge(self) -> None:
        """Work out through which ports each peer is reached, and which of their leaves reach this NIC."""
        self._ports_to = {}
        if len(self.down) > 0:
            ends: list[int] = [int(pair.remote_address) for pair in self.nic.pairs]
            ends = list(dict.fromkeys([*ends, *[int(pair.address) for pair in self.nic.pairs[:1]]]))
            for address, ports in zip(ends, self.reach.ports_to(ends, self.down), strict=True):
                self._ports_to[address] = ports

    def route_changed(self, port: i64, subject: i64, now: i64) -> None:
        """Routing takes a link out of use or back, or the changes of this instant are in."""
        if port == SETTLED:
            self.settling = False
            before: dict[int, int] = self._ports_to
            self.converge()
            rerouted: list[int] = [
                address
                for address in self.reach.nics_at(self._changed)
                if not _by_one_port(before, address) and not _by_one_port(self._ports_to, address)
            ]
            self._changed = []
            self.move(rerouted, now)
            return
        learn(self.down, subject)
        link: int = subject >> 1
        self._changed.append(link)
        if subject & 1 and link in self._own_links and link not in self.down:
            self.away &= ~(1 << self._own_links.index(link))
        if not self.settling:
            self.settling = True
            self.nic.push_timer(now, CONFIGURATION, SETTLED, 0)

    def link_changed(self, port: i64, up: bool, now: i64) -> None:
        """The link of a port changed state, as the port sees at once."""
        if not up:
            self.away |= 1 << port
        self.move([], now)

    def move(self, rerouted: list[int], now: i64) -> None:
        """A port or a route changed: queue pairs that belong elsewhere move, the others keep their turn.

        `rerouted` has the addresses of NICs to which the fabric sends by other ports from now on. Queue pairs
        with such a NIC at either end send again what is not acknowledged, as those that move do.
        """
        nic = self.nic
        ports = self.ports
        left: i64 = 0
        for pair in nic.pairs:
            port: i64 = self._best(pair)
            if port != pair.port:
                left |= 1 << pair.port
        if left == 0 and len(rerouted) == 0:
            return
        waiting = [pair for pair in nic.pairs if pair.active and (left >> pair.port) & 1]
        number: i64 = 0
        while number < len(ports):
            if (left >> number) & 1:
                ports[number].drain_round()
            number += 1
        for pair in nic.pairs:
            before: i64 = pair.port
            pair.port = self._best(pair)
            if pair.state == ERROR:
                continue
            moved: bool = pair.port != before
            if moved and (not ports[before].up or not self._leads(pair, before)):
                nic.bond_failovers += 1
            again: bool = moved or pair.remote_address in rerouted or pair.address in rerouted
            if again and pair.una_psn < pair.high_psn:
                nic.send_again(pair, now)
                if pair.has_packets():
                    nic.activate(pair, now)
        for pair in waiting:
            if pair.has_packets():
                nic.activate(pair, now)

    def _leads(self, pair: QueuePair, port: i64) -> bool:
        """Whether a queue pair's peer is reached through a port, as far as routing knows: a port may go down
        at the very instant of a change that is not worked out yet."""
        if len(self.down) == 0 or len(self._ports_to) == 0:
            return True
        return (self._ports_to[pair.remote_address] >> port) & 1 == 1

    def _best(self, pair: QueuePair) -> i64:
        """From the home port on, the first that routing knows and leads to the peer; else that is up; else
        home."""
        ports = self.ports
        count: i64 = len(ports)
        home: i64 = self._homes[pair.index]
        best: i64 = home
        step: i64 = count - 1
        while step >= 0:
            number: i64 = (home + step) % count
            if ports[number].up:
                best = number
            step -= 1
        step = 0
        while step < count:
            number = (home + step) % count
            if ports[number].up and (self.away >> number) & 1 == 0 and self._leads(pair, number):
                return number
            step += 1
        return best

    def save(self) -> list[Plain]:
        """What routing knows, and which ports it has not taken back."""
        return save_fields(self, ("away", "down"))

    def load(self, state: list[Plain]) -> None:
        """Take the state that `save` of an equally built bond returned."""
        load_fields(self, ("away", "down"), state)
        self.converge()
