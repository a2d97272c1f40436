"""The AI-fabric benchmarks proposed to the IETF's BMWG: each test as scenarios, and the KPIs read off.

Numbers of tests are category.test of the training draft; those of the inference draft begin with `i`.
A test is a few runs in one process; tests go side by side. A test of a mechanism that the schema of
scenarios does not name is answered as not supported; the schema is searched each time.

KPIs, in the drafts' words: BusBW as nccl-tests; JCT ratio = JCT / roofline, of a collective S x f / B;
JFI = (sum x)^2 / (N sum x^2) over the rates of flows; MMR = most / mean of flows over uplinks; S_fabric =
payload bytes, each counted once, that NICs delivered; interference = JCT contended / alone; loss time = what
a failure adds to the job.

Source: draft-calabria-bmwg-ai-fabric-training-bench (editors' copy of 1 October 2026), -inference-bench (8
October 2026), -terminology-04: individual drafts, not adopted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cache, partial
from statistics import mean, pstdev
from typing import Any, Final, Literal, NamedTuple

from actors.fabric.model import Role
from actors.kernel.counters import NIC_DELIVERED_BYTES, PFC_WATCHDOG_STORMS, PORT_RECEIVE_FRAMES, Metric
from emu.accept.answers import Answer, Check, Section
from emu.api import Prepared, Result, prepare, run_prepared, scenario_schema
from emu.base.errors import UsageError
from emu.base.shipped import scenario_named
from emu.base.side_by_side import side_by_side
from emu.base.spelling import did_you_mean, listed
from emu.base.units import about_size, shown_time
from emu.results.busbw import bus_factor
from emu.results.summary import Flow
from emu.runtime.outcome import RunOptions
from emu.scenario.load import load, load_mapping
from emu.scenario.set_options import override_with

Scale = Literal["small", "draft"]
FABRICS: Final[dict[tuple[str, Scale], dict[str, object]]] = {
    ("A", "small"): {"kind": "ai_zone", "racks": 4, "hosts_per_rack": 4, "gpus_per_host": 1, "spines": 4},
    ("A", "draft"): {"kind": "ai_zone", "racks": 8, "hosts_per_rack": 2, "gpus_per_host": 8, "spines": 16},
    ("B", "small"): {"kind": "fat_tree", "k": 4},
    ("B", "draft"): {"kind": "fat_tree", "k": 8},
    ("C", "small"): {
        "kind": "megascale",
        "pods": 1,
        "blocks_per_pod": 1,
        "hosts_per_block": 4,
        "gpus_per_host": 4,
        "aggs_per_pod": 4,
    },
    ("C", "draft"): {
        "kind": "megascale",
        "pods": 1,
        "blocks_per_pod": 1,
        "hosts_per_block": 16,
        "gpus_per_host": 8,
        "aggs_per_pod": 8,
    },
}
"""A: two-tier Clos. B: three tiers. C: rails."""
TOPOLOGIES: Final = {"A": "two-tier Clos", "B": "three-tier Clos", "C": "rails"}
FLOW_BYTES: Final[dict[Scale, int]] = {"small": 2 << 20, "draft": 16 << 20}
CALL_BYTES: Final[dict[Scale, int]] = {"small": 8 << 20, "draft": 256 << 20}
BURST_BYTES: Final = 64 << 20
"""Where the search for the first loss ends."""


class Site(NamedTuple):
    """What is tested: a topology of the draft or a file, and how large the tests are."""

    topology: str
    """A letter; empty with a file."""
    file: str
    scale: Scale


class _Bench(NamedTuple):
    """Runs on a site."""

    site: Site

    def prepared(
        self,
        jobs: Sequence[object],
        faults: Sequence[object] = (),
        changes: Mapping[str, object] | None = None,
    ) -> Prepared:
        """A scenario of these jobs on the site's fabric."""
        given = {
            "jobs": list(jobs),
            "faults": list(faults),
            "expect": [],
            "run.sample_every": "10s",
            **(changes or {}),
        }
        overrides = [override_with(key, value, "emu accept") for key, value in given.items()]
        if self.site.file:
            path, variant = scenario_named(self.site.file)
            return prepare(load(path, overrides, variant))
        fabric = FABRICS[self.site.topology, self.site.scale]
        return prepare(load_mapping({"name": "bmwg", "topology": fabric}, overrides=overrides))

    def run(
        self,
        jobs: Sequence[object],
        faults: Sequence[object] = (),
        changes: Mapping[str, object] | None = None,
    ) -> tuple[Prepared, Result]:
        """Run them."""
        prepared = self.prepared(jobs, faults, changes)
        return prepared, run_prepared(prepared, RunOptions(local=True, metrics=False), diagnose=False)


def _job(name: str, workload: Mapping[str, object], **more: object) -> dict[str, object]:
    return {"name": name, "workload": dict(workload), **more}


def _collective(op: str, size: int, iterations: int = 1) -> dict[str, object]:
    return {"kind": "collective", "op": op, "sizes": [f"{size}B"], "iterations": iterations, "warmup": 1}


def _permutation(size: int, queue_pairs: int = 1) -> dict[str, object]:
    return {"kind": "permutation", "size": f"{size}B", "qps": queue_pairs}


# KPIs


def jain(rates: Sequence[float]) -> float:
    """Jain's fairness index, from 1 / N to 1."""
    squares = sum(rate * rate for rate in rates)
    return sum(rates) ** 2 / (len(rates) * squares) if squares else 0.0


def most_over_mean(loads: Sequence[float]) -> float:
    """MMR of loads; those of idle members count."""
    average = mean(loads) if loads else 0.0
    return max(loads) / average if average else 0.0


def _counter(result: Result, metric: Metric) -> int:
    return sum(
        value
        for record in result.outcome.devices
        for series, value in zip(record.series, record.counters, strict=True)
        if series.metric == metric
    )


def _rates(flows: Sequence[Flow]) -> list[float]:
    return [float(flow.throughput_bps or 0) for flow in flows]


def _nic_bps(prepared: Prepared) -> int:
    """What all NICs together send."""
    topology = prepared.topology
    nics = set(topology.nics)
    return sum(
        link.rate_bps
        for link in topology.links
        if (link.a in nics or link.b in nics)
        and Role.SWITCH in (topology.nodes[link.a].role, topology.nodes[link.b].role)
    )


def _uplink_loads(result: Result) -> list[float]:
    """Payload on each uplink of the lowest tier."""
    ups = {(row.switch, other) for row in result.summary.fabric.uplinks for other in row.towards}
    return [
        float(link.data_bytes)
        for link in result.summary.fabric.links
        if (link.source, link.destination) in ups
    ]


def _drops(result: Result) -> int:
    drops = result.summary.fabric.drops
    return 0 if drops is None else drops.total


def _share(what: str, value: float, asked: str = "", holds: bool | None = None) -> Check:
    return Check(what, f"{100 * value:.1f} %", asked, holds, value)


def _ratio(what: str, value: float, asked: str = "", holds: bool | None = None) -> Check:
    return Check(what, f"{value:.3f}", asked, holds, value)


def _time(what: str, time_ps: float) -> Check:
    return Check(what, shown_time(round(time_ps)), "", None, time_ps)


def _count(what: str, value: int) -> Check:
    return Check(what, f"{value:,}", "", None, float(value))


def _rate(what: str, value_bps: float) -> Check:
    return Check(what, f"{value_bps / 8e9:.2f} GB/s", "", None, value_bps)


def _ended(result: Result) -> Check:
    lost = [name for name, job in result.summary.jobs.items() if job.status != "success"]
    return Check("jobs that did not end well", listed(lost) or "none", "none", not lost)


Found = tuple[list[Check], list[Result], list[str]]
"""Checks, the runs they are read off, and notes."""


# Category 1: RDMA over the fabric


def _throughput(bench: _Bench) -> Found:
    size = FLOW_BYTES[bench.site.scale]
    checks, results = [], []
    for queue_pairs in (1, 16):
        prepared, result = bench.run(
            [_job("pairs", _permutation(size, queue_pairs))], changes={"routing": {"kind": "e_ecmp"}}
        )
        flows = result.summary.jobs["pairs"].flows
        took_ps = max(flow.delivered_ps or 0 for flow in flows) - min(flow.start_ps or 0 for flow in flows)
        total = sum(flow.bytes for flow in flows) * 8e12 / took_ps
        checks.append(
            _share(f"aggregate of line rate, {queue_pairs} queue pairs", total / _nic_bps(prepared))
        )
        results.append(result)
    return [*checks, _ended(results[-1])], results, []


def _latency(bench: _Bench) -> Found:
    small = _job(
        "tagged", {"kind": "poisson", "sizes": "hadoop", "load": 0.01, "flows": 400, "size_scale": 0.01}
    )
    _, idle = bench.run([small])
    load = _job("load", _permutation(FLOW_BYTES[bench.site.scale]))
    _, loaded = bench.run([small, load])
    times = [one.summary.jobs["tagged"].flow_times for one in (idle, loaded)]
    checks = []
    for name, each in zip(("idle", "loaded"), times, strict=True):
        if each is not None:
            checks += [_time(f"{name}, P50", each.p50_ps), _time(f"{name}, P99", each.p99_ps)]
            checks.append(_time(f"{name}, P99.9", each.p999_ps))
    if times[0] is not None and times[1] is not None:
        checks.append(_ratio("factor of P99 under load", times[1].p99_ps / times[0].p99_ps))
    return checks, [idle, loaded], ["400 samples a run; the draft asks for 10,000"]


def _burst(bench: _Bench) -> Found:
    """The longest burst of k senders to one that loses nothing, without PFC, by bisection."""
    changes = {"switch.pfc.enabled": False, "run.max_time": "20ms"}

    def burst(fan_in: int, size: int) -> Result:
        job = _job("burst", {"kind": "incast", "fan_in": fan_in, "size": f"{size}B"})
        return bench.run([job], changes=changes)[1]

    checks, results = [], []
    for fan_in in (2, 8):
        low, high = 0, BURST_BYTES
        while high - low > max(low // 32, 4096):
            size = (low + high) // 2
            low, high = (low, size) if _drops(burst(fan_in, size)) else (size, high)
        results.append(burst(fan_in, low or 1))
        shown = "no loss up to " + about_size(high) if high == BURST_BYTES else about_size(low)
        checks.append(Check(f"absorbed of each of {fan_in} senders", shown, "", None, float(low)))
    return checks, results, []


# Category 3: congestion


def _marking(bench: _Bench) -> Found:
    job = _job("incast", {"kind": "incast", "fan_in": 4, "size": f"{FLOW_BYTES[bench.site.scale]}B"})
    changes = {"switch.ecn.enabled": True, "transport.congestion_control": {"kind": "dcqcn"}}
    _, result = bench.run([job], changes=changes)
    frames = _counter(result, PORT_RECEIVE_FRAMES)
    marked = result.summary.fabric.queue_marked_frames or 0
    return [_count("frames marked", marked), _share("of all frames", marked / max(frames, 1))], [result], []


def _incast(bench: _Bench) -> Found:
    checks, results = [], []
    for fan_in in (2, 8):
        size = 8 * FLOW_BYTES[bench.site.scale]
        job = _job("incast", {"kind": "incast", "fan_in": fan_in, "size": f"{size}B"})
        _, result = bench.run([job])
        fabric = result.summary.fabric
        checks += [
            _count(f"XOFF frames, {fan_in}:1", fabric.pfc_transmit_xoff_frames or 0),
            _time(f"paused, {fan_in}:1", fabric.pfc_paused_ps or 0),
            Check(
                f"frames lost, {fan_in}:1",
                f"{_drops(result):,}",
                "0",
                not _drops(result),
                float(_drops(result)),
            ),
        ]
        results.append(result)
    return checks, results, []


def _storm(bench: _Bench) -> Found:
    prepared = bench.prepared([_job("pairs", _permutation(FLOW_BYTES[bench.site.scale]))])
    nic = prepared.topology.nodes[prepared.topology.nics[1]].name
    watchdog = {"enabled": True, "detection": "1ms", "restoration": "2ms"}
    changes = {"switch.pfc.watchdog": watchdog, "run.max_time": "20ms", "transport.timeout": 10}
    _, result = bench.run(
        [_job("pairs", _permutation(FLOW_BYTES[bench.site.scale]))],
        [{"kind": "pause_storm", "target": nic, "at": "5us"}],
        changes,
    )
    storms = _counter(result, PFC_WATCHDOG_STORMS)
    return (
        [Check("storms that the watchdog ended", f"{storms:,}", "above 0", storms > 0, float(storms))],
        [result],
        [],
    )


# Category 4: load balancing


def _balancing(bench: _Bench, kind: str, changes: Mapping[str, object]) -> Found:
    size = FLOW_BYTES[bench.site.scale]
    checks, results = [], []
    for queue_pairs in (1, 8):
        _, result = bench.run(
            [_job("pairs", {**_permutation(size, queue_pairs)})],
            changes={"routing": {"kind": kind}, **changes},
        )
        rates = _rates(result.summary.jobs["pairs"].flows)
        frames = _counter(result, PORT_RECEIVE_FRAMES)
        disorder = (result.summary.fabric.nic_out_of_sequence or 0) / max(frames, 1)
        checks += [
            _ratio(f"MMR, {queue_pairs} queue pairs", most_over_mean(_uplink_loads(result))),
            _ratio(f"JFI, {queue_pairs} queue pairs", jain(rates)),
            Check(
                f"out of order, {queue_pairs} queue pairs", f"{1e6 * disorder:.0f} ppm", "", None, disorder
            ),
        ]
        results.append(result)
    return checks, results, ["flows are of one size, so MMR of their counts is that of their bytes"]


# Category 5: collectives


def _library(bench: _Bench, op: str) -> Found:
    size = CALL_BYTES[bench.site.scale]
    prepared, result = bench.run([_job("call", _collective(op, size, 2))])
    calls = result.summary.jobs["call"].collectives
    ranks = calls[0].ranks
    rates = [float(one.busbw or 0) for one in calls]
    line = _nic_bps(prepared) / len(prepared.topology.nics)
    measured = _counter(result, NIC_DELIVERED_BYTES) / (len(calls) + 1)
    factor = float(bus_factor(op, ranks))
    spread = pstdev(rates) / mean(rates) if mean(rates) else 0.0
    return (
        [
            _rate(f"BusBW, {about_size(size)}, {ranks} ranks", mean(rates)),
            _share("of a NIC's rate", mean(rates) / line),
            _share("CV over iterations", spread),
            Check("S_fabric, measured", about_size(round(measured)), "", None, measured),
            Check(
                "S_fabric, derived (S x f x N)",
                about_size(round(size * factor * ranks)),
                "",
                None,
                size * factor * ranks,
            ),
            Check("algorithm (verified)", calls[0].algorithm, "", None),
            _ended(result),
        ],
        [result],
        ["derived is of a flat algorithm: what stays on NVLink, or in an NVSwitch, crosses no NIC"],
    )


# Category 6 and 7: jobs, scale, resilience


def _step(bench: _Bench) -> Found:
    size, compute_us = CALL_BYTES[bench.site.scale], 500
    operations = [
        {"do": "compute", "time": f"{compute_us}us"},
        {"do": "all_reduce", "size": f"{size}B"},
    ]
    prepared, result = bench.run([_job("step", {"kind": "program", "operations": operations})])
    job = result.summary.jobs["step"]
    took_ps = (job.end_ps or 0) - (job.start_ps or 0)
    ranks = len(prepared.topology.gpus)
    line = _nic_bps(prepared) / len(prepared.topology.nics)
    wire_ps = size * float(bus_factor("all_reduce", ranks)) * 8e12 / line
    roofline_ps = compute_us * 1e6 + wire_ps
    overlap = 1 - (took_ps - compute_us * 1e6) / max(took_ps - compute_us * 1e6, wire_ps)
    return (
        [
            _time("JCT", took_ps),
            _time("roofline", roofline_ps),
            _ratio("JCT ratio", took_ps / roofline_ps, "1.05 to 1.15 (indicative)"),
            _share("overlap", overlap),
            _ended(result),
        ],
        [result],
        [],
    )


def _interference(bench: _Bench) -> Found:
    size = CALL_BYTES[bench.site.scale]
    ranks = list(range(len(bench.prepared([_job("x", _permutation(4096))]).topology.gpus)))
    both = [
        _job("first", _collective("all_reduce", size), ranks=ranks[0::2]),
        _job("second", _collective("all_reduce", size), ranks=ranks[1::2]),
    ]
    _, alone = bench.run(both[:1])
    _, together = bench.run(both)
    times = [
        (one.summary.jobs["first"].collectives[-1].end_ps or 0)
        - (one.summary.jobs["first"].collectives[-1].start_ps or 0)
        for one in (alone, together)
    ]
    return [_ratio("interference", times[1] / times[0]), _ended(together)], [alone, together], []


def _growth(bench: _Bench) -> Found:
    size = CALL_BYTES[bench.site.scale]
    prepared = bench.prepared([_job("x", _permutation(4096))])
    most, line = len(prepared.topology.gpus), _nic_bps(prepared) / len(prepared.topology.nics)
    checks, results = [], []
    count = 2
    while count <= most:
        _, result = bench.run([_job("call", _collective("all_reduce", size), ranks=count)])
        (call,) = result.summary.jobs["call"].collectives
        took_ps = (call.end_ps or 0) - (call.start_ps or 0)
        roofline_ps = size * float(bus_factor("all_reduce", count)) * 8e12 / line
        checks.append(_ratio(f"JCT ratio, {count} ranks", took_ps / roofline_ps))
        results.append(result)
        count *= 2
    return checks, results, []


def _failure(bench: _Bench, kind: str) -> Found:
    size = CALL_BYTES[bench.site.scale]
    job = _job("call", _collective("all_reduce", size, 2))
    changes = {"routing": {"kind": "e_ecmp", "convergence": "100us"}, "transport.timeout": 8}
    prepared, calm = bench.run([job], changes=changes)
    topology = prepared.topology
    spine = next((topology.nodes[n].name for n in topology.switches if topology.nodes[n].tier > 1), "")
    if not spine:
        raise UsageError(
            "the fabric has one tier, so no link or switch can fail above a leaf; accepted: two or more"
        )
    target = spine
    if kind == "link_down":
        uplink = max(
            (link for link in calm.summary.fabric.links if link.destination == spine),
            key=lambda link: link.data_bytes,
        )
        target = f"{uplink.source}:{uplink.destination}"
    # It strikes a third into the call and outlasts it, so a failover is measured and no repair.
    end_ps = calm.summary.jobs["call"].end_ps or 0
    fault = {"kind": kind, "target": target, "at": f"{end_ps // 3}ps", "for": f"{end_ps}ps"}
    _, hurt = bench.run([job], [fault], changes)
    times = [
        (one.summary.jobs["call"].end_ps or 0) - (one.summary.jobs["call"].start_ps or 0)
        for one in (calm, hurt)
    ]
    (effect,) = hurt.summary.faults
    return (
        [
            _count("packets lost", effect.frames_lost or 0),
            _time("loss time (what it adds to the job)", times[1] - times[0]),
            _share("JCT overhead", times[1] / times[0] - 1),
            _ended(hurt),
        ],
        [calm, hurt],
        [f"{kind} of {target}"],
    )


def _soak(bench: _Bench) -> Found:
    size = CALL_BYTES[bench.site.scale] // 4
    checks, results = [], []
    times: list[float] = []
    for op in ("all_reduce", "all_to_all"):
        _, result = bench.run([_job("call", _collective(op, size, 5))])
        calls = result.summary.jobs["call"].collectives
        times = [float((one.end_ps or 0) - (one.start_ps or 0)) for one in calls]
        checks.append(_share(f"CV of {op} over {len(calls)} iterations", pstdev(times) / mean(times)))
        results.append(result)
    return checks, results, ["iterations in place of 24 hours; an emulator leaks no memory of a switch"]


# Inference


def _transfer(bench: _Bench) -> Found:
    size = FLOW_BYTES[bench.site.scale]
    prepared = bench.prepared([_job("x", _permutation(4096))])
    half = len(prepared.topology.gpus) // 2
    flows = [{"src": one, "dst": half + one, "size": f"{size}B"} for one in range(half)]
    prepared, result = bench.run([_job("keys", {"kind": "flows", "qps": 4, "flows": flows})])
    times = result.summary.jobs["keys"].flow_times
    rates = _rates(result.summary.jobs["keys"].flows)
    line = _nic_bps(prepared) / len(prepared.topology.nics)
    checks = [_share("goodput of a transfer, of line rate", mean(rates) / line), _ratio("JFI", jain(rates))]
    if times is not None:
        checks.append(_time("P99", times.p99_ps))
    return [*checks, _ended(result)], [result], []


def _serving(bench: _Bench, contended: bool) -> Found:
    own = {"layers": 4, "hidden": 2048, "heads": 16, "kv_heads": 4, "ffn": 8192, "sequence": 1024}
    workload: dict[str, object] = {
        "kind": "serving",
        "model": "own",
        "own": own,
        "prefills": 2,
        "decodes": 2,
        "tp": 2,
        "requests": 32,
        "rate": 20000,
        "prompt": 128,
        "output": 8,
    }
    # Even ranks, and odd ones beside them: both jobs are on every server.
    jobs = [_job("chat", workload, ranks=list(range(0, 16, 2)))]
    if contended:
        experts = _collective("all_to_all", CALL_BYTES[bench.site.scale], 2)
        jobs.append(_job("experts", experts, ranks=list(range(1, 16, 2))))
    _, result = bench.run(jobs)
    served = result.summary.jobs["chat"].serving
    assert served is not None
    checks = [
        Check(
            "requests answered",
            f"{served.answered} of {served.requests}",
            "all",
            served.answered == served.requests,
        )
    ]
    if served.first_token is not None:
        checks += [
            _time("TTFT, P50", served.first_token.p50_ps),
            _time("TTFT, P99", served.first_token.p99_ps),
        ]
    if served.transfer is not None:
        checks.append(_time("TTFT_fabric (keys and values), P50", served.transfer.p50_ps))
    if served.each_token is not None:
        checks.append(_time("ITL, P50", served.each_token.p50_ps))
    return checks, [result], []


def _experts(bench: _Bench, op: str, iterations: int) -> Found:
    checks, results, _ = _library(bench, op)
    return (
        checks[:1] + checks[3:4] + checks[-1:],
        results,
        [f"dispatch and combine as {op}, {iterations} rounds"],
    )


class Test(NamedTuple):
    """A test of a draft."""

    number: str
    title: str
    carry_out: Callable[[_Bench], Found] | None
    """None for what no run stands for."""
    lacks: str = ""
    """Why, or a word that the schema of scenarios would have if the mechanism existed."""


UET: Final = "uet"
TESTS: Final = (
    Test("1.1", "baseline throughput", _throughput),
    Test("1.2", "latency, idle and loaded", _latency),
    Test("1.3", "burst absorption", _burst),
    *(
        Test(number, title, None, word)
        for number, title, word in (
            ("2.1", "UET transport modes", UET),
            ("2.2", "UET packet spraying", UET),
            ("2.3", "UET incast without PFC", UET),
            ("2.4", "link-level retry", "llr"),
            ("2.5", "packet trimming", "trim"),
            ("2.6", "credit-based flow control of UET", "cbfc"),
            ("2.7", "set-up of a packet delivery context", UET),
        )
    ),
    Test("3.1", "ECN marking", _marking),
    Test("3.2", "PFC under incast", _incast),
    Test("3.3", "DCQCN convergence", None, "=no detector of convergence is built"),
    Test("3.4", "PFC storm and watchdog", _storm),
    Test("4.1", "ECMP", partial(_balancing, kind="e_ecmp", changes={})),
    Test("4.2", "flowlets", partial(_balancing, kind="flowlet", changes={})),
    Test(
        "4.3",
        "packet spray",
        partial(
            _balancing,
            kind="spray",
            changes={"transport.recovery": {"kind": "go_back_n", "placement": "out_of_order"}},
        ),
    ),
    Test("4.4", "fairness over load balancers", partial(_balancing, kind="adaptive", changes={})),
    Test("5.1", "all_reduce", partial(_library, op="all_reduce")),
    Test("5.2", "all_to_all", partial(_library, op="all_to_all")),
    Test("5.3", "all_gather", partial(_library, op="all_gather")),
    Test("5.4", "reduce_scatter", partial(_library, op="reduce_scatter")),
    Test("6.1", "synthetic job completion time", _step),
    Test(
        "6.2", "MLPerf training", None, "=MLPerf runs on accelerators; `emu run training_step` times a step"
    ),
    Test("6.3", "interference of jobs", _interference),
    Test("7.1", "scale", _growth),
    Test("7.2", "failure of a link", partial(_failure, kind="link_down")),
    Test("7.3", "failure of a switch", partial(_failure, kind="switch_crash")),
    Test("8.1", "soak", _soak),
    Test("8.2", "leaks of memory and CPU", None, "=an emulated switch has no CPU and no memory that leaks"),
    Test("i1.1", "transfer of keys and values", _transfer),
    Test("i2.2", "prefill and decode apart", partial(_serving, contended=False)),
    Test("i3.1", "dispatch to experts", partial(_experts, op="all_to_all", iterations=2)),
    Test("i3.4", "expert traffic against keys and values", partial(_serving, contended=True)),
)


def chosen(patterns: str) -> list[Test]:
    """The tests that are named, like "1.1,4.*"; all of them by default. Raises UsageError."""
    if not patterns:
        return list(TESTS)
    numbers = [test.number for test in TESTS]
    wanted: set[str] = set()
    for pattern in (one.strip() for one in patterns.split(",")):
        found = [number for number in numbers if fnmatchcase(number, pattern)]
        if not found:
            hint = did_you_mean(pattern, numbers) or f"; accepted: {', '.join(numbers)}"
            raise UsageError(f"--tests: there is no test {pattern!r}{hint}")
        wanted.update(found)
    return [test for test in TESTS if test.number in wanted]


@cache
def _abilities() -> str:
    """Every name of a kind that a scenario can choose, in one text."""
    words: list[str] = []

    def walk(value: Any) -> None:
        if isinstance(value, dict):
            words.extend(str(one) for one in (value.get("const"), *value.get("enum", ())) if one is not None)
            for one in value.values():
                walk(one)
        elif isinstance(value, list):
            for one in value:
                walk(one)

    walk(scenario_schema())
    return " ".join(words).lower()


def able(word: str) -> bool:
    """Whether a scenario can choose something whose name has this word."""
    return any(one.startswith(word) for one in _abilities().replace("_", " ").split())


def carry_out(site: Site, test: Test) -> Answer:
    """One test."""
    if test.carry_out is None:
        if test.lacks.startswith("="):
            return Answer(test.number, test.title, (), test.lacks[1:])
        if not able(test.lacks):
            reason = f"no kind of a scenario is named {test.lacks}: the mechanism does not exist here"
            return Answer(test.number, test.title, (), reason)
        reason = f"{test.lacks} exists, and this test has no scenario yet"
        return Answer(test.number, test.title, (), reason)
    checks, results, notes = test.carry_out(_Bench(site))
    digests = " ".join(result.summary.digest[:12] for result in results)
    return Answer(test.number, test.title, tuple(checks), "", tuple(notes), digests)


def answer(site: Site, tests: Sequence[Test], at_once: int, tell: Callable[[str], None]) -> list[Answer]:
    """All these tests, side by side."""
    answers: list[Answer] = []
    for one in side_by_side(partial(carry_out, site), tests, at_once):
        answers.append(one)
        tell(f"{len(answers)} of {len(tests)} tests: {one.test} {one.title}: {one.verdict}")
    return answers


def sections(site: Site, answers: Sequence[Answer]) -> list[Section]:
    """The ten sections of a report by the draft."""
    prepared = _Bench(site).prepared([_job("x", _permutation(4096))])
    topology, scenario = prepared.topology, prepared.scenario
    named = (
        f"the scenario {site.file}" if site.file else f"topology {site.topology}, {TOPOLOGIES[site.topology]}"
    )
    runs = sum(len(one.digest.split()) for one in answers)
    lacking = [one.test for one in answers if one.verdict == "not supported"]
    return [
        ("1. Device under test", [f"switches and links of {named}, emulated; no ASIC, no operating system"]),
        (
            "2. Topology",
            [
                (
                    f"{len(topology.gpus)} GPUs on {len(topology.hosts)} servers, {len(topology.nics)} NICs,"
                    f" {len(topology.switches)} switches, {_nic_bps(prepared) / 1e12:.2f} Tbit/s of NICs"
                )
            ],
        ),
        (
            "3. Configuration",
            [
                (
                    f"routing {scenario.routing.kind} unless a test names another, PFC"
                    f" {'on' if scenario.switch.pfc.enabled else 'off'}, ECN"
                    f" {'on' if scenario.switch.ecn.enabled else 'off'}; the rest as `emu validate` prints it"
                )
            ],
        ),
        (
            "4. Hosts",
            [f"emulated hosts, NICs and library (NCCL {'2.30'}); MTU {scenario.transport.mtu_bytes} B"],
        ),
        (
            "5. Results",
            [
                "The draft names no limits: a FAIL is a job that did not end, or loss where none may be.",
                (
                    "Observation points: JCT, BusBW, TTFT and ITL are of the endpoint; S_fabric and"
                    " throughput of the"
                    " fabric boundary (NICs); XOFF, marks, MMR and drops of device telemetry. No KPI"
                    " mixes two."
                ),
            ],
        ),
        (
            "6. Anomalies",
            [
                (
                    "This is an emulator: neither a hardware generator nor an accelerator cluster, which"
                    " the draft"
                    " accepts. It was not cross-checked within 10 % against either."
                ),
                (
                    f"Windows are shortened: flows of {about_size(FLOW_BYTES[site.scale])}, calls of"
                    f" {about_size(CALL_BYTES[site.scale])} in place of 60 s trials, iterations in place"
                    " of 24 h;"
                    " 3.2 has no trials at 64:1. Repeats are of one seed, because a run gives one answer."
                ),
                *([f"Not supported: {listed(lacking, 40)}."] if lacking else []),
            ],
        ),
        ("7. Repeatability", ["A scenario and its seed give one digest; the digests are in answers.json."]),
        (
            "8. Comparability",
            [
                (
                    f"N = {len(topology.gpus)}, placement numbered, B_acc ="
                    f" {_nic_bps(prepared) / max(len(topology.gpus), 1) / 1e9:.0f} Gbit/s a GPU,"
                    " transport RoCEv2"
                    f" with {scenario.transport.recovery.kind}; f as of nccl-tests; never normalised by"
                    " ASIC capacity"
                )
            ],
        ),
        ("9. Observation points", ["as named under Results: endpoint, fabric boundary, device telemetry"]),
        (
            "10. Trial accounting",
            [f"{runs} runs attempted, {runs} included, none excluded; a test that fails stops the command"],
        ),
    ]
