"""Do rows of integers become times and bandwidths as nccl-tests defines them?"""

from fractions import Fraction

import pytest

from emu.counts.collected import FlowPlan, JobPlan
from emu.results.busbw import bandwidth_bps, bus_factor
from emu.results.planned_rows import CollectivePlan
from emu.results.summary import Job
from emu.summary.jobs import job_rows, planned_bytes
from tests.summary.handmade import all_reduce_plan, fabric, flow_plan, record

MIB = 2**20


def reported(plans: list[JobPlan], *operations: list[int]) -> Job:
    """The first job, from the rows of the controller."""
    return job_rows(plans, [record(fabric(), "controller", results={"operations": operations})])["bench"]


@pytest.mark.parametrize(
    ("op", "ranks", "factor"),
    [
        ("all_reduce", 2, Fraction(1)),
        ("all_reduce", 64, Fraction(63, 32)),
        ("all_gather", 64, Fraction(63, 64)),
        ("reduce_scatter", 4, Fraction(3, 4)),
        ("all_to_all", 4, Fraction(3, 4)),
        ("broadcast", 64, Fraction(1)),
    ],
)
def test_bus_factor_is_that_of_nccl_tests(op: str, ranks: int, factor: Fraction) -> None:
    assert bus_factor(op, ranks) == factor


def test_bandwidth_is_exact_and_rounded_down() -> None:
    assert bandwidth_bps(10**6, 10**8) == 80 * 10**9
    assert bandwidth_bps(1, 3 * 10**12) == 2
    assert bandwidth_bps(10**6, 10**8, Fraction(3, 2)) == 120 * 10**9
    assert bandwidth_bps(1, 0) is None


def test_collective_takes_the_controllers_row() -> None:
    topology = fabric()
    row = [0, 0, 100_000_000, 200_000_000, 0]
    job = job_rows([all_reduce_plan()], [record(topology, "controller", results={"operations": [row]})])[
        "bench"
    ]
    assert (job.status, job.start_ps, job.end_ps) == ("success", 100_000_000, 200_000_000)
    (collective,) = job.collectives
    # 1 MiB in 100 us is 83.886 Gbit/s; the factor for 4 ranks is 3/2.
    assert collective.algbw == 83_886_080_000
    assert collective.busbw == 125_829_120_000


def test_warmup_is_not_listed_but_counts_for_the_job() -> None:
    rows = [[0, 0, 0, 10, 0], [0, 1, 10, 20, 0], [0, 2, 20, 30, 0]]
    job = reported([all_reduce_plan(operations=3, warmup=1)], *rows)
    assert [(one.iteration, one.start_ps) for one in job.collectives] == [(0, 10), (1, 20)]
    assert (job.start_ps, job.end_ps) == (0, 30)


def test_operation_without_a_row_is_unfinished() -> None:
    job = reported([all_reduce_plan(operations=2)], [0, 0, 0, 10, 0])
    assert (job.status, job.start_ps, job.end_ps) == ("unfinished", 0, None)
    assert [(one.status, one.busbw) for one in job.collectives][1] == ("unfinished", None)


def test_failed_operation_has_no_bandwidth_and_names_its_status() -> None:
    rows = [[0, 0, 0, 10, 12]]
    job = job_rows([all_reduce_plan()], [record(fabric(), "controller", results={"operations": rows})])[
        "bench"
    ]
    assert (job.status, job.collectives[0].algbw) == ("retry_exceeded", None)


def test_flow_is_delivered_with_its_last_message_and_completed_later() -> None:
    topology = fabric()
    receiver = topology.node_named("nic-2-0").number
    records = [
        record(topology, "host-0", results={"flows": [[0, 0, 1_000, 120_001_000, 0]]}),
        record(
            topology,
            "nic-2-0",
            results={"deliveries": [[4, 0, 60_001_000, 500_000], [5, 0, 100_001_000, 500_000]]},
        ),
    ]
    (flow,) = job_rows([flow_plan(receiver, [(4, 0), (5, 0)])], records)["bench"].flows
    assert (flow.start_ps, flow.delivered_ps, flow.completed_ps) == (1_000, 100_001_000, 120_001_000)
    assert flow.throughput_bps == 80_000_000_000
    assert flow.status == "success"


def test_flow_with_a_message_on_the_way_is_not_delivered() -> None:
    topology = fabric()
    receiver = topology.node_named("nic-2-0").number
    records = [record(topology, "nic-2-0", results={"deliveries": [[4, 0, 60_001_000, 500_000]]})]
    (flow,) = job_rows([flow_plan(receiver, [(4, 0), (5, 0)])], records)["bench"].flows
    assert (flow.delivered_ps, flow.throughput_bps, flow.status) == (None, None, "unfinished")


def test_delivery_at_another_nic_is_not_mistaken_for_it() -> None:
    topology = fabric()
    receiver = topology.node_named("nic-2-0").number
    records = [record(topology, "nic-3-0", results={"deliveries": [[4, 0, 60_001_000, 500_000]]})]
    (flow,) = job_rows([flow_plan(receiver, [(4, 0)])], records)["bench"].flows
    assert flow.delivered_ps is None


def test_planned_bytes_are_what_crosses_the_fabric() -> None:
    def ring(op: str) -> CollectivePlan:
        return CollectivePlan(operation=0, op=op, algorithm="ring", size_bytes=MIB, ranks=4, iteration=0)

    assert planned_bytes([JobPlan(0, "a", 4, collectives=(ring("all_reduce"),))]) == 6 * MIB
    assert planned_bytes([JobPlan(0, "a", 4, collectives=(ring("all_gather"),))]) == 3 * MIB
    flows = (FlowPlan(0, "x", "y", 5), FlowPlan(1, "y", "x", 7))
    assert planned_bytes([JobPlan(0, "a", 4, flows=flows)]) == 12
