"""Do real runs give results that hold together, whatever they ran on?"""

import json
import shutil
import subprocess
import threading
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
import yaml
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]  # it comes with Ray

import emu
import emu.api
from actors.kernel.counters import Kind
from actors.kernel.device import tally_of
from emu.api import Result
from emu.cli.bench.cases import CASES
from emu.cli.bench.one_run import measured
from emu.cli.commands.bench import run_once
from emu.counts.counts import Counts
from emu.counts.exposition import Exposition
from emu.engine.outcome import Ending, Observer, Progress, RunOptions, WorkerRecord
from emu.launch import run_scenario
from emu.results.metrics import METRIC_OF
from emu.run_directory.comparison import load_run, parting
from emu.run_directory.samples import SampleReader
from emu.scenario.dump import to_mapping
from emu.scenario.load import load, load_mapping
from emu.scenario.resolve import build_topology
from emu.scenario.set_options import Override, override_with
from emu.summary.jobs import planned_bytes
from tests.engine.patience import PATIENCE_S, fetched, until
from tests.summary.known import known
from tests.summary.test_exposition import check_format

ROOT = Path(__file__).parents[2]
SCHEMA = Draft202012Validator(json.loads((ROOT / "docs/summary.schema.json").read_text("utf-8")))
TINY = ("tiny_all_reduce", "tiny_flap")


def run(name: str, path: Path, parts: int = 1, **overrides: object) -> Result:
    """Run a scenario of the project in this process, results in `path`."""
    return emu.api.run(name, local=True, parts=parts, out=path, overrides=overrides)


@pytest.mark.parametrize("name", TINY)
def test_results_do_not_depend_on_the_number_of_parts(tmp_path: Path, name: str) -> None:
    one = run(name, tmp_path / "one").summary
    three = run(name, tmp_path / "three", parts=3).summary
    without = [
        {key: value for key, value in each.plain().items() if key != "engine"} for each in (one, three)
    ]
    assert without[0] == without[1]
    assert (one.engine.workers, three.engine.workers) == (1, 3)
    assert one.engine.packet_hops == three.engine.packet_hops > 0
    for file in (
        "ports.csv",
        "flows.csv",
        "collectives.csv",
        "samples.jsonl",
        "digests.jsonl",
        "scenario.yaml",
    ):
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "three" / file).read_bytes(), file
    assert parting(load_run(tmp_path / "one"), load_run(tmp_path / "three")) is None


@pytest.mark.parametrize("name", TINY)
def test_summary_of_a_real_run_validates_and_holds_its_expectations(tmp_path: Path, name: str) -> None:
    result = run(name, tmp_path / "run")
    assert result.outcome.ending is Ending.FINISHED
    SCHEMA.validate(json.loads((tmp_path / "run/summary.json").read_text("utf-8")))
    assert [one.reason for one in result.summary.expectations if not one.passed] == []


def test_links_add_up(tmp_path: Path) -> None:
    links = run("tiny_all_reduce", tmp_path / "run").summary.fabric.links
    sent = sum(link.data_bytes for link in links if link.source.startswith("nic-"))
    received = sum(link.data_bytes for link in links if link.destination.startswith("nic-"))
    assert sent == received > 0
    assert all(0 <= link.utilisation <= 1 and 0 <= known(link.paused) <= 1 for link in links)


def test_samples_rise_to_what_the_run_ended_with(tmp_path: Path) -> None:
    result = run("tiny_flap", tmp_path / "run")
    samples = list(SampleReader(tmp_path / "run/samples.jsonl"))
    times = [sample.virtual_ps for sample in samples]
    assert times == sorted(times)
    assert 0 < times[-1] <= result.summary.virtual_ps
    at_end = {one.number: one.counters for one in result.outcome.devices}
    for number, series in SampleReader(tmp_path / "run/samples.jsonl").series.items():
        for place, one in enumerate(series):
            if METRIC_OF[one.metric].kind is Kind.COUNTER:
                values = [sample.counters[number][place] for sample in samples] + [at_end[number][place]]
                assert values == sorted(values), (number, one.metric)


def test_device_and_sync_point_of_a_difference_are_found(tmp_path: Path) -> None:
    run("tiny_all_reduce", tmp_path / "one")
    run("tiny_all_reduce", tmp_path / "other", seed=4321)
    found = parting(load_run(tmp_path / "one"), load_run(tmp_path / "other"))
    assert found is not None
    assert found.device is not None
    assert (found.after_ps, found.at_ps is not None) == (0, True)


@pytest.mark.parametrize("name", TINY)
def test_planned_payload_is_what_is_delivered_without_control_messages(tmp_path: Path, name: str) -> None:
    devices = run(name, tmp_path / "run").outcome.devices
    delivered = Counts(devices).total("nic_delivered_bytes")
    planned = planned_bytes(emu.api.prepare(name).jobs)
    assert planned <= delivered <= planned * 1.1


class Scraper(Observer):
    """Scrapes the run from another thread, again and again. Until a page has shown that it moves, the run
    waits for the next one at each progress."""

    def __init__(self) -> None:
        self.pages: list[str] = []
        self.over = False
        self._moved = False
        self._thread = threading.Thread(target=self._scrape)
        self._url = ""

    def workers_up(self, workers: tuple[WorkerRecord, ...], discovery_url: str) -> None:
        self._url = discovery_url
        self._thread.start()

    def progressed(self, progress: Progress) -> None:
        so_far = len(self.pages)
        if not self._moved:
            until(lambda: len(self.pages) > so_far)
            self._moved = any(reached_ps(self.pages))

    def _scrape(self) -> None:
        (group,) = json.loads(fetched(self._url))
        (target,) = group["targets"]
        while not self.over:
            try:
                with urlopen(f"http://{target}/metrics", timeout=PATIENCE_S) as answer:
                    self.pages.append(answer.read().decode())
            except (OSError, HTTPException):
                # The run is over, and its worker has stopped serving; or one of both was stopped for long.
                continue

    def join(self) -> None:
        self.over = True
        self._thread.join()


def reached_ps(pages: list[str]) -> list[float]:
    """How far the run was, by the pages that say so."""
    reported = [line for page in pages for line in page.splitlines()]
    return [
        float(line.split()[1]) * 1e12 for line in reported if line.startswith("emu_virtual_seconds_total ")
    ]


def test_run_answers_scrapes_while_it_goes_on() -> None:
    size = "16MiB" if emu.is_compiled() else "1MiB"
    scenario = load_mapping(CASES["incast-16"].scenario(), overrides=[size_override(size)]).scenario
    scraper = Scraper()
    options = RunOptions(local=True, progress_every_s=0.01)
    outcome = run_scenario(scenario, build_topology(scenario), options, scraper)
    scraper.join()
    assert outcome.ending is Ending.FINISHED
    reached = reached_ps(scraper.pages)
    assert reached == sorted(reached)
    assert 0 < reached[-1] <= outcome.virtual_ps
    assert check_format(scraper.pages[-1].split("# HELP emu_virtual_seconds_total")[0])


def size_override(size: str) -> Override:
    return override_with("jobs[0].workload.size", size)


def differing(written: Any, theirs: Any, ours: Any, path: str = "") -> list[str]:
    """The places of what is written at which two effective scenarios differ."""
    if isinstance(written, dict):
        found = [differing(item, theirs[key], ours[key], f"{path}.{key}") for key, item in written.items()]
        return [place for places in found for place in places]
    if isinstance(written, list) and any(isinstance(item, dict) for item in written):
        found = [differing(*items, f"{path}[]") for items in zip(written, theirs, ours, strict=True)]
        return [place for places in found for place in places]
    return [] if theirs == ours else [path]


def test_quickstart_of_the_bench_is_what_the_quickstart_writes() -> None:
    """The rest is left to defaults there, and spelled out in the bench, where a default may not change it."""
    path = ROOT / "scenarios/start/quickstart.yaml"
    written = yaml.safe_load(path.read_text())
    theirs = to_mapping(load(path).scenario)
    bench = to_mapping(load_mapping(CASES["quickstart"].scenario()).scenario)
    reported = {key: value for key, value in written.items() if key not in ("description", "expect", "run")}
    assert {"topology", "jobs", "faults"} <= set(reported)
    assert differing(reported, theirs, bench) == []


def test_bench_measures_what_the_run_counted(tmp_path: Path) -> None:
    result = run("tiny_all_reduce", tmp_path / "run")
    figures = measured(result.outcome)
    assert figures.packet_hops == result.summary.engine.packet_hops
    assert figures.data_packet_hops == result.summary.engine.data_packet_hops
    assert 0 < figures.data_packet_hops < figures.packet_hops


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
def test_promtool_finds_nothing_to_say_about_a_real_page(tmp_path: Path) -> None:
    devices = run("tiny_flap", tmp_path / "run").outcome.devices
    exposition = Exposition([(f"device-{one.number}", one.series) for one in devices])
    page = exposition.render(tally_of([one.counters for one in devices])).decode()
    checked = subprocess.run(
        ["promtool", "check", "metrics"], input=page, capture_output=True, text=True, check=False
    )
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")


@pytest.mark.soak
def test_a_thousand_hosts_stay_under_a_gibibyte_and_a_half() -> None:
    figures = run_once(CASES["permutation-1024"], 0)
    assert figures.peak_rss_bytes < 1536 * 2**20
