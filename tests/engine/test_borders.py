"""A peer that knows the secret and names what is not there meets the protocol error, whatever it sends."""

from collections.abc import Callable
from contextlib import suppress
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.kernel.event import ARRIVAL, MESSAGE, PAUSE, Message, pack_key
from actors.wire.frame import WRITE_ONLY, Frame, wire_size
from actors.wire.message import (
    BEGIN,
    COMPLETED_SEND,
    COMPLETION,
    COPIED,
    COPY,
    MODIFIED,
    MODIFY,
    OPERATIONS,
    PAUSE_FRAME,
    POST,
    RECEIVE,
    REPORT,
    TE_COLLECTED,
    TE_DEMAND,
    TE_INSTALL,
    TE_PORT_DOWN,
)
from emu.api import prepare
from emu.base.errors import ProtocolError
from emu.devices.drawing import blueprint_of
from emu.engine.blueprint import RunPlan, spread
from emu.engine.sync.partition import Partition
from tests.scenario.plain import plain
from tests.wire.batches import batch_of

MANAGEMENT = 2047
BEYOND = 1 << 40
MOMENTS = count(1000)
SCENARIO = plain(
    {
        "name": "small",
        "topology": {
            "kind": "ai_zone",
            "racks": 2,
            "hosts_per_rack": 1,
            "gpus_per_host": 2,
            "spines": 2,
        },
        "routing": {"kind": "traffic_engineering"},
        "jobs": [
            {"name": "ring", "workload": {"kind": "collective", "op": "all_reduce", "sizes": ["8KiB"]}},
            {"name": "flows", "workload": {"kind": "permutation", "size": "64KiB"}},
        ],
    }
)


@pytest.fixture(scope="module")
def plan() -> RunPlan:
    prepared = prepare(SCENARIO)
    return spread(blueprint_of(prepared.scenario, prepared.topology), 1)


@pytest.fixture(scope="module")
def partition(plan: RunPlan) -> Partition:
    return plan.partition(0)


def number_of(plan: RunPlan, role: str) -> int:
    topology = plan.topology
    found = {
        "host": topology.hosts[0],
        "nic": topology.nics[0],
        "gpu": topology.gpus[0],
        "leaf": topology.switches[0],
        "controller": topology.controller,
    }
    return found[role]


def host_link(plan: RunPlan, role: str) -> int:
    """The first port of a device that messages come by."""
    if role in ("leaf", "controller"):
        return MANAGEMENT
    ends = plan.topology.ports(number_of(plan, role))
    return next(port for port, end in enumerate(ends) if end.kind != "fabric")


def sends(partition: Partition, device: int, port: int, subject: int, *numbers: int) -> None:
    """Deliver one message."""
    op, *values = numbers
    message = Message(op, *values, *[0] * (6 - len(values)))
    message.time_ps, message.key = next(MOMENTS), pack_key(device, MESSAGE, port, subject)
    partition.deliver(batch_of(message), 0)


def frame(plan: RunPlan, key: int, src: int, dst: int) -> Frame:
    made = Frame(WRITE_ONLY, 3, src, dst, 50_000, 77, 0, 1024, wire_size(WRITE_ONLY, 1024))
    made.time_ps, made.key, made.sent_ps, made.ttl = 1000, key, 0, 64
    return made


WRONG: dict[str, tuple[str, tuple[int, ...]]] = {
    "a queue pair that the NIC lacks": ("nic", (POST, BEYOND, 0, 1)),
    "a receive for one": ("nic", (RECEIVE, BEYOND, 1)),
    "a state for one before the first": ("nic", (MODIFY, -1, 3)),
    "a completion of a pair that nobody has": ("host", (COMPLETION, BEYOND, 0, 0, COMPLETED_SEND)),
    "a state of a pair that nobody has": ("host", (MODIFIED, BEYOND, 3)),
    "a copy for a program that is not there": ("host", (COPIED, 0, 1, 0, BEYOND)),
    "a copy of a channel that is not there": ("host", (COPIED, BEYOND, 1, 0, 0)),
    "a copy beyond all memory": ("gpu", (COPY, 0, 1 << 41)),
    "a report on a job that is not there": ("controller", (REPORT, 2, 0, 0, 0, 0, 0)),
    "an entry for a port that is not there": ("leaf", (TE_INSTALL, BEYOND, 0, 0)),
    "an entry for a prefix that is not there": ("leaf", (TE_INSTALL, 0, BEYOND, 0)),
    "an entry towards a port that is not there": ("leaf", (TE_INSTALL, 0, 0, BEYOND)),
    "a demand of a switch that is not there": ("controller", (TE_DEMAND, 0, 0, 0, 0, 1, 0)),
}


@pytest.mark.parametrize(("role", "numbers"), WRONG.values(), ids=WRONG.keys())
def test_number_beyond_a_table_is_the_senders_fault(
    plan: RunPlan, partition: Partition, role: str, numbers: tuple[int, ...]
) -> None:
    with pytest.raises(ProtocolError):
        sends(partition, number_of(plan, role), host_link(plan, role), 0, *numbers)


@pytest.mark.parametrize("numbers", [(TE_DEMAND, 0, 99), (TE_DEMAND, 0, 0, 99), (TE_PORT_DOWN, 0, 99)])
def test_switch_cannot_tell_of_what_it_has_not(
    plan: RunPlan, partition: Partition, numbers: tuple[int, ...]
) -> None:
    leaf = plan.topology.switches[0]
    sends(partition, plan.topology.controller, MANAGEMENT, leaf, TE_COLLECTED, 0)
    with pytest.raises(ProtocolError):
        sends(partition, plan.topology.controller, MANAGEMENT, leaf, *numbers)


def test_what_devices_do_have_is_admitted(plan: RunPlan, partition: Partition) -> None:
    sends(partition, number_of(plan, "nic"), host_link(plan, "nic"), 0, POST, 0, 0, 1)
    sends(partition, number_of(plan, "host"), MANAGEMENT, 0, BEGIN, 0, 0)
    sends(partition, number_of(plan, "gpu"), host_link(plan, "gpu"), 0, COPY, 0, 4096)
    sends(partition, number_of(plan, "controller"), MANAGEMENT, 0, REPORT, 1, 0, 0, 0, 0, 0)


def test_frame_has_addresses_of_the_fabric_and_comes_by_a_fabric_port(
    plan: RunPlan, partition: Partition
) -> None:
    nic, leaf = number_of(plan, "nic"), number_of(plan, "leaf")
    known = plan.topology.address_of(nic)
    other = plan.topology.address_of(plan.topology.nics[-1])

    def deliver(one: Frame) -> None:
        partition.deliver(batch_of(one), 0)

    deliver(frame(plan, pack_key(leaf, ARRIVAL, 0, 0), known, other))
    wrong: dict[str, Callable[[], Frame]] = {
        "beyond the last prefix": lambda: frame(plan, pack_key(leaf, ARRIVAL, 0, 0), known, 2 << 10),
        "beyond the last of a prefix": lambda: frame(plan, pack_key(leaf, ARRIVAL, 0, 0), 2, other),
        "by the host link": lambda: frame(
            plan, pack_key(nic, ARRIVAL, host_link(plan, "nic"), 0), known, other
        ),
        "to a GPU": lambda: frame(plan, pack_key(number_of(plan, "gpu"), ARRIVAL, 0, 0), known, other),
    }
    for made in wrong.values():
        with pytest.raises(ProtocolError):
            deliver(made())


def test_pause_comes_by_a_fabric_port(plan: RunPlan, partition: Partition) -> None:
    pause = Message(PAUSE_FRAME, 8, 0, 65535, 0, 0, 0)
    pause.time_ps, pause.key = 1000, pack_key(number_of(plan, "nic"), PAUSE, host_link(plan, "nic"), 0)
    with pytest.raises(ProtocolError):
        partition.deliver(batch_of(pause), 0)


@given(
    st.sampled_from(["host", "nic", "gpu", "leaf", "controller"]),
    st.integers(1, len(OPERATIONS) - 1),
    st.lists(st.integers(-3, 3) | st.integers(-(2**62) + 1, 2**62 - 1), min_size=6, max_size=6),
    st.integers(0, 40),
)
def test_any_message_is_taken_or_meets_the_protocol_error(
    plan: RunPlan, partition: Partition, role: str, op: int, values: list[int], subject: int
) -> None:
    with suppress(ProtocolError):
        sends(partition, number_of(plan, role), host_link(plan, role), subject, op, *values)
