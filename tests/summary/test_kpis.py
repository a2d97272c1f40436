"""Are the figures of acceptance tests those of their closed forms?"""

from collections.abc import Sequence

import pytest

from actors.kernel.counters import PORT_TRANSMIT_BYTES
from emu.api import prepare, run_prepared
from emu.counts.collected import Changed, GroupPlan, JobPlan
from emu.engine.outcome import RunOptions
from emu.results.planned_rows import CallPlan
from emu.results.summary import Collective, Flow, Job, Summary
from emu.results.training_result import TrainingResult
from emu.scenario.load import load_mapping
from emu.summary.fabric import most_over_mean
from emu.summary.kpis import convergence_of, jain, job_kpis
from tests.summary import handmade

US = 10**6
STAR = {"kind": "star", "hosts": 3, "link": "100G"}
RACKS = {"kind": "ai_zone", "racks": 2, "hosts_per_rack": 4, "gpus_per_host": 1, "spines": 4, "link": "100G"}


def ran(topology: dict[str, object], jobs: list[dict[str, object]], **changes: object) -> Summary:
    """The summary of a run on one of these fabrics."""
    given = {"name": "kpis", "topology": topology, "jobs": jobs, **changes}
    return run_prepared(
        prepare(load_mapping(given)), RunOptions(local=True, metrics=False), diagnose=False
    ).summary


def flows(name: str, *pairs: tuple[int, int], size: str = "1MiB") -> dict[str, object]:
    listed = [{"src": source, "dst": to, "size": size} for source, to in pairs]
    return {"name": name, "workload": {"kind": "flows", "flows": listed}}


@pytest.mark.parametrize(
    ("rates", "index"), [([1.0] * 8, 1.0), ([1.0, 0.0, 0.0, 0.0], 0.25), ([1.0, 2.0], 0.9), ([], None)]
)
def test_jains_index_is_its_closed_form(rates: list[float], index: float | None) -> None:
    assert jain(rates) == index


@pytest.mark.parametrize(("loads", "ratio"), [([1, 1], 1.0), ([4, 0, 0, 0], 4.0), ([3, 1], 1.5), ([0], None)])
def test_most_over_mean_is_its_closed_form(loads: list[float], ratio: float | None) -> None:
    assert most_over_mean(loads) == ratio


def _job(rows: Sequence[Collective], step_ps: int, compute: float) -> Job:
    training = TrainingResult(
        cut="",
        shrunk="",
        left_out="",
        steps=1,
        step_ps=step_ps,
        mfu=None,
        tflops_per_gpu=None,
        compute=compute,
        exposed={},
        bubble=None,
        bubble_ideal=0.0,
        other=None,
    )
    return Job(
        ranks=4,
        status="success",
        start_ps=0,
        end_ps=step_ps,
        collectives=list(rows),
        flows=[],
        training=training,
        failures=[],
        suspects=[],
    )


def _call(op: str, size_bytes: int, ranks: int, took_ps: int) -> Collective:
    return Collective(
        op=op,
        algorithm="ring",
        communicator="",
        bytes=size_bytes,
        ranks=ranks,
        iteration=0,
        start_ps=0,
        end_ps=took_ps,
        algbw=None,
        busbw=None,
        status="success",
        cts_wait=None,
        wrong=None,
    )


@pytest.mark.parametrize(
    ("op", "callers", "wire_us"),
    [  # 1 MB over 4 ranks at 100 Gbit/s: 80 us x f, for the ranks that call it; a transfer counts once
        ("all_reduce", 4, 120.0),
        ("all_gather", 4, 60.0),
        ("all_reduce", 2, 60.0),
        ("broadcast", 4, 80.0),
        ("send", 1, 20.0),
        ("recv", 1, 0.0),
    ],
)
def test_roofline_and_overlap_of_a_step_are_the_drafts_formulas(
    op: str, callers: int, wire_us: float
) -> None:
    topology = handmade.fabric()
    plan = JobPlan(
        job=0,
        name="step",
        ranks=4,
        calls=(CallPlan(0, op, "ring", "", 10**6, 4, callers, 0),),
        groups=(GroupPlan("", (0, 1, 2, 3)),),
        gpus=tuple(topology.gpus[:4]),
    )
    found = job_kpis(plan, _job([_call(op, 10**6, 4, 160 * US)], 200 * US, 0.8), topology)
    assert found is not None
    assert found.accelerator_bps == 100 * 10**9
    assert found.roofline_ps == round((160 + wire_us) * US)
    assert found.jct_ratio == pytest.approx(200 / (160 + wire_us), abs=1e-6)
    assert found.exposed_ps == 40 * US
    if op == "all_reduce" and callers == 4:
        assert found.overlap == pytest.approx(1 - 40 / 160)


def test_computing_and_a_call_in_turn_overlap_by_nothing() -> None:
    operations = [{"do": "compute", "time": "100us"}, {"do": "all_reduce", "size": "1MiB"}]
    job = {
        "name": "step",
        "ranks": 2,
        "workload": {"kind": "program", "steps": 2, "operations": operations},
    }
    kpis = ran(STAR, [job]).jobs["step"].kpis
    assert kpis is not None
    assert kpis.roofline_ps is not None
    roofline_ps = 2 * (100 * US + (8 << 20) * 10)  # 2^20 B at 100 Gbit/s, f = 1
    assert kpis.roofline_ps == pytest.approx(roofline_ps, rel=1e-6)  # the share of computing has six digits
    assert kpis.overlap == pytest.approx(0.0, abs=0.01)
    assert kpis.jct_ps is not None
    assert kpis.jct_ratio == pytest.approx(kpis.jct_ps / kpis.roofline_ps, abs=1e-6)


def test_two_flows_to_one_receiver_cost_each_other_a_factor_of_two() -> None:
    both = [flows("a", (1, 0), size="4MiB"), flows("b", (2, 0), size="4MiB")]
    summary = ran(STAR, both, run={"kpis": ["interference"]})
    for job in summary.jobs.values():
        assert job.kpis is not None
        assert job.kpis.interference == pytest.approx(2.0, rel=0.02)


@pytest.mark.parametrize("kind", ["ecmp", "e_ecmp"])
def test_flows_by_uplink_are_what_the_hashes_did(kind: str) -> None:
    """Flows of one size: an uplink's payload is its number of flows times that."""
    pairs = [(source, 4 + (source + shift) % 4) for source in range(4) for shift in range(3)]
    summary = ran(
        RACKS,
        [flows("many", *pairs, size="64KiB")],
        routing={"kind": kind},
        run={"kpis": ["flow_counts"]},
    )
    row = next(one for one in summary.fabric.uplinks if one.switch == "rtsw-0")
    assert row.flows is not None
    assert sum(row.flows) == len(pairs)
    assert row.loads == [count << 16 for count in row.flows]
    assert row.flows_max_over_mean == pytest.approx(max(row.flows) * 4 / len(pairs), abs=1e-6)
    assert summary.fabric.worst_flows_max_over_mean == row.flows_max_over_mean


def test_sprayed_flows_have_no_uplink() -> None:
    summary = ran(
        RACKS,
        [flows("one", (0, 4))],
        routing={"kind": "spray"},
        transport={"recovery": {"kind": "go_back_n", "placement": "out_of_order"}},
        run={"kpis": ["flow_counts"]},
    )
    assert summary.fabric.worst_flows_max_over_mean is None
    assert all(row.flows is None for row in summary.fabric.uplinks)


@pytest.mark.parametrize(("op", "factor"), [("all_gather", 0.75), ("all_reduce", 1.5), ("all_to_all", 0.75)])
def test_payload_of_a_flat_collective_is_s_f_n(op: str, factor: float) -> None:
    workload = {"kind": "collective", "op": op, "sizes": ["1MiB"], "iterations": 1, "warmup": 0}
    if op == "all_reduce":
        workload["algorithm"] = "ring"
    jobs = [{"name": "call", "ranks": 4, "workload": workload}]
    fabric = ran(RACKS, jobs, ncclx={"protocol": "simple"}).fabric
    assert fabric.derived_bytes == round((1 << 20) * factor * 4)
    assert fabric.delivered_bytes is not None
    assert fabric.delivered_bytes == pytest.approx(fabric.derived_bytes, rel=0.01)  # and clear-to-sends
    assert fabric.out_of_order == 0


def test_a_dead_uplink_loses_frames_until_routing_converges() -> None:
    job = flows("long", (0, 4), (1, 5), (2, 6), (3, 7), size="2MiB")
    calm = ran(RACKS, [job])
    uplink = max((one for one in calm.fabric.links if one.source == "rtsw-0"), key=lambda one: one.data_bytes)
    target = f"{uplink.source}:{uplink.destination}"
    summary = ran(
        RACKS,
        [job],
        faults=[{"kind": "link_down", "target": target, "at": "30us"}],
        routing={"kind": "e_ecmp", "convergence": "50us"},
        transport={"timeout": 4},
        run={"kpis": ["loss_time"], "sample_every": "5us"},
    )
    (fault,) = summary.faults
    assert (fault.frames_lost or 0) > 0
    assert fault.loss_time_ps is not None
    assert 45 * US <= fault.loss_time_ps <= 55 * US


def _history(steps: Sequence[tuple[int, int]]) -> list[Changed]:
    """What two NICs had sent at every 10 us."""
    nics = [handmade.fabric().node_named(name).number for name in ("nic-0-0", "nic-1-0")]
    return [
        Changed((at + 1) * 10 * US, {nic: [0, value] for nic, value in zip(nics, both, strict=True)})
        for at, both in enumerate(steps)
    ]


def test_flows_have_converged_at_the_first_sample_within_a_tenth() -> None:
    """Two flows of two NICs: 90 and 10, 60 and 40, 52 and 48, 70 and 30 in steps of 10 us, from 10 us on."""
    topology = handmade.fabric()
    records = [
        handmade.record(topology, name, [(PORT_TRANSMIT_BYTES, 0, -1, "", 0)])
        for name in ("nic-0-0", "nic-1-0")
    ]
    both = [
        Flow(
            flow=number,
            source=name,
            destination="nic-2-0",
            bytes=1000,
            start_ps=10 * US,
            delivered_ps=50 * US,
            completed_ps=None,
            throughput_bps=None,
            status="success",
        )
        for number, name in enumerate(("nic-0-0", "nic-1-0"))
    ]
    job = _job([], 10, 1.0).model_copy(update={"flows": both})
    history = _history([(0, 0), (90, 10), (150, 50), (202, 98), (272, 128)])
    plan = JobPlan(job=0, name="a", ranks=2)
    found = convergence_of(topology, [plan], {"a": job}, records, history)
    assert found is not None
    assert (found.flows, found.since_ps, found.took_ps, found.held) == (2, 10 * US, 30 * US, 0.5)
    early = convergence_of(topology, [plan], {"a": job}, records, history[:3])
    assert early is not None
    assert (early.took_ps, early.held) == (None, None)
    assert convergence_of(topology, [plan], {"a": _job([], 10, 1.0)}, records, history) is None
