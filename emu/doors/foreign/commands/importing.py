"""`emu import`: a scenario from files of other tools."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Final

import click

from emu.base import doors
from emu.base.errors import QuantityError, RuntimeFailure, ScenarioError, UsageError
from emu.base.units import parse_rate
from emu.doors.foreign.importing import Wish, imported
from emu.preparing import prepare
from emu.scenario.load import load_text, read_file
from emu.scenario.plugins import VARIABLE

LONGEST_NAME: Final = 40
MOST_CHECKED: Final = 4096
"""Ranks of a job that is fitted to its fabric before it is written: more of them take minutes."""


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...", type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="Where to; `-`: standard output. Default: FILE.yaml, here.",
)
@click.option(
    "--hosts", type=click.IntRange(1, 4096), default=2, help="Servers, where no file says how many."
)
@click.option("--rate", default="400G", help="Rate of a NIC where no file says it.")
@click.option("--config", default="", metavar="NAME", help="Function of a Python configuration.")
@click.option("--plugins", is_flag=True, envvar=VARIABLE, help="Use readers that other packages add.")
def command(
    files: tuple[Path, ...], output: Path | None, hosts: int, rate: str, config: str, plugins: bool
) -> None:
    """Write a scenario from files of other tools, with comments, to read and edit.

    A FILE is an edge list of ns-3's RDMA simulators or of SimAI, a topology of htsim or containerlab, a
    flow file of HPCC, a CSV of flows, a connection matrix of htsim, requests of Azure, Mooncake or vidur, a
    workload text of SimAI, a Chakra trace (and the JSON of its groups), a trace of torch.profiler (one
    rank's or several), a dump of PyTorch's flight recorder, a script that sets NCCL's variables or has
    Megatron's arguments, a TOML or Python configuration of torchtitan, a log of NCCL (NCCL_DEBUG=INFO),
    the topology of a server by NCCL (NCCL_TOPO_DUMP_FILE), or an algorithm of MSCCL (XML). Several go
    together: a fabric, jobs, variables. No file is replaced. What is written has been validated.
    """
    try:
        rate_bps = parse_rate(rate)
    except QuantityError as error:
        raise UsageError(f"--rate: {error}") from error
    prints = output == Path("-")
    target = output or Path(f"{files[0].stem}.yaml")
    directory = Path() if prints else target.parent
    if not prints and target.exists():
        raise UsageError(f"{target}: exists and is not replaced; accepted: the name of a new file")
    stem = "".join(sign if sign.isascii() and sign.isalnum() else "_" for sign in files[0].stem)
    name = stem.strip("_").lower() or "imported"
    wish = Wish((name if name[0].isalpha() else f"of_{name}")[:LONGEST_NAME], hosts, rate_bps, config)
    found = imported(files, directory, wish, read_file, *readers(plugins=plugins))
    unwritten = f"{target} (not written)"
    try:
        loaded = load_text(found.text, unwritten, directory)
        notes = loaded.notes
        if all(_count(job.ranks) <= MOST_CHECKED for job in loaded.scenario.jobs):
            notes = prepare(loaded).notes
        else:
            notes += (f"jobs of more than {MOST_CHECKED} ranks are not fitted here: see emu validate",)
    except ScenarioError as error:
        raise found.located(error, unwritten) from error
    if prints:
        click.echo(found.text, nl=False)
        return
    try:
        with target.open("x", encoding="utf-8") as opened:
            opened.write(found.text)
    except OSError as error:
        raise UsageError(f"{target}: cannot be written: {error.strerror}") from error
    for note in notes:
        click.echo(f"note: {note}", err=True)
    click.echo(f"written: {target}")
    click.echo(f"edit it, then: emu run {shlex.quote(str(target))}")


def _count(ranks: object) -> int:
    return ranks if isinstance(ranks, int) else 0


def readers(*, plugins: bool) -> tuple[list[doors.FileReader], str]:
    """The readers of emu's doors and, if wanted, of other packages; what those read, or would, in words."""
    found, added = doors.own_readers(), ""
    for one in doors.names("reader").values():
        if not plugins:
            added += f"; or, with --plugins, what {one.package} reads"
            continue
        reader = doors.loaded(one)
        if not isinstance(reader, doors.FileReader):
            kind = type(reader).__name__
            raise RuntimeFailure(f"{one} is a {kind}; accepted: an emu.base.doors.FileReader")
        found.append(reader)
        added += f"; or {reader.what} ({one.package})"
    return found, added
