"""The `emu` command: from a command line to a subcommand and an exit status.

Subcommands are a table of names and one-line helps, so that `emu --help` imports none of them; each is a
click command called `command` in its own module. Exit status: 0 all expectations hold; 1 an expectation
failed; 2 bad input; 3 the fabric stalled or a collective timed out; 4 the runtime failed; 130 interrupted. An
`EmuError` is reported on standard error, one line per problem, with its own status; anything else unexpected
keeps its traceback and is a failure of the runtime.
"""

from __future__ import annotations

import errno
import gc
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Final

import click

import emu
from emu.base.errors import INTERRUPTED_STATUS, EmuError, RuntimeFailure
from emu.base.shipped import commit
from emu.cli.core_commands import CORE, GROUPS
from emu.terminal.columns import say_whole

LOOKING: Final = ("report", "plot", "compare", "cross", "export", "top")
"""Subcommands that show a run: in `emu.cli.commands.look`."""
ELSEWHERE: Final = {
    "compile": "emu.cli.plugin_compile",
    **{name: f"emu.cli.commands.look.{name}" for name in LOOKING},
}
"""Subcommands whose module is not `emu.cli.commands.NAME`."""
FOREIGN: Final = "Of other packages"

BAD_INPUT_STATUS: Final = 2
YOUNG: Final = 250_000
"""The collector looks once so many objects are new, some 50 MiB. Nearly all that a command makes stays: to
look at each 700 of them, as Python does, costs a short command a tenth of its time."""
_FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""Errors of a disk or device that takes no more."""
BROKEN_PIPE_STATUS: Final = 141
"""What a shell reports of a command that SIGPIPE ended."""


def grouped() -> dict[str, dict[str, str]]:
    """Heading -> subcommand -> what it does: emu's own, its doors', other packages'."""
    from emu.base import doors  # noqa: PLC0415 - no run needs them

    groups = {heading: dict(group) for heading, group in GROUPS.items()}
    for name, one in doors.own_commands().items():
        groups.setdefault(one.heading, {})[name] = one.said
    taken = [name for group in groups.values() for name in group]
    theirs = {name: f"Added by {one.package}." for name, one in doors.names("command", taken).items()}
    return groups | ({FOREIGN: theirs} if theirs else {})


def commands() -> dict[str, str]:
    """Subcommand -> what it does, of all groups."""
    return {name: said for group in grouped().values() for name, said in group.items()}


def _found(name: str) -> object:
    """What a subcommand's name stands for; None for no subcommand. Others' names are read last."""
    if name in CORE:
        return import_module(ELSEWHERE.get(name, f"emu.cli.commands.{name}")).command
    from emu.base import doors  # noqa: PLC0415 - a command of the core needs none

    own = doors.own_commands().get(name)
    if own is not None:
        return doors.attribute(own.place)
    theirs = doors.named("command", name)
    if theirs is None:
        return None
    found = doors.loaded(theirs)
    if not isinstance(found, click.Command):
        raise RuntimeFailure(f"{theirs} is a {type(found).__name__}; accepted: a click.Command")
    return found


class _Commands(click.Group):
    """A group whose members are imported when they are asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(commands())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        found = _found(cmd_name)
        if found is None:
            return None
        assert isinstance(found, click.Command), found
        if not gc.isenabled():  # in the command itself, not under a test
            gc.freeze()
            gc.set_threshold(YOUNG, *gc.get_threshold()[1:])
            gc.enable()
        _hear_signals()
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and args[0] not in CORE and _found(args[0]) is None:
            from emu.base.spelling import did_you_mean  # noqa: PLC0415 - only for a mistake

            raise click.UsageError(f"there is no command {args[0]!r}{did_you_mean(args[0], commands())}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        del ctx
        groups = grouped()
        width = max(len(name) for group in groups.values() for name in group)
        for heading, group in groups.items():
            with formatter.section(heading):
                formatter.write_dl([(name.ljust(width), said) for name, said in group.items()])


def _print_version(ctx: click.Context, parameter: click.Parameter, value: bool) -> None:
    del parameter
    if value and not ctx.resilient_parsing:
        known = commit()
        at = f" ({known})" if known else ""
        click.echo(f"emu {emu.__version__}{at}, {emu.compiled_state()}")
        ctx.exit()


@click.group(
    cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Print version, commit, and whether the packet path is compiled.",
)
def cli() -> None:
    """Emulate the RoCE fabrics that train large models.

    Start with `emu run quickstart`; `emu list` has more, and `emu new NAME` copies one to edit.
    """


def _hear_signals() -> None:
    """Let Ctrl-C and SIGTERM raise KeyboardInterrupt from now on, once a command is imported."""
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is emu.leave_at_once:
            signal.signal(number, signal.default_int_handler)


def _on_one_line(error: click.ClickException) -> str:
    """What is wrong with a command line, and where one finds out what would be right."""
    message = " ".join(error.format_message().split())
    context = getattr(error, "ctx", None)
    path = "emu" if context is None else context.command_path
    return f"{message.removesuffix('.')}; see `{path} --help`"


def _damage(arguments: Sequence[str]) -> str:
    """The first damaged file of the run directories among a command's arguments; empty if there is none."""
    given = [Path(one) for one in arguments]
    runs = [one for one in given if (one / "journal.jsonl").is_file() or (one / "summary.json").is_file()]
    if not runs:
        return ""
    from emu.damage import damage_of  # noqa: PLC0415 - only for what went wrong

    return next(filter(None, map(damage_of, runs)), "")


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line says; returns the exit status."""
    try:
        result = cli.main(args=arguments, prog_name="emu", standalone_mode=False)
    except EmuError as error:
        for line in str(error).splitlines():
            say_whole(f"emu: {line}", err=True)
        return error.exit_status
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return error.exit_code
    except click.ClickException as error:
        say_whole(f"emu: {_on_one_line(error)}", err=True)
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("emu: interrupted", err=True)
        return INTERRUPTED_STATUS
    except OSError as error:
        place = error.filename or ("standard output" if error.errno in _FULL else "")
        if not place:
            raise
        say_whole(f"emu: {place}: {error.strerror}", err=True)
        return EmuError.exit_status
    except Exception as error:
        line = _damage(sys.argv[1:] if arguments is None else arguments)
        if not line:
            raise
        say_whole(f"emu: {line} ({type(error).__name__})", err=True)
        return BAD_INPUT_STATUS
    except SystemExit as error:
        *_, last = traceback.extract_tb(error.__traceback__)
        if Path(last.filename).parent.name == "click":
            # Its answer to a reader that went away, with a status that means a failed expectation here.
            return BROKEN_PIPE_STATUS
        called = f"{last.filename}:{last.lineno}: `{last.name}` called sys.exit({error.code!r})"
        say_whole(f"emu: {called}", err=True)
        return EmuError.exit_status
    return result if isinstance(result, int) else 0


def command_line() -> None:
    """The `emu` command: do it, and leave.

    Nothing is left to be done at exit, and freeing a large fabric piece by piece would take seconds that a
    user waits for after Ctrl-C. Ray, which was shut down, may crash while the interpreter ends. SIGTERM ends
    a command as Ctrl-C does, wherever it is; a run notes both and ends in order. While modules are imported
    both end it at once (`emu.leave_at_once`).
    """
    try:
        status = main()
    except Exception:  # noqa: BLE001  its traceback is all there is to tell
        traceback.print_exc()
        status = EmuError.exit_status
    with suppress(BrokenPipeError):
        try:
            sys.stdout.flush()
        except OSError as error:
            if error.errno not in _FULL:
                raise
            sys.stderr.write(f"emu: standard output: {error.strerror}\n")
            status = EmuError.exit_status
        sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    command_line()
