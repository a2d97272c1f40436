"""How does a test wait for others, on a machine that may stop any process for seconds at any time?

For a condition, never for a while; and for so long that only what never comes is not waited for.
"""

import time
from collections.abc import Callable
from contextlib import suppress
from http.client import HTTPException
from pathlib import Path
from typing import TypeVar
from urllib.error import HTTPError
from urllib.request import urlopen

PATIENCE_S = 120.0
LOOK_S = 0.02
Found = TypeVar("Found")


def until(look: Callable[[], Found]) -> Found:
    """What is found, once it is something."""
    deadline_s = time.monotonic() + PATIENCE_S
    while True:
        late = time.monotonic() > deadline_s  # asked first: who looks may have been stopped meanwhile
        if found := look():
            return found
        assert not late, f"not within {PATIENCE_S:.0f} s: {look}"
        time.sleep(LOOK_S)


def fetched(url: str) -> bytes:
    """What a page says. Asked again where the connection breaks: a server does not wait long for a request
    whose sender was stopped, nor the other way round. Raises HTTPError."""
    deadline_s = time.monotonic() + PATIENCE_S
    while True:
        late = time.monotonic() > deadline_s
        try:
            with urlopen(url, timeout=PATIENCE_S) as answer:
                text: bytes = answer.read()
                return text
        except HTTPError:
            raise
        except (OSError, HTTPException):
            if late:
                raise
        time.sleep(LOOK_S)


def alive(pid: int) -> bool:
    """Whether a process runs: one that has ended and that nobody has asked for does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def children_of(pid: int) -> list[int]:
    """The processes that a process started, at any depth; threads and processes that end meanwhile are
    passed over."""
    found: list[int] = []
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError):
                found += map(int, (task / "children").read_text("ascii").split())
    return [one for child in found for one in (child, *children_of(child))]
