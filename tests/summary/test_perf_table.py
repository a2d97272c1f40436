"""Is the text nccl-tests' to the letter, and the JSON its keys?"""

import json

from emu.summary.nccl_table import (
    PerfConfig,
    PerfDevice,
    PerfRow,
    fixed,
    footer,
    heading,
    json_value,
    line,
)
from emu.workload.perf_scan import ScanSize

CONFIG = PerfConfig(
    test="all_reduce",
    operation="all_reduce",
    ranks=4,
    threads=1,
    gpus=4,
    least_bytes=8,
    most_bytes=1048576,
    step_bytes=1048576,
    factor=2,
    warmup=0,
    iterations=1,
    check=0,
    type_name="float",
    reduction="sum",
    root=0,
    version="0",
)
ROW = PerfRow(ScanSize(1048576, 262144), 100_000_000, 1)


def test_rows_stand_in_the_columns_of_nccl_tests() -> None:
    assert line(CONFIG, ROW) == (
        "     1048576        262144     float     sum      -1   100.00   10.49   15.73    N/A"
        "   100.00   10.49   15.73    N/A"
    )
    assert line(CONFIG, ROW._replace(wrong=0)).endswith("15.73       0")


def test_the_title_is_above_the_columns() -> None:
    lines = heading(CONFIG, [PerfDevice(0, "host-0", 3)])
    assert lines[5] == "#  Rank  0 Group  0 Pid      0 on     host-0 device  3 [0000:03:00] emulated"
    assert lines[-2].rstrip() == (
        "#       size         count      type   redop    root     time   algbw   busbw  #wrong"
        "     time   algbw   busbw  #wrong"
    )
    assert lines[-1].startswith("#        (B)    (elements)                               (us)  (GB/s)")


def test_the_footer_has_the_mean_busbw() -> None:
    slow = ROW._replace(time_ps=200_000_000)
    lines = footer(CONFIG, [ROW, slow])
    assert lines[0] == "# Out of bounds values : 0 OK"
    assert lines[1] == "# Avg bus bandwidth    : 11.7965 "
    assert footer(CONFIG, [ROW._replace(wrong=7)])[0] == "# Out of bounds values : 1 FAILED"


def test_numbers_lose_decimals_as_they_grow() -> None:
    assert [fixed(value, 7) for value in (0.0, 9999.994, 12345.6, 1234567.0, 12345678.0)] == [
        "   0.00",
        "9999.99",
        "12345.6",
        "1234567",
        "1.2e+07",
    ]


def test_operations_in_blocks_have_root_and_reduction_as_there() -> None:
    gather = CONFIG._replace(test="all_gather", operation="all_gather")
    assert line(gather, ROW).split()[2:5] == ["float", "none", "-1"]
    assert line(gather, ROW).split()[7] == "7.86"
    broadcast = CONFIG._replace(test="broadcast", operation="broadcast", root=2)
    assert line(broadcast, ROW).split()[2:5] == ["float", "none", "2"]


def test_json_has_the_keys_of_nccl_tests_in_their_order() -> None:
    value = json_value(CONFIG, [PerfDevice(0, "host-0", 0)], [ROW], ["emu"], [], ("a", "b"), [])
    assert list(value) == [
        "version",
        "start_time",
        "args",
        "env",
        "nccl_version",
        "config",
        "results",
        "out_of_bounds",
        "average_bus_bandwidth",
        "errors",
        "end_time",
    ]
    half = {"time": 100.0, "alg_bw": 10.48576, "bus_bw": 15.72864, "nwrong": None}
    assert json.loads(json.dumps(value))["results"] == [
        {
            "size": 1048576,
            "count": 262144,
            "type": "float",
            "redop": "sum",
            "root": "    -1",
            "out_of_place": half,
            "in_place": half,
            "actual_iterations": 1,
            "experiment_name": "",
        }
    ]
    assert value["config"]["step_factor"] == 2
    assert value["out_of_bounds"] == {"count": 0, "okay": "true"}
    assert value["average_bus_bandwidth"] == {"bandwidth": 15.72864, "okay": "unchecked"}


def test_a_narrow_terminal_gets_the_columns_of_out_of_place_in_eighty() -> None:
    names, units = heading(CONFIG, [], narrow=True)[-2:]
    row = line(CONFIG, ROW, narrow=True)
    assert max(map(len, (names, units, row))) <= 80
    assert row.split() == line(CONFIG, ROW).split()[:9]
