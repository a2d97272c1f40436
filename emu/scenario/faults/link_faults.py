"""The kinds of fault that hit links and ports."""

from collections.abc import Iterator
from fractions import Fraction
from typing import Annotated, Final, Literal

from actors.fabric.model import Fault, Topology, TopologyError
from actors.wire.fault import DEAF, DELAY, ERRORS, RATE, STORM
from emu.base.records import Field, RefusedError
from emu.base.spelling import shown
from emu.base.units import FRACTION_ACCEPTED, format_rate, parse_fraction
from emu.scenario.environment import Environment
from emu.scenario.faults.base import (
    FaultSection,
    Objection,
    RecurringFault,
    Strike,
    TargetName,
    at_ports,
    at_receivers,
    at_senders,
    held,
    links_at,
)
from emu.scenario.faults.targets import Spot
from emu.scenario.section import Refusal
from emu.scenario.sections.link import ErrorRate
from emu.scenario.yaml.values import LinkName, NodeName, PositiveTimePs, Priority, RateBps, Reading, TimePs

CHANCE_BITS: Final = 48
"""A probability is a fixed-point number with this many fractional bits."""


def _read_share(value: object) -> Fraction:
    share = parse_fraction(value)
    if not 0 < share <= 1:
        raise RefusedError(f"{shown(value)} is out of range", "a fraction above 0 and up to 1")
    return share


Share = Annotated[
    Fraction,
    Reading(
        _read_share,
        lambda share: f"{share.numerator}/{share.denominator}",
        FRACTION_ACCEPTED,
        {"anyOf": [{"type": "string", "pattern": r"^[0-9]+\s*/\s*[0-9]+$"}, {"type": "number"}]},
        "fraction",
    ),
]


class LinkDown(RecurringFault):
    """A link loses its signal in both directions; frames in flight are lost."""

    effect = "what crosses it stands still for as long as it is down, at most a retransmission timeout longer"
    kind: Literal["link_down"] = "link_down"
    """Both directions stop."""

    def strike(self, spot: Spot, topology: Topology, environment: Environment) -> Strike:
        """Both ends of each link."""
        return Strike(held(topology, spot.links), spot.links, spot.links)


class LinkUp(FaultSection):
    """A link comes back, whatever took it down."""

    repairs = True
    effect = "what crosses the link goes on"
    kind: Literal["link_up"] = "link_up"
    """Both directions carry frames again."""
    target: TargetName
    """The link, by its two ends: "rtsw-0:ctsw-3"; or a pattern, or a role."""

    def strike(self, spot: Spot, topology: Topology, environment: Environment) -> Strike:
        """Both ends of each link."""
        return Strike(held(topology, spot.links), (), spot.links)


class LinkFlap(RecurringFault):
    """A link that comes and goes, as with a dirty optic."""

    effect = "each time down costs its length, and up to a retransmission timeout"
    kind: Literal["link_flap"] = "link_flap"
    """Down and up in turn."""
    down_ps: PositiveTimePs
    """Time down in each flap."""
    up_ps: PositiveTimePs
    """Time up in each flap."""
    flaps: Annotated[int, Field(ge=1, le=65536)]
    """Number of flaps."""

    def times_ps(self, end_ps: int) -> Iterator[tuple[int, int]]:
        """Each time it is down."""
        for number in range(self.flaps):
            begin_ps = self.at_ps + number * (self.down_ps + self.up_ps)
            yield begin_ps, self.cut_ps(begin_ps + self.down_ps)

    def strike(self, spot: Spot, topology: Topology, environment: Environment) -> Strike:
        """Both ends of each link."""
        return Strike(held(topology, spot.links), spot.links, spot.links)

    def check(self) -> Iterator[Refusal]:
        """Its times are its own."""
        yield from self.check_until()
        for key, value in (("for", self.for_ps), ("every", self.every_ps), ("count", self.count)):
            if value is not None:
                yield Refusal((key,), "is not for a flap", "down, up and flaps")


class OneWayFault(RecurringFault):
    """A fault of links that may hit one direction only."""

    sender: NodeName | None = None
    """The end whose frames it hits. Default: both."""

    def objections(self, spot: Spot, topology: Topology, environment: Environment) -> Iterator[Objection]:
        """The sender is an end of the link."""
        for number in spot.links:
            link = topology.links[number]
            ends = [topology.nodes[node].name for node in (link.a, link.b)]
            if self.sender is not None and self.sender not in ends:
                yield Objection("sender", f"{self.sender} is no end of {link.name}", " or ".join(ends))


class Degrade(OneWayFault):
    """A link that is slower than it should be, or spoils what it carries."""

    effect = "a flow takes rate / degraded rate times as long; of frames the share `loss` is lost"
    kind: Literal["degrade"] = "degrade"
    """Rate, loss, bit errors; in one direction or both."""
    rate_bps: RateBps | None = None
    """It sends at this rate, from the next frame on."""
    loss: Share | None = None
    """The share of frames that arrive with a wrong FCS, whatever their size."""
    bit_errors: ErrorRate | None = None
    """Errors per bit, on top of `link.bit_error_rate`."""

    @property
    def loses_all(self) -> bool:
        """Whether a link carries nothing and keeps its signal."""
        return self.loss == 1

    def strike(self, spot: Spot, topology: Topology, environment: Environment) -> Strike:
        """The sending end for the rate, the receiving end for what is spoilt."""
        changes = []
        if self.rate_bps is not None:
            changes += at_senders(int(RATE), topology, spot.links, self.sender, (self.rate_bps, 0, 0))
        per_bit = int((self.bit_errors or 0) * (1 << CHANCE_BITS))
        per_frame = int((self.loss or 0) * (1 << CHANCE_BITS))
        if per_bit or per_frame:
            values = (per_bit, per_frame, environment.seed & (1 << 62) - 1)
            changes += at_receivers(int(ERRORS), topology, spot.links, self.sender, values)
        silent = spot.links if self.loss == 1 else ()
        return Strike(changes, (), silent, silent)

    def check(self) -> Iterator[Refusal]:
        """Refuse what changes nothing."""
        yield from super().check()
        if self.rate_bps is None and self.loss is None and self.bit_errors is None:
            yield Refusal((), "degrades nothing", "rate, loss or bit_errors")

    def objections(self, spot: Spot, topology: Topology, environment: Environment) -> Iterator[Objection]:
        """No link becomes faster: windows of virtual time rest on that."""
        yield from super().objections(spot, topology, environment)
        for number in spot.links:
            link = topology.links[number]
            if self.rate_bps is not None and self.rate_bps > link.rate_bps:
                rate = format_rate(link.rate_bps)
                yield Objection("rate", f"{link.name} has {rate}", f"at most {rate}")


class Delay(OneWayFault):
    """A link that takes longer than it should."""

    effect = "`added` more each way, for every frame"
    kind: Literal["delay"] = "delay"
    """Added delay, and jitter; in one direction or both. Frames keep their order."""
    added_ps: TimePs = 0
    """On top of the link's own delay, for frames and pauses."""
    jitter_ps: TimePs = 0
    """Further delay of each frame, drawn evenly from 0 to this."""

    def strike(self, spot: Spot, topology: Topology, environment: Environment) -> Strike:
        """The sending ends."""
        values = (self.added_ps, self.jitter_ps, environment.seed & (1 << 62) - 1)
        return Strike(at_senders(int(DELAY), topology, spot.links, self.sender, values))

    def check(self) -> Iterator[Refusal]:
        """Refuse what changes nothing."""
        yield from super().check()
        if self.added_ps == 0 and self.jitter_ps == 0:
            yield Refusal((), "adds nothing", "added or jitter")


class PortFault(RecurringFault):
    """A fault of one port, or of all ports of a NIC or switch."""

    target_kind = "port"
    target: TargetName
    """The port: "rtsw-0/3" by number, "rtsw-0>ctsw-3" by its peer; a device's name for all its ports."""


class PortDown(PortFault):
    """A port of a switch is shut; its peer loses the signal too."""

    effect = "as link_down"
    kind: Literal["port_down"] = "port_down"
    """The link behind it is down."""

    def strike(self, spot: Spot, topology: Topology, environment: Environment) -> Strike:
        """Both ends of the link behind it."""
        links = links_at(topology, spot.node, spot.ports)
        return Strike(held(topology, links), links, links)


class PfcFault(PortFault):
    """A fault of priority flow control."""

    def objections(self, spot: Spot, topology: Topology, environment: Environment) -> Iterator[Objection]:
        """There is flow control to break."""
        if environment.credited or not environment.at(topology, spot.node).switch.pfc.enabled:
            yield Objection("kind", "there is no PFC to break", "switch.pfc.enabled: true")


class PauseStorm(PfcFault):
    """A port tells its peer to stop and never takes it back: stuck XOFF."""

    effect = "what crosses the port stands still for as long"
    kind: Literal["pause_storm"] = "pause_storm"
    """Pauses are refreshed until it ends."""
    priorities: Annotated[tuple[Priority, ...], Field(max_length=8)] = ()
    """The classes. Default: those of `switch.pfc.priorities`."""

    def strike(self, spot: Spot, topology: Topology, environment: Environment) -> Strike:
        """The ports that storm."""
        own = environment.at(topology, spot.node).switch
        mask = sum(1 << one for one in dict.fromkeys(self.priorities or own.pfc.priorities))
        return Strike(at_ports(int(STORM), spot.node, spot.ports, (mask, 0, 0)))


class PauseLoss(PfcFault):
    """Pauses that arrive at a port are lost: its peer cannot stop it."""

    effect = "the peer overruns the headroom of a congested port"
    kind: Literal["pause_loss"] = "pause_loss"
    """XOFF and XON alike; what was heard before lapses by itself."""

    def strike(self, spot: Spot, topology: Topology, environment: Environment) -> Strike:
        """The ports that do not hear."""
        return Strike(at_ports(int(DEAF), spot.node, spot.ports, (0, 0, 0)))


class Miscabling(FaultSection):
    """Two cables are swapped at one end, from the start."""

    effect = "traffic takes the cables as they are plugged"
    kind: Literal["miscabling"] = "miscabling"
    """The second ends of two links change places; routing follows the cables, addresses too."""
    target: LinkName
    """The first link, as it was meant to be: "rtsw-0:ctsw-3"."""
    swapped_with: LinkName
    """The other link."""

    def times_ps(self, end_ps: int) -> Iterator[tuple[int, int]]:
        """It is so before time begins."""
        yield from ()

    def strike(self, spot: Spot, topology: Topology, environment: Environment) -> Strike:
        """Nothing happens: the fabric is built so."""
        return Strike([])

    def check(self) -> Iterator[Refusal]:
        """Refuse a time."""
        if self.at_ps:
            yield Refusal(("at",), "cables are swapped from the start, never while a run goes on", "no `at`")

    def swapped_links(self, topology: Topology) -> tuple[int, int]:
        """The two links by number. Raises TopologyError."""
        found = []
        for name in (self.target, self.swapped_with):
            numbers = topology.links_named(name)
            if len(numbers) > 1:
                raise TopologyError([Fault((), f"{name!r} is {len(numbers)} links", f"one, like {name}/0")])
            found.append(numbers[0])
        return found[0], found[1]
