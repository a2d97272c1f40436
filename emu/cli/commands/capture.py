"""`emu capture`: write what passes ports of a live run into a file for Wireshark."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Final

import click

from emu.base.errors import UsageError
from emu.base.units import shown_time
from emu.engine.live.control_socket import ask
from emu.run_directory.run_directory import capture_name
from emu.scenario.set_options import parse_override

EXAMPLES: Final = """\b
Examples:
  emu capture runs/quickstart-1 nic-0-0 for=50us
  emu capture runs/quickstart-1 "rtsw-0:ctsw-*" for=1ms \\
      snap_length=128B filter.kinds=[nak,cnp,pfc]
"""
LOOK_S: Final = 0.1


@click.command(epilog=EXAMPLES)
@click.argument("run", metavar="RUN", type=click.Path(path_type=Path))
@click.argument("words", metavar="PORTS... [KEY=VALUE]...", nargs=-1, required=True)
def command(run: Path, words: tuple[str, ...]) -> int:
    """Capture from now on at PORTS of the live run in directory RUN, which `emu up` printed.

    PORTS and keys are those of an entry of `run.capture`. With `for` the command waits for the file, which
    is written at the first sample after the span; without, the capture and the run end together.
    """
    entry: dict[str, Any] = {"ports": [word for word in words if "=" not in word]}
    for word in words:
        if "=" in word:
            override = parse_override(word, f"emu capture {word}")
            *sections, key = map(str, override.path)
            at = entry
            for section in sections:
                at = at.setdefault(section, {})
            at[key] = override.value.plain()
    answer = ask(run, {"do": "capture", "capture": entry})
    path = run / capture_name(answer["capture"])
    click.echo(f"capture {answer['capture']}: from {shown_time(answer['at_ps'])}: {path}")
    if "for" in entry:
        _wait_for(path, run)
    return 0


def _wait_for(path: Path, run: Path) -> None:
    """Until a file is there. Raises UsageError where the run ended without it."""
    while not path.is_file():
        time.sleep(LOOK_S)
        try:
            ask(run, {"do": "list"})
        except UsageError:
            if not path.is_file():
                raise UsageError(f"{run}: the run has ended; its results have the capture") from None
