"""`emu compile`: plug-ins compiled with the packet path."""

from __future__ import annotations

from pathlib import Path

import click

from actors.compiled.build import CannotCompileError, build, module_of, refuse_unless_possible
from emu.base.errors import RuntimeFailure, UsageError


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
def command(files: tuple[str, ...]) -> None:
    """Compile the packet path together with plug-ins: Python files with classes of your own.

    It takes a minute or more, and is needed again after an edit of a FILE or of emu: until then the plug-in
    runs interpreted, with the same answers. Name all plug-ins of a scenario at once. The newest three such
    builds are kept.
    """
    paths = [Path(file).resolve() for file in files]
    for file, path in zip(files, paths, strict=True):
        if path.suffix != ".py" or not path.is_file():
            raise UsageError(f"{file}: is no Python file; accepted: the file of a plug-in, such as timely.py")
        if not all(part.isidentifier() for part in module_of(path).split(".")):
            raise UsageError(
                f"{file}: no scenario can name {module_of(path)!r}; accepted: letters, digits and _"
            )
    root = Path(__file__).resolve().parents[2]
    try:
        refuse_unless_possible()
        made, new = build(root, paths)
    except (CannotCompileError, OSError) as error:
        raise RuntimeFailure(f"compile: {error}; plug-ins run interpreted, with the same answers") from error
    click.echo(f"compile: {', '.join(made.plugins)} {'compiled' if new else 'up to date'}")
