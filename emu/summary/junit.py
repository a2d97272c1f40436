"""JUnit XML, as build servers read it: one suite, a case for everything that was to hold."""

from collections.abc import Sequence
from html import escape
from typing import NamedTuple


class Case(NamedTuple):
    """What was to hold, and what came of it: nothing to say where it holds."""

    name: str
    failure: str = ""
    skipped: str = ""
    """Why it was not tried."""


def junit_text(suite: str, cases: Sequence[Case], more: str = "") -> str:
    """The text of the file; `more` are further attributes of the suite, as `time="1.5"`."""
    failed, skipped = (sum(bool(case[place]) for case in cases) for place in (1, 2))
    counts = f'tests="{len(cases)}" failures="{failed}" skipped="{skipped}" errors="0"{more and " " + more}'
    lines = ['<?xml version="1.0" encoding="UTF-8"?>', f"<testsuites {counts}>"]
    lines.append(f"  <testsuite name={_quoted(suite)} {counts}>")
    for case in cases:
        head = f"    <testcase classname={_quoted(suite)} name={_quoted(case.name)}"
        outcome = "failure" if case.failure else "skipped"
        message = case.failure or case.skipped
        below = f"><{outcome} message={_quoted(message)}/></testcase>" if message else "/>"
        lines.append(head + below)
    return "\n".join([*lines, "  </testsuite>", "</testsuites>"]) + "\n"


def _quoted(text: str) -> str:
    """An attribute's value, without the control characters that XML does not have."""
    return f'"{escape("".join(sign if sign.isprintable() else "?" for sign in text))}"'
