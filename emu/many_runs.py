"""Independent runs side by side, wherever there is room: on this machine's cores, or on those of a cluster.

What a sweep, an acceptance suite, a fit and others have in common: a function, and items that it is asked of.
Answers, and their order, do not depend on where they were worked out.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from emu.base.cores import usable_cores
from emu.base.errors import EmuError, UsageError
from emu.base.side_by_side import Ended, Ready, as_they_end, in_order, side_by_side


class Machines(NamedTuple):
    """Where independent runs are carried out: in processes here, or as tasks of a Ray cluster."""

    at_once: int = 0
    """Here: so many at a time; 0 for one for each core that this process may use."""
    address: str | None = None
    """Of a Ray cluster, which gets one run for each of its cores."""
    wheel: Path | None = None
    """The package, for nodes of the cluster that lack it."""
    unprotected: bool = False
    """Whether a cluster is used that asks nobody for a token."""

    def checked(self) -> Machines:
        """These. Raises UsageError for what cannot be meant."""
        if self.address is None and (self.wheel is not None or self.unprotected):
            raise UsageError("--wheel and --unprotected are for a cluster; say which with --address")
        if self.address is not None and self.at_once:
            raise UsageError("--jobs is for this machine; a cluster at --address gets one run a core")
        return self

    @property
    def many(self) -> int:
        """How many at a time here."""
        return self.at_once or usable_cores()


HERE = Machines()

Sendable = Callable[[Any], Ready | Ended]
"""Makes an item ready for a node that has none of the files here, or says at once how it ended."""


MOST_CARRIED_BYTES = 64 << 20


def carried(item: Any, files: Sequence[str | Path]) -> Ready:
    """An item with files that its function reads by relative paths. UsageError for a file that cannot travel:
    by an absolute path or from above this directory, one too large, or one that is not there."""
    found: list[tuple[str, bytes]] = []
    for file in files:
        path = Path(file)
        if not path.exists() and not path.is_absolute() and len(path.parts) == 1:
            continue  # the name of a scenario that comes with emu
        if path.is_absolute() or ".." in path.parts:
            raise UsageError(f"{file}: does not travel to a cluster; accepted: a file below this directory")
        try:
            with path.open("rb") as opened:
                content = opened.read(MOST_CARRIED_BYTES + 1)
        except OSError as error:
            raise UsageError(f"{file}: {error.strerror}; accepted: a file that can be read") from error
        if len(content) > MOST_CARRIED_BYTES:
            raise UsageError(f"{file}: is too large to travel; accepted: at most 64 MiB")
        found.append((str(path), content))
    return Ready(item, files=tuple(found))


def each_as_it_ends(
    machines: Machines,
    function: Callable[[Any], Any],
    items: Sequence[Any],
    ready: Sendable = Ready,
    there: Callable[[Any], Any] | None = None,
) -> Generator[Ended, None, None]:
    """Each item once it was worked out. On a cluster `there`, or the function, is asked of what `ready` makes
    of an item: importable, with arguments that pickle.

    Whoever stops asking ends them all.
    """
    if machines.address is None:
        yield from as_they_end(function, items, min(machines.many, len(items)))
        return
    from emu.cluster.ray.tasks import on_cluster  # noqa: PLC0415 - only of runs on a cluster
    from emu.cluster.workers.worker import edition  # noqa: PLC0415 - only of runs on a cluster

    def made(items: Sequence[Any]) -> Iterator[Ready | Ended]:
        for item in items:
            try:
                yield ready(item)
            except EmuError as error:
                yield Ended(0, failure=error)

    yield from on_cluster(
        there or function,
        made(items),
        edition,
        machines.address,
        unprotected=machines.unprotected,
        wheel=machines.wheel,
    )


def answers(
    machines: Machines,
    function: Callable[[Any], Any],
    items: Sequence[Any],
    ready: Sendable = Ready,
    there: Callable[[Any], Any] | None = None,
) -> Generator[Any, None, None]:
    """What the function makes of each item, in order. Raises the failure of the first that failed."""
    if machines.address is None:
        yield from side_by_side(function, items, machines.many)
        return
    yield from in_order(each_as_it_ends(machines, function, items, ready, there))
