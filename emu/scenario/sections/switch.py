"""Section `switch`: latency, buffer, QoS maps, PFC, ECN, scheduling.

`switch.buffer` is one shared pool; profiles give priority groups thresholds, reserve and headroom of their
own. Its thresholds are the defaults on which simulators of lossless RoCE fabrics agree (alpha 1/8, reserve
4 KiB, XON 2 MTU below XOFF), pool and headroom those of SONiC boxes (`emu.devices.asic_headroom`); they are
not Meta's. Names of SONiC: its schema of CONFIG_DB.

Sources: PFC is IEEE 802.1Qbb: quanta of
512 bit times, 65,535 at most. Response times are 905 quanta at 400G and 394 up to 100G (uncertain:
summaries of vendors' documents).

QoS maps (`switch.qos`): the queue and the priority group of a packet, by its DSCP. Four maps, as SONiC has
them: DSCP_TO_TC_MAP, TC_TO_QUEUE_MAP, TC_TO_PRIORITY_GROUP_MAP and MAP_PFC_PRIORITY_TO_QUEUE. A map is
written as its exceptions; what it does not name keeps its default: the class selector of a DSCP (its upper
three bits), and the number itself for all others.
"""

from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Annotated, Any, ClassVar, Final, Literal

from actors.kernel.units import serialisation_ps
from actors.port.scheduling import DeficitRoundRobin, Scheduler
from actors.switch.buffer import Admission
from actors.switch.ecn import Aqm, Red
from emu.base.records import Field, RefusedError
from emu.base.spelling import shown
from emu.base.units import parse_rate, parse_size, parse_time
from emu.scenario.knobs import Policies, PolicySection
from emu.scenario.plugins import OneOfOrPlugin
from emu.scenario.readers.config_db import ConfigFile
from emu.scenario.section import Refusal, Section
from emu.scenario.yaml.document import Node
from emu.scenario.yaml.values import (
    AutoPositiveSizeBytes,
    AutoSizeBytes,
    AutoTimePs,
    DelayPs,
    NodeName,
    PeerPattern,
    PositiveFraction,
    PositiveSizeBytes,
    PositiveTimePs,
    Priority,
    RateBps,
    Reading,
    Share,
    SizeBytes,
    TimePs,
)

MOST_THRESHOLD_BYTES: Final = 2**46
"""Thresholds are computed in 62 bits, 16 of them behind the point."""
POOL_BYTES: Final = parse_size("64MB")
"""Pool of a switch that is no box of a known chip, as simulators have it."""
MOST_POOL_BYTES: Final = 162_539_680
"""Pool of the largest chip."""


class BufferProfile(Section):
    """What a priority group gets of the buffer. SONiC: BUFFER_PROFILE."""

    alpha: PositiveFraction = Fraction(1, 8)
    """Dynamic XOFF threshold of a priority group = alpha x (shared pool - used). SONiC: `dynamic_th`, the
    exponent of alpha to the base 2."""
    xoff_bytes: AutoPositiveSizeBytes = None
    """Static XOFF threshold: what a group may hold of the shared pool, whatever others hold. SONiC:
    `static_th`. `auto`: the dynamic one."""
    xon_bytes: AutoSizeBytes = None
    """Static XON: a group that was stopped goes on when it holds no more than this of the shared pool. SONiC:
    `xon`. `auto`: by `xon_offset` alone; with both, the higher of the two."""
    xon_offset_bytes: AutoSizeBytes = None
    """XON lies this far below XOFF. SONiC: `xon_offset`. `auto`: two largest frames, or nothing where `xon`
    is given."""
    reserve_bytes: SizeBytes = parse_size("4KiB")
    """Guaranteed to each port's priority group before it takes from the shared pool. SONiC: `size`."""
    headroom_bytes: AutoSizeBytes = None
    """Per port and lossless priority, for what arrives after XOFF. SONiC: `xoff`. `auto`: 2 x propagation x
    rate + 3 x largest frame + pause frame + (peer's response time + own ingress pipeline) x rate; of a chip
    (`switch.buffer.asic`), what boxes with it ship, if that is more."""

    def check(self) -> Iterator[Refusal]:
        """Refuse thresholds in the wrong order."""
        if self.xoff_bytes is not None and (self.xon_bytes or 0) > self.xoff_bytes:
            yield Refusal(("xon",), "lies above xoff", "at most `xoff`")

    def misfits(self, pool_bytes: int) -> Iterator[Refusal]:
        """What of it is larger than the whole, and a threshold that is beyond counting."""
        parts = (
            ("reserve", self.reserve_bytes),
            ("headroom", self.headroom_bytes),
            ("xoff", self.xoff_bytes),
        )
        for key, part_bytes in parts:
            if (part_bytes or 0) > pool_bytes:
                yield Refusal((key,), "is larger than the pool", "less than `pool`")
        if pool_bytes * self.alpha >= MOST_THRESHOLD_BYTES:
            yield Refusal(("alpha",), "makes a threshold of more than 64 TB", "less `alpha`, or less `pool`")

    def resumes_at(self, largest_frame_bytes: int) -> tuple[int, int]:
        """Static XON, and how far below XOFF the other lies, in bytes."""
        offset_bytes = self.xon_offset_bytes
        if offset_bytes is None:
            offset_bytes = 2 * largest_frame_bytes if self.xon_bytes is None else MOST_THRESHOLD_BYTES
        return self.xon_bytes or 0, offset_bytes


class GroupProfile(BufferProfile):
    """A profile of some priority groups, complete: what it leaves out has the default. SONiC: BUFFER_PG."""

    priorities: Annotated[tuple[Priority, ...], Field(min_length=1, max_length=8)]
    """The priority groups."""


class AdmissionSection(PolicySection):
    """What every admission policy shares."""

    kind: str
    """Which policy."""


ADMISSIONS: Final = OneOfOrPlugin(
    Policies(
        {"thresholds": (AdmissionSection, Admission, "Dynamic and static thresholds, by priority group.")}
    ),
    default="thresholds",
    base=AdmissionSection,
    parent=Admission,
    methods=("threshold_bytes",),
)


class BufferSection(BufferProfile):
    """One shared pool, and what each priority group gets of it."""

    pool_bytes: AutoPositiveSizeBytes = None
    """The whole buffer: reserves, headroom and what is shared. SONiC: the `size` of BUFFER_POOL. `auto`: that
    of the chip (66.4, 113.6 and 162.5 MB), or 64 MB without one."""
    asic: Literal["auto", "none", "tomahawk3", "tomahawk4", "tomahawk5"] = "auto"
    """The chip by which `auto` of `pool`, `headroom` and `headroom_pool` go, as SONiC boxes ship them.
    Headroom counts cells, each of a small frame, and a fixed part by rate (pg_profile_lookup.ini). `auto`:
    the smallest chip that has the rate of all ports (12.8, 25.6, 51.2T); none where `pool` is given, at
    modular switches and with credits. `none`: the bytes with which an emulated port loses nothing, half to a
    seventh of a box's."""
    headroom_pool_bytes: AutoPositiveSizeBytes = None
    """Headroom that all priority groups of a switch share, each up to its own `headroom`; less than their sum
    is oversubscribed. SONiC: the `xoff` of BUFFER_POOL. `auto`: every group has its own; if the chip's boxes
    have less than that, groups share what boxes have, or what ports here need if that is more. Not for
    modular switches."""
    admission: Annotated[AdmissionSection, ADMISSIONS] = ADMISSIONS.section()
    """Limit of a priority group in the shared pool."""
    profiles: Annotated[tuple[GroupProfile, ...], Field(max_length=1024)] = ()
    """Groups with other thresholds, reserve and headroom; the first that names a group counts."""
    egress_limit_bytes: SizeBytes = 0
    """Limit of a lossy egress queue, preamble and gap included; 0: no limit. SONiC: `static_th` of a profile
    in BUFFER_QUEUE."""
    egress_alpha: Share = Fraction(0)
    """A lossy egress queue may hold egress_alpha x (shared pool - used); 0: no such limit. SONiC:
    `dynamic_th` of a profile in BUFFER_QUEUE."""
    lossless_egress_limit_bytes: SizeBytes = 0
    """The same limit of lossless egress queues, which drop beyond it as the box does; 0: none."""
    lossless_egress_alpha: Share = Fraction(0)
    """The same share for lossless egress queues; 0: none."""

    def check(self) -> Iterator[Refusal]:
        """Refuse parts larger than the whole."""
        yield from super().check()
        most_bytes = self.pool_bytes or MOST_POOL_BYTES
        yield from self.misfits(most_bytes)
        if (self.headroom_pool_bytes or 0) > most_bytes:
            yield Refusal(("headroom_pool",), "is larger than the pool", "less than `pool`")
        for at, profile in enumerate(self.profiles):
            for refusal in profile.misfits(most_bytes):
                yield refusal._replace(location=("profiles", at, *refusal.location))
            if len(dict.fromkeys(profile.priorities)) != len(profile.priorities):
                where = ("profiles", at, "priorities")
                yield Refusal(where, "a priority is listed twice", "each priority once")
        for key in ("egress_alpha", "lossless_egress_alpha"):
            if most_bytes * getattr(self, key) >= MOST_THRESHOLD_BYTES:
                yield Refusal((key,), "makes a limit of more than 64 TB", f"less `{key}`, or less `pool`")

    @property
    def limited(self) -> bool:
        """Whether egress queues have limits."""
        return any(getattr(self, name) > 0 for name in self.limits)

    limits: ClassVar[tuple[str, ...]] = (
        "egress_limit_bytes",
        "egress_alpha",
        "lossless_egress_limit_bytes",
        "lossless_egress_alpha",
    )
    """The fields that limit egress queues."""

    def key_of(self, part: BufferProfile) -> str:
        """Where a profile of `profiles_of` stands in the scenario."""
        places = [f".profiles[{at}]" for at, one in enumerate(self.profiles) if one is part]
        return "".join(["switch.buffer", *places])

    def profiles_of(self) -> list[BufferProfile]:
        """The profile of each priority."""
        found: list[BufferProfile] = [self] * 8
        for profile in reversed(self.profiles):
            for priority in profile.priorities:
                found[priority] = profile
        return found


SELECTORS: Final = tuple(dscp >> 3 for dscp in range(64))
"""The traffic class of every DSCP by its class selector bits."""
SAME: Final = tuple(range(8))
SELECTED: Final = tuple(8 * priority for priority in range(8))
"""The DSCP of every priority: its class selector."""


def map_reading(default: tuple[int, ...], values: int) -> Reading:
    """A map from the places of `default` to numbers below `values`, read as its exceptions."""
    accepted = f"a mapping of 0 to {len(default) - 1} to 0 to {values - 1}, like {{3: 4}}"

    def read(value: object) -> tuple[int, ...]:
        if isinstance(value, tuple) and len(value) == len(default):
            return value
        if not isinstance(value, dict):
            raise RefusedError(f"{shown(value)} is not a mapping", accepted)
        full = list(default)
        for key, number in value.items():
            text = str(key)
            if not (text.isascii() and text.isdigit() and len(text) < 3 and int(text) < len(default)):
                raise RefusedError(f"{shown(key)} is no key of this map", accepted)
            if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < values:
                raise RefusedError(f"{shown(number)} is out of range", accepted)
            full[int(text)] = number
        return tuple(full)

    def show(value: Any) -> object:
        return {str(at): to for at, (to, usual) in enumerate(zip(value, default, strict=True)) if to != usual}

    numbers = {"type": "integer", "minimum": 0, "maximum": values - 1}
    schema = {"type": "object", "patternProperties": {"^[0-9]{1,2}$": numbers}, "additionalProperties": False}
    return Reading(read, show, accepted, schema, f"map of 0..{len(default) - 1} to 0..{values - 1}")


DscpToClass = Annotated[tuple[int, ...], map_reading(SELECTORS, 8)]
ClassMap = Annotated[tuple[int, ...], map_reading(SAME, 8)]
PriorityToDscp = Annotated[tuple[int, ...], map_reading(SELECTED, 64)]


class QosSection(Section):
    """DSCP to traffic class to queue and priority group."""

    dscp_to_tc: DscpToClass = SELECTORS
    """Traffic class of a DSCP. SONiC: DSCP_TO_TC_MAP."""
    tc_to_queue: ClassMap = SAME
    """Egress queue of a traffic class; scheduling, ECN and `egress_limit` are the queue's. SONiC:
    TC_TO_QUEUE_MAP."""
    tc_to_priority_group: ClassMap = SAME
    """Ingress priority group of a traffic class; a group is lossless if `pfc.priorities` has its number, and
    pauses that priority. SONiC: TC_TO_PRIORITY_GROUP_MAP."""
    pfc_priority_to_queue: ClassMap = SAME
    """Egress queue that a pause of a priority stops. SONiC: MAP_PFC_PRIORITY_TO_QUEUE."""

    def check(self) -> Iterator[Refusal]:
        """Refuse one queue for two priorities: one's resume would let go what the other's pause holds."""
        if len(dict.fromkeys(self.pfc_priority_to_queue)) != 8:
            yield Refusal(
                ("pfc_priority_to_queue",), "two priorities stop one queue", "each queue for one priority"
            )

    @property
    def plain(self) -> bool:
        """Whether all maps are the default."""
        ours = (self.tc_to_queue, self.tc_to_priority_group, self.pfc_priority_to_queue)
        return self.dscp_to_tc == SELECTORS and ours == (SAME, SAME, SAME)


def mapped(tree: Node, key: str, at: int, default: int) -> int:
    """What a map of `switch.qos` makes of a number, in a scenario that is not validated yet."""
    node: Node | None = tree
    for step in ("switch", "qos", key, str(at)):
        node = None if node is None else node.child(step)
    return node.value if node is not None and isinstance(node.value, int) else default


MOST_PORTS: Final = 2048
"""A switch can have so many."""
LEAST_CREDIT_BYTES: Final = 9000
LEAST_QUANTUM_BYTES: Final = 4096
MOST_QUANTUM_BYTES: Final = 65536
QUANTUM_BYTES: Final = 64
"""One PFC quantum is the time of 512 bits."""
SLOW_RESPONSE_QUANTA: Final = 394
FAST_RESPONSE_QUANTA: Final = 905
SLOW_RATE_BPS: Final = parse_rate("100G")


def pause_response_ps(configured_ps: int | None, rate_bps: int) -> int:
    """Time a port of `rate_bps` takes to obey a pause: as configured, or for `auto` by rate."""
    if configured_ps is not None:
        return configured_ps
    quanta = SLOW_RESPONSE_QUANTA if rate_bps <= SLOW_RATE_BPS else FAST_RESPONSE_QUANTA
    return serialisation_ps(quanta * QUANTUM_BYTES, rate_bps)


class WatchdogSection(Section):
    """PFC watchdog: what a queue does that its peer never lets go."""

    enabled: bool = False
    """Whether switches watch."""
    detection_ps: PositiveTimePs = parse_time("200ms")
    """A queue stopped for so long, with frames waiting, is in a storm. Meta alarms at 200 ms.
    Boxes poll, and find a storm up to one poll later; here it is found at this time exactly."""
    restoration_ps: PositiveTimePs = parse_time("200ms")
    """Without a pause for so long it is as before."""
    action: Literal["drop", "forward"] = "drop"
    """Whether a storm's queue drops what comes, or sends in spite of the pauses."""
    drops: Literal["auto", "egress", "both"] = "auto"
    """With `action: drop`, whether frames are dropped that are to leave by the port of a storm in its class,
    or those that enter there as well. `auto`: both where `switch.buffer.asic` names a chip, which are all
    Broadcom's (sonic-net/sonic-mgmt#7919), egress elsewhere, as on boxes of Mellanox and Cisco."""


class PfcSection(Section):
    """Priority flow control."""

    enabled: bool = True
    """Whether switches send and ports obey pause frames. Without it every priority is lossy; a link has PFC
    where both ends have it."""
    priorities: Annotated[tuple[Priority, ...], Field(max_length=8)] = (3, 6)
    """The lossless priorities."""
    quanta: Annotated[int, Field(ge=2, le=65535)] = 65535
    """Pause time in a pause frame, in quanta of 512 bit times; repeated at half of it while the cause lasts.
    Below 134 (at an MTU of 4096) a pause may lapse before that."""
    response_ps: AutoTimePs = None
    """Time a switch's port takes to obey a pause. `auto`: 905 quanta, up to 100G 394."""

    watchdog: WatchdogSection = WatchdogSection.defaults()
    """Detection of PFC storms."""
    silent_to: Annotated[tuple[PeerPattern, ...], Field(max_length=4096)] = ()
    """Peers that ports of the device never tell to stop, by name or pattern. A switch's port that does not is
    lossy. For `overrides`."""
    ignores: Annotated[tuple[PeerPattern, ...], Field(max_length=4096)] = ()
    """Peers whose pauses ports of the device count and do not obey, by name or pattern. For `overrides`."""

    def check(self) -> Iterator[Refusal]:
        """Refuse a priority listed twice, and half of PFC in both halves."""
        for at, peer in enumerate(self.ignores):
            if peer in self.silent_to:
                reason = f"with {peer!r} in silent_to is no PFC in either direction"
                yield Refusal(("ignores", at), reason, "one of both; neither: an override of enabled")
        if len(dict.fromkeys(self.priorities)) != len(self.priorities):
            yield Refusal(("priorities",), "a priority is listed twice", "each priority once")

    def response_at(self, rate_bps: int) -> int:
        """Time in ps that a switch's port of `rate_bps` takes to obey a pause."""
        return pause_response_ps(self.response_ps, rate_bps)


class MarkingProfile(Section):
    """Thresholds of RED. SONiC: WRED_PROFILE."""

    kmin_bytes: SizeBytes = parse_size("800KB")
    """Up to here nothing is marked, at the reference rate. SONiC: `green_min_threshold`. What simulators of
    400G fabrics use (DCQCN at 40G: 5 KB)."""
    kmax_bytes: PositiveSizeBytes = parse_size("3200KB")
    """From here on everything is marked. At the reference rate (DCQCN at 40G: 200 KB). SONiC:
    `green_max_threshold`."""
    pmax: PositiveFraction = Fraction(1, 5)
    """Probability just below Kmax (DCQCN at 40G: 1/100). SONiC: `green_drop_probability`, in percent."""

    def check(self) -> Iterator[Refusal]:
        """Refuse thresholds in the wrong order, and more than certainty."""
        if self.kmin_bytes > self.kmax_bytes:
            yield Refusal(("kmin",), "lies above kmax", "at most `kmax`")
        if self.pmax > 1:
            yield Refusal(("pmax",), "is more than certain", "at most 1")
        if self.kmax_bytes >= 2**30:
            yield Refusal(("kmax",), "is too large", "less than 1GiB")


class QueueMarking(MarkingProfile):
    """A profile of some queues, complete: what it leaves out has the default."""

    priorities: Annotated[tuple[Priority, ...], Field(min_length=1, max_length=8)]
    """The queues."""


class AqmSection(PolicySection):
    """What every AQM shares."""

    kind: str
    """Which AQM."""
    enabled: bool = False
    """Whether queues are managed."""
    priorities: Annotated[tuple[Priority, ...], Field(max_length=8)] = (3,)
    """Which queues are."""

    def profiles_of(self) -> Sequence[Section | None]:
        """What each queue is managed by; None where it is not."""
        return [self if priority in self.priorities else None for priority in range(8)]


class EcnSection(AqmSection, MarkingProfile):
    """Explicit congestion notification: RED on egress queues, at dequeue."""

    policy: ClassVar[type[Any]] = Red
    kind: Literal["red"] = "red"
    """Random early detection on the depth of the queue, which marks and never drops."""
    enabled: bool = False
    """Whether queues mark."""
    reference_bps: RateBps = parse_rate("400G")
    """Rate for which the thresholds hold."""
    scaled: bool = True
    """Whether thresholds scale with the rate of the port."""
    priorities: Annotated[tuple[Priority, ...], Field(max_length=8)] = (3,)
    """Priorities whose queues mark, besides those with a profile. None: only those with a profile."""
    profiles: Annotated[tuple[QueueMarking, ...], Field(max_length=1024)] = ()
    """Queues with thresholds of their own; the first that names a queue counts."""

    def check(self) -> Iterator[Refusal]:
        """Refuse marking without a queue that marks."""
        yield from super().check()
        if not self.priorities and not self.profiles:
            yield Refusal(("priorities",), "no queue marks", "at least one, or `profiles`")

    def thresholds_at(self, rate_bps: int, profile: MarkingProfile | None = None) -> tuple[int, int]:
        """Kmin and Kmax in bytes of a port of this rate; of a profile, or the section's own."""
        of = profile or self
        if not self.scaled:
            return of.kmin_bytes, of.kmax_bytes
        return (
            of.kmin_bytes * rate_bps // self.reference_bps,
            of.kmax_bytes * rate_bps // self.reference_bps,
        )

    def profiles_of(self) -> list[MarkingProfile | None]:
        """What each queue marks by; None where it does not mark."""
        found: list[MarkingProfile | None] = [None] * 8
        for priority in self.priorities:
            found[priority] = self
        for profile in reversed(self.profiles):
            for priority in profile.priorities:
                found[priority] = profile
        return found


AQMS: Final = OneOfOrPlugin(
    {"red": EcnSection}, default="red", base=AqmSection, parent=Aqm, methods=("marks", "drops")
)


class SchedulingSection(PolicySection):
    """What every scheduler shares."""

    kind: str
    """Which scheduler."""


SCHEDULERS: Final = OneOfOrPlugin(
    Policies(
        {"weighted": (SchedulingSection, DeficitRoundRobin, "Strict priorities first, the rest by weight.")}
    ),
    default="weighted",
    base=SchedulingSection,
    parent=Scheduler,
    methods=("choose_class", "on_sent"),
)


class StaticRoute(Section):
    """A route that somebody typed in. It goes before what the graph says, and does not follow failures."""

    switch: NodeName
    """The switch that has the route."""
    destination: NodeName
    """The NIC whose traffic it is for."""
    via: NodeName
    """The neighbour to send it to."""


class DeepBufferSection(Section):
    """Modular switches: a static buffer for each port, virtual output queues, and credit from egress to
    ingress."""

    where: Literal["auto", "none", "spines", "all"] = "auto"
    """Which switches. `auto`: the CTSW of `llama3`, 220 ports that no shared pool could serve, and none
    where links have credits; `spines`: all of tier 2; `all`: every one, or in `overrides` those."""
    port_buffer_bytes: PositiveSizeBytes = parse_size("64MB")
    """Memory for what comes in at a port; reserves and headroom are taken from it. A choice: a modular
    line card has some hundred MB for each 400G."""
    alpha: PositiveFraction = Fraction(1)
    """XOFF threshold of a priority group = alpha x (rest of its port's buffer). 1: half of it for one
    group."""
    credit_delay_ps: DelayPs = parse_time("3.8us")
    """One way between ingress and egress for a report or a grant. With it, the unloaded round trip across
    one such spine is about 22 us (Meta)."""
    credit_quantum_bytes: PositiveSizeBytes = parse_size("8KiB")
    """Credit that the egress grants at a time, 4 KiB to 64 KiB. A frame of another class waits for one
    quantum at most. A choice: chassis grant a few KB."""
    initial_credit_bytes: PositiveSizeBytes = parse_size("256KiB")
    """Credit that a queue may have unused after it was empty. A choice."""
    credit_growth: Annotated[int, Field(ge=1, le=64)] = 2
    """Factor by which that grows each time as much has crossed; 1 for never. A choice."""
    most_credit_bytes: PositiveSizeBytes = parse_size("1MiB")
    """Up to here it grows. Full rate needs rate x `credit_delay`: 190 KB at 400G. A choice."""

    def check(self) -> Iterator[Refusal]:
        """Refuse credit that moves no frame, and names for nothing."""
        if self.initial_credit_bytes < LEAST_CREDIT_BYTES:
            yield Refusal(("initial_credit",), "may hold less than two frames", "at least 9KB")
        if not LEAST_QUANTUM_BYTES <= self.credit_quantum_bytes <= MOST_QUANTUM_BYTES:
            yield Refusal(("credit_quantum",), "is no quantum of credit", "4KiB to 64KiB")
        if self.most_credit_bytes < self.initial_credit_bytes:
            yield Refusal(("most_credit",), "lies below initial_credit", "at least `initial_credit`")
        if self.port_buffer_bytes * max(self.alpha, Fraction(1)) * MOST_PORTS >= MOST_THRESHOLD_BYTES:
            reason = f"makes thresholds of more than 64 TB on {MOST_PORTS} ports"
            yield Refusal(("port_buffer",), reason, "less of it, or less `alpha`")


class SwitchSection(Section):
    """Every switch of the fabric."""

    config_db: ConfigFile = ""
    """A SONiC switch's own configuration (config_db.json), relative to the scenario's directory. Loading
    turns it into the keys below, where the scenario does not have them itself. Boxes with files of their own
    have them in `overrides`."""
    pg_profile_lookup: ConfigFile = ""
    """The box's pg_profile_lookup.ini, for lossless priority groups that the BUFFER_PG of `config_db` lacks:
    headroom, reserve and thresholds by the speed and the cable of each port."""
    latency_ps: TimePs = parse_time("300ns")
    """Fixed latency from a frame's last bit in until it may leave. A choice, not one vendor's figure."""
    forwarding: Literal["store_and_forward", "cut_through"] = "store_and_forward"
    """Whether a frame may leave when all of it is in, or when its headers are. Cut-through falls back where
    the outgoing link is busy, stopped or faster."""
    buffer: BufferSection = BufferSection.defaults()
    """Shared buffer."""
    deep_buffer: DeepBufferSection = DeepBufferSection.defaults()
    """Which switches are modular, with deep buffers instead."""
    pfc: PfcSection = PfcSection.defaults()
    """Which priorities are lossless, and how they are paused."""
    ecn: Annotated[AqmSection, AQMS] = EcnSection.defaults()
    """Marks (ECN) and early drops."""
    scheduling: Annotated[SchedulingSection, SCHEDULERS] = SCHEDULERS.section()
    """Order of the priorities at an egress."""
    qos: QosSection = QosSection.defaults()
    """Maps from DSCP to queue and priority group."""
    static_routes: Annotated[tuple[StaticRoute, ...], Field(max_length=65536)] = ()
    """Routes that go before the computed ones; a wrong one can make a loop."""
