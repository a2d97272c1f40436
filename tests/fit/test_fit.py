"""Does a fit find what made a log, leave what a log cannot tell, and refuse what is no log?"""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from emu.base.errors import UsageError
from emu.cli.main import main
from emu.doors.fit.fit_report import figures, overlay, report
from emu.doors.fit.fitting import Fit, fit, split
from emu.doors.fit.log_runs import Model
from emu.doors.fit.read_counters import compared, read_counters
from emu.doors.fit.read_logs import Log, Measured, check_alike, of_size, read_log
from emu.many_runs import Machines
from emu.scenario.load import load
from emu.scenario.set_options import parse_override
from tests.tidy.tracked import ROOT

LOGS = ROOT / "scenarios" / "fit"
STAR = """
name: two
topology: {kind: star, hosts: 2, link: 400G}
jobs: [{name: x, workload: {kind: collective, op: barrier, sizes: [4B]}}]
"""
TRUE = {"ncclx.launch": "6us", "host.pcie.rate": "300Gbps"}
SIZES = [8 << (2 * power) for power in range(11)]


@pytest.fixture(scope="module")
def scenario(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("fit") / "two.yaml"
    path.write_text(STAR)
    return path


@pytest.fixture(scope="module")
def found(scenario: Path) -> Fit:
    """A fit to a log that the emulator itself made with two knobs turned."""
    blank = Log("made.log", "all_reduce", 2, 2, 1, tuple(Measured(size, 1.0) for size in SIZES))
    turned = {**TRUE, "host.pcie.enabled": "true"}
    model = Model(str(scenario), (), "", Machines(1))
    (answer,) = model.ask([(blank, turned)])
    rows = tuple(Measured(size, time) for size, time in zip(SIZES, answer.times_us, strict=True))
    return fit(model, [blank._replace(rows=rows)], lambda _: None)


def test_a_fit_finds_the_knobs_that_made_a_log(found: Fit) -> None:
    values = {one.knob.key: one.value for one in found.knobs}
    assert values.keys() == TRUE.keys()
    assert values["ncclx.launch"] == pytest.approx(6_000_000, rel=0.02)
    assert values["host.pcie.rate"] == pytest.approx(300e9, rel=0.02)


def test_sizes_kept_back_are_predicted(found: Fit) -> None:
    ((_, rows),) = found.rows
    assert [row.kept_back for row in rows] == [place % 2 == 1 for place in range(len(SIZES))]
    of = figures(rows)
    assert of["kept_back_median"] < 0.01 < of["kept_back_median_before"]


def test_what_the_log_cannot_tell_is_left_and_named(found: Fit) -> None:
    left = {one.knob.key: one.why for one in found.left}
    assert "host.nvlink.rate" in left
    assert left["host.nvlink.rate"].startswith("changes none")
    assert "told apart from ncclx.launch" in left["host.nic_link_delay"]


def test_a_fit_that_ends_at_its_range_says_in_its_last_line_not_to_trust_it(found: Fit) -> None:
    assert not any("do not trust" in line for line in report(found))
    first, *others = found.knobs
    ended = found._replace(knobs=(first._replace(value=first.knob.most), *others))
    assert report(ended)[-1].startswith(f"do not trust this fit: it ends at the range of {first.knob.key}")


def test_the_overlay_is_taken_by_set(found: Fit, scenario: Path, tmp_path: Path) -> None:
    file = tmp_path / "fitted.set"
    file.write_text(overlay(found))
    assert main(["validate", str(scenario), "--set", f"@{file}"]) == 0
    lines = [line for line in file.read_text().splitlines() if not line.startswith("#")]
    loaded = load(scenario, [parse_override(line) for line in lines]).scenario
    assert loaded.ncclx.launch_ps == {one.knob.key: one.value for one in found.knobs}["ncclx.launch"]
    assert loaded.host.pcie.enabled


@pytest.mark.parametrize(
    ("name", "operation", "ranks", "servers", "sizes"),
    [("oci_a100.log", "all_reduce", 16, 2, 31), ("gke_b200.log", "all_gather", 2, 2, 26)],
)
def test_the_public_logs_are_split_as_they_say(
    name: str, operation: str, ranks: int, servers: int, sizes: int
) -> None:
    log = read_log(LOGS / name, "", "in-place")
    assert (log.operation, log.ranks, log.servers, len(log.rows)) == (operation, ranks, servers, sizes)
    fitted_to, kept_back = split(log)
    assert fitted_to.rows == log.rows[0::2]
    assert kept_back.rows == log.rows[1::2]


HEAD = """\
# Collective test starting: all_gather_perf
#  Rank  0 Group  0 Pid   1 on host-0 device  0 [0000:00:00] NVIDIA H100
#  Rank  1 Group  0 Pid   1 on host-1 device  0 [0000:00:00] NVIDIA H100
#   size  count   type  redop  root   time  algbw  busbw #wrong   time  algbw  busbw #wrong
"""
WRITE_BW = """                    RDMA_Write BW Test
 Number of qps   : 2
 #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
 65536      5000             391.20             390.00               0.743
"""
WRITE_LAT = """                    RDMA_Write Latency Test
 #bytes #iterations  t_min[usec]  t_max[usec]  t_typical[usec]  t_avg[usec] t_stdev[usec] 99% percentile[usec]
 2       1000          1.61           5.12         1.70               1.72           0.05            1.90
"""
NCCL_JSON = {
    "args": ["./build/all_reduce_perf", "-b", "8"],
    "config": {"devices": [{"hostname": "a"}, {"hostname": "a"}]},
    "results": [{"size": 1024, "in_place": {"time": 9.5}, "out_of_place": {"time": 10.5}}],
}
ROW = "    1024    128  float   none    -1  14.44   0.07   0.04      0  12.49   0.07   0.04      0\n"

TAGGED = "\n".join(f"0: {line}" for line in (HEAD + ROW).splitlines())


@pytest.mark.parametrize(
    ("text", "column", "expected"),
    [
        (HEAD + ROW, "in-place", ("all_gather", 2, 2, 1, 1024, 12.49)),
        (HEAD + ROW, "out-of-place", ("all_gather", 2, 2, 1, 1024, 14.44)),
        (TAGGED, "in-place", ("all_gather", 2, 2, 1, 1024, 12.49)),
        (WRITE_BW, "in-place", ("write_bw", 2, 2, 2, 65536, 65536 * 8 / 390e3)),
        (WRITE_LAT, "in-place", ("write_lat", 2, 2, 1, 2, 1.70)),
        (json.dumps(NCCL_JSON), "in-place", ("all_reduce", 2, 1, 1, 1024, 9.5)),
    ],
)
def test_logs_are_read(text: str, column: str, expected: tuple[object, ...], tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_text(text)
    log = read_log(path, "", column)  # type: ignore[arg-type]
    (row,) = log.rows
    read = (log.operation, log.ranks, log.servers, log.queue_pairs, row.size_bytes, row.time_us)
    assert read == (*expected[:5], pytest.approx(expected[5]))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("hello\n", "has neither a table of nccl-tests"),
        ("\n", "is empty"),
        (
            "# size count type latency\n 8 2 float 3.0\n",
            ":1: has the columns 'size count type latency', no time",
        ),
        (HEAD + " 1024 128 float none -1 x 0 0 0 y 0 0 0\n", ":5: 'y' is no time"),
        (HEAD, "has no row with a size and a time"),
        ((HEAD + ROW).replace("# Collective test starting: all_gather_perf\n", ""), "accepted: --op"),
        ("{}", "is no JSON of nccl-tests"),
        (WRITE_LAT.replace("RDMA_Write Latency", "RDMA_Read Latency"), "is of a RDMA_Read Latency Test"),
        (WRITE_BW.replace("BW average", "BW mean"), "has no column 'BW average'"),
    ],
)
def test_what_is_no_log_is_refused_in_one_line(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_text(text)
    with pytest.raises(UsageError) as refused:
        read_log(path, "", "in-place")
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_logs_of_two_clusters_are_refused_in_one_line(tmp_path: Path) -> None:
    paths = [tmp_path / "a.log", tmp_path / "b.log"]
    paths[0].write_text(HEAD + ROW)
    paths[1].write_text((HEAD + ROW).replace("H100", "B200"))
    logs = [read_log(path, "", "in-place") for path in paths]
    assert [log.gpu for log in logs] == ["H100", "B200"]
    check_alike(logs[:1] * 2)
    with pytest.raises(UsageError) as refused:
        check_alike(logs)
    assert "is of B200" in str(refused.value)
    assert "\n" not in str(refused.value)


ETHTOOL = "     rx_prio3_pause: 12\n     tx_prio3_pause: 5\n     tx_prio4_pause: 2\n     rx_bytes: 99\n"
RDMA = "link mlx5_0/1 np_cnp_sent 12 packet_seq_err 3\nlink mlx5_1/1 np_cnp_sent 30 packet_seq_err 0\n"


@pytest.mark.parametrize(
    ("texts", "found"),
    [
        ([ETHTOOL], {"rx_prio_pause": 12, "tx_prio_pause": 7}),
        ([RDMA], {"np_cnp_sent": 42, "packet_seq_err": 3}),
        (["hw_counters/np_cnp_sent:7\n", "hw_counters/np_cnp_sent:9\n"], {"np_cnp_sent": 2}),
        ([], {}),
    ],
)
def test_counters_are_read(texts: list[str], found: dict[str, int], tmp_path: Path) -> None:
    paths = [tmp_path / str(number) for number in range(len(texts))]
    for path, text in zip(paths, texts, strict=True):
        path.write_text(text)
    assert read_counters(paths) == found


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (["rx_bytes: 4\n"], "has none of the counters"),
        (["np_cnp_sent 9\n", "np_cnp_sent 4\n"], "has fewer np_cnp_sent"),
        (["np_cnp_sent 9\n"] * 3, "takes one text"),
    ],
)
def test_what_are_no_counters_is_refused_in_one_line(texts: list[str], said: str, tmp_path: Path) -> None:
    paths = [tmp_path / str(number) for number in range(len(texts))]
    for path, text in zip(paths, texts, strict=True):
        path.write_text(text)
    with pytest.raises(UsageError) as refused:
        read_counters(paths)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_what_the_cluster_counted_and_the_fabric_did_not_is_said(found: Fit) -> None:
    counters = tuple(compared({"np_cnp_sent": 42, "packet_seq_err": 0}, {"np_cnp_sent": 0}))
    lines = report(found._replace(counters=counters))
    assert ["np_cnp_sent", "42", "0"] in [line.split() for line in lines]
    assert any("counted on the cluster and not here: np_cnp_sent." in line for line in lines)
    assert not any("counters of the NICs" in line for line in report(found))


def _too_short(scenario: Path) -> object:
    del scenario
    return of_size(Log("a.log", "all_reduce", 2, 2, 1, (Measured(8, 1.0),)), 1 << 30)


def _too_many_servers(scenario: Path) -> object:
    return Model(str(scenario), (), "", Machines(1)).ask(
        [(Log("a.log", "all_reduce", 6, 3, 1, (Measured(8, 1.0),)), {})]
    )


@pytest.mark.parametrize(
    ("asked", "said"),
    [(_too_short, "at least 6"), (_too_many_servers, "the scenario has 0 servers with 2 GPUs")],
)
def test_what_cannot_be_fitted_is_refused(asked: Callable[[Path], object], said: str, scenario: Path) -> None:
    with pytest.raises(UsageError, match=said):
        asked(scenario)


@pytest.mark.parametrize(
    ("operation", "pairs"), [("write_bw", 1), ("write_bw", 4), ("write_lat", 1), ("send_lat", 1)]
)
def test_perftest_answers_by_closed_forms(operation: str, pairs: int, scenario: Path) -> None:
    log = Log("a.log", operation, 2, 2, pairs, (Measured(64, 1.0), Measured(1 << 20, 1.0)))
    model = Model(str(scenario), (), "", Machines(1))
    plain, late = model.ask([(log, {}), (log, {"host.nic_link_delay": "1550ns"})])
    if operation == "write_bw":  # 4,096 B of payload in a packet of 4,178 B at 400 Gbit/s
        assert plain.times_us[1] == pytest.approx((1 << 20) * 8 * 4178 / 4096 / 400e3, rel=0.05)
    else:  # both ends, 0.75 us more each
        assert late.times_us[0] - plain.times_us[0] == pytest.approx(2 * 0.75, abs=0.01)


def test_a_launch_delays_every_call_by_itself(scenario: Path) -> None:
    log = Log("a.log", "all_reduce", 2, 2, 1, tuple(Measured(size, 1.0) for size in SIZES))
    plain, late = Model(str(scenario), (), "", Machines(1)).ask([(log, {}), (log, {"ncclx.launch": "3us"})])
    assert [two - one for one, two in zip(plain.times_us, late.times_us, strict=True)] == pytest.approx(
        [3.0] * len(SIZES)
    )
