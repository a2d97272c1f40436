"""`emu torchrun`: a PyTorch script goes in; the time of a step, and what was exposed of it, come out."""

from __future__ import annotations

import csv
import json
import shlex
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import click
import yaml
from click.core import ParameterSource

from emu.api import prepare, run_prepared
from emu.base.errors import ScenarioError, UsageError
from emu.base.outside import file_text
from emu.base.units import counted
from emu.doors.pytorch.kernels import KernelTimes, gpu_named
from emu.doors.pytorch.live_torch import live
from emu.doors.pytorch.record import Record
from emu.doors.pytorch.step_waits import durations, totals, waits
from emu.doors.pytorch.torchrun import Recording, on_fabric, scenario_of, unseen
from emu.doors.pytorch.translate import Role, facts_of, rows_of
from emu.engine.outcome import RunOptions
from emu.run_directory.run_directory import RunDirectory
from emu.scenario.yaml.document import MAX_FILE_BYTES
from emu.terminal.columns import say
from emu.terminal.run_options import placed
from emu.terminal.scenario_options import forcing, load_scenario, overriding
from emu.terminal.shown_run import show_run
from emu.terminal.terminal import RunLeft
from emu.workload.composing import Program

NOT_LIVE: Final = (
    "ranks",
    "fabric",
    "host_us",
    "fake",
    "record_steps",
    "steps",
    "roles",
    "dry",
    "save",
    "questions",
)
MOST_WAITS: Final = 8
"""Lines of what computing waits for."""
EXAMPLES: Final = """\b
Examples:
  emu torchrun --ranks 64 --fabric pod.yaml train.py
  emu torchrun --ranks 8 --dry train.py
  emu torchrun --ranks 64 --fabric pod.yaml --save job.yaml train.py
  emu torchrun --ranks 64 --fabric pod.yaml --set routing.kind=spray train.py
  emu torchrun --ranks 64 --fabric pod.yaml \\
      --what-if routing.kind=ecmp,spray --what-if --bucket-mb=5,50 train.py
  emu torchrun --live --nproc 4 pod.yaml train.py
"""


@click.command(
    epilog=EXAMPLES, context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False}
)
@click.argument("script", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option("--module", "-m", is_flag=True, help="SCRIPT is a module, as after `python -m`.")
@click.option("--ranks", type=click.IntRange(1, 2**17), help="World size of the script.")
@click.option("--live", "is_live", is_flag=True, help="Run all ranks as processes, over the emulated fabric.")
@click.option("--nproc", type=click.IntRange(1, 1024), help="With --live: how many ranks.")
@click.option(
    "--compute",
    type=click.Choice(["modelled", "measured"]),
    default="modelled",
    help="With --live: time of kernels on --gpu, or CPU time here  [modelled].",
)
@click.option("--beside-gloo", is_flag=True, help="With --live: run the script over gloo, too, and compare.")
@click.option("--fabric", metavar="FILE", help="Scenario whose fabric and knobs are used  [a pod that fits].")
@click.option("--gpu", "gpu_name", default="h100", metavar="NAME", help="h100, h200, a100 or b200  [h100].")
@click.option(
    "--kernel-times",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Measured kernels: a CSV, or a trace of torch.profiler.",
)
@click.option(
    "--host-us",
    type=click.FloatRange(0, 1000),
    default=0.0,
    help="What one launch costs the host, in us  [0].",
)
@click.option("--fake", is_flag=True, help="Keep no tensor data: for models that do not fit in memory.")
@click.option(
    "--record-steps", type=click.IntRange(1, 100), default=2, help="Steps played; the last counts  [2]."
)
@click.option("--steps", type=click.IntRange(1, 1000), default=1, help="Times the step is emulated  [1].")
@click.option("--roles", metavar="R,R", help="Ranks to play, one of each role  [found from rank 0].")
@click.option("--timeout", type=click.IntRange(1, 86400), default=1800, help="Seconds for one rank  [1800].")
@click.option("--dry", is_flag=True, help="Print the recorded calls as a table, and run nothing.")
@click.option("--save", type=click.Path(path_type=Path), help="Write the scenario there, and run nothing.")
@click.option(
    "--what-if",
    "questions",
    multiple=True,
    metavar="KEY=A,B",
    help="Compare values of a key, or of a --flag of SCRIPT.",
)
@overriding
@placed
@click.option("--out", type=click.Path(path_type=Path), help="Directory for the results  [runs/NAME-N].")
@forcing
@click.option("--quiet", is_flag=True, help="Print nothing but errors; keep the script's own output.")
def command(
    script: tuple[str, ...],
    module: bool,
    ranks: int | None,
    is_live: bool,
    nproc: int | None,
    compute: str,
    beside_gloo: bool,
    fabric: str | None,
    gpu_name: str,
    kernel_times: Path | None,
    host_us: float,
    fake: bool,
    record_steps: int,
    steps: int,
    roles: str | None,
    timeout: int,
    dry: bool,
    save: Path | None,
    questions: tuple[str, ...],
    assignments: tuple[str, ...],
    seed: str | None,
    variant: str,
    where: RunOptions,
    out: Path | None,
    force: bool,
    quiet: bool,
) -> int:
    """Record SCRIPT without a GPU, and emulate its step on RANKS ranks of a fabric.

    The script runs unmodified in one CPU process for each distinct role. Its kernels take the time they
    have on the GPU named by --gpu; its collectives run in the emulated fabric. Exit status as of `emu run`.

    With --live, the arguments are SCENARIO SCRIPT: every rank is a process, and the bytes of its tensors go
    through the emulated fabric (docs/pytorch.md).
    """
    if is_live:
        _refuse_given("with --live", NOT_LIVE)
        return live(
            script,
            nproc,
            gpu_name,
            kernel_times,
            timeout,
            assignments,
            seed,
            variant,
            where,
            out,
            module=module,
            measured=compute == "measured",
            beside_gloo=beside_gloo,
            force=force,
            quiet=quiet,
        )
    _refuse_given("without --live", ("nproc", "compute", "beside_gloo"))
    if ranks is None:
        raise UsageError("accepted: --ranks N, the world size of the script")
    changes = [Change("as it is"), *_changes(questions)] if questions else []
    gpu = gpu_named(gpu_name)
    times = KernelTimes(gpu, kernel_times)
    environment = (
        yaml.safe_load(file_text(Path(fabric), "a scenario", MAX_FILE_BYTES)) if fabric else pod_for(ranks)
    )
    recording = Recording(
        script,
        ranks,
        8,
        gpu,
        record_steps,
        fake,
        module,
        timeout,
        shown=unseen if quiet else _passed_on,
        reported=unseen if quiet else say,
    )
    recording.check()
    _check_fit(environment, ranks, fabric, assignments, seed, variant)
    asked = _asked(roles, ranks)
    played = recording.roles(asked, recording.reported)
    for role in played:
        _describe(role.record, times, quiet=quiet)
    if not gpu.measured and kernel_times is None:
        say(f"note: no kernel was measured on {gpu_name}: datasheet peaks, and the H100's distance from them")
    if dry:
        for role in played:
            _table(role.record, times)
        return 0
    name = script[0].rpartition(".")[2] if module else Path(script[0]).stem

    def text_of(roles: Sequence[Role], words: Sequence[str]) -> str:
        made = scenario_of(roles, times, environment, name=name, host_us=host_us, steps=steps)
        about = shlex.join(["emu", "torchrun", "--ranks", str(ranks), *words])
        return f"# {about}\n{yaml.safe_dump(made, sort_keys=False, width=110)}"

    text = text_of(played, script)
    if save is not None:
        save.write_text(text, encoding="utf-8")
        say(f"{save}: {counted(text.count('- do: '), 'operation')}; `emu run {save}` needs no torch")
        return 0
    with tempfile.TemporaryDirectory(prefix=f"{name}-") as folder:
        file = Path(folder) / f"{name}.yaml"
        file.write_text(text, encoding="utf-8")
        if changes:
            for change in changes:
                if change.arguments:  # another run of the script
                    changed = (*script, *change.arguments)
                    again = replace(recording, script=changed).roles(asked, lambda _: None)
                    change.file = Path(folder) / f"{len(list(Path(folder).iterdir()))}.yaml"
                    change.file.write_text(text_of(again, changed), encoding="utf-8")
            _compare(file, assignments, seed, variant, where, changes, name)
            return 0
        prepared = prepare(load_scenario(str(file), assignments, seed, variant))
    words = ["emu", "torchrun", "--ranks", str(ranks), *(["--fabric", fabric] if fabric else []), *script]
    with RunDirectory.create(prepared.scenario.name, out, force=force) as directory:
        status = show_run(
            prepared, directory, where._replace(metrics=False), words, as_json=False, quiet=quiet, page=False
        )
        if not quiet:
            _verdict(directory.path, name, played[0].record, times)
            _waits(directory.path, played[0].record, times)
        return status


def _passed_on(line: str, is_error: bool) -> None:
    click.echo(line, err=is_error)


def _refuse_given(when: str, names: Sequence[str]) -> None:
    """Raise UsageError for options that mean nothing then."""
    context = click.get_current_context()
    for option in context.command.params:
        given = context.get_parameter_source(option.name or "") == ParameterSource.COMMANDLINE
        if option.name in names and given:
            raise UsageError(f"{option.opts[0]} means nothing {when}; accepted: without it")


@dataclass
class Change:
    """One value of a `--what-if`."""

    name: str
    assignment: str = ""
    """A key of the scenario and its value."""
    arguments: tuple[str, ...] = ()
    """Arguments of the script, after those that it has."""
    file: Path | None = None
    """The scenario recorded with these arguments."""


def _check_fit(
    environment: Mapping[str, Any],
    ranks: int,
    fabric: str | None,
    assignments: tuple[str, ...],
    seed: str | None,
    variant: str,
) -> None:
    """Refuse a fabric that cannot be built or has too few GPUs, before anything is recorded."""
    if "topology" not in environment:
        raise UsageError(f"{fabric}: has no topology; accepted: a scenario, of which the fabric is used")
    program = Program(ranks=ranks)
    program.main.compute("1us")
    with tempfile.NamedTemporaryFile("w", suffix=".yaml", encoding="utf-8") as file:
        yaml.safe_dump(on_fabric(program, environment), file)
        file.flush()
        try:
            prepare(load_scenario(file.name, assignments, seed, variant))
        except ScenarioError as error:
            first = error.problems[0]
            where = f"--ranks {ranks}" if first.key.startswith("jobs") else f"{fabric or 'pod'}: {first.key}"
            raise UsageError(f"{where}: {first.reason}; accepted: {first.accepted}") from error


def _changes(questions: Sequence[str]) -> list[Change]:
    """Each value of each question. What begins with a dash is an argument of the script."""
    found = []
    for question in questions:
        key, sign, values = question.partition("=")
        listed = values.split(",") if sign and values else []
        if not key or not listed or not all(listed):
            raise UsageError(
                f"--what-if {question}: accepted: a key and its values, like routing.kind=ecmp,spray, or an "
                "argument of the script, like --bucket-mb=5,25"
            )
        for value in listed:
            if key.startswith("-"):
                found.append(Change(f"{key} {value}", arguments=(key, value)))
            else:
                found.append(Change(f"{key} {value}", f"{key}={value}"))
    return found


def _compare(
    file: Path,
    assignments: tuple[str, ...],
    seed: str | None,
    variant: str,
    where: RunOptions,
    changes: Sequence[Change],
    job: str,
) -> None:
    """Step time and what was exposed of it, with each change alone."""
    # every change is checked before the first run
    loaded = [
        load_scenario(
            str(one.file or file),
            (*assignments, *([one.assignment] if one.assignment else [])),
            seed,
            variant,
        )
        for one in changes
    ]
    say(f"{'change':<32} {'step ms':>10} {'':>8} {'computing':>10}  waiting for")
    first = 0
    for change, source in zip(changes, loaded, strict=True):
        prepared = prepare(source)
        with RunLeft(prepared.jobs) as left:
            result = run_prepared(prepared, where._replace(metrics=False), left, diagnose=False)
        training = result.summary.jobs[job].training
        if training is None or not training.step_ps:
            say(f"{change.name:<32} {'no end':>10}")
            continue
        first = first or training.step_ps
        longer = f"{training.step_ps / first - 1:+.1%}" if change is not changes[0] else ""
        say(
            f"{change.name:<32} {training.step_ps / 1e9:>10.3f} {longer:>8} {training.compute or 0:>10.1%}"
            f"  {_exposed(training.exposed) or 'nobody'}"
        )


def _exposed(exposed: Mapping[str, float]) -> str:
    return ", ".join(f"{group} {share:.1%}" for group, share in exposed.items() if share >= 0.0005)


def _verdict(run: Path, job: str, record: Record, times: KernelTimes) -> None:
    """Step time, model FLOPs utilisation and exposed communication, on one line."""
    summary = json.loads((run / "summary.json").read_text("utf-8"))
    training = summary["jobs"][job]["training"]
    if not training or not training["step_ps"]:
        return
    step = facts_of(record, times)
    peak = times.gpu.peak_flops_per_s["bf16" if step.half_precision else "fp32"]
    mfu = step.flops / (training["step_ps"] / 1e12 * peak)
    exposed = _exposed(training["exposed"])
    say(
        f"step {training['step_ps'] / 1e9:.3f} ms, {mfu:.1%} of the GPU's peak ({peak / 1e12:.0f} TFLOP/s): "
        f"computing {training['compute']:.1%}, waiting for {exposed or 'nobody'}"
    )


def pod_for(ranks: int) -> dict[str, Any]:
    """A fabric that has as many GPUs: eight in a server, two servers in a rack, sixteen spines."""
    if ranks <= 8:
        return {"topology": {"kind": "star", "hosts": 1, "gpus_per_host": ranks}}
    racks = -(-ranks // 16)
    return {
        "topology": {
            "kind": "ai_zone",
            "racks": racks,
            "hosts_per_rack": 2,
            "gpus_per_host": 8,
            "spines": 16,
            "link": "400G",
        }
    }


def _asked(roles: str | None, world: int) -> list[int]:
    if roles is None:
        return []
    try:
        asked = [int(one) for one in roles.split(",")]
        if asked and all(0 <= one < world for one in asked) and len(set(asked)) == len(asked):
            return asked
    except ValueError:
        pass
    raise UsageError(f"--roles {roles}: accepted: different ranks from 0 to {world - 1}, like 0,8,16")


def _describe(record: Record, times: KernelTimes, *, quiet: bool) -> None:
    if quiet:
        return
    step = facts_of(record, times)
    say(
        f"rank {record.rank}: {step.launches} kernels ({step.kernels_us / 1e3:.2f} ms, "
        f"{step.flops / 1e12:.3g} TFLOP), {step.calls} calls ({step.sent_bytes / 1e6:.1f} MB) a step; "
        f"{_parameters(record)}, {record.peak_bytes / 2**30:.2f} GiB at most"
    )
    for note in record.notes:
        say(f"note: {note}")


def _parameters(record: Record) -> str:
    """Parameters of the model, and how many of them this rank has."""
    whole = max(record.model_parameters, record.parameters)
    shard = f" ({record.parameters / 1e6:.1f} M of them here)" if record.parameters < whole else ""
    return f"{whole / 1e6:.1f} M parameters{shard}"


def _waits(run: Path, record: Record, times: KernelTimes) -> None:
    """Which calls computing waits for, how long of a step, and what would hide them."""
    with (run / "collectives.csv").open(newline="", encoding="utf-8") as file:
        took_us = durations(record, csv.DictReader(file))
    found = totals(waits(record, times, took_us))
    if not found:
        return
    say(f"computing waits, of a step of rank {record.rank}:")
    say(f"{'exposed ms':>10} {'calls':>6}  {'call':<15} {'MB':>8}  {'made in':<32} what would hide it")
    for one, count in found[:MOST_WAITS]:
        say(
            f"{one.exposed_us / 1e3:>10.3f} {count:>6}  {one.op:<15} {one.bytes / 1e6:>8.2f}  "
            f"{one.module or one.group:<32} {one.hidden_by}"
        )
    rest = found[MOST_WAITS:]
    if rest:
        say(f"{sum(one.exposed_us for one, _ in rest) / 1e3:>10.3f} {sum(n for _, n in rest):>6}  others")


def _table(record: Record, times: KernelTimes) -> None:
    say(f"{'stream':>6}  {'operation':<16} {'bytes':>12} {'us':>10}  of")
    for stream, what, detail, size, us in rows_of(record, times):
        say(
            f"{stream:>6}  {what:<16} {size:>12} {us:>10.1f}  {detail}"
            if us
            else f"{stream:>6}  {what:<16} {size:>12} {'':>10}  {detail}"
        )
