"""Is what devices save the whole of what they know?

At a random moment of a random run a fabric is saved, its state goes through msgpack, and an equally built
fabric takes it: every attribute of every object is the same then, and so is the rest of the run.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import msgpack  # type: ignore[import-untyped]  # it ships no types
import pytest

from actors.kernel.device import Plain
from actors.switch.switch import Switch
from tests.fabric.random_fabric import random_fabric
from tests.fabric.rig import Fabric

NOT_STATE = frozenset(
    {"queue", "owner", "outbox", "routes", "wire", "chain", "_serve_event", "_base", "_came"}
    | {"spares", "counted_changes"}
)
"""What a device is built from (the names of random streams too, which a fault gives anew when it begins), or
belongs to the queue (the serve event, the wheel's chains), or to the event under way (the packet that is
answered), or is of no use but as memory (used frames), or tells the next sample of this process that nothing
changed (counted_changes)."""
PLAIN = (int, str, bytes, bool, type(None))


def through_msgpack(state: Plain) -> Plain:
    """What another process would read."""
    packed = msgpack.packb(state)
    unpacked: Plain = msgpack.unpackb(packed)
    return unpacked


def attributes(thing: object) -> dict[str, Any]:
    """Everything an object of ours knows, compiled or not."""
    found: dict[str, Any] = {}
    for cls in reversed(type(thing).__mro__):
        names = [name for name, slot in vars(cls).items() if type(slot).__name__.endswith("descriptor")]
        names = [name for name in names if not callable(vars(cls)[name])]
        for name in names:
            if not name.startswith("__") and hasattr(thing, name):
                found[name] = getattr(thing, name)
    found.update(getattr(thing, "__dict__", {}))
    return {name: value for name, value in found.items() if name not in NOT_STATE}


def differences(one: object, other: object, path: str) -> Iterator[str]:
    """Where two object graphs differ. Walks with a list, for queues of frames are long chains."""
    seen: set[int] = set()
    waiting: list[tuple[object, object, str]] = [(one, other, path)]
    while waiting:
        a, b, where = waiting.pop()
        if type(a) is not type(b):
            yield f"{where}: {a!r} and {b!r}"
        elif isinstance(a, PLAIN):
            if a != b:
                yield f"{where}: {a!r} and {b!r}"
        elif isinstance(a, (list, tuple)) or type(a).__name__.startswith("vec"):
            left, right = list(a), list(b)  # type: ignore[call-overload]
            if len(left) != len(right):
                yield f"{where}: {len(left)} and {len(right)} long"
            waiting += [(x, y, f"{where}[{at}]") for at, (x, y) in enumerate(zip(left, right, strict=False))]
        elif id(a) not in seen and type(a).__module__.startswith(
            ("actors.", "actors.kernel", "actors.wire", "tests.")
        ):
            seen.add(id(a))
            left_names, right_names = attributes(a), attributes(b)
            if left_names.keys() != right_names.keys():
                yield f"{where}: {sorted(left_names)} and {sorted(right_names)}"
            waiting += [
                (value, right_names.get(name), f"{where}.{name}") for name, value in left_names.items()
            ]


def eventful(seed: int) -> Fabric:
    """A random fabric with links that flap; a third are lossy, half route, recover and control congestion
    otherwise, two in three have faults."""
    fabric = random_fabric(seed, lossy=seed % 3 == 2, varied=seed % 2 == 1, faulty=seed % 5 > 1)
    random = Random(seed)
    links = [link.name for link in fabric.topology.links if link.kind == "fabric"]
    random.shuffle(links)
    for name in links[:2]:
        if len(fabric.topology.links_named(name)) == 1:
            down_ps = random.randrange(1, 10**7)
            fabric.set_link(name, down_ps, up=False)
            fabric.set_link(name, down_ps + random.randrange(1, 5 * 10**6), up=True)
    return fabric


@pytest.mark.parametrize("seed", range(40))
def test_a_fabric_that_was_saved_and_loaded_is_the_same_and_goes_on_the_same(seed: int) -> None:
    random = Random(seed)
    whole = eventful(seed)
    events = whole.run()
    original, copy = eventful(seed), eventful(seed)
    moment = random.randrange(1, events)
    assert original.run_events(moment) == moment
    moment += original.run(int(original.queue.now_ps) + 1)  # snapshots are taken between two instants
    state = original.save()
    copy.load(through_msgpack(state))
    assert copy.save() == state
    for one, other in zip(original.devices(), copy.devices(), strict=True):
        name = original.topology.nodes[one.number].name
        assert list(differences(one, other, name)) == []
    assert copy.run() == original.run() == events - moment
    assert copy.digest() == original.digest() == whole.digest()


def test_saving_changes_nothing() -> None:
    fabric = eventful(1)
    fabric.run_events(500)
    first = fabric.save()
    assert fabric.save() == first
    assert through_msgpack(first) == first


def test_the_comparison_sees_what_a_device_forgets() -> None:
    one, other = eventful(0), eventful(0)
    for fabric in (one, other):
        fabric.run_events(300)
    switch = other.switches[0]
    assert isinstance(switch, Switch)
    assert list(differences(one.switches[0], switch, "switch")) == []
    switch.ports[0].queues[3].peak_bytes += 1
    assert list(differences(one.switches[0], switch, "switch")) != []
    names = attributes(switch.ports[0])
    assert {"free_ps", "queues", "pfc", "serve_pending", "lost_link_down", "store"} <= names.keys()


@pytest.mark.soak
def test_thousands_of_snapshots() -> None:
    for seed in range(1_000, 4_000):
        test_a_fabric_that_was_saved_and_loaded_is_the_same_and_goes_on_the_same(seed)
