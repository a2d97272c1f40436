"""Does whatever repeats, forks or compares a live run have each fault that was injected into it?"""

from pathlib import Path
from typing import Any

import pytest

from emu import api
from emu.base.errors import UsageError
from emu.resume import fork, reopen
from emu.run_directory.run_directory import RunDirectory
from emu.scenario.faults.kinds import FAULTS
from emu.views.repairs.run_diagnosis import diagnose_directory
from emu.views.reports.page import time_rows
from emu.views.reports.recording import read_recording
from tests.faults.test_snapshots import CASES_AND_MORE
from tests.faults.watched import FLOWS, RING, US, mapping_of

REFUSED = {
    "miscabling": "cables are swapped from the start, never while a run goes on",
    "row_remap": "nobody looks at remapped rows",
}
"""Kinds that cannot be injected here, and the reason that is given; `tests/control` injects rows live."""
DRAWN = {"for": None, "table": "llama3", "acceleration": 1e12, "within": "100us", "repaired_after": "10us"}
OTHERS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "link_up": ({"target": "rtsw-0:ctsw-0", "for": None}, FLOWS),
    "link_down busiest": ({"target": "busiest uplink"}, FLOWS),
    "bit_flip": ({"target": "gpu-0-0", "bit": 4096, "for": None}, RING | {"sizes": ["16KiB"]}),
    "credit_drift": ({"target": "ctsw-0", "initial_credit": "4KiB", "most_credit": "8KiB"}, FLOWS),
    "random": (DRAWN, FLOWS),
    "miscabling": ({"target": "rtsw-0:ctsw-0", "swapped_with": "rtsw-1:ctsw-1", "for": None}, FLOWS),
    "row_remap": ({"target": "gpu-0-0", "rows": 8, "for": None}, RING),
}
LIVE: dict[str, Any] = {
    "run": {"sample_every": "10us", "repeat": True, "max_time": "110us"},
    "switch": {"ecn": {"enabled": True}},
}
NEEDS: dict[str, dict[str, Any]] = {
    "bit_flip": {"payload": "real"},
    "credit_drift": {"switch": {"deep_buffer": {"where": "spines"}}},
}
"""What else of the scenario a kind needs."""


class Injector(api.Observer):
    """Injects a fault when it hears the second sample."""

    def __init__(self, steering: api.Steering, fault: dict[str, Any]) -> None:
        self._steering, self._fault, self._samples = steering, fault, 0

    def sampled(self, changed: Any, mixed: Any) -> None:
        del changed, mixed
        self._samples += 1
        if self._samples == 2:
            self._steering.inject(self._fault)


def live(out: Path, case: str) -> api.Result:
    keys, workload = (CASES_AND_MORE | OTHERS)[case]
    kind = case.split(maxsplit=1)[0]
    mapping = mapping_of([], workload) | LIVE | NEEDS.get(kind, {})
    prepared = api.prepare(mapping)
    steering = api.Steering(prepared.scenario, prepared.topology)
    given = {"kind": kind, "for": "40us", **keys}
    fault = {key: value for key, value in given.items() if value is not None}
    options = api.RunOptions(
        local=True, metrics=False, steering=steering, progress_every_s=0.0, snapshot_at_ps=(90 * US,)
    )
    with RunDirectory.create("live", out) as directory:
        return api.run_prepared(prepared, options, Injector(steering, fault), directory)


def forked(run: Path, at_ps: int, out: Path) -> api.Result:
    """The fork of a run that changes nothing."""
    options = api.RunOptions(local=True, metrics=False)
    with fork(run, at_ps, [], out, options) as again:
        return api.run_prepared(
            again.prepared, options._replace(resume_ps=at_ps), None, again.directory, diagnose=False
        )


CASES = [*(kind for kind in FAULTS.table if kind not in REFUSED), "link_down busiest"]


@pytest.mark.parametrize("case", CASES)
def test_a_fork_a_report_and_a_diagnosis_have_what_was_injected_live(case: str, tmp_path: Path) -> None:
    out, kind = tmp_path / "live", case.split(maxsplit=1)[0]
    result = live(out, case)
    (fault,) = result.summary.faults
    digest = result.outcome.digest
    assert digest
    at_ps = 100 * US if case in ("link_down", "ecn_drift", "random") else 90 * US
    assert forked(out, at_ps, tmp_path / "fork").outcome.digest == digest
    if kind != "random":
        rows = [row["bars"][0][0] for row in time_rows(read_recording(out)) if row["label"].startswith(kind)]
        assert rows == [fault.at_ps]
    found = [(one.cause, one.place, one.back_ps) for one in result.summary.diagnosis]
    _, reported = diagnose_directory(out, emulate=True)
    assert [(one.cause, one.place, one.back_ps) for one in reported] == found
    with pytest.raises(UsageError, match="a live run cannot be resumed"):
        reopen(out)


@pytest.mark.parametrize("kind", REFUSED)
def test_what_cannot_be_injected_is_refused_with_its_reason(kind: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=REFUSED[kind]):
        live(tmp_path / "live", kind)
