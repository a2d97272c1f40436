"""`python -m emu`: the `emu` command."""

from emu.cli.main import command_line

if __name__ == "__main__":
    command_line()
