"""`emu lanes`: the flows of a lane, one a line."""

import click


@click.command()
@click.argument("ranks", type=click.IntRange(2, 1024))
@click.option("--shift", type=click.IntRange(1, 1023), default=1, help="Places between sender and receiver.")
def command(ranks: int, shift: int) -> None:
    """Print who sends to whom."""
    for rank in range(ranks):
        click.echo(f"{rank} -> {(rank + shift) % ranks}")
