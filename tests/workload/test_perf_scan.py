"""Does a scan run the sizes that nccl-tests would?"""

import pytest

from emu.base.errors import UsageError
from emu.workload.perf_scan import fitted, parse_size, scan, which_test

OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter")


@pytest.mark.parametrize(("text", "size"), [("8", 8), ("32M", 33554432), ("1.5K", 1536), ("1g", 2**30)])
def test_sizes_are_powers_of_1024(text: str, size: int) -> None:
    assert parse_size(text, "-b") == size


@pytest.mark.parametrize("text", ["", "M", "-1", "8X", "1e3", "9" * 40])
def test_what_is_no_size_is_refused_by_its_flag(text: str) -> None:
    with pytest.raises(UsageError, match=r"-e .* is not a size"):
        parse_size(text, "-e")


def test_a_factor_goes_before_a_step() -> None:
    assert scan(8, 100, 4, 2) == [8, 16, 32, 64]
    assert scan(8, 20, 4, 1) == [8, 12, 16, 20]


@pytest.mark.parametrize(
    ("first", "last", "step", "factor"), [(9, 8, 1, 1), (8, 9, 0, 1), (0, 8, 1, 2), (0, 10**9, 1, 1)]
)
def test_a_scan_without_an_end_is_refused(first: int, last: int, step: int, factor: int) -> None:
    with pytest.raises(UsageError, match="accepted"):
        scan(first, last, step, factor)


def test_a_buffer_in_blocks_is_whole_sixteen_bytes_for_each_rank() -> None:
    assert fitted("all_reduce", 10, 4, 4) == (8, 2)
    assert fitted("all_gather", 1000, 4, 4) == (960, 60)
    assert fitted("reduce_scatter", 63, 4, 4) == (0, 0)
    assert fitted("all_gather", 1024, 4, 2) == (1024, 128)


def test_a_test_has_the_names_that_people_give_it() -> None:
    assert which_test("all_reduce_perf", OPERATIONS) == ("all_reduce", "all_reduce")
    assert which_test("AllReduce", OPERATIONS) == ("all_reduce", "all_reduce")
    assert which_test("all_to_all", ("all_to_all",)) == ("alltoall", "all_to_all")
    with pytest.raises(UsageError, match="hypercube is known and not modelled"):
        which_test("hypercube", OPERATIONS)
    with pytest.raises(UsageError, match="did you mean 'all_reduce'"):
        which_test("all_redcue", OPERATIONS)
