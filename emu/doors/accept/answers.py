"""Answers of an acceptance suite: a verdict for each test, and all of them as text, JSON, JUnit and HTML."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from textwrap import wrap
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple

from emu.base.errors import UsageError
from emu.base.outside import file_text, json_of
from emu.base.units import aligned
from emu.summary.junit import Case, junit_text
from emu.views.reports.html_file import document, table

Verdict = Literal["pass", "FAIL", "shown", "not supported", "not run"]
COLUMNS: Final = 80
JSON_NAME: Final = "answers.json"


class Check(NamedTuple):
    """One criterion: what was found, what is asked for, and whether it holds; None where nothing is."""

    what: str
    found: str
    asked: str
    holds: bool | None
    number: float | None = None
    """What was found as a number, to compare two fabrics by; the mean over trials."""
    kind: str = ""
    """What kind of number it is."""
    cv: float | None = None
    """Its coefficient of variation over trials with seeds of their own."""


class Answer(NamedTuple):
    """What came of one test."""

    test: str
    title: str
    checks: tuple[Check, ...]
    reason: str = ""
    """Why a test failed, by the key that explains it; or what is lacking where it is not supported."""
    notes: tuple[str, ...] = ()
    digest: str = ""
    """Digests of its runs, the first twelve signs of each."""
    trials: int = 1
    """Trials that were begun."""
    excluded: tuple[str, ...] = ()
    """Why a trial is not among those that the checks are of, a line each."""

    @property
    def verdict(self) -> Verdict:
        """The verdict of all its checks."""
        if not self.checks:
            return "not run" if self.excluded else "not supported"
        if any(one.holds is False for one in self.checks):
            return "FAIL"
        return "pass" if any(one.holds for one in self.checks) else "shown"


Section = tuple[str, Sequence[str]]
"""A heading and its lines."""


def text_of(answers: Sequence[Answer]) -> list[str]:
    """A line for each test, and below it what does not hold, why, and what stands beside it."""
    cells = [["test", "answer", "title"]]
    cells += [[one.test, one.verdict, one.title] for one in answers]
    lines = aligned(cells, left=3)
    for one in answers:
        lines += ["", f"{one.test}  {one.title}: {one.verdict}"]
        rows = [[check.what, check.found, check.asked, _word(check)] for check in one.checks]
        lines += aligned(rows, left=4) if rows else []
        for said in _said(one):
            lines += wrap(said, COLUMNS, initial_indent="  ", subsequent_indent="    ")
    return lines


def _said(one: Answer) -> list[str]:
    """What stands below the checks of an answer."""
    why = [f"why: {one.reason}"] if one.reason else []
    return [*why, *(f"excluded: {line}" for line in one.excluded), *one.notes]


def _word(check: Check) -> str:
    return "" if check.holds is None else "ok" if check.holds else "FAILS"


def plain(
    suite: str, answers: Sequence[Answer], sections: Sequence[Section], equal: Mapping[str, str]
) -> dict[str, Any]:
    """The same for JSON. `equal` is what has to be equal where two answers are compared."""
    return {
        "suite": suite,
        "comparability": dict(equal),
        "answers": [
            {
                **one._asdict(),
                "verdict": one.verdict,
                "checks": [check._asdict() for check in one.checks],
            }
            for one in answers
        ],
        "sections": {name: list(lines) for name, lines in sections},
    }


def junit(suite: str, answers: Sequence[Answer]) -> str:
    """JUnit XML: a case for each test, as `emu run --junit` has one for each expectation."""
    return junit_text(suite, [_case(one) for one in answers])


def _case(one: Answer) -> Case:
    name = f"{one.test} {one.title}"
    if not one.checks:
        return Case(name, skipped="; ".join(one.excluded) or one.reason)
    failed = "; ".join(f"{c.what}: {c.found}, asked: {c.asked}" for c in one.checks if c.holds is False)
    return Case(name, failed and "; ".join(filter(None, (failed, one.reason))))


def page(title: str, answers: Sequence[Answer], sections: Sequence[Section]) -> str:
    """One HTML file: the sections, with the answers under the one that is called Results."""
    body = [f"<h1>{escape(title)}</h1>"]
    for name, lines in sections:
        body.append(f"<h2>{escape(name)}</h2>")
        body += [f"<p>{escape(line)}</p>" for line in lines]
        if "results" in name.lower():
            body += _results(answers)
    return document(title, body, {"charts": [], "first": -1})


def _results(answers: Sequence[Answer]) -> Iterable[str]:
    yield table(("test", "answer", "title"), [(one.test, one.verdict, one.title) for one in answers])
    for one in answers:
        yield f"<h3>{escape(one.test)} {escape(one.title)}: {escape(one.verdict)}</h3>"
        if one.checks:
            rows = [(check.what, check.found, check.asked, _word(check)) for check in one.checks]
            yield table(("what", "found", "asked for", ""), rows)
        yield from (f'<p class="quiet">{escape(line)}</p>' for line in _said(one))


def write(
    directory: Path,
    suite: str,
    title: str,
    answers: Sequence[Answer],
    sections: Sequence[Section],
    equal: Mapping[str, str] = MappingProxyType({}),
) -> list[Path]:
    """Write all three files into a directory; returns them. Raises UsageError."""
    texts = {
        JSON_NAME: json.dumps(plain(suite, answers, sections, equal), indent=2) + "\n",
        "junit.xml": junit(suite, answers),
        "report.html": page(title, answers, sections),
    }
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name, text in texts.items():
            (directory / name).write_text(text, "utf-8")
    except OSError as error:
        raise UsageError(f"--out {directory}: cannot be written: {error.strerror}") from error
    return [directory / name for name in texts]


def compared(first: Path, second: Path) -> list[str]:
    """Two answers of one suite side by side. Raises UsageError."""
    one, two = _read(first), _read(second)
    if one["suite"] != two["suite"]:
        reason = f"{first} is of the suite {one['suite']}, {second} of {two['suite']}"
        raise UsageError(f"{reason}; accepted: two of one suite")
    cells = [["test", "what", first.name, second.name, "second / first"]]
    others = {answer["test"]: answer for answer in two["answers"]}
    for answer in one["answers"]:
        other = others.pop(answer["test"], None)
        if other is None:
            cells.append([answer["test"], answer["title"], answer["verdict"], "not run", ""])
            continue
        cells.append([answer["test"], answer["title"], answer["verdict"], other["verdict"], ""])
        beside = {check["what"]: check for check in other["checks"]}
        for check in answer["checks"]:
            found = beside.get(check["what"])
            if found is not None:
                cells.append(["", check["what"], check["found"], found["found"], _ratio(check, found)])
    cells += [[test, answer["title"], "not run", answer["verdict"], ""] for test, answer in others.items()]
    ones, others = one.get("comparability", {}), two.get("comparability", {})
    unequal = [f"{key}: {ones.get(key)} and {others.get(key)}" for key in {**ones, **others}]
    differing = [
        line
        for line, key in zip(unequal, {**ones, **others}, strict=True)
        if ones.get(key) != others.get(key)
    ]
    said = ["", "not equal, which the draft asks for where two are compared:"] if differing else []
    return [*aligned(cells, indent="", left=2), *said, *(f"  {line}" for line in differing)]


def _ratio(one: Mapping[str, Any], two: Mapping[str, Any]) -> str:
    first, second = one["number"], two["number"]
    return f"{second / first:.3f}" if first and second is not None else ""


def _read(directory: Path) -> Any:
    path = directory / JSON_NAME if directory.is_dir() else directory
    try:
        value = json_of(file_text(path, "what --out of `emu accept` wrote"))
        assert isinstance(value["answers"], list)
    except UsageError:
        raise
    except (ValueError, KeyError, TypeError, AssertionError) as error:
        raise UsageError(f"{path}: no answers of `emu accept`; accepted: what its --out wrote") from error
    return value
