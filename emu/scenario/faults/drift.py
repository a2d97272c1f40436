"""The kinds of fault that are drifts: a device configured differently from what was meant.

A drift is what an upgrade, a template or a hand leaves behind on some switches. It takes effect on the next
frame, and ends with `for`, or not at all.
"""

from collections.abc import Iterator
from fractions import Fraction
from typing import Annotated, ClassVar, Literal

from actors.fabric.model import Topology
from actors.wire.fault import ALPHA, CREDITS, DSCP, ECN, HASH_FIELDS, HASH_SEED, HEADROOM, PFC_OFF
from emu.base.records import Field
from emu.scenario.environment import Environment
from emu.scenario.faults.base import Objection, RecurringFault, Strike, at_ports
from emu.scenario.faults.events import Change
from emu.scenario.faults.link_faults import PfcFault
from emu.scenario.faults.targets import Spot, TargetKind, fabric_ports
from emu.scenario.section import Refusal
from emu.scenario.sections.switch import EcnSection
from emu.scenario.yaml.values import PositiveFraction, PositiveSizeBytes, Priority, SizeBytes

ALPHA_BITS = 16
CERTAINTY = 1 << 30


class SwitchDrift(RecurringFault):
    """The configuration of a switch drifts."""

    target_kind: ClassVar[TargetKind] = "switch"

    def lacking(self, environment: Environment) -> Objection | None:
        """What the scenario would have to have."""
        return None

    def objections(self, spot: Spot, topology: Topology, environment: Environment) -> Iterator[Objection]:
        """The switch has what drifts."""
        found = self.lacking(environment.at(topology, spot.node))
        if found is not None:
            yield found


class HeadroomDrift(SwitchDrift):
    """Headroom is carved for other cables than those that are there."""

    effect = "a congested port drops what comes until its pause is obeyed and headroom does not hold"
    kind: Literal["headroom_drift"] = "headroom_drift"
    """Shrinks the headroom of each lossless priority group; nothing is lost until an incast needs it."""
    headroom_bytes: SizeBytes
    """Instead of what `switch.buffer.headroom` says."""

    def strike(self, spot: Spot, topology: Topology, environment: Environment) -> Strike:
        """All ports of the switch."""
        ports = fabric_ports(topology, spot.node)
        return Strike(at_ports(int(HEADROOM), spot.node, ports, (self.headroom_bytes, 0, 0)))

    def lacking(self, environment: Environment) -> Objection | None:
        """PFC."""
        if environment.credited or not environment.switch.pfc.enabled:
            return Objection("kind", "without PFC there is no headroom", "switch.pfc.enabled: true")
        return None


class AlphaDrift(SwitchDrift):
    """The dynamic threshold is another share of the free pool."""

    effect = "a congested port fills alpha / (1 + alpha) of the shared pool"
    kind: Literal["alpha_drift"] = "alpha_drift"
    """Too small and it pauses early, too large and one port takes the pool."""
    alpha: PositiveFraction
    """Instead of `switch.buffer.alpha`, and of the alpha of profiles."""

    def strike(self, spot: Spot, topology: Topology, environment: Environment) -> Strike:
        """The switch."""
        return Strike([Change(int(ALPHA), spot.node, 0, (int(self.alpha * (1 << ALPHA_BITS)), 0, 0))])

    def lacking(self, environment: Environment) -> Objection | None:
        """A dynamic threshold."""
        buffer = environment.switch.buffer
        if all(one.xoff_bytes is not None for one in (buffer, *buffer.profiles)):
            return Objection("kind", "every threshold is static", "switch.buffer.xoff: auto")
        return None


class EcnDrift(SwitchDrift):
    """Queues mark by other thresholds."""

    effect = "queues are marked from `kmin` on, all of them from `kmax` on"
    kind: Literal["ecn_drift"] = "ecn_drift"
    """Too high and nobody slows down, too low and everybody does."""
    kmin_bytes: PositiveSizeBytes
    """No marks below."""
    kmax_bytes: PositiveSizeBytes
    """Everything is marked above."""
    pmax: PositiveFraction = Fraction(1, 5)
    """Share that is marked just below kmax."""

    def strike(self, spot: Spot, topology: Topology, environment: Environment) -> Strike:
        """All ports of the switch."""
        values = (self.kmin_bytes, self.kmax_bytes, int(self.pmax * CERTAINTY))
        return Strike(at_ports(int(ECN), spot.node, fabric_ports(topology, spot.node), values))

    def check(self) -> Iterator[Refusal]:
        """Refuse thresholds without an order."""
        yield from super().check()
        if self.kmin_bytes > self.kmax_bytes:
            yield Refusal(("kmin",), "is above kmax", "at most kmax")
        if self.pmax > 1:
            yield Refusal(("pmax",), "is more than certain", "at most 1")
        if self.kmax_bytes >= 1 << 32:
            yield Refusal(("kmax",), "is more than a queue can hold", "less than 4GiB")

    def lacking(self, environment: Environment) -> Objection | None:
        """ECN."""
        if not environment.switch.ecn.enabled:
            return Objection("kind", "no queue marks", "switch.ecn.enabled: true")
        if not isinstance(environment.switch.ecn, EcnSection):
            return Objection("kind", "its thresholds are those of RED", "switch.ecn.kind: red")
        return None


class PfcDrift(PfcFault):
    """PFC is off on one port: it neither pauses nor obeys, and its classes are lossy."""

    effect = "a congested port pauses nobody and drops what alpha / (1 + alpha) of the pool does not hold"
    kind: Literal["pfc_drift"] = "pfc_drift"
    """The other end still believes in it."""

    def strike(self, spot: Spot, topology: Topology, environment: Environment) -> Strike:
        """The ports."""
        return Strike(at_ports(int(PFC_OFF), spot.node, spot.ports, (0, 0, 0)))


class DscpDrift(SwitchDrift):
    """A switch puts packets of a DSCP into another queue and priority group."""

    effect = "packets of the DSCP wait, heed pauses and are dropped as those of the other queue"
    kind: Literal["dscp_drift"] = "dscp_drift"
    """RDMA in a lossy class, or control behind data."""
    dscp: Annotated[int, Field(ge=0, le=63)]
    """DSCP of the packets that it concerns."""
    queue: Priority
    """Egress queue and priority group."""

    def strike(self, spot: Spot, topology: Topology, environment: Environment) -> Strike:
        """The switch."""
        return Strike([Change(int(DSCP), spot.node, self.dscp, (self.queue, self.queue, 0))])

    def lacking(self, environment: Environment) -> Objection | None:
        """DSCPs."""
        if environment.credited:
            return Objection(
                "kind", "DSCP maps are Ethernet's, and links have credits", "link.flow_control: pfc"
            )
        return None


class HashDrift(SwitchDrift):
    """A switch chooses among equal paths by another hash."""

    def lacking(self, environment: Environment) -> Objection | None:
        """A hash."""
        if not environment.routing.plainly_hashed:
            reason = f"routing.kind {environment.routing.kind}, as it is set, has no such hash"
            return Objection("kind", reason, "ecmp or e_ecmp with hash: mix and the default fields")
        return None


class HashSeedDrift(HashDrift):
    """A switch hashes with another seed."""

    effect = "flows take other equal paths; with the seed of the tier below, one in n of them"
    kind: Literal["hash_seed_drift"] = "hash_seed_drift"
    """Every flow through it is dealt anew."""
    seed: Annotated[int, Field(ge=0, le=0xFFFFFFFF)]
    """The hash's, 32 bits."""

    def strike(self, spot: Spot, topology: Topology, environment: Environment) -> Strike:
        """The switch."""
        return Strike([Change(int(HASH_SEED), spot.node, 0, (self.seed, 0, 0))])


class HashFieldsDrift(HashDrift):
    """A switch hashes over other fields of the packet."""

    effect = "queue pairs of one UDP source port take one path (ecmp), or spread (e_ecmp)"
    kind: Literal["hash_fields_drift"] = "hash_fields_drift"
    """As after an upgrade that forgot the QP field."""
    policy: Literal["ecmp", "e_ecmp"]
    """`ecmp`: addresses and UDP source port; `e_ecmp`: the destination QP too."""

    def strike(self, spot: Spot, topology: Topology, environment: Environment) -> Strike:
        """The switch."""
        fields = 1 if self.policy == "e_ecmp" else 0
        return Strike([Change(int(HASH_FIELDS), spot.node, 0, (fields, 0, 0))])


class CreditDrift(SwitchDrift):
    """The credit window of a modular switch is another."""

    effect = "a flow through it runs at no more than window / credit_delay"
    kind: Literal["credit_drift"] = "credit_drift"
    """Too small and a virtual output queue never reaches the rate of its egress."""
    initial_credit_bytes: PositiveSizeBytes
    """Instead of `switch.deep_buffer.initial_credit`."""
    most_credit_bytes: PositiveSizeBytes
    """Instead of `switch.deep_buffer.most_credit`."""

    def strike(self, spot: Spot, topology: Topology, environment: Environment) -> Strike:
        """The switch."""
        values = (self.initial_credit_bytes, self.most_credit_bytes, 0)
        return Strike([Change(int(CREDITS), spot.node, 0, values)])

    def objections(self, spot: Spot, topology: Topology, environment: Environment) -> Iterator[Objection]:
        """The switch is modular."""
        node = topology.nodes[spot.node]
        deep = environment.at(topology, spot.node).switch.deep_buffer
        modular = {
            "auto": environment.topology.kind == "llama3" and node.model == "ctsw",
            "all": True,
            "spines": node.tier == 2,
        }
        if not modular.get(deep.where, False):
            yield Objection("target", f"{spot.name} has no credits", "a switch with switch.deep_buffer")
