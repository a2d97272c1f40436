"""`emu replay`: do a run again, with all that was done to it, and say whether it is the same.

The journal of a run is read back so that the run can be repeated. `journal.jsonl` has one object a line with
`kind` and `virtual_ps`: `begin` (scenario, seed), what the scenario breaks, `change` for each change that was
made to a live run (`emu.scenario.live_changes`), and `end`. The effective scenario beside it, with the
changes at their times and the end where it was, is the scenario whose run is the same, bit for bit.

A run that was killed has no `end`; its changes are in the journal all the same, since each is on the disk
before anybody is told that it was made. A last line that was cut off is passed over.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from actors.kernel.event import NEVER_PS
from emu.api import as_loaded, prepare, run_prepared
from emu.base.errors import UsageError
from emu.cli.run_options import placed
from emu.cli.scenario_options import forcing
from emu.cli.terminal import Terminal
from emu.measure.digest import check_kind
from emu.measure.run_directory.run_directory import RunDirectory
from emu.runtime.outcome import RunOptions
from emu.scenario.live_changes import changed
from emu.scenario.load import load
from emu.scenario.schema import Scenario

ACCEPTED = "accepted: the directory of a run that `emu run` or `emu up` wrote"


@dataclass(frozen=True, slots=True)
class Recorded:
    """A run as its directory tells of it."""

    scenario: Scenario
    """Whose run is the same."""
    changes: int
    """How many were made while it went on."""
    end_ps: int
    """Where somebody ended it; NEVER_PS if nobody did. The scenario's own end stays what it is, since the
    occurrences of its faults are counted up to there."""
    digest: str
    """Empty if it did not come to its end."""


def recorded(directory: Path) -> Recorded:
    """What a run directory holds. Raises UsageError if it is none, ScenarioError for its scenario."""
    entries = _entries(directory)
    begun = next((entry for entry in entries if entry["kind"] == "begin"), {})
    check_kind(directory / "journal.jsonl", begun.get("digest_kind"))
    path = directory / "scenario.yaml"
    if not path.is_file():
        raise UsageError(f"{path}: not found; {ACCEPTED}")
    scenario = load(path).scenario
    changes = [entry for entry in entries if entry["kind"] == "change"]
    for entry in changes:
        scenario = changed(scenario, entry["change"], int(entry["virtual_ps"]))
    ends = [entry for entry in entries if entry["kind"] == "end"]
    digest = str(ends[-1].get("digest", "")) if ends else ""
    live = scenario.run.repeat or scenario.operator is not None  # where somebody may have ended it
    end_ps = int(ends[-1]["virtual_ps"]) if digest and live else int(NEVER_PS)
    return Recorded(scenario, len(changes), end_ps, digest)


def _entries(directory: Path) -> list[dict[str, Any]]:
    path = directory / "journal.jsonl"
    try:
        text = path.read_text("ascii")
    except OSError:
        raise UsageError(f"{directory}: there is no run; {ACCEPTED}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path}: not the journal of a run; {ACCEPTED}") from None
    entries: list[dict[str, Any]] = []
    for row in text.splitlines(keepends=True):
        if not row.endswith("\n"):
            break
        try:
            entry = json.loads(row)
            _ = entry["kind"], int(entry["virtual_ps"])
        except (ValueError, KeyError, TypeError):
            raise UsageError(f"{path}:{len(entries) + 1}: not an entry of a journal") from None
        entries.append(entry)
    return entries


PARTED_STATUS = 1


@click.command()
@click.argument("run", metavar="RUN", type=click.Path(path_type=Path))
@placed
@click.option("--out", type=click.Path(path_type=Path), help="Directory for the results [runs/NAME-N].")
@forcing
@click.option("--quiet", is_flag=True, help="Print nothing but errors and the verdict.")
def command(run: Path, where: RunOptions, out: Path | None, force: bool, quiet: bool) -> int:
    """Repeat the run in directory RUN: its scenario, and every fault that was injected, at its time.

    With any number of workers the digest is the same. Exit status 0 if it is, 1 if it is not, else as of
    `emu run`.
    """
    before = recorded(run)
    options = replace(where, end_ps=before.end_ps)
    prepared = prepare(as_loaded(before.scenario))
    changes = "1 change" if before.changes == 1 else f"{before.changes} changes"
    with RunDirectory.create(prepared.scenario.name, out, force=force) as directory:
        terminal = Terminal(prepared.jobs, quiet=quiet)
        terminal.begin(f"{prepared.scenario.name}: {run} again, with {changes} that it was given")
        try:
            result = run_prepared(prepared, options, terminal, directory)
            terminal.finish(result.summary, (), str(directory.path), f"emu replay {run}")
        finally:
            terminal.close()
    if not result.outcome.digest:
        terminal.failed(result.outcome.message)
        return result.exit_status
    if not before.digest:
        click.echo(f"{run} did not come to its end: there is no digest to compare with")
        return result.exit_status
    if result.outcome.digest != before.digest:
        terminal.failed(f"the digests differ: emu compare {run} {directory.path} says where")
        return PARTED_STATUS
    click.echo(f"the same, bit for bit: digest {before.digest}")
    return 0
