"""What would PyTorch's tools read of a job that does not end?

Each rank's last calls in the JSON that PyTorch's flight recorder dumps, version 2.10: analysers of those
(torchfrtrace, `fr_trace`) find the rank that is behind. A process group is a communicator of the job; sends
and receives have groups of two. Times are nanoseconds of virtual time. An element is a float of four bytes,
as in the table of nccl-tests; sizes are those that the rank itself announced.

Source: PyTorch 2.6, `torch/csrc/distributed/c10d/FlightRecorder.hpp`, `tools/flight_recorder`.

Not modelled: stack frames (one stands for all).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from emu.measure.calls import Flight, RankCalls, calls_of
from emu.measure.collected import DeviceRecord, JobPlan
from emu.measure.jobs import SUCCESS
from emu.measure.summary import Summary
from emu.scenario.schema import Scenario

VERSION: Final = "2.10"
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
_PS_PER_MS: Final = 1_000_000_000


def flight_files(
    scenario: Scenario, plans: Sequence[JobPlan], summary: Summary, records: Sequence[DeviceRecord]
) -> dict[str, str]:
    """Place in the run directory to text, of every job that calls collectives and did not end well."""
    timeout_ms = (scenario.ncclx.watchdog_ps or 0) // _PS_PER_MS
    found = {}
    for plan in plans:
        if plan.enabled and plan.groups and summary.jobs[plan.name].status != SUCCESS:
            calls = calls_of(plan.job, plan.ranks, records)
            for rank, one in enumerate(calls):
                name = f"flight_recorder/{plan.name}/nccl_trace_rank_{rank}.json"
                found[name] = json.dumps(_trace(plan, rank, one, timeout_ms), indent=1) + "\n"
    return found


def _trace(plan: JobPlan, rank: int, calls: RankCalls, timeout_ms: int) -> dict[str, Any]:
    groups = {number: group for number, group in enumerate(plan.groups) if rank in group.ranks}
    return {
        "version": VERSION,
        "pg_config": {
            str(number): {
                "name": str(number),
                "desc": group.name or plan.name,
                "ranks": str(list(group.ranks)),
            }
            for number, group in groups.items()
        },
        "pg_status": {
            str(number): {
                "last_enqueued_collective": calls.begun.get(number, 0) or -1,
                "last_started_collective": calls.begun.get(number, 0) or -1,
                "last_completed_collective": calls.ended.get(number, 0) or -1,
            }
            for number in groups
        },
        "rank": rank,
        "entries": [_entry(plan, rank, flight, timeout_ms) for flight in calls.flights],
    }


def _entry(plan: JobPlan, rank: int, flight: Flight, timeout_ms: int) -> dict[str, Any]:
    group = plan.groups[flight.group]
    each, whole = _elements(flight.size_bytes, len(group.ranks), flight.op)
    name = f"nccl:{_PROFILED.get(flight.op, flight.op)}"
    if group.points:
        peer = next(other for other in group.ranks if other != rank)
        name += f" {rank}{'->' if flight.op == 'send' else '<-'}{peer}"
    return {
        "frames": [{"name": flight.op, "filename": plan.name, "line": flight.number}],
        "record_id": flight.record,
        "pg_id": flight.group,
        "process_group": [str(flight.group), group.name or plan.name],
        "collective_seq_id": 0 if group.points else flight.number + 1,
        "p2p_seq_id": flight.number + 1 if group.points else 0,
        "op_id": flight.record + 1,
        "profiling_name": name,
        "time_created_ns": flight.begun_ps // _PS_PER_NS,
        "input_sizes": [[each]],
        "input_dtypes": ["Float"],
        "output_sizes": [[whole]],
        "output_dtypes": ["Float"],
        "state": "completed" if flight.done else "started",
        "time_discovered_started_ns": flight.begun_ps // _PS_PER_NS,
        "time_discovered_completed_ns": flight.end_ps // _PS_PER_NS if flight.done else None,
        "retired": flight.done,
        "timeout_ms": timeout_ms,
        "is_p2p": group.points,
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
