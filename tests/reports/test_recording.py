"""Does a report show of each port and interval what the port did then?"""

import csv
from pathlib import Path
from typing import NamedTuple, cast

import pytest

from actors.kernel.device import Series
from emu import api
from emu.base.errors import UsageError
from emu.results.metrics import DROP_REASONS
from emu.run_directory.run_directory import RunDirectory
from emu.run_directory.samples import SampleReader
from emu.views.reports.page import links_weak, opens_at, page, time_rows
from emu.views.reports.recording import (
    DROP_STEPS,
    DROPPED,
    DROPS,
    MEASURES,
    QUEUE_STEPS,
    ROLES,
    SHARE,
    UTILISATION,
    Figures,
    Recording,
    Slowed,
    carried_bytes,
    read_recording,
    slowed_ports,
)

FRAME_BYTES = 4096 + 90
PAIR: dict[str, object] = {
    "name": "pair",
    "topology": {"kind": "ai_zone", "racks": 2, "hosts_per_rack": 2, "gpus_per_host": 1, "spines": 1},
    "run": {"sample_every": "10us"},
    "switch": {"buffer": {"alpha": "1/64"}},
    "transport": {"congestion_control": {"kind": "none"}},
    "jobs": [
        {
            "name": "two",
            "workload": {
                "kind": "flows",
                "flows": [{"src": 0, "dst": 2, "size": "4MiB"}, {"src": 1, "dst": 2, "size": "4MiB"}],
            },
        }
    ],
    "faults": [{"kind": "link_down", "at": "100us", "for": "50us", "target": "rtsw-1:ctsw-0"}],
}


def recorded(scenario: dict[str, object], place: Path) -> Recording:
    with RunDirectory.create("run", place) as directory:
        api.run_prepared(api.prepare(api.load(scenario)), api.RunOptions(local=True), None, directory)
    return read_recording(place)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    return recorded(PAIR, tmp_path_factory.mktemp("report") / "run")


def port_between(recording: Recording, sender: str, receiver: str) -> int:
    nodes = recording.topology.nodes
    return next(
        row
        for row, port in enumerate(recording.ports)
        if (nodes[port.device].name, nodes[port.peer].name) == (sender, receiver)
    )


def figures(recording: Recording, measure: str, sender: str, receiver: str) -> bytes:
    return recording.row(MEASURES.index(measure), port_between(recording, sender, receiver))


def test_utilisation_by_interval_adds_up_to_the_bytes_that_each_port_sent(pair: Recording) -> None:
    spans_ps = [b - a for a, b in zip(pair.edges_ps, pair.edges_ps[1:], strict=False)]
    with (pair.path / "ports.csv").open(encoding="utf-8", newline="") as file:
        sent = {(row["device"], row["port"]): row for row in csv.DictReader(file)}
    for row, port in enumerate(pair.ports):
        counted = sent.get((pair.topology.nodes[port.device].name, str(port.number)))
        exact = int(counted["port_transmit_bytes"]) if counted else 0  # no row: its device did nothing
        shares = pair.row(0, row)
        shown = sum(share * span for share, span in zip(shares, spans_ps, strict=True)) / SHARE
        most_off = sum(span for share, span in zip(shares, spans_ps, strict=True) if share) / SHARE
        wire_bytes_per_ps = port.rate_bps / 8e12
        # A frame that begins at the end of an interval counts there whole, beyond what a full one shows.
        cut_bytes = FRAME_BYTES * sum(share == SHARE for share in shares)
        assert exact - cut_bytes - 1 <= shown * wire_bytes_per_ps <= exact + most_off * wire_bytes_per_ps + 1


def test_busbw_of_an_operation_is_in_the_unit_of_the_table(tmp_path: Path) -> None:
    """GB/s, as nccl-tests prints it: 2(n-1)/n of the size in the time."""
    workload = {"kind": "collective", "op": "all_reduce", "sizes": ["256KiB"], "iterations": 1, "warmup": 0}
    job = {"name": "train", "workload": workload}
    found = recorded(PAIR | {"jobs": [job], "faults": []}, tmp_path / "run")
    (one,) = found.summary.jobs["train"].collectives
    took_ps = (one.end_ps or 0) - (one.start_ps or 0)
    busbw = 2 * 3 / 4 * 256 * 1024 / took_ps * 1000
    text = page(found)
    assert "busbw (GB/s)" in text
    assert f">{busbw:.2f}<" in text


def test_a_port_that_two_senders_share_is_full_and_the_queue_before_it_is_what_came_too_much(
    pair: Recording,
) -> None:
    full = figures(pair, "utilisation", "ctsw-0", "rtsw-1")
    before_the_fault = [at for at, edge in enumerate(pair.edges_ps[1:]) if 30_000_000 < edge <= 100_000_000]
    assert all(full[at] >= SHARE - 1 for at in before_the_fault)
    queues = figures(pair, "queue", "rtsw-0", "ctsw-0")
    deepest = 256 * (2 ** (max(queues) / QUEUE_STEPS) - 1)
    # Two senders at the rate of one uplink: as much waits as the buffer lets in before it pauses them.
    peak = max(int(row["queue_peak_bytes"]) for row in _port_rows(pair) if row["device"] == "rtsw-0")
    assert 0.5 * peak < deepest <= 1.06 * peak


def test_two_senders_into_one_link_are_each_paused_for_half_of_the_time(tmp_path: Path) -> None:
    flows = [{"src": sender, "dst": 2, "size": "16MiB"} for sender in (0, 1)]
    job = {"name": "two", "workload": {"kind": "flows", "flows": flows}}
    found = recorded(PAIR | {"jobs": [job], "faults": []}, tmp_path / "run")
    for sender in ("nic-0-0", "nic-1-0"):
        paused = figures(found, "paused", sender, "rtsw-0")[5:55]
        sent = figures(found, "utilisation", sender, "rtsw-0")[5:55]
        # What is paused is not sent, but for the frame (84 ns of 10 us) that is on its way when XOFF comes.
        assert all(SHARE <= off + on <= 1.02 * SHARE for off, on in zip(paused, sent, strict=True))
        # The queue swings by 0.3 MB in 160 us, as what is paused now leaves 40 us later: half in the mean.
        assert 0.49 * SHARE <= sum(paused) / len(paused) <= 0.52 * SHARE


def test_pauses_by_interval_add_up_to_what_the_port_was_paused(pair: Recording) -> None:
    rows = {row["device"]: int(row["pfc_paused_ps"]) for row in _port_rows(pair)}
    spans_ps = [b - a for a, b in zip(pair.edges_ps, pair.edges_ps[1:], strict=False)]
    shares = figures(pair, "paused", "nic-0-0", "rtsw-0")
    shown_ps = sum(share * span for share, span in zip(shares, spans_ps, strict=True)) / SHARE
    assert rows["nic-0-0"] <= shown_ps <= rows["nic-0-0"] + sum(spans_ps) / SHARE


def test_drops_stand_at_the_port_and_the_time_of_the_fault(pair: Recording) -> None:
    lost = pair.summary.faults[0].frames_lost
    assert lost
    shown = 0
    for row in range(len(pair.ports)):
        for at, byte in enumerate(pair.row(3, row)):
            if byte:
                assert 100_000_000 <= pair.edges_ps[at + 1] <= 160_000_000
                shown += round(2 ** (byte / DROP_STEPS) - 1)
    assert abs(shown - lost) <= 0.05 * lost + 1


FORTH, BACK = ("rtsw-0", "ctsw-0"), ("ctsw-0", "rtsw-0")
DIRECTIONS = {
    "port_transmit_bytes": FORTH,
    "pfc_paused_ps": FORTH,
    "port_transmit_wait_ps": FORTH,
    "queue_bytes": FORTH,
    "voq_bytes": FORTH,
    "queue_peak_bytes": FORTH,
    "voq_peak_bytes": FORTH,
    "link_down": FORTH,
    "watchdog": FORTH,
    "no_route": BACK,
    "no_shared_room": BACK,
    "headroom_overrun": BACK,
    "egress_limit": BACK,
    "aqm": BACK,
    "ttl": BACK,
    "corrupt": BACK,
    "receive_overrun": BACK,
}
"""Of each counter at the port of rtsw-0 to ctsw-0, and of drops by reason, where the frames go."""


class OneCounter(NamedTuple):
    """Reads samples in which one counter of rtsw-0 grows."""

    series: dict[int, list[Series]]

    def counters(self, metric: str) -> list[tuple[int, int]]:
        return [(device, 0) for device, (one,) in self.series.items() if one.metric == metric]


@pytest.mark.parametrize("name", [*(one for one in ROLES if one != DROPPED), *DROP_REASONS])
def test_a_counter_stands_at_the_direction_of_its_frames(name: str, pair: Recording) -> None:
    port = pair.ports[port_between(pair, *FORTH)]
    metric = DROPPED if name in DROP_REASONS else name
    one = Series(metric, port.number, -1, name if metric == DROPPED else "")
    reader = cast(SampleReader, OneCounter({port.device: [one]}))
    grown = {metric: ([0], [10_000_000])}
    shown = Figures(pair.ports, reader, {}).interval([grown], 0, 100_000_000)
    cells = [row for measure in shown for row, byte in enumerate(measure) if byte]
    assert cells == [port_between(pair, *DIRECTIONS[name])]


def test_utilisation_is_a_share_of_the_rate_in_force(tmp_path: Path) -> None:
    """A link at an eighth of its rate is full while it sends at that rate."""
    slow = {"kind": "degrade", "target": "rtsw-0:ctsw-0", "at": "50us", "for": "200us", "rate": "50Gbps"}
    recording = recorded({**PAIR, "faults": [slow]}, tmp_path / "run")
    port = port_between(recording, *FORTH)
    shares = recording.row(UTILISATION, port)
    slowed = [at for at, begin in enumerate(recording.edges_ps[:-1]) if 60_000_000 <= begin < 250_000_000]
    assert min(shares[at] for at in slowed) > 0.97 * SHARE
    assert slowed_ports(recording.ports, recording.faults)[port] == [
        Slowed(50_000_000, 250_000_000, 50 * 10**9)
    ]
    half = carried_bytes(8 * 10**12, [Slowed(10, 20, 4 * 10**12), Slowed(15, 30, 2 * 10**12)], 0, 40)
    assert half == (10 * 8 + 5 * 4 + 15 * 2 + 10 * 8) // 8
    (weak,) = links_weak(recording.topology, recording.faults, recording.summary.virtual_ps)
    assert weak[2:] == [50_000_000, 250_000_000, "degrade rtsw-0:ctsw-0"]


def test_a_page_opens_on_the_cause(tmp_path: Path) -> None:
    slow = {"kind": "degrade", "target": "rtsw-1:ctsw-0", "at": "50us", "rate": "50Gbps"}
    recording = recorded({**PAIR, "faults": [slow]}, tmp_path / "run")
    assert recording.summary.diagnosis[0].place.replace(">", ":") in ("rtsw-1:ctsw-0", "ctsw-0:rtsw-1")
    _, _, first = opens_at(recording)
    names = {recording.topology.nodes[node].name for node in recording.ports[first][0:3:2]}
    assert names == {"rtsw-1", "ctsw-0"}


def test_frames_that_one_sender_spoils_are_shown_on_their_way(tmp_path: Path) -> None:
    spoilt = {"kind": "degrade", "target": "rtsw-0:ctsw-0", "sender": "rtsw-0", "loss": 0.05}
    recording = recorded({**PAIR, "faults": [spoilt]}, tmp_path / "run")
    lossy = [row for row in range(len(recording.ports)) if any(recording.row(DROPS, row))]
    assert lossy == [port_between(recording, *FORTH)]


def test_a_queue_between_two_samples_is_shown(tmp_path: Path) -> None:
    flows = [{"src": at, "dst": 2, "size": "1MiB"} for at in (0, 1)]
    flows.append({"src": 2, "dst": 3, "size": "4KiB", "start": "150us"})
    jobs = [{"name": "burst", "workload": {"kind": "flows", "flows": flows}}]
    burst = PAIR | {"faults": [], "run": {"sample_every": "100us"}, "jobs": jobs}
    recording = recorded(burst, tmp_path / "run")
    assert recording.edges_ps[:2] == (0, 100_000_000)
    peaks = {
        row["peer"]: int(row["queue_peak_bytes"])
        for row in _port_rows(recording)
        if row["device"] == "rtsw-0" and int(row["queue_peak_bytes"])
    }
    shown = figures(recording, "queue", "rtsw-0", "ctsw-0")[0]
    assert 256 * (2 ** (shown / QUEUE_STEPS) - 1) == pytest.approx(peaks["ctsw-0"], rel=0.06)
    assert peaks["ctsw-0"] > 100_000


def test_a_job_that_does_not_run_has_no_bar(tmp_path: Path) -> None:
    jobs = [
        *cast("list[dict[str, object]]", PAIR["jobs"]),
        {"name": "off", "enabled": False, "workload": {"kind": "permutation", "size": "4KiB"}},
    ]
    rows = time_rows(recorded({**PAIR, "faults": [], "jobs": jobs}, tmp_path / "run"))
    assert [row["bars"] for row in rows if row["label"] == "off (disabled)"] == [[]]


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="accepted: the directory of a run"):
        read_recording(tmp_path / "none")


def _port_rows(recording: Recording) -> list[dict[str, str]]:
    with (recording.path / "ports.csv").open(encoding="utf-8", newline="") as file:
        return [{key: value or "0" for key, value in row.items()} for row in csv.DictReader(file)]


def test_a_fault_that_does_not_last_is_over_when_it_begins(tmp_path: Path) -> None:
    target = "rtsw-1:ctsw-0"
    down = {"kind": "link_down", "at": "100us", "target": target}
    up = {"kind": "link_up", "at": "150us", "target": target}
    rows = time_rows(recorded({**PAIR, "faults": [down, up]}, tmp_path / "run"))
    (bar,) = next(row["bars"] for row in rows if row["label"].startswith("link_up"))
    assert bar[:2] == [150_000_000, 150_000_000]
