"""Does Prometheus read back what a run counted, at the virtual times at which it did?"""

import json
import shutil
import subprocess
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from actors.kernel.device import Series
from emu import api
from emu.cli.main import main
from emu.counts.collected import Sample
from emu.counts.exposition import START_S, openmetrics
from emu.results.metrics import seconds
from emu.run_directory.samples import SampleReader, read_digests
from tests.summary.prometheus import INSTALLED, Prometheus
from tests.summary.test_state_series import state_at_end

ROOT = Path(__file__).resolve().parents[2]
US = 1_000_000
SERIES = {0: [Series("port_transmit_frames", 1, -1, ""), Series("pfc_paused_ps", 1, 3, "")], 1: []}


def test_a_value_is_written_where_it_changes_and_the_sample_before() -> None:
    counts = [(0, 0), (0, 0), (5, 0), (5, 2 * US), (5, 2 * US), (9, 2 * US)]
    samples = [Sample(at * US, {0: list(values), 1: []}) for at, values in enumerate(counts)]
    lines = list(openmetrics({0: "rtsw-0", 1: "idle"}, SERIES, samples, start_s=100))
    sent = 'emu_port_transmit_frames_total{device="rtsw-0",port="1"}'
    paused = 'emu_pfc_paused_seconds_total{device="rtsw-0",port="1",priority="3"}'
    assert [line.strip() for line in lines if line.startswith("emu_p")] == [
        f"{sent} 0 100.000",
        f"{sent} 0 101.000",
        f"{sent} 5 102.000",
        f"{sent} 5 104.000",
        f"{sent} 9 105.000",
        f"{paused} 0.000000000000 100.000",
        f"{paused} 0.000000000000 102.000",
        f"{paused} 0.000002000000 103.000",
        f"{paused} 0.000002000000 105.000",
    ]
    assert [line for line in lines if line.startswith("emu_virtual")][-1] == (
        "emu_virtual_seconds_total 0.000005000000 105.000\n"
    )
    assert lines[-1] == "# EOF\n"


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A run's directory, and its samples as a file for Prometheus."""
    directory = tmp_path_factory.mktemp("export")
    run, file = directory / "run", directory / "run.om"
    api.run(ROOT / "scenarios/start/tiny_flap.yaml", local=True, out=run)
    assert main(["export", "openmetrics", str(run), "--out", str(file)]) == 0
    return run, file


def test_the_text_is_openmetrics(exported: tuple[Path, Path]) -> None:
    text = exported[1].read_text(encoding="ascii")
    families = list(text_string_to_metric_families(text))  # type: ignore[no-untyped-call]
    assert len(families) > 5
    names = [family.name for family in families]
    assert len(names) == len(set(names))


def test_the_text_names_the_peers_of_ports_and_when_jobs_ran(exported: tuple[Path, Path]) -> None:
    text = exported[1].read_text(encoding="ascii")
    families = {one.name: one.samples for one in text_string_to_metric_families(text)}  # type: ignore[no-untyped-call]
    counted = {(one.labels["device"], one.labels["port"]) for one in families["emu_port_transmit_bytes"]}
    ports = families["emu_port_info"]
    assert counted <= {(one.labels["device"], one.labels["port"]) for one in ports}
    assert {one.labels["direction"] for one in ports} == {"up", "down"}
    both = {(one.labels["device"], one.labels["peer"]) for one in ports}
    assert both == {(peer, device) for device, peer in both}
    times = sorted({float(one.timestamp) for one in ports})
    assert all(after - before <= 300 for before, after in pairwise(times))
    summary = json.loads((exported[0] / "summary.json").read_text("utf-8"))
    for name, job in summary["jobs"].items():
        running = [one for one in families["emu_job_running"] if one.labels["job_name"] == name]
        assert [one.value for one in running] == [1, 1, 0]
        assert float(running[-1].timestamp) - START_S == pytest.approx(job["end_ps"] / 10**6, abs=0.001)


def test_the_text_has_each_collective_at_its_end_as_the_summary_has_it(tmp_path: Path) -> None:
    run, file = tmp_path / "run", tmp_path / "run.om"
    api.run(ROOT / "scenarios/start/tiny_all_reduce.yaml", local=True, out=run)
    assert main(["export", "openmetrics", str(run), "--out", str(file)]) == 0
    text = file.read_text(encoding="ascii")
    families = {one.name: one.samples for one in text_string_to_metric_families(text)}  # type: ignore[no-untyped-call]
    summary = json.loads((run / "summary.json").read_text("utf-8"))
    for name, job in summary["jobs"].items():
        done = job["collectives"]
        assert len(done) > 1
        for family, expected in (
            ("emu_collectives", [number + 1 for number, _ in enumerate(done)]),
            ("emu_collective_exec_time_seconds", [(one["end_ps"] - one["start_ps"]) / 1e12 for one in done]),
            ("emu_collective_bus_bandwidth_bytes_per_second", [one["busbw"] // 8 for one in done]),
            ("emu_collective_algorithm_bandwidth_bytes_per_second", [one["algbw"] // 8 for one in done]),
        ):
            shown = [one for one in families[family] if one.labels["comm_name"] == name]
            at_end = {round(float(one.timestamp) - START_S, 3): one.value for one in shown}
            assert [at_end[one["end_ps"] // 1000 / 1000] for one in done] == pytest.approx(expected)
            assert {
                (one.labels["nranks"], one.labels["n_nodes"], one.labels["collective"]) for one in shown
            } == {(str(done[0]["ranks"]), "2", "AllReduce")}


TWO_KINDS = """
name: both
topology: {kind: star, hosts: 4, gpus_per_host: 1}
faults: [{kind: link_down, at: 10us, for: 5us, target: "nic-3-0:tor-0"}]
transport: {timeout: 4}
jobs:
  - name: bench
    ranks: [0, 1]
    workload: {kind: collective, op: all_reduce, sizes: [64KiB, 256KiB], warmup: 0}
  - name: train
    ranks: [2, 3]
    workload:
      kind: program
      steps: 3
      operations: [{do: compute, time: 20us}, {do: all_reduce, size: 64KiB}]
"""
OF_JOBS = {
    "job_operations": "emu_job_operations",
    "job_running": "emu_job_running",
    "job_failed": "emu_job_failed",
    "job_step_time_ps": "emu_job_step_time_seconds",
    "collectives": "emu_collectives",
    "collective_exec_time_ps": "emu_collective_exec_time_seconds",
    "collective_bus_bandwidth_bytes_per_second": "emu_collective_bus_bandwidth_bytes_per_second",
}
"""Series of jobs and collectives, by what the export calls their families."""


def test_series_of_jobs_and_faults_end_as_the_page_of_the_run_had_them(tmp_path: Path) -> None:
    """A benchmark and steps of training, against what a scrape at the end reads of the devices; and a fault
    that stands from 10 to 15 us. The export has the collectives within steps, too."""
    (tmp_path / "both.yaml").write_text(TWO_KINDS, "utf-8")
    api.run(tmp_path / "both.yaml", local=True, out=tmp_path / "run", diagnose=False)
    assert main(["export", "openmetrics", str(tmp_path / "run"), "--out", str(tmp_path / "run.om")]) == 0
    text = (tmp_path / "run.om").read_text(encoding="ascii")
    families = {one.name: one.samples for one in text_string_to_metric_families(text)}  # type: ignore[no-untyped-call]
    at_end, _ = state_at_end(str(tmp_path / "both.yaml"))
    for key, family in OF_JOBS.items():
        last = {tuple(one.labels.values()): one.value for one in families[family]}
        scale = 1e12 if key.endswith("_ps") else 1
        page = {tuple(labels): value / scale for labels, value in at_end[key]}
        assert page, key
        assert page == pytest.approx({labels: last[labels] for labels in page}), key
    stood = [(round(float(one.timestamp) - START_S, 3), one.value) for one in families["emu_faults_active"]]
    assert {(10.0, 1), (15.0, 0)} <= set(stood)


def test_what_is_no_run_is_refused_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", "openmetrics", str(tmp_path)]) == 2
    assert "samples.jsonl: not found" in capsys.readouterr().err


READERS = (
    "compare RUN RUN",
    "compare RUN RUN --json",
    "diagnose RUN",
    "export openmetrics RUN --out FILE",
    "export perfetto RUN --out FILE",
    "export csv RUN --out FILE",
    "plot flows RUN --out FILE.svg",
    "replay RUN",
    "report RUN",
    "top RUN --once",
)


@pytest.mark.parametrize("line", READERS)
def test_a_run_of_another_release_is_refused_in_one_line(
    exported: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], line: str
) -> None:
    """As 0.1.0 wrote it: no kind of digest, no header of samples, layout 1 of the summary."""
    run = Path(shutil.copytree(exported[0], tmp_path / "run"))
    for name in ("journal.jsonl", "digests.jsonl"):
        (run / name).write_text((run / name).read_text().replace('"digest_kind":2', '"kind_of_digest":1'))
    (run / "samples.jsonl").write_text('{"virtual_ps":100,"changed":{"4":[0,1]}}\n')
    text = (run / "summary.json").read_text().replace('"schema_version": 2', '"schema_version": 1', 1)
    (run / "summary.json").write_text(text)
    words = [word.replace("RUN", str(run)).replace("FILE", str(tmp_path / "out")) for word in line.split()]
    assert main(words) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert f"{run}/" in said
    assert "written by another release of emu; accepted: a run of this one" in said


BOTH = INSTALLED and shutil.which("promtool") is not None
NEEDS_PROMETHEUS = pytest.mark.skipif(not BOTH, reason="Prometheus is not installed")


@NEEDS_PROMETHEUS
def test_prometheus_answers_with_what_was_counted_at_a_virtual_time(
    exported: tuple[Path, Path], tmp_path: Path
) -> None:
    run, file = exported
    blocks = ["promtool", "tsdb", "create-blocks-from", "openmetrics", str(file), str(tmp_path / "data")]
    made = subprocess.run(blocks, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    (tmp_path / "none.yml").write_text("")
    server = Prometheus(tmp_path / "none.yml", tmp_path / "data", "--storage.tsdb.retention.time=100y")
    try:
        reader = SampleReader(run / "samples.jsonl")
        names = dict(read_digests(run / "digests.jsonl").devices)
        samples = list(reader)
        for sample in (samples[len(samples) // 2], samples[-1]):
            # One us of the run is one second from the beginning of 2000.
            answer = ask(server, "emu_port_transmit_bytes_total", 946_684_800 + sample.virtual_ps / US)
            found = {(one["metric"]["device"], one["metric"]["port"]): one["value"][1] for one in answer}
            counted = {
                (names[number], str(series.port)): str(sample.counters[number][place])
                for number, of_device in reader.series.items()
                for place, series in enumerate(of_device)
                if series.metric == "port_transmit_bytes" and samples[-1].counters[number][place]
            }
            assert found == counted
        (clock,) = ask(server, "emu_virtual_seconds_total", 946_684_800 + samples[-1].virtual_ps / US)
        assert float(clock["value"][1]) == float(seconds(samples[-1].virtual_ps))
    finally:
        server.close()


def ask(server: Prometheus, query: str, at_s: float) -> list[dict[str, Any]]:
    """The instant vector of a time."""
    found = server.vector(query, f"&time={at_s:.3f}")
    assert found is not None
    return found
