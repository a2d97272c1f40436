"""`emu docs`: a page of the documentation."""

from __future__ import annotations

import sys

import click

from emu.base.errors import UsageError
from emu.base.shipped import folder
from emu.base.spelling import did_you_mean


@click.command()
@click.argument("page", required=False)
def command(page: str | None) -> None:
    """Show PAGE of the documentation, or the list of pages.

    The pages are those of this version. On a terminal they are laid out; into a
    file or a pipe they are Markdown.
    """
    pages = {path.stem: path for path in sorted(folder("docs").glob("*.md"))}
    if page is None:
        width = max(map(len, pages))
        for name, path in pages.items():
            title = path.read_text("utf-8").partition("\n")[0].removeprefix("# ")
            click.echo(f"{name:<{width}}  {title}")
        return
    name = page.removeprefix("docs/").removesuffix(".md")
    if name not in pages:
        hint = did_you_mean(name, sorted(pages)) or "; `emu docs` lists them"
        raise UsageError(f"{page}: there is no such page{hint}")
    text = pages[name].read_text("utf-8").removesuffix("\n")
    if sys.stdout.isatty():
        from rich.console import Console  # noqa: PLC0415  only here
        from rich.markdown import Markdown  # noqa: PLC0415

        console = Console()
        with console.capture() as laid_out:
            console.print(Markdown(text, hyperlinks=False))
        text = laid_out.get()
    click.echo_via_pager(text)
