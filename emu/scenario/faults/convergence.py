"""When each device's routing hears that a link went down or came back.

Both ends notice when their ports go down: at once, or after `link.down_debounce`; and that the link is back
after `link.up_debounce`. An outage that is over before no port went down is heard of by nobody. From then on:

- *All at once* (the default). The switches at the ends forward by it after `routing.local_convergence`, all
  others after `routing.convergence`.
- *Hop by hop* (`routing.bgp`). The ends forward by it after `local_convergence`, and tell their neighbours.
  Who hears at time t advertises at its next tick, t or later, of `advertisement_interval`; the neighbour
  forwards by it `hop` later. So without an interval a switch h hops from the nearer end does after

      down_debounce + local_convergence + h x hop

  and with one up to h x interval later, h x interval / 2 on average. A link between switches that keeps its
  signal and loses every frame takes no port down; its BGP session ends `hold_time` after the last keepalive,
  which is taken to be the last that could come, and what follows is the same.

NICs with several ports hear with the last of the switches. A drained switch tells its neighbours itself.

Source: RFC 4271, sections 6.5 (hold timer) and 9.2.1.1 (MinRouteAdvertisementInterval, a timer that goes on
by itself in Quagga and FRR). Not modelled: path exploration, keepalives as packets, sessions that time out
because their packets are stuck, BGP's time to come up again.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Final

from actors.fabric.model import FABRIC, Role, Topology
from actors.kernel.mixing import Stream
from emu.scenario.environment import Environment

PHASE_PURPOSE: Final = 1 << 25
"""Purpose of the random stream that draws when a switch advertises."""


class Convergence:
    """When the devices of one fabric hear of its links."""

    def __init__(self, environment: Environment, topology: Topology) -> None:
        routing = environment.routing
        self._topology = topology
        self._environment = environment
        self._local_ps = routing.own_convergence_ps
        self._others_ps = routing.convergence_ps
        self._bgp = routing.bgp
        self._switches = frozenset(topology.switches)
        self._neighbours: dict[int, list[tuple[int, int]]] = {}
        self._phases: dict[int, int] = {}

    def debounce_ps(self, link: int) -> tuple[int, int]:
        """How long a link's signal must be gone, or back, before its ports notice."""
        section = self._environment.link_at(self._topology, link)
        return section.down_debounce_ps, section.up_debounce_ps

    def silent(self, link: int) -> bool:
        """Whether somebody notices that a link loses every frame: BGP, between two switches."""
        one = self._topology.links[link]
        return self._bgp.enabled and one.a in self._switches and one.b in self._switches

    @property
    def hold_ps(self) -> int:
        """From the loss of every frame until the sessions over a link are over."""
        return self._bgp.hold_time_ps

    def heard_ps(self, link: int, at_ps: int, dead: frozenset[int], unaware: int) -> dict[int, int]:
        """By device, when it forwards by what became of a link at `at_ps`. `dead` are the links that carry no
        advertisement; `unaware` is the switch that is drained and tells the others, or -1."""
        topology = self._topology
        one = topology.links[link]
        ends = [end for end in (one.a, one.b) if end in self._switches]
        if unaware >= 0:  # it has withdrawn its links itself, and they are up
            ends = []
        if self._bgp.enabled:
            begin = dict.fromkeys(ends, at_ps + self._local_ps) if unaware < 0 else {unaware: at_ps}
            heard = self._hop_by_hop(begin, frozenset() if unaware >= 0 else dead)
        else:
            heard = {
                switch: at_ps + (self._local_ps if switch in ends else self._others_ps)
                for switch in topology.switches
            }
        last_ps = max(heard.values(), default=at_ps)
        heard = {switch: heard.get(switch, last_ps) for switch in topology.switches if switch != unaware}
        return heard | dict.fromkeys(topology.bonded_nics, last_ps)

    def _hop_by_hop(self, begin: dict[int, int], dead: frozenset[int]) -> dict[int, int]:
        """The earliest time at which each switch hears, from those that know by themselves."""
        edge = [(at_ps, switch) for switch, at_ps in sorted(begin.items())]
        heard: dict[int, int] = {}
        while edge:
            at_ps, switch = heappop(edge)
            if switch in heard:
                continue
            heard[switch] = at_ps
            arrives_ps = self._tick_ps(switch, at_ps) + self._bgp.hop_ps
            for link, peer in self._around(switch):
                if peer not in heard and link not in dead:
                    heappush(edge, (arrives_ps, peer))
        return heard

    def _tick_ps(self, switch: int, at_ps: int) -> int:
        """When a switch advertises what it hears at a time."""
        interval_ps = self._bgp.advertisement_interval_ps
        if not interval_ps:
            return at_ps
        if switch not in self._phases:
            stream = Stream(self._environment.seed, switch, PHASE_PURPOSE)
            self._phases[switch] = int(stream.below(interval_ps))
        return at_ps + (self._phases[switch] - at_ps) % interval_ps

    def _around(self, switch: int) -> list[tuple[int, int]]:
        """Links to other switches, and where they lead."""
        found = self._neighbours.get(switch)
        if found is None:
            nodes = self._topology.nodes
            found = self._neighbours[switch] = [
                (end.link, end.peer)
                for end in self._topology.ports(switch)
                if end.kind == FABRIC and nodes[end.peer].role is Role.SWITCH
            ]
        return found
