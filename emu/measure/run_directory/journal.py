"""The journal of a run, read back so that the run can be repeated.

`journal.jsonl` has one object a line with `kind` and `virtual_ps`: `begin` (scenario, seed), what the
scenario breaks, `change` for each change that was made to a live run (`emu.scenario.live_changes`), and
`end`. The effective scenario beside it, with the changes at their times and the end where it was, is the
scenario whose run is the same, bit for bit.

A run that was killed has no `end`; its changes are in the journal all the same, since each is on the disk
before anybody is told that it was made. A last line that was cut off is passed over.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from actors.kernel.event import NEVER_PS
from emu.errors import UsageError
from emu.scenario.live_changes import changed
from emu.scenario.load import load_recorded
from emu.scenario.schema import Scenario
from emu.upgrade.renames import EARLIER_KIND

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
    digest_kind: int
    """Which kind of digest it is (`emu.measure.digest`)."""


def recorded(directory: Path) -> Recorded:
    """What a run directory holds. Raises UsageError if it is none, ScenarioError for its scenario."""
    entries = _entries(directory)
    path = directory / "scenario.yaml"
    if not path.is_file():
        raise UsageError(f"{path}: not found; {ACCEPTED}")
    scenario = load_recorded(path).scenario
    changes = [entry for entry in entries if entry["kind"] == "change"]
    for entry in changes:
        scenario = changed(scenario, entry["change"], int(entry["virtual_ps"]))
    ends = [entry for entry in entries if entry["kind"] == "end"]
    digest = str(ends[-1].get("digest", "")) if ends else ""
    end_ps = int(ends[-1]["virtual_ps"]) if digest and scenario.run.repeat else int(NEVER_PS)
    begun = next((entry for entry in entries if entry["kind"] == "begin"), {})
    kind = int(begun.get("digest_kind", EARLIER_KIND))
    return Recorded(scenario, len(changes), end_ps, digest, kind)


def _entries(directory: Path) -> list[dict[str, Any]]:
    path = directory / "journal.jsonl"
    try:
        text = path.read_text("ascii")
    except OSError:
        raise UsageError(f"{directory}: there is no run; {ACCEPTED}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path}: not the journal of a run; {ACCEPTED}") from None
    entries: list[dict[str, Any]] = []
    for line in text.splitlines(keepends=True):
        if not line.endswith("\n"):
            break
        try:
            entry = json.loads(line)
            _ = entry["kind"], int(entry["virtual_ps"])
        except (ValueError, KeyError, TypeError):
            raise UsageError(f"{path}:{len(entries) + 1}: not an entry of a journal") from None
        entries.append(entry)
    return entries
