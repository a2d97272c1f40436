"""`emu schema`: JSON Schema of a scenario, and of a summary."""

from __future__ import annotations

import json
from typing import Final

import click

EXAMPLE: Final = """\b
With yaml-language-server, this line on top of a scenario completes keys:
  # yaml-language-server: $schema=scenario.schema.json
"""


@click.command(epilog=EXAMPLE)
@click.argument("subject", type=click.Choice(["scenario", "summary"]), default="scenario")
@click.option("--markdown", is_flag=True, help="Print the scenario's reference as a page instead.")
def command(subject: str, markdown: bool) -> None:
    """Print a JSON Schema, for editors and for checking results."""
    if subject == "summary":
        if markdown:
            raise click.UsageError("--markdown is for scenarios")
        from emu.results.summary import json_schema as summary_schema  # noqa: PLC0415 - one of two subjects

        click.echo(json.dumps(summary_schema(), indent=2))
        return
    from emu.scenario.reference import json_schema, markdown_tables  # noqa: PLC0415 - as above

    click.echo(markdown_tables() if markdown else json.dumps(json_schema(), indent=2), nl=not markdown)
