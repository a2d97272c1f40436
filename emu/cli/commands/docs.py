"""`emu docs`: a page of the documentation."""

from __future__ import annotations

import click

from emu.base.errors import UsageError
from emu.base.shipped import folder
from emu.base.spelling import did_you_mean


@click.command()
@click.argument("page", required=False)
def command(page: str | None) -> None:
    """Show PAGE of the documentation (Markdown), or the list of pages.

    The pages are those of this version, and come with it.
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
    click.echo_via_pager(pages[name].read_text("utf-8").removesuffix("\n"))
