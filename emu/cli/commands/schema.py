"""`emu schema`: JSON Schema of a scenario, of a campaign, of a job mix, and of a summary."""

from __future__ import annotations

import json
from typing import Final

import click

EXAMPLE: Final = """\b
With yaml-language-server, this line on top of a scenario completes keys:
  # yaml-language-server: $schema=scenario.schema.json
"""


@click.command(epilog=EXAMPLE)
@click.argument(
    "subject", type=click.Choice(["scenario", "campaign", "schedule", "summary"]), default="scenario"
)
@click.option("--markdown", is_flag=True, help="Print the reference of its keys as a page instead.")
def command(subject: str, markdown: bool) -> None:
    """Print a JSON Schema, for editors and for checking results."""
    if subject == "summary":
        if markdown:
            raise click.UsageError("--markdown is for files that people write")
        from emu.results.summary import json_schema as summary_schema  # noqa: PLC0415 - one of several subjects

        click.echo(json.dumps(summary_schema(), indent=2))
        return
    from emu.doors.weeks.job_mix import JobMix  # noqa: PLC0415 - as above
    from emu.doors.weeks.sections import Campaign  # noqa: PLC0415 - as above
    from emu.scenario.reference import json_schema, markdown_tables  # noqa: PLC0415 - as above
    from emu.scenario.schema import Scenario  # noqa: PLC0415 - as above
    from emu.scenario.section import Section  # noqa: PLC0415 - as above

    models: dict[str, type[Section]] = {
        "scenario": Scenario,
        "campaign": Campaign,
        "schedule": JobMix,
    }
    model = models[subject]
    click.echo(
        markdown_tables(model) if markdown else json.dumps(json_schema(model), indent=2), nl=not markdown
    )
