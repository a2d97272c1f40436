"""What the network did: busy, paused and uneven links, and what was lost.

Worked out from the counters of all devices at the end of the run and from the topology. A link has two
directions and each is a row; what a direction carried is what its sending port counted, and what it was
paused for is how long the *sending* port was stopped by its peer; where links have credits, how long it
waited for them.

Imbalance. A switch's uplinks are its ports to switches of a higher tier. The load of a member is the payload
it sent; `max_over_mean` is the fullest member over the mean of all, idle ones included, so four flows on four
of eight uplinks give 2. Acknowledgements are left out: they are small, and hashed on other fields. Equal-cost
groups that do not lead up (parallel links, ways down or across) are rows of their own.

Utilisation counts preamble and inter-frame gap, but not PFC frames, which no counter of bytes includes. It,
rates and paused shares are over the time in which jobs ran: init of the management network before the first
operation and the delay of the last report are no time in which a link could have been busier.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from actors.fabric.model import Role, Topology
from actors.fabric.routes import routes
from actors.kernel.counters import (
    BUFFER_PEAK_BYTES,
    DEVICE_METRICS,
    NIC_DELIVERED_BYTES,
    NIC_LOCAL_ACK_TIMEOUT_ERR,
    NIC_OUT_OF_SEQUENCE,
    NIC_RETRANSMITTED_FRAMES,
    NIC_RNR_NAK_RETRY_ERR,
    PFC_PAUSED_PS,
    PFC_TRANSMIT_XOFF_FRAMES,
    PFC_TRANSMIT_XON_FRAMES,
    PORT_TRANSMIT_BYTES,
    PORT_TRANSMIT_PAYLOAD_BYTES,
    PORT_TRANSMIT_WAIT_PS,
    QUEUE_MARKED_FRAMES,
    TE_ENTRIES,
    TE_ENTRIES_REFUSED,
    TE_ENTRIES_WITHDRAWN,
    TE_INSTALLS,
    TE_MATCHED_FRAMES,
    TE_ROUNDS,
    TE_UNPLACED_DEMANDS,
    Kind,
)
from actors.kernel.units import BIT_PS_PER_BYTE
from emu.counts.collected import DROPPED, LINK_DOWN, DeviceRecord, FaultPlan, Sample
from emu.counts.counts import Counts
from emu.results.metrics import CONGESTION_REASONS
from emu.results.summary import (
    Drops,
    Engineering,
    Fabric,
    FaultEffect,
    GroupLoad,
    Job,
    Link,
    Plane,
    SpanRates,
    Tier,
)
from emu.summary.jobs import DISABLED, SUCCESS
from emu.topology.fabric_blocks import plane_word, planes


def share(part: int, whole: int) -> float:
    """Part / whole to six decimals; 0 of nothing."""
    return round(part / whole, 6) if whole else 0.0


def most_over_mean(loads: Sequence[float]) -> float | None:
    """The largest over the mean, idle ones included; None of nothing."""
    total = sum(loads)
    return round(max(loads) * len(loads) / total, 6) if total else None


def drops_of(counts: Counts) -> Drops:
    """Frames dropped, by reason."""
    by_reason = dict(sorted(counts.of_reason.items()))
    congestion = sum(number for reason, number in by_reason.items() if reason in CONGESTION_REASONS)
    return Drops(total=sum(by_reason.values()), congestion=congestion, by_reason=by_reason)


def ran_ps(jobs: Iterable[Job], virtual_ps: int, *, repeat: bool) -> int:
    """How long some job ran. One that did not end well counts to the end of the run, since its queue pairs
    go on sending, and from its begin if nothing of it ended; jobs that repeat count to the end too.
    """
    spans = sorted(
        (
            job.start_ps or 0,
            virtual_ps if job.end_ps is None or job.status != SUCCESS or repeat else job.end_ps,
        )
        for job in jobs
        if job.status != DISABLED
    )
    found_ps = until_ps = 0
    for begin_ps, end_ps in spans:
        found_ps += max(end_ps - max(begin_ps, until_ps), 0)
        until_ps = max(until_ps, end_ps)
    return found_ps


_OF_LINK: Final = (PORT_TRANSMIT_PAYLOAD_BYTES, PORT_TRANSMIT_BYTES, PFC_PAUSED_PS, PORT_TRANSMIT_WAIT_PS)
_NOTHING: Final = (0, 0, 0, 0)


def link_rows(topology: Topology, counts: Counts, ran: int, *, by_rates: bool = False) -> Iterator[Link]:
    """Both directions of every fabric link, over the time `ran` in which jobs did, in ps; without links
    between two devices that counted nothing. A run `by_rates` knows of no pauses."""
    names = [node.name for node in topology.nodes]
    counted = {device: counts.of_ports(_OF_LINK, device, most=2) for device in counts.busy}
    for link in topology.links:
        if link.kind != "fabric" or (link.a not in counted and link.b not in counted):
            continue
        for sender, port, receiver in ((link.a, link.a_port, link.b), (link.b, link.b_port, link.a)):
            ports = counted.get(sender, ())
            data_bytes, wire_bytes, stopped_ps, waited_ps = ports[port] if port < len(ports) else _NOTHING
            paused_ps = None if by_rates else stopped_ps + waited_ps  # one of them is 0
            yield Link(
                source=names[sender],
                destination=names[receiver],
                name=link.name,
                data_bytes=data_bytes,
                wire_bytes=wire_bytes,
                utilisation=share(wire_bytes * BIT_PS_PER_BYTE, link.rate_bps * ran),
                paused=None if paused_ps is None else share(paused_ps, ran),
                paused_ps=paused_ps,
            )


def uplink_ports(topology: Topology, switch: int) -> list[int]:
    """The ports of a switch that lead to a switch of a higher tier, in port order."""
    tier = topology.nodes[switch].tier
    return [
        port
        for port, end in enumerate(topology.ports(switch))
        if topology.nodes[end.peer].role is Role.SWITCH and topology.nodes[end.peer].tier > tier
    ]


def uplink_rows(topology: Topology, counts: Counts) -> Iterator[GroupLoad]:
    """The imbalance of every switch with two uplinks or more that counted something."""
    for switch in topology.switches:
        if switch not in counts.busy:
            continue
        ports = uplink_ports(topology, switch)
        if len(ports) > 1:
            yield _load_of(topology, counts, switch, ports)


def other_group_rows(topology: Topology, counts: Counts) -> Iterator[GroupLoad]:
    """The imbalance of every other equal-cost group that carried payload, by switch and first member."""
    for switch in topology.switches:
        if switch not in counts.busy:
            continue
        loaded = {
            port
            for port in range(len(topology.ports(switch)))
            if counts.port(PORT_TRANSMIT_PAYLOAD_BYTES, switch, port)
        }
        if not loaded:
            continue
        up = tuple(uplink_ports(topology, switch))
        for ports in sorted(dict.fromkeys(routes(topology).groups(switch))):
            if len(ports) > 1 and ports != up and not loaded.isdisjoint(ports):
                yield _load_of(topology, counts, switch, ports)


def with_flows(topology: Topology, row: GroupLoad, counts: Mapping[tuple[int, int], int]) -> GroupLoad:
    """The row of a switch's uplinks with how many queue pairs hashes lead to each, and MMR."""
    switch = topology.node_named(row.switch).number
    flows = [counts.get((switch, port), 0) for port in uplink_ports(topology, switch)]
    return row.model_copy(update={"flows": flows, "flows_max_over_mean": most_over_mean(flows)})


def _load_of(topology: Topology, counts: Counts, switch: int, ports: Sequence[int]) -> GroupLoad:
    loads = [counts.port(PORT_TRANSMIT_PAYLOAD_BYTES, switch, port) for port in ports]
    return GroupLoad(
        switch=topology.nodes[switch].name,
        members=len(loads),
        idle=loads.count(0),
        data_bytes=sum(loads),
        max_over_mean=most_over_mean(loads),
        towards=[topology.nodes[topology.ports(switch)[port].peer].name for port in ports],
        loads=loads,
    )


def tier_rows(topology: Topology, counts: Counts, ran: int) -> list[Tier]:
    """Payload, rates and pauses up and down, for each tier that has links below it, over the time `ran`."""
    up: dict[int, list[int]] = {}
    down: dict[int, list[int]] = {}
    counted = {device: counts.of_ports(_OF_TIER, device) for device in counts.busy}
    for link in topology.links:
        low, high = topology.nodes[link.a], topology.nodes[link.b]
        if link.kind != "fabric" or low.tier == high.tier:
            continue
        low_port, high_port = link.a_port, link.b_port
        if low.tier > high.tier:
            low, high, low_port, high_port = high, low, high_port, low_port
        for found, node, port in ((up, low.number, low_port), (down, high.number, high_port)):
            sums = found.setdefault(high.tier, [0] * (len(_OF_TIER) + 1))
            sums[-1] += link.rate_bps
            ports = counted.get(node, ())
            if port < len(ports):
                for at, value in enumerate(ports[port]):
                    sums[at] += value
    return [
        Tier(
            tier=tier,
            up_bytes=up[tier][0],
            down_bytes=down[tier][0],
            up_bps=_rate_bps(up[tier][0], ran),
            down_bps=_rate_bps(down[tier][0], ran),
            up_utilisation=share(up[tier][1] * BIT_PS_PER_BYTE, up[tier][-1] * ran),
            down_utilisation=share(down[tier][1] * BIT_PS_PER_BYTE, down[tier][-1] * ran),
            up_xoff_frames=up[tier][2],
            down_xoff_frames=down[tier][2],
        )
        for tier in sorted(up)
    ]


def plane_rows(topology: Topology, counts: Counts, ran: int) -> list[Plane]:
    """What NICs and each plane exchanged, over the time `ran`; nothing of a fabric in one piece."""
    nodes = topology.nodes
    of_switch = {at: plane for at, plane in planes(topology).items() if nodes[at].network == "backend"}
    numbers = sorted(dict.fromkeys(of_switch.values()))
    if len(numbers) < 2 or plane_word(topology) != "plane":
        return []
    metrics = (*_OF_TIER, DROPPED)
    up: dict[int, list[int]] = {plane: [0] * (len(metrics) + 1) for plane in numbers}
    down_bytes = dict.fromkeys(numbers, 0)
    for nic in topology.nics:
        for port, end in enumerate(topology.ports(nic)):
            if end.peer not in of_switch:
                continue
            plane = of_switch[end.peer]
            for at, metric in enumerate(metrics):
                up[plane][at] += counts.port(metric, nic, port)
            up[plane][-1] += end.rate_bps
            down_bytes[plane] += counts.port(PORT_TRANSMIT_PAYLOAD_BYTES, end.peer, end.peer_port)
    for switch, plane in of_switch.items():
        for port in range(-1, len(topology.ports(switch))):
            up[plane][2] += counts.port(PFC_TRANSMIT_XOFF_FRAMES, switch, port)
            up[plane][3] += counts.port(DROPPED, switch, port)
    switches = list(of_switch.values())
    return [
        Plane(
            plane=place,
            switches=switches.count(plane),
            up_bytes=up[plane][0],
            down_bytes=down_bytes[plane],
            up_bps=_rate_bps(up[plane][0], ran),
            up_utilisation=share(up[plane][1] * BIT_PS_PER_BYTE, up[plane][-1] * ran),
            drops=up[plane][3],
            xoff_frames=up[plane][2],
        )
        for place, plane in enumerate(numbers)
    ]


def span_rates(
    topology: Topology,
    records: Sequence[DeviceRecord],
    samples: Sequence[Sample],
    span_ps: tuple[int, int],
    virtual_ps: int,
) -> SpanRates | None:
    """Rates from one time to another, or to the end of the run; None if that was before. `samples` are of
    both times, by time; before the first nothing was counted.
    """
    from_ps, until_ps = span_ps[0], min(span_ps[1], virtual_ps)
    if until_ps <= from_ps:
        return None
    begin: Mapping[int, Sequence[int]] = {}
    end = {record.number: record.counters for record in records}
    for sample in samples:
        if sample.virtual_ps <= from_ps:
            begin = sample.counters
        if until_ps == span_ps[1] and sample.virtual_ps <= until_ps:
            end |= sample.counters
    grown = [
        record._replace(
            counters=[late - early for late, early in zip(end[record.number], before, strict=True)]
        )
        for record in records
        for before in (begin.get(record.number) or [0] * len(record.counters),)
    ]
    counts = Counts(grown)
    return SpanRates(
        from_ps=from_ps,
        until_ps=until_ps,
        delivered_bps=_rate_bps(counts.total(NIC_DELIVERED_BYTES), until_ps - from_ps),
        tiers=tier_rows(topology, counts, until_ps - from_ps),
    )


_OF_TIER: Final = (PORT_TRANSMIT_PAYLOAD_BYTES, PORT_TRANSMIT_BYTES, PFC_TRANSMIT_XOFF_FRAMES)
SPAN_METRICS: Final = (*_OF_TIER, NIC_DELIVERED_BYTES)
"""What a span takes of the samples at both its ends."""


def _rate_bps(size_bytes: int, time_ps: int) -> int:
    return size_bytes * BIT_PS_PER_BYTE // time_ps if time_ps else 0


def engineering_of(counts: Counts) -> Engineering | None:
    """What traffic engineering did; None where nobody counts rounds."""
    if TE_ROUNDS not in counts.of_metric:
        return None
    return Engineering(
        rounds=counts.total(TE_ROUNDS),
        installs=counts.total(TE_INSTALLS),
        unplaced=counts.total(TE_UNPLACED_DEMANDS),
        entries=counts.total(TE_ENTRIES),
        matched_frames=counts.total(TE_MATCHED_FRAMES),
        withdrawn=counts.total(TE_ENTRIES_WITHDRAWN),
        refused=counts.total(TE_ENTRIES_REFUSED),
    )


UNKNOWN: Final = (
    "drops",
    "out_of_order",
    PFC_TRANSMIT_XOFF_FRAMES,
    PFC_TRANSMIT_XON_FRAMES,
    PFC_PAUSED_PS,
    QUEUE_MARKED_FRAMES,
    NIC_RETRANSMITTED_FRAMES,
    NIC_OUT_OF_SEQUENCE,
    NIC_LOCAL_ACK_TIMEOUT_ERR,
    NIC_RNR_NAK_RETRY_ERR,
    BUFFER_PEAK_BYTES,
)
"""What flow level does not know of the fabric; of a link how long it was paused, of a tier its pauses, of a
plane its pauses and drops."""


def known_to_flows(fabric: Fabric) -> Fabric:
    """The section, whose links know no pauses, as flow level has it: what it does not know is null."""
    tiers = [
        tier.model_copy(update={"up_xoff_frames": None, "down_xoff_frames": None}) for tier in fabric.tiers
    ]
    rows = [plane.model_copy(update={"drops": None, "xoff_frames": None}) for plane in fabric.planes]
    return fabric.model_copy(update=dict.fromkeys(UNKNOWN) | {"tiers": tiers, "planes": rows})


TOTALS: Final = tuple(
    one for one in DEVICE_METRICS if one.kind is Kind.COUNTER and one.key in Fabric.model_fields
)
"""What the section has of the whole fabric: its fields that are called as a counter."""


def fabric_of(topology: Topology, counts: Counts, ran: int, *, by_rates: bool = False) -> Fabric:
    """The whole section `fabric` of the summary; `ran` is how long some job did, in ps."""
    peak_bytes, peak_switch = counts.peak(BUFFER_PEAK_BYTES)
    uplinks = list(uplink_rows(topology, counts))
    used = [row for row in uplinks if row.max_over_mean is not None]
    totals: dict[str, Any] = {one.key: counts.total(one) for one in TOTALS}
    return Fabric(
        drops=drops_of(counts),
        **totals,
        buffer_peak_bytes=peak_bytes,
        buffer_peak_switch=topology.nodes[peak_switch].name if peak_switch >= 0 else None,
        links=list(link_rows(topology, counts, ran, by_rates=by_rates)),
        uplinks=uplinks,
        groups=list(other_group_rows(topology, counts)),
        tiers=tier_rows(topology, counts, ran),
        planes=plane_rows(topology, counts, ran),
        ran_ps=ran,
        worst_max_over_mean=max((row.max_over_mean or 0.0 for row in used), default=None),
        delivered_bytes=counts.total(NIC_DELIVERED_BYTES),
        idle_uplinks=sum(row.idle for row in used),
        engineering=engineering_of(counts),
    )


class LinkLosses:
    """How many frames each link had lost to being down, at the sampled sync points and at the end."""

    def __init__(
        self, topology: Topology, records: Sequence[DeviceRecord], samples: Iterable[Sample]
    ) -> None:
        self._topology = topology
        self._series = {record.number: record.series for record in records}
        self._at_end = {record.number: record.counters for record in records}
        self._samples = {sample.virtual_ps: sample.counters for sample in samples}

    def at_end(self, link_number: int) -> int:
        """Losses of the whole run."""
        return self._sum(link_number, self._at_end)

    def in_span(self, link_number: int, from_ps: int, until_ps: int) -> int | None:
        """Losses up to the last sample of from_ps <= t <= until_ps; None if there is no sample in it."""
        times = [at_ps for at_ps in self._samples if from_ps <= at_ps <= until_ps]
        return self._sum(link_number, self._samples[max(times)]) if times else None

    def _sum(self, link_number: int, counters: Mapping[int, Sequence[int]]) -> int:
        link = self._topology.links[link_number]
        return sum(
            counters[device][place]
            for device, port in ((link.a, link.a_port), (link.b, link.b_port))
            for place, series in enumerate(self._series.get(device, ()))
            if series.port == port and series.metric == DROPPED and series.reason == LINK_DOWN
            if device in counters
        )


def losses_by_fault(faults: Sequence[FaultPlan], losses: LinkLosses) -> list[int]:
    """Frames that the links of each fault lost because of it.

    Where one link has several faults, a sample between the end of one and the beginning of the next tells
    their losses apart. Where there is none, the earlier one has them all.
    """
    lost = [0] * len(faults)
    links = dict.fromkeys(link for fault in faults for link in fault.links)
    for link in links:
        numbers = [at for at, fault in enumerate(faults) if link in fault.links and fault.takes_down]
        numbers.sort(key=lambda at: (faults[at].at_ps, at))
        total = losses.at_end(link)
        for place in reversed(range(len(numbers))):
            fault = faults[numbers[place]]
            before = 0
            if place > 0:
                earlier = faults[numbers[place - 1]]
                ended_ps = earlier.at_ps if earlier.until_ps is None else earlier.until_ps
                known = losses.in_span(link, ended_ps, fault.at_ps)
                before = total if known is None else known
            lost[numbers[place]] += total - before
            total = before
    return lost


def fault_rows(faults: Sequence[FaultPlan], losses: LinkLosses, virtual_ps: int) -> list[FaultEffect]:
    """What each fault did, in the order of the scenario."""
    return [
        FaultEffect(
            kind=fault.kind,
            target=fault.target,
            at_ps=fault.at_ps,
            until_ps=fault.until_ps,
            happened=bool(times),
            times=times,
            frames_lost=lost,
        )
        for fault, lost in zip(faults, losses_by_fault(faults, losses), strict=True)
        for times in (_times(fault, virtual_ps),)
    ]


def _times(fault: FaultPlan, virtual_ps: int) -> int:
    """How often a fault began in a run that ended then."""
    begins_ps = (fault.at_ps,) if fault.begins_ps is None else fault.begins_ps
    return sum(at_ps < virtual_ps for at_ps in begins_ps)


def idle_nics(topology: Topology, gpus: Sequence[int], links: Sequence[Link]) -> str:
    """In words, which NICs of a job's servers carried nothing; "" for a job within one server."""
    busy = {name for one in links if one.data_bytes for name in (one.source, one.destination)}
    of_server: dict[int, list[str]] = {}
    for gpu in gpus:
        names = [topology.nodes[nic].name for nic in topology.nics_of_gpu(gpu)]
        known = of_server.setdefault(topology.host_of(gpu), [])
        known += [name for name in names if name not in known]
    if len(of_server) < 2:
        return ""
    idle = {host: [name for name in names if name not in busy] for host, names in of_server.items()}
    host = max(idle, key=lambda one: len(idle[one]))
    if not idle[host]:
        return ""
    others = sum(bool(names) for names in idle.values()) - 1
    more = (
        f"; {others} other {'server has' if others == 1 else 'servers have'} idle NICs too" if others else ""
    )
    count = f"{len(idle[host])} of {len(of_server[host])} NICs of {topology.nodes[host].name}"
    return f"{count} carried nothing: {', '.join(idle[host])}{more}"
