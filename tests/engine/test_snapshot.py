"""A run goes on from a snapshot in another process and another spread as if nothing had happened."""

import subprocess
import sys
from pathlib import Path

import pytest

from actors.host.host import Host
from actors.kernel.device import Plain
from actors.kernel.mixing import Stream
from actors.ncclx.rank.rank_program import ScriptProgram
from actors.ncclx.transport.channel import GraphChannel
from emu.base.errors import RuntimeFailure, UsageError
from emu.engine.outcome import Ending
from emu.engine.recovery.snapshots import Snapshot, fingerprint, from_bytes, resume, take_snapshot, to_bytes
from emu.engine.sync.logical_process import records_of
from emu.engine.sync.sync_points import SyncGrid, SyncPoint
from tests.conftest import SOAK
from tests.engine.spread_runs import ENDINGS, SpreadRun, plan_of
from tests.engine.toys import ToyRun, random_network
from tests.scenarios_run.small import PACKETS, ROOT, brief

pytestmark = pytest.mark.long

ROUNDS = 20 if SOAK else 1
PARTS = (1, 2, 3, 5)
BATCHES = 12
"""How many fresh interpreters there are; the scenarios are dealt out to them."""


def drawn_time_ps(name: str, turn: int) -> int:
    """Between 1 us, and 230 us: every scenario is under way then."""
    seed = sum(ord(letter) * 131**at for at, letter in enumerate(name)) % 2**60
    return 1_000_000 + Stream(seed, turn, 1).below(229_000_000)


@pytest.mark.parametrize("turn", range(ROUNDS))
@pytest.mark.parametrize("batch", range(BATCHES))
def test_scenarios_go_on_in_a_fresh_interpreter_with_other_parts(
    batch: int, turn: int, tmp_path: Path
) -> None:
    digests: dict[str, str] = {}
    snapshots: list[str] = []
    for name in PACKETS[batch::BATCHES]:
        time_ps = drawn_time_ps(name, turn)
        before, after = PARTS[(time_ps // 7) % 4], PARTS[(time_ps // 7 + 1) % 4]
        run = SpreadRun(plan_of(name, before, brief(name)), seed=turn)
        run.snapshot_at(time_ps)
        run.start()
        assert run.run() in ENDINGS, name
        assert run.snapshot is not None, name
        assert run.snapshot.sync_ps >= time_ps, name
        file = tmp_path / name
        file.write_bytes(to_bytes(run.snapshot))
        digests[name] = run.digest()
        snapshots.append(f"{name}:{after}:{file}")
    done = subprocess.run(
        [sys.executable, "-m", "tests.engine.spread_runs", *snapshots],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert dict(line.split() for line in done.stdout.splitlines()) == digests, snapshots


@pytest.mark.parametrize("seed", range(12))
def test_network_goes_on_from_any_moment_in_any_cut(seed: int) -> None:
    network = random_network(seed)
    grid = SyncGrid(3_000_000, 10**13)
    first = ToyRun(network, 1 + seed % 3, seed, grid)
    taken: list[Snapshot] = []
    acting: list[SyncPoint] = []

    def act(sync: SyncPoint) -> None:
        if sync.requested:
            acting.append(sync)
            if len(acting) == len(first.logical_processes):
                taken.append(take_snapshot(first.logical_processes, "toy"))

    for logical_process in first.logical_processes:
        logical_process.act = act
    first.logical_processes[0].machine.request_sync(Stream(seed, 1, 1).below(20_000_000))
    first.start()
    assert first.run() is Ending.FINISHED
    (snapshot,) = taken
    second = ToyRun(network, 1 + (seed + 1) % 3, seed + 1, grid)
    resume(second.logical_processes, from_bytes(to_bytes(snapshot), "toy"))
    assert second.run() is Ending.FINISHED
    assert (second.digest(), second.virtual_ps) == (first.digest(), first.virtual_ps)


def test_what_was_captured_by_a_snapshot_is_there_once_where_the_run_goes_on() -> None:
    overrides = {"run.capture": [{"ports": "*"}]}

    def rows(run: SpreadRun) -> dict[tuple[int, int], list[bytes]]:
        records = [record for one in run.logical_processes for record in records_of(one.partition)]
        return {(one.number, port.port): list(port.rows) for one in records for port in one.captured}

    first = SpreadRun(plan_of("tiny_all_reduce", 2, overrides))
    first.snapshot_at(20_000_000)
    first.start()
    assert first.run() in ENDINGS
    assert first.snapshot is not None
    second = SpreadRun(plan_of("tiny_all_reduce", 3, overrides), seed=2)
    second.resume(first.snapshot)
    early = sum(map(len, rows(second).values()))
    assert second.run() in ENDINGS
    assert 0 < early < sum(map(len, rows(first).values()))
    assert rows(second) == rows(first)


def test_a_call_goes_on_whose_first_loops_are_forgotten() -> None:
    workload = {"kind": "collective", "op": "all_reduce", "algorithm": "nvls_tree", "sizes": ["1MiB"]}
    overrides = {"jobs[0].workload": workload, "ncclx.buffsize": "16KiB"}
    first = SpreadRun(plan_of("tiny_all_reduce", 2, overrides))
    first.snapshot_at(300_000_000)
    first.start()
    assert first.run() in ENDINGS
    assert first.snapshot is not None
    second = SpreadRun(plan_of("tiny_all_reduce", 3, overrides), seed=2)
    second.resume(first.snapshot)
    walkers = [
        channel
        for one in second.logical_processes
        for device in one.partition.devices
        if isinstance(device, Host)
        for program in device.programs
        if isinstance(program, ScriptProgram)
        for channel in program.ends.channels
        if isinstance(channel, GraphChannel)
    ]
    assert [0 < one.base < one.steps.count - one.left for one in walkers] == [True] * 4
    assert second.run() in ENDINGS
    assert second.digest() == first.digest()


def test_snapshot_of_another_scenario_is_refused() -> None:
    one, other = plan_of("tiny_flap", 1), plan_of("tiny_flap", 1, {"seed": 99})
    packed = to_bytes(Snapshot(fingerprint(one.scenario), 5, [0, 0, 0, 0], []))
    assert from_bytes(packed, fingerprint(one.scenario)).sync_ps == 5
    with pytest.raises(UsageError, match="another scenario"):
        from_bytes(packed, fingerprint(other.scenario))


@pytest.mark.parametrize("packed", [b"", b"\xc1", b"\x80", b"nonsense", b"\x81\xa7version\x01"])
def test_bytes_that_are_no_snapshot_are_refused(packed: bytes) -> None:
    with pytest.raises(UsageError, match="bytes that are no snapshot"):
        from_bytes(packed, "any")


@pytest.mark.parametrize("share", [7, [], [0, 0, [[1, 2]], []], "state"])
def test_a_snapshot_of_another_form_is_refused_in_one_line(share: Plain) -> None:
    run = SpreadRun(plan_of("tiny_all_reduce", 1))
    with pytest.raises(RuntimeFailure, match=r"^the snapshot of 5us is not of the form .*or a new run$"):
        run.resume(Snapshot(fingerprint(run.plan.scenario), 5_000_000, [5_000_000, 0, 0, 0], [share]))
