"""Small fabrics that the tests of topology and placement share."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from actors.fabric.model import Topology
from actors.fabric.paths import first_paths
from actors.fabric.routes import NOTHING_DOWN
from emu.scenario.load import load_mapping
from emu.topology.fabrics import build
from emu.topology.generators.ai_zone import ai_zone
from emu.topology.generators.custom import graph
from emu.topology.generators.multi_plane import room

G = 10**9
NS = 1_000


@dataclass(frozen=True)
class PlannedNode:
    """A node as a scenario would have it."""

    name: str
    role: str
    host: str | None = None
    tier: int | None = None
    rack: int | None = None


@dataclass(frozen=True)
class PlannedLink:
    """A link as a scenario would have it."""

    a: str
    b: str
    rate_bps: int = 400 * G
    delay_ps: int = 500 * NS


def zone(
    racks: int = 2,
    hosts_per_rack: int = 1,
    gpus_per_host: int = 2,
    spines: int = 2,
    parallel: int = 1,
    link_rate_bps: int = 400 * G,
    uplink_rate_bps: int = 400 * G,
    nic_delay_ps: int = 500 * NS,
    host_link_delay_ps: int = 250 * NS,
) -> Topology:
    """An AI Zone with the usual rates and delays."""
    return ai_zone(
        racks=racks,
        hosts_per_rack=hosts_per_rack,
        gpus_per_host=gpus_per_host,
        spines=spines,
        uplinks_per_leaf_spine=parallel,
        link_bps=link_rate_bps,
        uplink_bps=uplink_rate_bps,
        nic_delay_ps=nic_delay_ps,
        uplink_delay_ps=500 * NS,
        host_link_rate_bps=512 * G,
        host_link_delay_ps=host_link_delay_ps,
        nic_link_delay_ps=250 * NS,
    )


def fabric_of(**section: Any) -> Topology:
    """The fabric of a scenario's section `topology`, with its defaults; TopologyError where it has none.

    Fabrics are immutable, so the last few are kept: the large ones take a second each.
    """
    key = repr(section)
    if key not in _BUILT:
        if len(_BUILT) == 4:
            del _BUILT[next(iter(_BUILT))]
        _BUILT[key] = _fabric_of(section)
    return _BUILT[key]


_BUILT: dict[str, Topology] = {}


def _fabric_of(section: dict[str, Any]) -> Topology:
    job = {"name": "a", "workload": {"kind": "permutation", "size": "1MiB"}}
    found = load_mapping({"name": "x", "topology": section, "jobs": [job]}).scenario.topology
    names = [name for name in type(found).model_fields if name != "kind"]
    return build(
        found.kind,
        **{name: getattr(found, name) for name in names},
        host_link_rate_bps=512 * G,
        host_link_delay_ps=250 * NS,
        nic_link_delay_ps=250 * NS,
    )


def drawn(nodes: Sequence[PlannedNode], links: Sequence[PlannedLink]) -> Topology:
    """A graph with the usual host links."""
    return graph(
        nodes=nodes,
        links=links,
        host_link_rate_bps=512 * G,
        host_link_delay_ps=250 * NS,
        nic_link_delay_ps=250 * NS,
    )


def server(name: str, nics: int = 1, gpus: int = 1) -> list[PlannedNode]:
    """The nodes of a server: `name`, `name-gpu-0`.., `name-nic-0`.."""
    inside = [PlannedNode(f"{name}-gpu-{i}", "gpu", name) for i in range(gpus)]
    inside += [PlannedNode(f"{name}-nic-{i}", "nic", name) for i in range(nics)]
    return [PlannedNode(name, "host"), *inside]


def switches(*names: str) -> list[PlannedNode]:
    """Switches of these names."""
    return [PlannedNode(name, "switch") for name in names]


def dual_tor(hosts: int = 4) -> Topology:
    """Servers with one NIC on both of two leaves, under two spines."""
    nodes = [node for host in range(hosts) for node in server(f"h{host}")]
    nodes += server("far")
    nodes += switches("tor-a", "tor-b", "tor-c", "agg-0", "agg-1")
    links = [PlannedLink(f"h{host}-nic-0", tor) for host in range(hosts) for tor in ("tor-a", "tor-b")]
    links += [PlannedLink("far-nic-0", "tor-c")]
    links += [PlannedLink(tor, agg) for tor in ("tor-a", "tor-b", "tor-c") for agg in ("agg-0", "agg-1")]
    return drawn(nodes, links)


zones = st.builds(
    zone,
    racks=st.integers(1, 5),
    hosts_per_rack=st.integers(1, 3),
    gpus_per_host=st.integers(1, 4),
    spines=st.integers(1, 5),
    parallel=st.integers(1, 3),
)
"""AI Zones of any small shape."""


@st.composite
def switch_graphs(draw: st.DrawFn) -> Topology:
    """Connected graphs of switches with a server of one NIC on some of them; parallel links may occur."""
    count = draw(st.integers(1, 8))
    names = [f"s{i}" for i in range(count)]
    nodes = switches(*names)
    links = [PlannedLink(names[i], names[draw(st.integers(0, i - 1))]) for i in range(1, count)]
    for _ in range(draw(st.integers(0, 8)) if count > 1 else 0):
        one = draw(st.integers(0, count - 1))
        other = draw(st.integers(0, count - 2))
        links.append(PlannedLink(names[one], names[other + (other >= one)]))
    for host, place in enumerate(draw(st.lists(st.integers(0, count - 1), min_size=1, max_size=6))):
        nodes += server(f"h{host}")
        links.append(PlannedLink(f"h{host}-nic-0", names[place]))
    return drawn(nodes, draw(st.permutations(links)))


small = st.integers(1, 3)


@st.composite
def hpns(draw: st.DrawFn, least_planes: int = 1) -> Topology:
    """Small HPNs of any shape."""
    uplinks, aggs = draw(small), draw(small)
    section = {
        "pods": draw(small),
        "segments_per_pod": draw(small),
        "hosts_per_segment": draw(small),
        "gpus_per_host": draw(small),
        "planes": draw(st.integers(least_planes, 2)),
        "aggs_per_plane": aggs,
        "core_uplinks_per_agg": uplinks,
        "cores_per_plane": draw(st.sampled_from([n for n in range(1, 10) if aggs * uplinks % n == 0])),
    }
    return fabric_of(kind="hpn", **section)


@st.composite
def dcn_pluses(draw: st.DrawFn) -> Topology:
    """Small DCN+ fabrics of any shape."""
    uplinks, aggs = draw(small), draw(small)
    return fabric_of(
        kind="dcn_plus",
        pods=draw(small),
        segments_per_pod=draw(small),
        hosts_per_segment=draw(small),
        gpus_per_host=draw(small),
        aggs_per_pod=aggs,
        links_per_tor_agg=draw(small),
        core_uplinks_per_agg=uplinks,
        cores=draw(st.sampled_from([n for n in range(1, 10) if aggs * uplinks % n == 0])),
    )


@st.composite
def single_homed(draw: st.DrawFn) -> Topology:
    """Small fabrics of the kinds whose NICs have one port."""
    uplinks, aggs = draw(small), draw(small)
    kind = draw(st.sampled_from(["llama3", "megascale", "fat_tree", "multi_plane", "star"]))
    if kind == "llama3":
        section: dict[str, Any] = {
            "pods": draw(small),
            "racks_per_pod": draw(small),
            "hosts_per_rack": draw(small),
            "gpus_per_host": draw(small),
            "ctsws_per_pod": draw(small),
            "links_per_rtsw_ctsw": draw(small),
            "atsws": draw(small),
            "links_per_ctsw_atsw": draw(small),
        }
    elif kind == "megascale":
        section = {
            "pods": draw(small),
            "blocks_per_pod": draw(small),
            "hosts_per_block": draw(small),
            "gpus_per_host": draw(small),
            "aggs_per_pod": aggs,
            "core_uplinks_per_agg": uplinks,
            "cores": draw(st.sampled_from([n for n in range(1, 10) if aggs * uplinks % n == 0])),
        }
    elif kind == "fat_tree":
        half = draw(small)
        divisor = st.sampled_from([n for n in range(1, half + 1) if half % n == 0])
        section = {"k": 2 * half, "links_per_tor_agg": draw(divisor), "links_per_agg_core": draw(divisor)}
    elif kind == "multi_plane":
        half, tiers = draw(small), draw(st.sampled_from((2, 3)))
        divisor = st.sampled_from([n for n in range(1, half + 1) if half % n == 0])
        parallel = {
            "links_per_tor_agg": draw(divisor),
            "links_per_agg_core": draw(divisor) if tiers == 3 else 1,
        }
        most = room(tiers, 2 * half, *parallel.values()).ports
        hosts = draw(st.integers(1, most))
        shape = {"planes": 1, "gpus_per_host": 1, "hosts": hosts, "tiers": tiers, "radix": 2 * half}
        section = shape | parallel
    else:
        section = {"hosts": draw(small), "gpus_per_host": draw(small)}
    return fabric_of(kind=kind, **section)


def path_set(
    topology: Topology, source: int, target: int, down: frozenset[int] = NOTHING_DOWN
) -> tuple[tuple[int, ...], ...]:
    """Every shortest path between two NICs over links that are not `down`; of a fabric that has few."""
    return first_paths(topology, source, target, 1 << 20, down)
