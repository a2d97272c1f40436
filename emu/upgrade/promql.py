"""Names of series and their labels in rules and dashboards.

Whatever the file is (rules, a dashboard in JSON, notes), a name is replaced where it stands as a whole word.
"""

from __future__ import annotations

import re
from typing import Final

from emu.upgrade import renames
from emu.upgrade.edits import Edit, Note, Upgraded, made

_SERIES: Final = re.compile(rf"(?<![\w:])({'|'.join(renames.SERIES)})(?![\w:])")
_SCRAPED: Final = re.compile(r"(?<![\w:])(emu_job_\w+)\s*\{[^}]*(?<!\w)job\s*[=!]")


def upgraded_promql(text: str) -> Upgraded:
    """The text with today's names."""
    edits = [
        Edit(found.start(), found.end(), renames.SERIES[found[0]], found[0], renames.SERIES[found[0]])
        for found in _SERIES.finditer(text)
    ]
    left: list[Note] = []
    begin = 0
    for number, line in enumerate(text.split("\n"), 1):
        for family, labels in renames.LABELS.items():
            for old, new in labels.items():
                for found in re.finditer(rf"(?<!\w){old}(?!\w)", line):
                    at = begin + found.start()
                    if family in line:
                        edits.append(Edit(at, at + len(old), new, old, new))
                    elif family in text:
                        left.append(
                            Note(number, f"{old} of series {family}* is {new} now: is it meant here?")
                        )
        if (found_scraped := _SCRAPED.search(line)) is not None:
            series = found_scraped[1]
            left.append(Note(number, f"the job that {series} tells of is in its label job_name now, not job"))
        begin += len(line) + 1
    return made(text, edits, left)
