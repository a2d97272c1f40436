"""Do rows look as nccl-tests prints them, and appear when a size is done?"""

from emu.counts.collected import JobPlan
from emu.results.planned_rows import CollectivePlan
from emu.summary.nccl_table import NcclTable
from tests.summary.handmade import all_reduce_plan


def test_row_appears_under_its_columns_when_the_size_is_done() -> None:
    table = NcclTable([all_reduce_plan()])
    assert table.take([[0, 0, 0, 100_000_000, 0]]) == [
        "# bench: all_reduce (ring), 4 ranks",
        "#      size       count     type  redop root        time   algbw   busbw #wrong",
        "#       (B)  (elements)                             (us)  (GB/s)  (GB/s)",
        "    1048576      262144    float    sum   -1      100.00   10.49   15.73    N/A",
    ]


def test_a_row_fits_a_terminal_of_eighty_columns() -> None:
    job = all_reduce_plan()
    large = job.collectives[0]._replace(size_bytes=8 * 2**30, dtype="bf16")
    lines = NcclTable([job._replace(collectives=(large,))]).take([[0, 0, 0, 12_345_678 * 10**6, 0]])
    assert max(len(line) for line in lines) <= 80
    assert len(lines[-1].split()) == 9


def test_row_is_the_mean_of_the_timed_iterations() -> None:
    table = NcclTable([all_reduce_plan(operations=3, warmup=1)])
    assert table.take([[0, 0, 0, 999, 0]]) == []
    assert table.take([[0, 1, 0, 100_000_000, 0]]) == []
    lines = table.take([[0, 2, 0, 300_000_000, 0]])
    assert lines[-1].split()[5] == "200.00"


def test_row_is_reported_once() -> None:
    table = NcclTable([all_reduce_plan()])
    row = [0, 0, 0, 100_000_000, 0]
    assert len(table.take([row])) == 4
    assert table.take([row]) == []


def test_columns_are_repeated_for_another_job() -> None:
    jobs = [all_reduce_plan(), JobPlan(1, "other", 4, collectives=all_reduce_plan().collectives)]
    table = NcclTable(jobs)
    lines = table.take([[0, 0, 0, 10**8, 0], [1, 0, 0, 10**8, 0]])
    assert [line for line in lines if line.startswith("# ")][:1] == ["# bench: all_reduce (ring), 4 ranks"]
    assert "# other: all_reduce (ring), 4 ranks" in lines


def test_all_gather_counts_one_ranks_share_and_reduces_nothing() -> None:
    plan = CollectivePlan(
        operation=0, op="all_gather", algorithm="ring", size_bytes=4096, ranks=4, iteration=0
    )
    (*_, row) = NcclTable([JobPlan(0, "bench", 4, collectives=(plan,))]).take([[0, 0, 0, 10**6, 0]])
    assert row.split()[:4] == ["4096", "256", "float", "none"]


def test_failed_operation_is_a_line_that_says_so() -> None:
    (*_, row) = NcclTable([all_reduce_plan()]).take([[0, 0, 0, 10**6, 12]])
    assert row.strip() == "1048576 failed: retry_exceeded"
