"""Tests of the training draft: categories 1 to 8.

Source: draft-calabria-bmwg-ai-fabric-training-bench (editors' copy of 1 October 2026), an individual draft.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from actors.kernel.counters import PFC_WATCHDOG_STORMS, PORT_RECEIVE_FRAMES
from emu.api import Result
from emu.base.bisection import largest
from emu.base.errors import UsageError
from emu.base.units import about_size, counted
from emu.doors.accept.answers import Check
from emu.doors.accept.bench import (
    Bench,
    collective,
    congestion,
    counter,
    dropped,
    ended,
    figure,
    incast,
    job,
    kpis,
    line_bps,
    nic_bps,
    pairs,
    permutation,
    spread,
    took_ps,
)
from emu.summary.kpis import jain

Found = tuple[list[Check], list[str]]
"""Checks, and notes."""

BURST_BYTES: Final = 64 << 20
"""Where the search for the first loss ends."""
MULTIPATH: Final = {"transport.kind": "multipath"}
SPRAYED: Final = {
    "routing": {"kind": "spray"},
    "transport.recovery": {"kind": "go_back_n", "placement": "out_of_order"},
}
UPLINKS: Final = {"run.kpis": ["flow_counts"]}


# Category 1: RDMA over the fabric


def throughput(bench: Bench) -> Found:
    """Pairs of all NICs at once."""
    checks, last = [], None
    for queue_pairs in (1, 4, 16):
        prepared, last = bench.run(
            [job("pairs", permutation(bench.site.flow_bytes, queue_pairs))],
            changes={"routing": {"kind": "e_ecmp"}},
        )
        flows = last.summary.jobs["pairs"].flows
        span_ps = max(flow.delivered_ps or 0 for flow in flows) - min(flow.start_ps or 0 for flow in flows)
        total_bps = sum(flow.bytes for flow in flows) * 8e12 / span_ps if span_ps > 0 else 0.0
        checks += figure(
            "share",
            f"aggregate of line rate, {counted(queue_pairs, 'queue pair')}",
            total_bps / nic_bps(prepared),
        )
        checks.append(
            ended(last)._replace(what=f"jobs that did not end well, {counted(queue_pairs, 'queue pair')}")
        )
    return checks, []


def latency(bench: Bench) -> Found:
    """Small flows, alone and beside a permutation."""
    flows = 10_000 if bench.site.scale == "draft" else 400
    small = job(
        "tagged",
        {"kind": "poisson", "sizes": "hadoop", "load": 0.01, "flows": flows, "size_scale": 0.01},
    )
    runs = [
        bench.run(jobs)[1] for jobs in ([small], [small, job("load", permutation(bench.site.flow_bytes))])
    ]
    times = [one.summary.jobs["tagged"].flow_times for one in runs]
    checks = []
    for name, each in zip(("idle", "loaded"), times, strict=True):
        if each is not None:
            checks += figure("time", f"{name}, P50", each.p50_ps) + figure(
                "time", f"{name}, P99", each.p99_ps
            )
            checks += figure("time", f"{name}, P99.9", each.p999_ps)
    if times[0] is not None and times[1] is not None:
        checks += figure("ratio", "factor of P99 under load", times[1].p99_ps / times[0].p99_ps)
    return checks, [f"{flows:,} samples a trial; the draft asks for 10,000, pooled over 20 trials"]


def burst(bench: Bench) -> Found:
    """The longest burst of k senders to one that loses nothing, without PFC, by bisection."""
    changes = {"switch.pfc.enabled": False, "run.max_time": "20ms"}
    checks = []
    for fan_in in bench.fans(2, 8):

        def whole(size_bytes: int, fan_in: int = fan_in) -> bool:
            return not dropped(
                bench.run([job("burst", incast(fan_in, size_bytes))], changes=changes)[1].summary
            )

        found = largest(whole, 4096, BURST_BYTES)
        shown = "no loss up to " + about_size(BURST_BYTES) if found == BURST_BYTES else about_size(found or 0)
        checks.append(
            Check(f"absorbed of each of {fan_in} senders", shown, "", None, float(found or 0), "size")
        )
    return checks, ["by bisection, to a 32nd"]


# Category 2: transports with paths of their own


def transports(bench: Bench) -> Found:
    """A permutation by RC and by multipath."""
    checks, runs = [], []
    for name, changes in (("RC", {}), ("multipath", MULTIPATH)):
        prepared, result = bench.run([job("pairs", permutation(bench.site.flow_bytes))], changes=changes)
        rates = [float(flow.throughput_bps or 0) for flow in result.summary.jobs["pairs"].flows]
        checks += figure("share", f"goodput of line rate, {name}", sum(rates) / nic_bps(prepared))
        checks += figure("ratio", f"JFI, {name}", kpis(result.summary, "pairs").jain)
        checks += figure(
            "count", f"frames sent again, {name}", result.summary.fabric.nic_retransmitted_frames
        )
        runs.append(result)
    return [*checks, ended(*runs)], ["multipath in place of UET's RUD; no ROD and no UUD exist here"]


def spraying(bench: Bench) -> Found:
    """A permutation over more and more paths."""
    checks, runs = [], []
    for paths in (4, 8, 16, 31):
        changes = {**MULTIPATH, "transport.paths": {"paths": paths}}
        prepared, result = bench.run([job("pairs", permutation(bench.site.flow_bytes))], changes=changes)
        rates = [float(flow.throughput_bps or 0) for flow in result.summary.jobs["pairs"].flows]
        fabric = result.summary.fabric
        checks += figure("share", f"goodput of line rate, {paths} paths", sum(rates) / nic_bps(prepared))
        checks += figure("ratio", f"JFI, {paths} paths", kpis(result.summary, "pairs").jain)
        checks += figure("ratio", f"MMR of bytes, {paths} paths", fabric.worst_max_over_mean)
        checks += figure("ppm", f"out of order, {paths} paths", fabric.out_of_order)
        runs.append(result)
    return [*checks, ended(*runs)], [
        "multipath in place of UET; MMR of flows has no meaning for one flow on many paths"
    ]


def incast_without_pfc(bench: Bench) -> Found:
    """N to 1 by multipath, whose switches have no PFC."""
    checks, runs = [], []
    for fan_in in bench.fans(2, 4, 8):
        prepared, result = bench.run(
            [job("incast", incast(fan_in, bench.site.flow_bytes))],
            changes={**MULTIPATH, "run.kpis": ["convergence"], "run.sample_every": "2us"},
        )
        total = fan_in * bench.site.flow_bytes * 8e12 / max(took_ps(result.summary, "incast"), 1)
        checks += figure("share", f"goodput of line rate, {fan_in}:1", total / line_bps(prepared))
        checks += _convergence(result, f"{fan_in}:1")
        checks += figure("count", f"XOFF frames, {fan_in}:1", result.summary.fabric.pfc_transmit_xoff_frames)
        checks += figure("count", f"frames lost, {fan_in}:1", dropped(result.summary))
        runs.append(result)
    return [*checks, ended(*runs)], ["multipath in place of UET"]


# Category 3: congestion


def marking(bench: Bench) -> Found:
    """Marks of an incast with DCQCN."""
    changes = {"switch.ecn.enabled": True, "transport.congestion_control": {"kind": "dcqcn"}}
    _, result = bench.run([job("incast", incast(bench.fans(4)[0], bench.site.flow_bytes))], changes=changes)
    marked = result.summary.fabric.queue_marked_frames or 0
    return [
        *figure("count", "frames marked", marked),
        *figure("share", "of all frames", marked / max(counter(result, PORT_RECEIVE_FRAMES), 1)),
        ended(result),
    ], []


def pfc(bench: Bench) -> Found:
    """Pauses of incasts, and nothing lost."""
    checks, runs = [], []
    for fan_in in bench.fans(2, 8):
        _, result = bench.run([job("incast", incast(fan_in, 4 * bench.site.flow_bytes))])
        fabric, lost = result.summary.fabric, dropped(result.summary)
        checks += figure("count", f"XOFF frames, {fan_in}:1", fabric.pfc_transmit_xoff_frames)
        checks += figure("time", f"paused, {fan_in}:1", fabric.pfc_paused_ps)
        checks += figure("count", f"frames lost, {fan_in}:1", lost, "0", not lost)
        runs.append(result)
    return [*checks, ended(*runs)], []


def _convergence(result: Result, of: str) -> list[Check]:
    found = result.summary.fabric.convergence
    flows = [flow for one in result.summary.jobs.values() for flow in one.flows]
    fair = figure("ratio", f"JFI of all flows, {of}", jain([float(one.throughput_bps or 0) for one in flows]))
    if found is None or found.took_ps is None:
        return [Check(f"all within 10 % after, {of}", "not before the first flow ended", "", None), *fair]
    return [
        *fair,
        *figure("time", f"all within 10 % after, {of}", found.took_ps),
        *figure("share", f"of the time since, {of}", found.held),
    ]


def convergence(bench: Bench) -> Found:
    """M flows with DCQCN, M more, and when all of them are within a tenth of their mean."""
    ranks = bench.ranks()
    size = 16 * bench.site.flow_bytes
    checks: list[Check] = []
    if ranks < 5:
        raise UsageError(f"the fabric has {ranks} GPUs; accepted: 5 or more")
    for first in (2, 4):
        if 2 * first >= ranks:
            break
        one = pairs([(rank, 0) for rank in range(1, first + 1)], 2 * size)
        two = pairs([(rank, 0) for rank in range(first + 1, 2 * first + 1)], size)
        changes = {
            "switch.ecn.enabled": True,
            "transport.congestion_control": {"kind": "dcqcn"},
            "run.kpis": ["convergence"],
            "run.sample_every": "100us",
        }
        _, result = bench.run([job("before", one), job("after", two, start="100us")], changes=changes)
        checks += _convergence(result, f"{first} to {2 * first} flows")
        checks.append(ended(result)._replace(what=f"jobs that did not end well, {first} to {2 * first}"))
    note = (
        "M of 2 and 4; the draft has 4 to 256. Rates are of samples of 100 us. The first flows were cut"
        " before the others began, and the default DCQCN raises rates slowly at 400 Gbit/s"
    )
    return checks, [note]


def storm(bench: Bench) -> Found:
    """A NIC that pauses for ever, and the watchdog."""
    topology = bench.prepared().topology
    nic = topology.nodes[topology.nics[1]].name
    watchdog = {"enabled": True, "detection": "1ms", "restoration": "2ms"}
    changes = {"switch.pfc.watchdog": watchdog, "run.max_time": "20ms", "transport.timeout": 10}
    _, result = bench.run(
        [job("pairs", permutation(bench.site.flow_bytes))],
        [{"kind": "pause_storm", "target": nic, "at": "5us"}],
        changes,
    )
    storms = counter(result, PFC_WATCHDOG_STORMS)
    return figure("count", "storms that the watchdog ended", storms, "above 0", storms > 0), []


# Category 4: load balancing


def balancing(bench: Bench, changes: Mapping[str, object]) -> Found:
    """MMR, JFI and order of a permutation."""
    checks, runs = [], []
    for queue_pairs in (1, 4, 16):
        work = [job("pairs", permutation(bench.site.flow_bytes, queue_pairs))]
        _, result = bench.run(work, changes={**changes, **UPLINKS})
        fabric, of = result.summary.fabric, counted(queue_pairs, "queue pair")
        checks += figure("ratio", f"MMR of flows, {of}", fabric.worst_flows_max_over_mean)
        checks += figure("ratio", f"MMR of bytes, {of}", fabric.worst_max_over_mean)
        checks += figure("ratio", f"JFI, {of}", kpis(result.summary, "pairs").jain)
        checks += figure("ppm", f"out of order, {of}", fabric.out_of_order)
        runs.append(result)
    return [*checks, ended(*runs)], []


# Category 5: collectives


def library(bench: Bench, op: str) -> Found:
    """BusBW and the bytes of one collective."""
    size = bench.site.call_bytes
    prepared, result = bench.run([job("call", collective(op, size, 2))])
    calls = result.summary.jobs["call"].collectives
    rates = [float(one.busbw or 0) for one in calls]
    fabric, rounds = result.summary.fabric, len(calls) + 1
    measured, derived = fabric.delivered_bytes or 0, fabric.derived_bytes or 0
    return [
        *figure("rate", f"BusBW, {about_size(size)}, {calls[0].ranks} ranks", sum(rates) / len(rates)),
        *figure("share", "of a NIC's rate", sum(rates) / len(rates) / line_bps(prepared)),
        *figure("share", "CV over iterations", spread(rates)),
        *figure("ratio", "JCT ratio", kpis(result.summary, "call").jct_ratio),
        *figure("size", "S_fabric, measured", measured / rounds),
        *figure("size", "S_fabric, derived (S x f x N)", derived / rounds),
        *figure("ratio", "measured / derived", measured / max(derived, 1)),
        Check("algorithm (verified)", calls[0].algorithm, "", None),
        ended(result),
    ], ["derived is of a flat algorithm: what stays on NVLink, or in an NVSwitch, crosses no NIC"]


# Category 6 and 7: jobs, scale, resilience


def step(bench: Bench) -> Found:
    """Computing and an all_reduce in turn."""
    operations = [
        {"do": "compute", "time": "500us"},
        {"do": "all_reduce", "size": f"{bench.site.call_bytes}B"},
    ]
    _, result = bench.run([job("step", {"kind": "program", "steps": 3, "operations": operations})])
    found = kpis(result.summary, "step")
    return [
        *figure("time", "JCT", found.jct_ps),
        *figure("time", "roofline", found.roofline_ps),
        *figure("ratio", "JCT ratio", found.jct_ratio, "1.05 to 1.15 (indicative)"),
        *figure("share", "overlap", found.overlap),
        ended(result),
    ], []


def interference(bench: Bench) -> Found:
    """Two jobs whose ranks alternate, each beside the other and by itself."""
    ranks = list(range(bench.ranks()))
    work = collective("all_reduce", bench.site.call_bytes)
    both = [job("first", work, ranks=ranks[0::2]), job("second", work, ranks=ranks[1::2])]
    _, result = bench.run(both, changes={"run.kpis": ["interference"]})
    return [
        *figure("ratio", "interference of the first job", kpis(result.summary, "first").interference),
        *figure("ratio", "interference of the second job", kpis(result.summary, "second").interference),
        ended(result),
    ], ["ranks alternate, so all spine links may be shared; the draft has overlaps of 0, 25, 50 and 75 %"]


def growth(bench: Bench) -> Found:
    """An all_reduce over more and more ranks."""
    checks, runs, count = [], [], 2
    while count <= bench.ranks():
        work = collective("all_reduce", bench.site.call_bytes)
        _, result = bench.run([job("call", work, ranks=count)])
        checks += figure("ratio", f"JCT ratio, {count} ranks", kpis(result.summary, "call").jct_ratio)
        runs.append(result)
        count *= 2
    return [*checks, ended(*runs)], []


def failure(bench: Bench, kind: str) -> Found:
    """An all_reduce that loses a spine or its busiest link, beside the undisturbed one."""
    work = [job("call", collective("all_reduce", bench.site.call_bytes, 2))]
    changes = {"routing": {"kind": "e_ecmp", "convergence": "100us"}, "transport.timeout": 8}
    prepared, calm = bench.run(work, changes=changes)
    topology = prepared.topology
    spine = next((topology.nodes[n].name for n in topology.switches if topology.nodes[n].tier > 1), "")
    if not spine:
        raise UsageError("the fabric has one tier, so no link or switch above a leaf can fail; accepted: two")
    target = spine
    if kind == "link_down":
        links = [link for link in calm.summary.fabric.links if link.destination == spine]
        uplink = max(links, key=lambda link: link.data_bytes)
        target = f"{uplink.source}:{uplink.destination}"
    # It strikes a third into the call and outlasts it, so a failover is measured and no repair.
    end_ps = calm.summary.jobs["call"].end_ps or 0
    fault = {"kind": kind, "target": target, "at": f"{end_ps // 3}ps", "for": f"{end_ps}ps"}
    watched = {**changes, "run.kpis": ["loss_time"], "run.sample_every": "10us"}
    _, hurt = bench.run(work, [fault], watched)
    (effect,) = hurt.summary.faults
    before_ps, after_ps = took_ps(calm.summary, "call"), took_ps(hurt.summary, "call")
    return [
        *figure("count", "packets lost", effect.frames_lost),
        *figure("time", "loss time", effect.loss_time_ps),
        *figure("time", "JCT, undisturbed", before_ps),
        *figure("time", "what the failure adds", max(after_ps - before_ps, 0)),
        *figure("share", "JCT overhead", after_ps / before_ps - 1 if before_ps else None),
        ended(hurt),
    ], [f"{kind} of {target}; routing converges in 100 us, which is a choice"]


def soak(bench: Bench) -> Found:
    """Iterations in place of 24 hours."""
    checks, runs = [], []
    for op in ("all_reduce", "all_to_all"):
        _, result = bench.run([job("call", collective(op, bench.site.call_bytes // 8, 5))])
        calls = result.summary.jobs["call"].collectives
        times = [float((one.end_ps or 0) - (one.start_ps or 0)) for one in calls]
        checks += figure("share", f"CV of {op} over {len(calls)} iterations", spread(times))
        runs.append(result)
    return [*checks, ended(*runs), *congestion(runs[-1].summary)], ["iterations in place of 24 hours"]
