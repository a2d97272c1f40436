"""`emu torchrun --live`: the ranks of a script are processes, and the emulated fabric carries their calls."""

from __future__ import annotations

import json
import shlex
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click

from emu import api
from emu.base.errors import UsageError
from emu.base.units import parse_time
from emu.doors.pytorch.kernels import gpu_named
from emu.doors.pytorch.live_job import Job, LiveError, LiveServer, Processes, over_gloo
from emu.doors.pytorch.live_results import PAGE, SUMMARY, Live, Outcome, outcome_of
from emu.doors.pytorch.torchrun import check_script
from emu.engine.live.open_run import OpenRun
from emu.engine.outcome import RunOptions
from emu.scenario.dump import to_yaml
from emu.scenario.load import Loaded
from emu.terminal.columns import say
from emu.terminal.scenario_options import load_scenario

WATCHDOG: Final = "600s"
"""What a process group of NCCL waits for a call, unless told otherwise."""
LONGEST: Final = "1000000s"
ROOT: Final = Path("runs")


def live(
    words: Sequence[str],
    ranks: int | None,
    gpu: str,
    kernel_times: Path | None,
    timeout_s: int,
    assignments: tuple[str, ...],
    seed: str | None,
    variant: str,
    where: RunOptions,
    out: Path | None,
    *,
    module: bool,
    measured: bool,
    beside_gloo: bool,
    force: bool,
    quiet: bool,
) -> int:
    """Run the script of `words`, behind the scenario there; the exit status. Raises EmuError."""
    if len(words) < 2:
        raise UsageError(
            "--live: accepted: a scenario and a script, `emu torchrun --live --nproc 4 SCENARIO script.py`"
        )
    if ranks is None:
        raise UsageError("--live: accepted: --nproc N, how many ranks")
    fabric, *script = words
    gpu_named(gpu)
    check_script(script[0], module=module)
    loaded = _loaded(fabric, assignments, seed, variant)
    scenario = loaded.scenario
    if any(one.kind == "bit_flip" for one in scenario.faults) and scenario.ncclx.in_line:
        say(
            "note: bit_flip reaches what GPUs copy, and here slices need no copy: --set ncclx.protocol=simple"
        )
    for other in scenario.jobs:
        if other.enabled and not other.workload.posted_from_outside:
            say(f"note: job {other.name} of the scenario runs beside the script")
    command = shlex.join(["emu", "torchrun", "--live", "--nproc", str(ranks), *words])
    faults = [(f"{one.kind} {getattr(one, 'target', '')}", one.at_ps) for one in scenario.faults]
    digest, reason = "", ""
    with _opened(loaded, where) as run:
        if ranks > run.ranks:
            raise UsageError(
                f"--nproc {ranks}: {fabric} has {run.ranks} GPUs for them; accepted: up to {run.ranks}"
            )
        folder = _folder(f"{scenario.name}-live", out, force=force)
        job = Job(script, ranks, gpu, folder, kernel_times, measured, module, timeout_s=timeout_s)
        job.gpus_per_host = max(Counter(map(run.server_of, range(ranks))).values())
        if not quiet:
            job.say = click.echo
        gloo: Outcome | None = None
        with Processes() as processes:
            try:
                digest = LiveServer(run, job, processes).serve()
            except LiveError as error:
                reason = str(error)
            emulated = outcome_of(folder, ranks)
            if beside_gloo and not reason:
                with tempfile.TemporaryDirectory(prefix="emu-gloo-") as place:
                    over_gloo(job, processes, Path(place))
                    gloo = outcome_of(Path(place), ranks)
    result = Live(scenario.name, command, emulated, "" if measured else digest, reason, gloo, faults)
    (folder / "scenario.yaml").write_text(to_yaml(scenario), encoding="utf-8")
    (folder / SUMMARY).write_text(json.dumps(result.summary(), indent=1), encoding="utf-8")
    (folder / PAGE).write_text(result.page(), encoding="utf-8")
    if reason:
        dumps = sorted(folder.glob("nccl_trace_rank_*"))
        if dumps:
            reason += f"\nflight recorder: {dumps[0]} and {len(dumps) - 1} more; `emu import` reads them"
        raise LiveError(reason)
    if not quiet:
        for line in result.lines():
            say(line)
        say(f"{folder / PAGE}")
    return 0


def _loaded(fabric: str, assignments: tuple[str, ...], seed: str | None, variant: str) -> Loaded:
    """The scenario, with the patience of a process group where it has none of its own."""
    real = ("payload=real", *assignments)
    loaded = load_scenario(fabric, real, seed, variant, opens=True)
    scenario = loaded.scenario
    more = []
    if scenario.ncclx.watchdog_ps is None:
        more.append(f"ncclx.watchdog={WATCHDOG}")
    if scenario.run.stall_after_ps is None:  # the watchdog is to find what hangs
        watchdog_ps = scenario.ncclx.watchdog_ps or parse_time(WATCHDOG)
        more.append(f"run.stall_after={2 * watchdog_ps}ps")
    if not {"max_time", "max_time_ps"} & scenario.run.model_fields_set:
        more.append(f"run.max_time={LONGEST}")
    return load_scenario(fabric, (*real, *more), seed, variant, opens=True) if more else loaded


def _opened(loaded: Loaded, where: RunOptions) -> OpenRun:
    if where.local or where.chooses:
        return api.open(loaded, parts=where.parts)
    return api.open(loaded, workers=where.workers, placement=where.placement, address=where.address)


def _folder(name: str, out: Path | None, *, force: bool) -> Path:
    """The folder of the results: a new one, an empty one, or with `force` one of an earlier live run."""
    if out is None:
        number = 1
        while (ROOT / f"{name}-{number}").exists():
            number += 1
        out = ROOT / f"{name}-{number}"
    try:
        out.mkdir(parents=True, exist_ok=True, mode=0o700)
        files = list(out.iterdir())
        if files and not (force and (out / SUMMARY).is_file()):
            ways = "another --out, or --force" if (out / SUMMARY).is_file() else "another --out"
            raise UsageError(f"--out {out}: is not empty; accepted: {ways}")
        for one in files:
            if one.name in (SUMMARY, PAGE, "scenario.yaml") or one.name.startswith(
                ("rank_", "nccl_trace_rank_")
            ):
                one.unlink()
    except OSError as error:
        raise UsageError(f"--out {out}: {error.strerror}; accepted: a folder that can be written") from None
    return out
