"""A small fabric and what its devices might have counted, written by hand.

Two racks with two hosts of one GPU each, two spines, 100G everywhere. Node numbers follow from the generator
and are asked for by name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from actors.fabric.model import Topology
from actors.kernel.device import Series
from emu.counts.collected import DeviceRecord, EngineFacts, FlowPlan, JobPlan
from emu.results.planned_rows import CollectivePlan
from emu.results.summary import Summary
from emu.scenario.load import load_mapping
from emu.scenario.resolve import build_topology
from emu.scenario.schema import Scenario
from emu.summary.summarise import summarise

Counter = tuple[str, int, int, str, int]
"""Metric, port, priority, reason, value."""

FACTS = EngineFacts(
    workers=1, placement="local", windows=3, wall_s=2.0, cpu_s=1.5, peak_rss_bytes=100 * 2**20
)


def fabric() -> Topology:
    """The fabric above."""
    return build_topology(scenario())


def scenario(**changes: Any) -> Scenario:
    """A scenario for it, with `changes` on top."""
    mapping: dict[str, Any] = {
        "name": "handmade",
        "seed": 5,
        "topology": {
            "kind": "ai_zone",
            "racks": 2,
            "hosts_per_rack": 2,
            "gpus_per_host": 1,
            "spines": 2,
            "link": "100G",
        },
        "jobs": [
            {
                "name": "bench",
                "workload": {"kind": "collective", "op": "all_reduce", "sizes": ["1MiB"]},
            }
        ],
    }
    return load_mapping(mapping | changes).scenario


def record(
    topology: Topology,
    name: str,
    counters: Sequence[Counter] = (),
    results: Mapping[str, Sequence[Sequence[int]]] | None = None,
) -> DeviceRecord:
    """What one device, given by name, handed over."""
    return DeviceRecord(
        number=topology.node_named(name).number,
        mixes=(17,),
        executed=10,
        frames_received=4,
        data_frames_received=3,
        series=tuple(
            Series(metric, port, priority, reason) for metric, port, priority, reason, _ in counters
        ),
        counters=tuple(value for *_, value in counters),
        end_states=(),
        results=dict(results or {}),
    )


def all_reduce_plan(operations: int = 1, warmup: int = 0, size_bytes: int = 2**20) -> JobPlan:
    """A job of so many all_reduce operations over four ranks, the first ones warm-up."""
    collectives = tuple(
        CollectivePlan(
            operation=at,
            op="all_reduce",
            algorithm="ring",
            size_bytes=size_bytes,
            ranks=4,
            iteration=max(at - warmup, 0),
            warmup=at < warmup,
        )
        for at in range(operations)
    )
    return JobPlan(job=0, name="bench", ranks=4, collectives=collectives)


def flow_plan(nic: int, messages: Sequence[tuple[int, int]]) -> JobPlan:
    """A job of one flow of 1 MB, whose messages arrive at `nic`."""
    flow = FlowPlan(
        flow=0, source="nic-0-0", destination="nic-2-0", size_bytes=10**6, nic=nic, messages=tuple(messages)
    )
    return JobPlan(job=0, name="bench", ranks=4, flows=(flow,))


def summary(
    records: Sequence[DeviceRecord],
    plans: Sequence[JobPlan] = (),
    virtual_ps: int = 10**9,
    digest: str = "d" * 64,
    **changes: Any,
) -> Summary:
    """The summary of a finished run of `scenario(**changes)`."""
    return summarise(
        scenario(**changes),
        fabric(),
        plans,
        records,
        FACTS,
        version="0.1.0",
        compiled=False,
        digest=digest,
        ending="finished",
        virtual_ps=virtual_ps,
    )
