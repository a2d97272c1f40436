"""The hooks of a routing policy, the equal-cost groups it chooses from, hashing and path pinning.

A *group* holds the egress ports on shortest paths to a prefix. A weighted group names a port once for each
unit of its weight, as the member tables of switching chips do, so that every policy that chooses evenly among
members is weighted by it.

A policy is asked once for each frame that has a choice, and answers with one of the group's ports. It may
look at the frame, at the switch's ports (what waits there, when the wire is free) and at its own state, and
at nothing else: no clock, no other device, no randomness but the stream it is given. Then a run is the same
in every placement.

`ecmp` and `e_ecmp` with the hash `mix` are not policies: the switch has them written out, and pays one test
for the others.

To write one: derive from `RoutingPolicy`, list its knobs in `knobs`, override `choose`, and
`save` and `load` if it keeps state. In a scenario it is `kind: my_module:MyPolicy`. An interpreted subclass
works in a compiled install. `docs/routing.md` has a worked example.

Path pinning: the destination decides the path. With `path_pinning`: a destination's *slice* is its index
among the NICs of its prefix - the downlink of its leaf - and the slice chooses the member, whatever the flow.
A rack that is wholly in one job then loads every uplink alike; one whose hosts are half idle leaves half of
the uplinks idle. Where the pinned member is gone (its link is down) the frame goes by hash over those that
are left, and meets what is pinned there.

Source: RDMA over Ethernet for Distributed AI Training at Meta Scale (SIGCOMM 2024), section 3.2.
"""

from __future__ import annotations

from typing import ClassVar, Final

from mypy_extensions import i64, mypyc_attr

from actors.kernel.device import Plain, Series
from actors.kernel.event import Message
from actors.kernel.knobs import Knob, Knobs
from actors.kernel.mixing import Stream
from actors.kernel.vectors import append, vec
from actors.port.link import MessagePort
from actors.switch.egress import SwitchPort
from actors.switch.routing.hashing import FieldHash
from actors.wire.frame import Frame

PREFIX_SHIFT: Final[i64] = 10
INDEX_MASK: Final[i64] = 0x3FF

VIA_BRANCH: Final[i64] = -2
"""In a group by address: -2 - b sends the address to branch b. -1 is no route."""


class Group:
    """The next hops towards one prefix.

    By choice: any of `ports`. By address (the prefix hangs here, or some of its addresses go their own ways):
    `ports` is indexed by the address's last bits and holds a port, -1, or where to look among `branches`,
    which are groups by choice.
    """

    __slots__ = ("branches", "by_address", "count", "ports")

    def __init__(self, ports: list[int], by_address: bool, branches: list[Group] | None = None) -> None:
        self.ports: vec[i64] = vec[i64](ports)
        self.count: i64 = len(ports)
        self.by_address: bool = by_address
        self.branches: list[Group] = branches or []

    def branch_off(self, index: i64, ports: list[int]) -> None:
        """Send one address by ports of its own, any of them; none is no route."""
        while self.count <= index:
            self.ports = append(self.ports, -1)
            self.count += 1
        self.ports[index] = VIA_BRANCH - len(self.branches)
        self.branches.append(Group(ports, by_address=False))

    def holds(self, port: i64) -> bool:
        """Whether a port is a member of this group by choice."""
        at: i64 = 0
        while at < self.count:
            if self.ports[at] == port:
                return True
            at += 1
        return False


@mypyc_attr(allow_interpreted_subclasses=True)
class Routes:
    """Where a switch's groups come from: computed from the graph and the links that are down."""

    def groups(self, switch: int, down: list[int]) -> list[Group]:
        """The group of every prefix, in their order, with the links numbered in `down` out of use."""
        raise NotImplementedError


class SwitchView:
    """What a policy sees of its switch."""

    def __init__(self, number: int, tier: int, field_hash: FieldHash, stream: Stream) -> None:
        self.number: i64 = number
        """The device's number."""
        self.tier: i64 = tier
        """1 for a leaf, 2 for a spine, ..."""
        self.hash: FieldHash = field_hash
        """The hash as the scenario's knobs have it."""
        self.stream: Stream = stream
        """Random numbers of this switch's routing."""
        self.ports: vec[SwitchPort] = vec[SwitchPort]()
        """The switch's ports, in order."""
        self.management: MessagePort | None = None
        """Towards the controller, where the policy's knobs say `controlled`."""

    def add_port(self, port: SwitchPort) -> None:
        """The next port in the order of their numbers."""
        self.ports = append(self.ports, port)


@mypyc_attr(allow_interpreted_subclasses=True)
class RoutingPolicy:
    """Base of routing policies. `knobs` of `__init__` has the values of the scenario's section `routing`."""

    knobs: ClassVar[tuple[Knob, ...]] = ()
    controlled: ClassVar[bool] = False
    """Whether switches are on the management network."""

    def __init__(self, switch: SwitchView, knobs: object) -> None:
        self.switch: SwitchView = switch
        self.by_flow: bool = False
        """Whether nothing but addresses, UDP ports, queue pair and the port by which a packet came choose, as
        long as groups stand."""

    @staticmethod
    def by_packet(knobs: Knobs) -> bool:
        """Whether packets of one flow may overtake each other on a fabric where nothing changes."""
        del knobs
        return False

    def choose(self, frame: Frame, group: Group, ingress: i64, now: i64) -> i64:
        """The port by which the frame leaves: one of `group.ports`, of which there are two or more.

        `ingress` is the port by which it came, `now` the time in ps.
        """
        raise NotImplementedError

    def live(self, group: Group, at: i64) -> i64:
        """The port of member `at`, or of the next one that is up; where none is, the port of `at`."""
        count: i64 = group.count
        step: i64 = 0
        while step < count:
            number: i64 = group.ports[(at + step) % count]
            if self.switch.ports[number].up:
                return number
            step += 1
        return group.ports[at]

    def groups_changed(self, groups: list[Group]) -> None:
        """Groups were computed, one for each prefix: at first, and after each change of a link."""

    def link_changed(self, port: i64, up: bool) -> None:
        """A link of this switch went down or came back; groups follow when routing has converged."""

    def admits(self, message: Message) -> bool:
        """Whether a message that another worker sent names only what there is at this switch."""
        return True

    def on_message(self, message: Message, now: i64) -> None:
        """The controller sent something over the management network."""
        raise AssertionError(f"switch {self.switch.number} takes no messages: op {message.op} at {now}")

    def series(self) -> list[Series]:
        """The policy's counters, in a fixed order; their metrics are in `emu.results.metrics`."""
        return []

    def counters(self) -> list[int]:
        """The value of each counter of `series`, now."""
        return []

    def save(self) -> list[Plain]:
        """The policy's state."""
        return [self.switch.stream.counter]

    def load(self, state: list[Plain]) -> None:
        """Take the state that `save` of an equally built policy returned."""
        counter = state[0]
        assert isinstance(counter, int), counter
        self.switch.stream.counter = counter


class HashedRouting(RoutingPolicy):
    """The hash, as the knobs have it."""

    def __init__(self, switch: SwitchView, knobs: object) -> None:
        super().__init__(switch, knobs)
        self.by_flow = (
            type(self) is HashedRouting and switch.hash.by_flow
        )  # one of its own may choose otherwise

    def choose(self, frame: Frame, group: Group, ingress: i64, now: i64) -> i64:
        return group.ports[self.switch.hash.member(frame, group.count)]


class PathPinning(RoutingPolicy):
    """By destination slice over the group as it is with every link up."""

    def __init__(self, switch: SwitchView, knobs: object) -> None:
        super().__init__(switch, knobs)
        self._whole: list[Group] = []
        self.by_flow = type(self) is PathPinning and switch.hash.by_flow

    def groups_changed(self, groups: list[Group]) -> None:
        if not self._whole:
            self._whole = groups

    def choose(self, frame: Frame, group: Group, ingress: i64, now: i64) -> i64:
        dst: int = frame.dst
        whole = self._whole[dst >> PREFIX_SHIFT]
        if whole.count > 0 and not whole.by_address:
            pinned: i64 = whole.ports[(dst & INDEX_MASK) % whole.count]
            if group is whole or group.holds(pinned):
                return pinned
        return group.ports[self.switch.hash.member(frame, group.count)]
