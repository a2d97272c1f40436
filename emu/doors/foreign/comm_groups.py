"""Reader of ASTRA-sim's files of communicator groups: JSON, names with their ranks.

    {"5": [0, 1], "6": [2, 3]}

Source: ASTRA-sim 2, `CommunicatorGroup.cc`; astra-sim/symbolic_tensor_graph, which writes such a file beside
its traces.
"""

import json
from typing import Final

from emu.base.errors import FormatError
from emu.scenario.readers.chakra import GROUP_NAME, MOST_GROUPS, MOST_RANKS
from emu.scenario.readers.foreign import LONGEST_SHOWN, limited

_ACCEPTED: Final = 'names with lists of ranks, as {"5": [0, 1]}'


class CommGroupsError(FormatError):
    """A file that lists no such groups."""


def is_groups(text: str) -> bool:
    """Whether a text begins as such a file does: an object whose first value is a list of numbers."""
    begins = "".join(text[:4096].split())
    name, colon, rest = begins.removeprefix("{").partition(":")
    return (
        begins.startswith("{")
        and bool(colon)
        and name.startswith('"')
        and rest[:1] == "["
        and (rest[1:2].isdigit() or rest[1:2] == "]")
    )


def read_groups(text: str) -> dict[str, tuple[int, ...]]:
    """The ranks of each group, by name. Raises CommGroupsError."""
    try:
        read = json.loads(text)
    except ValueError as error:
        line = getattr(error, "lineno", 1)
        raise CommGroupsError(line, f"no JSON: {str(error)[:80]}", _ACCEPTED) from error
    except RecursionError as error:
        raise CommGroupsError(1, "lists within lists", _ACCEPTED) from error
    assert isinstance(read, dict), type(read)
    limited(CommGroupsError, 1, len(read), MOST_GROUPS, "groups")
    found: dict[str, tuple[int, ...]] = {}
    for name, ranks in read.items():
        known = isinstance(ranks, list) and 0 < len(ranks) <= MOST_RANKS
        if not known or not all(type(rank) is int and 0 <= rank < MOST_RANKS for rank in ranks):
            raise CommGroupsError(1, f"group {name[:LONGEST_SHOWN]!r} is no list of ranks", _ACCEPTED)
        if GROUP_NAME.fullmatch(name) is None or not name:
            raise CommGroupsError(
                1, f"{name[:LONGEST_SHOWN]!r} names no group", "letters, digits, _, ., : and -"
            )
        found[name] = tuple(ranks)
    return found
