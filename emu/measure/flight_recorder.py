"""Which rank is behind, when a collective does not end, and what would PyTorch's tools read of it?

`blame` names, from what ranks remembered and from what ended their operations, those that never joined, that
called another size, or whose queue pair lost its peer. `traces` writes each rank's last operations in the
JSON that PyTorch's flight recorder dumps, version 2.10: analysers of those (torchfrtrace, `fr_trace`)
find the same rank.

Times are nanoseconds of virtual time. An element is a float of four bytes, as in the table of nccl-tests.

Source: PyTorch 2.6, `torch/csrc/distributed/c10d/FlightRecorder.hpp`, `tools/flight_recorder`.

Not modelled: stack frames (one stands for all), several process groups in one dump.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from emu.measure.collected import CollectivePlan, DeviceRecord, JobPlan
from emu.measure.jobs import SUCCESS, status_name
from emu.measure.summary import Job, RankFailure, Summary
from emu.scenario.schema import Scenario
from emu.topology.model import Topology
from emu.units import format_time
from emu.wire.message import STATUS_TIMED_OUT

VERSION: Final = "2.10"
MOST_FAILURES: Final = 64
_WAITS: Final = ("nothing", "data", "clear_to_send", "acknowledgement", "error")
_WORDS: Final = {"data": "data", "clear_to_send": "a clear-to-send", "acknowledgement": "an acknowledgement"}
_PROFILED: Final = {
    "all_gather": "_all_gather_base",
    "reduce_scatter": "_reduce_scatter_base",
    "all_to_allv": "all_to_all",
    "barrier": "all_reduce_barrier",
    "sendrecv": "send",
}
"""What PyTorch calls an operation, where it has another name."""
_ELEMENT_BYTES: Final = 4
_PS_PER_NS: Final = 1_000


class Flight(NamedTuple):
    """One remembered operation of one rank."""

    job: int
    rank: int
    operation: int
    begun_ps: int
    end_ps: int


class Calls(NamedTuple):
    """What a job's ranks call: one of them perhaps another size, some nothing."""

    mistaken: int = -1
    mistaken_bytes: int = 0
    watchdog_ps: int = 0

    def size_bytes(self, rank: int, plan: CollectivePlan) -> int:
        """What a rank asks an operation for."""
        return self.mistaken_bytes if rank == self.mistaken else plan.size_bytes


def flights_of(records: Iterable[DeviceRecord]) -> dict[tuple[int, int], list[Flight]]:
    """By (job, rank), oldest first."""
    found: dict[tuple[int, int], list[Flight]] = {}
    for record in records:
        for row in record.results.get("flights", ()):
            flight = Flight(*row)
            found.setdefault((flight.job, flight.rank), []).append(flight)
    return found


def failures_of(job: int, records: Iterable[DeviceRecord], topology: Topology) -> list[RankFailure]:
    """The failures of a job's ranks, earliest first."""
    found = []
    for record in records:
        for number, rank, operation, status, why, peer, port, qpn, at_ps in record.results.get(
            "failures", ()
        ):
            if number != job:
                continue
            nic = topology.nodes[topology.ports(record.number)[port].peer].name if port >= 0 else None
            found.append(
                RankFailure(
                    rank=rank,
                    operation=operation,
                    status=status_name(status),
                    waits_for=_WAITS[why],
                    peer=peer if peer >= 0 else None,
                    nic=nic,
                    qpn=qpn if qpn >= 0 else None,
                    at_ps=at_ps,
                )
            )
    return sorted(found, key=lambda one: (one.at_ps, one.rank))


def told(
    scenario: Scenario,
    topology: Topology,
    plans: Sequence[JobPlan],
    jobs: Mapping[str, Job],
    records: Sequence[DeviceRecord],
) -> dict[str, Job]:
    """The jobs with what their ranks' failures were, and who is to blame for them."""
    flights = flights_of(records)
    found = {}
    for plan in plans:
        job = jobs[plan.name]
        failures = failures_of(plan.job, records, topology)
        suspects = blame(plan, job, failures, flights, calls_of(scenario, plan.job))
        update = {"failures": failures[:MOST_FAILURES], "suspects": suspects}
        found[plan.name] = job.model_copy(update=update)
    return found


def calls_of(scenario: Scenario, job: int) -> Calls:
    """What the ranks of a job call."""
    watchdog_ps = scenario.ncclx.watchdog_ps or 0
    mismatch = scenario.jobs[job].mismatch
    if mismatch is None:
        return Calls(watchdog_ps=watchdog_ps)
    return Calls(mismatch.rank, mismatch.size_bytes, watchdog_ps)


def blame(
    plan: JobPlan,
    job: Job,
    failures: Sequence[RankFailure],
    flights: Mapping[tuple[int, int], Sequence[Flight]],
    calls: Calls,
) -> list[str]:
    """A line for each rank that is to blame, the plainest cause first; nothing for a job that ended well."""
    if job.status == SUCCESS or not plan.collectives or not flights:
        return []
    ranks = range(plan.ranks)
    last = {rank: flights.get((plan.job, rank), ()) for rank in ranks}
    present = max((one[-1].operation for one in last.values() if one), default=-1)
    if present < 0:
        return []
    called = plan.collectives[present % len(plan.collectives)]
    what = f"{called.op} (operation {present})"
    lines = [
        f"rank {rank} never joined {what}"
        for rank in ranks
        if not last[rank] or last[rank][-1].operation < present
    ]
    if calls.mistaken in ranks:
        size, most = calls.mistaken_bytes, plan.ranks - 1
        if size != called.size_bytes:
            others = f"the {most} others with {called.size_bytes} B"
            lines.append(f"rank {calls.mistaken} called {what} with {size} B, {others}")
    for one in failures:
        if one.status == status_name(STATUS_TIMED_OUT):
            continue
        pair = f"queue pair {one.qpn} of {one.nic}: {one.status}"
        lines.append(f"rank {one.rank} lost rank {one.peer} at {format_time(one.at_ps)}: {pair}")
    waiting = [one for one in failures if one.waits_for in _WORDS]
    for one in waiting[: 8 if not lines else 3]:
        pair = f", queue pair {one.qpn}" if one.qpn is not None else ""
        wait = f"{_WORDS[one.waits_for]} from rank {one.peer} on {one.nic}{pair}"
        lines.append(f"rank {one.rank} waited for {wait} when its watchdog ended {what}")
    return lines


def flight_files(
    scenario: Scenario, plans: Sequence[JobPlan], summary: Summary, records: Sequence[DeviceRecord]
) -> dict[str, str]:
    """Place in the run directory to text, of every job of collectives that did not end well."""
    flights = flights_of(records)
    found = {}
    for plan in plans:
        if plan.enabled and summary.jobs[plan.name].status != SUCCESS:
            for name, text in traces(plan, flights, calls_of(scenario, plan.job)).items():
                found[f"flight_recorder/{plan.name}/{name}"] = text
    return found


def traces(
    plan: JobPlan, flights: Mapping[tuple[int, int], Sequence[Flight]], calls: Calls
) -> dict[str, str]:
    """File name to text, one for each rank of a job of collectives."""
    if not plan.collectives:
        return {}
    found = {}
    for rank in range(plan.ranks):
        entries = [_entry(plan, rank, flight, calls) for flight in flights.get((plan.job, rank), ())]
        completed = [entry["record_id"] for entry in entries if entry["state"] == "completed"]
        trace = {
            "version": VERSION,
            "pg_config": {
                "0": {"name": "0", "desc": plan.name, "ranks": str(list(range(plan.ranks)))},
            },
            "pg_status": {
                "0": {
                    "last_enqueued_collective": entries[-1]["collective_seq_id"] if entries else -1,
                    "last_started_collective": entries[-1]["collective_seq_id"] if entries else -1,
                    "last_completed_collective": completed[-1] + 1 if completed else -1,
                }
            },
            "rank": rank,
            "entries": entries,
        }
        found[f"nccl_trace_rank_{rank}.json"] = json.dumps(trace, indent=1) + "\n"
    return found


def _entry(plan: JobPlan, rank: int, flight: Flight, calls: Calls) -> dict[str, Any]:
    called = plan.collectives[flight.operation % len(plan.collectives)]
    size = calls.size_bytes(rank, called)
    done = flight.end_ps >= 0
    each, whole = _elements(size, plan.ranks, called.op)
    return {
        "frames": [{"name": called.op, "filename": plan.name, "line": flight.operation}],
        "record_id": flight.operation,
        "pg_id": 0,
        "process_group": ["0", plan.name],
        "collective_seq_id": flight.operation + 1,
        "p2p_seq_id": 0,
        "op_id": flight.operation + 1,
        "profiling_name": f"nccl:{_PROFILED.get(called.op, called.op)}",
        "time_created_ns": flight.begun_ps // _PS_PER_NS,
        "input_sizes": [[each]],
        "input_dtypes": ["Float"],
        "output_sizes": [[whole]],
        "output_dtypes": ["Float"],
        "state": "completed" if done else "started",
        "time_discovered_started_ns": flight.begun_ps // _PS_PER_NS,
        "time_discovered_completed_ns": flight.end_ps // _PS_PER_NS if done else None,
        "retired": done,
        "timeout_ms": calls.watchdog_ps // (_PS_PER_NS * 1_000_000),
        "is_p2p": False,
    }


def _elements(size_bytes: int, ranks: int, op: str) -> tuple[int, int]:
    """Elements of a rank's input and output."""
    whole = size_bytes // _ELEMENT_BYTES
    block = whole // ranks
    if op in ("all_gather", "gather"):
        return block, whole
    if op in ("reduce_scatter", "scatter"):
        return whole, block
    return whole, whole
