"""Does what the page on the Python API shows work as it stands there?"""

import contextlib
import io
import os
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BLOCKS = re.findall(
    r"```python\n(.*?)```", (ROOT / "docs" / "python.md").read_text(encoding="utf-8"), re.DOTALL
)


@pytest.mark.parametrize("block", BLOCKS, ids=["a run", "step by step"])
def test_an_example_runs_and_prints(block: str) -> None:
    printed = io.StringIO()
    before = Path.cwd()
    os.chdir(ROOT)
    try:
        with contextlib.redirect_stdout(printed):
            exec(compile(block, "docs/python.md", "exec"), {})
    finally:
        os.chdir(before)
    lines = printed.getvalue().splitlines()
    assert re.fullmatch(r".*[0-9a-f]{64}.*", lines[-1])
    assert len(lines) >= 2
