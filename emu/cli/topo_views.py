"""Views of `emu topo` beside the fabric itself: paths, placement, buffers, JSON.

A view is a plain value that JSON can hold, and its text. Only what a view needs is imported.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from actors.fabric.model import Attachment, Role, Topology, TopologyError, format_address
from actors.fabric.paths import count_paths, first_paths, path_text
from emu.base.errors import ScenarioError, UsageError
from emu.base.units import aligned, counted, format_size, format_time
from emu.doors.weeks.campaign_file import checked, read_tree
from emu.scenario.schema import Scenario
from emu.scenario.sections.switch import GroupProfile
from emu.topology.outline import about_rate
from emu.topology.server_presets import described

if TYPE_CHECKING:
    from emu.devices.pricing.planned_traffic import PlannedTraffic

PLACEMENTS = "a number of workers, or one of node, device"


class View(NamedTuple):
    """A view as a value for JSON and as text."""

    value: object
    text: str


def everything(topology: Topology) -> View:
    """Nodes, with the addresses of NICs, and links, by number."""
    nodes = []
    for node in topology.nodes:
        listed = node._asdict()
        if node.role is Role.NIC:
            listed["address"] = format_address(topology.address_of(node.number))
        nodes.append(listed)
    listed_links = [link._asdict() for link in topology.links]
    return View({"kind": topology.kind, "nodes": nodes, "links": listed_links}, "")


def bill(topology: Topology, prices: str | None) -> View:
    """What the fabric is made of, and what that costs by a file of prices. Raises ScenarioError."""
    from emu.cli.bill import PriceFile, bill_of  # noqa: PLC0415 - see above

    known = None
    if prices is not None:
        tree, file = read_tree(Path(prices), "a price file")
        known = checked(PriceFile, tree, file)
    found = bill_of(topology, known)
    priced = any(one.each is not None for one in found.items)
    head = ["part", "", "count", "ports used each"]
    rows = [[*head, "each", f"cost {found.currency}".strip()] if priced else head]
    for one in found.items:
        costs = ["no price", ""] if one.each is None else [f"{one.each:,.0f}", f"{one.cost:,.0f}"]
        rows.append([one.part, one.name, f"{one.number:,}", one.ports, *(costs if priced else [])])
    lines = aligned(rows, left=2)
    if priced:
        total, each = f"{found.total:,.0f} {found.currency}", f"{found.total / max(found.gpus, 1):,.0f}"
        lines += ["", f"total {total}, {each} for each of {found.gpus:,} GPUs"]
        if any(one.each is None for one in found.items):
            lines.append("parts without a price are not counted")
    return View(found.value(), "\n".join(lines))


def round_trip(scenario: Scenario, topology: Topology) -> list[str]:
    """A line on the longest round trip of the empty fabric; none where no two NICs meet."""
    from emu.devices.round_trip import longest_round_trip_ps  # noqa: PLC0415 - see above

    longest_ps = longest_round_trip_ps(scenario, topology)
    if longest_ps == 0:
        return []
    return [f"longest unloaded round trip {longest_ps / 10**6:.2f}us, a full packet and its acknowledgement"]


def room_of_planes(scenario: Scenario) -> list[str]:
    """Lines on how large a `multi_plane` of its switches may be, and what a lost link or ToR takes."""
    from emu.scenario.sections.fabrics_large import MultiPlane  # noqa: PLC0415 - see above
    from emu.topology.generators.multi_plane import room  # noqa: PLC0415 - see above

    section = scenario.topology
    if not isinstance(section, MultiPlane):
        return []
    parallel = section.links_per_tor_agg, section.links_per_agg_core
    full, count = room(section.tiers, section.radix, *parallel), section.planes
    in_all = full.ports * count
    size = (
        f"a plane of {section.tiers} tiers of {section.radix}-port switches has room for {full.ports:,} ports"
        f" of NICs on {' + '.join(f'{one:,}' for one in full.switches)} switches; {counted(count, 'plane')}:"
        f" {in_all // section.nic_ports:,} NICs in"
        f" {in_all // (section.gpus_per_host * section.nic_ports):,} servers,"
        f" {sum(full.switches) * count:,} switches"
    )
    lost = (
        f"a lost link above a ToR takes {200 / section.radix:.1f} % of its uplinks, a lost ToR"
        f" {100 / count:.1f} % of the ports of each server below it"
    )
    return [size, lost]


def servers(scenario: Scenario, topology: Topology) -> list[str]:
    """Where things sit in a server of the scenario's build; nothing where it has none."""
    if scenario.host.node == "none":
        return []
    most = max(topology.nodes[gpu].position for gpu in topology.gpus)
    return described(scenario.host.node, most + 1)


MOST_NAMED = 8
"""Devices and keys that a line on an override names."""
LONGEST_VALUE = 40


def overrides(scenario: Scenario, topology: Topology) -> list[str]:
    """A line for each override: what it changes, and where."""
    lines = []
    for place, one in enumerate(scenario.overrides):
        if one.link is not None:
            found = [link.name for link in topology.links if one.names_link(link.name)]
        else:
            found = [node.name for node in topology.nodes if one.names(node.name)]
        of = ", ".join(found[:MOST_NAMED]) or "nothing"
        of += f" and {len(found) - MOST_NAMED:,} more" if len(found) > MOST_NAMED else ""
        keys = list(_changes("", one.parts))
        changes = ", ".join(keys[:MOST_NAMED])
        changes += f" and {counted(len(keys) - MOST_NAMED, 'key')} more" if len(keys) > MOST_NAMED else ""
        lines.append(f"overrides[{place}]: {changes}, of {of}")
    return lines


def _changes(key: str, value: object) -> Iterator[str]:
    """The keys of a part of a section with their values, like `transport.mtu 1024`."""
    if isinstance(value, Mapping) and all(isinstance(name, str) and not name.isdigit() for name in value):
        for name, below in value.items():
            yield from _changes(f"{key}.{name}" if key else name, below)
    else:
        text = json.dumps(value, default=str).replace('"', "")
        yield f"{key} {text if len(text) <= LONGEST_VALUE else f'{text[: LONGEST_VALUE - 3]}...'}"


def paths(topology: Topology, source: str, target: str, most: int) -> View:
    """The devices on the first `most` shortest paths between two NICs; 0 for all."""
    ends = []
    for name in (source, target):
        try:
            node = topology.node_named(name)
        except TopologyError as error:
            raise UsageError(f"--routes {name}: {error}") from error
        if node.role is not Role.NIC:
            raise UsageError(f"--routes {name}: is a {node.role}; accepted: the name of a NIC")
        ends.append(node.number)
    if ends[0] == ends[1]:
        raise UsageError(f"--routes {source} {target}: is one NIC; accepted: two different ones")
    count = count_paths(topology, ends[0], ends[1])
    found = first_paths(topology, ends[0], ends[1], most or count)
    texts = [path_text(topology, ends[0], path) for path in found]
    lines = texts or [f"no path from {source} to {target}"]
    if count > len(texts):
        lines.append(f"and {count - len(texts):,} more of {count:,}; --limit 0 lists them all")
    return View([text.split() for text in texts], "\n".join(lines))


def placement(
    topology: Topology, wanted: str, nodes: str | None = None, planned: PlannedTraffic | None = None
) -> View:
    """Which worker hosts how much of the fabric, how many links that cuts, and how much of what the jobs send
    crosses, if that is known.

    `nodes` has the CPUs of each node of a cluster, with commas: then also on which node each worker lives.
    """
    from emu.cluster.ray.nodes import share_out  # noqa: PLC0415 - see above
    from emu.engine.sync.placement import (  # noqa: PLC0415 - see above
        assign,
        cut_links,
        expected_loads,
        planned_cut,
        workers_of,
    )

    loads = expected_loads(topology)
    if wanted in ("node", "device"):
        assignment = assign(topology, 1, "node" if wanted == "node" else "device", loads)
    elif wanted.isascii() and wanted.isdigit() and len(wanted) < 7:
        assignment = assign(topology, int(wanted), "packed", loads, planned)
    else:
        raise UsageError(f"--placement {wanted[:40]}: is no placement; accepted: {PLACEMENTS}")
    workers: list[dict[str, Any]] = [
        {"worker": worker, "hosts": 0, "gpus": 0, "nics": 0, "switches": 0, "load": 0}
        for worker in range(workers_of(assignment))
    ]
    worker_nodes = share_out(len(workers), _cpus(nodes)) if nodes is not None else []
    for of, home in zip(workers, worker_nodes, strict=False):
        of["node"] = home
    columns = {Role.HOST: "hosts", Role.GPU: "gpus", Role.NIC: "nics", Role.SWITCH: "switches"}
    for node in topology.nodes[:-1]:
        of_worker = workers[assignment[node.number]]
        if node.role in columns:  # NVSwitches stay with their servers, or stand alone
            of_worker[columns[node.role]] += 1
        of_worker["load"] += loads[node.number]
    whole = max(sum(loads), 1)
    rows: list[tuple[str, ...]] = [("worker", "hosts", "GPUs", "NICs", "switches", "load")]
    rows += [
        (
            str(of["worker"]),
            str(of["hosts"]),
            str(of["gpus"]),
            str(of["nics"]),
            str(of["switches"]),
            f"{100 * of['load'] // whole} %",
        )
        for of in workers
    ]
    cuts = cut_links(topology, assignment)
    cut = sum(len(links) for links in cuts.values()) // 2
    share = 100 * cut // max(len(topology.links), 1)
    if worker_nodes:
        rows = [(*row, str(home)) for row, home in zip(rows, ("node", *worker_nodes), strict=True)]
    lines = [
        *aligned(rows, indent=""),
        f"{cut:,} of {counted(len(topology.links), 'link')} are cut ({share} %)",
    ]
    value: dict[str, Any] = {"workers": workers, "cut_links": cut, "links": len(topology.links)}
    if worker_nodes:
        far = sum(len(links) for (a, b), links in cuts.items() if worker_nodes[a] != worker_nodes[b]) // 2
        value["cut_between_nodes"] = far
        lines.append(f"{far:,} of them between nodes")
    if planned is not None and wanted not in ("node", "device"):
        whole_cut = max(sum(planned.links), 1)
        even = assign(topology, int(wanted), "packed", loads)
        cut, even_cut = (100 * planned_cut(topology, one, planned) // whole_cut for one in (assignment, even))
        value |= {"planned_cut_percent": cut, "uniform_planned_cut_percent": even_cut}
        lines.append(
            f"of what the jobs send over links, {cut} % crosses between workers; placed as for uniform"
            f" traffic, {even_cut} %"
        )
    return View(value, "\n".join(lines))


def _cpus(nodes: str) -> list[int]:
    """The CPUs of each node, from e.g. `4,4,8`. Raises UsageError."""
    words = nodes.split(",")
    if not all(word.isascii() and word.isdigit() and 0 < len(word) < 6 and int(word) for word in words):
        raise UsageError(
            f"--nodes {nodes[:40]}: is no list of CPUs; accepted: one number a node, such as 4,4,8"
        )
    return [int(word) for word in words]


def buffers(scenario: Scenario, topology: Topology) -> View:
    """The headroom of every kind of port, and what it leaves of the pool of every kind of switch."""
    from emu.devices.buffer_sizes import (  # noqa: PLC0415 - see above
        asic_of,
        fitting_asic,
        is_deep,
        pool_bytes,
        port_headroom_bytes,
        port_pools_bytes,
        shared_headroom_bytes,
        shared_pool_bytes,
    )

    nodes = topology.nodes
    every: dict[int, None] = {}
    ports: dict[tuple[str, str, int, int, tuple[int, ...], int, int], int] = {}
    pools: dict[tuple[str, int, str, int, int, bool, int, bool], int] = {}
    for switch in topology.switches:
        held = 0
        modular = is_deep(scenario, topology, switch)
        section = scenario.at(topology, switch).switch
        lossless = list(section.pfc.priorities) if section.pfc.enabled else []
        every |= dict.fromkeys(lossless)
        profiles = section.buffer.profiles_of()
        asic = asic_of(scenario, topology, switch)
        box = asic or fitting_asic(topology, switch)
        for end in topology.ports(switch):
            shipped = box.headroom_bytes(end.rate_bps, end.delay_ps)
            sizes = [
                port_headroom_bytes(scenario, topology, switch, end, asic, profiles[priority])
                for priority in lossless
            ]
            held += sum(sizes)
            kind = _kind(topology, switch, end)
            for size in dict.fromkeys(sizes):
                equal = tuple(p for p, other in zip(lossless, sizes, strict=True) if other == size)
                row = *kind, equal, size, shipped
                ports[row] = ports.get(row, 0) + 1
        try:
            if modular:
                shared = min(port_pools_bytes(scenario, topology, switch))
            else:
                shared = shared_pool_bytes(scenario, topology, switch)
        except ScenarioError:
            shared = 0  # headroom takes the whole buffer: a run is refused, the view shows by how much
        together = None if modular or not lossless else shared_headroom_bytes(scenario, topology, switch)
        whole = section.deep_buffer.port_buffer_bytes if modular else pool_bytes(scenario, topology, switch)
        pool = (
            nodes[switch].model,
            len(topology.ports(switch)),
            asic.title if asic is not None else "none",
            whole,
            held if together is None else together,
            together is not None,
            shared,
            modular,
        )
        pools[pool] = pools.get(pool, 0) + 1
    rows = [("port", "ports", "rate", "delay", "priorities", "headroom", "of a box")]
    rows += [
        (
            f"{model} - {peer}",
            str(count),
            about_rate(rate),
            format_time(delay),
            ", ".join(map(str, equal)),
            f"{size:,} B",
            f"{shipped:,} B",
        )
        for (model, peer, rate, delay, equal, size, shipped), count in ports.items()
    ]
    below = [("switch", "each of", "chip", "buffer", "headroom", "shared pool")]
    below += [
        (
            f"{count:,} {model}",
            f"{many} ports",
            chip,
            f"{whole:,} B",
            f"{held:,} B{', shared' if together else ''}",
            f"{shared:,} B{' a port' if modular else ''}" if shared else "none left",
        )
        for (model, many, chip, whole, held, together, shared, modular), count in pools.items()
    ]
    names = ", ".join(map(str, every)) or "none"
    lines = [*aligned(rows, indent=""), ""] if every else []
    lines += [*aligned(below, indent=""), "", *_thresholds(scenario), ""]
    lines += [f"lossless priorities {names}", *_chips(scenario)]
    lines += overrides(scenario, topology)
    if any(modular for *_, modular in pools):
        port_text = format_size(scenario.switch.deep_buffer.port_buffer_bytes)
        share = scenario.switch.deep_buffer.alpha
        lines.append(f"modular switches: {port_text} for each port, XOFF {share} x what is left of it")
    if scenario.credited:
        room_text = format_size(scenario.link.credits.buffer_bytes)
        lines = [f"links have credits: {room_text} per port and virtual lane; there is no headroom"]
    value = {
        "ports": [
            {
                "switch": model,
                "peer": peer,
                "rate_bps": rate,
                "delay_ps": delay,
                "priorities": list(equal),
                "headroom_bytes": size,
                "shipped_headroom_bytes": shipped,
                "ports": count,
            }
            for (model, peer, rate, delay, equal, size, shipped), count in ports.items()
        ],
        "switches": [
            {
                "switch": model,
                "ports": many,
                "chip": chip,
                "buffer_bytes": whole,
                "headroom_bytes": held,
                "headroom_shared": together,
                "shared_bytes": shared,
                "per_port": modular,
                "switches": count,
            }
            for (model, many, chip, whole, held, together, shared, modular), count in pools.items()
        ],
    }
    return View(value, "\n".join(lines))


def _thresholds(scenario: Scenario) -> list[str]:
    """What stops a priority group, one line for each profile."""
    buffer = scenario.switch.buffer
    lines = []
    for profile in (buffer, *buffer.profiles):
        who = "other groups" if buffer.profiles else "each group"
        if isinstance(profile, GroupProfile):
            groups = "groups" if len(profile.priorities) > 1 else "group"
            who = f"{groups} {', '.join(map(str, profile.priorities))}"
        xoff = f"{profile.alpha} x (shared pool - used)"
        if profile.xoff_bytes is not None:
            xoff = f"{profile.xoff_bytes:,} B"
        lines.append(f"{who}: reserve {profile.reserve_bytes:,} B, XOFF {xoff}")
    return [*lines[1:], lines[0]]


def _chips(scenario: Scenario) -> list[str]:
    """By what `headroom: auto` goes, where no override says otherwise."""
    buffer = scenario.switch.buffer
    if all(one.headroom_bytes is not None for one in (buffer, *buffer.profiles)):
        return []
    how = {
        "auto": "what boxes ship with the smallest chip for the ports",
        "none": "the bytes with which a port here loses nothing",
    }.get(buffer.asic, "what its boxes ship")
    if buffer.asic == "auto" and buffer.pool_bytes is not None:
        how = "none, since a pool is given: the bytes with which a port here loses nothing"
    return [f"headroom auto goes by switch.buffer.asic: {buffer.asic}, {how}"]


def _kind(topology: Topology, switch: int, end: Attachment) -> tuple[str, str, int, int]:
    """What tells one port's headroom from another's."""
    nodes = topology.nodes
    return nodes[switch].model, nodes[end.peer].model, end.rate_bps, end.delay_ps
