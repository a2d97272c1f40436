"""The rows of a sweep on disk, each as soon as its run has ended, so that a sweep can be resumed.

`sweep.json` says what the sweep is: version, effective file, axes, seeds, what is shown. `rows.jsonl` has a
line for each run that ended; the line of a run that was lost with its process or node says so, and that run
is done again. A line that was cut short by the end of the process is dropped.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Self

from emu.base.errors import UsageError
from emu.run_directory.run_directory import write_whole
from emu.sweeps.subjects import Done
from emu.sweeps.sweep_table import Row

PLAN: Final = "sweep.json"
ROWS: Final = "rows.jsonl"
KEY: Final = "key"
PARTS: Final = (
    ("the file", "scenario"),
    ("axes", "axes"),
    ("seeds", "seeds"),
    ("columns", "paths"),
    ("the search", "largest"),
    ("expectations", "no_expect"),
)
"""What tells sweeps apart, in words and by its key."""


class KeptRows:
    """The rows of one sweep in a directory."""

    def __init__(self, directory: Path, rows: Mapping[int, Done]) -> None:
        self.rows: dict[int, Done] = dict(rows)
        """By number, those that need not be done again."""
        self._file = (directory / ROWS).open("a", encoding="utf-8")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._file.close()
            raise UsageError(f"{directory}: another process adds to this sweep") from None

    @classmethod
    def begun(cls, directory: Path, plan: Mapping[str, Any], *, force: bool) -> Self:
        """Those of a new sweep. UsageError if the directory holds one, unless `force` replaces it."""
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            if (directory / PLAN).exists() and not force:
                raise UsageError(
                    f"{directory}: holds a sweep; accepted: --resume {directory}, --force, or another --out"
                )
            (directory / ROWS).unlink(missing_ok=True)
            write_whole(directory / PLAN, json.dumps(plan, indent=2) + "\n")
            return cls(directory, {})
        except OSError as error:
            raise UsageError(f"{directory}: {error.strerror}; give another directory with --out") from error

    @classmethod
    def reopened(cls, directory: Path, plan: Mapping[str, Any]) -> Self:
        """Those of a sweep that broke off. UsageError if the directory holds another sweep, or none."""
        kept = plan_in(directory)
        if kept.get("version") != plan["version"]:
            reason = f"was begun by version {kept.get('version')} of emu, this is {plan['version']}"
            raise UsageError(f"{directory}: {reason}; accepted: the same version, or a new sweep")
        if kept.get(KEY) != plan[KEY]:
            what = [name for name, key in PARTS if kept.get(key) != plan[key]]
            differs = f"another sweep, with other {', '.join(what)}"
            raise UsageError(f"{directory}: holds {differs}; accepted: the same sweep, or another --out")
        file = directory / ROWS
        text = file.read_text("utf-8") if file.exists() else ""
        whole, _, cut = text.rpartition("\n")
        lines = whole.splitlines()
        if cut:
            write_whole(file, "".join(f"{line}\n" for line in lines))
        rows: dict[int, Done] = {}
        for number, line in enumerate(lines, 1):
            try:
                plain = json.loads(line)
                if not plain["lost"]:
                    rows[plain["number"]] = _done(plain)
            except (ValueError, KeyError, TypeError) as error:
                raise UsageError(f"{file}:{number}: is no row of a sweep; accepted: a new sweep") from error
        kept_rows = cls(directory, rows)
        for place in directory.glob("run-*"):
            if place.name.removeprefix("run-") not in {str(number) for number in rows}:
                shutil.rmtree(place, ignore_errors=True)  # of a run that did not end
        return kept_rows

    def add(self, number: int, done: Done, *, lost: bool) -> None:
        """Write the row of a run that has ended. UsageError if that cannot be."""
        row = done.row
        plain = {
            "number": number,
            "lost": lost,
            "settings": row.settings,
            "seed": row.seed,
            "exit_status": row.exit_status,
            "digest": row.digest,
            "values": dict(row.values),
            "message": row.message,
            "uplink": row.uplink,
            "reasons": dict(done.reasons),
            "defaults": done.defaults,
        }
        try:
            self._file.write(json.dumps(plain) + "\n")
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise UsageError(f"{self._file.name}: {error.strerror}") from error

    def close(self) -> None:
        """Let others add. May be called again."""
        self._file.close()


def plan_in(directory: Path) -> dict[str, Any]:
    """What the sweep in a directory is. Raises UsageError."""
    file = directory / PLAN
    try:
        plan = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "is damaged"
        raise UsageError(f"{file}: {reason}; accepted: the --out of an earlier `emu sweep`") from error
    if not isinstance(plan, dict) or KEY not in plan:
        raise UsageError(f"{file}: is no sweep; accepted: the --out of an earlier `emu sweep`")
    return plan


def _done(plain: Mapping[str, Any]) -> Done:
    row = Row(
        tuple(plain["settings"]),
        plain["seed"],
        int(plain["exit_status"]),
        plain["digest"],
        plain["values"],
        plain["message"],
        plain["uplink"],
    )
    return Done(row, plain["reasons"], tuple(plain["defaults"]))
