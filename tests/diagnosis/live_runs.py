"""Live runs that are broken from outside: `emu up`, and `emu fault inject` while it runs."""

from __future__ import annotations

import contextlib
import io
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from emu import api
from emu.base.errors import UsageError
from emu.cli.main import main as emu
from emu.engine.live.control_socket import ask
from emu.run_directory.comparison import load_summary
from emu.views.repairs.run_diagnosis import diagnose_directory, reference_in
from tests.diagnosis.draws import Drawn, base_scenario, drawn
from tests.diagnosis.scoring import Run, heard, span_ps

PACE = "2ms/s"
BREAKS_PS, ENDS = 10**9, "3ms"
PATIENCE_S = 120.0


class Live(NamedTuple):
    """A live run, and the same without what was injected."""

    drawn: Drawn
    broken: Run
    well: Run


def live(seed: int) -> Live | None:
    """The fault of a seed, injected into a running emulation of its base; None if it cannot be."""
    one = drawn(seed, span_ps)
    if one is None or one.fault["kind"] == "miscabling":  # cables are swapped before a run
        return None
    with TemporaryDirectory(prefix="emu-live-") as place:
        scenario, out, well = (Path(place) / name for name in ("live.yaml", "run", "well"))
        mapping = repeating(one.base)
        scenario.write_text(api.effective(api.load(mapping).scenario), "utf-8")
        options = ("--local", "--quiet", "--pace", PACE, "--for", ENDS, "--out", str(out))
        words = ("up", str(scenario), *options)
        with subprocess.Popen([sys.executable, "-m", "emu.cli.main", *words]) as process:
            try:
                until_under_way(out, process)
                if not injected(out, one.fault):
                    return None
                process.wait(PATIENCE_S)
            finally:
                process.kill()
        api.run(mapping, local=True, out=well)
        return Live(one, seen(out), seen(well))


def repeating(base: int) -> dict[str, Any]:
    """A base whose job begins again when it is done."""
    mapping = base_scenario(base)
    (job,) = mapping["jobs"]
    workload = job["workload"] | {"iterations": 1}
    return mapping | {
        "run": mapping["run"] | {"repeat": True, "max_time": ENDS},
        "jobs": [job | {"workload": workload}],
    }


def until_under_way(out: Path, process: subprocess.Popen[bytes]) -> None:
    """Wait until the run has done some rounds."""
    until_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < until_s and process.poll() is None:
        with contextlib.suppress(UsageError, OSError):
            if ask(out, {"do": "list"})["virtual_ps"] >= BREAKS_PS:
                return
        time.sleep(0.02)
    raise TimeoutError(f"{out}: not under way")


def injected(out: Path, fault: dict[str, Any]) -> bool:
    """Whether an operator could inject it."""
    words = [f"{key}={value}" for key, value in fault.items() if key not in ("kind", "target", "at")]
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        return emu(["fault", "inject", str(out), fault["kind"], fault["target"], *words]) == 0


def seen(out: Path) -> Run:
    """What is compared of a run that repeats: its longest round."""
    come_to, summary = reference_in(out), load_summary(out)
    with heard() as said:
        diagnose_directory(out)
    failed = tuple(name for name in summary.jobs if name not in come_to.jobs)
    return Run(
        dict(come_to.jobs), failed, dict(come_to.alarms), summary.virtual_ps, said[-1], summary.diagnosis
    )
