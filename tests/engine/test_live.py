"""A live run is the run of a scenario that nobody knew beforehand: replayed, it has the same digest."""

import json
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from actors.kernel.mixing import Stream
from emu import api
from emu.base.errors import UsageError
from emu.counts.collected import Changed
from emu.engine.live.control_socket import ControlSocket, fault_list
from emu.engine.outcome import WorkerRecord
from emu.engine.sync.pacing import QUANTUM_S
from emu.run_directory.run_directory import RunDirectory
from emu.stored_run import StoredRun, stored_run
from tests.conftest import SOAK
from tests.engine.patience import PATIENCE_S

ROOT = Path(__file__).resolve().parents[2]
TINY = ROOT / "scenarios/start/tiny_all_reduce.yaml"
LIVE = {"run.repeat": True, "run.max_time": "40ms", "run.stall_after": "30ms", "transport.timeout": 9}
LINKS = ("rtsw-0:ctsw-0", "rtsw-0:ctsw-1", "rtsw-1:ctsw-0", "rtsw-1:ctsw-1")
RUNS = 20 if SOAK else 3
KILLED_RUNS = 10 if SOAK else 2
PACE_PS = 2 * 10**9
"""On workers. All of a live run would take 20 s then, and it waits for who looks, so that it is ended by its
operator however late that hears of it."""
RAY_RUNS = 20 if SOAK else 1


class Operator(api.Observer):
    """Injects and clears faults as samples come in, as a seed decides, and ends the run after the last."""

    def __init__(self, steering: api.Steering, seed: int) -> None:
        self.made: list[tuple[int, int]] = []
        self._steering = steering
        self._stream = Stream(seed, 1, 7)
        self._samples = 0

    def sampled(self, sample: Changed, mixes: Mapping[int, Sequence[int]]) -> None:
        del sample, mixes
        self._samples += 1
        if self._samples > 12 and len(self.made) >= 4:
            self._steering.end()
        elif self._samples % 2 == 0:
            self._act()

    def _act(self) -> None:
        lasting = [
            at for at, one in enumerate(self._steering.scenario.faults) if getattr(one, "for_ps", 0) is None
        ]
        try:
            if lasting:
                self._steering.clear(lasting[0])
            else:
                self._steering.inject(self._drawn())
        except UsageError:
            return

    def _drawn(self) -> dict[str, object]:
        link = LINKS[self._stream.below(len(LINKS))]
        span = f"{1 + self._stream.below(400)}us"
        kinds: tuple[dict[str, object], ...] = (
            {"kind": "link_down", "target": link},
            {"kind": "link_down", "target": link, "for": span},
            {"kind": "degrade", "target": link, "rate": "100G", "loss": 0.01, "for": span},
            {"kind": "nic_down", "target": "nic-1-0", "for": span},
            {"kind": "gpu_slow", "target": "gpu-0-1", "factor": 3, "for": span},
            {"kind": "link_down", "target": link, "for": "20us", "every": "90us", "count": 3},
            {"kind": "slow_receiver", "target": "nic-0-0", "rate": "20G", "for": span},
            {"kind": "headroom_drift", "target": "rtsw-0", "headroom": "1KiB", "for": span},
            {"kind": "link_down", "target": "busiest uplink", "for": span},
        )
        return kinds[self._stream.below(len(kinds))]

    def changed(self, change: object, fault: int, at_ps: int, scenario: api.Scenario) -> None:
        del change, scenario
        self.made.append((fault, at_ps))


class Vandal(Operator):
    """Kills a drawn worker twice, besides, each time the fourth sample was heard of workers that came up.

    It sees that no sample is heard twice.
    """

    def __init__(self, steering: api.Steering, seed: int) -> None:
        super().__init__(steering, seed)
        self.heard_ps: list[int] = []
        self._workers: tuple[WorkerRecord, ...] = ()
        self._heard_of_them = 0
        self._kills_left = 2
        self._kills = Stream(seed, 1, 8)

    def workers_up(self, workers: tuple[WorkerRecord, ...], discovery_url: str) -> None:
        self._workers = workers
        self._heard_of_them = 0

    def sampled(self, sample: Changed, mixes: Mapping[int, Sequence[int]]) -> None:
        super().sampled(sample, mixes)
        self.heard_ps.append(sample.virtual_ps)
        self._heard_of_them += 1
        if self._heard_of_them == 4 and self._kills_left:
            self._kills_left -= 1
            os.kill(self._workers[self._kills.below(len(self._workers))].pid, signal.SIGKILL)


def live_run(directory: Path, seed: int, kind: type[Operator] = Operator, **options: object) -> api.Result:
    prepared = api.prepare(TINY, LIVE | {"seed": seed})
    steering = api.Steering(prepared.scenario, prepared.topology)
    operator = kind(steering, seed)
    with RunDirectory.create("live", directory) as opened:
        made = api.RunOptions(metrics=False, steering=steering, progress_every_s=0.01, **options)  # type: ignore[arg-type]
        result = api.run_prepared(prepared, made, operator, opened)
    assert len(operator.made) >= 2
    assert not isinstance(operator, Vandal) or operator.heard_ps == sorted(set(operator.heard_ps))
    assert len(result.summary.faults) == len(steering.scenario.faults)
    return result


def replayed(found: StoredRun, **options: object) -> api.Result:
    prepared = api.prepare(api.as_loaded(found.scenario))
    made = api.RunOptions(metrics=False, end_ps=found.end_ps, **options)  # type: ignore[arg-type]
    return api.run_prepared(prepared, made)


@pytest.mark.parametrize("seed", range(1, RUNS + 1))
def test_a_live_run_with_injected_faults_replays_to_the_same_digest(seed: int, tmp_path: Path) -> None:
    live = live_run(tmp_path / "live", seed, local=True, parts=1 + seed % 3, block=1 + seed % 2)
    assert live.outcome.ending == "finished"
    assert live.outcome.digest
    found = stored_run(tmp_path / "live")
    assert found.digest == live.outcome.digest
    again = replayed(found, local=True, parts=1 + (seed + 1) % 3)
    assert again.outcome.digest == live.outcome.digest
    assert again.outcome.virtual_ps == live.outcome.virtual_ps
    assert again.summary.faults == live.summary.faults


class Clearer(api.Observer):
    """Injects what comes again and again and something after it, clears the first, and ends the run."""

    def __init__(self, steering: api.Steering, recurring: dict[str, object]) -> None:
        self._steering = steering
        self._recurring = recurring
        self._samples = 0

    def sampled(self, sample: Changed, mixes: Mapping[int, Sequence[int]]) -> None:
        del sample, mixes
        self._samples += 1
        if self._samples == 2:
            self._steering.inject(self._recurring)
            self._steering.inject({"kind": "degrade", "target": "rtsw-1:ctsw-1", "rate": "50G"})
        elif self._samples == 6:
            self._steering.clear(0)
        elif self._samples == 10:
            self._steering.clear(1)
        elif self._samples == 12:
            self._steering.end()


RECURRING: dict[str, dict[str, object]] = {
    "every": {"kind": "link_down", "target": "rtsw-0:ctsw-0", "for": "20us", "every": "70us"},
    "flap": {"kind": "link_flap", "target": "any rtsw:ctsw", "down": "20us", "up": "40us", "flaps": 1000},
    "busiest": {"kind": "link_down", "target": "busiest uplink", "for": "20us", "every": "70us"},
}


@pytest.mark.parametrize("recurring", RECURRING.values(), ids=RECURRING.keys())
def test_what_comes_again_can_be_cleared_and_leaves_the_others_alone(
    recurring: dict[str, object], tmp_path: Path
) -> None:
    prepared = api.prepare(TINY, LIVE | {"transport.timeout": 6})
    steering = api.Steering(prepared.scenario, prepared.topology)
    made = api.RunOptions(local=True, parts=2, metrics=False, steering=steering, progress_every_s=0.0)
    with RunDirectory.create("live", tmp_path / "live") as opened:
        live = api.run_prepared(prepared, made, Clearer(steering, recurring), opened)
    found = stored_run(tmp_path / "live")
    first, second = live.summary.faults
    cleared_ps = [
        entry["virtual_ps"] for entry in changes_of(tmp_path / "live") if "clear" in entry["change"]
    ]
    assert first.until_ps is not None
    assert 0 < first.until_ps <= cleared_ps[0] < live.outcome.virtual_ps
    assert 1 <= first.times <= 1 + (cleared_ps[0] - first.at_ps) // (60 * 10**6)
    assert second.until_ps == cleared_ps[1]
    again = replayed(found, local=True, parts=3)
    assert again.outcome.digest == live.outcome.digest != ""
    assert again.summary.faults == live.summary.faults


class Sniffer(api.Observer):
    """Captures for 30 us, and until the end, which it asks for once the first file is there."""

    def __init__(self, steering: api.Steering, directory: Path) -> None:
        self._steering = steering
        self._file = directory / "captures/0.pcapng"
        self._samples = 0
        self.first = b""

    def sampled(self, sample: Changed, mixes: Mapping[int, Sequence[int]]) -> None:
        del sample, mixes
        self._samples += 1
        if self._samples == 2:
            self._steering.capture({"ports": ["nic-0-0"], "for": "30us", "filter": {"kinds": ["data"]}})
            self._steering.capture({"ports": "rtsw-0:nic-0-0", "snap_length": "64B"})
        if self._file.is_file() and not self.first:
            self.first = self._file.read_bytes()
            self._steering.end()


def test_a_live_capture_is_written_when_its_span_is_over_and_replays_to_the_same_bytes(
    tmp_path: Path,
) -> None:
    prepared = api.prepare(TINY, LIVE | {"run.sample_every": "50us"})
    steering = api.Steering(prepared.scenario, prepared.topology)
    for refused, line in (
        ({"ports": "nic-9-9"}, "ports: 'nic-9-9' is no fabric port"),
        ({"ports": "nic-0-0", "for": "0s"}, "for: '0s' is too small"),
        ({"ports": "nic-0-0", "filter": {"kinds": ["syn"]}}, r"filter.kinds\[0\]: 'syn' is not one of"),
        ({"ports": "nic-0-0", "at": "5us"}, "a capture begins now"),
    ):
        with pytest.raises(UsageError, match=line):
            steering.capture(refused)
    made = api.RunOptions(local=True, parts=2, metrics=False, steering=steering, progress_every_s=0.0)
    sniffer = Sniffer(steering, tmp_path / "live")
    with RunDirectory.create("live", tmp_path / "live") as opened:
        live = api.run_prepared(prepared, made, sniffer, opened)
    files = [(tmp_path / f"live/captures/{number}.pcapng").read_bytes() for number in (0, 1)]
    assert files[0] == sniffer.first
    assert min(map(len, files)) > 1000
    found = stored_run(tmp_path / "live")
    again = api.prepare(api.as_loaded(found.scenario))
    options = api.RunOptions(local=True, parts=3, metrics=False, end_ps=found.end_ps)
    with RunDirectory.create("again", tmp_path / "again") as opened:
        assert api.run_prepared(again, options, directory=opened).outcome.digest == live.outcome.digest
    assert [(tmp_path / f"again/captures/{number}.pcapng").read_bytes() for number in (0, 1)] == files


def changes_of(directory: Path) -> list[dict[str, Any]]:
    entries = [json.loads(line) for line in (directory / "journal.jsonl").read_text("ascii").splitlines()]
    return [entry for entry in entries if entry["kind"] == "change"]


@pytest.mark.ray
@pytest.mark.parametrize("seed", range(101, 101 + RAY_RUNS))
def test_a_live_run_on_workers_replays_on_another_number_of_them(
    seed: int, tmp_path: Path, kept_workers: None
) -> None:
    live = live_run(tmp_path / "live", seed, workers=2 + seed % 2, pace_ps=PACE_PS)
    found = stored_run(tmp_path / "live")
    assert (live.outcome.ending, found.digest) == ("finished", live.outcome.digest)
    again = replayed(found, workers=3 - seed % 2)
    assert again.outcome.engine.workers != live.outcome.engine.workers
    assert again.outcome.digest == live.outcome.digest != ""
    assert again.summary.faults == live.summary.faults
    assert replayed(found, local=True).outcome.digest == live.outcome.digest


@pytest.mark.ray
@pytest.mark.parametrize("seed", range(1, KILLED_RUNS + 1))
def test_a_live_run_whose_workers_are_killed_replays_to_the_same_digest(
    seed: int, tmp_path: Path, kept_workers: None
) -> None:
    pace: dict[str, object] = {"pace_ps": PACE_PS, "snapshot_every_s": 0.15}
    live = live_run(tmp_path / "live", seed, Vandal, workers=2, block=1, **pace)
    assert (live.outcome.ending, live.outcome.engine.recoveries) == ("finished", 2)
    found = stored_run(tmp_path / "live")
    again = replayed(found, local=True)
    assert again.outcome.digest == live.outcome.digest
    assert again.outcome.virtual_ps == live.outcome.virtual_ps
    assert again.summary.faults == live.summary.faults


@pytest.mark.parametrize("pace_ps", [10**10, 5 * 10**9])
def test_pace_does_not_change_the_answer(pace_ps: int) -> None:
    overrides = {"run.repeat": True, "run.max_time": "2ms"}
    prepared = api.prepare(TINY, overrides)
    plain = api.run(TINY, overrides=overrides, local=True)
    for parts in (1, 2):
        options = api.RunOptions(local=True, parts=parts, metrics=False, pace_ps=pace_ps)
        begun_s = time.monotonic()
        paced = api.run_prepared(prepared, options)
        assert paced.outcome.digest == plain.outcome.digest
        assert time.monotonic() - begun_s >= 2e9 / pace_ps - QUANTUM_S


def test_the_journal_names_every_change_with_its_time_and_survives_a_cut_line(tmp_path: Path) -> None:
    live_run(tmp_path / "live", 2, local=True)
    journal = tmp_path / "live" / "journal.jsonl"
    entries = [json.loads(line) for line in journal.read_text("ascii").splitlines()]
    changes = [entry for entry in entries if entry["kind"] == "change"]
    assert len(changes) >= 2
    assert [entry["virtual_ps"] for entry in changes] == sorted(entry["virtual_ps"] for entry in changes)
    with journal.open("a", encoding="ascii") as file:
        file.write('{"kind":"change","virt')
    assert len(stored_run(tmp_path / "live").changes) == len(changes)


def test_what_cannot_be_done_is_refused_in_one_line() -> None:
    prepared = api.prepare(TINY)
    steering = api.Steering(prepared.scenario, prepared.topology)
    wrong: dict[str, dict[str, object]] = {
        "no link is named": {"kind": "link_down", "target": "rtsw-0:ctsw-9"},
        "did you mean 'link_down'": {"kind": "link_dwn", "target": "rtsw-0:ctsw-0"},
        "unit": {"kind": "link_down", "target": "rtsw-0:ctsw-0", "for": 3},
        "injected now": {"kind": "link_down", "target": "rtsw-0:ctsw-0", "at": "1us"},
    }
    for words, fault in wrong.items():
        with pytest.raises(UsageError) as caught:
            steering.inject(fault)
        assert words in str(caught.value)
        assert "\n" not in str(caught.value)
    with pytest.raises(UsageError, match="there is no fault 0"):
        steering.clear(0)
    steering.close()
    with pytest.raises(UsageError, match="the run has ended"):
        steering.inject({"kind": "link_down", "target": "rtsw-0:ctsw-0"})


def test_a_fault_is_over_once_a_repair_ended_it() -> None:
    down = {"kind": "link_down", "target": "rtsw-0:ctsw-0"}
    faults = [
        {**down, "at": "10us"},
        {**down, "at": "150us", "target": "rtsw-0:ctsw-1"},
        {**down, "at": "160us", "for": "500us", "target": "rtsw-0:ctsw-1"},
        {"at": "200us", "kind": "link_up", "target": "rtsw-0:ctsw-1"},
        {**down, "at": "250us", "target": "rtsw-0:ctsw-1"},
    ]
    prepared = api.prepare(TINY, {"faults": faults})
    steering = api.Steering(prepared.scenario, prepared.topology)
    steering.virtual_ps = 300_000_000
    rows = [(row["until"], row["state"]) for row in fault_list(steering)]
    assert rows == [("", "active"), ("200us", "over"), ("200us", "over"), ("", "done"), ("", "active")]


def test_an_order_that_is_never_made_is_refused_when_the_run_ends() -> None:
    prepared = api.prepare(TINY)
    steering = api.Steering(prepared.scenario, prepared.topology)
    order = steering.inject({"kind": "link_down", "target": "rtsw-0:ctsw-0"})
    ending = threading.Timer(0.05, steering.close)
    ending.start()
    with pytest.raises(UsageError, match="the run has ended"):
        order.wait(PATIENCE_S)
    ending.join()


LINK = LINKS[0]
ORDERS: tuple[dict[str, Any], ...] = (
    {"do": "clear", "fault": 0},
    {"do": "capture", "capture": {"ports": "nic-0-0", "for": "1ms"}},
    {
        "do": "inject",
        "fault": {"kind": "link_flap", "target": LINK, "down": "2us", "up": "5us", "flaps": 2},
    },
    {"do": "inject", "fault": {"kind": "degrade", "target": LINK, "rate": "10G", "loss": "1/100"}},
    {"do": "inject", "fault": {"kind": "gpu_slow", "target": "gpu-0-0", "factor": 3, "at": "1us"}},
    {"do": "inject", "fault": {"kind": "ecn_drift", "target": "rtsw-0", "kmin": "2KB", "kmax": "9KB"}},
)
NO_VALUES = (
    *("1e999", "-1e999", "NaN", "1" + "0" * 400, '"1e999"', '"1e999us"', '"nan"', '"1/0"', "-1", "true"),
    *('""', '"\\u0000"', '"' + "9" * 5000 + '"', "[]", "{}", "[[[0]]]"),
)


def keys_of(order: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    """The path of each value of an order."""
    for key, value in order.items():
        yield from ((key, *more) for more in keys_of(value)) if isinstance(value, dict) else ((key,),)


def test_a_value_that_is_none_is_refused_in_a_line_by_the_control_socket(tmp_path: Path) -> None:
    prepared = api.prepare(TINY)
    served = ControlSocket(tmp_path, api.Steering(prepared.scenario, prepared.topology))
    try:
        for order in ORDERS:
            for *path, last in keys_of(order):
                changed = json.loads(json.dumps(order))
                place = changed
                for key in path:
                    place = place[key]
                place[last] = "@"
                for raw in NO_VALUES:
                    with socket.socket(socket.AF_UNIX) as connection:
                        connection.connect(str(tmp_path / "control.sock"))
                        connection.sendall(json.dumps(changed).replace('"@"', raw).encode() + b"\n")
                        refused = json.loads(connection.makefile().readline())["refused"]
                    assert refused == refused.splitlines()[0], (order, last, raw)
                    assert len(refused) < 1000, (order, last, raw)
    finally:
        served.close()
