"""The base of all kinds of fault: times, target, and the changes that kinds are put together from.

A kind says what its target is (`target_kind`), what it changes there (`strike`), and what it does not fit
(`objections`). `emu.scenario.fault_schedule` makes occurrences of it.

The functions below the sections go from a spot of the fabric to changes of devices; the kinds in
`emu.scenario.faults.kinds` are put together from them.
"""

from collections.abc import Iterable, Iterator
from typing import Annotated, ClassVar, NamedTuple

from actors.fabric.model import Role, Topology
from actors.wire.fault import COMPUTE, COMPUTE_HUNG, GPU_GONE, HOLD, HUNG, LOST, RESET, ROWS, SLOW
from emu.base.records import Field
from emu.base.units import BEYOND_THE_CLOCK, CLOCK_ACCEPTED, MAX_QUANTITY
from emu.scenario.environment import Environment
from emu.scenario.faults.events import Change
from emu.scenario.faults.targets import Spot, TargetKind, fabric_ports
from emu.scenario.section import Refusal, Section
from emu.scenario.yaml.values import PositiveTimePs, TimePs, word

TargetName = Annotated[
    str,
    word(
        "a target",
        r"(any |busiest |[0-9]{1,3}(\.[0-9]{1,6})?% of )?"
        r"[A-Za-z*?\[][A-Za-z0-9_.*?\[\]-]*([:>/][A-Za-z0-9_.*?\[\]-]+)?(/[0-9]{1,4})?",
        'a name, a pattern like "rtsw-*", a role like "rtsw:ctsw", or "any ", "busiest " or "2% of " and one',
    ),
]
Count = Annotated[int, Field(ge=1, le=65536)]


class Strike(NamedTuple):
    """What a fault does where it hits."""

    changes: list[Change]
    down: tuple[int, ...] = ()
    """Links that lose their signal."""
    avoided: tuple[int, ...] = ()
    """Links that routing takes out of use."""
    silent: tuple[int, ...] = ()
    """Links that keep their signal and lose every frame; among `avoided`."""
    unaware: int = -1
    """The switch whose own routing does not change."""


class Objection(NamedTuple):
    """Why a fault does not fit the scenario or the fabric."""

    key: str
    reason: str
    accepted: str


class FaultSection(Section):
    """What every fault shares."""

    target_kind: ClassVar[TargetKind] = "link"
    repairs: ClassVar[bool] = False
    drawn: ClassVar[bool] = False
    effect: ClassVar[str] = ""
    """What it changes, and by how much, in one line; `tests/faults/test_effects.py` measures it."""

    kind: str
    """Kind of the fault."""
    at_ps: TimePs = 0
    """When, in virtual time."""

    @property
    def hits(self) -> str:
        """The target as written; empty where there is none."""
        return str(getattr(self, "target", ""))

    @property
    def lasts_ps(self) -> int:
        """How long one occurrence lasts; 0 until it is repaired, or the end of the run."""
        return 0

    def times_ps(self, end_ps: int) -> Iterator[tuple[int, int]]:
        """Begin and end (0 for never) of each occurrence before the end of the run."""
        yield self.at_ps, self.at_ps + self.lasts_ps if self.lasts_ps else 0

    @property
    def loses_all(self) -> bool:
        """Whether a link carries nothing and keeps its signal."""
        return False

    def swapped_links(self, topology: Topology) -> tuple[int, int] | None:
        """Two links, by number, whose ends are swapped from the start."""
        return None

    def notice(self) -> str:
        """What is said of it as a run begins; empty for nothing."""
        return ""

    def strike(self, spot: Spot, topology: Topology, environment: Environment) -> Strike:
        """What an occurrence changes at one spot."""
        raise NotImplementedError

    def objections(self, spot: Spot, topology: Topology, environment: Environment) -> Iterator[Objection]:
        """What speaks against it at one spot."""
        yield from ()


def notices(faults: Iterable[FaultSection]) -> list[str]:
    """A line for each fault of which something is said as a run begins."""
    return [f"faults[{at}]: {line}" for at, section in enumerate(faults) if (line := section.notice())]


class RecurringFault(FaultSection):
    """A fault that may last, end and come again."""

    target: TargetName
    """Target: a name, a pattern (`rtsw-*`), a role (`rtsw:ctsw`), `any` of these, drawn each time, or the
    `busiest` of these, measured each time."""
    for_ps: PositiveTimePs | None = None
    """Duration. Default: until it is repaired, or the end of the run."""
    every_ps: PositiveTimePs | None = None
    """Again so long after it began the last time. Default: once."""
    count: Count | None = None
    """Number of occurrences, with `every`. Default: until `run.max_time`."""
    until_ps: PositiveTimePs | None = None
    """It does not come again from then on, and what is under way ends then. Default: never."""

    @property
    def lasts_ps(self) -> int:
        """How long one occurrence lasts; 0 until it is repaired, or the end of the run."""
        return self.for_ps or 0

    def times_ps(self, end_ps: int) -> Iterator[tuple[int, int]]:
        """Begin and end (0 for never) of each occurrence before the end of the run."""
        most = 1 if self.every_ps is None else self.count or 1 << 17
        for number in range(most):
            begin_ps = self.at_ps + number * (self.every_ps or 0)
            if number and begin_ps >= end_ps:
                return
            yield begin_ps, self.cut_ps(begin_ps + self.lasts_ps if self.lasts_ps else 0)

    def cut_ps(self, end_ps: int) -> int:
        """When an occurrence ends that would at `end_ps` (0 for never)."""
        if self.until_ps is None:
            return end_ps
        return min(end_ps, self.until_ps) if end_ps else self.until_ps

    def happens(self, begin_ps: int) -> bool:
        """Whether what would occur then does. Those that do not keep their numbers, so that a fault that is
        cleared while a run goes on leaves the numbers of all others as they are."""
        return self.until_ps is None or begin_ps < self.until_ps

    def check(self) -> Iterator[Refusal]:
        """Refuse times that contradict each other."""
        yield from self.check_until()
        if self.at_ps + self.lasts_ps > MAX_QUANTITY:
            yield Refusal(("for",), f"ends {BEYOND_THE_CLOCK}", CLOCK_ACCEPTED)
        if self.count is not None and self.every_ps is None:
            yield Refusal(("count",), "counts what happens once", "every: the time from one to the next")
        if self.every_ps is not None and (self.for_ps is None or self.for_ps >= self.every_ps):
            yield Refusal(("every",), "comes again before it has ended", "for: less than every")

    def check_until(self) -> Iterator[Refusal]:
        """Refuse what ends before it begins."""
        if self.until_ps is not None and self.until_ps <= self.at_ps:
            yield Refusal(("until",), "is not after at", "a later time")


def held(topology: Topology, links: Iterable[int]) -> list[Change]:
    """Both ends of each link lose their signal."""
    found: list[Change] = []
    for number in links:
        link = topology.links[number]
        found += [Change(int(HOLD), link.a, link.a_port), Change(int(HOLD), link.b, link.b_port)]
    return found


def links_at(topology: Topology, node: int, ports: Iterable[int] | None = None) -> tuple[int, ...]:
    """The links behind ports of a device; by default all its links on the fabric."""
    numbers = fabric_ports(topology, node) if ports is None else ports
    return tuple(topology.ports(node)[port].link for port in numbers)


def at_ports(op: int, node: int, ports: Iterable[int], values: tuple[int, int, int]) -> list[Change]:
    """The same at several ports of a device."""
    return [Change(int(op), node, port, values) for port in ports]


def at_senders(
    op: int, topology: Topology, links: Iterable[int], sender: str | None, values: tuple[int, int, int]
) -> list[Change]:
    """The same at the sending ends of links: both, or the one that is named."""
    return [Change(int(op), node, port, values) for node, port in _ends(topology, links, sender)]


def at_receivers(
    op: int, topology: Topology, links: Iterable[int], sender: str | None, values: tuple[int, int, int]
) -> list[Change]:
    """The same at the receiving ends of links, seen from the sender."""
    found: list[Change] = []
    for node, port in _ends(topology, links, sender):
        end = topology.ports(node)[port]
        found.append(Change(int(op), end.peer, end.peer_port, values))
    return found


def _ends(topology: Topology, links: Iterable[int], sender: str | None) -> Iterator[tuple[int, int]]:
    for number in links:
        link = topology.links[number]
        for node, port in ((link.a, link.a_port), (link.b, link.b_port)):
            if sender is None or topology.nodes[node].name == sender:
                yield node, port


def members(topology: Topology, host: int, role: Role) -> list[int]:
    """The GPUs or NICs of a server."""
    return [node for node in topology.server(topology.nodes[host].host) if topology.nodes[node].role is role]


def lost_host(topology: Topology, host: int) -> tuple[list[Change], tuple[int, ...]]:
    """A server is gone: what it ran, its GPUs, its queue pairs, and the links of its NICs, which are
    notified.
    """
    nics = members(topology, host, Role.NIC)
    links = tuple(link for nic in nics for link in links_at(topology, nic))
    changes = [Change(int(LOST), host, 0)]
    changes += [Change(int(LOST), gpu, 0) for gpu in members(topology, host, Role.GPU)]
    changes += [Change(int(RESET), nic, 0) for nic in nics]
    return changes + held(topology, links), links


def lost_gpu(topology: Topology, gpu: int) -> list[Change]:
    """A GPU is gone, and its host sees it."""
    return [Change(int(LOST), gpu, 0), _at_host(GPU_GONE, topology, gpu)]


def slow_gpu(topology: Topology, gpu: int, thousandths: int) -> list[Change]:
    """A GPU takes longer to copy, and to compute what its host has launched."""
    values = (thousandths, 0, 0)
    return [Change(int(SLOW), gpu, 0, values), _at_host(COMPUTE, topology, gpu, values)]


def hung_gpu(topology: Topology, gpu: int) -> list[Change]:
    """A GPU neither copies nor computes."""
    return [Change(int(HUNG), gpu, 0), _at_host(COMPUTE_HUNG, topology, gpu)]


def remapped_rows(topology: Topology, gpu: int, rows: int) -> list[Change]:
    """Rows of a GPU's memory that were remapped, as its host can see."""
    return [_at_host(ROWS, topology, gpu, (rows, 0, 0))]


def slow_host(topology: Topology, host: int, thousandths: int) -> list[Change]:
    """The GPUs of a server, and its proxies, take longer."""
    changes = [Change(int(SLOW), host, 0, (thousandths, 0, 0))]
    for gpu in members(topology, host, Role.GPU):
        changes += slow_gpu(topology, gpu, thousandths)
    return changes


def _at_host(op: int, topology: Topology, gpu: int, values: tuple[int, int, int] = (0, 0, 0)) -> Change:
    """The same at the host's port to a GPU."""
    end = topology.host_end(gpu)
    return Change(int(op), end.peer, end.peer_port, values)
