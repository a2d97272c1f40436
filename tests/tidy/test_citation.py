"""Is CITATION.cff what the format asks for, and of this version?"""

from datetime import date

import yaml

import emu
from tests.tidy.tracked import text_of

REQUIRED = {"cff-version", "message", "title", "authors"}
"""By the schema of the Citation File Format 1.2.0."""
KNOWN = REQUIRED | {
    "type",
    "version",
    "license",
    "keywords",
    "date-released",
    "repository-code",
    "url",
    "doi",
}


def test_the_citation_has_what_the_format_requires_and_nothing_unknown() -> None:
    found = yaml.safe_load(text_of("CITATION.cff"))
    assert found.keys() >= REQUIRED
    assert found.keys() <= KNOWN
    assert (found["cff-version"], found["type"]) == ("1.2.0", "software")
    assert all(author.keys() & {"name", "family-names"} for author in found["authors"])
    assert all(isinstance(one, str) for one in found["keywords"])
    assert isinstance(found.get("date-released", date.min), date)


def test_the_citation_is_of_this_version() -> None:
    assert str(yaml.safe_load(text_of("CITATION.cff"))["version"]) == emu.__version__
