"""Nearest words and short lists, for messages about what was misspelt (`emu.scenario.yaml.problems` writes
those of scenarios)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

LONGEST_WORD: Final = 100


def closest(wrong: str, known: Iterable[str], near: float = 0.6) -> str:
    """The known word nearest to `wrong`, upper and lower case alike; empty if none is so near. Words of more
    than 100 characters are near to none: to search for them would take seconds."""
    if len(wrong) > LONGEST_WORD:
        return ""
    from difflib import get_close_matches  # noqa: PLC0415 - only for what is wrong

    words = list(known)
    lower = [word.lower() for word in words]
    found = get_close_matches(wrong.lower(), lower, n=1, cutoff=near)
    return words[lower.index(found[0])] if found else ""


SYNONYMS: Final = {"server": "host", "node": "host", "machine": "host", "accelerator": "gpu", "cable": "link"}
"""Other words for what names begin with."""


def closest_name(wrong: str, known: Iterable[str]) -> str:
    """The known name of the same thing that is nearest to `wrong`, for names as `host_lost`: thing first."""
    names = list(known)
    thing, _, rest = wrong.lower().partition("_")
    thing = SYNONYMS.get(thing, thing)
    same = [name for name in names if name.split("_")[0] == thing]
    if same and rest and thing != wrong.lower().partition("_")[0]:
        return closest(f"{thing}_{rest}", same, 0.0)
    return closest(wrong, names)


def did_you_mean(wrong: str, known: Iterable[str]) -> str:
    """`; did you mean 'rtsw-0'?`, or nothing where no known word is near."""
    word = closest(wrong, known)
    return f"; did you mean {word!r}?" if word else ""


def listed(words: Iterable[str], most: int = 12) -> str:
    """The words with commas between, cut after `most`."""
    all_words = list(words)
    shown = ", ".join(all_words[:most])
    return f"{shown}, ... ({len(all_words)} in all)" if len(all_words) > most else shown


def shown(value: object, most: int = 64) -> str:
    """A value as it is quoted in a message, a list in brackets, cut after `most` characters. Of a large one
    no more is read than is shown."""
    text = _beginning(value, most)
    return text if len(text) <= most else f"{text[: most - 3]}..."


def _beginning(value: object, most: int) -> str:
    """The `repr` of a value, at least its first `most` characters."""
    if most <= 0:
        return "..."
    if isinstance(value, (str, bytes)):
        return repr(value[: most + 1])
    if isinstance(value, int) and value.bit_length() > 4 * most:
        return f"a number of about {value.bit_length() * 3 // 10} digits"
    if not isinstance(value, (list, tuple, dict)):
        return repr(value)
    parts: list[str] = []
    left = most - 1
    for one in value:
        text = _beginning(one, left)
        if isinstance(value, dict):
            text += f": {_beginning(value[one], left - len(text))}"
        parts.append(text)
        left -= len(text) + 2
        if left <= 0:
            break
    inner = ", ".join(parts)
    return f"{{{inner}}}" if isinstance(value, dict) else f"[{inner}]"


def shown_location(location: Iterable[str | int]) -> str:
    """The path to a place in a file or in the results, as a user writes it: `jobs[0].workload.size`."""
    text = ""
    for step in location:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text
