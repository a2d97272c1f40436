"""What does the `emu` command say, and how does it end?"""

import pytest

from emu.cli.main import main

Captured = pytest.CaptureFixture[str]


def reported(capsys: Captured, *arguments: str) -> tuple[int, list[str], list[str]]:
    """Exit status, lines of standard output, lines of standard error."""
    status = main(arguments)
    out, err = capsys.readouterr()
    return status, out.splitlines(), err.splitlines()
