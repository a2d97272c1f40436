"""A process that plays one rank of a script, as `emu torchrun` sees it.

What the script prints is passed on as it comes, each stream to its own. Over a pair of sockets the player
reports how far it is, and sees its parent end: a player never outlives the command that began it, not even
one that is killed, and then removes the command's folders.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Final, NamedTuple

from emu.base.units import counted

MOST_LINES: Final = 200
"""Lines of the script's own output that are kept of each stream."""
PROGRESS_S: Final = 15.0
"""How often a line says how far a recording is."""
LONGEST_LINE: Final = 2**16

Shown = Callable[[str, bool], None]
"""Takes a line of the script, and whether it is one of stderr."""


class Ended(NamedTuple):
    """How a player ended: its status and the last lines of its streams; a status of None: it was stopped."""

    status: int | None
    out: list[str]
    errors: list[str]


class PlayerProcess:
    """One player, begun when this is made."""

    def __init__(
        self,
        words: Sequence[str],
        environment: Mapping[str, str],
        shown: Shown,
        reported: Callable[[str], None],
        name: str,
    ) -> None:
        ours, theirs = socket.socketpair()
        self._process = subprocess.Popen(  # noqa: S603  this interpreter
            [sys.executable, "-m", *words[:1], "--parent", str(theirs.fileno()), *words[1:]],
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=[theirs.fileno()],
        )
        theirs.close()
        self._line = ours
        self._shown, self._reported, self._name = shown, reported, name
        self._kept: tuple[deque[str], deque[str]] = deque(maxlen=MOST_LINES), deque(maxlen=MOST_LINES)
        pipes = (self._process.stdout, self._process.stderr)
        assert pipes[0] is not None
        assert pipes[1] is not None
        self._threads = [
            threading.Thread(target=self._pass_on, args=(pipes[0], False), daemon=True),
            threading.Thread(target=self._pass_on, args=(pipes[1], True), daemon=True),
            threading.Thread(target=self._follow, daemon=True),
        ]
        for one in self._threads:
            one.start()

    def wait(self, timeout_s: float) -> Ended:
        """Wait for the end; after the timeout, stop it."""
        status: int | None
        try:
            status = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            status = None
            self._process.kill()
            self._process.wait()
        for one in self._threads:
            one.join(2.0)  # a process that the script left behind may hold a pipe
        self._line.close()
        return Ended(status, list(self._kept[0]), list(self._kept[1]))

    def stop(self) -> None:
        """End it now."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()

    def _pass_on(self, pipe: IO[bytes], is_error: bool) -> None:
        while line := pipe.readline(LONGEST_LINE):
            text = line.decode("utf-8", "replace").rstrip("\n")
            self._kept[is_error].append(text)
            self._shown(text, is_error)
        pipe.close()

    def _follow(self) -> None:
        begun = said = time.monotonic()
        with contextlib.suppress(OSError):
            while data := self._line.recv(4096):
                now = time.monotonic()
                if now - said >= PROGRESS_S:
                    said = now
                    steps, operations = json.loads(data.splitlines()[-1])
                    self._reported(
                        f"{self._name}: recording for {now - begun:.0f} s: {counted(steps, 'step')} done, "
                        f"{operations:,} operations recorded"
                    )


def watch_parent(number: int, progress: Callable[[], tuple[int, int]], ended: Callable[[], None]) -> None:
    """In a player: say how far it is once a second, and end this process when its parent has ended."""
    line = socket.socket(fileno=number)
    line.settimeout(1.0)

    def watch() -> None:
        while True:
            try:
                if not line.recv(1):
                    break
            except TimeoutError:
                pass
            except OSError:
                break
            try:
                line.send(json.dumps(progress()).encode() + b"\n")
            except OSError:
                break
        ended()
        os._exit(1)

    threading.Thread(target=watch, daemon=True, name="emu-parent").start()
