"""Tests of the inference draft: categories 1 to 3.

TTFT_fabric is the transfer of keys and values. A decode instance of `serving` computes without the fabric, so
ITL_fabric is read off steps of a decoder with experts: computing, dispatch and combine of a layer.

Dispatch moves B x k x H x 2 bytes of a GPU (a batch of B tokens, each to k experts, hidden size H, BF16), as
the draft's table of configurations has it.

Source: draft-calabria-bmwg-ai-fabric-inference-bench (editors' copy of 8 October 2026), an individual draft.
"""

from __future__ import annotations

from collections.abc import Mapping
from statistics import mean
from typing import TYPE_CHECKING, Any, Final, cast

from emu.api import Result
from emu.base.errors import UsageError
from emu.base.units import about_size, counted
from emu.doors.accept.answers import Check
from emu.doors.accept.bench import (
    Bench,
    collective,
    congestion,
    ended,
    figure,
    job,
    kpis,
    line_bps,
    pairs,
)
from emu.doors.accept.bmwg_training import Found
from emu.results.percentiles import FlowTimes, percentiles

if TYPE_CHECKING:
    from emu.workload.serving import ServingFacts

MIXES: Final = {"M1": (2, 4096), "M2": (4, 7168), "M3": (2, 7168), "M4": (8, 7168)}
"""Of the draft's configurations: k and H."""
BATCH: Final = {"small": 16, "draft": 128}
MODEL: Final = {"layers": 4, "hidden": 2048, "heads": 16, "kv_heads": 4, "ffn": 8192, "sequence": 4096}
PROMPT: Final = 128


def _dispatch_bytes(bench: Bench, mix: str = "M1") -> int:
    choices, hidden = MIXES[mix]
    return BATCH[bench.site.scale] * choices * hidden * 2


def _halves(bench: Bench) -> int:
    """Half of the GPUs; Raises UsageError."""
    half = bench.ranks() // 2
    if half < 2:
        raise UsageError("the fabric has fewer than four GPUs; accepted: a prefill and a decode half")
    return half


def _times(kind: str, name: str, found: FlowTimes | None) -> list[Check]:
    if found is None:
        return []
    return [
        *figure("time", f"{kind} P50{name}", found.p50_ps),
        *figure("time", f"{kind} P99{name}", found.p99_ps),
    ]


# Category 1: transfer of keys and values


def transfer(bench: Bench) -> Found:
    """One pair of NICs, by size of a block and queue pairs."""
    checks, runs, half = [], [], _halves(bench)
    for size in (64 << 10, 1 << 20, 16 << 20):
        for queue_pairs in (1, 4, 16):
            work = {
                "kind": "flows",
                "qps": queue_pairs,
                "message": f"{size}B",
                "flows": [{"src": 0, "dst": half, "size": f"{max(4 * size, 4 << 20)}B"}],
            }
            prepared, result = bench.run([job("keys", work)])
            rate_bps = result.summary.jobs["keys"].flows[0].throughput_bps or 0
            name = f"{about_size(size)}, {counted(queue_pairs, 'queue pair')}, of line rate"
            checks += figure("share", name, rate_bps / line_bps(prepared))
            runs.append(result)
    return [*checks, ended(*runs)], ["blocks up to 16 MiB and 16 queue pairs; the draft has 1 GB and 128"]


def transfer_latency(bench: Bench) -> Found:
    """Single blocks in turn, alone and beside background traffic."""
    checks, runs, half = [], [], _halves(bench)
    size, count = 64 << 10, 40
    flows = [
        {"src": 0, "dst": half, "size": f"{size}B", "start": f"{20 * number}us"} for number in range(count)
    ]
    for load in (0.0, 0.25, 0.5, 0.75, 0.9):
        jobs = [job("keys", {"kind": "flows", "flows": flows})]
        if load:
            work = {"kind": "poisson", "load": load, "flows": 20 * bench.ranks(), "size_scale": 0.05}
            jobs.append(job("load", work))
        _, result = bench.run(jobs)
        checks += _times("latency", f", {load:.0%} load", result.summary.jobs["keys"].flow_times)
        runs.append(result)
    return [*checks, ended(*runs)], [f"{count} blocks of {about_size(size)} a trial; the draft has 120 s"]


def transfer_scaling(bench: Bench) -> Found:
    """More and more pairs of a prefill and a decode GPU."""
    checks, runs, half, count = [], [], _halves(bench), 1
    while count <= half:
        work = pairs([(one, half + one) for one in range(count)], bench.site.flow_bytes, 4)
        prepared, result = bench.run([job("keys", work)])
        done, of = result.summary.jobs["keys"], f"{counted(count, 'pair')}"
        rates = [float(flow.throughput_bps or 0) for flow in done.flows]
        checks += figure("share", f"of line rate, {of}", mean(rates) / line_bps(prepared))
        checks += _times("latency", f", {of}", done.flow_times)
        checks += figure("ratio", f"JFI, {of}", kpis(result.summary, "keys").jain)
        links = [link.utilisation for link in result.summary.fabric.links]
        checks += figure("share", f"busiest link, {of}", max(links))
        runs.append(result)
        count *= 2
    return [*checks, ended(*runs)], []


def tiers(bench: Bench) -> Found:
    """GPU to GPU, and GPU to storage and back over the front end."""
    size, half = bench.site.flow_bytes, _halves(bench)
    storage = {
        "frontend.enabled": True,
        "frontend.storage": {"servers": 2, "link": "100G", "disk": "50G", "cache": f"{4 * size}B"},
    }
    _, direct = bench.run([job("keys", pairs([(0, half)], size))])
    rate = direct.summary.jobs["keys"].flows[0].throughput_bps
    checks, runs = figure("rate", "GPU to GPU", rate), [direct]
    for direction, name in (("save", "GPU to storage"), ("load", "storage to GPU")):
        work = {"kind": "checkpoint", "direction": direction, "size": f"{size}B", "block": "128KiB"}
        _, result = bench.run([job("keys", work, ranks=[0])], changes=storage)
        done = result.summary.jobs["keys"].storage
        stored = None if done is None else done.throughput_bps
        checks += figure("rate", name, stored)
        checks += figure("ratio", f"{name}, of GPU to GPU", stored / rate if stored and rate else None)
        runs.append(result)
    return [*checks, ended(*runs)], [
        "two storage servers of 100G and disks of 50 Gbit/s: a choice, not a measurement"
    ]


# Category 2: prefill and decode apart


def _served(bench: Bench, name: str, **more: Any) -> tuple[list[Check], Result]:
    """TTFT, TTFT_fabric and ITL of a serving job; `more` are keys of its workload."""
    work: dict[str, Any] = {
        "kind": "serving",
        "model": "own",
        "own": MODEL,
        "requests": 24,
        "rate": 20000,
        "prompt": PROMPT,
        "output": 8,
    }
    work |= {**_instances(bench), **more}
    _, result = bench.run([_chat(bench, work)])
    served = result.summary.jobs["chat"].serving
    if served is None:
        return [ended(result)], result
    checks = [
        *_times("TTFT", name, served.first_token),
        *_times("TTFT_fabric", name, served.transfer),
        *_times("ITL", name, served.each_token),
        *figure("count", f"tokens a second{name}", served.tokens_per_s),
    ]
    if served.transfer is not None and served.first_token is not None:
        fraction = served.transfer.p50_ps / served.first_token.p50_ps
        checks += figure("share", f"fabric fraction of TTFT{name}", fraction)
    whole = served.answered == served.requests
    found = f"{served.answered} of {served.requests}"
    return [*checks, Check(f"requests answered{name}", found, "all", whole)], result


def _chat(bench: Bench, work: Mapping[str, Any]) -> dict[str, object]:
    """A serving job whose GPUs are spread over the fabric."""
    wanted, there = (work["prefills"] + work["decodes"]) * work["tp"], bench.ranks()
    if wanted > there:
        raise UsageError(f"the fabric has {there} GPUs; accepted: {wanted}")
    return job("chat", work, ranks=[rank * there // wanted for rank in range(wanted)])


def _instances(bench: Bench) -> dict[str, int]:
    """Two instances of each kind, of two GPUs; one of each where the fabric is small."""
    count = 2 if bench.ranks() >= 8 else 1
    return {"prefills": count, "decodes": count, "tp": 2}


def _fitting(bench: Bench, ranks: int) -> bool:
    return ranks <= bench.ranks()


def prompts(bench: Bench) -> Found:
    """TTFT by length of the prompt."""
    checks: list[Check] = []
    for prompt in (128, 512, 1024, 2048):
        checks += _served(bench, f", {prompt} tokens", prompt=prompt, rate=2000, requests=12)[0]
    return checks, ["prompts up to 2,048 tokens; the draft has 16,384"]


def ratios(bench: Bench) -> Found:
    """More prefill or more decode instances, of eight or as many as there are GPUs."""
    checks: list[Check] = []
    best: list[tuple[float, str]] = []
    both = min(bench.ranks(), 8)
    for prefills in sorted({max(both * part // 8, 1) for part in (1, 2, 4, 6, 7)}):
        name = f", {prefills}P{both - prefills}D"
        found, result = _served(bench, name, prefills=prefills, decodes=both - prefills, tp=1)
        served = result.summary.jobs["chat"].serving
        best.append((0.0 if served is None else served.tokens_per_s or 0.0, name[2:]))
        checks += found
    return checks, [f"most tokens a second: {max(best)[1]}"] if best else []


def parallelism(bench: Bench) -> Found:
    """Tensor parallelism of 1, 2 and 4."""
    checks: list[Check] = []
    for degree in (1, 2, 4):
        if _fitting(bench, 2 * _instances(bench)["prefills"] * degree):
            checks += _served(bench, f", TP {degree}", tp=degree)[0]
            checks += figure("count", f"flows of a request, TP {degree}", degree)
    return checks, ["both pools have one degree here; the draft has pools that differ"]


def queue_depth(bench: Bench) -> Found:
    """Requests beyond what prefill can take."""
    work = {
        "kind": "serving",
        "model": "own",
        "own": MODEL,
        "requests": 1,
        "rate": 1,
        "prompt": PROMPT,
        "output": 8,
    }
    (job,) = bench.prepared([_chat(bench, {**work, **_instances(bench)})]).jobs
    facts = cast("ServingFacts", job.facts)
    capacity = facts.serving.prefills * 1e12 / facts.serving.prefill_ps(PROMPT)
    checks: list[Check] = []
    for over in (1.0, 1.25, 1.5, 2.0):
        name = f", {over:.2f} x capacity"
        found, result = _served(bench, name, rate=round(over * capacity))
        checks += [one for one in found if "TTFT_fabric" in one.what or "answered" in one.what]
        checks += congestion(result.summary, name)
    return checks, []


# Category 3: experts


def dispatch(bench: Bench) -> Found:
    """An all_to_all of each of the draft's configurations, and ITL_fabric of a layer."""
    checks, runs = [], []
    for mix in MIXES:
        size = _dispatch_bytes(bench, mix)
        _, result = bench.run([job("experts", collective("all_to_all", size, 3))])
        calls = result.summary.jobs["experts"].collectives
        times = percentiles([(one.end_ps or 0) - (one.start_ps or 0) for one in calls])
        name = f", {mix} ({about_size(size)} a GPU)"
        checks += figure("rate", f"BusBW{name}", mean(float(one.busbw or 0) for one in calls))
        checks += _times("EP_alltoall", name, times)
        runs.append(result)
    size = _dispatch_bytes(bench)
    layer = [
        {"do": "compute", "time": "50us"},
        {"do": "all_to_all", "size": f"{size}B"},
        {"do": "compute", "time": "50us"},
        {"do": "all_to_all", "size": f"{size}B"},
    ]
    _, result = bench.run([job("decode", {"kind": "program", "steps": 5, "operations": layer})])
    checks += figure(
        "time", "ITL_fabric, dispatch and combine of a layer, M1", kpis(result.summary, "decode").exposed_ps
    )
    return [*checks, ended(*runs, result)], ["3 iterations a trial; the draft has 20 trials of 60 s"]


def routing_modes(bench: Bench) -> Found:
    """Even dispatch, dispatch with hot experts, and a batch of one."""
    ranks, size = bench.ranks(), _dispatch_bytes(bench)
    hot = [[3 if to % 4 == 0 else 1 for to in range(ranks)] for _ in range(ranks)]
    uneven = {**collective("all_to_allv", size, 5), "counts": hot}
    small = collective("all_to_all", max(size // BATCH[bench.site.scale], ranks), 5)
    works = (
        ("standard top-k, normal", collective("all_to_all", size, 5)),
        ("hot experts (3 to 1), normal", uneven),
        ("standard top-k, low latency (a batch of one)", small),
    )
    checks, runs = [], []
    for name, work in works:
        _, result = bench.run([job("experts", work)])
        calls = result.summary.jobs["experts"].collectives
        times = percentiles([(one.end_ps or 0) - (one.start_ps or 0) for one in calls])
        checks += [*_times("EP_alltoall", f", {name}", times), *congestion(result.summary, f", {name}")]
        runs.append(result)
    return [*checks, ended(*runs)], [
        "expert choice and auxiliary loss are even and uneven dispatch; no token is dropped"
    ]


def wide(bench: Bench) -> Found:
    """The same dispatch over more and more GPUs."""
    checks, runs, count, first = [], [], 2, 0.0
    while count <= bench.ranks():
        _, result = bench.run(
            [job("experts", collective("all_to_all", _dispatch_bytes(bench), 3), ranks=count)]
        )
        calls = result.summary.jobs["experts"].collectives
        times = mean(float((one.end_ps or 0) - (one.start_ps or 0)) for one in calls)
        first = first or times
        checks += figure("time", f"dispatch, EP {count}", times)
        checks += figure(
            "ratio", f"scaling efficiency, EP {count}", first / times * count / 2 if times else None
        )
        runs.append(result)
        count *= 2
    return [*checks, ended(*runs)], [
        "efficiency is (EP 2 latency / EP N latency) x N / 2; the draft begins at EP 8"
    ]


def contention(bench: Bench) -> Found:
    """Keys and values beside dispatch, each by itself and together."""
    half, size = _halves(bench), bench.site.flow_bytes // 4
    flows = [
        {"src": one, "dst": half + one, "size": f"{size}B", "start": f"{100 * turn}us"}
        for turn in range(4)
        for one in range(half)
    ]
    keys = job("keys", {"kind": "flows", "qps": 4, "flows": flows})
    experts = job("experts", collective("all_to_all", _dispatch_bytes(bench, "M2"), 5))
    found: dict[str, list[int]] = {}
    runs = []
    for jobs in ([keys], [experts], [keys, experts]):
        _, result = bench.run(jobs)
        summary = result.summary
        if "keys" in summary.jobs and (times := summary.jobs["keys"].flow_times) is not None:
            found.setdefault("KV_xfer", []).append(times.p99_ps)
        if "experts" in summary.jobs:
            calls = summary.jobs["experts"].collectives
            ranked = percentiles([(one.end_ps or 0) - (one.start_ps or 0) for one in calls])
            found.setdefault("EP_alltoall", []).append(0 if ranked is None else ranked.p99_ps)
        runs.append(result)
    checks: list[Check] = []
    for name, times_ps in found.items():
        checks += figure("time", f"{name} P99, isolated", times_ps[0])
        if len(times_ps) > 1:
            checks += figure("time", f"{name} P99, contended", times_ps[1])
            checks += figure("ratio", f"{name} contention penalty", times_ps[1] / max(times_ps[0], 1))
    return [*checks, *congestion(runs[-1].summary), ended(*runs)], []
