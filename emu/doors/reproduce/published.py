"""The published figures, the runs that stand beside them, and how ours are read off.

A row is one figure or table of a paper, named as in docs/reproduce.md. Its cases are scenarios of
`scenarios/reproduce` and others, with overrides that pin what the paper states: sizes, queue pairs, policies,
classes. The band of a figure that one run answers is the `expect` of its scenario; a band over several runs
stands here. Where ours is outside, the row says why, and stays.

Values that papers show in a plot were read off it, to about 1.5 points. Sizes are scaled where a row says so;
rates are compared as shares, so that the size of the job does not matter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import cache, partial
from itertools import combinations, pairwise, product
from typing import Any, Final, Literal, NamedTuple

from actors.kernel.mixing import Stream
from emu.base.shipped import CAMPAIGNS, files_of
from emu.doors.weeks.campaign_reading import read_campaign
from emu.doors.weeks.goodput import simulated, summary_of
from emu.doors.weeks.job_queue import PURPOSE
from emu.doors.weeks.server_placement import shuffled
from emu.results.summary import Flow, Recovery, Summary
from emu.views.reports.plot import Curve
from emu.views.reports.plot import Figure as Picture


class Case(NamedTuple):
    """A run: a scenario or a variant by its name, and what is changed in it, as `--set` takes it."""

    scenario: str
    overrides: tuple[tuple[str, str], ...] = ()


Answers = Mapping[Case, Summary]


Basis = Literal["predicted", "fitted", "by construction"]
PREDICTED: Final = "predicted"
"""Nothing here was set by this figure."""
FITTED: Final = "fitted"
"""A constant of the model was set by this figure, or by others of its row."""
BUILT: Final = "by construction"
"""It follows from what the scenario states, or from what a mechanism is: another value would be a bug."""


class Figure(NamedTuple):
    """One number beside the published one."""

    what: str
    published: float | None
    """None where a paper, or we, say no more than `said`."""
    unit: str
    ours: Callable[[Answers], float]
    least: float | None = None
    """The band; None on either side where there is none, and both for what is only shown."""
    most: float | None = None
    said: str = ""
    """In place of the number: "5431-5464", "more than 30"."""
    basis: Basis = PREDICTED
    """What makes it come out."""


class Row(NamedTuple):
    """One figure or table of a paper."""

    name: str
    title: str
    source: str
    cases: tuple[Case, ...]
    figures: tuple[Figure, ...]
    reason: str
    """Why ours is as it is, in one line."""
    long: bool = False
    """Whether it takes minutes, so that `--quick` leaves it out."""
    picture: Callable[[Answers], Picture] | None = None


def _busbw(summary: Summary, size: int = -1) -> float:
    """Busbw of the job's collective at this place, in Gbit/s; 0 where it did not end."""
    (job,) = summary.jobs.values()
    return (job.collectives[size].busbw or 0) / 1e9


# P1 and P5: queue pairs over E-ECMP.

POLICIES: Final = {
    "QP=1": (1, "round_robin"),
    "4 split": (4, "split"),
    "16 split": (16, "split"),
    "4 in turn": (4, "round_robin"),
    "16 in turn": (16, "round_robin"),
}
SIZES: Final = {"32 MB": 32 << 20, "128 MB": 128 << 20, "512 MB": 512 << 20, "2 GB": 2 << 30}
OURS_OF_SIZE: Final = 2
"""Half the sizes over 64 GPUs have the slices, and the share of latency, that whole ones have over 128."""
FIGURE_7: Final = {
    "32 MB": (25, 25, 20, 40, 39),
    "128 MB": (34, 35, 22, 64, 66),
    "512 MB": (36, 45, 42, 91, 90),
    "2 GB": (58, 70, 70, 99, 100),
}
DISTINCT: Final = 4
"""Points by which two published values must differ, for their order to count."""
POINTS: Final = 12
LISTED: Final = ", ".join(f"{size // OURS_OF_SIZE}B" for size in SIZES.values())


def _queue_pairs(policy: str, routing: str = "e_ecmp") -> Case:
    queue_pairs, kind = POLICIES[policy]
    return Case(
        "reproduce_queue_pairs",
        (
            ("topology.racks", "4"),
            ("run.sample_every", "1ms"),
            ("routing.kind", routing),
            ("ncclx.qps_per_connection", str(queue_pairs)),
            ("ncclx.qp_policy", kind),
            ("jobs[0].workload.sizes", f"[{LISTED}]"),
        ),
    )


def _share(answers: Answers, policy: str, size: str) -> float:
    """Percent of the best of all sizes and policies."""
    rates = {
        (one, at): _busbw(answers[_queue_pairs(one)], place)
        for one in POLICIES
        for place, at in enumerate(SIZES)
    }
    return 100 * rates[policy, size] / max(rates.values())


def _in_order(answers: Answers) -> float:
    """Percent of the pairs of policies that the paper tells apart and that are in its order here."""
    right = []
    for size, published in FIGURE_7.items():
        for (one, first), (other, second) in combinations(zip(POLICIES, published, strict=True), 2):
            if abs(first - second) > DISTINCT:
                ours = _share(answers, one, size) - _share(answers, other, size)
                right.append(ours * (first - second) > 0)
    return 100 * sum(right) / len(right)


def _turns_lead(answers: Answers) -> float:
    """The least that whole messages in turn lead by over split ones, in points of the best."""
    return min(
        _share(answers, f"{count} in turn", size) - _share(answers, f"{count} split", size)
        for count in (4, 16)
        for size in SIZES
    )


def _splits_lead(answers: Answers) -> float:
    """The most that sixteen-fold split leads by over one queue pair, up to 128 MB."""
    return max(_share(answers, "16 split", at) - _share(answers, "QP=1", at) for at in ("32 MB", "128 MB"))


def _figure_7() -> Iterator[Figure]:
    for size, published in FIGURE_7.items():
        judged = size in ("128 MB", "2 GB")
        for policy, value in zip(POLICIES, published, strict=True):
            yield Figure(
                f"{size}, {policy}",
                value,
                "%",
                partial(_share, policy=policy, size=size),
                value - POINTS if judged else None,
                value + POINTS if judged else None,
            )
    yield Figure("pairs in the paper's order", 100, "%", _in_order, 100, 100)
    yield Figure("in turn over split", None, "points", _turns_lead, 0, None, "above 0")
    yield Figure("16 split over QP=1", None, "points", _splits_lead, None, 0, "0 at most")


def _draw_7(answers: Answers) -> Picture:
    curves = []
    for policy, column in zip(POLICIES, zip(*FIGURE_7.values(), strict=True), strict=True):
        ours = tuple((float(size), _share(answers, policy, at)) for at, size in SIZES.items())
        theirs = tuple(
            (float(size), float(value)) for size, value in zip(SIZES.values(), column, strict=True)
        )
        curves += [Curve(policy, ours), Curve(f"{policy}, published", theirs)]
    return Picture("size (bytes)", "% of the best", tuple(curves), log_x=True)


def _gain(answers: Answers) -> float:
    """What E-ECMP and sixteen queue pairs gain over ECMP and one, at the best size, in percent."""
    after, before = answers[_queue_pairs("16 in turn")], answers[_queue_pairs("QP=1", "ecmp")]
    return max(100 * (_busbw(after, at) / _busbw(before, at) - 1) for at in range(len(SIZES)))


# P2: tuning.

STAGES: Final = {"untuned": "", "library": "_library", "both": "_both"}
FIGURE_15: Final = {
    ("all_reduce", "128 MB"): (24, 66, 68),
    ("all_reduce", "1 GB"): (24, 81, 96),
    ("all_to_all", "128 MB"): (66, 88, 91),
    ("all_to_all", "1 GB"): (69, 91, 99),
}


def _tuning(operation: str, stage: str) -> Case:
    algorithm = "ring" if operation == "all_reduce" else "direct"
    return Case(
        f"reproduce_tuning{STAGES[stage]}",
        (
            ("jobs[0].workload.op", operation),
            ("jobs[0].workload.algorithm", algorithm),
            ("jobs[0].workload.sizes", "[128MiB, 1GiB]"),
            ("run.sample_every", "1ms"),
        ),
    )


def _tuned(answers: Answers, operation: str, size: str, stage: str) -> float:
    """Percent of the best of this operation."""
    place = ("128 MB", "1 GB").index(size)
    best = max(_busbw(answers[_tuning(operation, one)], at) for one in STAGES for at in (0, 1))
    return 100 * _busbw(answers[_tuning(operation, stage)], place) / best


def _untuned(answers: Answers, operation: str, size: str) -> float:
    """Percent of what the tuned library reaches."""
    untuned, library = (_tuned(answers, operation, size, stage) for stage in ("untuned", "library"))
    return 100 * untuned / library


def _lead(answers: Answers, operation: str, size: str) -> float:
    """Points by which both tuned leads over the better of the others."""
    untuned, library, both = (_tuned(answers, operation, size, stage) for stage in STAGES)
    return both - max(untuned, library)


def _figure_15() -> Iterator[Figure]:
    for (operation, size), published in FIGURE_15.items():
        for stage, value in zip(STAGES, published, strict=True):
            ours = partial(_tuned, operation=operation, size=size, stage=stage)
            yield Figure(f"{operation} {size}, {stage}", value, "%", ours)
    for operation, size in FIGURE_15:
        if operation == "all_reduce":
            ours = partial(_untuned, operation=operation, size=size)
            yield Figure(f"{size}, untuned/library", None, "%", ours, None, 50, "under 50")
    for operation, size in FIGURE_15:
        ours = partial(_lead, operation=operation, size=size)
        yield Figure(f"{operation} {size}, lead", None, "points", ours, 0, None, "first")


# P3: clear-to-send and ACK.

DATA_CLASS: Final = Case("reproduce_clear_to_send_data_class")
OWN_CLASS: Final = Case("reproduce_clear_to_send")
UNLOADED: Final = Case("reproduce_unloaded_round_trip")


def _wait_us(summary: Summary) -> float:
    waits = summary.jobs["bench"].collectives[-1].cts_wait
    return 0.0 if waits is None else waits.p90_ps / 1e6


def _completed_us(flow: Flow) -> float:
    return ((flow.completed_ps or 0) - (flow.start_ps or 0)) / 1e6


# P4: path pinning.


def _policies(kind: str, ranks: str) -> Case:
    return Case(
        "policies",
        (
            ("routing", f"{{kind: {kind}, convergence: 20us}}"),
            ("jobs[0].ranks", ranks),
            ("host.proxy_cost", "0s"),
            ("ncclx.channels", "1"),
            ("ncclx.slices", "filled"),
            ("transport.ack_priority", "6"),
        ),
    )


WHOLE, HALF = "[0,4,1,5,2,6,3,7]", "[0,4,2,8,1,5,3,9]"
PINNED, PINNED_HALF, SPRAYED = (
    _policies("path_pinning", WHOLE),
    _policies("path_pinning", HALF),
    _policies("spray", WHOLE),
)

# P7 and P9: a step of 175B parameters.

WHOLE_MODEL: Final = (
    ("topology.hosts_per_block", "32"),
    ("run.sample_every", "1s"),
    ("jobs[0].workload.own.layers", "96"),
    ("jobs[0].workload.own.sequence", "2048"),
    ("jobs[0].workload.pp", "8"),
    ("jobs[0].workload.virtual_stages", "6"),
)
"""What the paper states."""
MEGATRON: Final = Case("reproduce_megascale", WHOLE_MODEL)
SWITCHES: Final = Case("reproduce_megascale_switches", (*WHOLE_MODEL, ("jobs[0].workload.window", "1024")))
BATCH: Final = 768
PACKET_BATCH: Final = 32
"""Batch of the steps that run in packets: eight micro-batches."""
REPLICAS: Final = 4
GPUS_OF_A_REPLICA: Final = 64
STAGE_PARAMETERS: Final = 12 * 12 * 12288**2 // 8
"""Parameters of a rank: 12 layers of 12 h^2, in eight parts."""
NIC_BYTES_PER_S: Final = 25e9 * 4096 / 4194
MEMORY_BYTES_PER_S: Final = 1.6e12


class Switched(NamedTuple):
    """A row of the ablation: what is switched on beside the rows before it."""

    what: str
    published: float
    """MFU in percent."""
    overrides: tuple[tuple[str, str], ...] = ()
    batch: int = 256
    shared: Fraction = Fraction(1)
    """What a step waits for of the parameters' gathering and the gradients' scattering."""


OF_TRAINING: Final = "jobs[0].workload"
FIRST_AND_LAST: Final = Fraction(1, 6)
"""Share of six chunks that is exposed, with the rest behind computing."""
ABLATION: Final = (
    Switched("baseline", 47.7),
    Switched("parallel attention", 52.3, ((f"{OF_TRAINING}.parallel_attention", "true"),)),
    Switched("sliding window", 53.3, ((f"{OF_TRAINING}.window", "1024"),)),
    Switched("TP overlap", 55.5, ((f"{OF_TRAINING}.overlap.tp_chunks", "4"),)),
    Switched("PP overlap", 58.0, ((f"{OF_TRAINING}.overlap.decoupled_pipeline", "true"),)),
    Switched("DP overlap", 59.5, shared=FIRST_AND_LAST),
    Switched(
        "operators",
        61.2,
        ((f"{OF_TRAINING}.kernels.attention", "0.62"), (f"{OF_TRAINING}.kernels.fused", "true")),
        shared=FIRST_AND_LAST,
    ),
    Switched("misc", 62.3, shared=FIRST_AND_LAST),
    Switched("LAMB", 65.3, batch=768, shared=FIRST_AND_LAST),
)
OF_MFU: Final = 2.5
"""Points."""
FLOW_LEVEL: Final = ("fidelity", "flow")


def _ablated(row: int) -> Case:
    switched = (pair for one in ABLATION[: row + 1] for pair in one.overrides)
    return _by_flow(Case(MEGATRON.scenario, (*MEGATRON.overrides, *switched)), ABLATION[row].batch)


def _ablated_mfu(answers: Answers, row: int) -> float:
    return _mfu(answers, _ablated(row), ABLATION[row].shared)


def _gains(answers: Answers) -> list[tuple[float, float]]:
    """What each row gains, published and ours."""
    ours = [_ablated_mfu(answers, row) for row in range(len(ABLATION))]
    return [
        (after.published - before.published, ours[row + 1] - ours[row])
        for row, (before, after) in enumerate(pairwise(ABLATION))
    ]


def _right_signs(answers: Answers) -> float:
    """Rows that gain, of eight."""
    return sum(ours > 0 for _, ours in _gains(answers))


def _gains_in_order(answers: Answers) -> float:
    """Percent of the pairs of gains that are in the paper's order of size."""
    pairs = list(combinations(_gains(answers), 2))
    return 100 * sum((one[0] > two[0]) == (one[1] > two[1]) for one, two in pairs) / len(pairs)


def _figures_of_the_ablation() -> Iterator[Figure]:
    for row, one in enumerate(ABLATION):
        ours = partial(_ablated_mfu, row=row)
        band = one.published - OF_MFU, one.published + OF_MFU
        yield Figure(f"{one.what}, batch {one.batch}", one.published, "%", ours, *band)
    yield Figure("rows that gain", 8, "", _right_signs, 8, 8)
    yield Figure("gains in order of size", 100, "%", _gains_in_order, 100, 100)


TABLE_2: Final = {512: (21.2, 16.5), 768: (15.2, 11.5), 1024: (11.9, 8.9)}
"""Seconds of a step, Megatron-LM and MegaScale."""


def _of_batch(base: Case, batch: int, replicas: int = REPLICAS) -> Case:
    """A step of a batch of sequences, one to a micro-batch."""
    return Case(base.scenario, (*base.overrides, ("jobs[0].workload.micro_batches", str(batch // replicas))))


def _by_flow(base: Case, batch: int, gpus: int = 256) -> Case:
    """The same by the rates of its flows; on more GPUs with a pool that has the headroom of more ports."""
    case = _of_batch(base, batch, gpus // GPUS_OF_A_REPLICA)
    larger = ("topology.blocks_per_pod", str(gpus // 256)), ("switch.buffer.pool", "256MB")
    return Case(case.scenario, (*case.overrides, FLOW_LEVEL, *(larger if gpus > 256 else ())))


def _figures_of_table_2() -> Iterator[Figure]:
    for gpus, seconds in TABLE_2.items():
        for name, base, shared, published in zip(
            ("Megatron-LM", "MegaScale"),
            (MEGATRON, SWITCHES),
            (Fraction(1), FIRST_AND_LAST),
            seconds,
            strict=True,
        ):
            replicas = gpus // GPUS_OF_A_REPLICA
            ours = partial(_step_s, case=_by_flow(base, BATCH, gpus), shared=shared, replicas=replicas)
            yield Figure(f"{name}, {gpus} GPUs", published, "s", ours, 0.92 * published, 1.08 * published)


def _pipeline_s(answers: Answers, case: Case) -> float:
    """What the run of a step took."""
    training = answers[case].jobs["train"].training
    assert training is not None, case
    return (training.step_ps or 0) / 1e12


def _step_s(answers: Answers, case: Case, shared: Fraction, replicas: int = REPLICAS) -> float:
    """The run of a whole step, and what a step has once.

    Parameters are gathered in two bytes and gradients scattered in four, over a ring of the replicas;
    Megatron-LM waits for all of it, MegaScale for the first and the last of six chunks. The optimizer moves
    30 bytes for each parameter of a shard.
    """
    once_s = STAGE_PARAMETERS * 6 * (replicas - 1) / replicas / NIC_BYTES_PER_S * float(shared)
    optimizer_s = STAGE_PARAMETERS / replicas * 30 / MEMORY_BYTES_PER_S
    return _pipeline_s(answers, case) + once_s + optimizer_s


def _mfu(answers: Answers, case: Case, shared: Fraction) -> float:
    """In percent."""
    training = answers[case].jobs["train"].training
    assert training is not None, case
    return 100 * (training.mfu or 0) * _pipeline_s(answers, case) / _step_s(answers, case, shared)


def _in_packets(base: Case) -> tuple[Case, Case, Case]:
    """What runs for a step in packets: its first micro-batches, these by flow level, and all of them."""
    return _of_batch(base, PACKET_BATCH), _by_flow(base, PACKET_BATCH), _by_flow(base, BATCH)


def _packet_step_s(answers: Answers, base: Case, shared: Fraction) -> float:
    """What packets take for the first micro-batches, and what the others add at flow level."""
    packets, few, whole = _in_packets(base)
    return _pipeline_s(answers, packets) - _pipeline_s(answers, few) + _step_s(answers, whole, shared)


def _packet_mfu(answers: Answers, base: Case, shared: Fraction) -> float:
    """In percent."""
    whole = _in_packets(base)[-1]
    of_flows = _mfu(answers, whole, shared) * _step_s(answers, whole, shared)
    return of_flows / _packet_step_s(answers, base, shared)


_megatron_s = partial(_packet_step_s, base=MEGATRON, shared=Fraction(1))
_megascale_s = partial(_packet_step_s, base=SWITCHES, shared=FIRST_AND_LAST)


# P8 and P11: whole steps of whole clusters, at flow level.

CLUSTER_BATCH: Final = 6144
MODEL_RANKS: Final = 64
"""Ranks of one replica of MegaScale's model."""
CLUSTERS: Final = {
    3072: (29.02, 48.7, 23.66, 59.1),
    6144: (14.78, 47.8, 12.21, 57.3),
    8192: (12.24, 43.3, 9.56, 54.9),
    12288: (8.57, 41.2, 6.34, 55.2),
}
"""By GPUs: seconds and MFU of Megatron-LM, and of MegaScale."""
TABLE_4: Final = {
    "8,192 GPUs": (8192, 1, 64, 32, 8192, 430, 43),
    "16,384 GPUs": (16384, 1, 128, 16, 8192, 400, 41),
    "131,072 tokens": (16384, 16, 8, 16, 131072, 380, 38),
}
"""GPUs, CP, DP, micro-batches, sequence; TFLOP/s and MFU as published."""


def _whole(base: Case, gpus: int) -> Case:
    """The step of a whole cluster, all of its micro-batches; of MegaScale with data parallelism beside it."""
    return Case(
        base.scenario,
        (
            *base.overrides,
            ("fidelity", "flow"),
            (
                "topology",
                "{kind: megascale, pods: 6, blocks_per_pod: 4, hosts_per_block: 64, aggs_per_pod: 32}",
            ),
            ("jobs[0].ranks", str(gpus)),
            ("jobs[0].workload.data", "none" if base is MEGATRON else "fsdp"),
            ("jobs[0].workload.micro_batches", str(CLUSTER_BATCH * MODEL_RANKS // gpus)),
        ),
    )


def _llama(row: str) -> Case:
    gpus, contexts, replicas, batches, sequence, _, _ = TABLE_4[row]
    return Case(
        "reproduce_llama3",
        (
            ("topology.pods", str(-(-gpus // 3072))),
            ("topology.racks_per_pod", "192"),
            ("jobs[0].ranks", str(gpus)),
            ("jobs[0].workload.layers", "126"),
            ("jobs[0].workload.pp", "16"),
            ("jobs[0].workload.virtual_stages", "8"),
            ("jobs[0].workload.cp", str(contexts)),
            ("jobs[0].workload.dp", str(replicas)),
            ("jobs[0].workload.micro_batches", str(batches)),
            ("jobs[0].workload.sequence", str(sequence)),
        ),
    )


def _whole_step_s(answers: Answers, base: Case, gpus: int) -> float:
    """Megatron-LM waits for all parameters and gradients, as in P7."""
    training = answers[_whole(base, gpus)].jobs["train"].training
    assert training is not None, gpus
    replicas = gpus // MODEL_RANKS
    shared_s = STAGE_PARAMETERS * 6 * (replicas - 1) / replicas / NIC_BYTES_PER_S
    return (training.step_ps or 0) / 1e12 + (shared_s if base is MEGATRON else 0)


def _whole_mfu(answers: Answers, base: Case, gpus: int) -> float:
    training = answers[_whole(base, gpus)].jobs["train"].training
    assert training is not None, gpus
    run_s = (training.step_ps or 0) / 1e12
    return 100 * (training.mfu or 0) * run_s / _whole_step_s(answers, base, gpus)


def _tflops(answers: Answers, row: str) -> float:
    training = answers[_llama(row)].jobs["train"].training
    return 0.0 if training is None else training.tflops_per_gpu or 0.0


def _llama_mfu(answers: Answers, row: str) -> float:
    training = answers[_llama(row)].jobs["train"].training
    return 0.0 if training is None else 100 * (training.mfu or 0)


def _clusters() -> Iterator[Figure]:
    for gpus, (baseline_s, baseline_mfu, step_s, mfu) in CLUSTERS.items():
        for name, base, seconds, share in (
            ("Megatron-LM", MEGATRON, baseline_s, baseline_mfu),
            ("MegaScale", SWITCHES, step_s, mfu),
        ):
            step = partial(_whole_step_s, base=base, gpus=gpus)
            yield Figure(f"{gpus:,} GPUs, {name}", seconds, "s", step, seconds * 0.9, seconds * 1.1)
            yield Figure("its MFU", share, "%", partial(_whole_mfu, base=base, gpus=gpus))


def _table_4() -> Iterator[Figure]:
    for row, (*_, published, mfu) in TABLE_4.items():
        reached = partial(_tflops, row=row)
        yield Figure(row, published, "TFLOP/s", reached, published * 0.92, published * 1.08)
        yield Figure("its MFU", mfu, "%", partial(_llama_mfu, row=row))


# P10: init.


def _init(store: str, barriers: str) -> Case:
    return Case(
        "reproduce_init",
        (
            ("topology", "{kind: ai_zone, racks: 16, hosts_per_rack: 16, gpus_per_host: 8, spines: 4}"),
            ("ncclx.init.store", store),
            ("ncclx.init.barriers", barriers),
            ("run.sample_every", "100s"),
        ),
    )


TEN_THOUSAND: Final = Case(
    "reproduce_init",
    (
        ("topology", "{kind: ai_zone, racks: 81, hosts_per_rack: 16, gpus_per_host: 8, spines: 4}"),
        ("ncclx.init.store", "concurrent"),
        ("ncclx.init.barriers", "linear"),
        ("run.sample_every", "100s"),
    ),
)
"""10,368 GPUs."""


def _init_s(answers: Answers, case: Case) -> float:
    init = answers[case].jobs["bench"].init
    return 0.0 if init is None or init.time_ps is None else init.time_ps / 1e12


# P12: weeks, on a clock of milliseconds.

CAMPAIGN_SEEDS: Final = range(1, 6)


@cache
def _weeks(campaign: str) -> dict[str, Any]:
    """What `emu campaign NAME` prints of so many seeds."""
    course = read_campaign(files_of(CAMPAIGNS)[campaign]).course
    return summary_of(campaign, CAMPAIGN_SEEDS.start, course, simulated(course, CAMPAIGN_SEEDS))


def _counted(answers: Answers, what: str) -> float:
    """Interruptions of the weeks of Llama 3."""
    del answers
    return float(_weeks("llama3")[what])


def _effective(campaign: str) -> float:
    """Percent of the time that counts."""
    return float(100 * _weeks(campaign)["goodput"])


# P13: a checkpoint, at a thousandth of its GPUs, of a GPU's bytes and of the storage.


def _checkpoint(disk: str) -> Case:
    return Case(
        "checkpoint",
        (
            ("topology.racks_per_pod", "4"),
            ("frontend.storage.disk", disk),
            ("jobs[0].enabled", "false"),
            ("jobs[1].workload.size", "4096KB"),
        ),
    )


BESIDE: Final = Case("checkpoint", (("jobs[0].workload.steps", "6"),))
ALONE: Final = Case("checkpoint", (("jobs[0].workload.steps", "6"), ("jobs[1].enabled", "false")))


def _saved_s(answers: Answers, disk: str) -> float:
    return (answers[_checkpoint(disk)].jobs["save"].end_ps or 0) / 1e12 * 1000


WHOLE_CHECKPOINT: Final = Case(
    "storage_many_hosts",
    (
        ("topology.racks_per_pod", "512"),
        ("topology.gpus_per_host", "8"),
        ("switch.buffer.pool", "100GB"),
        ("frontend.storage.servers", "256"),
        ("frontend.storage.disk", "62.5G"),
        ("jobs[0].workload.size", "4GB"),
        ("jobs[0].workload.block", "1GB"),
        ("run.sample_every", "100ms"),
    ),
)
"""2,048 hosts of eight GPUs, and 256 servers that take 2 TB/s together."""


def _step_us(answers: Answers, case: Case) -> float:
    training = answers[case].jobs["train"].training
    return 0.0 if training is None else (training.step_ps or 0) / 1e6


# P17: what follows a lost GPU, in packets, and three weeks of it.

GPU_LOST: Final = Case("operator_gpu_lost")


def _recovery(answers: Answers) -> Recovery:
    """The one restart."""
    operator = answers[GPU_LOST].operator
    assert operator is not None
    return operator.restarts[0]


def _found_s(answers: Answers) -> float:
    """From the loss to the end of the suite that names the host."""
    one = _recovery(answers)
    return (one.stopped_ps + one.took.self_check_ps - answers[GPU_LOST].faults[0].at_ps) / 1e12


def _caught_up_s(answers: Answers) -> float:
    """From the restart until the steps that were lost are done again."""
    one = _recovery(answers)
    return ((one.caught_up_ps or 0) - (one.resumed_ps or 0)) / 1e12


# P14: AllGather on pods, a job for each of them.


class Pods(NamedTuple):
    """A cluster of Llama 3's pods."""

    pods: int
    racks: int
    """Racks of a pod."""
    atsws: int
    gathered: str
    """What each job gathers."""


PODS: Final = Pods(8, 24, 16, "2GiB")
WHOLE_PODS: Final = Pods(8, 192, 28, "16GiB")
IN_PACKETS: Final = Pods(4, 8, 4, "128MiB")
RAILS_GBPS: Final = 8 * 400 * 4096 / 4194
STATES: Final = {
    "nothing": (False, False),
    "placement": (True, False),
    "tuning": (False, True),
    "both": (True, True),
}
"""Whether the scheduler knows where servers sit, and whether routing and library are tuned."""
ENDS: Final = ("nothing", "both")
NETWORKS: Final = ("RoCE", "InfiniBand")


def _gathering(state: str, cluster: Pods = PODS, network: str = "") -> Case:
    """As many jobs as pods: each in a pod, or on servers drawn from all of them, in the order drawn.

    By flow level, or in packets of a network. What tunes InfiniBand is its switches.
    """
    aware, tuned = STATES[state]
    pods, racks, atsws, gathered = cluster
    each = 2 * racks
    servers: Sequence[int] = range(pods * each)
    if not aware:
        servers = shuffled(servers, Stream(1, 0, PURPOSE))
    jobs = [
        [8 * server + gpu for server in servers[pod * each : (pod + 1) * each] for gpu in range(8)]
        for pod in range(pods)
    ]
    work = f"{{kind: collective, op: all_gather, algorithm: ring, sizes: [{gathered}]}}"
    listed = (f"{{name: job-{pod}, ranks: {ranks}, workload: {work}}}" for pod, ranks in enumerate(jobs))
    overrides = {
        "fidelity": "packet" if network else "flow",
        "topology": f"{{kind: llama3, pods: {pods}, racks_per_pod: {racks}, atsws: {atsws}}}",
        "jobs": f"[{', '.join(listed)}]",
        "expect": "[]",
        "routing": "{kind: e_ecmp}" if tuned else "{kind: ecmp}",
        "ncclx.qps_per_connection": "16" if tuned else "1",
        "ncclx.qp_policy": "split",
        "run.sample_every": "100us",
    }
    if network == "InfiniBand":
        overrides["link.flow_control"] = "credits"
        if tuned:
            overrides["routing"] = "{kind: adaptive, granularity: packet}"
            overrides["transport.recovery"] = (
                "{kind: go_back_n, placement: out_of_order, reorder: 4096, window: 16MiB}"
            )
            overrides["ncclx.qps_per_connection"] = "1"
    return Case("reproduce_all_gather", tuple(overrides.items()))


def _gathered(answers: Answers, case: Case, of_jobs: Callable[[Iterable[float]], float]) -> float:
    """Percent of what eight rails carry, of all jobs."""
    jobs = answers[case].jobs.values()
    return of_jobs([100 * (job.collectives[-1].busbw or 0) / 1e9 / RAILS_GBPS for job in jobs])


def _figures_14(
    states: Iterable[str], cluster: Pods = PODS, networks: Iterable[str] = ("",)
) -> Iterator[Figure]:
    for network, state in product(networks, states):
        case = _gathering(state, cluster, network)
        least, most, said = (90, None, "over 90") if state == "both" else (None, 90, "10-90")
        for job, of_jobs in (("worst job", min), ("best job", max)):
            ours = partial(_gathered, case=case, of_jobs=of_jobs)
            what = ", ".join(filter(None, (network, f"{state}: {job}")))
            yield Figure(what, None, "%", ours, least, most, said)


# P15 and P16.

RAILS: Final = Case("reproduce_rails", (("jobs[0].workload.sizes", "[1GiB]"),))
NEAR_LINE_GBPS: Final = 8 * 400 * 4096 / 4178
LOST: Final = Case("go_back_0_livelock")
RECOVERED: Final = Case("go_back_0_livelock", (("transport.recovery.kind", "go_back_n"),))


# P6: the two ports of a NIC.
SHARED_AGGS: Final = Case("dual_tor_planes")
TWO_PLANES: Final = Case("dual_tor_two_planes")


def uneven_ports(summary: Summary) -> float:
    """What the fuller ports of all NICs received over what the emptier ones did."""
    loads: dict[str, list[int]] = {}
    for link in summary.fabric.links:
        if link.destination.startswith("nic-"):
            loads.setdefault(link.destination, []).append(link.data_bytes)
    return sum(map(max, loads.values())) / sum(map(min, loads.values()))


def _goodput(summary: Summary) -> float:
    """Percent of the link's 100 Gbit/s."""
    return (summary.jobs["bulk"].flows[0].throughput_bps or 0) / 1e9


def _arrived(answers: Answers) -> float:
    """Percent of the flows of go-back-N."""
    flows = answers[RECOVERED].jobs["bulk"].flows
    return 100 * sum(flow.status == "success" for flow in flows) / len(flows)


# P20 and P21: planes, and paths that the NIC owns.

PATHS_WHOLE: Final = Case("reproduce_metaroce", (("link.bit_error_rate", "0"),))
PATHS_LOSSY: Final = Case("reproduce_metaroce")
PATHS_WORST: Final = Case("reproduce_metaroce", (("link.bit_error_rate", "7.5e-7"),))
MRC_WHOLE: Final = Case("reproduce_mrc")
MRC_T0: Final = Case("reproduce_mrc", (("faults", "[{kind: switch_crash, at: 20us, target: tor-1-0}]"),))
MRC_T1: Final = Case("reproduce_mrc", (("faults", "[{kind: switch_crash, at: 20us, target: agg-1-0}]"),))


def _kept(found: Answers, case: Case) -> float:
    """Percent of the mean rate of flows without loss."""
    means = [
        sum(flow.throughput_bps or 0 for flow in found[one].jobs["pairs"].flows)
        for one in (case, PATHS_WHOLE)
    ]
    return 100 * means[0] / means[1]


def _span_gbps(summary: Summary) -> float:
    """Payload delivered in the scenario's span."""
    span = summary.fabric.span
    assert span is not None
    return (span.delivered_bps or 0) / 1e9


# X1 and X2: other simulators.

INCAST: Final = Case("reproduce_incast", (("jobs[0].workload.size", "16MiB"),))


def _ring(ranks: int) -> Case:
    """Every rank WRITEs its chunk of 16 MiB to the next, all at once."""
    flows = ", ".join(
        f"{{src: {rank}, dst: {(rank + 1) % ranks}, size: {(16 << 20) // ranks}B}}" for rank in range(ranks)
    )
    return Case(
        "reproduce_incast",
        (("topology.racks", str(ranks // 8)), ("jobs[0].workload", f"{{kind: flows, flows: [{flows}]}}")),
    )


def _round_us(answers: Answers, ranks: int) -> float:
    flows = answers[_ring(ranks)].jobs["incast"].flows
    return 2 * (ranks - 1) * sum(map(_completed_us, flows)) / len(flows)


# P18: 64 B from CPU to CPU.
ROCE: Final = Case("small_messages")
INFINIBAND: Final = Case("small_messages_infiniband")
SEEN_AFTER_US: Final = 0.901
"""From the last byte in memory until the CPU has seen it: host link 800 ns, 64 B on it, proxy 100 ns."""
PUBLISHED_US: Final = ((ROCE, "RoCE", 3.6, 5.6), (INFINIBAND, "InfiniBand", 2.8, 3.7))


def _seen_us(summary: Summary, job: str) -> float:
    times = summary.jobs[job].flow_times
    assert times is not None, job
    return times.p50_ps / 1e6 + SEEN_AFTER_US


def _small_messages() -> Iterator[Figure]:
    for case, name, leaf_us, across_us in PUBLISHED_US:
        for job, where, us in (("leaf", "below one leaf", leaf_us), ("across", "across leaves", across_us)):
            ours = partial(lambda found, case, job: _seen_us(found[case], job), case=case, job=job)
            yield Figure(f"{name}, {where}", us, "us", ours, us * 0.95, us * 1.05, basis=FITTED)


# P19: torchtitan's Llama 3.1 8B on 8 and 128 GPUs, and 70B on 256.
TITAN: Final = Case("reproduce_torchtitan")
TITAN_TOKENS: Final = 2 * 8192
"""Tokens of a GPU and step."""
TITAN_LAYERS: Final = 32
FEW_LAYERS: Final = (2, 4)
"""Those of a run on 128 GPUs; the others take as long as the last two."""


def _titan(gpus: int, layers: int) -> Case:
    ranks = ("jobs[0].ranks", str(gpus)), ("topology.racks_per_pod", str(-(-gpus // 16)))
    return Case(TITAN.scenario, (*ranks, ("jobs[0].workload.layers", str(layers)), ("expect", "[]")))


LARGE_TITAN: Final = Case(
    TITAN.scenario,
    (
        ("jobs[0].ranks", "256"),
        ("topology.racks_per_pod", "16"),
        ("jobs[0].workload.model", "llama3-70b"),
        ("jobs[0].workload.tp", "8"),
        ("jobs[0].workload.micro_batch", "16"),
        ("jobs[0].workload.recompute_every", "1"),
        ("expect", "[]"),
    ),
)
LARGE_TITAN_TOKENS: Final = 16 * 8192 // 8
"""Tokens of a GPU and step: 32 replicas of 8 GPUs have 16 sequences each."""


def _titan_step_s(summary: Summary) -> float:
    training = summary.jobs["train"].training
    assert training is not None, summary.scenario.name
    return (training.step_ps or 0) / 1e12


def _titan_tokens(answers: Answers) -> float:
    """A second and GPU."""
    return TITAN_TOKENS / _titan_step_s(answers[TITAN])


def _titan_mfu(answers: Answers) -> float:
    training = answers[TITAN].jobs["train"].training
    return 0.0 if training is None else 100 * (training.mfu or 0)


def _titan_whole_s(answers: Answers, gpus: int) -> float:
    """A step of all layers, from two runs with few."""
    few, more = (_titan_step_s(answers[_titan(gpus, layers)]) for layers in FEW_LAYERS)
    a_layer_s = (more - few) / (FEW_LAYERS[1] - FEW_LAYERS[0])
    return more + (TITAN_LAYERS - FEW_LAYERS[1]) * a_layer_s


def _titan_kept(answers: Answers) -> float:
    """Percent of the throughput of 8 GPUs that a GPU of 128 has."""
    return 100 * _titan_whole_s(answers, 8) / _titan_whole_s(answers, 128)


META: Final = "Meta, SIGCOMM'24"
ROWS: Final = (
    Row(
        "P1",
        "all_reduce by policy of queue pairs, E-ECMP, % of best",
        f"{META}, figure 7",
        tuple(_queue_pairs(policy) for policy in POLICIES),
        tuple(_figure_7()),
        "not known. In turn is 13 to 22 points short from 32 to 512 MB; no price of a post makes the column"
        " of sixteen pieces, for by the paper's figures a slice takes 0.9 us at 32 MB and 16 us at 2 GB",
        long=True,
        picture=_draw_7,
    ),
    Row(
        "P2",
        "out of the box, library tuned, network tuned too, % of best",
        f"{META}, figure 15",
        tuple(_tuning(operation, stage) for operation in ("all_reduce", "all_to_all") for stage in STAGES),
        (*_figure_15(),),
        "the paper does not say what its first column ran: here two channels of eight NICs, as flat over"
        " sizes as published, but 38 % of the best for 24. all_to_all of whole sizes fills the NICs whatever"
        " is tuned",
        long=True,
    ),
    Row(
        "P3",
        "wait of clear-to-sends under load, P90, by their class",
        f"{META}, 6.1",
        (DATA_CLASS, OWN_CLASS, UNLOADED),
        (
            Figure("in the data class", 43, "us", lambda found: _wait_us(found[DATA_CLASS])),
            Figure("in their own", 4, "us", lambda found: _wait_us(found[OWN_CLASS]), None, 8),
            Figure(
                "ratio",
                43 / 4,
                "x",
                lambda found: _wait_us(found[DATA_CLASS]) / _wait_us(found[OWN_CLASS]),
                7,
                15,
            ),
            Figure(
                "unloaded round trip",
                22,
                "us",
                lambda found: _completed_us(found[UNLOADED].jobs["ping"].flows[0]),
                19.8,
                24.2,
                basis=FITTED,
            ),
        ),
        "switch.deep_buffer.credit_delay is set by the 22 us, the rest follows; the wait in the data class is"
        " what four flows keep queued at one uplink, and grows with their messages",
    ),
    Row(
        "P4",
        "path pinning: what it loses",
        f"{META}, 4.2",
        (PINNED, PINNED_HALF, SPRAYED),
        (
            Figure(
                "whole racks",
                0,
                "%",
                lambda found: 100 * (1 - _busbw(found[PINNED]) / _busbw(found[SPRAYED])),
                -1,
                1,
            ),
            Figure(
                "one of two hosts active",
                None,
                "%",
                lambda found: 100 * (1 - _busbw(found[PINNED_HALF]) / _busbw(found[PINNED])),
                30,
                100,
                "above 30",
            ),
        ),
        "hosts of one rack that send to the same slices of other racks share an uplink, and others are idle",
    ),
    Row(
        "P5",
        "E-ECMP and queue pairs against ECMP, all_reduce",
        f"{META}, 4.3",
        (_queue_pairs("16 in turn"), _queue_pairs("QP=1", "ecmp")),
        (Figure("gain at the best size", 40, "%", _gain, 25, 60),),
        "not known: P1's own figures say +150 % at 512 MB and +72 % at 2 GB over one queue pair, and the"
        " paper does not say which job gained 40 %",
        long=True,
    ),
    Row(
        "P6",
        "dual-ToR: the fuller ports of NICs over the emptier ones",
        "HPN, SIGCOMM'24, 4",
        (SHARED_AGGS, TWO_PLANES),
        (
            Figure("shared aggregation", 3, "x", lambda found: uneven_ports(found[SHARED_AGGS]), 2, 4),
            Figure(
                "two planes",
                1,
                "x",
                lambda found: uneven_ports(found[TWO_PLANES]),
                0.95,
                1.05,
                basis=BUILT,
            ),
        ),
        "of two queue pairs a NIC, hashes bring both to one port in half of the cases: 1.5 over 0.5",
    ),
    Row(
        "P7",
        "a step of 175B parameters on 256 GPUs, batch 768",
        "MegaScale, table 2",
        (*_in_packets(MEGATRON), *_in_packets(SWITCHES)),
        (
            Figure("Megatron-LM", 40.0, "s", _megatron_s, 36.8, 43.2),
            Figure("Megatron-LM's MFU", 53.0, "%", lambda found: _packet_mfu(found, MEGATRON, Fraction(1))),
            Figure("MegaScale", 32.0, "s", _megascale_s, 29.4, 34.6),
            Figure("MegaScale's MFU", 65.3, "%", lambda found: _packet_mfu(found, SWITCHES, FIRST_AND_LAST)),
            Figure("gain", 1.25, "x", lambda found: _megatron_s(found) / _megascale_s(found), 1.15, 1.35),
        ),
        "kernels as four published whole steps of others say; the baseline loses less once a step than the"
        " paper's",
        long=True,
    ),
    Row(
        "P7 (512 to 1,024)",
        "the same on 512, 768 and 1,024 GPUs, by flow level",
        "MegaScale, table 2",
        tuple(_by_flow(base, BATCH, gpus) for gpus in TABLE_2 for base in (MEGATRON, SWITCHES)),
        tuple(_figures_of_table_2()),
        "a replica keeps its pace, and fewer micro-batches share bubble, gradients and optimizer; of"
        " Megatron-LM the paper loses some two seconds a step that do not shrink with the batch, we 0.7",
        long=True,
    ),
    Row(
        "P9",
        "the ablation on 256 GPUs, MFU, each row with those before it, by flow level",
        "MegaScale, table 3",
        tuple(dict.fromkeys(_ablated(row) for row in range(len(ABLATION)))),
        tuple(_figures_of_the_ablation()),
        "as P7: a baseline that loses less once a step leaves less to each row to regain; of misc nothing is"
        " published that could be modelled",
        long=True,
    ),
    Row(
        "P8",
        "a step of 175B parameters on whole clusters, batch 6,144, at flow level",
        "MegaScale, table 2",
        tuple(_whole(base, gpus) for gpus in CLUSTERS for base in (MEGATRON, SWITCHES)),
        tuple(_clusters()),
        "not known: ours is right on 256 GPUs (P7) and 6 to 14 % short from 3,072 on; slow hosts, flaps and"
        " slow collectives are not in this run",
        long=True,
    ),
    Row(
        "P11",
        "a step of Llama 3 405B, at flow level",
        "Llama 3, table 4",
        tuple(map(_llama, TABLE_4)),
        tuple(_table_4()),
        "not known: matrix products have 70 % of the peak, as in whole steps on A100s; what Meta's H100s"
        " reach is not published",
        long=True,
    ),
    Row(
        "P10",
        "communicators of 2,048 GPUs made",
        "MegaScale, NSDI'24, 3.5",
        (_init("serial", "quadratic"), _init("concurrent", "quadratic"), _init("concurrent", "linear")),
        (
            Figure(
                "serial store",
                1047,
                "s",
                lambda found: _init_s(found, _init("serial", "quadratic")),
                1047 * 0.9,
                1047 * 1.1,
                basis=FITTED,
            ),
            Figure(
                "concurrent store",
                361,
                "s",
                lambda found: _init_s(found, _init("concurrent", "quadratic")),
                361 * 0.9,
                361 * 1.1,
                basis=FITTED,
            ),
            Figure(
                "one barrier",
                None,
                "s",
                lambda found: _init_s(found, _init("concurrent", "linear")),
                None,
                5,
                "under 5",
            ),
        ),
        "the store's time per operation and its lanes come from the first two figures; the third follows",
        long=True,
    ),
    Row(
        "P10 (10,368)",
        "the same of more than 10,000",
        "MegaScale, NSDI'24, 3.5",
        (TEN_THOUSAND,),
        (Figure("one barrier", None, "s", lambda found: _init_s(found, TEN_THOUSAND), 0, 30, "under 30"),),
        "two rounds of requests through P10's concurrent store; an init does more than is in the model",
        long=True,
    ),
    Row(
        "P12",
        "54 days of 16,384 GPUs",
        "Llama 3, 3.3.4 and table 5",
        (),
        (
            *(
                Figure(what, many, "", partial(_counted, what=what), least, most, basis=BUILT)
                for what, many, least, most in (
                    ("interruptions", 466, 423, 509),
                    ("unexpected", 419, 378, 460),
                )
            ),
            Figure("effective time", None, "%", lambda _: _effective("llama3"), 90, 97, "above 90"),
        ),
        "causes strike at the table's rates, so counts show no more than the draw; effective time follows"
        " from them and a recovery as MegaScale has it: `emu campaign llama3`, the mean of five seeds",
    ),
    Row(
        "P13",
        "a checkpoint of 16,384 GPUs, 4 GB each",
        "Llama 3, 3.3.1, derived",
        (_checkpoint("2G"), _checkpoint("7G"), BESIDE, ALONE),
        (
            *(
                Figure(
                    f"{disk[0]} TB/s",
                    took,
                    "s",
                    partial(_saved_s, disk=disk),
                    took * 0.95,
                    took * 1.05,
                    basis=BUILT,
                )
                for disk, took in (("2G", 33), ("7G", 9.4))
            ),
            Figure(
                "longer steps beside it",
                0,
                "%",
                lambda found: 100 * (_step_us(found, BESIDE) / _step_us(found, ALONE) - 1),
                0,
                0,
            ),
        ),
        "16 GPUs with 4 MB each, 8 servers with 2 and 7 GB/s together, times 1,000; TCP keeps the disks busy",
    ),
    Row(
        "P13 (whole)",
        "the same without a scale: 2,048 hosts of eight GPUs, at flow level",
        "Llama 3, 3.3.1, derived",
        (WHOLE_CHECKPOINT,),
        (
            Figure(
                "2 TB/s",
                33,
                "s",
                lambda found: (found[WHOLE_CHECKPOINT].jobs["save"].end_ps or 0) / 1e12,
                33 * 0.95,
                33 * 1.05,
                basis=BUILT,
            ),
        ),
        "65.5 TB over 256 servers of 7.8 GB/s take 32.8 s; stage one takes a sixteenth of a second",
        long=True,
    ),
    Row(
        "P14",
        "AllGather on 3,072 GPUs in eight pods, before and after tuning, at flow level",
        "Meta, 2024",
        tuple(map(_gathering, STATES)),
        tuple(_figures_14(STATES)),
        "not known for the worst job after tuning; before it, single flows collide on links, and between pods"
        " is a seventh of the rate",
        long=True,
    ),
    Row(
        "P14 (24,576 GPUs)",
        "the same on eight whole pods, at flow level",
        "Meta, 2024",
        tuple(_gathering(state, WHOLE_PODS) for state in ENDS),
        tuple(_figures_14(ENDS, WHOLE_PODS)),
        "not known; the worst of eight jobs has 83.5 % with rings of 384 (P14) and 71.9 % with rings of"
        " 3,072",
        long=True,
    ),
    Row(
        "P14 (512 GPUs)",
        "the same on four small pods, packets and all, over RoCE and over InfiniBand",
        "Meta, 2024",
        tuple(_gathering(state, IN_PACKETS, network) for network in NETWORKS for state in ENDS),
        tuple(_figures_14(ENDS, IN_PACKETS, NETWORKS)),
        "hashes leave an uplink of 16 with more of the queue pairs than others; switches that look at queues"
        " leave none",
        long=True,
    ),
    Row(
        "P17",
        "a lost GPU, and three weeks on 12,288 GPUs",
        "MegaScale, NSDI'24, 3.5, 4.3 and 6.3",
        (GPU_LOST,),
        (
            Figure(
                "self-check suite",
                None,
                "s",
                lambda found: _recovery(found).took.self_check_ps / 1e12,
                0,
                600,
                "under 600",
                BUILT,
            ),
            Figure("detected and diagnosed", None, "s", _found_s, 0, 600, "under 600", BUILT),
            Figure("caught up with", None, "s", _caught_up_s, 0, 900, "under 900", BUILT),
            Figure(
                "restarts in three weeks",
                100,
                "",
                lambda _: _weeks("megascale")["interruptions"],
                80,
                120,
                "over 100",
                BUILT,
            ),
            Figure(
                "effective time",
                None,
                "%",
                lambda _: _effective("megascale"),
                90,
                100,
                "above 90",
            ),
        ),
        "a run takes seconds where people and containers take minutes: a test has 2 s, a launch 5 s, by"
        " choice; the campaign has a minute to notice, 8 for the suite, and the paper's restarts; 600 and"
        " 900 s are the paper's from memory",
    ),
    Row(
        "P15",
        "all_reduce of 1 GiB, a ring for each rail",
        "closed form: line rate less headers",
        (RAILS,),
        (
            Figure(
                "bus bandwidth",
                NEAR_LINE_GBPS,
                "Gbit/s",
                lambda found: _busbw(found[RAILS]),
                NEAR_LINE_GBPS * 0.99,
                NEAR_LINE_GBPS * 1.01,
            ),
        ),
        "the rest is the first chunk's way round and the ACKs between packets",
    ),
    Row(
        "P16",
        "one packet in 256 lost, 4 MB messages: goodput",
        "Guo et al., SIGCOMM'16",
        (LOST, RECOVERED),
        (
            Figure("go-back-0", 0, "%", lambda found: _goodput(found[LOST]), 0, 0, basis=BUILT),
            Figure(
                "go-back-N",
                None,
                "%",
                lambda found: _goodput(found[RECOVERED]),
                None,
                None,
                "recovers",
                BUILT,
            ),
            Figure("messages that arrive, go-back-N", 100, "%", _arrived, 100, 100, basis=BUILT),
        ),
        "no message of 4,096 packets ends between two losses; go-back-N sends a round trip again per loss",
    ),
    Row(
        "P18",
        "64 B from CPU to CPU",
        "DeepSeek, arXiv 2505.09343",
        (ROCE, INFINIBAND),
        tuple(_small_messages()),
        "host and NIC take 800 ns on each side for both, a switch and its cable 500 and 500 ns over RoCE, 230"
        " and 220 ns over InfiniBand. With credits and the defaults (300 and 500 ns) InfiniBand is 22 and 36"
        " % slower",
    ),
    Row(
        "P19",
        "Llama 3.1 8B on 8 GPUs, FSDP and torch.compile",
        "torchtitan, December 2024, table 1",
        (TITAN,),
        (
            Figure("tokens/s a GPU", 6667, "", _titan_tokens),
            Figure("MFU", 39, "%", _titan_mfu),
        ),
        "not known: torchtitan's GPUs are held to 500 W, and its authors do not know their peak; kernels are"
        " as calibrated on Megatron-LM, and selective checkpointing is of layers here, of operators there",
    ),
    Row(
        "P19 (128)",
        "its throughput a GPU on 128 GPUs, of that on 8",
        "torchtitan, December 2024, tables 1 and 3",
        tuple(_titan(gpus, layers) for gpus in (8, 128) for layers in FEW_LAYERS),
        (Figure("128 over 8 GPUs", 97.7, "%", _titan_kept, 96.7, 98.7),),
        "not known: FSDP's traffic hides behind computing on both, and the optimizer's shard is smaller. All"
        " GPUs are alike in this run (`stragglers` makes them differ)",
        long=True,
    ),
    Row(
        "P19 (70B)",
        "Llama 3.1 70B on 256 GPUs, FSDP 32 and tensor parallelism 8",
        "torchtitan, December 2024, table 4",
        (LARGE_TITAN,),
        (
            Figure(
                "tokens/s a GPU",
                829,
                "",
                lambda found: LARGE_TITAN_TOKENS / _titan_step_s(found[LARGE_TITAN]),
            ),
        ),
        "not known: theirs multiplies in Float8, ours in BF16. No MFU is published: two types have no one"
        " peak",
        long=True,
    ),
    Row(
        "P20",
        "random loss on 64 nodes, one queue pair a pair over two planes: mean rate of that without loss",
        "Meta, MetaRoCE (2026)",
        (PATHS_WHOLE, PATHS_LOSSY, PATHS_WORST),
        (
            Figure("1 % lost", 86, "%", lambda found: _kept(found, PATHS_LOSSY), 86, 100),
            Figure("10 % lost", None, "%", lambda found: _kept(found, PATHS_WORST), 50, 100, "useful"),
        ),
        "what is lost is sent again at once on its path, and nothing else; no window closes for it",
        long=True,
    ),
    Row(
        "P21",
        "one queue pair over eight planes of 100G, and what is lost with a T0 and a T1",
        "Araujo et al., arXiv 2605.04333, 5.2",
        (MRC_WHOLE, MRC_T0, MRC_T1),
        (
            Figure("rate", 770, "Gbps", lambda found: _span_gbps(found[MRC_WHOLE]), 760, 785),
            Figure(
                "lost with a T0",
                100,
                "Gbps",
                lambda found: _span_gbps(found[MRC_WHOLE]) - _span_gbps(found[MRC_T0]),
                90,
                105,
            ),
            Figure(
                "lost with a T1",
                0,
                "Gbps",
                lambda found: _span_gbps(found[MRC_WHOLE]) - _span_gbps(found[MRC_T1]),
                -5,
                5,
            ),
        ),
        "`multipath` stands in for MRC, with 106 B of headers for 166: 4,096 of 4,202 B of a rate of 800",
    ),
    Row(
        "X1",
        "16:1 incast of 16 MiB",
        "csg-htsim, uet-htsim, three on ns-3",
        (INCAST,),
        (
            Figure(
                "ends after",
                None,
                "us",
                lambda found: (found[INCAST].jobs["incast"].end_ps or 0) / 1e6,
                5431 * 0.99,
                5464 * 1.01,
                "5431-5464",
            ),
        ),
        "preamble, gap, FCS and ICRC count here: 4,178 B of a packet, 4,144 to 4,160 there",
    ),
    Row(
        "X2",
        "ring all_reduce of 16 MiB, steps begin on completion",
        "the same",
        (_ring(64), _ring(128)),
        (
            Figure(
                "64 ranks", None, "us", lambda found: _round_us(found, 64), 972 * 0.99, 984 * 1.01, "972-984"
            ),
            Figure(
                "128 ranks",
                None,
                "us",
                lambda found: _round_us(found, 128),
                1280 * 0.99,
                1296 * 1.01,
                "1280-1296",
            ),
        ),
        "2(n - 1) times the mean time of one WRITE of a chunk, all ranks sending",
    ),
)
"""What `emu reproduce` runs."""
