"""Does the timeline of a run say what its tables and counters say, in a form that Perfetto reads?

The trace is read by the messages of the `perfetto` package, which know nothing of the writer. Durations and
numbers come from `collectives.csv`, from counters of the devices and from closed forms.
"""

from __future__ import annotations

import csv
import json
from collections import defaultdict
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from actors.kernel.event_log import NUMBERS, PAUSED, RESENT, EventLog
from emu import api
from emu.cli.main import main
from emu.engine.sync.logical_process import records_of
from emu.views.perfetto.perfetto import Slice, Tracks
from emu.workload.composing import Program
from tests.engine.spread_runs import ENDINGS, SpreadRun, plan_of

PROTOS = import_module("perfetto.protos.perfetto.trace.perfetto_trace_pb2")
EXACT = 1000
"""The stretch with which a nanosecond of Perfetto is a picosecond."""


class Span(NamedTuple):
    """A slice that was read back."""

    name: str
    begin: int
    end: int
    depth: int


class Read(NamedTuple):
    """A trace that was read back, by the path of a track."""

    slices: dict[str, list[Span]]
    counters: dict[str, list[tuple[int, float]]]


def read(content: bytes) -> Read:
    """Tracks by their names, from the outermost on; every end closes the slice that began last."""
    trace = PROTOS.Trace()
    trace.ParseFromString(content)
    tracks: dict[int, tuple[str, bool]] = {}
    open_slices: dict[int, list[tuple[str, int]]] = defaultdict(list)
    found = Read(defaultdict(list), defaultdict(list))
    assert trace.packet[0].sequence_flags & 1, "the first packet clears what a reader has interned"
    last: dict[int, int] = defaultdict(int)
    for packet in trace.packet:
        assert packet.trusted_packet_sequence_id == 1
        if packet.HasField("track_descriptor"):
            one = packet.track_descriptor
            parent = tracks[one.parent_uuid][0] + "/" if one.HasField("parent_uuid") else ""
            assert one.uuid not in tracks
            tracks[one.uuid] = (parent + one.name, one.HasField("counter"))
            continue
        event, at = packet.track_event, packet.timestamp
        path, counts = tracks[event.track_uuid]
        assert at >= last[event.track_uuid], "events of a track come in their order"
        last[event.track_uuid] = at
        if event.type == PROTOS.TrackEvent.TYPE_COUNTER:
            assert counts
            found.counters[path].append((at, event.double_counter_value))
        elif event.type == PROTOS.TrackEvent.TYPE_SLICE_BEGIN:
            open_slices[event.track_uuid].append((event.name, at))
        else:
            assert event.type == PROTOS.TrackEvent.TYPE_SLICE_END
            name, begin = open_slices[event.track_uuid].pop()
            found.slices[path].append(Span(name, begin, at, len(open_slices[event.track_uuid])))
    assert not any(open_slices.values()), "every slice ends"
    return found


def exported(
    tmp_path: Path, scenario: str | dict[str, Any], overrides: dict[str, Any] | None = None
) -> tuple[Read, api.Result]:
    asked = {"run.event_log": 20000, **(overrides or {})}
    result = api.run(scenario, overrides=asked, local=True, out=tmp_path / "run", force=True)
    out = tmp_path / "trace"
    words = ["export", "perfetto", str(tmp_path / "run"), "--out", str(out), "--stretch", str(EXACT)]
    assert main(words) == 0
    return read(out.read_bytes()), result


def group_of(device: str) -> str:
    """The top track below which a device lies, by its name."""
    return "NICs" if device.startswith("nic-") else "Switches"


def rows(run: Path, table: str) -> list[dict[str, str]]:
    with (run / table).open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))


def counted(run: Path, metric: str) -> dict[tuple[str, int, int], int]:
    """A counter by device, port and class, where it is not 0."""
    with (run / "shown.jsonl").open(encoding="ascii") as lines:
        return {
            (shown["name"], port, priority): value
            for shown in map(json.loads, lines)
            for name, port, priority, _, value in shown["counters"]
            if name == metric
        }


def test_collectives_and_ranks_have_the_times_of_the_tables(tmp_path: Path) -> None:
    trace, _ = exported(tmp_path, "tiny_all_reduce")
    (job,) = [slices for path, slices in trace.slices.items() if path.startswith("Jobs/")]
    table = rows(tmp_path / "run", "collectives.csv")
    assert [(one.begin, one.end) for one in job] == [(int(r["start_ps"]), int(r["end_ps"])) for r in table]
    ranks = [path for path in trace.slices if path.endswith("/operations")]
    assert len(ranks) == int(table[0]["ranks"])
    for number, row in enumerate(table):
        spans = [trace.slices[path][number] for path in ranks]
        assert max(one.end for one in spans) == int(row["end_ps"])
        assert min(one.begin for one in spans) == int(row["start_ps"])


@pytest.mark.parametrize("log", [0, 20000], ids=["steps", "event log"])
def test_what_an_operator_began_has_tracks_of_its_own(tmp_path: Path, log: int) -> None:
    """Twelve steps of eight ranks: those of the job before its restart, and of the incarnation after it."""
    trace, result = exported(tmp_path, "operator_straggler", {"run.event_log": log})
    operator = result.summary.operator
    assert operator is not None
    paths = [path.split("/")[1] for path in trace.slices if path.startswith("Ranks/")]
    assert {f"train rank {rank}" for rank in range(8)} <= set(paths)
    (restart,) = operator.restarts
    name = f"train-restart1-host-4-for-{restart.evicted[0]}"
    assert {f"{name} rank {rank}" for rank in range(8)} <= set(paths)


def test_parts_of_a_programs_computing_nest_in_the_time_that_it_took(tmp_path: Path) -> None:
    """Each of two steps computes 8 us, waits for a call, computes 4 us that parts share 3 to 1, and 1 us of
    no name. A module goes on over the wait, and not from step to step.
    """
    programs = [Program(ranks=2, steps=2) for _ in range(2)]
    parts = [("net.a", "2us"), ("net.b.x", "5us"), ("net.b.y", "1us")], [("net.b.y", "3ns"), ("net.a", "1ns")]
    for program, (first, then) in zip(programs, (parts, ((), ())), strict=True):
        side = program.stream("side")
        program.main.compute("8us", parts=first)
        side.wait(program.main.record())
        side.all_reduce("64KiB")
        program.main.wait(side.record())
        program.main.compute("4us", parts=then)
        program.main.compute("1us")
    named, plain = (one.scenario({"kind": "star", "hosts": 2}) for one in programs)
    trace, result = exported(tmp_path, named)
    assert result.summary.digest == api.run(plain, local=True).summary.digest
    us = 1_000_000
    for rank in range(2):
        track = f"Ranks/program rank {rank}"
        computed = trace.slices[f"{track}/computing, stream 0"]
        assert [one.end - one.begin for one in computed] == [8 * us, 4 * us, us] * 2
        expected = []
        for a, b in ((0, 1), (3, 4)):
            begin, again = computed[a].begin, computed[b].begin
            expected += [
                Span("net", begin, again + 4 * us, 0),
                Span("a", begin, begin + 2 * us, 1),
                Span("b", begin + 2 * us, again + 3 * us, 1),
                Span("x", begin + 2 * us, begin + 7 * us, 2),
                Span("y", begin + 7 * us, again + 3 * us, 2),
                Span("a", again + 3 * us, again + 4 * us, 1),
            ]
        assert sorted(trace.slices[f"{track}/modules, stream 0"]) == sorted(expected)
        assert not any("modules" in path and "stream 0" not in path for path in trace.slices)
    exported(tmp_path, named, {"run.event_log": 4})
    short = tmp_path / "trace"
    assert not any("modules" in path for path in read(short.read_bytes()).slices), "the log has not all"


def test_slices_lie_in_their_operation_and_a_ring_moves_as_many_as_its_steps(tmp_path: Path) -> None:
    trace, _ = exported(tmp_path, "tiny_all_reduce")
    table = rows(tmp_path / "run", "collectives.csv")
    for path, slices in trace.slices.items():
        if "/slices, channel" in path:
            rank = path.rpartition("/")[0]
            whole = [(one.begin, one.end) for one in trace.slices[f"{rank}/operations"]]
            assert all(any(a <= one.begin <= one.end <= b for a, b in whole) for one in slices)
            sums = sum("reduce" in one.name for one in slices)
            ranks = int(table[0]["ranks"])
            assert sums * (2 * ranks - 1) == (ranks - 1) * len(slices), "of 2n - 1 steps n - 1 reduce"


def test_pauses_add_up_to_the_counters_of_their_ports(tmp_path: Path) -> None:
    trace, _ = exported(tmp_path, "story_slow_receiver")
    expected = counted(tmp_path / "run", "pfc_paused_ps")
    assert expected
    found: dict[tuple[str, int, int], int] = defaultdict(int)
    for path, slices in trace.slices.items():
        if "/pauses of class " in path:
            group, device, port, last = path.split("/")
            assert group == group_of(device)
            place = (device, int(port.split()[1]), int(last.rpartition(" ")[2]))
            found[place] += sum(one.end - one.begin for one in slices)
    assert found == expected


def test_packets_sent_again_are_those_that_the_nics_count(tmp_path: Path) -> None:
    _, _ = exported(tmp_path, "tiny_flap")
    found: dict[tuple[str, int, int], int] = defaultdict(int)
    with (tmp_path / "run/timeline.jsonl").open(encoding="ascii") as lines:
        for log in map(json.loads, lines):
            for kind, _, _, _, first, beyond, _, _ in log["events"]:
                if kind == RESENT:
                    found[log["name"], -1, -1] += beyond - first
    expected = counted(tmp_path / "run", "nic_retransmitted_frames")
    assert expected
    assert found == expected


def test_rates_and_drops_of_a_port_add_up_to_what_it_sent_and_lost(tmp_path: Path) -> None:
    trace, result = exported(tmp_path, "tiny_flap")
    sent = {
        (row["device"], int(row["port"])): int(row["port_transmit_bytes"])
        for row in rows(tmp_path / "run", "ports.csv")
        if row["port_transmit_bytes"] != "0"
    }
    for path, values in trace.counters.items():
        if path.endswith("/rate"):
            group, device, port, _ = path.split("/")
            assert group == group_of(device)
            ends = [at for at, _ in values[1:]]
            bits = sum(
                value * (end - at) for (at, value), end in zip(values, [*ends, values[-1][0]], strict=True)
            )
            assert bits / 8000 == pytest.approx(sent.pop((device, int(port.split()[1]))), rel=1e-9)
    assert not sent
    dropped: dict[tuple[str, int], int] = defaultdict(int)
    for (name, number, _), frames in counted(tmp_path / "run", "port_dropped_frames").items():
        dropped[name, number] += frames
    assert dropped
    shown = {path: values for path, values in trace.counters.items() if path.endswith("/dropped")}
    assert {
        (path.split("/")[1], int(path.split("/")[2].split()[1])): int(values[-1][1])
        for path, values in shown.items()
    } == dropped
    assert all(sorted(values, key=lambda one: one[1]) == values for values in shown.values())
    faults = [one for path, slices in trace.slices.items() if path.startswith("Faults/") for one in slices]
    assert [(one.begin, one.end) for one in faults] == [
        (one.at_ps, one.until_ps or result.summary.virtual_ps) for one in result.summary.faults
    ]


def test_what_has_not_ended_ends_with_the_run(tmp_path: Path) -> None:
    trace, result = exported(tmp_path, "story_slow_receiver", {"run.max_time": "500us", "expect": []})
    ends = [one.end for path, slices in trace.slices.items() if "/pauses" in path for one in slices]
    assert max(ends) == result.summary.virtual_ps == 500_000_000
    found = sum(
        one.end - one.begin for path, slices in trace.slices.items() if "/pauses" in path for one in slices
    )
    assert found == sum(counted(tmp_path / "run", "pfc_paused_ps").values())


def test_a_log_changes_no_answer_and_is_the_same_in_any_placement_and_after_a_snapshot() -> None:
    overrides = {"run.event_log": 64, "run.trace": {"flows": "*"}}

    def recorded(run: SpreadRun) -> dict[int, Any]:
        records = [record for one in run.logical_processes for record in records_of(one.partition)]
        return {one.number: one.recorded for one in sorted(records, key=lambda one: one.number)}

    without = SpreadRun(plan_of("tiny_all_reduce", 1))
    without.start()
    assert without.run() in ENDINGS
    first = SpreadRun(plan_of("tiny_all_reduce", 2, overrides))
    first.snapshot_at(20_000_000)
    first.start()
    assert first.run() in ENDINGS
    assert first.digest() == without.digest()
    assert first.snapshot is not None
    second = SpreadRun(plan_of("tiny_all_reduce", 3, overrides), seed=2)
    second.resume(first.snapshot)
    early = sum(len(rows) for one in recorded(second).values() for rows in one.values())
    assert second.run() in ENDINGS
    assert 0 < early < sum(len(rows) for one in recorded(first).values() for rows in one.values())
    assert recorded(second) == recorded(first)


def test_a_log_keeps_the_last_events_and_counts_the_others() -> None:
    log = EventLog(4)
    for number in range(11):
        log.note(PAUSED, number, 0, 0, 0, number, number)
    assert [row[1] for row in log.rows()] == [7, 8, 9, 10]
    assert log.missed() == 7
    again = EventLog(4)
    again.load(log.save())
    for one in (log, again):
        one.note_resent(0, 5, 100, 101, 20)
        one.note(PAUSED, 11, 0, 0, 0, 20, 21)
        one.note_resent(0, 5, 101, 104, 30)
        one.note_resent(1, 5, 104, 105, 31)
    assert again.rows() == log.rows()
    assert log.rows()[1] == [RESENT, 0, 5, 100, 104, 20, 30], "one burst, of one port"
    assert all(len(row) == NUMBERS for row in log.rows())


def test_slices_that_overlap_lie_on_tracks_beside_one_another() -> None:
    tracks = Tracks()
    spans = [
        Slice("a", 0, 10_000),
        Slice("b", 5_000, 15_000),
        Slice("c", 10_000, 10_000),
        Slice("d", 1_999, 4_001),
    ]
    content = b"".join(tracks.slices("one", 0, spans))
    found = read(content)
    assert found.slices["one"] == [
        Span("d", 1, 4, 1),
        Span("a", 0, 10, 0),
        Span("c", 10, 10, 0),
        Span("b", 5, 15, 0),
    ]


def test_a_directory_that_is_no_run_is_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", "perfetto", str(tmp_path), "--out", str(tmp_path / "x")]) == 2
    assert "there is no run" in capsys.readouterr().err
    assert not (tmp_path / "x").exists()
