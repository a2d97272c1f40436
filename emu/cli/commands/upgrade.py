"""`emu upgrade`: bring scenarios, rules, dashboards and plug-ins of the last release to today's spelling."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from emu.errors import ScenarioError
from emu.scenario.load import load_text
from emu.units import counted
from emu.upgrade.files import FileUpgrade, What, files_at, lines, upgrade_of, write

TO_DO_STATUS = 1


@click.command()
@click.argument("paths", nargs=-1, required=True, metavar="FILE|DIR...", type=click.Path(path_type=Path))
@click.option("--check", is_flag=True, help="Change nothing; exit status 1 if something would change.")
def command(paths: tuple[Path, ...], check: bool) -> int:
    """Rewrite what was written for emu 0.1.0 in today's spelling: keys and series of scenarios (comments are
    kept), names of series in Prometheus rules and Grafana dashboards, imports of plug-ins.

    Each change is a line on standard output; what has to be done by hand is a line on standard error. Exit
    status 1 if something is left to do, or, with --check, would change. A second time nothing changes.
    """
    looked_at = changed = left = 0
    for path in paths:
        for file in files_at(path):
            one = upgrade_of(file, asked_for=file == path)
            if one is None:
                continue
            looked_at += 1
            changed += one.changed
            for told in lines(file, one.upgraded.changes):
                click.echo(told)
            if one.changed and not check:
                write(one)
            for told in (*lines(file, one.upgraded.left), *_refused(one)):
                click.echo(f"by hand: {told}", err=True)
                left += 1
    verb = "would change" if check else "changed"
    click.echo(
        f"{counted(looked_at, 'file')} looked at, {changed} {verb}, {counted(left, 'thing')} to do by hand"
    )
    return TO_DO_STATUS if left or (check and changed) else 0


def _refused(one: FileUpgrade) -> Iterator[str]:
    """What today's schema still refuses of a scenario."""
    if one.what is not What.SCENARIO:
        return
    try:
        load_text(one.upgraded.text, str(one.path), one.path.parent)
    except ScenarioError as error:
        yield from map(str, error.problems)
