"""Plays a script's ranks, one process for each distinct role, and makes the scenario of all ranks.

Which ranks differ is told by the record of rank 0: where it sends to or receives from other ranks (a
pipeline), one rank of each place in that group is played; where all ranks do alike, rank 0 stands for all.
`--roles` says otherwise.
"""

from __future__ import annotations

import importlib.util
import json
import os
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from emu.base.errors import EmuError, UsageError
from emu.doors.pytorch.kernels import Gpu, KernelTimes
from emu.doors.pytorch.player.mail import FAILED, WANTED
from emu.doors.pytorch.player_process import PlayerProcess
from emu.doors.pytorch.record import Call, Record
from emu.doors.pytorch.translate import Role, Translation
from emu.workload.composing import Program

MOST_ROLES: Final = 64
"""Ranks that are played at once: those of a pipeline wait for one another."""


class ScriptError(EmuError):
    """The script cannot be recorded: what failed, in which rank, at which line."""

    exit_status = 2


def check_script(script: str, *, module: bool) -> None:
    """Raise UsageError for a script that cannot run here at all."""
    if not module and not Path(script).is_file():
        raise UsageError(f"{script}: there is no such script; accepted: a file, or --module and its name")
    if importlib.util.find_spec("torch") is None:
        raise UsageError(
            "torch is not installed here; accepted: `pip install 'roce-emu[torch]'` (docs/pytorch.md)"
        )


def unseen(*_: object) -> None:
    """Takes lines that nobody wants to see."""


@dataclass
class Recording:
    """What to play."""

    script: Sequence[str]
    """Path and arguments."""
    world: int
    gpus_per_host: int
    gpu: Gpu
    steps: int = 2
    fake: bool = False
    module: bool = False
    """The script is the name of a module, as after `python -m`."""
    timeout_s: int = 1800
    shown: Callable[[str, bool], None] = unseen
    """Takes each line that the script prints, as it comes, and whether it went to stderr."""
    reported: Callable[[str], None] = unseen
    """Takes lines on how far a long recording is."""
    _processes: list[PlayerProcess] = field(default_factory=list)

    def check(self) -> None:
        """Raise UsageError for what cannot be played at all."""
        check_script(self.script[0], module=self.module)

    def roles(self, asked: Sequence[int], reported: Callable[[str], None]) -> list[Role]:
        """Play rank 0, or the ranks asked for, and what rank 0's record shows to differ."""
        with (
            tempfile.TemporaryDirectory(prefix="emu-mail-") as folder,
            ThreadPoolExecutor(MOST_ROLES) as pool,
        ):
            mail = Path(folder)
            playing: dict[int, Future[Record]] = {}

            def play_beside(ranks: Iterable[int]) -> None:
                for rank in ranks:
                    if rank not in playing:
                        if len(playing) == MOST_ROLES:
                            raise UsageError(f"more than {MOST_ROLES} ranks differ; accepted: --roles")
                        playing[rank] = pool.submit(self.play, rank, mail)

            lead = asked[0] if asked else 0
            play_beside(asked or [0])
            roles = list(asked)
            try:
                while not all(one.done() for one in playing.values()):
                    wait(playing.values(), timeout=0.1, return_when=FIRST_EXCEPTION)
                    for one in playing.values():
                        if one.done() and one.exception() is not None:
                            one.result()
                    play_beside(int(one.name.removeprefix(WANTED)) for one in sorted(mail.glob(f"{WANTED}*")))
                    if not roles and playing[lead].done():
                        roles = [lead, *_different(playing[lead].result())]
                        play_beside(roles)
                records = [playing[rank].result() for rank in roles or [lead]]
            except BaseException:
                (mail / FAILED).touch()
                for process in self._processes:
                    process.stop()
                raise
        if len(records) == 1:
            return [Role(records[0])]
        reported(f"ranks {', '.join(str(one.rank) for one in records)} stand for {self.world}")
        return dealt(records, self.world)

    def _shown(self, rank: int) -> Callable[[str, bool], None]:
        """Passes lines of a rank on; those of others than rank 0 begin with the rank."""
        if not rank:
            return self.shown
        return lambda line, is_error: self.shown(f"[rank {rank}] {line}", is_error)

    def play(self, rank: int, mail: Path | None = None) -> Record:
        """Play a rank. Raise ScriptError with the line of the script that could not be played."""
        gpu = self.gpu
        facts = {
            "name": gpu.name,
            "major": gpu.capability[0],
            "minor": gpu.capability[1],
            "total_memory": gpu.memory_bytes,
            "multi_processor_count": gpu.multiprocessors,
        }
        with tempfile.TemporaryDirectory(prefix="emu-torch-") as place:
            out = Path(place) / "record.json"
            words = ["emu.doors.pytorch.player.play", "--rank", str(rank), "--world", str(self.world)]
            words += ["--gpus-per-host", str(self.gpus_per_host), "--steps", str(self.steps)]
            words += ["--out", str(out), "--gpu", json.dumps(facts), *(["--fake"] if self.fake else [])]
            words += ["--mail", str(mail)] if mail is not None else []
            words += [*(["--module"] if self.module else []), "--", *self.script]
            # Ranks are played side by side, one thread each; CUDA is pretended, so a GPU of this machine
            # must not be seen.
            environment = {
                **os.environ,
                "OMP_NUM_THREADS": "1",
                "CUDA_VISIBLE_DEVICES": "",
                "PYTHONUNBUFFERED": "1",
            }
            process = PlayerProcess(words, environment, self._shown(rank), self.reported, f"rank {rank}")
            self._processes.append(process)
            ended = process.wait(self.timeout_s)
            if ended.status is None:
                raise ScriptError(
                    f"{self.script[0]}: rank {rank} was not recorded within {self.timeout_s} s; accepted: "
                    "fewer --record-steps, --fake for a large model, or a longer --timeout"
                )
            last = next((line for line in (*ended.errors[::-1], *ended.out[::-1]) if line.strip()), "")
            if not out.exists():
                raise ScriptError(
                    f"{self.script[0]}: rank {rank} ended with status {ended.status}: "
                    f"{last or 'it printed nothing'}"
                )
            facts = json.loads(out.read_text("utf-8"))
            if "failed" in facts:
                where = f"{self.script[0]}:{facts['line']}" if facts["line"] else self.script[0]
                said = f": {last[:200]}" if facts["ended"] and last else ""
                raise ScriptError(f"{where}: rank {rank} cannot be recorded: {facts['failed']}{said}")
            record = Record.read(out)
        if not any(True for _ in record.steps()):
            raise ScriptError(
                f"{self.script[0]}: no optimizer made a step, so nobody knows where a step ends"
                f"{f' (it printed {last[:100]!r} last)' if last else ''}; "
                "accepted: a script that calls optimizer.step()"
            )
        return record


def _different(record: Record) -> list[int]:
    """Ranks whose role differs from the recorded one's: those with which it sends and receives."""
    groups = {one.group for one in record.operations if isinstance(one, Call) and one.op in ("send", "recv")}
    ranks = sorted({rank for group in groups for rank in record.groups[group]} - {record.rank})
    if len(ranks) + 1 == record.world and record.world > 16:
        raise UsageError(
            f"rank {record.rank} sends and receives in the group of all {record.world} ranks, so it is "
            "unknown which ranks do alike; accepted: --roles with one rank of each kind"
        )
    return ranks


def dealt(records: Sequence[Record], world: int) -> list[Role]:
    """Which ranks each record stands for: those that take its place in the group in which the roles differ.

    Of records that share no group, each rank belongs to the last recorded rank that is not above it.
    """
    ranks = [one.rank for one in records]
    for name, group in records[0].groups.items():
        if sorted(group) == sorted(ranks) and len(group) < world:
            described = records[0].descriptions.get(name, "")
            places: dict[int, list[int]] = {rank: [] for rank in ranks}
            for other, members in records[0].groups.items():
                if len(members) == len(group) and records[0].descriptions.get(other, "") == described:
                    for rank, member in zip(group, members, strict=True):
                        places[rank].append(member)
            if sorted(member for members in places.values() for member in members) == list(range(world)):
                return [Role(one, sorted(places[one.rank])) for one in records]
    ordered = sorted(records, key=lambda one: one.rank)
    bounds = [one.rank for one in ordered[1:]] + [world]
    begin = 0
    roles = []
    for one, end in zip(ordered, bounds, strict=True):
        roles.append(Role(one, list(range(begin, end))))
        begin = end
    return roles


def scenario_of(
    roles: Sequence[Role],
    times: KernelTimes,
    fabric: Mapping[str, Any],
    *,
    name: str,
    host_us: float,
    steps: int,
) -> dict[str, Any]:
    """The scenario: the fabric's sections, and the program as its one job.

    Raises ScriptError where ranks of a group call unlike collectives.
    """
    translation = Translation(roles, times, host_us=host_us, name=name, steps=steps)
    disagreement = translation.disagreement()
    if disagreement:
        raise ScriptError(f"{roles[0].record.script}: {disagreement}")
    return on_fabric(translation.program, fabric)


def on_fabric(program: Program, fabric: Mapping[str, Any]) -> dict[str, Any]:
    """A scenario with a program as its one job, and the sections of another's fabric."""
    sections = {
        key: value for key, value in fabric.items() if key not in ("jobs", "expect", "faults", "name")
    }
    topology = sections.pop("topology")
    return {**program.scenario(topology, **sections), "faults": fabric.get("faults", [])}
