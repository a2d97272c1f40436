"""`emu fault`: break a live run, mend it, and ask what is broken."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import click

from emu.base.errors import UsageError
from emu.base.spelling import did_you_mean
from emu.base.units import aligned, shown_time
from emu.engine.live.control_socket import ask
from emu.scenario.set_options import parse_override
from emu.terminal.columns import say

RUN = click.argument("run", metavar="RUN", type=click.Path(path_type=Path))


@click.group(name="fault")
def command() -> None:
    """Break and mend the live run in directory RUN, which `emu up` printed."""


@command.command("kinds")
@click.argument("kind", required=False)
def kinds(kind: str | None) -> None:
    """List the kinds of fault and what to expect of each; of one KIND, the keys that it takes."""
    from emu.scenario.faults.kinds import FAULTS  # noqa: PLC0415 - whoever breaks a run need not know them

    known: dict[str, Any] = dict(FAULTS.table)
    if kind is None:
        rows = [(name, str(one.target_kind), str(one.effect)) for name, one in sorted(known.items())]
        for line in aligned([("kind", "hits", "expected effect"), *rows], indent="", left=3):
            say(line)
    elif kind not in known:
        raise UsageError(f"there is no kind {kind!r}{did_you_mean(kind, known)}")
    else:
        from emu.scenario.reference import plain_rows  # noqa: PLC0415 - the whole schema

        say(f"{kind}: {_first_line(known[kind])} Expected: {known[kind].effect}.")
        keys = [row for row in plain_rows(known[kind]) if row[0] not in ("kind", "at")]
        for line in aligned([("key", "takes", "default", ""), *keys], left=4):
            say(line)


def _first_line(section: type) -> str:
    return (section.__doc__ or "").strip().splitlines()[0]


EXAMPLES: Final = """\b
Examples:
  emu fault inject runs/quickstart-1 link_down rtsw-0:ctsw-3 for=200us
  emu fault inject runs/quickstart-1 link_down "busiest uplink" for=200us
"""


@command.command("inject", epilog=EXAMPLES)
@RUN
@click.argument("kind")
@click.argument("words", metavar="[TARGET] [KEY=VALUE]...", nargs=-1)
def inject(run: Path, kind: str, words: tuple[str, ...]) -> int:
    """Break something now: a fault of KIND, with the keys of a scenario (`emu fault kinds`)."""
    fault: dict[str, Any] = {"kind": kind}
    for word in words:
        if "=" in word:
            override = parse_override(word, f"emu fault inject {word}")
            fault[str(override.path[0])] = override.value.plain()
        elif "target" not in fault:
            fault["target"] = word
        else:
            raise UsageError(f"{word!r} is not understood; accepted: KEY=VALUE, like for=200us")
    answer = ask(run, {"do": "inject", "fault": fault})
    click.echo(f"fault {answer['fault']}: {kind} at {shown_time(answer['at_ps'])}")
    return 0


@command.command("clear")
@RUN
@click.argument("number", metavar="FAULT", type=click.IntRange(0))
def clear(run: Path, number: int) -> int:
    """End fault number FAULT, which lasts, now."""
    answer = ask(run, {"do": "clear", "fault": number})
    click.echo(f"fault {answer['fault']}: cleared at {shown_time(answer['at_ps'])}")
    return 0


@command.command("list")
@RUN
def listing(run: Path) -> int:
    """List the faults of the run, scripted and injected."""
    answer = ask(run, {"do": "list"})
    columns = ("fault", "kind", "target", "at", "until", "state")
    rows = [[str(row[name]) for name in columns] for row in answer["faults"]]
    for line in aligned([columns, *rows], indent="", left=3):
        say(line)
    click.echo(f"virtual time {shown_time(answer['virtual_ps'])}")
    return 0
