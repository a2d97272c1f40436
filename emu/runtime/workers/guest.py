"""How does trio run inside an actor whose loop is asyncio's?

As a guest: trio's scheduler takes its turns as callbacks of the host loop, in the same thread. `call` runs
an async function of trio's and gives its result to asyncio; `spawn` starts one that lives until the guest
is closed. Cancelling is trio's: `close` cancels everything that still runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import outcome
import trio

Result = TypeVar("Result")


class TrioGuest:
    """A trio run that shares the thread of the asyncio loop that started it."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._done: asyncio.Future[None] = self._loop.create_future()
        self._ready: asyncio.Future[None] = self._loop.create_future()
        self._nursery: trio.Nursery | None = None
        self.token: trio.lowlevel.TrioToken | None = None
        trio.lowlevel.start_guest_run(
            self._main,
            run_sync_soon_threadsafe=self._loop.call_soon_threadsafe,
            done_callback=self._finished,
            host_uses_signal_set_wakeup_fd=True,
        )

    async def ready(self) -> None:
        """Wait until `call` and `spawn` may be used."""
        await self._ready

    async def call(self, function: Callable[..., Awaitable[Result]], *arguments: Any) -> Result:
        """Run an async function of trio's; its result, or its exception, comes here."""
        future: asyncio.Future[Result] = self._loop.create_future()

        async def run() -> None:
            result = await outcome.acapture(function, *arguments)
            if future.done():
                return
            if isinstance(result, outcome.Error):
                future.set_exception(result.error)
            else:
                future.set_result(result.unwrap())

        self.spawn(run)
        return await future

    def spawn(self, function: Callable[..., Awaitable[object]], *arguments: Any) -> None:
        """Start an async function of trio's in the background; it must not raise."""
        assert self.token is not None and self._nursery is not None, "the guest is not ready"
        self.token.run_sync_soon(self._nursery.start_soon, function, *arguments)

    async def close(self) -> None:
        """Cancel what still runs and wait for its end. May be called again."""
        if not self._done.done():
            assert self.token is not None and self._nursery is not None, "the guest is not ready"
            self.token.run_sync_soon(self._nursery.cancel_scope.cancel)
        await self._done

    async def _main(self) -> None:
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            self.token = trio.lowlevel.current_trio_token()
            self._ready.set_result(None)
            await trio.sleep_forever()

    def _finished(self, run: outcome.Outcome[None]) -> None:
        if isinstance(run, outcome.Error) and not self._ready.done():
            self._ready.set_exception(run.error)
        if isinstance(run, outcome.Error) and not isinstance(run.error, trio.Cancelled):
            self._done.set_exception(run.error)
        else:
            self._done.set_result(None)
