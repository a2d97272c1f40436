"""Faults of a port, of a switch or a NIC.

Its rate (the next frame takes the new one), bits and frames that are spoilt on the way to it, delay and
jitter of what it sends, and its share of priority flow control: it storms, it does not hear, it has none.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from actors.kernel.mixing import Stream
from actors.port.impairments import BitErrors
from actors.port.pfc import ALL_CLASSES
from actors.port.port import Port
from actors.wire.fault import DEAF, DELAY, ERRORS, PFC_OFF, RATE, STORM

ERRORS_PURPOSE: Final = 1 << 21
"""Of the random streams of links with bit errors: this, plus the receiving port's number."""
JITTER_PURPOSE: Final = 1 << 22
"""Of the random streams of jitter: this, plus the sending port's number."""


def afflict_port(port: Port, op: int, values: list[int] | None, now: i64) -> bool:
    """Let a port be as a fault wants it (None: as it was built). False if `op` is not of ports."""
    pfc = port.pfc
    if op == RATE:
        port.set_rate(port.wire.rate_bps if values is None else values[0])
    elif op == ERRORS:
        _spoil(port, values)
    elif op == DELAY:
        added_delay = port.delayed()
        if values is None:
            added_delay.set(0, 0, None)
        else:
            dice = Stream(values[2], port.owner.number, JITTER_PURPOSE + port.number)
            added_delay.set(values[0], values[1], dice)
    elif op == STORM:
        if pfc is not None:
            pfc.storm(0 if values is None else values[0], now)
    elif op == DEAF:
        if pfc is not None:
            pfc.deaf = values is not None
    elif op == PFC_OFF:
        if pfc is not None:
            _switch_pfc(port, on=values is None, now=now)
    else:
        return False
    return True


def _spoil(port: Port, values: list[int] | None) -> None:
    errors = port.errors
    if values is not None and (errors is None or (errors.rate_fixed == 0 and errors.loss_fixed == 0)):
        drawn: i64 = 0
        if errors is not None:
            drawn = errors.stream.counter
        errors = BitErrors(0, Stream(values[2], port.owner.number, ERRORS_PURPOSE + port.number))
        errors.stream.counter = drawn
        port.set_errors(errors)
    if errors is not None:
        errors.more_fixed = 0 if values is None else values[0]
        errors.loss_fixed = 0 if values is None else values[1]


def _switch_pfc(port: Port, *, on: bool, now: i64) -> None:
    pfc = port.pfc
    assert pfc is not None, port.number
    pfc.silent = not on
    if on:
        pfc.ignored = 0
        return
    priority: i64 = 0
    while priority < 8:
        pfc.resume(priority, now)
        pfc.ignore(priority, now)
        priority += 1
    assert pfc.ignored == ALL_CLASSES, pfc.ignored
    port.kick(now)
