"""The kinds of fault that hit switches, NICs, GPUs and hosts."""

from collections.abc import Iterator
from fractions import Fraction
from typing import Annotated, ClassVar, Literal

from actors.fabric.model import Role, Topology
from actors.wire.fault import FLIP, PAIR_ERROR, RECEIVE, RESET
from emu.base.records import Field, RefusedError
from emu.base.spelling import shown
from emu.base.units import FRACTION_ACCEPTED, parse_fraction, parse_time
from emu.scenario.environment import Environment
from emu.scenario.faults.base import (
    Objection,
    RecurringFault,
    Strike,
    held,
    hung_gpu,
    links_at,
    lost_gpu,
    lost_host,
    remapped_rows,
    slow_gpu,
    slow_host,
)
from emu.scenario.faults.events import Change
from emu.scenario.faults.targets import Spot, TargetKind
from emu.scenario.section import Refusal
from emu.scenario.yaml.values import PositiveTimePs, RateBps, Reading, show_fraction


def _read_factor(value: object) -> Fraction:
    factor = parse_fraction(value)
    if not Fraction(1, 1000) <= factor <= 10_000:
        raise RefusedError(f"{shown(value)} is out of range", "a factor from 1/1000 to 10000")
    return factor


SlowFactor = Annotated[
    Fraction,
    Reading(
        _read_factor,
        show_fraction,
        FRACTION_ACCEPTED,
        {"anyOf": [{"type": "string", "pattern": r"^[0-9]+\s*/\s*[0-9]+$"}, {"type": "number"}]},
        "fraction",
    ),
]


class SwitchCrash(RecurringFault):
    """A switch goes dark: all its links lose their signal, and what it held is dropped."""

    target_kind: ClassVar[TargetKind] = "switch"
    effect = "as link_down, for all its links"
    kind: Literal["switch_crash"] = "switch_crash"
    """Until it is back, if ever."""

    def strike(self, spot: Spot, topology: Topology, environment: Environment) -> Strike:
        """All its links."""
        links = links_at(topology, spot.node)
        return Strike(held(topology, links), links, links)


class SwitchReboot(SwitchCrash):
    """A switch goes dark and comes back after its boot time."""

    effect = "as link_down, for all its links and `boot_time`"
    kind: Literal["switch_reboot"] = "switch_reboot"  # type: ignore[assignment]
    """As a crash that ends by itself."""
    boot_time_ps: PositiveTimePs = parse_time("90s")
    """From the last frame to the first. 90 s is a choice: a cold start of a data-centre switch."""

    @property
    def lasts_ps(self) -> int:
        """How long it is dark."""
        return self.boot_time_ps

    def check(self) -> Iterator[Refusal]:
        """The boot time says how long."""
        if self.for_ps is not None:
            yield Refusal(("for",), "is not for a reboot", "boot_time")


class SwitchDrain(RecurringFault):
    """A switch is taken out of routing while its links stay up: nothing is lost."""

    target_kind: ClassVar[TargetKind] = "switch"
    effect = "nothing is lost, and nothing new crosses it after `routing.convergence`"
    kind: Literal["switch_drain"] = "switch_drain"
    """The others send nothing new through it after `routing.convergence`."""

    def strike(self, spot: Spot, topology: Topology, environment: Environment) -> Strike:
        """What the others know of its links."""
        return Strike([], (), links_at(topology, spot.node), unaware=spot.node)

    def objections(self, spot: Spot, topology: Topology, environment: Environment) -> Iterator[Objection]:
        """NICs have nowhere else to go."""
        if any(topology.nodes[end.peer].role is Role.NIC for end in topology.ports(spot.node)):
            yield Objection(
                "target", f"{spot.name} has NICs, which it would cut off", "a switch above the leaves"
            )


class NicDown(RecurringFault):
    """A NIC loses all its links."""

    target_kind: ClassVar[TargetKind] = "nic"
    effect = "as link_down, for all its links"
    kind: Literal["nic_down"] = "nic_down"
    """Its queue pairs stay what they were."""

    def strike(self, spot: Spot, topology: Topology, environment: Environment) -> Strike:
        """All its links."""
        links = links_at(topology, spot.node)
        return Strike(held(topology, links), links, links)


class NicPortDown(RecurringFault):
    """One port of a NIC loses its link; with two, the other takes over."""

    target_kind: ClassVar[TargetKind] = "nic"
    effect = "as link_down; a second port takes over"
    kind: Literal["nic_port_down"] = "nic_port_down"
    """The link behind it is down."""
    port: Annotated[int, Field(ge=0, le=7)] = 0
    """The port."""

    def strike(self, spot: Spot, topology: Topology, environment: Environment) -> Strike:
        """The link behind the port."""
        links = links_at(topology, spot.node, (self.port,))
        return Strike(held(topology, links), links, links)

    def objections(self, spot: Spot, topology: Topology, environment: Environment) -> Iterator[Objection]:
        """The NIC has the port."""
        count = len(links_at(topology, spot.node))
        if self.port >= count:
            yield Objection("port", f"{spot.name} has no port {self.port}", f"0 to {count - 1}")


class NicReset(RecurringFault):
    """A NIC is reset: its queue pairs are in error, and its links are down while it starts."""

    target_kind: ClassVar[TargetKind] = "nic"
    effect = "jobs that use it fail (retry_exceeded at their peers)"
    kind: Literal["nic_reset"] = "nic_reset"
    """What is posted is flushed; jobs that used it fail."""
    for_ps: PositiveTimePs = parse_time("1ms")
    """Time of the restart. 1 ms is a choice."""

    def strike(self, spot: Spot, topology: Topology, environment: Environment) -> Strike:
        """The queue pairs, and the links."""
        links = links_at(topology, spot.node)
        return Strike([Change(int(RESET), spot.node, 0), *held(topology, links)], links, links)


class QpError(RecurringFault):
    """A queue pair of a NIC goes into error and flushes what is posted."""

    target_kind: ClassVar[TargetKind] = "nic"
    effect = "its job fails at once"
    kind: Literal["qp_error"] = "qp_error"
    """Only its owner can bring it back, by way of RESET; the job that used it fails."""
    pair: Annotated[int, Field(ge=0, le=65535)] = 0
    """The queue pair, by its index in the NIC."""

    def strike(self, spot: Spot, topology: Topology, environment: Environment) -> Strike:
        """The queue pair."""
        return Strike([Change(int(PAIR_ERROR), spot.node, self.pair)])


class SlowReceiver(RecurringFault):
    """Memory behind a NIC takes what arrives more slowly than the link brings it."""

    target_kind: ClassVar[TargetKind] = "nic"
    effect = "a flow into it runs at `rate`"
    kind: Literal["slow_receiver"] = "slow_receiver"
    """The NIC's buffer fills and it pauses its leaf: to everyone else a slow network."""
    rate_bps: RateBps
    """Payload that memory takes. The buffer is that of `nic.receive`."""

    def strike(self, spot: Spot, topology: Topology, environment: Environment) -> Strike:
        """The NIC's way to memory."""
        return Strike([Change(int(RECEIVE), spot.node, 0, (self.rate_bps, 0, 0))])


class GpuSlow(RecurringFault):
    """A GPU takes longer for everything, as one that is too hot."""

    target_kind: ClassVar[TargetKind] = "gpu"
    effect = "computing and copies take `factor` times as long"
    kind: Literal["gpu_slow"] = "gpu_slow"
    """Copies and computing, what is under way included."""
    factor: SlowFactor = Fraction(2)
    """Times as long."""

    def strike(self, spot: Spot, topology: Topology, environment: Environment) -> Strike:
        """The GPU."""
        return Strike(slow_gpu(topology, spot.node, int(self.factor * 1000)))


class GpuHung(RecurringFault):
    """A GPU does nothing that it is asked for until it goes on."""

    target_kind: ClassVar[TargetKind] = "gpu"
    effect = "computing and copies stand still for as long"
    kind: Literal["gpu_hung"] = "gpu_hung"
    """What was asked for meanwhile is done then; computing stands still."""

    def strike(self, spot: Spot, topology: Topology, environment: Environment) -> Strike:
        """The GPU."""
        return Strike(hung_gpu(topology, spot.node))


class BitFlip(RecurringFault):
    """A bit of a GPU's memory turns over, past every check of the wire: a result comes out wrong."""

    target_kind: ClassVar[TargetKind] = "gpu"
    effect = "one bit of a result is wrong"
    kind: Literal["bit_flip"] = "bit_flip"
    """A bit flips in what its collectives work on just then; with `payload: real`."""
    bit: Annotated[int, Field(ge=0, lt=2**33)] = 0
    """Bit of the rank's buffer, counted from its start and round again."""

    def strike(self, spot: Spot, topology: Topology, environment: Environment) -> Strike:
        """The GPU."""
        return Strike([Change(int(FLIP), spot.node, 0, (self.bit, 0, 0))])

    def objections(self, spot: Spot, topology: Topology, environment: Environment) -> Iterator[Objection]:
        """There is something to turn over."""
        if environment.payload != "real":
            yield Objection("kind", "GPUs hold nothing: packets carry sizes only", "payload: real")
        elif environment.ncclx.zero_copy:
            reason = "what NICs read and write themselves cannot turn over (ncclx.zero_copy)"
            yield Objection("kind", reason, "ncclx.zero_copy: false")
        elif environment.ncclx.in_line:
            reason = f"what no copy passes cannot turn over (ncclx.protocol: {environment.ncclx.protocol})"
            yield Objection("kind", reason, "ncclx.protocol: simple")


class GpuLost(RecurringFault):
    """A GPU falls off the bus: what it was doing is lost, its rank fails."""

    target_kind: ClassVar[TargetKind] = "gpu"
    effect = "its job fails at once (gpu_lost)"
    kind: Literal["gpu_lost"] = "gpu_lost"
    """The host sees it at once (Xid 79) and reports."""

    def strike(self, spot: Spot, topology: Topology, environment: Environment) -> Strike:
        """The GPU, and its host."""
        return Strike(lost_gpu(topology, spot.node))


class RowRemap(RecurringFault):
    """A GPU has taken rows of its memory out of use and put spare ones in their place: it may soon fail."""

    target_kind: ClassVar[TargetKind] = "gpu"
    effect = "nothing gets slower; heartbeats tell an operator (`operator.heartbeat.rows`)"
    kind: Literal["row_remap"] = "row_remap"
    """Computing and copies go on as before."""
    rows: Annotated[int, Field(ge=1, le=1 << 16)] = 8
    """Rows that are remapped by then."""

    def strike(self, spot: Spot, topology: Topology, environment: Environment) -> Strike:
        """What the host sees of the GPU."""
        return Strike(remapped_rows(topology, spot.node, self.rows))


class HostLost(RecurringFault):
    """A server goes dark, with its GPUs and NICs; nobody is notified."""

    target_kind: ClassVar[TargetKind] = "host"
    effect = "jobs on it fail (retry_exceeded at their peers)"
    kind: Literal["host_lost"] = "host_lost"
    """Peers find out by their timeouts; when it is back, its ranks report that they failed."""

    def strike(self, spot: Spot, topology: Topology, environment: Environment) -> Strike:
        """The whole server."""
        changes, links = lost_host(topology, spot.node)
        return Strike(changes, links, links)


class Straggler(RecurringFault):
    """A server is slower than the others: MegaScale saw 0.5 % of hosts about 10 % slower."""

    target_kind: ClassVar[TargetKind] = "host"
    effect = "computing, copies and posting there take `factor` times as long"
    kind: Literal["straggler"] = "straggler"
    """All its GPUs, and its proxies."""
    factor: SlowFactor = Fraction(11, 10)
    """Times as long."""

    def strike(self, spot: Spot, topology: Topology, environment: Environment) -> Strike:
        """GPUs and host."""
        return Strike(slow_host(topology, spot.node, int(self.factor * 1000)))
