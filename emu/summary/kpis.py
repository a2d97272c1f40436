"""Figures of acceptance tests: of jobs from their calls, of flows and faults from samples over time.

    B_acc           NICs of a server over the job's ranks there, the least; in one server a GPU's NVLinks
    roofline        computing + sum of 8 S f / B_acc over the calls, each for the ranks that call it
    JCT ratio       JCT / roofline
    overlap         1 - (JCT - computing) / time of the calls
    JFI             (sum x)^2 / (N sum x^2) over the throughputs x of flows
    interference    JCT beside the other jobs / JCT by itself
    convergence     from the last begin of a flow until each NIC's rate a flow is within 10 % of the mean
    loss time       from a fault's begin to the last sample in which its links lost frames

JCT of a job in steps is the time of its steps; of a benchmark, of its timed operations. f is that of busbw.
Of transfers the sender's half counts. A job's calls follow one another in the roofline; where those of
several groups run at a time, each counts for the ranks that are in it.

Source: draft-calabria-bmwg-ai-fabric-training-bench, sections on KPIs, DCQCN convergence and failures; Jain
et al., DEC-TR-301 (1984).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Final

from actors.fabric.model import FABRIC, Topology
from actors.kernel.counters import PORT_TRANSMIT_BYTES, Metric
from actors.kernel.units import BIT_PS_PER_BYTE
from emu.counts.collected import DROPPED, LINK_DOWN, Changed, DeviceRecord, FaultPlan, JobPlan
from emu.results.busbw import bus_factor
from emu.results.summary import Collective, Convergence, Job, Kpis
from emu.summary.jobs import SUCCESS, planned_bytes

WITHIN: Final = 0.1
RECEIVE: Final = "recv"


def jain(rates: Sequence[float]) -> float | None:
    """Jain's fairness index, from 1 / N to 1; None where nothing moved."""
    squares = sum(rate * rate for rate in rates)
    return round(sum(rates) ** 2 / (len(rates) * squares), 6) if squares else None


def accelerator_bps(plan: JobPlan, topology: Topology) -> int | None:
    """B_acc of a job; None of one without GPUs."""
    of_host: dict[int, list[int]] = {}
    for gpu in plan.gpus:
        of_host.setdefault(topology.host_of(gpu), []).append(gpu)
    if not of_host:
        return None
    if len(of_host) == 1:
        return _nvlink_bps(plan, topology) or _nics_bps(plan.gpus, topology)
    return min(_nics_bps(gpus, topology) for gpus in of_host.values())


def _nvlink_bps(plan: JobPlan, topology: Topology) -> int | None:
    end = topology.nvlink_end(plan.gpus[0])
    return None if end is None else end.rate_bps


def _nics_bps(gpus: Sequence[int], topology: Topology) -> int:
    """What the NICs of these GPUs of a server send, over them."""
    nics = dict.fromkeys(nic for gpu in gpus for nic in topology.nics_of_gpu(gpu))
    total = sum(end.rate_bps for nic in nics for end in topology.ports(nic) if end.kind == FABRIC)
    return total // len(gpus)


def job_kpis(plan: JobPlan, job: Job, topology: Topology) -> Kpis | None:
    """Those that need no other run; None of a job that did not end well."""
    if job.status != SUCCESS:
        return None
    rates = [flow.throughput_bps for flow in job.flows if flow.throughput_bps]
    found = Kpis(
        accelerator_bps=accelerator_bps(plan, topology),
        jain=jain(rates) if rates and len(rates) == len(job.flows) else None,
    )
    timed = all(_time_ps(one) is not None for one in job.collectives)
    if not found.accelerator_bps or not job.collectives or not timed:
        return found
    weights = _weights(plan, job)
    wire_ps = sum(
        weight * _wire_ps(one, _bps(plan, one, topology) or found.accelerator_bps)
        for one, weight in zip(job.collectives, weights, strict=True)
    )
    calls_ps = sum(
        weight * (_time_ps(one) or 0) for one, weight in zip(job.collectives, weights, strict=True)
    )
    training = job.training
    steps, computing_ps, jct_ps = 0, 0.0, calls_ps
    if training is not None:
        if training.step_ps is None or training.compute is None:
            return found
        steps, jct_ps = training.steps, float(training.steps * training.step_ps)
        computing_ps = jct_ps * training.compute
    roofline_ps = computing_ps + wire_ps
    exposed_ps = jct_ps - computing_ps
    return found.model_copy(
        update={
            "jct_ps": round(jct_ps),
            "roofline_ps": round(roofline_ps),
            "jct_ratio": round(jct_ps / roofline_ps, 6) if roofline_ps else None,
            "exposed_ps": round(exposed_ps / steps) if steps else None,
            "overlap": round(1 - exposed_ps / calls_ps, 6) + 0.0 if steps and calls_ps else None,
        }
    )


def _time_ps(one: Collective) -> int | None:
    return None if one.start_ps is None or one.end_ps is None else one.end_ps - one.start_ps


def _weights(plan: JobPlan, job: Job) -> list[float]:
    """Which share of the job's ranks each row is a call of."""
    benchmark = len(job.collectives) - len(plan.calls)
    shares = [0.0 if one.op == RECEIVE else one.callers / plan.ranks for one in plan.calls]
    return [1.0] * benchmark + shares


def _wire_ps(one: Collective, rate_bps: int) -> float:
    """S f / B_acc."""
    return one.bytes * BIT_PS_PER_BYTE * float(bus_factor(one.op, one.ranks)) / rate_bps


def _bps(plan: JobPlan, one: Collective, topology: Topology) -> int | None:
    """What NVLinks carry, of a call all of whose groups are in one server each; else None."""
    groups = [group for group in plan.groups if group.name == one.communicator and not group.points]
    if not groups or not all(
        len({topology.host_of(plan.gpus[rank]) for rank in group.ranks}) == 1 for group in groups
    ):
        return None
    return _nvlink_bps(plan, topology)


def derived_bytes(plans: Sequence[JobPlan]) -> int:
    """S_fabric as it is derived: S x f for each rank of each call, and the bytes of flows."""
    total = planned_bytes(plans)
    for plan in plans:
        for one in plan.calls if plan.enabled else ():
            factor = bus_factor(one.op, one.ranks) * (0 if one.op == RECEIVE else one.callers)
            total += one.size_bytes * factor.numerator // factor.denominator
    return total


# ---- from samples

Line = tuple[Metric, str]
"""A metric, and the one reason that counts; empty: any."""


class _Lines:
    """Sums of some counters, followed from sample to sample."""

    def __init__(
        self, records: Iterable[DeviceRecord], ports: Mapping[tuple[int, int], int], line: Line
    ) -> None:
        """`ports`: by device and port, to which sum they belong."""
        metric, reason = line
        self.sums = [0] * (max(ports.values(), default=-1) + 1)
        self._values: dict[tuple[int, int], int] = {}
        self._of: dict[tuple[int, int], int] = {}
        for record in records:
            for place, series in enumerate(record.series):
                number = ports.get((record.number, series.port))
                if number is not None and series.metric == metric and reason in ("", series.reason):
                    self._of[record.number, place] = number

    def take(self, sample: Changed) -> list[int]:
        """The sums at a sample."""
        for device, flat in sample.changed.items():
            for place, value in zip(flat[::2], flat[1::2], strict=True):
                number = self._of.get((device, place))
                if number is not None:
                    self.sums[number] += value - self._values.get((device, place), 0)
                    self._values[device, place] = value
        return list(self.sums)


def convergence_of(
    topology: Topology,
    plans: Sequence[JobPlan],
    jobs: Mapping[str, Job],
    records: Sequence[DeviceRecord],
    history: Iterable[Changed],
) -> Convergence | None:
    """When the rates of all flows had come within a tenth of their mean; None without flows."""
    flows = [flow for plan in plans if plan.enabled for flow in jobs[plan.name].flows]
    if not flows or any(flow.start_ps is None for flow in flows):
        return None
    since_ps = max(flow.start_ps or 0 for flow in flows)
    until_ps = min((flow.delivered_ps for flow in flows if flow.delivered_ps is not None), default=None)
    names = list(dict.fromkeys(flow.source for flow in flows))
    each = [sum(flow.source == name for flow in flows) for name in names]
    ports = {
        (nic, port): number
        for number, nic in enumerate(topology.node_named(name).number for name in names)
        for port, end in enumerate(topology.ports(nic))
        if end.kind == FABRIC
    }
    sent = _Lines(records, ports, (PORT_TRANSMIT_BYTES, ""))
    took_ps: int | None = None
    before_ps, before = 0, list(sent.sums)
    within_ps = judged_ps = 0
    for sample in history:
        now = sent.take(sample)
        if since_ps <= before_ps < sample.virtual_ps <= (until_ps or sample.virtual_ps):
            rates = [(late - early) / count for late, early, count in zip(now, before, each, strict=True)]
            mean = sum(rates) / len(rates)
            close = mean > 0 and all(abs(rate - mean) <= WITHIN * mean for rate in rates)
            if close and took_ps is None:
                took_ps = sample.virtual_ps - since_ps
            if took_ps is not None:
                judged_ps += sample.virtual_ps - before_ps
                within_ps += close * (sample.virtual_ps - before_ps)
        before_ps, before = sample.virtual_ps, now
    return Convergence(
        flows=len(flows),
        since_ps=since_ps,
        took_ps=took_ps,
        held=round(within_ps / judged_ps, 6) if judged_ps else None,
    )


def loss_times(
    topology: Topology,
    faults: Sequence[FaultPlan],
    records: Sequence[DeviceRecord],
    history: Iterable[Changed],
    virtual_ps: int,
) -> list[int]:
    """For how long each fault lost frames of links that were down, to the end of the last such sample."""
    ports: dict[tuple[int, int], int] = {}
    numbers = {
        link: place for place, link in enumerate(dict.fromkeys(x for one in faults for x in one.links))
    }
    for link, place in numbers.items():
        at = topology.links[link]
        ports |= {(at.a, at.a_port): place, (at.b, at.b_port): place}
    lost = _Lines(records, ports, (DROPPED, LINK_DOWN))
    found = [0] * len(faults)
    last = {record.number: [x for pair in enumerate(record.counters) for x in pair] for record in records}
    before = list(lost.sums)
    for sample in chain(history, [Changed(virtual_ps, last)]):
        now = lost.take(sample)
        for number, fault in enumerate(faults):
            grew = any(now[numbers[link]] > before[numbers[link]] for link in fault.links)
            if fault.takes_down and grew and sample.virtual_ps > fault.at_ps:
                found[number] = sample.virtual_ps - fault.at_ps
        before = now
    return found
