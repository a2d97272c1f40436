"""What the jobs did: begin and end of each operation and flow.

The controller reports operations, hosts report flows (posted, completed), NICs log deliveries. All of them
are rows of integers that refer to the plan by number; here they meet it. Two times are kept apart:
*delivered* (last byte at the receiver) and *completed* (completion at the sender).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Final

from actors.gpu.memory import GROUP_MEMORIES
from actors.wire.message import (
    STATUS_FLUSHED,
    STATUS_GPU_LOST,
    STATUS_HOST_LOST,
    STATUS_NOT_SENDING,
    STATUS_REMOTE_ACCESS,
    STATUS_REMOTE_INVALID,
    STATUS_REMOTE_OPERATION,
    STATUS_RETRY_EXCEEDED,
    STATUS_RNR_RETRY_EXCEEDED,
    STATUS_SUCCESS,
    STATUS_TIMED_OUT,
)
from emu.counts.collected import DeviceRecord, FlowPlan, JobPlan
from emu.results.busbw import bandwidth_bps, bus_factor
from emu.results.job_facts import JobRows, Outcome
from emu.results.percentiles import FlowTimes, percentiles
from emu.results.planned_rows import CallPlan, CollectivePlan
from emu.results.summary import (
    ClearToSends,
    Collective,
    Flow,
    Init,
    Job,
    init_result,
)

MOST_NAMED: Final = 16
"""Ranks that a row names."""
SUCCESS: Final = "success"
UNFINISHED: Final = "unfinished"
DISABLED: Final = "disabled"
STATUS_NAMES: Final = {
    STATUS_SUCCESS: SUCCESS,
    STATUS_RETRY_EXCEEDED: "retry_exceeded",
    STATUS_RNR_RETRY_EXCEEDED: "rnr_retry_exceeded",
    STATUS_FLUSHED: "flushed",
    STATUS_GPU_LOST: "gpu_lost",
    STATUS_HOST_LOST: "host_lost",
    STATUS_NOT_SENDING: "local_qp_operation_error",
    STATUS_REMOTE_INVALID: "remote_invalid_request",
    STATUS_REMOTE_ACCESS: "remote_access_error",
    STATUS_REMOTE_OPERATION: "remote_operation_error",
    STATUS_TIMED_OUT: "timed_out",
}


def status_name(status: int) -> str:
    """A completion's status in words."""
    return STATUS_NAMES.get(status, f"status_{status}")


class Reported:
    """What all devices reported, by the plan's numbers."""

    def __init__(self, records: Iterable[DeviceRecord], plans: Sequence[JobPlan] = ()) -> None:
        tended = [(one, plan.job) for plan in plans if plan.tended for one in plan.tended.incarnations]
        self._job = dict(tended)
        """The job that each became after a restart."""
        self.operations: dict[int, dict[int, Outcome]] = {}
        """By job and number."""
        self.done: dict[int, int] = {}
        """How many operations of a job have ended."""
        self.flows: dict[tuple[int, int], Outcome] = {}
        self.steps: dict[int, list[Sequence[int]]] = {}
        """By job: rank, step, begin, end, compute, waits by reason."""
        self.calls: dict[tuple[int, int, int], dict[int, Outcome]] = {}
        """(job, step, label): by rank that is through with it."""
        self.inits: dict[int, Init] = {}
        """By job."""
        self.delivered_ps: dict[tuple[int, int], list[tuple[int, int]]] = {}
        """(NIC, QP index): number of a message and when, in order; the latest only, where a job repeats."""
        self.compared: dict[tuple[int, int], tuple[int, int]] = {}
        """(job, operation): elements that came out wrong, and elements compared, over all ranks."""
        self.wrong_at: dict[tuple[int, int], list[int]] = {}
        """(job, operation): the memories that have wrong elements."""
        self.cts_waits: dict[tuple[int, int], dict[int, int]] = {}
        """(job, operation): how many clear-to-sends waited so long."""
        self.clients: dict[int, list[Outcome]] = {}
        """By job: clients of storage that are through."""
        self.staged: dict[int, int] = {}
        """By job: how long the last of them took until it asked."""
        self.requests: dict[int, list[Sequence[int]]] = {}
        """By job: kind, answered, ps in all, ps at most, refused."""
        for record in [one for one in records if one.results]:
            for job, _, start_ps, asked_ps, end_ps, status in record.results.get("clients", ()):
                self.clients.setdefault(job, []).append(Outcome(start_ps, end_ps, status))
                staged_ps = max(self.staged.get(job, 0), asked_ps - start_ps)
                self.staged[job] = staged_ps
            for job, *request in record.results.get("requests", ()):
                self.requests.setdefault(job, []).append(request)
            for job, operation, start_ps, end_ps, status in record.results.get("operations", ()):
                self.operations.setdefault(job, {})[operation] = Outcome(start_ps, end_ps, status)
                self.done[job] = max(self.done.get(job, 0), operation + 1)
            for job, flow, start_ps, end_ps, status in record.results.get("flows", ()):
                self.flows[job, flow] = Outcome(start_ps, end_ps, status)
            for job, operation, wait_ps, count in record.results.get("cts_waits", ()):
                waits = self.cts_waits.setdefault((job, operation), {})
                waits[wait_ps] = waits.get(wait_ps, 0) + count
            for job, operation, memory, wrong, compared, _ in record.results.get("payload", ()):
                before = self.compared.get((job, operation), (0, 0))
                self.compared[job, operation] = (before[0] + wrong, before[1] + compared)
                if wrong:
                    self.wrong_at.setdefault((job, operation), []).append(memory)
            for number, *row in record.results.get("steps", ()):
                self.steps.setdefault(self._job.get(number, number), []).append(row)
            for number, rank, step, label, begun_ps, end_ps in record.results.get("calls", ()):
                done = Outcome(begun_ps, end_ps, int(STATUS_SUCCESS))
                ranked = self.calls.setdefault((self._job.get(number, number), step, label), {})
                if rank not in ranked or ranked[rank].start_ps < begun_ps:  # a restarted job's last time
                    ranked[rank] = done
            for met in record.results.get("inits", ()):
                self.inits[met[0]] = init_result(met)
            for pair, message, at_ps, _ in record.results.get("deliveries", ()):
                self.delivered_ps.setdefault((record.number, pair), []).append((message, at_ps))
        self._keep_last_steps()

    def _keep_last_steps(self) -> None:
        """Keep the last run of each step that a restarted job did again."""
        for job in dict.fromkeys(self._job.values()):
            ordered = sorted(self.steps.get(job, []), key=lambda row: row[2])
            self.steps[job] = list({(row[0], row[1]): row for row in ordered}.values())

    def first(self, plan: JobPlan) -> int:
        """The operation that began the last whole round of a job; of the round in which it failed, if it did.

        A job that does not repeat has one round, which begins with operation 0.
        """
        period = len(plan.collectives)
        done = self.done.get(plan.job, 0)
        if period == 0 or done == 0:
            return 0
        failed = self.operations[plan.job][done - 1].status != STATUS_SUCCESS
        return (done - 1) // period * period if failed else max(done // period - 1, 0) * period

    def rows(self, plan: JobPlan, flows: Sequence[Flow]) -> JobRows:
        """What was reported about a job, as the facts of its kind read it."""
        return JobRows(
            ranks=plan.ranks,
            start_ps=plan.start_ps,
            operations=self.operations.get(plan.job, {}),
            flows=flows,
            steps=self.steps.get(plan.job, ()),
            clients=self.clients.get(plan.job, ()),
            staged_ps=self.staged.get(plan.job, 0),
            requests=self.requests.get(plan.job, ()),
        )

    def memberships(self, plan: JobPlan) -> dict[int, int]:
        """In which of its memberships a job did each step that is over, where it has several."""
        if not plan.facts.memberships():
            return {}
        through: dict[int, set[int]] = {}
        for rank, step, *_ in self.steps.get(plan.job, ()):
            through.setdefault(step, set()).add(rank)
        found = {step: plan.facts.membership_of(plan.ranks, ranks) for step, ranks in through.items()}
        return {step: number for step, number in found.items() if number is not None}

    def calls_of(self, plan: JobPlan, call: CallPlan, membership: int | None) -> list[Outcome]:
        """How a call ended for the ranks of a membership, or for all; of what a rank did twice, the last
        time."""
        ranked = self.calls.get((plan.job, call.step, call.label), {})
        if membership is None:
            return list(ranked.values())
        if not call.of(membership).callers:
            return []
        return [ranked[rank] for rank in plan.facts.memberships()[membership] if rank in ranked]

    def ends(self, plan: JobPlan, call: CallPlan) -> list[Outcome]:
        """The calls at the other end of a transfer, as far as they are over."""
        found = [self.calls.get((plan.job, call.step, label), {}).get(rank) for rank, label in call.ends]
        return [one for one in found if one is not None]

    def wrong_ranks(self, plan: JobPlan, operation: int) -> list[int]:
        """Ranks with wrong elements of an operation, the first sixteen."""
        found = [divmod(one, GROUP_MEMORIES) for one in self.wrong_at.get((plan.job, operation), ())]
        return sorted(dict.fromkeys(plan.groups[group].ranks[at] for group, at in found))[:MOST_NAMED]

    def delivered(self, nic: int, pair: int, message: int, before_ps: int) -> int | None:
        """When a message was delivered; where the queue pair carried the same again, the last time before."""
        found: int | None = None
        for number, at_ps in self.delivered_ps.get((nic, pair), ()):
            if number % (message + 1) == message and (found is None or at_ps <= before_ps):
                found = at_ps
        return found


def clear_to_sends(waits: Mapping[int, int]) -> ClearToSends | None:
    """Waits by length, with how many of each; None without any."""
    count = sum(waits.values())
    if not count:
        return None
    ordered = sorted(waits.items())

    def least_covering(share: Fraction) -> int:
        """The shortest wait that so large a share did not exceed."""
        seen = 0
        for wait_ps, many in ordered:
            seen += many
            if seen >= count * share:
                return wait_ps
        return ordered[-1][0]

    return ClearToSends(
        count=count,
        p50_ps=least_covering(Fraction(1, 2)),
        p90_ps=least_covering(Fraction(9, 10)),
        max_ps=ordered[-1][0],
    )


def call_row(
    plan: CallPlan,
    outcomes: Sequence[Outcome],
    ends: Sequence[Outcome],
    compared: tuple[int, int],
    wrong_ranks: list[int],
) -> Collective:
    """One collective or transfer of a program, over all ranks that call it. `compared` is over all steps.

    A transfer is timed with the calls at its other end: a small send is over for its sender before a byte is
    on the wire.
    """
    whole = 0 < len(outcomes) == plan.callers and len(ends) == len(plan.ends)
    start_ps = min((one.start_ps for one in (*outcomes, *ends)), default=None)
    end_ps = max((one.end_ps for one in (*outcomes, *ends)), default=None) if whole else None
    time_ps = end_ps - start_ps if start_ps is not None and end_ps is not None else 0
    return Collective(
        op=plan.op,
        algorithm=plan.algorithm,
        communicator=plan.communicator,
        bytes=plan.size_bytes,
        ranks=plan.ranks,
        iteration=plan.step,
        start_ps=start_ps,
        end_ps=end_ps,
        algbw=bandwidth_bps(plan.size_bytes, time_ps),
        busbw=bandwidth_bps(plan.size_bytes, time_ps, bus_factor(plan.op, plan.ranks)) if whole else None,
        status=SUCCESS if whole else UNFINISHED,
        cts_wait=None,
        wrong=compared[0] if whole and compared[1] else None,
        wrong_ranks=wrong_ranks if whole else [],
    )


def collective_row(
    plan: CollectivePlan,
    outcome: Outcome | None,
    waits: Mapping[int, int] | None = None,
    compared: tuple[int, int] = (0, 0),
    wrong_ranks: Sequence[int] = (),
) -> Collective:
    """One operation, with its bandwidths if it was done. `compared`: elements that are wrong, and all that
    were looked at."""
    rate: int | None = None
    bus: int | None = None
    wrong: int | None = None
    if outcome is not None and outcome.status == STATUS_SUCCESS:
        time_ps = outcome.end_ps - outcome.start_ps
        rate = bandwidth_bps(plan.size_bytes, time_ps)
        bus = bandwidth_bps(plan.size_bytes, time_ps, bus_factor(plan.op, plan.ranks))
        wrong = compared[0] if compared[1] else None
    return Collective(
        op=plan.op,
        algorithm=plan.algorithm,
        communicator="",
        bytes=plan.size_bytes,
        ranks=plan.ranks,
        iteration=plan.iteration,
        start_ps=outcome.start_ps if outcome else None,
        end_ps=outcome.end_ps if outcome else None,
        algbw=rate,
        busbw=bus,
        status=status_name(outcome.status) if outcome else UNFINISHED,
        cts_wait=clear_to_sends(waits or {}),
        wrong=wrong,
        wrong_ranks=list(wrong_ranks) if wrong else [],
    )


def delivery_ps(plan: FlowPlan, reported: Reported, completed_ps: int) -> int | None:
    """When the last byte of a flow arrived; None if some of it did not."""
    if not plan.messages:
        return None
    times = [reported.delivered(plan.nic, pair, message, completed_ps) for pair, message in plan.messages]
    known = [at_ps for at_ps in times if at_ps is not None]
    return max(known) if len(known) == len(times) else None


def flow_row(plan: FlowPlan, reported: Reported, outcome: Outcome | None) -> Flow:
    """One flow."""
    delivered_ps = delivery_ps(plan, reported, outcome.end_ps if outcome else 0)
    throughput: int | None = None
    slowdown: float | None = None
    if outcome is not None and delivered_ps is not None:
        throughput = bandwidth_bps(plan.size_bytes, delivered_ps - outcome.start_ps)
        if plan.ideal_ps:
            slowdown = round((delivered_ps - outcome.start_ps) / plan.ideal_ps, 6)
    return Flow(
        flow=plan.flow,
        source=plan.source,
        destination=plan.destination,
        bytes=plan.size_bytes,
        start_ps=outcome.start_ps if outcome else None,
        delivered_ps=delivered_ps,
        completed_ps=outcome.end_ps if outcome else None,
        throughput_bps=throughput,
        ideal_ps=plan.ideal_ps or None,
        slowdown=slowdown,
        status=status_name(outcome.status) if outcome else UNFINISHED,
    )


def flow_times(flows: Sequence[Flow]) -> FlowTimes | None:
    """Percentiles of the times of flows that were delivered."""
    return percentiles(
        [
            one.delivered_ps - one.start_ps
            for one in flows
            if one.delivered_ps is not None and one.start_ps is not None
        ]
    )


def job_row(plan: JobPlan, reported: Reported) -> Job:
    """One job. Warm-up iterations count for its status and span, and are not listed.

    Of a job that repeats (`run.repeat`), the last round that was done whole.
    """
    first = reported.first(plan)
    flows = [flow_row(one, reported, reported.flows.get((plan.job, one.flow))) for one in plan.flows]
    rows = reported.rows(plan, flows)
    outcomes = [rows.operations.get(first + one.operation) for one in plan.collectives]
    outcomes += [reported.flows.get((plan.job, one.flow)) for one in plan.flows]
    outcomes += plan.facts.outcomes(rows)
    memberships = reported.memberships(plan)
    done = [outcome for outcome in outcomes if outcome is not None]
    failed = [status_name(outcome.status) for outcome in done if outcome.status != STATUS_SUCCESS]
    whole = len(done) == len(outcomes)
    job = Job(
        ranks=plan.ranks,
        status=(failed[0] if failed else SUCCESS if whole else UNFINISHED) if plan.enabled else DISABLED,
        start_ps=min((outcome.start_ps for outcome in done), default=None),
        end_ps=max((outcome.end_ps for outcome in done), default=None) if whole else None,
        collectives=[
            collective_row(
                one,
                rows.operations.get(first + one.operation),
                reported.cts_waits.get((plan.job, one.operation)),
                reported.compared.get((plan.job, one.operation), (0, 0)),
                reported.wrong_ranks(plan, one.operation),
            )
            for one in plan.collectives
            if not one.warmup
        ]
        + [
            call_row(
                one.of(memberships.get(one.step, 0)),
                reported.calls_of(plan, one, memberships.get(one.step)),
                reported.ends(plan, one.of(memberships.get(one.step, 0))),
                reported.compared.get((plan.job, one.label), (0, 0)),
                reported.wrong_ranks(plan, one.label),
            )
            for one in plan.calls
        ],
        flows=flows,
        flow_times=flow_times(flows),
        init=reported.inits.get(plan.job),
        failures=[],
        suspects=[],
    )
    return job.model_copy(update=plan.facts.results(rows))


def job_rows(plans: Sequence[JobPlan], records: Iterable[DeviceRecord]) -> dict[str, Job]:
    """Every job by name, in the order of the scenario."""
    reported = Reported(records, plans)
    return {plan.name: job_row(plan, reported) for plan in plans}


def planned_bytes(plans: Sequence[JobPlan]) -> int:
    """The payload that all jobs will deliver, control messages left out: what progress is measured by."""
    total = 0
    for plan in plans:
        if not plan.enabled:
            continue
        total += sum(flow.size_bytes for flow in plan.flows) + plan.facts.payload_bytes()
        for one in plan.collectives:
            factor = bus_factor(one.op, one.ranks) * one.ranks
            total += one.size_bytes * factor.numerator // factor.denominator
    return total
