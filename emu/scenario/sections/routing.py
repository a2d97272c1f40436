"""Section `routing`: how a switch chooses among equal paths.

A policy is one line in `POLICIES`: its name and the model of its knobs, which are written beside the common
ones. A policy of one's own is `module:Class`, and brings its model with it.

Sources: Meta (SIGCOMM'24): static ECMP hashes the 5-tuple; E-ECMP adds the destination queue pair of the BTH
through a user-defined field, and is what their LLM training runs on; path pinning by destination slice, and
flowlets of 128 to 512 us, were tried there.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Annotated, ClassVar, Final, Literal

from pydantic import Field

from emu.scenario.plugins import OneOfOrPlugin
from emu.scenario.section import Refusal, Section
from emu.scenario.yaml.values import AutoTimePs, LinkName, PositiveFraction, PositiveTimePs, RateBps, TimePs
from emu.units import parse_rate, parse_time

HashField = Literal[
    "src",
    "dst",
    "protocol",
    "udp_source",
    "udp_destination",
    "qpn",
    "psn",
    "opcode",
    "priority",
    "ingress_port",
    "dscp",
]
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


class RoutingSection(Section):
    """What every policy shares."""

    per_packet: ClassVar[bool] = False
    """Whether packets of one flow may overtake each other on a fabric where nothing changes."""
    controlled: ClassVar[bool] = False
    """Whether switches are on the management network."""

    kind: str
    """Which policy."""
    hash: Literal["mix", "crc16", "crc32", "xor_fold", "toeplitz"] = "mix"
    """Hash over the fields. All but `mix` are linear: differing seeds do not cure their polarisation."""
    fields: Annotated[tuple[HashField, ...], Field(min_length=1, max_length=11)] = WITH_QPN
    """What is hashed, in this order. With `psn` or `opcode` packets of one flow take different ways."""
    polynomial: Annotated[tuple[Annotated[int, Field(ge=1, lt=2**32)], ...], Field(max_length=8)] = ()
    """Of a CRC: one for every tier, or one for each tier from the leaves up, the last for those above. None:
    0x1021 and 0x04C11DB7."""
    bit_offset: Annotated[
        tuple[Annotated[int, Field(ge=0, le=31)], ...], Field(min_length=1, max_length=8)
    ] = (0,)
    """First bit of the hash that counts: one for every tier, or one for each from the leaves up."""
    seed: Literal["per_switch", "equal"] = "per_switch"
    """Whether each switch draws a hash seed of its own, or all have the same."""
    weights: Literal["equal", "capacity"] = "equal"
    """Whether members of a group count alike, or by the rate of their links."""
    link_weights: Annotated[tuple[LinkWeight, ...], Field(max_length=65536)] = ()
    """Exceptions, link by link."""
    convergence_ps: TimePs = parse_time("1ms")
    """From a link's change of state until the groups of other switches follow: detection and withdrawal. A
    choice, not a measurement."""
    local_convergence_ps: AutoTimePs = None
    """The same for the devices at both ends, which detect it themselves. `auto`: `convergence`."""

    @property
    def own_convergence_ps(self) -> int:
        """From a link's change of state until the groups at its ends follow."""
        return self.convergence_ps if self.local_convergence_ps is None else self.local_convergence_ps

    @property
    def plainly_hashed(self) -> bool:
        """Whether a switch hashes by itself: ECMP or E-ECMP with `mix` over their own fields."""
        usual = type(self).model_fields["fields"].default
        hashed = self.kind in ("ecmp", "e_ecmp") and self.hash == "mix" and not any(self.bit_offset)
        return hashed and self.fields == usual

    def check(self) -> Iterator[Refusal]:
        """Refuse what the hash does not have."""
        bits = HASH_BITS[self.hash]
        if self.polynomial and not self.hash.startswith("crc"):
            yield Refusal(("polynomial",), f"{self.hash} has no polynomial", "none, or hash: crc16 or crc32")
        for at, polynomial in enumerate(self.polynomial):
            if self.hash.startswith("crc") and polynomial >> bits:
                yield Refusal(("polynomial", at), "is wider than the hash", f"less than 2**{bits}")
        for at, offset in enumerate(self.bit_offset):
            if offset >= bits:
                yield Refusal(("bit_offset", at), "lies beyond the hash", f"less than {bits}")
        if self.own_convergence_ps > self.convergence_ps:
            reason = "is later than what other switches take, which hear of it from there"
            yield Refusal(("local_convergence",), reason, "at most `convergence`")
        if len(dict.fromkeys(self.fields)) != len(self.fields):
            yield Refusal(("fields",), "a field is named twice", "each field once")

    @property
    def packet_fields(self) -> list[str]:
        """What is hashed although packets of one flow differ in it."""
        return [field for field in self.fields if field in PACKET_FIELDS]

    @property
    def by_packet(self) -> bool:
        """Whether packets of one flow go by different ways at once."""
        return self.per_packet or bool(self.packet_fields)

    @property
    def reorders(self) -> bool:
        """Whether that is so, and not asked for in spite of what the transport makes of it."""
        return self.by_packet and not getattr(self, "allow_reordering", False)


class Ecmp(RoutingSection):
    """Static hash on the 5-tuple."""

    kind: Literal["ecmp"] = "ecmp"
    """Hash on addresses, protocol and UDP ports."""
    fields: Annotated[tuple[HashField, ...], Field(min_length=1, max_length=11)] = FIVE_TUPLE
    """What is hashed, in this order. With `psn` or `opcode` packets of one flow take different ways."""


class EEcmp(RoutingSection):
    """Static hash on the 5-tuple and the destination queue pair."""

    kind: Literal["e_ecmp"] = "e_ecmp"
    """Hash on addresses, protocol, UDP ports and the destination queue pair of the BTH."""


class PathPinning(RoutingSection):
    """By destination slice: the downlink of the destination's leaf chooses the path."""

    kind: Literal["path_pinning"] = "path_pinning"
    """Pin each destination to a path; hash where that path is down."""


class Flowlet(RoutingSection):
    """A flow may take another path after a gap."""

    kind: Literal["flowlet"] = "flowlet"
    """A random path for each flowlet."""
    gap_ps: PositiveTimePs = parse_time("128us")
    """Silence after which a flow takes a new path. Meta tried 128 to 512 us."""
    entries: Annotated[int, Field(ge=1, le=2**20)] = 4096
    """Size of the flowlet table; flows that share an entry share their path. A choice."""


class Spray(RoutingSection):
    """Every packet its own way."""

    per_packet: ClassVar[bool] = True
    kind: Literal["spray"] = "spray"
    """Each packet takes another member."""
    order: Literal["round_robin", "random"] = "round_robin"
    """In turn for each destination prefix, or at random."""
    allow_reordering: bool = False
    """Run it although the transport takes every overtaking for a loss, to see the collapse."""


class Adaptive(RoutingSection):
    """The member with the least waiting."""

    kind: Literal["adaptive"] = "adaptive"
    """By least load of the egress ports."""
    granularity: Literal["packet", "flowlet"] = "flowlet"
    """Whether every packet chooses, or every flowlet."""
    gap_ps: PositiveTimePs = parse_time("128us")
    """Silence after which a flow takes a new path; for flowlets."""
    entries: Annotated[int, Field(ge=1, le=2**20)] = 4096
    """Size of the flowlet table."""
    allow_reordering: bool = False
    """Run it although the transport takes every overtaking for a loss, to see the collapse."""

    @property
    def by_packet(self) -> bool:
        """Whether packets of one flow go by different ways at once."""
        return self.granularity == "packet" or super().by_packet


class TrafficEngineering(RoutingSection):
    """A controller gives flows paths of their own, and the rest is hashed."""

    controlled: ClassVar[bool] = True
    kind: Literal["traffic_engineering"] = "traffic_engineering"
    """Entries by source port and destination prefix from a controller; E-ECMP for what has none."""
    interval_ps: PositiveTimePs = parse_time("500us")
    """From one collection of counters to the next. Meta: 30 s, for jobs that run for weeks."""
    entries: Annotated[int, Field(ge=0, le=65536)] = 1024
    """Size of a leaf's table of entries. A choice."""
    threshold_bps: RateBps = parse_rate("10G")
    """Least rate that is worth an entry. A choice."""
    fill: PositiveFraction = Fraction(1)
    """Share of a link's rate up to which entries are placed on it."""
    hysteresis: PositiveFraction = Fraction(1, 20)
    """How much fuller, as a share of a link, the way of an entry may be than the best before it moves."""

    def check(self) -> Iterator[Refusal]:
        """Refuse links filled beyond their rate."""
        yield from super().check()
        if self.fill > 1:
            yield Refusal(("fill",), "is more than a whole link", "a fraction above 0 and up to 1")


POLICIES: Final = OneOfOrPlugin(
    "kind",
    {
        "ecmp": Ecmp,
        "e_ecmp": EEcmp,
        "path_pinning": PathPinning,
        "flowlet": Flowlet,
        "spray": Spray,
        "adaptive": Adaptive,
        "traffic_engineering": TrafficEngineering,
    },
    default="e_ecmp",
    base=RoutingSection,
    methods=("choose",),
    parent="actors.switch.routing.policy.RoutingPolicy",
)
