"""The bill of a fabric: switches by their ports, NICs, optics, cables and fibres, and what they cost.

A link whose delay is that of at most `copper_up_to` metres (5 ns a metre) is a copper cable; any other is a
fibre with an optic at each end. A switch counts the ports that are used, by their rate.

A price file is a mapping, each part of it optional:

    currency: USD
    copper_up_to: 3           # metres
    switches: {rtsw: 20000, agg: 30000}          # each, by the name of its tier as `emu topo` prints it
    ports: {400Gbps: 250}                         # each used port of a switch, by rate
    nics: {400Gbps: 1200}                         # each port of a NIC, by rate
    optics: {400Gbps: 600}                        # each, by the rate of the link
    copper: {400Gbps: 120}                        # each cable, by the rate of the link
    fibre: 40                                     # each, of any rate

What has no price is named and not counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final, NamedTuple

from actors.fabric.model import FABRIC, Role, Topology
from emu.base.records import Field
from emu.base.units import format_rate
from emu.scenario.section import Section

PS_A_METRE: Final = 5_000
"""Delay of light in fibre, and near enough of copper."""
COPPER_M: Final = 3
"""How long a passive copper cable of 400G is at most."""
Price = Annotated[float, Field(ge=0, le=1e12)]


class PriceFile(Section):
    """Prices of the parts of a fabric."""

    currency: str = ""
    """What they are in."""
    copper_up_to: Annotated[float, Field(ge=0, le=1000)] = COPPER_M
    """Metres that a copper cable is long at most."""
    switches: dict[str, Price] = Field(default_factory=dict)
    """Price of a switch, by the name of its tier."""
    ports: dict[str, Price] = Field(default_factory=dict)
    """Price of a used port of a switch, by its rate."""
    nics: dict[str, Price] = Field(default_factory=dict)
    """Price of a port of a NIC, by its rate."""
    optics: dict[str, Price] = Field(default_factory=dict)
    """Price of an optic, by the rate of its link."""
    copper: dict[str, Price] = Field(default_factory=dict)
    """Price of a copper cable, by the rate of its link."""
    fibre: Price | None = None
    """Price of a fibre, whatever its rate."""


class Item(NamedTuple):
    """A line of the bill."""

    part: str
    """switch, port, nic, optic, copper or fibre."""
    name: str
    """Tier of a switch, rate of another part."""
    number: int
    ports: str
    """Ports of a switch that are used at most, by rate."""
    each: float | None
    """Its price; None where there is none."""

    @property
    def cost(self) -> float:
        """Cost of all of them that have a price."""
        return self.number * (self.each or 0)


class Bill(NamedTuple):
    """What a fabric is made of."""

    items: tuple[Item, ...]
    gpus: int
    currency: str

    @property
    def total(self) -> float:
        """Total of what has a price."""
        return sum(item.cost for item in self.items)

    def value(self) -> dict[str, Any]:
        """As JSON has it."""
        priced = any(item.each is not None for item in self.items)
        return {
            "items": [
                item._asdict() | {"cost": item.cost if item.each is not None else None} for item in self.items
            ],
            "gpus": self.gpus,
            "currency": self.currency,
            "total": self.total if priced else None,
            "per_gpu": self.total / self.gpus if priced and self.gpus else None,
        }


def bill_of(topology: Topology, prices: PriceFile | None = None) -> Bill:
    """The parts of a fabric, of all its networks, with their prices."""
    given = PriceFile() if prices is None else prices
    items = [*_switches(topology, given), *_links(topology, given)]
    return Bill(tuple(items), len(topology.gpus), given.currency)


def _used(topology: Topology, node: int) -> Counter[int]:
    return Counter(port.rate_bps for port in topology.ports(node) if port.kind == FABRIC)


def _switches(topology: Topology, prices: PriceFile) -> Iterator[Item]:
    tiers: dict[str, list[Counter[int]]] = {}
    for switch in topology.switches:
        tiers.setdefault(topology.nodes[switch].model, []).append(_used(topology, switch))
    ports: Counter[int] = Counter()
    for name, used in tiers.items():
        rates = sorted({rate for one in used for rate in one}, reverse=True)
        most = " + ".join(f"{max(one[rate] for one in used)} x {format_rate(rate)}" for rate in rates)
        yield Item("switch", name, len(used), most, prices.switches.get(name))
        for one in used:
            ports.update(one)
    for rate, count in sorted(ports.items(), reverse=True):
        yield Item("port", format_rate(rate), count, "", prices.ports.get(format_rate(rate)))
    nics: Counter[int] = Counter()
    for nic in topology.nics:
        nics.update(_used(topology, nic))
    for rate, count in sorted(nics.items(), reverse=True):
        yield Item("nic", format_rate(rate), count, "", prices.nics.get(format_rate(rate)))


def _links(topology: Topology, prices: PriceFile) -> Iterator[Item]:
    copper: Counter[int] = Counter()
    fibres: Counter[int] = Counter()
    for link in topology.links:
        ends = {topology.nodes[link.a].role, topology.nodes[link.b].role}
        if link.kind == FABRIC and ends <= {Role.SWITCH, Role.NIC}:
            short = link.delay_ps <= prices.copper_up_to * PS_A_METRE
            (copper if short else fibres)[link.rate_bps] += 1
    for part, counts, times, known in (
        ("optic", fibres, 2, prices.optics),
        ("fibre", fibres, 1, None),
        ("copper", copper, 1, prices.copper),
    ):
        for rate, count in sorted(counts.items(), reverse=True):
            name = format_rate(rate)
            yield Item(part, name, count * times, "", _price(known, name, prices))


def _price(known: Mapping[str, float] | None, name: str, prices: PriceFile) -> float | None:
    return prices.fibre if known is None else known.get(name)
