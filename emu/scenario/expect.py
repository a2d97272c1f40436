"""Section `expect`: bounds on a place in the summary, or on a series over a span of time.

A place is a path of keys and indices, `jobs.bench.collectives[-1].busbw`; a path that does not begin at the
top of the summary is looked up under `fabric`. A bound is a number, a text, true or false, or a quantity with
its unit. Whether the results hold it is worked out in `emu.summary.verdict`.

Series over time. Entries of `expect` that name a `series`: bounds on a series over a span of virtual time.

    - {series: emu_port_dropped_frames_total, where: {reason: congestion}, never: {at_least: 1}}
    - {series: emu_queue_peak_bytes, where: {device: rtsw}, always: {at_most: 1MiB}, until: 2ms}
    - series: emu_collective_bus_bandwidth_bytes_per_second
      where: {comm_name: train}
      recovers_to: 95%
      within: 2ms of fault 1

A series has the name that a scrape gives it. Which it may be, and which labels tell its lines apart, is read
off the declaration (`emu.results.metrics`), so that a wrong name is refused before anything runs. When
a value is known, and how it is judged, is in `emu.summary.series` and
`emu.summary.expectations`.
"""

import re
from collections.abc import Iterator
from typing import Annotated, Final, Literal, NamedTuple

from actors.kernel.counters import DEVICE_METRICS, PORT, PORT_TRANSMIT_PAYLOAD_BYTES, Kind, Metric, Unit
from emu.base.records import RefusedError
from emu.base.spelling import did_you_mean, listed, shown
from emu.base.units import (
    parse_time,
)
from emu.results.metrics import (
    COLLECTIVE,
    CONGESTION_REASONS,
    DROP_REASONS,
    ENGINE_METRICS,
    INFO_METRICS,
    STATE_METRICS,
)
from emu.results.places import Bound, Comparison, quantity
from emu.scenario.section import OneOfKeys, Refusal, Section
from emu.scenario.yaml.values import Priority, Reading, TimePs, word

COMPARISONS: Final[tuple[Comparison, ...]] = ("equals", "at_least", "at_most", "between")
BOUND_ACCEPTED: Final = 'a number, a quantity like "50Gbps", a text, true or false'
PATH_ACCEPTED: Final = 'keys with dots between and [index], like "jobs.bench.collectives[-1].busbw"'

_STEP: Final = re.compile(r"\.?([A-Za-z_][A-Za-z0-9_-]*|(?<=\.)[0-9]+)|\[(-?[0-9]{1,9})\]")


def path_steps(path: str) -> tuple[str | int, ...]:
    """The keys and indices of "a.b[-1].c". Raises `RefusedError`."""
    steps: list[str | int] = []
    at = 0
    while at < len(path):
        match = _STEP.match(path, at)
        if match is None or (at == 0) == path[at : at + 1].startswith((".", "[")):
            break
        steps.append(match[1] if match[2] is None else int(match[2]))
        at = match.end()
    if at < len(path) or not path or len(path) > 256:
        raise RefusedError(f"{path!r} is not a path", PATH_ACCEPTED)
    return tuple(steps)


def _read_path(value: object) -> str:
    if not isinstance(value, str):
        raise RefusedError(f"{shown(value)} is not a path", PATH_ACCEPTED)
    path_steps(value)
    return value


def _read_bound(value: object) -> Bound:
    if isinstance(value, str) and len(value) <= 256:
        quantity(value)
        return value
    if isinstance(value, (bool, int)) or (isinstance(value, float) and abs(value) < float("inf")):
        return value
    raise RefusedError(f"{shown(value)} cannot be compared with", BOUND_ACCEPTED)


def _same(value: object) -> object:
    return value


_BOUND: Final = Reading(
    _read_bound, _same, BOUND_ACCEPTED, {"type": ["number", "string", "boolean"]}, "value"
)
SummaryPath = Annotated[
    str,
    Reading(_read_path, _same, PATH_ACCEPTED, {"type": "string", "examples": ["drops.congestion"]}, "path"),
]
BoundValue = Annotated[Bound, _BOUND]


class Bounds(Section):
    """What something is compared with: exactly one of four comparisons."""

    equals: BoundValue | None = None
    """The value is exactly this."""
    at_least: BoundValue | None = None
    """The value is this or more."""
    at_most: BoundValue | None = None
    """The value is this or less."""
    between: tuple[BoundValue, BoundValue] | None = None
    """The value is the first or more, and the second or less."""

    def check(self) -> Iterator[Refusal]:
        """Refuse none or several comparisons, and bounds without an order."""
        given = [name for name in COMPARISONS if getattr(self, name) is not None]
        if len(given) != 1:
            found = " and ".join(given) if given else "no comparison"
            yield Refusal((), f"has {found}", f"exactly one of {', '.join(COMPARISONS)}")
        for name in given:
            bounds = self.between if name == "between" and self.between else (getattr(self, name),)
            for bound in bounds:
                orderable = not isinstance(bound, bool) and (
                    not isinstance(bound, str) or quantity(bound) is not None
                )
                if name != "equals" and not orderable:
                    yield Refusal((name,), f"{bound!r} has no order", "a number, or a quantity with its unit")

    @property
    def comparison(self) -> Comparison:
        """Which of the four it is."""
        return next(name for name in COMPARISONS if getattr(self, name) is not None)

    @property
    def bounds(self) -> tuple[Bound, ...]:
        """What is compared with: two values of `between`, one of the others."""
        return self.between or (getattr(self, self.comparison),)


class _OfSummary(Section):
    """A place in the summary; a class of its own, so that it is written before what it is compared with."""

    value: SummaryPath
    """Path in the summary."""


class Expectation(Bounds, _OfSummary):
    """One thing that must be true; a run ends with exit status 1 if it is not."""


Relation = Literal["never", "always", "reaches", "recovers_to"]
RELATIONS: Final[tuple[Relation, ...]] = ("never", "always", "reaches", "recovers_to")
Combination = Literal["each", "sum", "max", "min", "mean"]
Quantity = Literal["time", "size", "rate", "share", "number"]

OF_OPERATIONS: Final[dict[str, Quantity]] = {
    "collective_exec_time_ps": "time",
    "collective_algorithm_bandwidth_bytes_per_second": "rate",
    "collective_bus_bandwidth_bytes_per_second": "rate",
    "job_step_time_ps": "time",
    "job_mfu_ppm": "number",
}
"""Series that are known when an operation ends, and what they measure."""
OF_STATE: Final = frozenset(
    {"job_operations", "job_running", "job_failed", "collectives", "faults", "faults_active"}
)
"""Series of jobs and faults that are known at every time, since it is known when they change."""
COUNTED_AS: Final = {"routing_group_member_payload_bytes": PORT_TRANSMIT_PAYLOAD_BYTES}
"""Series that are counters of devices under other labels, and which."""
CONSTANT: Final = frozenset({"port_info", "buffer_pool_bytes"})
KNOWN: Final[dict[str, Metric]] = {
    metric.name: metric
    for metric in (*DEVICE_METRICS, *(one for one in STATE_METRICS if one.key not in CONSTANT))
}
"""What is known over time, by name."""
WITHIN_ACCEPTED: Final = (
    'a time after a fault, by its place from 0, like "2ms of fault 1" or "2ms of the end of fault 1"'
)
CONGESTION: Final = "congestion"
"""As a reason: any of those that mean a full buffer."""

_WITHIN: Final = r"\s*(.+?)\s+of\s+(the\s+end\s+of\s+)?fault\s+([0-9]{1,5})\s*"
_PERCENT: Final = r"\s*([0-9]{1,3})\s*%\s*"


class Deadline(NamedTuple):
    """A time after a fault of the scenario."""

    after_ps: int
    fault: int
    """Its place in the list."""
    at_end: bool
    """Whether its end is meant, and not its beginning."""


def deadline(text: str) -> Deadline:
    """What `within` says. Raises `RefusedError`."""
    match = re.fullmatch(_WITHIN, text)
    if match is None:
        raise RefusedError(f"{shown(text)} is no span", WITHIN_ACCEPTED)
    after_ps = parse_time(match[1])
    if after_ps == 0:
        raise RefusedError(f"{shown(text)} is no span: it has no length", WITHIN_ACCEPTED)
    return Deadline(after_ps, int(match[3]), match[2] is not None)


def percent(text: object) -> int | None:
    """The number before %; None if it is no percentage."""
    match = re.fullmatch(_PERCENT, text) if isinstance(text, str) else None
    return int(match[1]) if match is not None else None


def _read_within(value: object) -> str:
    if not isinstance(value, str):
        raise RefusedError(f"{shown(value)} is no span", WITHIN_ACCEPTED)
    deadline(value)
    return value


def _read_level(value: object) -> Bound:
    accepted = 'a share of what it was before the fault, like "95%", or a value'
    if percent(value) is not None:
        return str(value)
    if isinstance(value, str) and quantity(value) is not None:
        return value
    if isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < float("inf"):
        return value
    raise RefusedError(f"{shown(value)} is no level", accepted)


def _read_series(value: object) -> str:
    if isinstance(value, str) and value in KNOWN:
        return value
    reason = f"there is no series {shown(value)}"
    if isinstance(value, str):
        accepted = "a series of docs/metrics.md that tells of devices, jobs or faults"
        if any(metric.name == value for metric in STATE_METRICS):
            raise RefusedError(f"{value} never changes", accepted)
        if any(metric.name == value for metric in (*ENGINE_METRICS, *INFO_METRICS)):
            reason = f"{value} tells of the emulator itself, which may be another the next time"
            raise RefusedError(reason, accepted)
        reason += did_you_mean(value, KNOWN)
    raise RefusedError(reason, "the name of a series of docs/metrics.md")


SeriesName = Annotated[
    str,
    Reading(_read_series, _same, "the name of a series", {"type": "string", "enum": sorted(KNOWN)}, "series"),
]
WithinText = Annotated[
    str,
    Reading(_read_within, _same, WITHIN_ACCEPTED, {"type": "string", "examples": ["2ms of fault 1"]}, "span"),
]
LevelValue = Annotated[
    Bound, Reading(_read_level, _same, BOUND_ACCEPTED, {"type": ["number", "string"]}, "value or share")
]
Pattern = Annotated[str, word("a name", r"[A-Za-z0-9_.*?\[\]-]+", 'a name or a pattern, like "rtsw-*"')]


class SeriesWhere(Section):
    """Which lines of the series: those with all of these labels."""

    device: Pattern | None = None
    """A name, a pattern, or a role (`rtsw`, `switch`, `nic`)."""
    port: int | None = None
    """The port's number, as `emu topo` prints it."""
    peer: Pattern | None = None
    """Device at the other end of the port: a name, a pattern, or a role."""
    direction: Literal["up", "down", "level"] | None = None
    """Direction of the port: to a higher tier, a lower, or the same."""
    priority: Priority | None = None
    """The priority."""
    reason: Pattern | None = None
    """Why frames were dropped; `congestion` is every reason that means a full buffer."""
    comm_name: Pattern | None = None
    """The job, of what collectives came to."""
    collective: Pattern | None = None
    """Collective in NCCL's spelling: `AllReduce`."""
    nranks: int | None = None
    """Number of ranks."""
    message_size: str | None = None
    """A range of powers of two: `1-2MB`."""
    algo_proto: Pattern | None = None
    """By which algorithm: `RING_SIMPLE`."""
    job_name: Pattern | None = None
    """The job, of how far it is."""
    group: str | None = None
    """A routing group, by its ports: `4-7`."""

    def given(self) -> dict[str, str]:
        """The labels that are asked for, as texts."""
        return {
            name: str(value) for name in type(self).model_fields if (value := getattr(self, name)) is not None
        }


class SeriesExpectation(Section):
    """One thing that must be true of a series over a span of virtual time."""

    series: SeriesName
    """Name of the series, as in a scrape."""
    where: SeriesWhere = SeriesWhere.defaults()
    """Selection of its lines. Default: all."""
    combine: Combination = "each"
    """Whether each line must do it, or what they come to together."""
    rate: bool = False
    """Whether to take a counter's increase per second of virtual time, from one point to the next."""
    never: Bounds | None = None
    """At no point of the span it is so."""
    always: Bounds | None = None
    """At every point of the span it is so."""
    reaches: Bounds | None = None
    """At one point of the span, or more, it is so."""
    recovers_to: LevelValue | None = None
    """It is at this level or above at the end of the span: a value, or a share of its mean before the fault
    of `within`."""
    from_ps: TimePs | None = None
    """Begin of the span. Default: that of the run, or of `within`."""
    until_ps: TimePs | None = None
    """End of the span. Default: that of the run, or of `within`."""
    within: WithinText | None = None
    """The span: so long from the beginning of a fault, or from its end."""

    def check(self) -> Iterator[Refusal]:
        """Refuse what cannot be judged."""
        given = [name for name in RELATIONS if getattr(self, name) is not None]
        if len(given) != 1:
            found = " and ".join(given) if given else "nothing to hold"
            yield Refusal((), f"has {found}", f"exactly one of {', '.join(RELATIONS)}")
            return
        yield from self._check_span()
        yield from self._check_labels()
        if self.rate and (self.metric.kind is not Kind.COUNTER):
            yield Refusal(
                ("rate",), f"{self.series} is no counter, so it has no rate", "a series that ends in _total"
            )
            return
        relation = given[0]
        if relation == "recovers_to" and not self.rate and self.metric.kind is Kind.COUNTER:
            yield Refusal(("rate",), f"{self.series} only rises: its rate recovers", "rate: true")
        bounds: list[tuple[str, Bound | None]] = [(relation, self.recovers_to)]
        if relation != "recovers_to":
            bound: Bounds = getattr(self, relation)
            of_bound = bound.between if bound.between is not None else (getattr(bound, bound.comparison),)
            bounds = [(bound.comparison, one) for one in of_bound]
        for name, value in bounds:
            reason = self._unfit(value)
            location = (relation,) if relation == "recovers_to" else (relation, name)
            if reason:
                yield Refusal(location, *reason)

    def _check_span(self) -> Iterator[Refusal]:
        if self.within is not None and (self.from_ps is not None or self.until_ps is not None):
            yield Refusal(("within",), "is a span, and so are from and until", "one of them")
        if self.from_ps is not None and self.until_ps is not None and self.from_ps >= self.until_ps:
            yield Refusal(("until",), "is not after from", "a span that has a length")
        if percent(self.recovers_to) is not None and self.within is None:
            yield Refusal(
                ("recovers_to",), "a share of what it was before which fault?", "with within: 2ms of fault 0"
            )

    def _check_labels(self) -> Iterator[Refusal]:
        labels = self.labels
        for name, value in self.where.given().items():
            if name not in labels:
                yield Refusal(("where", name), f"{self.series} has no label {name}", listed(labels))
            elif name == "reason" and not any(sign in value for sign in "*?["):
                known = (*DROP_REASONS, CONGESTION)
                if value not in known:
                    hint = did_you_mean(value, known)
                    yield Refusal(("where", name), f"there is no reason {value!r}{hint}", listed(known))

    def _unfit(self, bound: Bound | None) -> tuple[str, str] | None:
        """Why the series cannot be compared with a bound, and what it can be."""
        if bound is None or percent(bound) is not None:
            return None
        kind = self.quantity
        accepted = {
            "time": 'a time, like "10us", or seconds',
            "size": 'a size, like "64KiB", or bytes',
            "rate": 'a rate, like "40Gbps"',
            "share": "a number: seconds a second",
            "number": "a number",
        }[kind]
        measured = quantity(bound) if isinstance(bound, str) else None
        if isinstance(bound, str) and (measured is None or measured[0] != kind):
            return f"{bound!r} is not what {self.series} measures", accepted
        if isinstance(bound, bool) or (kind == "rate" and not isinstance(bound, str) and bound != 0):
            return f"{bound!r} is not what {self.series} measures", accepted
        return None

    @property
    def metric(self) -> Metric:
        """The declaration of the series."""
        return KNOWN[self.series]

    @property
    def counted_as(self) -> str:
        """What devices call the counter."""
        return COUNTED_AS.get(self.metric.key, self.metric.key)

    @property
    def labels(self) -> tuple[str, ...]:
        """What its lines can be distinguished by."""
        if self.metric.labels == COLLECTIVE:
            return ("comm_name", "collective", "nranks", "message_size", "algo_proto")
        found = self.metric.labels
        return (*found, "peer", "direction") if found[:2] == PORT else found

    @property
    def quantity(self) -> Quantity:
        """What its values measure, a rate taken into account."""
        metric = self.metric
        if metric.key in OF_OPERATIONS:
            return OF_OPERATIONS[metric.key]
        if metric.unit is Unit.PS:
            return "share" if self.rate else "time"
        if metric.unit is Unit.BYTES:
            return "rate" if self.rate else "size"
        return "number"

    @property
    def relation(self) -> Relation:
        """Which of the four it is."""
        return next(name for name in RELATIONS if getattr(self, name) is not None)

    @property
    def bound(self) -> Bounds:
        """What is compared with; of `recovers_to` a level that is a value."""
        if self.relation == "recovers_to":
            return Bounds(at_least=self.recovers_to)
        found: Bounds = getattr(self, self.relation)
        return found

    @property
    def reasons(self) -> frozenset[str] | None:
        """The reasons that `congestion` stands for; None if it is not asked for."""
        return CONGESTION_REASONS if self.where.reason == CONGESTION else None

    @property
    def shown(self) -> str:
        """The series and what is done with it, in one word or two."""
        labels = ",".join(f'{name}="{value}"' for name, value in self.where.given().items())
        text = self.series + (f"{{{labels}}}" if labels else "")
        text = f"rate of {text}" if self.rate else text
        return text if self.combine == "each" else f"{self.combine} of {text}"


EXPECTATIONS: Final = OneOfKeys({"value": Expectation, "series": SeriesExpectation})
"""An expectation is on a value of the summary, or on a series."""
