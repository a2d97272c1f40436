"""Devices that run another configuration than they were started with.

Devices show where running and startup configuration differ, and log changes, so that a drift which was taken
back is seen too. A drift is only told with what suffered from it, and each item has its own sign: without
headroom a lossless class overruns, with a wrong DSCP map a class drops, with another hash the uplinks are
loaded unequally. Where its sign is to be seen, a drift ranks before one that shows none.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from actors.kernel.counters import QUEUE_MARKED_FRAMES
from emu.base.spelling import listed
from emu.base.units import about_rate, about_size, counted, shown_time
from emu.counts.device_state import (
    ALPHA,
    CREDITS,
    DSCP,
    ECN,
    HASH_FIELDS,
    HASH_SEED,
    HEADROOM,
    PFC,
    SPEED,
)
from emu.results.summary import Reconfigured
from emu.views.diagnosis.finding import Finding
from emu.views.diagnosis.view import View


class Drift(NamedTuple):
    """One item of one device that is, or was, another than meant."""

    number: int
    item: int
    ports: tuple[int, ...]
    """Where the item is of ports, or DSCPs; in their order."""
    values: tuple[int, int, int]
    built: tuple[int, int, int] | None
    """None where it is as built again."""
    since_ps: int


def _sizes(values: tuple[int, int, int]) -> str:
    return about_size(values[0])


_WORDS: Final[dict[int, tuple[str, Callable[[tuple[int, int, int]], str]]]] = {
    HEADROOM: ("headroom", _sizes),
    ALPHA: ("buffer alpha", lambda values: f"{values[0]}/65536"),
    ECN: ("ECN thresholds", lambda values: f"{about_size(values[0])} to {about_size(values[1])}"),
    PFC: ("PFC", lambda values: "on" if values[0] else "off"),
    DSCP: ("DSCP map", lambda values: f"queue {values[0]}"),
    HASH_SEED: ("hash seed", lambda values: str(values[0])),
    HASH_FIELDS: (
        "hash fields",
        lambda values: "with the QP field" if values[0] else "without the QP field",
    ),
    CREDITS: ("credit window", lambda values: f"{about_size(values[0])} to {about_size(values[1])}"),
}
PER_PORT: Final = frozenset({PFC})
"""Items for which a port is named, and not the device."""


def changes(view: View) -> list[Reconfigured]:
    """Every change of a running configuration that a device logged, harmful or not, in order of time; what
    differs at the end and stands in no log is since 0.
    """
    rows: dict[tuple[int, int, int, tuple[int, ...]], list[int]] = {}
    for number in view.striking("log", "differs"):
        logged: dict[tuple[int, int], bool] = {}
        for at_ps, item, place, *values in view.rows(number, "log"):
            if item == SPEED or item in _WORDS:
                logged[item, place] = True
                rows.setdefault((at_ps, number, item, tuple(values)), []).append(place)
        for item, place, a, b, c, *_ in view.rows(number, "differs"):
            if (item == SPEED or item in _WORDS) and (item, place) not in logged:
                rows.setdefault((0, number, item, (a, b, c)), []).append(place)
    return [
        Reconfigured(at_ps=at_ps, device=view.name(number), what=_what(view, number, item, values, places))
        for (at_ps, number, item, values), places in sorted(rows.items())
    ]


def _what(view: View, number: int, item: int, values: Sequence[int], places: Sequence[int]) -> str:
    """A change in words: the item, its value, and the ports or DSCPs that it is of."""
    words, show = ("speed", lambda rate: about_rate(rate[0])) if item == SPEED else _WORDS[item]
    value = show((values[0], values[1], values[2])) if values[0] >= 0 else "as built again"
    if item == DSCP:
        return f"{words} {value} for DSCP {listed(map(str, places), 4)}"
    if item in (SPEED, *PER_PORT):
        return f"{words} {value} on {listed([view.port_name(number, port) for port in places], 3)}"
    several = f" on {counted(len(places), 'port')}" if item in (ECN, HEADROOM) else ""
    return f"{words} {value}{several}"


def found(view: View) -> Iterator[Finding]:
    """Every drift, with what it did."""
    for number in view.striking("log", "differs"):
        for drift in _drifts(view, number):
            yield _finding(view, drift)


def _drifts(view: View, number: int) -> Iterator[Drift]:
    rows: dict[tuple[int, int], Drift] = {}
    for at_ps, item, place, *values in view.rows(number, "log"):
        key = (item, place)
        if item in _WORDS and values[0] >= 0 and key not in rows:
            rows[key] = Drift(number, item, (place,), (values[0], values[1], values[2]), None, at_ps)
    for item, place, a, b, c, *built in view.rows(number, "differs"):
        if item in _WORDS:
            since_ps = rows[item, place].since_ps if (item, place) in rows else 0
            meant = (built[0], built[1], built[2])
            rows[item, place] = Drift(number, item, (place,), (a, b, c), meant, since_ps)
    merged: dict[tuple[int, int], Drift] = {}
    for (item, place), drift in rows.items():
        key = (item, place if item in PER_PORT else -1)
        known = merged.get(key)
        merged[key] = drift if known is None else known._replace(ports=(*known.ports, place))
    yield from merged.values()


def _finding(view: View, drift: Drift) -> Finding:
    words, show = _WORDS[drift.item]
    name = view.name(drift.number)
    place = view.port_name(drift.number, drift.ports[0]) if drift.item in PER_PORT else name
    running = show(drift.values)
    signs, alarms = _signs(view, drift)
    # Another hash moves flows to other links, and by itself makes none worse: only a comparison can say so.
    has_impact = bool(signs) and drift.item not in (HASH_SEED, HASH_FIELDS)
    sentence = f"{name} runs another configuration than was meant: {words} {running}"
    if drift.item == DSCP:
        sentence += f" for DSCP {', '.join(map(str, drift.ports))}"
    if drift.item in PER_PORT:
        sentence += f" on {place}"
    if drift.built is not None:
        sentence += f" in place of {show(drift.built)}"
    else:
        sentence += ", for a while"
    sentence += f", since {shown_time(drift.since_ps)}"
    if signs:
        sentence += f"; {signs[0]}"
    evidence = (f"{name} running-config: {words} {running}", *signs)
    score = 870 if signs else 780
    return Finding(
        "configuration_drift",
        place,
        score,
        sentence,
        evidence,
        drift.since_ps,
        alarms=alarms,
        has_impact=has_impact,
        item=drift.item,
    )


def _signs(view: View, drift: Drift) -> tuple[list[str], bool]:
    """What shows that the drift had an impact, and whether an operator is called for that."""
    number, item = drift.number, drift.item
    name = view.name(number)
    if item == HEADROOM:
        overruns = view.dropped_at(number, "headroom_overrun")
        return ([f"{name} lost {overruns} frames to headroom overrun"] if overruns else []), overruns > 0
    if item in (ALPHA, DSCP):
        dropped = view.dropped_for_want_of_room(number)
        return ([f"{name} dropped {dropped} frames for want of room"] if dropped else []), False
    if item == PFC:
        port = drift.ports[0]
        peer, peer_port = view.peer(number, port)
        dropped = view.dropped_for_want_of_room(number) + view.dropped(peer, peer_port, "headroom_overrun")
        signs = [f"{dropped} frames were dropped for want of room around {view.port_name(number, port)}"]
        return (signs if dropped else []), False
    if item == ECN:
        marks = sum(view.total(QUEUE_MARKED_FRAMES, number, port) for port in drift.ports)
        return ([f"{name} marked {marks} frames"] if marks else []), False
    if item in (HASH_SEED, HASH_FIELDS):
        for row in view.uplinks:
            if row.switch == name and row.max_over_mean is not None and row.max_over_mean >= 1.25:
                line = f"uplinks of {name}: the fullest has {row.max_over_mean:.2f} times the mean"
                return [line], False
    return [], False
