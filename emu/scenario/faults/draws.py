"""The kind `random`: faults drawn from failure rates.

Every component that a class hits breaks as a Poisson process of its own: so many times an hour, times the
acceleration, since a run lasts milliseconds and a fleet months. The draws depend on the scenario's seed, the
fault's place in the list and the class's, and on nothing else.

`table: llama3` has the failures of Llama 3's training (54 days, 16,384 GPUs, 419 unexpected interruptions),
mapped to what the emulator can break:

    gpu_lost    GPU 148, HBM3 72, SRAM 19        gpu_hung   system processor 17, NCCL watchdog 7
    gpu_slow    GPU thermal 6                    nic_down   NIC 7
    host_lost   software 54, host maintenance 32, PSU 3, SSD 3, chassis 2, IO board 2, CPU 2, memory 2
    link_down   switch or cable 35

Silent corruption and dependencies (8 of 419) break nothing that is modelled. The table counts what happened
to a fabric of so many GPUs, and not how many cables that has. So its rates are per hour and GPU, and shared
out over the hosts, NICs and cables there are: causes have the shares of the table on any fabric. Source:
The Llama 3 Herd of Models, table 5.
"""

from collections.abc import Iterator
from decimal import ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from typing import Annotated, Any, Final, Literal, NamedTuple

from actors.fabric.model import Topology
from actors.kernel.mixing import Stream
from actors.kernel.units import PS_PER_S
from emu.base.records import Field, RefusedError
from emu.base.spelling import shown
from emu.base.units import FRACTION_ACCEPTED, parse_fraction, parse_time
from emu.scenario.environment import Environment
from emu.scenario.faults.base import FaultSection, Objection, Strike, TargetName
from emu.scenario.faults.device_faults import GpuHung, GpuLost, GpuSlow, HostLost, NicDown
from emu.scenario.faults.link_faults import LinkDown
from emu.scenario.faults.targets import Spot, TargetKind
from emu.scenario.section import Refusal, Section
from emu.scenario.yaml.values import PositiveTimePs, Reading

HOUR_PS: Final = 3600 * PS_PER_S
DRAWS_PURPOSE: Final = 1 << 23
_EXACT: Final = Context(prec=40)


def _read_rate(value: object) -> Fraction:
    rate = parse_fraction(value)
    if rate <= 0 or rate > 10**15 or rate.denominator > 10**15:
        raise RefusedError(f"{shown(value)} is out of range", "a number above 0, at most 1e15")
    return rate


PerHour = Annotated[
    Fraction,
    Reading(
        _read_rate,
        lambda rate: f"{rate.numerator}/{rate.denominator}",
        FRACTION_ACCEPTED,
        {"anyOf": [{"type": "string", "pattern": r"^[0-9]+\s*/\s*[0-9]+$"}, {"type": "number"}]},
        "number",
    ),
]
DrawnKind = Literal["link_down", "nic_down", "gpu_slow", "gpu_hung", "gpu_lost", "host_lost"]
DRAWN: Final[dict[str, type[LinkDown | NicDown | GpuSlow | GpuHung | GpuLost | HostLost]]] = {
    "link_down": LinkDown,
    "nic_down": NicDown,
    "gpu_slow": GpuSlow,
    "gpu_hung": GpuHung,
    "gpu_lost": GpuLost,
    "host_lost": HostLost,
}
_LLAMA3_GPU_HOURS: Final = 54 * 24 * 16384
LLAMA3: Final[tuple[tuple[DrawnKind, str, Fraction], ...]] = (
    ("gpu_lost", "gpu", Fraction(239, _LLAMA3_GPU_HOURS)),
    ("gpu_hung", "gpu", Fraction(24, _LLAMA3_GPU_HOURS)),
    ("gpu_slow", "gpu", Fraction(6, _LLAMA3_GPU_HOURS)),
    ("nic_down", "nic", Fraction(7, _LLAMA3_GPU_HOURS)),
    ("host_lost", "host", Fraction(100, _LLAMA3_GPU_HOURS)),
    ("link_down", "*:*", Fraction(35, _LLAMA3_GPU_HOURS)),
)
"""Kind, target, and how often in an hour for each GPU of the fabric."""


class FailureClass(Section):
    """One way to break, and how often."""

    fails: DrawnKind
    """The kind of fault."""
    target: TargetName
    """Targets: a pattern or a role; each match has the rate."""
    per_hour: PerHour
    """Failures of one target in an hour of real life."""
    for_ps: PositiveTimePs | None = None
    """Duration. Default: until the end of the run."""


class Drawn(NamedTuple):
    """One draw: a fault of one thing."""

    section: LinkDown | NicDown | GpuSlow | GpuHung | GpuLost | HostLost
    at_ps: int


class RandomFaults(FaultSection):
    """Whatever breaks by itself, drawn from the seed."""

    drawn = True
    effect = "as often as the rates say, times `acceleration`"
    kind: Literal["random"] = "random"
    """Failures by rate."""
    table: Literal["llama3"] | None = None
    """A table of failure classes, in place of `classes`."""
    classes: Annotated[tuple[FailureClass, ...], Field(max_length=64)] = ()
    """Classes of failures and their rates."""
    acceleration: PerHour
    """Hours of real life in an hour of virtual time; printed when a run begins."""
    within_ps: PositiveTimePs = parse_time("10ms")
    """Span from `at` on in which failures occur."""
    repaired_after_ps: PositiveTimePs | None = None
    """Duration of a failure of `table`. Default: until the end of the run."""

    def check(self) -> Iterator[Refusal]:
        """Either a table or classes."""
        if (self.table is None) == (not self.classes):
            yield Refusal((), "needs failure classes", "either table or classes")

    def times_ps(self, end_ps: int) -> Iterator[tuple[int, int]]:
        """For how long things break; what breaks may last longer."""
        yield self.at_ps, self.at_ps + self.within_ps

    def failure_classes(self) -> list[FailureClass]:
        """What breaks how often, also where it is a table."""
        if self.table is None:
            return list(self.classes)
        lasting: dict[str, Any] = {"for": self.repaired_after_ps}
        return [
            FailureClass.model_construct(fails=fails, target=target, per_hour=rate, **lasting)
            for fails, target, rate in LLAMA3
        ]

    def per_hour(self, one: FailureClass, components: int, gpus: int) -> Fraction:
        """How often one of so many components of a class breaks, on a fabric of so many GPUs."""
        return one.per_hour if self.table is None else one.per_hour * gpus / components

    def notice(self) -> str:
        """How much faster than in life failures come."""
        return f"failures come {float(self.acceleration):g} times as often as in life"

    def strike(self, spot: Spot, topology: Topology, environment: Environment) -> Strike:
        """It is the drawn faults that strike."""
        raise NotImplementedError

    def objections(self, spot: Spot, topology: Topology, environment: Environment) -> Iterator[Objection]:
        """None: what does not exist does not break."""
        yield from ()


def target_kind_of(one: FailureClass) -> TargetKind:
    """What a failure class hits."""
    return DRAWN[one.fails].target_kind


def draws(
    section: RandomFaults, one: FailureClass, per_hour: Fraction, stream: Stream, spot: Spot
) -> Iterator[Drawn]:
    """When one thing breaks, so often, and how: the times of a Poisson process."""
    per_ps = per_hour * section.acceleration / HOUR_PS
    at_ps = section.at_ps
    while True:
        at_ps += exponential_gap(stream.draw62(), per_ps)
        if at_ps >= section.at_ps + section.within_ps:
            return
        values: dict[str, Any] = {"target": spot.name, "at": at_ps, "for": one.for_ps}
        yield Drawn(DRAWN[one.fails].model_construct(**values), at_ps)


def exponential_gap(drawn: int, rate: Fraction) -> int:
    """An exponentially distributed time of that rate, at least 1, exact to its unit on every machine.

    `drawn` is uniform over 62 bits, `rate` per unit of time.
    """
    share = Decimal(drawn + 1) / Decimal(1 << 62)
    mean = _EXACT.divide(Decimal(rate.denominator), Decimal(rate.numerator))
    gap = _EXACT.multiply(-_EXACT.ln(share), mean)
    return max(1, int(gap.to_integral_value(ROUND_FLOOR)))
