"""What can go wrong with a switch?

Besides its ports: routing takes links out of use, and its configuration drifts: headroom, alpha, ECN
thresholds, PFC of a port, the map of a DSCP, hash seed and fields, the credit window of a modular switch. A
switch that crashes is all its ports without a signal: what it held is dropped as each goes down.

A drift takes effect on the next frame; what is in the buffer stays where it was put. Alpha is that of all
dynamic thresholds; static ones have none that could drift.

Not modelled: what a reboot costs the control plane, half-written configuration.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mypy_extensions import i64

from actors.kernel.event import CONFIGURATION, LINK_STATE
from actors.port.faults import afflict_port
from actors.port.link import PRIORITIES
from actors.switch.buffer import Buffer
from actors.switch.classes import class_selectors
from actors.switch.egress import SwitchPort
from actors.wire.fault import (
    ALPHA,
    DSCP,
    ECN,
    FAULT_OPERATIONS,
    HASH_FIELDS,
    HASH_SEED,
    HEADROOM,
    HOLD,
    PFC_OFF,
    ROUTE,
)

if TYPE_CHECKING:
    from actors.switch.switch import Switch


def afflict_switch(switch: Switch, op: int, place: int, values: list[int] | None) -> None:
    """Let something of a switch be as a fault wants it; None: as it was built."""
    now: i64 = switch.queue.now_ps
    up: int = 1 if values is None else 0
    if op == HOLD:
        switch.on_timer(LINK_STATE, place, up)
    elif op == ROUTE:
        switch.on_timer(CONFIGURATION, 0, place * 2 + up)
    elif op == HEADROOM:
        _carve(switch, place, values)
    elif op == ALPHA:
        _share(switch, values)
    elif op == ECN:
        _mark(switch, place, values)
    elif op == DSCP:
        _map(switch, place, values)
    elif op == HASH_SEED:
        switch.hash_seed = switch.built_seed if values is None else values[0]
    elif op == HASH_FIELDS:
        switch.policy = switch.built_policy if values is None else values[0]
    else:
        port = switch.ports[place]
        if op == PFC_OFF and port.pfc is not None:
            _lossless(switch, port, values is None)
        known: bool = afflict_port(port, op, values, now)
        assert known, (switch.number, FAULT_OPERATIONS[op])


def _carve(switch: Switch, place: int, values: list[int] | None) -> None:
    first: int = place * PRIORITIES
    for number in range(first, first + PRIORITIES):
        group = switch.buffer.group_at(number)
        group.headroom_bytes = group.built_headroom_bytes
        if values is not None and group.lossless:
            group.headroom_bytes = values[0]


def _share(switch: Switch, values: list[int] | None) -> None:
    for part in switch.buffer.all_parts():
        buffer: Buffer = part
        buffer.set_alpha(-1 if values is None else values[0])


def _mark(switch: Switch, place: int, values: list[int] | None) -> None:
    for red in switch.ports[place].reds:
        if values is None:
            red.set_thresholds(red.built_kmin_bytes, red.built_kmax_bytes, red.built_pmax_fixed)
        else:
            red.set_thresholds(values[0], values[1], values[2])


def _map(switch: Switch, dscp: int, values: list[int] | None) -> None:
    classes = switch.classes
    if classes is None:
        classes = switch.classes = class_selectors()
    if values is None:
        classes.move(dscp, classes.built_queue_of[dscp], classes.built_group_of[dscp])
    else:
        classes.move(dscp, values[0], values[1])


def _lossless(switch: Switch, port: SwitchPort, on: bool) -> None:
    """The priority groups of a port become lossy, or what they were built as."""
    first: int = int(port.number) * PRIORITIES
    for number in range(first, first + PRIORITIES):
        group = switch.buffer.group_at(number)
        group.lossless = on and group.built_lossless
        if not on:
            group.stopped = False
