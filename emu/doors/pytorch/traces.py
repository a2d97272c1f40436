"""Jobs from what PyTorch writes of a run: traces of its profiler, and dumps of its flight recorder.

Several files are several ranks of one job. One file alone stands for all ranks; of several, each stands for
its own rank and for those above it up to the next. A trace names only the groups that its rank is in. The
others of a dimension are those that a device mesh has: ranks of one distance, block by block.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

from emu.base.errors import FormatError, Problem, ScenarioError
from emu.base.spelling import shown
from emu.base.units import counted
from emu.doors.pytorch.flight_dumps import dump_of, is_dump
from emu.doors.pytorch.kernels import KernelTimes, gpu_named
from emu.doors.pytorch.kineto import MOST_BYTES, is_trace, read_trace, record_of
from emu.doors.pytorch.record import Call, Record
from emu.doors.pytorch.torchrun import dealt
from emu.doors.pytorch.translate import Role, Translation
from emu.scenario.load import read_file

MOST_RANKS: Final = 2**17


class Job(NamedTuple):
    """A job as YAML, a list of one, and how many ranks it has."""

    text: str
    ranks: int


class RanksError(FormatError):
    """Files that are not those of one job."""


def knows(path: Path) -> bool:
    """Whether a file is a trace or a dump of PyTorch's; what cannot be read is not."""
    try:
        with path.open("rb") as opened:
            head = opened.read(2**16)
    except OSError:
        return False
    return is_trace(head) or is_dump(head)


def job_of(files: Sequence[Path]) -> Job:
    """The job of these files. ScenarioError names the file."""
    records = []
    for path in files:
        data = read_file(path, MOST_BYTES)
        try:
            records.append(
                record_of(read_trace(data), path.name) if is_trace(data) else dump_of(data, path.name)
            )
        except FormatError as error:
            reason = f"{error.unit} {error.line}: {error.reason}" if error.line else error.reason
            raise ScenarioError([Problem(str(path), 0, "", reason, error.accepted)]) from error
        _check_calls(path, records[-1])
    records.sort(key=lambda one: one.rank)
    last = str(files[-1])
    for before, after in pairwise(records):
        if before.rank == after.rank:
            raise ScenarioError([Problem(last, 0, "", f"two files are of rank {after.rank}", "one of each")])
    world = max(one.world for one in records)
    if world > MOST_RANKS:
        raise ScenarioError([Problem(last, 0, "", f"says {world} ranks", f"at most {MOST_RANKS}")])
    try:
        records = with_all_groups(records, world)
    except RanksError as error:
        raise ScenarioError([Problem(last, 0, "", error.reason, error.accepted)]) from error
    times = KernelTimes(gpu_named("h100"))  # asked only for kernels without a measured time: there are none
    roles = dealt(records, world) if len(records) > 1 else [Role(records[0])]
    program = Translation(roles, times, host_us=0, name="trace", steps=1).program
    about = [f"# {', '.join(path.name for path in files[:4])}{' ...' if len(files) > 4 else ''}:"]
    about[0] += f" {counted(len(records), 'rank')} of {world}, {counted(_calls(records), 'call')} a step."
    about += sorted({f"# {note[:1].upper()}{note[1:]}." for one in records for note in one.notes})
    if not _calls(records):
        about.append("# No collective in it: all ranks compute alone.")
    job: dict[str, Any] = {"name": program.name, "ranks": world, "workload": program.workload()}
    text = (
        "\n".join(about) + "\n" + yaml.safe_dump([job], sort_keys=False, width=110, default_flow_style=None)
    )
    return Job("".join(f"  {line}\n" for line in text.splitlines()), world)


def _check_calls(path: Path, record: Record) -> None:
    """Raises ScenarioError if a rank calls in a group that it is not in, or to a rank that is not in it."""
    for call in record.operations:
        if not isinstance(call, Call):
            continue
        ranks = record.groups.get(call.group)
        strangers = [rank for rank in (record.rank, call.peer) if rank >= 0 and rank not in (ranks or ())]
        if ranks is None or strangers:
            who = f"of ranks {shown(ranks)}" if ranks is not None else "of which it says no ranks"
            reason = f"rank {record.rank} calls {call.op} in group {call.group!r} {who}"
            if strangers and strangers[0] != record.rank:
                reason += f", with rank {strangers[0]}"
            accepted = "the file of a rank of the group, under its own name (`..._RANK`)"
            raise ScenarioError([Problem(str(path), 0, "", reason, accepted)])


def _calls(records: Sequence[Record]) -> int:
    return max(sum(isinstance(one, Call) for one in record.operations) for record in records)


def with_all_groups(records: Sequence[Record], world: int) -> list[Record]:
    """The same records, with all groups of each dimension that they name, as a script that makes them has."""
    whole = list(range(world))
    groups: dict[str, list[int]] = {"0": whole}
    descriptions = {"0": "default_pg"}
    names: dict[tuple[str, tuple[int, ...]], str] = {}
    given: dict[tuple[str, tuple[int, ...]], None] = {}
    for record in records:
        used = {one.group for one in record.operations if isinstance(one, Call)}
        for name, known in record.groups.items():
            if name in used:
                given[record.descriptions.get(name, ""), tuple(known)] = None
    dimensions: dict[str, list[tuple[str, tuple[int, ...]]]] = {}
    for described, ranks in given:
        if list(ranks) == whole:
            names[described, ranks] = "0"
            continue
        for label in (described, *(f"{described}_{n}" for n in range(2, 1000))):
            others = dimensions.get(label, [])
            if all(len(ranks) == len(other) and not set(ranks) & set(other) for _, other in others):
                dimensions.setdefault(label, []).append((described, ranks))
                break
    for label, members in dimensions.items():
        listed = [ranks for _, ranks in members]
        if sorted(rank for ranks in listed for rank in ranks) != whole and len(records) < world:
            listed = _mesh(listed, world)
        for ranks in listed:
            name = str(len(groups))
            groups[name], descriptions[name] = list(ranks), label or "group"
            for key in members:
                if key[1] == ranks:
                    names[key] = name
    found = []
    for record in records:
        operations = [
            replace(one, group=names[record.descriptions.get(one.group, ""), tuple(record.groups[one.group])])
            if isinstance(one, Call)
            else one
            for one in record.operations
        ]
        found.append(
            replace(record, world=world, operations=operations, groups=groups, descriptions=descriptions)
        )
    return found


def _mesh(known: Sequence[tuple[int, ...]], world: int) -> list[tuple[int, ...]]:
    """All groups of the mesh dimension that the known ones belong to."""
    first = known[0]
    size, step = len(first), first[1] - first[0] if len(first) > 1 else 1
    block = step * size
    all_of_them: list[tuple[int, ...]] = []
    if step > 0 and world % block == 0:
        all_of_them = [
            tuple(range(base + at, base + at + block, step))
            for base in range(0, world, block)
            for at in range(step)
        ]
    if not set(known) <= set(all_of_them):
        raise RanksError(
            0,
            f"group {list(first[:8])} is none of a mesh of {world} ranks, so other ranks' groups are unknown",
            "the files of all ranks",
        )
    return all_of_them
