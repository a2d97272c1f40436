"""Does the site have every page, and does it take nothing from elsewhere?"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.tidy.docs_site import plain
from tests.tidy.tracked import ROOT

SITE = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
FETCHED = re.compile(r"<(?:script|link|img|iframe|source)[^>]*(?:src|href)=.?(?:https?:)?//[^>]*>")


def pages(menu: Any) -> Iterator[str]:
    for entry in menu:
        if isinstance(entry, str):
            yield entry
        else:
            for below in entry.values():
                yield from pages(below)


def test_the_menu_has_every_page_once() -> None:
    listed = sorted(pages(SITE["nav"]))
    assert listed == sorted(["index.md", *(path.name for path in (ROOT / "docs").glob("*.md"))])


def test_fonts_are_those_of_the_reader_and_links_are_checked() -> None:
    assert SITE["theme"]["font"] is False
    assert SITE["strict"] is True


def test_what_builds_the_site_is_pinned() -> None:
    lines = (ROOT / "constraints-docs.txt").read_text(encoding="utf-8").splitlines()
    assert lines == sorted(lines, key=str.lower)
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[0-9.]+", line) for line in lines)
    assert "mkdocs-material" in {line.partition("==")[0] for line in lines}


def test_links_to_files_beside_the_pages_become_their_names() -> None:
    text = "[a](../deploy/README.md), [b](nic.md#counters), [c](#here), [d](scenarios/start), [e](x.png)"
    expected = "a (`deploy/README.md`), [b](nic.md#counters), [c](#here), d (`scenarios/start`), [e](x.png)"
    assert plain(text) == expected


@pytest.mark.soak
@pytest.mark.skipif(find_spec("material") is None, reason="the extra docs is not installed")
def test_the_site_is_built_without_a_warning_and_fetches_nothing(tmp_path: Path) -> None:
    site = tmp_path / "site"
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(site)]
    env = {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(words, check=False, cwd=ROOT, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    built = sorted(site.glob("*.html"))
    assert {path.stem for path in built} == {Path(page).stem for page in pages(SITE["nav"])} | {"404"}
    assert [found for path in built for found in FETCHED.findall(path.read_text("utf-8"))] == []
