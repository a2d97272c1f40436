"""`emu new`: a scenario of one's own, copied from a shipped one."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import click
import yaml

import emu.doors.pytorch
from emu.base.errors import UsageError
from emu.base.shipped import SCENARIO_SUFFIX, scenario_names
from emu.terminal.scenario_options import no_such_scenario

TORCH: Final = "torch"
SCRIPT: Final = Path(emu.doors.pytorch.__file__).with_name("small_gpt.py")
RANK_TRACE: Final = re.compile(r"\.[0-9]+\.et$")


@click.command()
@click.argument("name")
@click.argument("file", type=click.Path(path_type=Path), required=False)
def command(name: str, file: Path | None) -> None:
    """Copy the scenario NAME to FILE (default: its own name, here), to edit it.

    The files that it reads (tables, topologies, traces) are copied beside it, and a variant comes with the
    file that it is in. NAME `torch` is a training script for `emu torchrun`. No file is replaced.
    """
    if name == TORCH:
        target = file or Path(SCRIPT.name)
        target = target / SCRIPT.name if target.is_dir() else target
        _write({target: SCRIPT.read_bytes()})
        click.echo(f"edit it, then: emu torchrun --ranks 16 {shlex.quote(str(target))}")
        return
    source, variant = scenario_names().get(name, (None, ""))
    if source is None:
        raise no_such_scenario(name)
    target = file or Path(source.name)
    if target.is_dir():
        target /= source.name
    copies = {target: source.read_bytes()}
    for path in _read_by(source):
        beside = target.parent / path.name
        content = path.read_bytes()
        if not (beside.is_file() and beside.read_bytes() == content):
            copies[beside] = content
    _write(copies)
    chosen = f" --variant {variant}" if variant else ""
    click.echo(f"edit it, then: emu run {shlex.quote(str(target))}{chosen}")


def _write(copies: Mapping[Path, bytes]) -> None:
    """Write new files, or none."""
    for path in copies:
        if path.exists():
            raise UsageError(f"{path}: exists and is not replaced; accepted: the name of a new file")
    for path, content in copies.items():
        try:
            with path.open("xb") as opened:
                opened.write(content)
        except OSError as error:
            raise UsageError(f"{path}: cannot be written: {error.strerror}") from error
        click.echo(f"written: {path}")


def _read_by(scenario: Path) -> list[Path]:
    """The files beside a scenario that stand in it as values: `table.csv`, or `trace` for `trace.RANK.et`."""
    texts = set(_texts(yaml.safe_load(scenario.read_text("utf-8"))))
    here = sorted(path for path in scenario.parent.iterdir() if path.suffix != SCENARIO_SUFFIX)
    return [path for path in here if {path.name, RANK_TRACE.sub("", path.name)} & texts]


def _texts(value: Any) -> Iterator[str]:
    """Every text in a document."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, below in value.items():
            yield from _texts(key)
            yield from _texts(below)
    elif isinstance(value, list):
        for below in value:
            yield from _texts(below)
