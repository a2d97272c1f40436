"""Section `routing`: how a switch chooses among equal paths.

A policy is one line in `POLICIES`: its name, its class, which lists its knobs, and what it is. Knobs are
written beside the common keys. A policy of one's own is `module:Class`.

Sources: Meta (SIGCOMM'24): static ECMP hashes the 5-tuple; E-ECMP adds the destination queue pair of the BTH
through a user-defined field, and is what their LLM training runs on; path pinning by destination slice, and
flowlets of 128 to 512 us, were tried there. Withdrawal: RFC 4271, sections 4.2, 6.5, 9.2.1.1 and 10; RFC 7938
(BGP in data centres). Resilient hashing: Broadcom's and Mellanox's switches under that name.
"""

from collections.abc import Iterator
from typing import Annotated, Final, Literal

from actors.switch.routing.hashing import HashField
from actors.switch.routing.policy import HashedRouting, PathPinning, RoutingPolicy
from emu.base.records import Field
from emu.base.units import parse_time
from emu.scenario.knobs import Policies, PolicySection
from emu.scenario.plugins import OneOfOrPlugin, ask
from emu.scenario.section import Refusal, Section
from emu.scenario.yaml.values import AutoTimePs, LinkName, PositiveTimePs, TimePs

PACKET_FIELDS: Final = ("psn", "opcode")
"""Those in which packets of one flow differ."""
FIVE_TUPLE: Final[tuple[HashField, ...]] = ("src", "dst", "protocol", "udp_source", "udp_destination")
WITH_QPN: Final[tuple[HashField, ...]] = (*FIVE_TUPLE, "qpn")
HASH_BITS: Final = {"mix": 32, "crc16": 16, "crc32": 32, "xor_fold": 16, "toeplitz": 32}


class LinkWeight(Section):
    """How much of its group's traffic a link takes."""

    link: LinkName
    """The link, by its ends; parallel links each."""
    weight: Annotated[int, Field(ge=1, le=64)]
    """Its share, relative to the other members; those not named have 1."""


class BgpSection(Section):
    """Withdrawal hop by hop, as eBGP between the switches does it."""

    enabled: bool = False
    """Whether each switch hears of a link from its neighbours, in place of all at once."""
    hop_ps: PositiveTimePs = parse_time("1ms")
    """From one switch's advertisement until its neighbour forwards by it: the message, the decision, and
    programming the chip. A choice: what operators report is from 1 to tens of milliseconds."""
    advertisement_interval_ps: TimePs = 0
    """A switch advertises at ticks of this interval (MRAI), with a phase drawn from the seed. RFC 4271
    suggests 30 s between ASes; data centres set 0."""
    hold_time_ps: PositiveTimePs = parse_time("9s")
    """A link between switches that keeps its signal and loses every frame is withdrawn after so long without
    a keepalive. RFC 4271 suggests 90 s; data centres set 9 s or 3 s, BFD tens of milliseconds."""


class RoutingSection(PolicySection):
    """What every policy shares."""

    kind: str
    """Which policy."""
    hash: Literal["mix", "crc16", "crc32", "xor_fold", "toeplitz"] = "mix"
    """Hash over the fields. All but `mix` are linear: differing seeds do not cure their polarisation."""
    fields: Annotated[tuple[HashField, ...], Field(min_length=1, max_length=11)] = WITH_QPN
    """Fields of the hash, in this order. With `psn` or `opcode` packets of one flow take different paths."""
    polynomial: Annotated[tuple[Annotated[int, Field(ge=1, lt=2**32)], ...], Field(max_length=8)] = ()
    """Polynomials of a CRC: one for every tier, or one for each tier from the leaves up, the last for those
    above. None: 0x1021 and 0x04C11DB7."""
    bit_offset: Annotated[
        tuple[Annotated[int, Field(ge=0, le=31)], ...], Field(min_length=1, max_length=8)
    ] = (0,)
    """First bit of the hash that counts: one for every tier, or one for each from the leaves up."""
    seed: Literal["per_switch", "equal"] = "per_switch"
    """Whether each switch draws a hash seed of its own, or all have the same."""
    weights: Literal["equal", "capacity"] = "equal"
    """Whether members of a group have equal weights, or the rates of their links."""
    link_weights: Annotated[tuple[LinkWeight, ...], Field(max_length=65536)] = ()
    """Exceptions, link by link."""
    paths: Literal["auto", "valley_free", "shortest"] = "auto"
    """Paths that are routes: `valley_free`, up the tiers and then down, as with BGP in a Clos; or the
    `shortest` over all links that are up. `auto`: valley_free; shortest in a `graph` and a topology file."""
    convergence_ps: TimePs = parse_time("1ms")
    """From a link's change of state until the groups of other switches follow: detection and withdrawal. A
    choice, not a measurement."""
    local_convergence_ps: AutoTimePs = None
    """The same for the switches at both ends, which detect it themselves. `auto`: `convergence`, or `hop` of
    `bgp`."""
    bgp: BgpSection = BgpSection.defaults()
    """Withdrawal hop by hop, in place of `convergence`."""

    @property
    def own_convergence_ps(self) -> int:
        """From a port's change of state until the groups at the ends of its link follow."""
        if self.local_convergence_ps is not None:
            return self.local_convergence_ps
        return self.bgp.hop_ps if self.bgp.enabled else self.convergence_ps

    def valley_free(self, *, tiered: bool) -> bool:
        """Whether paths go up no more once they went down, on a fabric of known tiers or not."""
        return tiered if self.paths == "auto" else self.paths == "valley_free"

    @property
    def plainly_hashed(self) -> bool:
        """Whether a switch hashes by itself: ECMP or E-ECMP with `mix` over their own fields."""
        usual = type(self).model_fields["fields"].default
        hashed = self.kind in ("ecmp", "e_ecmp") and self.hash == "mix" and not any(self.bit_offset)
        return hashed and self.fields == usual

    def check(self) -> Iterator[Refusal]:
        """Refuse what the hash does not have."""
        yield from super().check()
        bits = HASH_BITS[self.hash]
        if self.polynomial and not self.hash.startswith("crc"):
            yield Refusal(("polynomial",), f"{self.hash} has no polynomial", "none, or hash: crc16 or crc32")
        for at, polynomial in enumerate(self.polynomial):
            if self.hash.startswith("crc") and polynomial >> bits:
                yield Refusal(("polynomial", at), "is wider than the hash", f"less than 2**{bits}")
        for at, offset in enumerate(self.bit_offset):
            if offset >= bits:
                yield Refusal(("bit_offset", at), "lies beyond the hash", f"less than {bits}")
        if self.bgp.enabled and self.convergence_ps != type(self).model_fields["convergence_ps"].default:
            reason = "does not count beside bgp, where each switch hears from its neighbours"
            yield Refusal(("convergence",), reason, "bgp.hop and local_convergence")
        if not self.bgp.enabled and self.own_convergence_ps > self.convergence_ps:
            reason = "is later than what other switches take, which hear of it from there"
            yield Refusal(("local_convergence",), reason, "at most `convergence`")
        if len(dict.fromkeys(self.fields)) != len(self.fields):
            yield Refusal(("fields",), "a field is named twice", "each field once")

    @property
    def controlled(self) -> bool:
        """Whether switches are on the management network."""
        return bool(self.policy.controlled)

    @property
    def packet_fields(self) -> list[str]:
        """What is hashed although packets of one flow differ in it."""
        return [field for field in self.fields if field in PACKET_FIELDS]

    @property
    def by_packet(self) -> bool:
        """Whether packets of one flow go by different ways at once."""
        return bool(ask(self, "by_packet") or self.packet_fields)

    @property
    def reorders(self) -> bool:
        """Whether that is so, and not asked for in spite of what the transport makes of it."""
        return self.by_packet and not getattr(self, "allow_reordering", False)


class HashedSection(RoutingSection):
    """What policies share that choose by the hash alone."""

    resilient_buckets: Annotated[int, Field(ge=0, le=1024)] = 0
    """Resilient hashing: a group hashes onto so many buckets, and only those of a lost member move. 0: onto
    its members, so that a loss moves flows of the others, too."""


class FiveTupleSection(HashedSection):
    """The same, over other fields."""

    fields: Annotated[tuple[HashField, ...], Field(min_length=1, max_length=11)] = FIVE_TUPLE
    """Fields of the hash, in this order. With `psn` or `opcode` packets of one flow take different paths."""


POLICIES: Final = OneOfOrPlugin(
    Policies(
        {
            "ecmp": (FiveTupleSection, HashedRouting, "Static hash on the 5-tuple."),
            "e_ecmp": (
                HashedSection,
                HashedRouting,
                "Static hash on the 5-tuple and the destination queue pair.",
            ),
            "path_pinning": (
                RoutingSection,
                PathPinning,
                "By destination slice: the downlink of the destination's leaf chooses the path.",
            ),
            "flowlet": (
                RoutingSection,
                "actors.optional.flowlet:Flowlet",
                "A flow may take another path after a gap.",
            ),
            "spray": (RoutingSection, "actors.optional.spray:Spray", "Every packet its own way."),
            "adaptive": (
                RoutingSection,
                "actors.optional.flowlet:Adaptive",
                "The member with the least waiting.",
            ),
            "traffic_engineering": (
                RoutingSection,
                "actors.optional.engineered:EngineeredRouting",
                "A controller gives flows paths of their own, and the rest is hashed.",
            ),
        }
    ),
    default="e_ecmp",
    base=RoutingSection,
    parent=RoutingPolicy,
    methods=("choose",),
    abstract={"actors.switch.routing.policy:RoutingPolicy": ("choose",)},
)
