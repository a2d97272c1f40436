"""`emu accept`: published acceptance tests on an emulated fabric."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import click

from emu.base.errors import UsageError
from emu.base.spelling import did_you_mean
from emu.base.units import parse_rate, parse_time
from emu.doors.accept import bmwg, sonic
from emu.doors.accept.answers import Answer, compared, text_of, write
from emu.doors.accept.bench import TOPOLOGIES, Scale, Site
from emu.many_runs import Machines
from emu.terminal.columns import say
from emu.terminal.run_options import side_by_side
from emu.terminal.terminal import Paced

EXAMPLES: Final = """\b
Examples:
  emu accept sonic --config-db scenarios/switch/sonic_config_db.json
  emu accept bmwg --tests '4.*,5.1' --topology A --out clos
  emu accept --compare clos rails
"""


@click.group(invoke_without_command=True, epilog=EXAMPLES)
@click.option(
    "--compare",
    "pair",
    nargs=2,
    type=click.Path(path_type=Path),
    metavar="A B",
    help="Print two answers of one suite side by side.",
)
@click.pass_context
def command(context: click.Context, pair: tuple[Path, Path] | None) -> None:
    """Run a published acceptance suite on an emulated fabric: an answer for each test, in one report."""
    if context.invoked_subcommand is not None:
        return
    if pair is None:
        raise UsageError("emu accept takes a suite; accepted: sonic, bmwg, or --compare A B")
    say("\n".join(compared(*pair)))


Tell = Callable[[str], None]
_out = click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    help="Write report.html, answers.json, junit.xml.",
)
_quiet = click.option("--quiet", is_flag=True, help="Print no progress on standard error.")


def _status(answers: Sequence[Answer]) -> int:
    return int(any(one.verdict == "FAIL" for one in answers))


@command.command("sonic")
@click.option(
    "--config-db",
    "files",
    type=click.Path(path_type=Path),
    multiple=True,
    required=True,
    metavar="FILE",
    help="A box's config_db.json. Can be repeated.",
)
@click.option("--tests", default="", metavar="TC2,...", help="Only these test cases.")
@click.option(
    "--topology",
    type=click.Choice(["star", "clos"]),
    default="star",
    help="One switch, or two leaves and four spines  [star].",
)
@click.option(
    "--link", default=None, metavar="RATE", help="Rate of the ports  [what most ports of the file have]."
)
@side_by_side
@_out
@_quiet
def of_sonic(
    files: tuple[Path, ...],
    tests: str,
    topology: sonic.Topology,
    link: str | None,
    machines: Machines,
    out: Path | None,
    quiet: bool,
) -> int:
    """Run test cases 1 to 7 of SONiC's RoCEv2 plan on the configuration of a box.

    Exit status: 1 if a test fails, else 0.
    """
    wanted = [one.strip().upper() for one in tests.split(",") if one.strip()]
    for one in wanted:
        if one not in sonic.names():
            hint = did_you_mean(one, sonic.names()) or f"; accepted: {', '.join(sonic.names())}"
            raise UsageError(f"--tests: there is no test case {one!r}{hint}")
    rate_bps = parse_rate(link) if link else None
    if rate_bps == 0:
        raise UsageError(f"--link {link}: no frame would leave; accepted: a rate above 0, like 400G")
    boxes = [sonic.box_of(file, rate_bps) for file in files]
    status = 0
    for number, box in enumerate(boxes):
        answers = sonic.answer(box, wanted, machines, Paced(quiet), topology)
        lines = sonic.about(box)
        say("\n".join([*([""] if number else []), *lines, "", *text_of(answers)]))
        if out is not None:
            place = out if len(boxes) == 1 else out / box.file.stem
            sections = [("Device under test", lines), ("Results", ["Criteria are the plan's own."])]
            for path in write(place, "sonic", f"RoCEv2 test plan: {box.file.name}", answers, sections):
                click.echo(f"written: {path}", err=True)
        status = max(status, _status(answers))
    return status


@command.command("bmwg")
@click.option(
    "--tests", default="", metavar="1.1,4.*", help="Only these tests; those of inference begin with i."
)
@click.option(
    "--topology", type=click.Choice(list(TOPOLOGIES)), help="Two-tier Clos, three tiers, rails  [A]."
)
@click.option(
    "--fabric", default="", metavar="FILE", help="The fabric of a scenario, in place of --topology."
)
@click.option("--scale", type=click.Choice(["small", "draft"]), default="small", help="Sizes  [small].")
@click.option(
    "--trials",
    type=click.IntRange(1, 1000),
    metavar="N",
    help="Seeds of a test in which something is drawn  [3; draft: 5].",
)
@click.option(
    "--longest",
    default="10min",
    metavar="TIME",
    help="Leave out a run that is estimated to take longer  [10min].",
)
@side_by_side
@_out
@_quiet
def of_bmwg(
    tests: str,
    topology: str | None,
    fabric: str,
    scale: Scale,
    trials: int | None,
    longest: str,
    machines: Machines,
    out: Path | None,
    quiet: bool,
) -> int:
    """Run the AI-fabric benchmarks proposed to the IETF's BMWG, and report by the drafts' ten sections.

    Exit status: 1 if a job did not end or frames were lost where none may be, else 0.
    """
    if topology is not None and fabric:
        raise UsageError("--topology and --fabric are two fabrics; accepted: one of them")
    chosen = bmwg.chosen(tests)
    site = Site("" if fabric else topology or "A", fabric, scale, parse_time(longest) / 1e12)
    equal = {key: value for key, value in bmwg.comparability(site).items() if key in bmwg.EQUAL}
    answers = bmwg.answer(site, chosen, machines, Paced(quiet), trials or 0)
    sections = bmwg.sections(site, answers)
    say("\n".join(text_of(answers)))
    if out is not None:
        title = f"AI fabric benchmarks: {fabric or f'topology {site.topology}, {scale}'}"
        for path in write(out, "bmwg", title, answers, sections, equal):
            click.echo(f"written: {path}", err=True)
    return _status(answers)
