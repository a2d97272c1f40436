"""The hooks of a routing policy.

A policy is asked once for each frame that has a choice, and answers with one of the group's ports. It may
look at the frame, at the switch's ports (what waits there, when the wire is free) and at its own state, and
at nothing else: no clock, no other device, no randomness but the stream it is given. Then a run is the same
in every placement.

`ecmp` and `e_ecmp` with the hash `mix` are not policies: the switch has them written out, and pays one test
for the others.

To write one: derive from `RoutingPolicy`, name the model of its knobs in `knobs`, override `choose`, and
`save` and `load` if it keeps state. In a scenario it is `kind: my_module:MyPolicy`. An interpreted subclass
works in a compiled install. `docs/routing.md` has a worked example.
"""

from __future__ import annotations

from mypy_extensions import i64, mypyc_attr

from actors.kernel.device import Plain, Series
from actors.kernel.event import Message
from actors.kernel.mixing import Stream
from actors.kernel.vectors import append, vec
from actors.port.host_link import MessagePort
from actors.switch.egress import SwitchPort
from actors.switch.routing.groups import Group
from actors.switch.routing.hashing import FieldHash
from actors.wire.frame import Frame


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
    """Base of routing policies. `knobs` of `__init__` is the scenario's section `routing`."""

    def __init__(self, switch: SwitchView, knobs: object) -> None:
        self.switch: SwitchView = switch

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
        """The policy's counters, in a fixed order; their metrics are in `emu.measure.series.metrics`."""
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

    def choose(self, frame: Frame, group: Group, ingress: i64, now: i64) -> i64:
        return group.ports[self.switch.hash.member(frame, group.count)]
