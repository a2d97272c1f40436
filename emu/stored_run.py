"""A run read back from its directory: its scenario, every change that was made to it live, and how it ended.

`scenario.yaml` holds the scenario with which a run began. What was injected, cleared or captured while it ran
is in `journal.jsonl`, which has one object a line with `kind` and `virtual_ps`: `begin` (scenario, seed),
`fault` and `link` for what the scenario breaks, `change` for each live change (`emu.scenario.live_changes`),
`target` for each target of a fault on the busiest, and `end`. The scenario with the changes at their times is
the one whose run is the same, bit for bit. So every command that repeats, forks or compares a run reads it
here.

A run that was killed has no `end`; its changes are in the journal all the same, since each is on the disk
before anybody is told that it was made. A last line that was cut off is skipped.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, NamedTuple

from actors.fabric.model import Topology
from actors.kernel.event import NEVER_PS
from emu.base.errors import UsageError
from emu.counts.digest import check_kind
from emu.scenario.dump import to_yaml
from emu.scenario.fault_schedule import MeasuredTargets, scripted
from emu.scenario.faults.events import Fault
from emu.scenario.live_changes import Change, changed
from emu.scenario.load import Loaded, load, load_text
from emu.scenario.resolve import Resolved, resolve
from emu.scenario.schema import Scenario
from emu.scenario.set_options import Override

ACCEPTED: Final = "accepted: the directory of a run that `emu run` or `emu up` wrote"


class StoredRun(NamedTuple):
    """A run as its directory describes it."""

    begun: Loaded
    """The scenario with which it began."""
    scenario: Scenario
    """The same with every live change: its run is this run."""
    changes: tuple[tuple[int, Change], ...]
    """Every live change with its time in ps, in order."""
    measured: MeasuredTargets
    """What faults on the busiest hit, by fault and occurrence."""
    end_ps: int
    """Where somebody ended it; NEVER_PS if nobody did. The scenario's own end stays what it is, since the
    occurrences of its faults are counted up to there."""
    digest: str
    """Empty if it did not come to its end."""

    def until(self, at_ps: int) -> Scenario:
        """The scenario with the changes that were made before `at_ps`."""
        return _with(self.begun.scenario, (one for one in self.changes if one[0] < at_ps))

    def faults(self, topology: Topology) -> tuple[Fault, ...]:
        """Every occurrence of its faults, the injected ones too."""
        return scripted(self.scenario, topology, self.measured)

    def breaking(self, topology: Topology) -> list[dict[str, Any]]:
        """The lines of its journal that say what broke, as if all had been scripted from the start."""
        resolved = resolve(self.scenario, topology)
        resolved = resolved._replace(faults=self.faults(topology))
        return [
            {"kind": kind, "virtual_ps": at_ps, **facts}
            for kind, at_ps, facts in breaking(resolved, topology)
        ]

    def loaded(self, overrides: Iterable[Override] = ()) -> Loaded:
        """The scenario with every live change and these overrides. Raises ScenarioError."""
        if not self.changes:
            return load(Path(self.begun.source.file), overrides)
        return load_text(to_yaml(self.scenario), self.begun.source.file, overrides=overrides)


def stored_run(directory: Path) -> StoredRun:
    """The run in a directory. Raises UsageError if there is none, ScenarioError for its scenario."""
    entries = _entries(directory)
    begin = next((entry for kind, _, entry in entries if kind == "begin"), {})
    check_kind(directory / "journal.jsonl", begin.get("digest_kind"))
    path = directory / "scenario.yaml"
    if not path.is_file():
        raise UsageError(f"{path}: not found; {ACCEPTED}")
    begun = load(path)
    changes = tuple((at_ps, entry["change"]) for kind, at_ps, entry in entries if kind == "change")
    scenario = _with(begun.scenario, changes)
    ends = [(at_ps, str(entry.get("digest", ""))) for kind, at_ps, entry in entries if kind == "end"]
    ended_ps, digest = ends[-1] if ends else (0, "")
    live = scenario.run.repeat or scenario.operator is not None  # where somebody may have ended it
    end_ps = ended_ps if digest and live else int(NEVER_PS)
    measured = {
        (int(entry["fault"]), int(entry["occurrence"])): str(entry["target"])
        for kind, _, entry in entries
        if kind == "target"
    }
    return StoredRun(begun, scenario, changes, measured, end_ps, digest)


def breaking(resolved: Resolved, topology: Topology) -> list[tuple[str, int, dict[str, Any]]]:
    """Kind, time and facts of each line of a journal that says what breaks: faults, then links by time."""
    found: list[tuple[str, int, dict[str, Any]]] = []
    for one in sorted(resolved.faults, key=lambda fault: fault.begin_ps):
        facts = {"fault": one.entry, "what": one.kind, "target": one.target, "until_ps": one.end_ps or None}
        found.append(("fault", one.begin_ps, facts))
    for change in resolved.link_changes:
        name = topology.links[change.link].name
        found.append(("link", change.at_ps, {"link": name, "up": change.up, "fault": change.fault}))
    return found


def _with(scenario: Scenario, changes: Iterable[tuple[int, Change]]) -> Scenario:
    for at_ps, change in changes:
        scenario = changed(scenario, change, at_ps)
    return scenario


def _entries(directory: Path) -> list[tuple[str, int, dict[str, Any]]]:
    """Kind, time and facts of every line of the journal. Raises UsageError."""
    path = directory / "journal.jsonl"
    try:
        text = path.read_text("ascii")
    except OSError:
        raise UsageError(f"{directory}: there is no run; {ACCEPTED}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path}: not the journal of a run; {ACCEPTED}") from None
    entries: list[tuple[str, int, dict[str, Any]]] = []
    for row in text.splitlines(keepends=True):
        if not row.endswith("\n"):
            break
        try:
            entry = json.loads(row)
            kind, at_ps = str(entry["kind"]), int(entry["virtual_ps"])
            if kind == "change" and not entry["change"].keys() & {"inject", "clear", "capture"}:
                raise ValueError
            entries.append((kind, at_ps, entry))
        except (ValueError, KeyError, TypeError, AttributeError):
            raise UsageError(f"{path}:{len(entries) + 1}: not an entry of a journal") from None
    return entries
