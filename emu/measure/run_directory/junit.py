"""Verdicts of a run as JUnit XML, for build servers (`emu run --junit FILE`).

One test case for each expectation, and one, `ending`, for the run itself: it fails where the exit
status would not be 0 for another reason than an expectation. The time is the wall time of the whole run.

Source: the dialect that Jenkins, GitLab and GitHub Actions read: testsuites, testsuite, testcase, failure.
"""

from __future__ import annotations

from xml.sax.saxutils import quoteattr

from emu.measure.summary.summary import Summary
from emu.measure.tables.report import expectation_line


def junit_text(summary: Summary, exit_status: int) -> str:
    """The text of the file."""
    cases = [
        _case(
            summary, f"{one.value} {one.relation} {one.expected}", "" if one.passed else expectation_line(one)
        )
        for one in summary.expectations
    ]
    broke = "" if exit_status in (0, 1) else f"the run ended {summary.ending}, exit status {exit_status}"
    cases.append(_case(summary, "ending", broke))
    failures = sum(not one.passed for one in summary.expectations) + bool(broke)
    counts = f'tests="{len(cases)}" failures="{failures}" errors="0" time="{summary.engine.wall_s}"'
    name = quoteattr(summary.scenario.name)
    lines = ['<?xml version="1.0" encoding="UTF-8"?>', f"<testsuites {counts}>"]
    lines += [f"  <testsuite name={name} {counts}>", *cases, "  </testsuite>", "</testsuites>"]
    return "\n".join(lines) + "\n"


def _case(summary: Summary, name: str, failure: str) -> str:
    head = f"    <testcase classname={quoteattr(summary.scenario.name)} name={quoteattr(_plain(name))}"
    if not failure:
        return head + "/>"
    return f"{head}><failure message={quoteattr(_plain(failure))}/></testcase>"


def _plain(text: str) -> str:
    """Without the control characters that XML does not have."""
    return "".join(sign if sign.isprintable() else "?" for sign in text)
