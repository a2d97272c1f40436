"""How does a test run what trio runs?"""

from collections.abc import Awaitable, Callable

import trio

from tests.engine.patience import PATIENCE_S


async def _with_nursery(test: Callable[[trio.Nursery], Awaitable[None]]) -> None:
    with trio.fail_after(PATIENCE_S):
        async with trio.open_nursery() as nursery:
            await test(nursery)
            nursery.cancel_scope.cancel()


def run(test: Callable[[trio.Nursery], Awaitable[None]]) -> None:
    """Run a test in a nursery, and cancel what it left there."""
    trio.run(_with_nursery, test)
