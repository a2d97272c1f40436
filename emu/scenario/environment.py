"""What the jobs of a scenario run on: fabric, devices, collective library, limits of the run.

Everything of a scenario but its jobs, its faults and what is expected of it. A fault hits this much, so the
kinds of fault take an `Environment` and need not know the whole schema (`emu.scenario.schema`), which has
them in a table.
"""

from collections.abc import Iterator
from functools import cached_property
from typing import Annotated, Any, Literal, Self

from actors.fabric.model import Role, Topology
from actors.wire.frame import LARGEST_HEADERS_BYTES, PATH_HEADER_BYTES
from emu.base.errors import Problem, ScenarioError
from emu.base.records import Field, Mistake, MistakesError
from emu.base.spelling import listed
from emu.base.units import format_time, parse_time
from emu.scenario.profiles import with_profiles
from emu.scenario.section import Refusal, Section
from emu.scenario.sections.capture import MOST_CAPTURES, CaptureSection
from emu.scenario.sections.flow_trace import FlowTraceSection
from emu.scenario.sections.frontend import FrontendSection
from emu.scenario.sections.host import GpuSection, HostSection
from emu.scenario.sections.link import LinkSection
from emu.scenario.sections.ncclx import NcclxSection
from emu.scenario.sections.nic import NicSection, TransportSection
from emu.scenario.sections.overrides import OverrideSection, with_part
from emu.scenario.sections.routing import POLICIES, RoutingSection
from emu.scenario.sections.switch import SwitchSection
from emu.scenario.sections.topology import TOPOLOGIES, TopologySection
from emu.scenario.yaml.values import AutoPositiveTimePs, DelayPs, Name, PositiveTimePs, TimePs

LEAST_AUTO_STALL_PS = parse_time("10ms")
LONGEST_AUTO_STALL_PS = parse_time("100s")
TAKEN_FOR_LOSS = "go-back-N takes that for losses"


class ControlSection(Section):
    """The control plane: devices reached over the management network."""

    management_delay_ps: DelayPs = parse_time("100us")
    """One way between a host and the controller."""


class SpanSection(Section):
    """A part of the run of which the summary has rates by tier (`fabric.span`)."""

    at_ps: TimePs = 0
    """When it begins."""
    for_ps: TimePs = 0
    """Length of the span; the end of the run cuts it. 0: no span."""

    @property
    def until_ps(self) -> int:
        """Its end."""
        return self.at_ps + self.for_ps


Kpi = Literal["convergence", "loss_time", "flow_counts", "interference"]
"""Figures of the summary that cost more than counters at the end."""


class RunSection(Section):
    """When a run samples, gives up, and ends. All times are virtual."""

    stall_after_ps: AutoPositiveTimePs = None
    """A run with an unfinished job, and no payload delivered nor compute done for so long, has stalled.
    `auto`: long enough for every retry of a queue pair, and at least 10 ms."""
    sample_every_ps: PositiveTimePs = parse_time("100us")
    """Distance of the sync points at which counters are sampled."""
    sample_series: Literal["plotted", "all"] = "plotted"
    """Counters in the samples of a run directory: those that reports, figures, diagnosis and `expect` need
    over time, or all. The tables have all counters at the end either way."""
    max_time_ps: PositiveTimePs = parse_time("60s")
    """A run that is still going then ends as if it had stalled; with `repeat`, this is its end."""
    repeat: bool = False
    """Whether each job begins again when it is done, until `max_time`. A job that failed stays ended."""
    capture: Annotated[tuple[CaptureSection, ...], Field(max_length=MOST_CAPTURES)] = ()
    """Ports whose frames are written into files for Wireshark."""
    event_log: Annotated[int, Field(ge=0, le=10_000_000)] = 0
    """Events of each host, NIC and switch that are kept for `emu export perfetto`, the last ones; 0: none.
    They are slices, waits for clear-to-sends, computing, packets sent again and pauses."""
    trace: FlowTraceSection = FlowTraceSection.defaults()
    """Queue pairs that write what they may send, have in flight and sent again, over time."""
    span: SpanSection = SpanSection.defaults()
    """A part of the run whose rates stand beside those of the whole, such as the time in which a load is
    steady."""
    kpis: tuple[Kpi, ...] = ()
    """What the summary has besides: from samples, when the rates of flows had converged and for how long a
    fault lost frames; flows by uplink; and, from a run of each job by itself, what the others cost it. See
    `docs/results.md`."""

    def check(self) -> Iterator[Refusal]:
        """Refuse captures and a span of a time that no run reaches."""
        for place, one in enumerate(self.capture):
            if one.at_ps >= self.max_time_ps:
                reason = f"the run ends at {format_time(self.max_time_ps)} (run.max_time)"
                yield Refusal(("capture", place, "at"), reason, "an earlier time")
        if self.span.for_ps and self.span.at_ps >= self.max_time_ps:
            reason = f"the run ends at {format_time(self.max_time_ps)} (run.max_time)"
            yield Refusal(("span", "at"), reason, "an earlier time")


class Environment(Section):
    """A fabric, how its devices behave, and how far a run on it goes."""

    name: Name
    """Name of the scenario, in results and metrics."""
    description: Annotated[str, Field(max_length=4000)] = ""
    """The question that the scenario answers."""
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 1
    """Seed of every random stream: same scenario and seed, same result, bit for bit."""
    fidelity: Literal["packet", "flow", "auto"] = "packet"
    """Whether packets are emulated, or rates follow from the links that flows and calls share: see
    `docs/flow_level.md`. `auto` takes packets where they are few or queues decide, else rates."""
    costs: Literal["auto", "none", "default"] = "auto"
    """What calls of the library cost beside their bytes: the keys of docs/costs.md, where the scenario does
    not write them. `none`: nothing. `default`: as published for the GPU (`gpu.model`) and the library.
    `auto`: each key has its own default, 100 ns for an operation of a proxy and 0 for all else."""
    topology: Annotated[TopologySection, TOPOLOGIES]
    """The fabric."""
    frontend: FrontendSection = FrontendSection.defaults()
    """The network beside it, for storage."""
    routing: Annotated[RoutingSection, POLICIES] = POLICIES.section()
    """Choice among equal paths, and convergence."""
    switch: SwitchSection = SwitchSection.defaults()
    """The switches."""
    link: LinkSection = LinkSection.defaults()
    """The cables."""
    nic: NicSection = NicSection.defaults()
    """The NICs."""
    transport: TransportSection = TransportSection.defaults()
    """Their queue pairs."""
    host: HostSection = HostSection.defaults()
    """The servers."""
    gpu: GpuSection = GpuSection.defaults()
    """The GPUs."""
    overrides: Annotated[tuple[OverrideSection, ...], Field(max_length=65536)] = ()
    """Exceptions for single devices and links."""
    ncclx: NcclxSection = NcclxSection.defaults()
    """The collective library."""
    payload: Literal["sizes", "real"] = "sizes"
    """Whether packets of collectives carry bytes, reductions are done on them and results compared
    (`#wrong`), or packets carry no more than their size."""
    control: ControlSection = ControlSection.defaults()
    """The control plane."""
    run: RunSection = RunSection.defaults()
    """Limits and sampling."""

    @classmethod
    def prepared(cls, keys: dict[str, Any]) -> dict[str, Any]:
        """Profiles become the keys that they stand for; with `transport.kind: multipath` switches mark and do
        not pause. Neither where the scenario says otherwise."""
        keys = with_profiles(keys)
        transport, switch = keys.get("transport"), keys.get("switch") or {}
        if not isinstance(transport, dict) or transport.get("kind") != "multipath":
            return keys
        if not isinstance(switch, dict):
            return keys
        marking = {"enabled": True, "kmin": "100KB", "kmax": "300KB", "pmax": 1}
        return {**keys, "switch": {"pfc": {"enabled": False}, "ecn": marking, **switch}}

    def check(self) -> Iterator[Refusal]:
        """Refuse sections that contradict each other."""
        channels = self.ncclx.most_channels
        if channels * self.ncclx.sms_per_channel >= self.gpu.sms:
            reason = f"{channels} channels take all {self.gpu.sms} SMs of a GPU"
            yield Refusal(("ncclx", "channels"), reason, "fewer, a smaller sms_per_channel, or more gpu.sms")
        pfc = self.switch.pfc
        if self.credited:
            yield from self._without_room()
            if not self.transport.is_rc:
                reason = f"transport.kind: {self.transport.kind} asks links for no credits"
                yield Refusal(("link", "flow_control"), reason, "pfc")
        elif pfc.enabled and self.transport.is_rc and self.transport.data_priority not in pfc.priorities:
            reason = f"data at priority {self.transport.data_priority} is not lossless"
            accepted = (
                f"one of switch.pfc.priorities ({listed(map(str, pfc.priorities))}), or pfc.enabled: false"
            )
            yield Refusal(("transport", "data_priority"), reason, accepted)
        searched = self.transport.udp_source_port == "disjoint"
        if searched and (self.routing.kind not in ("ecmp", "e_ecmp") or self.routing.by_packet):
            reason = "where packets go cannot be told from their headers alone"
            accepted = "per_qp, or routing.kind: ecmp or e_ecmp over fields that a flow keeps"
            yield Refusal(("transport", "udp_source_port"), reason, accepted)
        if self.routing.reorders and not self.transport.out_of_order:
            accepted = "a transport.recovery that takes packets out of order"
            odd = self.routing.packet_fields
            if odd:
                reason = f"packets of one flow differ in {' and '.join(odd)} and go different ways"
                yield Refusal(("routing", "fields"), f"{reason}: {TAKEN_FOR_LOSS}", accepted)
            else:
                reason = f"{self.routing.kind} reorders packets, and {TAKEN_FOR_LOSS}"
                accepted += ", or routing.allow_reordering: true"
                yield Refusal(("routing", "kind"), reason, accepted)

        control = self.transport.congestion_control
        if control.by_packet and not self.transport.out_of_order:
            reason = f"{control.kind} reorders packets, and {TAKEN_FOR_LOSS}"
            accepted = "a transport.recovery that takes packets out of order"
            yield Refusal(("transport", "congestion_control", "kind"), reason, accepted)

    def mistakes(self) -> Iterator[Mistake]:
        """Refuse what each override makes of its sections."""
        yield from super().mistakes()
        for place, override in enumerate(self.overrides):
            try:
                view = self.overridden((place,))
            except MistakesError as error:
                yield from (one.below("overrides", place) for one in error.mistakes)
                continue
            for refusal in self._contradictions(override, view):
                yield Mistake(*refusal).below("overrides", place)

    def _contradictions(self, override: OverrideSection, view: Self) -> Iterator[Refusal]:
        """What of an override contradicts what the whole fabric has.

        A device may well contradict its neighbours: that is what overrides are for.
        """
        channels = self.ncclx.most_channels
        if override.gpu and channels * self.ncclx.sms_per_channel >= view.gpu.sms:
            reason = f"{channels} channels take all {view.gpu.sms} SMs of a GPU"
            yield Refusal(("gpu", "sms"), reason, "more")
        if self.credited and (override.switch or override.transport):
            for location, reason, accepted in view._without_room():
                if location[0] in override.parts:
                    yield Refusal(location, reason, accepted)
        control, own = self.transport.congestion_control, view.transport.congestion_control
        if control.collects != own.collects or (own.collects and control.kind != own.kind):
            reason = "telemetry is collected on the whole fabric or not at all"
            where = ("transport", "congestion_control", "kind")
            yield Refusal(where, reason, f"transport.congestion_control.kind: {own.kind}")

    @cached_property
    def views(self) -> dict[tuple[int, ...] | str, Self]:
        """What was asked of `overridden` and `at` before."""
        return {}

    @cached_property
    def transports(self) -> tuple[TransportSection, ...]:
        """The sections `transport` that there are: that of the fabric, and what each override makes of it."""
        return tuple(one.transport for one in self.every)

    @cached_property
    def largest_frame_bytes(self) -> int:
        """The largest frame on any link, with headers and FCS, without preamble and gap."""
        headers = int(LARGEST_HEADERS_BYTES) + (0 if self.transport.is_rc else int(PATH_HEADER_BYTES))
        return headers + max(
            one.mtu_bytes + one.congestion_control.telemetry_bytes for one in self.transports
        )

    @property
    def every(self) -> tuple[Self, ...]:
        """The scenario, and what each override by itself makes of it, in their order."""
        return (self, *(self.overridden((at,)) for at in range(len(self.overrides))))

    def overridden(self, places: tuple[int, ...]) -> Self:
        """The scenario with some of its overrides applied. Raises MistakesError."""
        if not places:
            return self
        found = self.views.get(places)
        if found is None:
            sections: dict[str, Any] = {}
            for place in places:
                for name, part in self.overrides[place].parts.items():
                    before = sections.get(name) or getattr(self, name)
                    try:
                        sections[name] = with_part(before, part)
                    except MistakesError as error:
                        raise MistakesError(one.below(name) for one in error.mistakes) from None
            found = self.views[places] = self.model_copy(update=sections | {"overrides": ()})
        return found

    def at(self, topology: Topology, number: int) -> Self:
        """The scenario as a device has it: what overrides say of it is in the sections.

        Raises ScenarioError where those do not go together.
        """
        if not self.overrides:
            return self
        node = topology.nodes[number]
        found = self.views.get(node.name)
        if found is None:
            places = self.overrides_of(topology, number)
            found = self.views[node.name] = self._together(places, node.name)
        return found

    def _together(self, places: tuple[int, ...], name: str) -> Self:
        """The overrides of one device applied. Raises ScenarioError where they contradict each other."""
        try:
            return self.overridden(places)
        except MistakesError as error:
            first = error.mistakes[0]
            reason = f"the overrides of {name} do not go together: {first.location[-1]} {first.reason}"
            where = f"overrides[{places[-1]}]"
            raise ScenarioError([Problem(self.name, 0, where, reason, "overrides that agree")]) from None

    def overrides_of(self, topology: Topology, number: int) -> tuple[int, ...]:
        """The overrides that count for a device, by place: those of its name, or of its host's."""
        node = topology.nodes[number]
        server = node.host >= 0 and node.role is not Role.HOST
        host = topology.nodes[topology.host_of(number)].name if server else node.name
        return tuple(
            place
            for place, one in enumerate(self.overrides)
            if one.names(node.name) or (server and one.names(host))
        )

    def link_at(self, topology: Topology, link: int) -> LinkSection:
        """The section `link` as a link of the fabric has it."""
        if not self.overrides:
            return self.link
        name = topology.links[link].name
        places = (at for at, one in enumerate(self.overrides) if one.link and one.names_link(name))
        return self._together(tuple(places), name).link

    def key_at(self, topology: Topology, number: int, key: str) -> str:
        """Where the value that a device has under a key stands: in an override, or in the section itself."""
        for place in reversed(self.overrides_of(topology, number) if self.overrides else ()):
            if self.overrides[place].has(key.partition("[")[0]):
                return f"overrides[{place}].{key}"
        return key

    @property
    def classified(self) -> bool:
        """Whether switches go by DSCP: a map is not the default, or NICs give other DSCPs."""
        if any(one.has("switch.qos") or one.has("nic.dscp") for one in self.overrides):
            return True
        qos = self.switch.qos
        return not qos.plain or self.nic.dscp != NicSection.defaults().dscp

    @property
    def credited(self) -> bool:
        """Whether links have credits instead of PFC."""
        return self.link.flow_control == "credits"

    def credit_blocks(self, largest_frame_bytes: int) -> tuple[int, int, int]:
        """Blocks of 64 bytes of a lane's buffer, of an update's step, and of the largest frame."""
        largest = -(-largest_frame_bytes // 64)
        update_bytes = self.link.credits.update_bytes
        update = 2 * largest if update_bytes is None else -(-update_bytes // 64)
        return self.link.credits.buffer_bytes // 64, update, largest

    def _without_room(self) -> Iterator[Refusal]:
        """What does not go with credits."""
        largest_bytes = self.transport.mtu_bytes + int(LARGEST_HEADERS_BYTES)
        largest_bytes += self.transport.congestion_control.telemetry_bytes
        buffer, update, largest = self.credit_blocks(largest_bytes)
        if buffer < update + 2 * largest:
            reason = f"{buffer} blocks are less than an update and two frames of {largest_bytes} bytes"
            accepted = f"at least {(update + 2 * largest) * 64}B"
            yield Refusal(("link", "credits", "buffer"), reason, accepted)
        if self.switch.buffer.admission.kind != "thresholds":
            reason = "links have credits, and so everything is admitted"
            where = ("switch", "buffer", "admission", "kind")
            yield Refusal(where, reason, "thresholds, or link.flow_control: pfc")
        if self.classified:
            reason = "DSCP maps are Ethernet's, and links have credits"
            yield Refusal(("switch", "qos"), reason, "link.flow_control: pfc, or no maps")
        if self.switch.deep_buffer.where in ("spines", "all"):
            reason = "modular switches are modelled with PFC, and links have credits"
            yield Refusal(
                ("switch", "deep_buffer", "where"), reason, "none, or auto; or link.flow_control: pfc"
            )
        if self.switch.pfc.watchdog.enabled:
            reason = "a PFC watchdog has nothing to watch where links have credits"
            yield Refusal(("switch", "pfc", "watchdog", "enabled"), reason, "false")

    @property
    def stall_after_ps(self) -> int:
        """`run.stall_after`, with `auto` worked out: one timeout longer than a queue pair's retries take.

        At least 10 ms; at most 100 s, also where a queue pair waits for ever (`timeout: 0`).
        """
        if self.run.stall_after_ps is not None:
            return self.run.stall_after_ps
        silences_ps = [one.longest_silence_ps for one in self.transports]
        if 0 in silences_ps:
            return LONGEST_AUTO_STALL_PS
        return min(max(*silences_ps, LEAST_AUTO_STALL_PS), LONGEST_AUTO_STALL_PS)
