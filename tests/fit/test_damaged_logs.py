"""Is every row of a log read by the columns of its header, or refused with its line?

The shipped log of nccl-tests, as launchers and editors change it, and with each of its cells damaged.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from emu.base.errors import UsageError
from emu.cli.main import main
from emu.doors.fit.read_logs import Log, read_log

ROOT = Path(__file__).parents[2]
NCCL = (ROOT / "scenarios/fit/gke_b200.log").read_text("utf-8")
ROWS = 26
PERFTEST = """\
---------------------------------------------------------------------------------------
                    RDMA_Write BW Test
 Number of qps   : 2
---------------------------------------------------------------------------------------
 #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
 2          5000           0.079              0.078                4.912
 256        5000           9.9                9.8                  4.812
 65536      5000           196.5              196.4                0.374
---------------------------------------------------------------------------------------
"""


def read(tmp_path: Path, text: str) -> Log:
    (tmp_path / "a.log").write_text(text, encoding="utf-8")
    return read_log(tmp_path / "a.log", "", "in-place")._replace(file="")


def changed(text: str, row: str, column: int, word: str) -> str:
    """A text with another word in one column of the row that begins with `row`."""
    lines = text.splitlines()
    (at,) = [at for at, line in enumerate(lines) if line.split()[:1] == [row]]
    words = lines[at].split()
    words[column] = word
    lines[at] = " ".join(words)
    return "\n".join(lines)


@pytest.mark.parametrize(
    "tag",
    [
        "",
        "0: ",
        " 0: ",
        "[1,0]<stdout>:",
        "[1,0]<stdout>: ",
        "[1,0]<stderr>:",
        "[prterun-a-9@1,0]<stdout>: ",
        "Sat Nov 28 17:36:45 2026<stdout>:",
        "[0] ",
    ],
)
@pytest.mark.parametrize("trimmed", [False, True])
def test_what_launchers_and_editors_change_changes_no_row(tmp_path: Path, tag: str, trimmed: bool) -> None:
    lines = [line.lstrip() if trimmed else line for line in NCCL.splitlines()]
    found = read(tmp_path, "\n".join(tag + line for line in lines))
    assert found == read(tmp_path, NCCL)
    assert [len(found.rows), found.ranks, found.servers] == [ROWS, 2, 2]
    assert [(row.size_bytes, row.time_us) for row in found.rows[:2]] == [(32, 14.12), (64, 14.12)]


@pytest.mark.parametrize(
    ("column", "word", "said"),
    [
        (0, "-256", "'-256' is no size; accepted: 0 to 1125899906842624 B"),
        (0, str(2**70), f"'{2**70}' is no size"),
        (0, "9" * 5000, "..."),
        (0, "nan", "'nan' is no size"),
        (0, "260", "its size of 260 B is no multiple of its 32 elements of float"),
        (0, "257", "its size of 257 B is no multiple of its 32 elements of float"),
        (0, "512", "count times the width of float is another share of the size than above"),
        (1, "64", "count times the width of float is another share of the size than above"),
        (1, "x", "'x' is no size"),
        (2, "32", "has '32' in the column of the type; accepted: int8, uint8"),
        (5, "inf", "'inf' is no time; accepted: a number above 0"),
        (5, "nan", "'nan' is no time"),
        (5, "0", "'0' is no time"),
        (5, "0.00", "'0.00' is no time"),
        (5, "-5", "'-5' is no time"),
        (5, "1.2.3", "'1.2.3' is no time"),
        (5, "", "has 7 columns below a header of 8"),
        (7, "", "has 7 columns below a header of 8"),
        (7, "0.01 0.01", "has 9 columns below a header of 8"),
    ],
)
def test_a_damaged_row_is_refused_with_its_line(tmp_path: Path, column: int, word: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        read(tmp_path, changed(NCCL, "256", column, word))
    (line,) = str(caught.value).splitlines()
    if column in (5, 7) and not word:  # as short as a row without `redop` is: its figures have to fit
        assert "a.log:13: " in line or "a.log:14: " in line
        return
    assert line.startswith(f"{tmp_path / 'a.log'}:13: ")
    assert said in line
    assert len(line) < 300


def test_rows_cut_after_four_columns_are_refused(tmp_path: Path) -> None:
    cut = "\n".join(" ".join(line.split()[:4]) if line[:1] == " " else line for line in NCCL.splitlines())
    with pytest.raises(
        UsageError, match=r"a\.log:10: has 4 columns below a header of 8; accepted: nccl-tests'"
    ):
        read(tmp_path, cut)


def test_blank_columns_of_old_versions_are_counted_from_the_right(tmp_path: Path) -> None:
    """Tests without a reduction left `redop` and `root` blank."""
    blank = NCCL.replace("none      -1", "             ")
    assert read(tmp_path, blank) == read(tmp_path, NCCL)


def test_an_empty_size_is_no_row(tmp_path: Path) -> None:
    """nccl-tests prints rows of 0 bytes where a size is less than an element a rank."""
    first = NCCL.splitlines()[9]
    empty = first.replace("32 ", " 0 ", 1).replace(" 4 ", " 0 ", 1)
    assert read(tmp_path, NCCL.replace(first, f"{empty}\n{first}")) == read(tmp_path, NCCL)


def test_logs_of_two_collectives_are_refused(tmp_path: Path) -> None:
    two = NCCL + NCCL.replace("all_gather_perf", "all_reduce_perf")
    with pytest.raises(
        UsageError, match="has tests of all_gather_perf and all_reduce_perf; accepted: a log of one"
    ):
        read(tmp_path, two)


@pytest.mark.parametrize(
    ("column", "word", "said"),
    [
        (0, "-2", "'-2' is no size"),
        (0, "1e3", "'1e3' is no size"),
        (3, "inf", "'inf' is no BW average"),
        (3, "0.00", "'0.00' is no BW average"),
        (3, "nan", "'nan' is no BW average"),
        (3, "-9.8", "'-9.8' is no BW average"),
        (4, "", "has 4 columns below a header of 5"),
    ],
)
def test_a_damaged_row_of_perftest_is_refused_with_its_line(
    tmp_path: Path, column: int, word: str, said: str
) -> None:
    assert len(read(tmp_path, PERFTEST).rows) == 3
    with pytest.raises(UsageError) as caught:
        read(tmp_path, changed(PERFTEST, "256", column, word))
    assert f"a.log:7: {said}" in str(caught.value)


@pytest.mark.parametrize("time", ["NaN", "Infinity", "0", "-1", '"9"', "true", "null"])
def test_a_damaged_time_in_json_is_refused_with_its_place(tmp_path: Path, time: str) -> None:
    text = '{"config": {"devices": []}, "args": ["all_reduce_perf"], "results": [%s, %s]}'
    row = '{"size": 8, "in_place": {"time": %s}}'
    (tmp_path / "a.json").write_text(text % (row % 5, row % time), encoding="utf-8")
    with pytest.raises(
        UsageError, match=r"results\[1\] has the size 8 and the time|is no JSON of nccl-tests"
    ):
        read_log(tmp_path / "a.json", "", "in-place")


@pytest.mark.parametrize(("size", "sizes"), [("4K", 8), ("4KiB", 8), ("0.001M", 6), ("1GiB", 26), ("1G", 26)])
def test_largest_takes_sizes_as_nccl_tests_does(
    monkeypatch: pytest.MonkeyPatch, size: str, sizes: int
) -> None:
    """K, M and G are powers of 1024. The log has the sizes 32 B, 64 B and so on."""
    found: list[int] = []

    def stop(logs: list[Log]) -> None:
        found.extend(len(log.rows) for log in logs)
        raise UsageError("enough")

    monkeypatch.setattr("emu.doors.fit.commands.fit.check_alike", stop)
    log = str(ROOT / "scenarios/fit/gke_b200.log")
    assert main(["fit", "--largest", size, log, "fit_gke_b200"]) == 2
    assert found == [sizes]
