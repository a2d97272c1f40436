"""Every way in which Ray says that an actor is gone is one, and each is told in a line."""

from typing import Any

import pytest
from ray import exceptions as of_ray

from emu.cluster.ray.lost_servers import fault_of, gone_errors, why_gone

OTHERWISE = {
    "RayError",  # the base of all
    "RayTaskError",  # the actor is there, and what it did raised
    "GetTimeoutError",  # it may answer later
    "ActorAlreadyExistsError",  # of actors with names, tasks, streams, channels and exits, which emu has not
    "TaskCancelledError",
    "TaskPlacementGroupRemoved",
    "TaskUnschedulableError",
    "AsyncioActorExit",
    "ObjectRefStreamEndOfStreamError",
    "StreamingGeneratorReplayInconsistentError",
    "OufOfBandObjectRefSerializationException",
    "RayChannelError",
    "RayChannelTimeoutError",
    "RayCgraphCapacityExceeded",
    "RayDirectTransportError",
    "UnserializableException",
    "UserCodeException",
    "CrossLanguageError",
    "AuthenticationError",  # a cluster that refuses us, a full object store, faults of Ray itself
    "ObjectStoreFullError",
    "PendingCallsLimitExceeded",
    "PlasmaObjectNotAvailable",
    "RaySystemError",
}
"""What Ray raises that says nothing of the actor. A newer Ray's errors are to be put here, or in the list."""

LOW = """Task was killed due to the node running low on memory.
Memory on the node (IP: 10.0.0.7) was 22.40GB used / 23.54GB limit (0.95), over the threshold of 0.95."""
DO = "accepted: fewer --workers, a smaller scenario, more memory, or a higher RAY_memory_usage_threshold"


def test_every_error_of_ray_is_known_to_mean_that_an_actor_is_gone_or_not() -> None:
    kinds = [one for one in vars(of_ray).values() if isinstance(one, type)]
    names = {one.__name__ for one in kinds if issubclass(one, of_ray.RayError)}
    gone = {one.__name__ for one in kinds if issubclass(one, gone_errors())}
    assert gone | OTHERWISE == names
    assert gone & OTHERWISE == set()


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            LOW,
            "Ray ended it, because its node ran short of memory (22.40GB of 23.54GB were used); " + DO,
        ),
        (
            "failed to connect: it is temporarily unavailable, and so on",
            "its process cannot be reached any more",
        ),
        ("The actor is dead because its owner has died.\nOwner Id: 01", "the Ray node that it needs is gone"),
        ("first\nThe actor died unexpectedly.\nlast", "The actor died unexpectedly."),
        ("", "RuntimeError"),
    ],
)
def test_why_an_actor_is_gone_is_one_line(text: str, line: str) -> None:
    assert why_gone(RuntimeError(text)) == line


def test_what_a_worker_raised_is_named_with_its_kind_and_keeps_its_traceback() -> None:
    kind: Any = of_ray.RayTaskError
    error = kind("prepare", "Traceback ...\nKeyError: 'x'", KeyError("x"))
    fault = fault_of(3, error)
    assert (str(fault), fault.exit_status) == ("worker 3: KeyError: 'x'", 4)
    assert "Traceback ..." in fault.details
