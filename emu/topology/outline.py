"""A fabric in a page of text, and as a tree of a few lines.

`describe` works out the figures, `to_text` prints them: devices, switches per tier with their ports and
rates, oversubscription per tier, kinds of cable, bisection, length and number of paths.

Down to up is printed as a ratio of rates, `2:1` for twice as much below as above. Papers also write 1:2 for
twice the uplink, which is the other way round; so the words say which it is.

Bisection: in a fabric of tiers, half of the least capacity between two neighbouring tiers. It is left out
where a link joins two switches of the same tier or skips one: there it would need a minimum cut over all
halves; and where NICs do not reach each other at all (rails without a spine).

Rates and ratios are rounded to three decimals here, and nowhere else.

`outline` draws a fabric of any size as a tree of its blocks, one line for each shape:

    8 ctsw
    └─ 4 racks of 1 rtsw, each 8 x 400Gbps up
       └─ 2 hosts of 8 GPUs and 8 NICs, each 8 x 400Gbps up

What goes up is what the block's own switches (or a server's NICs) are joined to above them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from actors.fabric.model import FABRIC, Attachment, Role, Topology
from actors.fabric.paths import count_paths
from actors.fabric.routes import routes
from emu.base.units import RATE_BPS, aligned, counted, format_rate, format_time
from emu.topology.fabric_blocks import Block, blocks, plane_word, planes, word

RATE_UNITS: Final = ("Tbps", "Gbps", "Mbps", "Kbps")
RACK_WORDS: Final = {"hpn": "segment", "dcn_plus": "segment", "rail_only": "segment", "megascale": "block"}
"""Where a rack is more than a rack."""


@dataclass(frozen=True, slots=True)
class Tier:
    """The switches of one tier taken together."""

    tier: int
    model: str
    switches: int
    down_links: int
    down_bps: int
    up_links: int
    up_bps: int

    @property
    def down_to_up(self) -> Fraction | None:
        """Rate below over rate above; None at the top."""
        return Fraction(self.down_bps, self.up_bps) if self.up_bps else None


@dataclass(frozen=True, slots=True)
class Cable:
    """All links between two kinds of device that have one rate and one delay."""

    lower: str
    upper: str
    links: int
    rate_bps: int
    delay_ps: int


@dataclass(frozen=True, slots=True)
class Description:
    """A fabric in figures."""

    kind: str
    gpus: int
    hosts: int
    racks: int
    rack_word: str
    """What a rack of this kind of fabric is called: servers that share their leaves."""
    nics: int
    nics_bps: int
    """What all NICs together can send."""
    prefixes: int
    tiers: tuple[Tier, ...]
    cables: tuple[Cable, ...]
    bisection_bps: int | None
    most_switches: int
    """Switches on the longest of the shortest paths between two NICs."""
    far_pair: tuple[str, str]
    """The first NIC and the last; empty names where there are no two."""
    far_paths: int
    """Equal-cost paths between them."""


def describe(topology: Topology) -> Description:
    """The figures of a fabric."""
    nodes = topology.nodes
    nics = topology.nics
    two = len(nics) > 1
    return Description(
        kind=topology.kind,
        gpus=len(topology.gpus),
        hosts=len(topology.hosts),
        racks=len({nodes[host].rack for host in topology.hosts if nodes[host].rack >= 0}),
        rack_word=RACK_WORDS.get(topology.kind, "rack"),
        nics=len(nics),
        nics_bps=sum(port.rate_bps for nic in nics for port in topology.ports(nic) if port.kind == FABRIC),
        prefixes=topology.prefixes,
        tiers=_tiers(topology),
        cables=_cables(topology),
        bisection_bps=_bisection_bps(topology),
        most_switches=routes(topology).most_switches() if topology.switches else 0,
        far_pair=(nodes[nics[0]].name, nodes[nics[-1]].name) if two else ("", ""),
        far_paths=count_paths(topology, nics[0], nics[-1]) if two else 0,
    )


def summary_line(description: Description) -> str:
    """How many there are of what."""
    d = description
    racks = f" in {counted(d.racks, d.rack_word)}" if d.racks else ""
    switches = sum(tier.switches for tier in d.tiers)
    on_the_fabric = (
        f"{counted(d.nics, 'NIC')}, {counted(switches, 'switch')}, {counted(d.prefixes, 'prefix')}"
    )
    return f"{counted(d.gpus, 'GPU')} in {counted(d.hosts, 'host')}{racks}, {on_the_fabric}"


def to_text(description: Description) -> str:
    """The description as lines of plain text."""
    d = description
    lines = [f"{d.kind}: {summary_line(d)}"]
    if d.tiers:
        rows = [("tier", "switches", "links down/up", "rate down", "rate up", "down:up")]
        rows += [
            (
                f"{tier.tier} {tier.model}",
                str(tier.switches),
                f"{tier.down_links}/{tier.up_links}",
                about_rate(tier.down_bps),
                about_rate(tier.up_bps) if tier.up_links else "-",
                ratio_text(tier.down_to_up),
            )
            for tier in d.tiers
        ]
        lines += ["", *aligned(rows, indent="")]
    cables = [("cable", "links", "rate", "delay")]
    cables += [
        (
            f"{cable.lower} - {cable.upper}",
            str(cable.links),
            about_rate(cable.rate_bps),
            format_time(cable.delay_ps),
        )
        for cable in d.cables
    ]
    lines += ["", *aligned(cables, indent=""), ""]
    if d.bisection_bps is not None and d.nics_bps:
        share = 200 * d.bisection_bps // d.nics_bps
        lines.append(f"bisection {about_rate(d.bisection_bps)}, {share} % of what half the NICs send")
    if d.far_paths:
        one, other = d.far_pair
        lines.append(
            f"paths pass at most {counted(d.most_switches, 'switch')};"
            f" {counted(d.far_paths, 'equal-cost path')} from {one} to {other}"
        )
    return "\n".join(lines)


def _tiers(topology: Topology) -> tuple[Tier, ...]:
    nodes = topology.nodes
    found: dict[int, list[int]] = {}
    for switch in topology.switches:
        found.setdefault(nodes[switch].tier, []).append(switch)
    tiers = []
    for tier in sorted(found):
        ports = [port for switch in found[tier] for port in topology.ports(switch)]
        below = [port for port in ports if nodes[port.peer].tier < tier]
        above = [port for port in ports if nodes[port.peer].tier > tier]
        tiers.append(
            Tier(
                tier,
                "/".join(dict.fromkeys(nodes[switch].model for switch in found[tier])),
                len(found[tier]),
                len(below),
                sum(port.rate_bps for port in below),
                len(above),
                sum(port.rate_bps for port in above),
            )
        )
    return tuple(tiers)


def _cables(topology: Topology) -> tuple[Cable, ...]:
    counts: dict[tuple[str, str, int, int], int] = {}
    for link in topology.links:
        ends = topology.nodes[link.a].model, topology.nodes[link.b].model
        key = (*ends, link.rate_bps, link.delay_ps)
        counts[key] = counts.get(key, 0) + 1
    return tuple(
        Cable(lower, upper, count, rate_bps, delay_ps)
        for (lower, upper, rate_bps, delay_ps), count in counts.items()
    )


def _bisection_bps(topology: Topology) -> int | None:
    nodes = topology.nodes
    between: dict[int, int] = {}
    for link in topology.links:
        if link.kind != FABRIC:
            continue
        lower, upper = nodes[link.a].tier, nodes[link.b].tier
        if upper - lower != 1 or nodes[link.b].role is not Role.SWITCH:
            return None
        between[lower] = between.get(lower, 0) + link.rate_bps
    joined = len(topology.nics) < 2 or routes(topology).all_reachable()
    return min(between.values()) // 2 if between and joined else None


def ratio_text(down_to_up: Fraction | None) -> str:
    """Rate below to rate above in words; `-` where there is nothing above."""
    if down_to_up is None:
        return "-"
    if down_to_up == 1:
        return "1:1"
    if down_to_up > 1:
        return f"{_decimal(down_to_up)}:1 (oversubscribed)"
    return f"1:{_decimal(Fraction(down_to_up.denominator, down_to_up.numerator))} (more up than down)"


def _decimal(value: Fraction) -> str:
    """At most three decimals."""
    whole, rest = divmod((2000 * value.numerator + value.denominator) // (2 * value.denominator), 1000)
    return f"{whole}.{rest:03}".rstrip("0").rstrip(".")


def about_rate(rate_bps: int) -> str:
    """A rate to three decimals of its unit: `391.837Gbps`."""
    unit = next((unit for unit in RATE_UNITS if rate_bps >= RATE_BPS[unit]), "bps")
    return format_rate(round(Fraction(rate_bps * 1000, RATE_BPS[unit])) * RATE_BPS[unit] // 1000)


def outline(topology: Topology) -> str:
    """The tree."""
    of_switch = planes(topology)
    lines: list[str] = []
    roots = blocks(topology)
    lines += _lines(topology, of_switch, [root for root in roots if not root.tier], "")
    for root in (root for root in roots if root.tier):
        lines.append(_switches(topology, of_switch, root.switches))
        lines += _below(topology, of_switch, root, "")
    return "\n".join(lines)


def _below(topology: Topology, of_switch: dict[int, int], block: Block, indent: str) -> list[str]:
    servers = [Block(0, (), (), (host,), _server_shape(topology, host)) for host in block.hosts]
    return _lines(topology, of_switch, [*block.below, *servers], indent)


def _lines(topology: Topology, of_switch: dict[int, int], found: Sequence[Block], indent: str) -> list[str]:
    """A line for each shape among sibling blocks, and what hangs below it."""
    equal: dict[object, list[Block]] = {}
    for block in found:
        equal.setdefault((block.shape, _up(topology, block)), []).append(block)
    lines: list[str] = []
    for place, group in enumerate(equal.values()):
        last = place + 1 == len(equal)
        block = group[0]
        up = _up(topology, block)
        each = "each " if len(group) > 1 else ""
        text = _name(topology, of_switch, block, len(group)) + (f", {each}{up} up" if up else "")
        lines.append(f"{indent}{'└' if last else '├'}─ {text}")
        if block.tier:
            lines += _below(topology, of_switch, block, indent + ("   " if last else "│  "))
    return lines


def _name(topology: Topology, of_switch: dict[int, int], block: Block, count: int) -> str:
    if block.tier:
        noun = counted(count, word(topology, block.tier))
        return f"{noun} of {_switches(topology, of_switch, block.switches)}"
    inside = topology.server(topology.nodes[block.hosts[0]].host)
    roles = [topology.nodes[node].role for node in inside]
    gpus, nics = counted(roles.count(Role.GPU), "GPU"), counted(roles.count(Role.NIC), "NIC")
    domain = " on an NVSwitch" if Role.NVSWITCH in roles else ""
    return f"{counted(count, 'host')} of {gpus}{domain} and {nics}"


def _switches(topology: Topology, of_switch: dict[int, int], switches: Sequence[int]) -> str:
    """`120 agg in 2 planes`."""
    models = "/".join(dict.fromkeys(topology.nodes[switch].model for switch in switches))
    apart = len(dict.fromkeys(of_switch[switch] for switch in switches))
    return f"{len(switches):,} {models}" + (
        f" in {counted(apart, plane_word(topology))}" if apart > 1 else ""
    )


def _up(topology: Topology, block: Block) -> str:
    """What leads up from a block: `8 x 400Gbps`."""
    rates: dict[int, int] = {}
    for port in _ports_up(topology, block):
        rates[port.rate_bps] = rates.get(port.rate_bps, 0) + 1
    return " and ".join(f"{count:,} x {about_rate(rate)}" for rate, count in rates.items())


def _ports_up(topology: Topology, block: Block) -> list[Attachment]:
    nodes = topology.nodes
    ends = block.switches if block.tier else topology.server(nodes[block.hosts[0]].host)
    return [
        port
        for end in ends
        for port in topology.ports(end)
        if port.kind == FABRIC and nodes[port.peer].tier > max(nodes[end].tier, 0)
    ]


def _server_shape(topology: Topology, host: int) -> tuple[object, ...]:
    return tuple(topology.nodes[node].model for node in topology.server(topology.nodes[host].host))
