"""Which errors of Ray mean that an actor is gone, and which one that something in it failed?

Ray says in a dozen ways that nobody answers a call any more: the actor died, its node did, there was no
memory for it, what it returned is lost. Whoever calls an actor treats them alike, so the list stands here
once. `RayTaskError` is another matter: the actor is there, and what it was asked to do raised.
"""

from __future__ import annotations

import re
from typing import Final

from emu.errors import RuntimeFailure

LONGEST: Final = 300
"""Characters of what Ray says that are passed on."""
USED: Final = re.compile(r"was ([\d.]+[KMGT]?B) used / ([\d.]+[KMGT]?B) limit")
COLOUR: Final = re.compile(r"\x1b\[[0-9;]*m")
"""With which Ray writes tracebacks."""
SHORT_OF_MEMORY: Final = "running low on memory"
MEMORY: Final = (
    "accepted: fewer --workers, a smaller scenario, more memory, or a higher RAY_memory_usage_threshold"
)


class WorkerFault(RuntimeFailure):
    """What a worker was asked to do raised what nobody expected; `details` is its traceback."""

    def __init__(self, worker: int, message: str, details: str) -> None:
        super().__init__(worker, message, details)
        self.worker = worker
        self.message = message
        self.details = details

    def __str__(self) -> str:
        return f"worker {self.worker}: {self.message}"


def gone_errors() -> tuple[type[Exception], ...]:
    """What a call of an actor raises that nobody will answer any more."""
    from ray import exceptions as of_ray  # noqa: PLC0415  Ray only where it is needed

    return (
        of_ray.RayActorError,
        of_ray.ActorUnschedulableError,
        of_ray.ActorPlacementGroupRemoved,
        of_ray.ActorHandleNotFoundError,
        of_ray.OutOfMemoryError,
        of_ray.OutOfDiskError,
        of_ray.NodeDiedError,
        of_ray.LocalRayletDiedError,
        of_ray.WorkerCrashedError,
        of_ray.ObjectLostError,
        of_ray.RuntimeEnvSetupError,
        of_ray.RpcError,
    )


def fault_of(worker: int, error: Exception) -> WorkerFault:
    """What a `RayTaskError` tells, as an error of ours."""
    cause = getattr(error, "cause", None) or error
    line = (str(cause).strip() or "no reason given").splitlines()[-1][:LONGEST]
    details = COLOUR.sub("", str(getattr(error, "traceback_str", "") or error))
    return WorkerFault(worker, f"{type(cause).__name__}: {line}", details)


def why_gone(error: Exception) -> str:
    """Why Ray thinks an actor is gone, in one line."""
    text = str(error)
    if SHORT_OF_MEMORY in text:
        used = USED.search(text)
        how_much = f" ({used[1]} of {used[2]} were used)" if used is not None else ""
        return f"Ray ended it, because its node ran short of memory{how_much}; {MEMORY}"
    if "temporarily unavailable" in text:  # which is followed by what its transport says
        return "its process cannot be reached any more"
    if "exits with a connection error" in text:  # and three sentences more
        return "its process ended, as one does that is killed or short of memory"
    if "owner has died" in text or "node has crashed" in text:
        return "the Ray node that it needs is gone"
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    chosen = [line for line in lines if line.startswith("The actor died") or "exit detail" in line.lower()]
    line = (chosen or lines or [type(error).__name__])[-1]
    return line.partition(" Some common causes")[0][:LONGEST]
