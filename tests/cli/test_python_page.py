"""Does what the pages on Python show work as it stands there?"""

import contextlib
import io
import os
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BLOCKS = [
    (page, block)
    for page in ("open.md", "python.md", "program.md")
    for block in re.findall(
        r"```python\n(.*?)```", (ROOT / "docs" / page).read_text(encoding="utf-8"), re.DOTALL
    )
]


@pytest.mark.parametrize(
    ("page", "block"),
    BLOCKS,
    ids=["posts", "bytes", "a scheduler", "a run", "many runs", "step by step", "a program"],
)
def test_an_example_runs_and_prints(page: str, block: str) -> None:
    printed = io.StringIO()
    before = Path.cwd()
    os.chdir(ROOT)
    try:
        with contextlib.redirect_stdout(printed):
            exec(compile(block, f"docs/{page}", "exec"), {})
    finally:
        os.chdir(before)
    lines = printed.getvalue().splitlines()
    assert re.fullmatch(r".*[0-9a-f]{64}.*", lines[-1])
    assert len(lines) >= 2
