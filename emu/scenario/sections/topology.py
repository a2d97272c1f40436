"""Section `topology`: the fabric to build, by `kind`.

Sources: Meta, RDMA over Ethernet for Distributed AI Training at Meta Scale (SIGCOMM'24), for the AI Zone:
racks of servers under one leaf (RTSW), every leaf linked to every spine (CTSW), eight GPUs a server with a
400G NIC each. Sources of all other fabrics are at the top of each generator in `emu.topology`.

Host links (GPU to host, NIC to host) follow from which host a GPU or NIC belongs to; their rate and delay are
in section `host`.

Delays are the 500 ns that simulators of such fabrics agree on (about 100 m of fibre). Whether the counts of a
section can be connected is said by the fabric's generator, in the section's keys.

Textbook fabrics: the k-ary fat tree, rails alone, a star. Large ones: Llama 3's cluster, HPN, DCN+ and
MegaScale, whose defaults are the real systems'. An oversubscription is the rate below a switch over the rate
above it, and the rate of the uplinks follows from it: a smaller fabric keeps the ratios of the large one.
"""

from collections.abc import Iterator
from typing import Annotated, Final, Literal

from emu.base.records import Field
from emu.base.units import parse_rate, parse_time
from emu.scenario.section import Kinds, OneOf, Refusal, Section
from emu.scenario.yaml.values import DelayPs, RateBps

LINK_200G_BPS: Final = parse_rate("200G")
LINK_400G_BPS: Final = parse_rate("400G")
DELAY_500NS_PS: Final = parse_time("500ns")

Count = Annotated[int, Field(ge=1, le=65536)]
CountOrNone = Annotated[int, Field(ge=0, le=65536)]
NicPorts = Annotated[int, Field(ge=1, le=8)]


class TopologySection(Section):
    """Base of the fabrics."""

    kind: str
    """Which kind of fabric."""


MAX_NICS_PER_LEAF: Final = 1024
"""An address is the leaf's prefix and ten bits."""
MAX_LEAVES: Final = 2**14


class AiZone(TopologySection):
    """Racks of servers under one leaf each (RTSW), every leaf linked to every spine (CTSW)."""

    kind: Literal["ai_zone"] = "ai_zone"
    """A two-stage Clos: leaves (RTSW) and spines (CTSW)."""
    racks: Count
    """Racks, each with one leaf `rtsw-R`."""
    hosts_per_rack: Count
    """Servers in a rack, `host-H`, counted through all racks."""
    gpus_per_host: Count = 8
    """GPUs in a server, `gpu-H-I`, each with a NIC of its own, `nic-H-I`. 8 in a Grand Teton (Meta)."""
    spines: Annotated[int, Field(ge=0, le=1024)]
    """Spines, `ctsw-S`. 0 only with a single rack."""
    uplinks_per_leaf_spine: Annotated[int, Field(ge=1, le=64)] = 1
    """Parallel links between each leaf and each spine."""
    link_bps: RateBps = LINK_400G_BPS
    """Rate of a NIC's link to its leaf. 400G (Meta)."""
    uplink_bps: RateBps = Field(default_from=lambda known: int(known["link_bps"]))
    """Rate of a link between leaf and spine. Default: that of `link`."""
    nic_delay_ps: DelayPs = DELAY_500NS_PS
    """Propagation between a NIC and its leaf."""
    uplink_delay_ps: DelayPs = DELAY_500NS_PS
    """Propagation between a leaf and a spine."""

    def check(self) -> Iterator[Refusal]:
        """Refuse what cannot be connected or addressed."""
        if self.spines == 0 and self.racks > 1:
            yield Refusal(("spines",), f"0 spines leave {self.racks} racks unconnected", "at least 1")
        nics_per_leaf = self.hosts_per_rack * self.gpus_per_host
        if nics_per_leaf > MAX_NICS_PER_LEAF:
            accepted = f"hosts_per_rack x gpus_per_host of at most {MAX_NICS_PER_LEAF}"
            yield Refusal(("hosts_per_rack",), f"{nics_per_leaf} NICs under one leaf are too many", accepted)
        if self.racks > MAX_LEAVES:
            yield Refusal(("racks",), f"{self.racks} racks are too many", f"at most {MAX_LEAVES}")


TOPOLOGIES: Final = OneOf(
    "kind",
    Kinds(
        "emu.scenario.sections",
        {
            "ai_zone": "topology:AiZone",
            "llama3": "fabrics_large:Llama3",
            "hpn": "fabrics_large:Hpn",
            "dcn_plus": "fabrics_large:DcnPlus",
            "megascale": "fabrics_large:MegaScale",
            "multi_plane": "fabrics_large:MultiPlane",
            "fat_tree": "fabrics_textbook:FatTree",
            "rail_only": "fabrics_textbook:RailOnly",
            "star": "fabrics_textbook:Star",
            "graph": "fabrics_own:Graph",
            "file": "fabrics_own:TopologyFile",
        },
    ),
)
