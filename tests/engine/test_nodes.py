"""Workers go onto the nodes of a cluster in order, by CPUs; a user's pins come before that."""

import os

import pytest

from emu.base.errors import EmuError, UsageError
from emu.cluster.ray.nodes import Node, Pin, moves_for, pin_of, share_out
from emu.cluster.ray.session import forget_token, ray_session
from emu.engine.sync.placement import expected_loads
from tests.engine.spread_runs import plan_of

NODES = [Node("10.0.0.1", "left", 2, "aa"), Node("10.0.0.2", "right", 2, "bb")]


@pytest.mark.parametrize(
    ("workers", "cpus", "worker_nodes"),
    [
        (1, [4, 4], [0]),
        (2, [1, 1], [0, 1]),
        (3, [1, 1, 1], [0, 1, 2]),
        (4, [1, 3], [0, 1, 1, 1]),
        (6, [2, 2, 2], [0, 0, 1, 1, 2, 2]),
        (2, [1, 1, 1, 1], [0, 2]),
    ],
)
def test_neighbouring_workers_share_a_node_and_nodes_take_their_share(
    workers: int, cpus: list[int], worker_nodes: list[int]
) -> None:
    assert share_out(workers, cpus) == worker_nodes


def moved(pins: list[Pin], worker_nodes: tuple[int, ...] = (0, 1)) -> dict[str, int]:
    plan = plan_of("quickstart", len(worker_nodes))
    topology = plan.topology
    found = moves_for(topology, plan.assignment, expected_loads(topology), worker_nodes, NODES, pins)
    assert all(plan.assignment[device] != worker for device, worker in found)
    return {topology.nodes[device].name: worker for device, worker in found}


@pytest.mark.parametrize("node", ["10.0.0.2", "right", "bb", "1"])
def test_pinned_devices_move_to_the_node_that_is_named(node: str) -> None:
    plan = plan_of("quickstart", 2)
    spines = [one.name for one in plan.topology.nodes if one.name.startswith("ctsw-")]
    elsewhere = [name for name in spines if plan.assignment[plan.topology.node_named(name).number] == 0]
    assert elsewhere
    assert moved([Pin("ctsw-*", node)]) == dict.fromkeys(elsewhere, 1)


def test_pinned_devices_go_to_the_idlest_worker_of_their_node() -> None:
    found = moved([Pin("ctsw-*", "right")], worker_nodes=(0, 1, 1))
    assert set(found.values()) <= {1, 2}


@pytest.mark.parametrize(
    ("pin", "said"),
    [
        (Pin("atsw-*", "left"), "no device is called that"),
        (Pin("ctsw-*", "middle"), r"no such node; accepted: 0 \(left\), 1 \(right\)"),
        (Pin("*", "left"), "leaves worker 1 without a device"),
    ],
)
def test_pin_that_cannot_be_kept_is_refused(pin: Pin, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        moved([pin])


def test_pin_on_a_node_without_a_worker_is_refused() -> None:
    with pytest.raises(UsageError, match="no worker lives there"):
        moved([Pin("ctsw-*", "right")], worker_nodes=(0, 0))


def test_pin_is_a_pattern_and_a_node() -> None:
    assert pin_of("rtsw-[12]=left") == Pin("rtsw-[12]", "left")
    for text in ("", "ctsw-0", "=left", "ctsw-0="):
        with pytest.raises(UsageError, match="is no pin; accepted: PATTERN=NODE"):
            pin_of(text)


def test_cluster_elsewhere_without_a_token_is_refused_before_it_hears_anything(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("emu.cluster.ray.session._check_reachable", lambda _: None)
    monkeypatch.delenv("RAY_AUTH_TOKEN_PATH", raising=False)
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    for address in ("192.0.2.7:6379", "ray://emulator-head:10001"):
        said = r"asks for no token .* RAY_AUTH_MODE=token .* --unprotected"
        with pytest.raises(EmuError, match=said), ray_session(address, 1):
            pytest.fail("connected")


def test_the_token_of_a_cluster_ends_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": "/a/session/that/ended/token"}
    for name, value in chosen.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("emu.cluster.ray.session._CHOSEN", True)
    forget_token()
    assert chosen.items() <= os.environ.items(), "the user's own stays"
    monkeypatch.setattr("emu.cluster.ray.session._CHOSEN", False)
    forget_token()
    assert not chosen.keys() & os.environ.keys()
