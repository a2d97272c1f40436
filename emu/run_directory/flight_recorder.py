"""Flight recorder traces for PyTorch's tools, of a job that does not end.

Each rank's last calls as PyTorch's flight recorder dumps them, version 2.10: as JSON, and as the pickle that
PyTorch itself writes and that its analysers read (torchfrtrace, `fr_trace`), in a directory of its own, since
they read every file there is. They find the rank that is behind. A process group is a communicator of the
job; sends and receives have groups of two, and a sendrecv is, as there, a send and a receive that are
coalesced. Peers are named by their place among the group's ranks in ascending order, as those readers take
them. Times are nanoseconds of virtual time. An element is a float of four bytes, as in the table of
nccl-tests; sizes are those that the rank itself announced.

Source: PyTorch, `torch/csrc/distributed/c10d/FlightRecorder.hpp`, and its readers in
`torch/distributed/flight_recorder` (`loader.py`, `types.py`).

Not modelled: stack frames (one stands for all).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from emu.counts.collected import DeviceRecord, JobPlan
from emu.results.summary import Summary
from emu.scenario.schema import Scenario
from emu.summary.blame import Flight, RankCalls, calls_of
from emu.summary.jobs import SUCCESS

VERSION: Final = "2.10"
_PROFILED: Final = {
    "all_gather": "_all_gather_base",
    "reduce_scatter": "_reduce_scatter_base",
    "all_to_allv": "all_to_all",
    "barrier": "all_reduce_barrier",
}
"""What PyTorch calls an operation, where it has another name."""
_COALESCED: Final = 3
"""Entries of a sendrecv."""
_PICKLE_PROTOCOL: Final = 2
_ELEMENT_BYTES: Final = 4
_PS_PER_NS: Final = 1_000
_PS_PER_MS: Final = 1_000_000_000


def flight_files(
    scenario: Scenario, plans: Sequence[JobPlan], summary: Summary, records: Sequence[DeviceRecord]
) -> dict[str, bytes]:
    """Place in the run directory to content, of every job that calls collectives and did not end well."""
    timeout_ms = (scenario.ncclx.watchdog_ps or 0) // _PS_PER_MS
    found = {}
    for plan in plans:
        if plan.enabled and plan.groups and summary.jobs[plan.name].status != SUCCESS:
            import pickle  # noqa: PLC0415 - only where a job fails

            calls = calls_of(plan.job, plan.ranks, records)
            for rank, one in enumerate(calls):
                trace = _trace(plan, rank, one, timeout_ms)
                name = f"flight_recorder/{plan.name}/nccl_trace_rank_{rank}.json"
                found[name] = (json.dumps(trace, indent=1) + "\n").encode()
                name = f"flight_recorder/{plan.name}/pickle/nccl_trace_rank_{rank}"
                found[name] = pickle.dumps(trace, _PICKLE_PROTOCOL)
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
        "entries": [entry for flight in calls.flights for entry in _entries(plan, rank, flight, timeout_ms)],
    }


def _entries(plan: JobPlan, rank: int, flight: Flight, timeout_ms: int) -> list[dict[str, Any]]:
    group = plan.groups[flight.group]
    ranks = sorted(group.ranks)
    place = ranks.index(rank)
    if group.points:
        peer = 1 - place
        arrow = "->" if flight.op == "send" else "<-"
        return [_entry(plan, flight, f"{flight.op} {place}{arrow}{peer}", flight.record, timeout_ms)]
    if flight.op == "sendrecv":
        names = (
            f"send {place}->{(place + 1) % len(ranks)}",
            f"recv {place}<-{(place - 1) % len(ranks)}",
            "coalesced",
        )
        first = flight.record * _COALESCED
        return [_entry(plan, flight, name, first + at, timeout_ms) for at, name in enumerate(names)]
    name = _PROFILED.get(flight.op, flight.op)
    return [_entry(plan, flight, name, flight.record, timeout_ms)]


def _entry(plan: JobPlan, flight: Flight, name: str, record: int, timeout_ms: int) -> dict[str, Any]:
    group = plan.groups[flight.group]
    each, whole = _elements(flight.size_bytes, len(group.ranks), flight.op)
    paired = group.points or flight.op == "sendrecv"
    return {
        "frames": [{"name": flight.op, "filename": plan.name, "line": flight.number}],
        "record_id": record,
        "pg_id": flight.group,
        "process_group": [str(flight.group), group.name or plan.name],
        "collective_seq_id": 0 if paired else flight.number + 1,
        "p2p_seq_id": flight.number + 1 if paired else 0,
        "op_id": record + 1,
        "profiling_name": f"nccl:{name}",
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
        "is_p2p": paired,
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
