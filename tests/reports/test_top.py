"""Does `emu top` say of a run, live and over, what its counters and its summary say?"""

import json
import socket
from concurrent.futures import ThreadPoolExecutor
from io import StringIO
from pathlib import Path
from time import sleep

import pytest

from actors.kernel.units import PS_PER_S
from actors.wire.message import STATUS_SUCCESS
from emu import api
from emu.cli.commands.look import top
from emu.cli.commands.up import LiveTerminal
from emu.cli.main import main
from emu.cluster.pages.scrape import awaited
from emu.engine.outcome import Progress
from emu.engine.steering import Steering
from emu.run_directory.run_directory import RunDirectory
from tests.reports.test_recording import PAIR, recorded

WORK = {"kind": "collective", "op": "all_reduce", "sizes": ["1MiB"], "iterations": 8}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("top") / "run"
    recorded(PAIR, place)
    return place


def test_of_a_live_run_the_port_that_two_senders_share_is_full_and_each_is_paused_for_half_the_time(
    tmp_path: Path,
) -> None:
    flows = [{"src": 0, "dst": 2, "size": "16MiB"}, {"src": 1, "dst": 2, "size": "16MiB"}]
    jobs = [{"name": "two", "workload": {"kind": "flows", "flows": flows}}]
    prepared = api.prepare(api.load({**PAIR, "jobs": jobs, "faults": []}))
    looks: list[top.Look] = []
    # 0.67 ms at line rate, so at this pace the run takes longer than a second, however fast the machine is.
    options = api.RunOptions(local=True, pace_ps=PS_PER_S // 2000)
    with RunDirectory.create("run", tmp_path / "run") as directory, ThreadPoolExecutor() as pool:
        running = pool.submit(api.run_prepared, prepared, options, None, directory)
        while not running.done():
            if (look := top.look_at(tmp_path / "run")) is not None:
                looks.append(look)
            sleep(0.05)
    steady = [look for look in looks if 30_000_000 < look.virtual_ps < 650_000_000]
    before, now = steady[0], steady[-1]
    assert now.virtual_ps > before.virtual_ps
    lines = [line.split() for line in top.live_lines("pair", prepared.topology, before, now, 1.0)]
    shown = {" ".join(line[:3]): (float(line[3][:-1]), float(line[4][:-1])) for line in lines if "->" in line}
    assert shown["ctsw-0 -> rtsw-1"][0] >= 98
    assert 45 <= shown["nic-0-0 -> rtsw-0"][1] <= 56
    assert ["two", "0", "running", "-"] in lines
    assert " ".join(lines[-1]) == "so far: no job failed, no frame dropped, 0 retransmitted"


def test_of_a_run_that_is_over_it_says_drops_fault_and_cause_in_eighty_columns(
    run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["top", str(run)]) == 0
    text = capsys.readouterr().out
    assert "fault 0: link_down rtsw-1:ctsw-0 at 100us to 150us" in text
    assert "two     2  success" in text
    assert max(map(len, text.splitlines())) <= 80


def test_a_page_that_breaks_off_is_a_look_at_nothing(tmp_path: Path) -> None:
    """As of a worker that is killed while it answers."""
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor() as pool:
        address = "{}:{}".format(*server.getsockname())
        (tmp_path / "workers.json").write_text(
            json.dumps({"workers": [{"metrics_address": address}]}), "utf-8"
        )
        looked = pool.submit(top.look_at, tmp_path)
        with server.accept()[0] as connection:
            connection.recv(65536)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 9000\r\n\r\nemu_virtual_seconds_total ")
        assert looked.result() is None


def test_what_is_no_run_and_what_broke_off_is_said_in_one_line(
    tmp_path: Path,
    run: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert main(["top", str(tmp_path)]) == 2
    (tmp_path / "scenario.yaml").write_bytes((run / "scenario.yaml").read_bytes())
    monkeypatch.setattr(top, "SILENCE_S", -1.0)
    assert main(["top", str(tmp_path), "--once"]) == 4
    reported = capfd.readouterr().err.splitlines()
    assert "no run; accepted" in reported[0]
    assert "broke off" in reported[1]


def test_a_step_that_takes_a_fifth_longer_than_the_median_has_a_line_of_its_own() -> None:
    prepared = api.prepare(api.load({**PAIR, "jobs": [{"name": "bench", "workload": WORK}]}))
    stream = StringIO()
    terminal = LiveTerminal(
        prepared.jobs, prepared.topology, Steering(prepared.scenario, prepared.topology), stream=stream
    )
    at_ps, rows = 0, []
    for operation, took_ps in enumerate([100, 101, 99, 100, 100, 119, 130, 100]):
        rows.append((0, operation, at_ps, at_ps + took_ps * 10**6, STATUS_SUCCESS))
        at_ps += took_ps * 10**6
        terminal.progressed(Progress(at_ps, 0, tuple(rows)))
    lines = stream.getvalue().splitlines()
    assert lines == ["749us: bench: all_reduce 1MiB 7 took 130us, 30% beyond the median 100us"]


def test_a_run_that_stands_still_says_what_it_waits_for_and_until_when() -> None:
    down = {"kind": "link_down", "at": "20us", "target": "rtsw-1:ctsw-0"}
    flow = {"kind": "flows", "flows": [{"src": 0, "dst": 2, "size": "4MiB"}]}
    transport = {"congestion_control": {"kind": "none"}, "timeout": 14}
    scenario = {**PAIR, "transport": transport, "faults": [down], "jobs": [{"name": "one", "workload": flow}]}
    prepared = api.prepare(api.load(scenario))
    stepped = api.stepped(scenario)
    stepped.advance(5_000_000_000)
    partitions = [one.partition for one in stepped._logical_processes]
    awaits = awaited(partitions, prepared.topology)
    assert awaits is not None
    assert (awaits.kind, awaits.device) == ("retransmit", "nic-0-0")
    # 4.096 us x 2^14 after the timer was begun, with the first packet.
    assert 67_108_864_000 < awaits.at_ps < 67_108_864_000 + 1_000_000
    terminal = LiveTerminal(
        prepared.jobs, prepared.topology, Steering(prepared.scenario, prepared.topology), stream=StringIO()
    )
    status = terminal._status(Progress(5_000_000_000, 0, awaits=awaits))
    assert "until 67.1" in status
    assert "for a retransmission timer of nic-0-0" in status
