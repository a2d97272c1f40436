"""What mkdocs does not know of our pages: the README is the first, and files beside `docs/` have none.

    make docs

A link out of `docs/` becomes the name of the file. A link that leads nowhere, an anchor that is not there, or
a page that the menu of `mkdocs.yml` lacks ends the build.
"""

import re
from pathlib import Path
from typing import Any

from tests.tidy.tracked import ROOT

LINK = re.compile(r"\[([^\]\n]+)\]\((?!https?:|#|[\w-]+\.(?:md|png|json|schema\.json)\b)([^)\s]+)\)")
"""To a file that is no page of the site, nor beside one."""
WEIGHT = dict.fromkeys(
    (
        "modules",
        "engine_notes",
        "design",
        "agreement",
        "reproduce",
        "tutorial_pod",
        "tutorial_step",
        "tutorial_control",
    ),
    0.4,
)
"""By page, what a word found there counts for: these mention everything and explain it elsewhere."""
AMBIGUOUS = "e=e+s+o.id}"
CLEAR = 'e=e+s+o.id+","}'
QUERY = "case 2:let e=t.data;"
PLAIN_QUERY = r'case 2:let e=t.data.replace(/(^|\s)[-+]+|[:^~]+/g," ");'
"""A query whose words have no operators of Lunr's: who types `--live` means the option."""
KEYS_WEIGHT = 0.5
"""Of the pages with the keys of a section: guides come before them."""


def plain(text: str) -> str:
    """A page's text, links out of `docs/` by the name of what they lead to."""
    return LINK.sub(lambda found: f"{found[1]} (`{found[2].removeprefix('../')}`)", text)


def on_files(files: Any, config: Any) -> Any:
    """Called by mkdocs before pages are read: make the README the first page."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8").replace("](docs/", "](")
    file = type(next(iter(files)))
    files.append(file.generated(config, "index.md", content=readme))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Called by mkdocs for each page."""
    keys = page.file.name.startswith("keys_")
    page.meta["search"] = {"boost": KEYS_WEIGHT if keys else WEIGHT.get(page.file.name, 1)}
    return plain(markdown)


def on_post_build(config: Any, **_: Any) -> None:
    """Called by mkdocs at the end: mend the search of the site.

    Lunr compares nodes of its set of words by a text that does not separate letters of words from numbers of
    nodes. Where pages have many numbers it takes two nodes for one, and a query of some words, `run` among
    them, ends in an error and finds nothing. A query with an operator before or in a word (`--live`,
    `transport.timeout:`) ends in an error too, or finds pages without the word.
    """
    (worker,) = Path(config["site_dir"]).glob("assets/javascripts/workers/search.*.min.js")
    script = worker.read_text(encoding="utf-8")
    for before, after in ((AMBIGUOUS, CLEAR), (QUERY, PLAIN_QUERY)):
        if script.count(before) != 1:
            raise ValueError(f"{worker.name} has changed: look whether it still needs {before}")
        script = script.replace(before, after)
    worker.write_text(script, encoding="utf-8")
