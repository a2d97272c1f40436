"""The link to the page of a run that goes on: a socket that waits for the first look, and nothing until then.

The process that emulates only listens. Who connects first makes it start `emu.views.reports.live`, which
takes the socket over, reads the run directory as it grows, and draws the page; so a look costs the run next
to nothing and a run that nobody looks at nothing. Over its standard input that process hears which operations
have ended, and that the run is over: its input ends with this process, however that ends, and then it ends
too.

Loopback only, and only who has the token. It is in the link, which is printed on a terminal and stands in
`page.url` of the run directory while the run goes on, and goes to the page's process over its input: whoever
lists processes does not see it.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import select
import socket
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from emu.base.errors import RuntimeFailure
from emu.counts.collected import CapturedRows, Changed, JobPlan, Layouts
from emu.engine.outcome import Observer, Progress, WorkerRecord
from emu.run_directory.run_directory import PAGE, write_whole
from emu.scenario.live_changes import Change
from emu.scenario.schema import Scenario

if TYPE_CHECKING:
    import subprocess

END_S: Final = 2.0
"""How long the page's process may take to end before it is killed."""
MOST_UNSENT_BYTES: Final = 1 << 20


class LiveLink:
    """Listens for who wants to see a run. Use it in a `with` statement."""

    def __init__(self, directory: Path, jobs: Sequence[JobPlan]) -> None:
        self._directory = directory
        self._token = secrets.token_urlsafe(16)
        try:
            self._socket = socket.create_server(("127.0.0.1", 0), backlog=16)
        except OSError as error:
            raise RuntimeFailure(f"no port of 127.0.0.1 for the live page: {error.strerror}") from error
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}/{self._token}/"
        self._page: subprocess.Popen[bytes] | None = None
        self._seen: dict[int, int] = {}
        plans = [
            {"name": job.name, "operations": [[one.op, one.size_bytes] for one in job.collectives]}
            for job in jobs
        ]
        self._unsent = f"{self._token}\n".encode() + _line({"jobs": plans})
        self._woken, self._wake = os.pipe()
        write_whole(directory / PAGE, self.url + "\n")
        self._thread = threading.Thread(target=self._wait, name="live page", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _wait(self) -> None:
        """Start the page's process when somebody connects."""
        descriptor = self._socket.fileno()
        ready, _, _ = select.select([descriptor, self._woken], [], [])
        if self._woken in ready:
            return
        import subprocess  # noqa: PLC0415 - only where somebody looks

        words = [str(self._directory.resolve()), str(descriptor)]
        try:
            page = subprocess.Popen(  # noqa: S603  our own module
                [sys.executable, "-m", "emu.views.reports.live", *words],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(descriptor,),
                start_new_session=True,  # Ctrl-C is for the run; the page ends with it.
            )
        except OSError:
            return
        assert page.stdin is not None
        os.set_blocking(page.stdin.fileno(), False)
        self._send(page)
        self._page = page

    def progressed(self, progress: Progress) -> None:
        """Tell the page, if there is one, how far the run is."""
        page = self._page
        if page is None or page.stdin is None:
            return
        if len(self._unsent) < MOST_UNSENT_BYTES:
            new = [row for row in progress.operations if row[1] > self._seen.get(row[0], -1)]
            self._seen |= {row[0]: row[1] for row in new}
            self._unsent += _line({"virtual_ps": progress.virtual_ps, "operations": new})
        self._send(page)

    def _send(self, page: subprocess.Popen[bytes]) -> None:
        assert page.stdin is not None
        try:
            self._unsent = self._unsent[os.write(page.stdin.fileno(), self._unsent) :]
        except BlockingIOError:
            return
        except OSError:  # It is gone; the run goes on.
            self._page = None
            _end(page)

    def close(self) -> None:
        """Nobody is served any more. May be called again."""
        if self._wake < 0:
            return
        os.write(self._wake, b".")
        self._thread.join()
        os.close(self._wake)
        os.close(self._woken)
        self._wake = -1
        self._socket.close()
        if self._page is not None:
            _end(self._page)
        with contextlib.suppress(OSError):
            (self._directory / PAGE).unlink()


def _line(record: Mapping[str, object]) -> bytes:
    return json.dumps(record, separators=(",", ":")).encode() + b"\n"


def _end(page: subprocess.Popen[bytes]) -> None:
    from subprocess import TimeoutExpired  # noqa: PLC0415 - as above

    assert page.stdin is not None
    with contextlib.suppress(OSError):
        page.stdin.close()
    try:
        page.wait(END_S)
    except TimeoutExpired:
        page.kill()
        page.wait()


class Linked(Observer):
    """Passes all that it hears of a run on to an observer, and how far it is to the page."""

    def __init__(self, observer: Observer, link: LiveLink) -> None:
        self._observer = observer
        self._link = link

    def workers_up(self, workers: tuple[WorkerRecord, ...], discovery_url: str) -> None:
        """Pass it on."""
        self._observer.workers_up(workers, discovery_url)

    def progressed(self, progress: Progress) -> None:
        """Pass it on, and tell the page."""
        self._observer.progressed(progress)
        self._link.progressed(progress)

    def changed(self, change: Change, fault: int, at_ps: int, scenario: Scenario) -> None:
        """Pass it on."""
        self._observer.changed(change, fault, at_ps, scenario)

    def counted(self, layouts: Layouts) -> None:
        """Pass it on."""
        self._observer.counted(layouts)

    def sampled(self, changed: Changed, mixed: Mapping[int, Sequence[int]]) -> None:
        """Pass it on."""
        self._observer.sampled(changed, mixed)

    def captured(self, rows: Sequence[tuple[int, CapturedRows]]) -> None:
        """Pass it on."""
        self._observer.captured(rows)

    def noted(self, line: str) -> None:
        """Pass it on."""
        self._observer.noted(line)

    def settle(self) -> None:
        """Pass it on."""
        self._observer.settle()
