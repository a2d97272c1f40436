"""The AI-fabric benchmarks proposed to the IETF's BMWG: which tests there are, their trials, and the report.

Numbers of tests are category.test of the training draft; those of the inference draft begin with `i`. Tests
go side by side, and a test is a few runs in one process. A test in which something is drawn (hashes,
arrivals, who sends to whom) has several trials, each with a seed of its own; its KPIs are means, with their
coefficient of variation. A trial that ends in an error is excluded, with the reason. A test of a mechanism
that the schema of scenarios does not name is answered as not supported; the schema is searched each time.

KPIs are paths of the summary (docs/results.md).

Source: draft-calabria-bmwg-ai-fabric-training-bench (editors' copy of 1 October 2026), -inference-bench (8
October 2026), -terminology-04: individual drafts, not adopted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from functools import cache, partial
from statistics import mean
from typing import Any, Final, NamedTuple

from emu.api import scenario_schema
from emu.base.errors import EmuError, UsageError
from emu.base.spelling import did_you_mean, listed
from emu.base.units import about_rate, about_size
from emu.doors.accept import bmwg_inference as inference
from emu.doors.accept import bmwg_training as training
from emu.doors.accept.answers import Answer, Check, Section
from emu.doors.accept.bench import TOPOLOGIES, TRIALS, Bench, Site, nic_bps, shown, spread
from emu.doors.accept.bmwg_training import Found
from emu.many_runs import Machines, carried
from emu.many_runs import answers as answers_of
from emu.topology.outline import describe


def _routed(kind: str) -> Callable[[Bench], Found]:
    """The test of a load balancer."""
    return partial(training.balancing, changes={"routing": {"kind": kind}})


class Test(NamedTuple):
    """A test of a draft."""

    number: str
    title: str
    carry_out: Callable[[Bench], Found] | None
    """None for what no run stands for."""
    needs: str = ""
    """A word that the schema of scenarios has if the mechanism exists; behind "=", why there is no run."""
    drawn: bool = False
    """Whether another seed is another trial."""


TESTS: Final = (
    Test("1.1", "baseline throughput", training.throughput, drawn=True),
    Test("1.2", "latency, idle and loaded", training.latency, drawn=True),
    Test("1.3", "burst absorption", training.burst),
    Test("2.1", "transport modes (multipath)", training.transports, "multipath", drawn=True),
    Test("2.2", "spraying by the NIC (multipath)", training.spraying, "multipath", drawn=True),
    Test("2.3", "incast without PFC (multipath)", training.incast_without_pfc, "multipath"),
    Test("2.4", "link-level retry", None, "llr"),
    Test("2.5", "packet trimming", None, "trim"),
    Test("2.6", "credit-based flow control of UET", None, "cbfc"),
    Test("2.7", "set-up of a packet delivery context", None, "uet"),
    Test("3.1", "ECN marking", training.marking),
    Test("3.2", "PFC under incast", training.pfc),
    Test("3.3", "DCQCN convergence", training.convergence, "dcqcn"),
    Test("3.4", "PFC storm and watchdog", training.storm),
    Test(
        "4.1",
        "ECMP",
        partial(training.balancing, changes={"routing": {"kind": "e_ecmp"}}),
        "ecmp",
        drawn=True,
    ),
    Test(
        "4.2",
        "flowlets",
        partial(training.balancing, changes={"routing": {"kind": "flowlet"}}),
        "flowlet",
        drawn=True,
    ),
    Test("4.3", "packet spray", partial(training.balancing, changes=training.SPRAYED), "spray", drawn=True),
    Test("4.4", "fairness over load balancers", _routed("adaptive"), "adaptive", drawn=True),
    Test("5.1", "all_reduce", partial(training.library, op="all_reduce"), drawn=True),
    Test("5.2", "all_to_all", partial(training.library, op="all_to_all"), drawn=True),
    Test("5.3", "all_gather", partial(training.library, op="all_gather"), drawn=True),
    Test("5.4", "reduce_scatter", partial(training.library, op="reduce_scatter"), drawn=True),
    Test("6.1", "synthetic job completion time", training.step, drawn=True),
    Test(
        "6.2", "MLPerf training", None, "=MLPerf runs on accelerators; `emu run training_step` times a step"
    ),
    Test("6.3", "interference of jobs", training.interference, drawn=True),
    Test("7.1", "scale", training.growth, drawn=True),
    Test("7.2", "failure of a link", partial(training.failure, kind="link_down"), drawn=True),
    Test("7.3", "failure of a switch", partial(training.failure, kind="switch_crash"), drawn=True),
    Test("8.1", "soak", training.soak),
    Test("8.2", "leaks of memory and CPU", None, "=an emulated switch has no CPU and no memory that leaks"),
    Test("i1.1", "transfer of keys and values: throughput", inference.transfer),
    Test("i1.2", "transfer of keys and values: latency", inference.transfer_latency, drawn=True),
    Test("i1.3", "transfer of keys and values: scaling", inference.transfer_scaling, drawn=True),
    Test("i1.4", "transfer over tiers of storage", inference.tiers),
    Test("i2.1", "TTFT with prefill and decode apart", inference.prompts, drawn=True),
    Test("i2.2", "ratio of prefill to decode", inference.ratios, drawn=True),
    Test("i2.3", "parallelism of prefill and decode", inference.parallelism, drawn=True),
    Test("i2.4", "depth of the prefill queue", inference.queue_depth, drawn=True),
    Test("i3.1", "dispatch to experts", inference.dispatch, drawn=True),
    Test("i3.2", "modes of routing and dispatch", inference.routing_modes, drawn=True),
    Test("i3.3", "wide expert parallelism", inference.wide, drawn=True),
    Test("i3.4", "experts against keys and values", inference.contention, drawn=True),
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
def _abilities() -> tuple[str, ...]:
    """Every word in the name of a kind that a scenario can choose."""
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
    return tuple(" ".join(words).lower().replace("_", " ").split())


def able(word: str) -> bool:
    """Whether a scenario can choose something whose name has this word."""
    return any(one.startswith(word) for one in _abilities())


def carry_out(site: Site, test: Test, trials: int = 1) -> Answer:
    """One test; `trials` if something is drawn in it."""
    if test.needs.startswith("="):
        return Answer(test.number, test.title, (), test.needs[1:])
    if test.needs and not able(test.needs):
        reason = f"no kind of a scenario is named {test.needs}: the mechanism does not exist here"
        return Answer(test.number, test.title, (), reason)
    if test.carry_out is None:
        return Answer(test.number, test.title, (), f"{test.needs} exists, and this test has no scenario yet")
    included: list[list[Check]] = []
    digests: list[str] = []
    excluded: list[str] = []
    notes: list[str] = []
    count = trials if test.drawn else 1
    for seed in range(1, count + 1):
        bench = Bench(site, seed)
        try:
            found, notes = test.carry_out(bench)
        except EmuError as error:
            excluded.append(f"seed {seed}: {' '.join(str(error).split())}")
            continue
        included.append(found)
        digests += bench.digests
    checks = _merged(included)
    digest = " ".join(digests)
    return Answer(test.number, test.title, checks, "", tuple(notes), digest, count, tuple(excluded))


def _merged(trials: Sequence[Sequence[Check]]) -> tuple[Check, ...]:
    """The checks of all trials in one: means, and whether each of them holds."""
    if len(trials) < 2:
        return tuple(trials[0]) if trials else ()
    merged = []
    for first in trials[0]:
        same = [one for trial in trials for one in trial if one.what == first.what]
        values = [one.number for one in same if one.number is not None]
        holds = None if first.holds is None else all(one.holds is not False for one in same)
        found, number, cv = first.found, first.number, None
        if first.kind and len(values) == len(same):
            alike = len({shown(first.kind, value) for value in values}) == 1
            number, cv = mean(values), 0.0 if alike else round(spread(values), 6)
            found = shown(first.kind, number) + ("" if alike else f" (CV {100 * cv:.1f} %)")
        elif len({one.found for one in same}) > 1:
            found = "; ".join(dict.fromkeys(one.found for one in same))
        merged.append(first._replace(found=found, number=number, cv=cv, holds=holds))
    return tuple(merged)


def answer(
    site: Site, tests: Sequence[Test], machines: Machines, tell: Callable[[str], None], trials: int = 0
) -> list[Answer]:
    """All these tests, side by side; `trials` of each in which something is drawn, 0: as the scale has it.

    `tell` hears how many of how many are done, and of the last.
    """
    answers: list[Answer] = []
    one_test = partial(_numbered, site, trials or TRIALS[site.scale])
    for one in answers_of(
        machines, one_test, tests, partial(carried, files=[site.file] if site.file else [])
    ):
        answers.append(one)
        tell(f"{len(answers)} of {len(tests)} tests: {one.test} {one.title}: {one.verdict}")
    return answers


def _numbered(site: Site, trials: int, test: Test) -> Answer:
    return carry_out(site, test, trials)


def comparability(site: Site) -> dict[str, str]:
    """What has to be equal where two reports are compared, and what stands beside it."""
    prepared = Bench(site).prepared()
    fabric, scenario = describe(prepared.topology), prepared.scenario
    gpus = max(fabric.gpus, 1)
    found = {
        "N": f"{fabric.gpus} GPUs",
        "placement": "numbered",
        "B_acc": about_rate(nic_bps(prepared) // gpus),
        "S": f"flows of {about_size(site.flow_bytes)}, calls of {about_size(site.call_bytes)}",
        "f": "as nccl-tests",
        "transport": f"{scenario.transport.kind}, {scenario.transport.recovery.kind}",
        "load balancing": f"{scenario.routing.kind} unless a test names another",
    }
    oversubscribed = [
        f"{round(tier.down_bps / tier.up_bps, 3):g}" for tier in fabric.tiers if tier.up_bps and tier.down_bps
    ]
    beside = {
        "oversubscription": ", ".join(oversubscribed) or "none",
        "hops": f"{fabric.most_switches} switches at most",
        "equal-cost paths": f"{fabric.far_paths} between {fabric.far_pair[0]} and {fabric.far_pair[1]}",
        "bisection": "not known" if fabric.bisection_bps is None else about_rate(fabric.bisection_bps),
    }
    return found | beside


EQUAL: Final = ("N", "placement", "B_acc", "S", "f", "transport", "load balancing", "oversubscription")
"""Those that have to be equal; the others are reported."""


POINTS: Final = (
    "Observation points: JCT, BusBW, TTFT and ITL are of the endpoint; S_fabric, throughput and TTFT_fabric"
    " of the fabric boundary (NICs); XOFF, marks, MMR and drops of device telemetry. No KPI mixes two."
)
ANOMALY: Final = (
    "This is an emulator: neither a hardware generator nor an accelerator cluster, which the training draft"
    " accepts; the inference draft allows a software workload emulator (3.4.2). It was not cross-checked"
    " within 10 % against either."
)


def sections(site: Site, answers: Sequence[Answer]) -> list[Section]:
    """The ten sections of a report by the draft."""
    prepared = Bench(site).prepared()
    fabric, scenario = describe(prepared.topology), prepared.scenario
    named = (
        f"the scenario {site.file}" if site.file else f"topology {site.topology}, {TOPOLOGIES[site.topology]}"
    )
    runs = sum(len(one.digest.split()) for one in answers)
    begun = sum(one.trials for one in answers if one.verdict != "not supported")
    excluded = [f"{one.test}, {line}" for one in answers for line in one.excluded]
    lacking = [one.test for one in answers if one.verdict == "not supported"]
    switches = sum(tier.switches for tier in fabric.tiers)
    drawn = [one.test for one in answers if one.trials > 1]
    on = {True: "on", False: "off"}
    return [
        ("1. Device under test", [f"switches and links of {named}, emulated; no ASIC, no operating system"]),
        (
            "2. Topology",
            [
                (
                    f"{fabric.gpus} GPUs on {fabric.hosts} servers, {fabric.nics} NICs, {switches} switches,"
                    f" {about_rate(fabric.nics_bps)} of NICs"
                )
            ],
        ),
        (
            "3. Configuration",
            [
                (
                    f"routing {scenario.routing.kind} unless a test names another, PFC"
                    f" {on[scenario.switch.pfc.enabled]}, ECN {on[scenario.switch.ecn.enabled]}; the rest as"
                    " `emu validate` prints it"
                )
            ],
        ),
        ("4. Hosts", [f"emulated hosts, NICs and library (NCCL 2.30); MTU {scenario.transport.mtu_bytes} B"]),
        (
            "5. Results",
            [
                "The drafts name no limits: a FAIL is a job that did not end, or loss where none may be.",
                POINTS,
            ],
        ),
        (
            "6. Anomalies",
            [
                ANOMALY,
                (
                    f"Windows are shortened: flows of {about_size(site.flow_bytes)}, calls of"
                    f" {about_size(site.call_bytes)} in place of 60 s trials, iterations in place of 24 h."
                ),
                *([f"Not supported: {listed(lacking, 40)}."] if lacking else []),
            ],
        ),
        (
            "7. Repeatability",
            [
                "A scenario and its seed give one digest; the digests are in answers.json.",
                *([f"Tests with trials by seed, and CV: {listed(drawn, 40)}."] if drawn else []),
            ],
        ),
        ("8. Comparability", [f"{key}: {value}" for key, value in comparability(site).items()]),
        ("9. Observation points", ["as named under Results: endpoint, fabric boundary, device telemetry"]),
        (
            "10. Trial accounting",
            [
                (
                    f"{begun} trials attempted, {begun - len(excluded)} included ({runs} runs),"
                    f" {len(excluded)} excluded"
                ),
                *excluded,
            ],
        ),
    ]
