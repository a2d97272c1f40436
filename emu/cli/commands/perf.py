"""`emu perf`: one collective over a range of sizes, with the flags, columns and JSON of nccl-tests."""

from __future__ import annotations

import json
import os
import shlex
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

import click

import emu
from actors.fabric.model import Topology
from actors.ncclx.operations import OPERATIONS, REDUCING
from actors.wire.message import STATUS_SUCCESS
from emu.api import Prepared, prepare, run_prepared
from emu.base.errors import UsageError
from emu.base.shipped import scenario_named
from emu.engine.outcome import Ending, Observer, Progress, RunOptions
from emu.run_directory.run_directory import RunDirectory
from emu.scenario.load import Loaded, load, load_mapping
from emu.scenario.profiles import costs_line
from emu.scenario.set_options import Override, override_with, parse_override
from emu.summary.jobs import planned_bytes, status_name
from emu.summary.nccl_table import (
    WIDE,
    PerfConfig,
    PerfDevice,
    PerfRow,
    choice_line,
    footer,
    heading,
    json_value,
    line,
)
from emu.terminal.columns import known_columns, say_whole
from emu.terminal.machine_pace import costs
from emu.terminal.run_options import placed, result_of
from emu.terminal.scenario_options import forcing, overriding
from emu.terminal.terminal import TimeLeft
from emu.workload.perf_scan import REDUCTIONS, ROOTED, TYPES, ScanSize, fitted, parse_size, scan, which_test

FABRIC: Final[dict[str, object]] = {
    "name": "perf",
    "topology": {
        "kind": "megascale",
        "pods": 1,
        "blocks_per_pod": 1,
        "hosts_per_block": 8,
        "gpus_per_host": 8,
        "aggs_per_pod": 8,
        "link": "400G",
    },
}
"""Where it runs unless a scenario is given: 64 GPUs on eight servers, a leaf for each NIC of a server."""
_NCCL_NAMES: Final = {"tree": "double_binary_tree", "nvlstree": "nvls_tree"}
"""Algorithms whose names differ from ours."""

PASSED_OVER: Final = {
    "agg_iters": (1, "-m", "operations are not aggregated"),
    "run_cycles": (1, "-N", "one cycle is run: another would be the same"),
    "average": (1, "-a", "every rank is in one run: the time is from the first begin to the last end"),
    "parallel_init": (0, "-p", "a communicator is there from the beginning"),
    "blocking": (0, "-z", "an operation begins when the one before it has ended on every rank, as with -z 1"),
    "stream_null": (0, "-y", "streams are not told apart"),
    "timeout": (0, "-T", "use --set run.max_time=10s, in virtual time"),
    "cudagraph": (0, "-G", "graphs are not captured"),
    "report_cputime": (0, "-C", "the time is virtual"),
    "local_register": (0, "-R", "registration costs nothing"),
    "report_timestamps": (0, "-S", "times are virtual: a row has no date"),
    "memory_report": (0, "-M", "GPU memory is not counted"),
    "unalign": (0, "-u", "buffers are aligned"),
}
"""Flags of nccl-tests that are known and not modelled: their default, and what is so instead."""

CHECKED_TYPES: Final = {"float": "fp32", "bfloat16": "bf16", "int32": "int32"}
CHECKED_REDUCTIONS: Final = ("sum", "prod", "min", "max")
"""What `-c` can check."""

EXAMPLES: Final = """\b
Examples:
  emu perf all_reduce -b 8 -e 16M -f 2
  emu perf all_gather -b 1M -e 8M -f 2 --ranks 16 --algorithm ring
  emu perf reduce_scatter -b 4M -e 4M -J result.json \\
      --topology '{kind: star, hosts: 8}'
  emu perf all_reduce -b 64M -e 64M --scenario spray --workers 2
"""


@click.command(epilog=EXAMPLES)
@click.argument("test")
@click.option("-b", "--minbytes", default="32M", metavar="SIZE", help="Least size  [32M].")
@click.option("-e", "--maxbytes", default=None, metavar="SIZE", help="Greatest size  [32M, or -b].")
@click.option("-i", "--stepbytes", default="1M", metavar="SIZE", help="Step between sizes  [1M].")
@click.option(
    "-f", "--stepfactor", type=click.IntRange(1, 2**20), default=1, help="Factor instead of a step."
)
@click.option("-n", "--iters", type=click.IntRange(1, 10_000), default=1, help="Timed iterations  [1].")
@click.option("-w", "--warmup_iters", type=click.IntRange(0, 10_000), default=0, help="Before those  [0].")
@click.option("-g", "--ngpus", type=click.IntRange(1, 4096), help="GPUs of a thread.")
@click.option("-t", "--nthreads", type=click.IntRange(1, 4096), help="Threads of a process.")
@click.option("--np", "processes", type=click.IntRange(1, 65536), help="Processes, as mpirun starts them.")
@click.option("--ranks", type=click.IntRange(2, 2**20), help="Ranks at once, in place of np x t x g  [all].")
@click.option("-d", "--datatype", default="float", metavar="TYPE", help="Type of an element  [float].")
@click.option("-o", "--op", default="sum", metavar="OP", help="Reduction  [sum].")
@click.option("-r", "--root", type=click.IntRange(0, 2**20), default=0, help="Root of broadcast and reduce.")
@click.option(
    "-c", "--check", type=click.IntRange(0, 10_000), default=None, help="Check results on real bytes [0]."
)
@click.option("-J", "--output_file", type=click.Path(path_type=Path), help="Write JSON there.")
@click.option("--algorithm", default=None, metavar="NAME", help="ring, tree, nvls, ...  [auto].")
@click.option(
    "--protocol", type=click.Choice(["auto", "simple", "ll", "ll128"]), help="Protocol  [auto: the tuner's]."
)
@click.option("--channels", default=None, metavar="N", help="Channels  [auto: by NICs].")
@click.option("--scenario", metavar="FILE", help="The fabric and every knob, but its jobs, faults, expect.")
@click.option("--topology", metavar="KIND", help="Another fabric: a kind, or a mapping in YAML.")
@overriding
@placed
@click.option("--out", type=click.Path(path_type=Path), help="Keep the run there, as `emu run` does.")
@forcing
@click.option("--json", "as_json", is_flag=True, help="Print the JSON instead of the table.")
@click.option("-m", "--agg_iters", type=int, default=1, hidden=True)
@click.option("-N", "--run_cycles", type=int, default=1, hidden=True)
@click.option("-a", "--average", type=int, default=1, hidden=True)
@click.option("-p", "--parallel_init", type=int, default=0, hidden=True)
@click.option("-z", "--blocking", type=int, default=0, hidden=True)
@click.option("-y", "--stream_null", type=int, default=0, hidden=True)
@click.option("-T", "--timeout", type=int, default=0, hidden=True)
@click.option("-G", "--cudagraph", type=int, default=0, hidden=True)
@click.option("-C", "--report_cputime", type=int, default=0, hidden=True)
@click.option("-R", "--local_register", type=int, default=0, hidden=True)
@click.option("-S", "--report_timestamps", type=int, default=0, hidden=True)
@click.option("-M", "--memory_report", type=int, default=0, hidden=True)
@click.option("-u", "--unalign", type=int, default=0, hidden=True)
def command(
    test: str,
    minbytes: str,
    maxbytes: str | None,
    stepbytes: str,
    stepfactor: int,
    iters: int,
    warmup_iters: int,
    ngpus: int | None,
    nthreads: int | None,
    processes: int | None,
    ranks: int | None,
    datatype: str,
    op: str,
    root: int,
    check: int | None,
    output_file: Path | None,
    algorithm: str | None,
    protocol: str | None,
    channels: str | None,
    scenario: str | None,
    topology: str | None,
    assignments: tuple[str, ...],
    seed: str | None,
    variant: str,
    where: RunOptions,
    out: Path | None,
    force: bool,
    as_json: bool,
    **others: int,
) -> int:
    """Run one collective over a range of sizes: TEST is all_reduce, all_gather, reduce_scatter, ...

    Flags, columns and JSON keys are those of nccl-tests (all_reduce_perf and so on). Its other flags are
    accepted, and a message says what is used instead. Exit status as of `emu run`.
    """
    if ranks is not None and (ngpus, nthreads, processes) != (None, None, None):
        raise UsageError("--ranks stands for --np x -t x -g; accepted: one or the others")
    name, operation = which_test(test, OPERATIONS)
    for word, choices, flag in ((datatype, TYPES, "-d"), (op, REDUCTIONS, "-o")):
        if word not in choices:
            raise UsageError(f"{flag} {word!r} is not one of its names; accepted: {', '.join(choices)}")
    options = where._replace(metrics=False)
    asked = ranks
    if (ngpus, nthreads, processes) != (None, None, None):
        asked = (ngpus or 1) * (nthreads or 1) * (processes or 1)
    least = parse_size(minbytes, "-b")
    most = parse_size(maxbytes, "-e") if maxbytes is not None else max(least, parse_size("32M", "-e"))
    sizes = scan(least, most, parse_size(stepbytes, "-i"), stepfactor)
    if check and (datatype not in CHECKED_TYPES or op not in CHECKED_REDUCTIONS):
        accepted = f"-d {', '.join(CHECKED_TYPES)}; -o {', '.join(CHECKED_REDUCTIONS)}"
        raise UsageError(f"-c {check} does not know {datatype} and {op}; accepted: {accepted}")
    checked = (CHECKED_TYPES[datatype], op) if check else None
    job = _Job(operation, sizes, TYPES[datatype], iters, warmup_iters, asked, root, checked, algorithm)
    library = tuple(
        f"ncclx.{key}={value}"
        for key, value in (("protocol", protocol), ("channels", channels))
        if value is not None
    )
    prepared, rows = job.prepare(scenario, topology, (*assignments, *library), seed, variant)
    for one in _passed_over(others):
        click.echo(f"emu: {one}", err=True)
    config = PerfConfig(
        test=name,
        operation=operation,
        ranks=prepared.jobs[0].ranks,
        threads=nthreads or 1,
        gpus=ngpus or 1,
        least_bytes=least,
        most_bytes=most,
        step_bytes=parse_size(stepbytes, "-i"),
        factor=stepfactor,
        warmup=warmup_iters,
        iterations=iters,
        check=check or 0,
        type_name=datatype,
        reduction=op,
        root=root,
        version=emu.__version__,
    )
    return _Perf(config, prepared, rows, quiet=as_json).run(options, out, force, output_file, as_json)


def _passed_over(others: dict[str, int]) -> list[str]:
    """A line for each flag that is known and not modelled."""
    return [
        f"{flag} is known and not modelled: {instead}"
        for name, (default, flag, instead) in PASSED_OVER.items()
        if others[name] != default
    ]


class _Job:
    """What is to be run, as a scenario."""

    def __init__(
        self,
        operation: str,
        sizes: Sequence[int],
        element_bytes: int,
        iterations: int,
        warmup: int,
        ranks: int | None,
        root: int,
        checked: tuple[str, str] | None,
        algorithm: str | None,
    ) -> None:
        self._checked = checked
        self._algorithm = algorithm
        self._operation = operation
        self._sizes = sizes
        self._element_bytes = element_bytes
        self._iterations = iterations
        self._warmup = warmup
        self._ranks = ranks
        self._root = root

    def prepare(
        self,
        scenario: str | None,
        topology: str | None,
        assignments: Sequence[str],
        seed: str | None,
        variant: str,
    ) -> tuple[Prepared, list[ScanSize]]:
        """The run on its fabric, and the rows to be. How many ranks there are decides what sizes fit."""
        overrides = [parse_override(text) for text in assignments]
        if topology is not None:
            kind = topology if topology.lstrip().startswith("{") else f"{{kind: {topology}}}"
            overrides.insert(0, parse_override(f"topology={kind}", f"--topology {topology}"))
        if seed is not None:
            overrides.append(parse_override(f"seed={seed}", "--seed"))
        first = prepare(self._loaded(scenario, variant, [2**20], overrides))
        ranks = first.jobs[0].ranks
        rows = [fitted(self._operation, size, ranks, self._element_bytes) for size in self._sizes]
        run = list(dict.fromkeys(row.size_bytes for row in rows if row.size_bytes))
        if not run:
            least = 16 * ranks
            raise UsageError(f"no size has an element for each of {ranks} ranks; accepted: -e from {least}")
        return prepare(self._loaded(scenario, variant, run, overrides, ranks)), rows

    def _loaded(
        self,
        scenario: str | None,
        variant: str,
        sizes: Sequence[int],
        overrides: list[Override],
        ranks: int = 0,
    ) -> Loaded:
        """What is to be run; with all_to_allv, an exchange of equal parts as long as ranks are not known."""
        unequal = self._operation == "all_to_allv"
        workload: dict[str, object] = {
            "kind": "collective",
            "op": "all_to_all" if unequal and not ranks else self._operation,
            "sizes": [f"{size}B" for size in sizes],
            "iterations": self._iterations,
            "warmup": self._warmup,
        }
        if self._algorithm is not None:
            word = self._algorithm.lower()
            workload["algorithm"] = _NCCL_NAMES.get(word, self._algorithm)
        if unequal and ranks:
            workload["counts"] = [[1] * ranks]
        if self._operation in ROOTED and self._root:
            workload["root"] = self._root
        if self._checked is not None:
            workload["dtype"] = self._checked[0]
            if self._operation in REDUCING:
                workload["redop"] = self._checked[1]
            overrides = [*overrides, override_with("payload", "real", "-c")]
        jobs: list[object] = [{"name": "perf", "ranks": self._ranks or "all", "workload": workload}]
        if scenario is None:
            return load_mapping({**FABRIC, "jobs": jobs}, overrides=overrides, variant=variant)
        emptied = {"jobs": jobs, "faults": [], "expect": []}
        replaced = [override_with(key, value, "emu perf") for key, value in emptied.items()]
        path, named = scenario_named(scenario)
        return load(path, [*replaced, *overrides], variant or named)


class _Perf(Observer):
    """Prints the rows as their sizes are done."""

    def __init__(self, config: PerfConfig, prepared: Prepared, rows: list[ScanSize], quiet: bool) -> None:
        self._config = config
        self._prepared = prepared
        self._to_come = rows
        self._quiet = quiet
        self._narrow = 0 < known_columns() < WIDE
        self._size_of = {one.operation: one for one in prepared.jobs[0].collectives}
        self._plan_of = {one.size_bytes: one for one in prepared.jobs[0].collectives}
        self._chosen = ""
        self._times_ps: dict[int, list[int]] = {}
        self._seen: set[int] = set()
        self._wrong: dict[int, int] | None = None if config.check else {}
        """By size, elements that came out wrong; None while that is not known."""
        self._left = TimeLeft()
        self.rows: list[PerfRow] = []
        self.failures: list[str] = []

    def run(
        self, options: RunOptions, out: Path | None, force: bool, output_file: Path | None, as_json: bool
    ) -> int:
        """Run, print, write; returns the exit status."""
        begun = _now()
        devices = _devices(self._prepared.topology, self._prepared.resolved.jobs[0].gpus)
        self._say(heading(self._config, devices, narrow=self._narrow))
        for warning in costs(self._prepared):
            click.echo(f"emu: warning: {warning}", err=True)
        self._ready()
        if out is None:
            result = result_of(partial(run_prepared, self._prepared, options, self, diagnose=False))
        else:
            with RunDirectory.create(self._prepared.scenario.name, out, force=force) as directory:
                run = partial(run_prepared, self._prepared, options, self, directory, diagnose=False)
                result = result_of(run)
        self._wrong = {}
        for one in result.summary.jobs["perf"].collectives:
            if one.wrong is not None:
                self._wrong[one.bytes] = self._wrong.get(one.bytes, 0) + one.wrong
        for record in result.outcome.devices:
            self._take(record.results.get("operations", ()))
        if result.outcome.ending is not Ending.INTERRUPTED:
            self._say(footer(self._config, self.rows))
        job = result.summary.jobs["perf"]
        self._say([f"# {idle}" for idle in (job.idle_nics, job.idle_ports) if idle])
        self._say([f"# {costs_line(self._prepared.scenario)}"])
        if result.outcome.ending is not Ending.FINISHED or result.interrupted:
            self.failures.append(result.outcome.message or result.verdict)
        for failure in self.failures:
            click.echo(f"emu: {failure}", err=True)
        if output_file is not None or as_json:
            arguments = ["emu", *sys.argv[1:]]
            environment = [f"{key}={value}" for key, value in os.environ.items() if key.startswith("NCCL_")]
            value = json_value(
                self._config, devices, self.rows, arguments, environment, (begun, _now()), self.failures
            )
            text = json.dumps(value, indent=2) + "\n"
            if as_json:
                click.echo(text, nl=False)
            if output_file is not None:
                written = _write_new(output_file, text)
                self._say([f"# JSON written to {shlex.quote(str(written))}"])
        return result.exit_status

    def progressed(self, progress: Progress) -> None:
        """Print what is complete, and how long the rest will take."""
        self._take(progress.operations)
        if not self._quiet:
            self._left.show(progress.delivered_bytes, planned_bytes(self._prepared.jobs))

    def _take(self, operations: Sequence[Sequence[int]]) -> None:
        for _, operation, start_ps, end_ps, status in operations:
            if operation in self._seen:
                continue
            self._seen.add(operation)
            plan = self._size_of[operation]
            if status != STATUS_SUCCESS:
                self.failures.append(f"{plan.op} of {plan.size_bytes} bytes failed: {status_name(status)}")
            elif not plan.warmup:
                self._times_ps.setdefault(plan.size_bytes, []).append(end_ps - start_ps)
        self._ready()

    def _ready(self) -> None:
        """Print the next rows, as far as their iterations are done; a size of nothing takes no time."""
        wanted = self._config.iterations
        while self._to_come and self._wrong is not None:
            size = self._to_come[0]
            times_ps = self._times_ps.get(size.size_bytes, []) if size.size_bytes else [0] * wanted
            if len(times_ps) < wanted:
                return
            wrong = self._wrong.get(size.size_bytes)
            row = PerfRow(self._to_come.pop(0), sum(times_ps) // wanted, wanted, wrong)
            self.rows.append(row)
            self._say([*self._choice(size), line(self._config, row, narrow=self._narrow)])

    def _choice(self, size: ScanSize) -> list[str]:
        """How a size was done, where that is not how the one before it was."""
        plan = self._plan_of.get(size.size_bytes)
        if plan is None:
            return []
        said = choice_line(plan)
        before, self._chosen = self._chosen, said.partition(" -> ")[2]
        return [said] if self._chosen != before else []

    def _say(self, lines: Sequence[str]) -> None:
        self._left.clear()
        if lines and not self._quiet:
            say_whole("\n".join(lines))


def _devices(topology: Topology, gpus: Sequence[int]) -> list[PerfDevice]:
    """Every rank, its host, and which of the host's GPUs it has."""
    first: dict[int, int] = {}
    for gpu in topology.gpus:
        first.setdefault(topology.host_of(gpu), gpu)
    order = {gpu: place for place, gpu in enumerate(topology.gpus)}
    found = []
    for rank, gpu in enumerate(gpus):
        host = topology.host_of(gpu)
        found.append(PerfDevice(rank, topology.nodes[host].name, order[gpu] - order[first[host]]))
    return found


def _now() -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S")


def _write_new(path: Path, text: str) -> Path:
    """Write a file that is not there yet: PATH, else PATH.0, PATH.1 and so on, as nccl-tests does."""
    for attempt in range(-1, 10_000):
        found = path if attempt < 0 else path.with_name(f"{path.name}.{attempt}")
        try:
            with found.open("x", encoding="utf-8") as opened:
                opened.write(text)
        except FileExistsError:
            continue
        except OSError as error:
            raise UsageError(f"-J {path}: cannot be written: {error.strerror}") from error
        return found
    raise UsageError(f"-J {path}: ten thousand of them are there already; accepted: another name")
