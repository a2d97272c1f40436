"""Does the arbiter of a NIC's port share it as it says, and can it be one's own?"""

from itertools import pairwise
from typing import Any

import pytest

from actors.nic.arbiter import Arbiter
from actors.nic.queue_pair.queue_pair import QueuePair
from actors.wire.frame import Frame
from emu.base.errors import ScenarioError
from tests.fabric.rig import Fabric, kept
from tests.fabric.sections import scenario, star

US = 1_000_000


def arbitrated(connections: Any, priorities: Any = (), **arbiter: Any) -> Fabric:
    """NICs around a switch; class 4 is lossless as well."""
    one = scenario(
        star(3),
        nic={"arbiter": arbiter},
        switch={"pfc": {"priorities": [3, 4]}},
        transport={"mtu": 1024, "timeout": 0},
    )
    return Fabric(one, list(connections), list(priorities))


def leaving(fabric: Fabric) -> list[Frame]:
    """What the first NIC sends, as it goes."""
    seen: list[Frame] = []

    def passes(frame: Frame) -> bool:
        seen.append(kept(frame))
        return False

    fabric.tap("nic-0", 0, passes)
    return seen


WEIGHTS = [1, 1, 1, 3, 1, 1, 1, 1]


def test_classes_share_the_port_by_their_weights() -> None:
    fabric = arbitrated([(0, 1), (0, 2)], [3, 4], kind="weighted", weights=WEIGHTS)
    seen = leaving(fabric)
    for connection in (0, 1):
        fabric.post(0, connection, 2**20)
    fabric.run(10 * US)
    sent = [sum(int(frame.wire_bytes) for frame in seen if frame.priority == p) for p in (3, 4)]
    assert sent[0] / sent[1] == pytest.approx(3, rel=0.03)
    fabric.run()
    assert fabric.broken(at_rest=True, lossless=True) == []


def test_a_class_alone_has_the_whole_port() -> None:
    fabric = arbitrated([(0, 1)], [4], kind="weighted", weights=WEIGHTS)
    seen = leaving(fabric)
    fabric.post(0, 0, 2**20)
    fabric.run(10 * US)
    assert sum(frame.wire_bytes for frame in seen) >= 10 * 50_000 - 500_000 // 20 - 2 * 1_122


def test_a_strict_class_goes_first() -> None:
    fabric = arbitrated([(0, 1), (0, 2)], [3, 4], kind="weighted", strict=[4], weights=WEIGHTS)
    seen = leaving(fabric)
    for connection in (0, 1):
        fabric.post(0, connection, 100 * 1024)
    fabric.run()
    # The first packet of the class that was posted first had left before the other one was there.
    assert [frame.priority for frame in seen[1:101]] == [4] * 100


def test_queue_pairs_of_a_class_take_turns_as_without_an_arbiter() -> None:
    def order(**arbiter: Any) -> list[tuple[int, int]]:
        fabric = arbitrated([(0, 1), (0, 2), (0, 1)], **arbiter)
        seen = leaving(fabric)
        for connection in range(3):
            fabric.post(0, connection, 64 * 1024)
        fabric.run()
        return [(frame.qpn, frame.psn) for frame in seen]

    assert order(kind="weighted") == order(kind="round_robin")


class LastFirst(Arbiter):
    """One's own: whoever came last."""

    def choose_pair(self, first: QueuePair, now: int) -> QueuePair:
        while first.active_next is not None:
            first = first.active_next
        return first


def test_an_arbiter_of_ones_own_is_loaded_by_name() -> None:
    fabric = arbitrated([(0, 1), (0, 2), (0, 1)], kind=f"{__name__}:LastFirst")
    seen = leaving(fabric)
    for connection in range(3):
        fabric.post(0, connection, 16 * 1024)
    fabric.run()
    # Whoever has sent goes to the end of the round, and so goes again.
    changes = sum(one.qpn != other.qpn for one, other in pairwise(seen))
    assert changes <= 3
    assert fabric.broken(at_rest=True, lossless=True) == []


@pytest.mark.parametrize("policy", ["weighted", f"{__name__}:LastFirst"])
def test_a_run_goes_on_from_its_state(policy: str) -> None:
    def make() -> Fabric:
        return arbitrated([(0, 1), (0, 2), (0, 1)], [3, 4, 3], kind=policy)

    whole, first, second = make(), make(), make()
    for fabric in (whole, first):
        for connection in range(3):
            fabric.post(0, connection, 2**18)
    whole.run()
    first.run_events(1000)
    second.load(first.save())
    second.run()
    assert second.digest() == whole.digest()


@pytest.mark.parametrize(
    ("arbiter", "reported"),
    [
        ({"kind": "fifo"}, "fifo"),
        ({"kind": "no_such_module:Mine"}, "does not load"),
        ({"kind": f"{__name__}:Frame"}, "has no method `choose_class`"),
        ({"kind": "weighted", "weights": [1, 2]}, "weights"),
        ({"kind": "weighted", "strict": [6, 6]}, "listed twice"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(arbiter: dict[str, Any], reported: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        scenario(star(2), nic={"arbiter": arbiter})
    assert reported in str(caught.value)
