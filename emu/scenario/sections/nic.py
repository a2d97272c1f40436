"""Sections `nic` (the device and its arbiter) and `transport` (its reliable-connection queue pairs).

Sources: InfiniBand Architecture Specification volume 1, chapter 9, for timeout exponent, retry count and
MTU; NCCL for what libraries set (IB_TIMEOUT 14 up to 2.13, 18 and then 20 since; IB_RETRY_CNT 7); Meta
(SIGCOMM'24) for control messages in a class of their own and for UDP source ports that are equal for all
queue pairs of a pair.

The arbiter says whose turn it is at a NIC's port, congestion control (`transport.congestion_control`) how
fast a queue pair sends, loss recovery what is sent again. Each is one line in its table, `ARBITERS`,
`CONTROLS` or `RECOVERIES`: its name, its class, which lists its knobs, and what it is. One of your own is
`module:Class`.

Sources: Zhu et al. (SIGCOMM'15) for CNPs 50 us apart; Lumina (SIGCOMM'23), which measures on NICs how long a
CNP takes from its mark; the controls name theirs. Llama 3's fabric ran without congestion control (`none`):
receiver-driven admission and PFC alone. IEEE 802.1Qaz (enhanced transmission
selection) for sharing a port between classes by weight. Context cache: FaRM (NSDI'14) and Kalia et al.
(ATC'16) for the mechanism; eRPC (NSDI'19), section 4.1, for how much: a ConnectX-5 does about 47 million
small READs a second over few connections and half as many over 5,000, with about 375 B of state for each.
131,072 queue pairs are what `ibv_devinfo` says of ConnectX-6 and 7.
"""

from collections.abc import Iterator
from typing import Annotated, Any, Final, Literal

from actors.nic.arbiter import Arbiter, WeightedClasses
from actors.nic.congestion.control import CongestionControl
from actors.nic.congestion.dcqcn import Dcqcn
from actors.nic.loss_recovery import GoBack0, GoBackN, Recovery, SelectiveRepeat
from actors.nic.transport import Transport
from emu.base.records import Field
from emu.base.units import format_time, parse_rate, parse_size, parse_time
from emu.scenario.knobs import Policies, PolicySection, derives_from
from emu.scenario.plugins import OneOfOrPlugin, ask
from emu.scenario.section import Refusal, Section
from emu.scenario.sections.switch import SELECTED, PriorityToDscp, pause_response_ps
from emu.scenario.yaml.values import (
    AutoPriority,
    AutoSizeBytes,
    AutoTimePs,
    MtuBytes,
    PositiveSizeBytes,
    PositiveTimePs,
    Priority,
    RateBps,
    TimePs,
)

TCP: Final = "actors.optional.tcp:Tcp"
TCP_WINDOW: Final = "actors.optional.tcp_window:TcpWindow"
BY_DELAY: Final = ("actors.optional.hpcc:Hpcc", "actors.optional.swift:Swift")
"""Controls that marks do not move."""


class CongestionSection(PolicySection):
    """What every algorithm shares."""

    kind: str
    """Which algorithm."""
    cnp_interval_ps: PositiveTimePs = parse_time("50us")
    """A receiver sends at most one CNP per queue pair and interval."""
    cnp_delay_ps: TimePs = 0
    """From a marked packet at the receiver's queue pair until its CNP leaves; less than
    `cnp_interval`. 0 where nobody has published a measurement."""
    cnp_priority: Priority = 6
    """Priority of CNPs."""

    def check(self) -> Iterator[Refusal]:
        """Refuse a delay that would let a queue pair owe two CNPs."""
        yield from super().check()
        if self.cnp_delay_ps >= self.cnp_interval_ps:
            reason = f"is no shorter than the interval of {format_time(self.cnp_interval_ps)} between CNPs"
            yield Refusal(("cnp_delay",), reason, "less than `cnp_interval`")

    @property
    def by_packet(self) -> bool:
        """Whether packets of a queue pair go by different ways, by UDP source ports of its choice."""
        return bool(ask(self, "by_packet"))

    @property
    def collects(self) -> bool:
        """Whether packets collect telemetry (INT) from switches."""
        return ask(self, "telemetry_on_wire") is not None

    @property
    def telemetry_bytes(self) -> int:
        """What that adds to packets and acknowledgements on the wire."""
        return int(ask(self, "telemetry_on_wire") or 0)


CONTROLS: Final = OneOfOrPlugin(
    Policies(
        {
            "none": (CongestionSection, CongestionControl, "Only pauses slow a queue pair down."),
            "dcqcn": (CongestionSection, Dcqcn, "The rate follows what switches mark."),
            "swift": (
                CongestionSection,
                "actors.optional.swift:Swift",
                "The window follows the round-trip time.",
            ),
            "hybrid": (
                CongestionSection,
                "actors.optional.hybrid:Hybrid",
                "DCQCN's answer to marks and Swift's to delay.",
            ),
            "hpcc": (
                CongestionSection,
                "actors.optional.hpcc:Hpcc",
                "The window follows what links on the way say of themselves.",
            ),
            "reno": (
                CongestionSection,
                "actors.optional.tcp_window:Reno",
                "TCP's window by RFC 5681, for `recovery.kind: tcp`.",
            ),
            "cubic": (
                CongestionSection,
                "actors.optional.cubic:Cubic",
                "TCP's window by RFC 9438, for `recovery.kind: tcp`.",
            ),
        }
    ),
    default="none",
    base=CongestionSection,
    parent=CongestionControl,
    methods=("on_send", "on_ack", "on_cnp"),
    abstract={TCP_WINDOW: ("avoid", "cut")},
)


LONGEST_JITTER_PS = parse_time("2ms")


class ArbiterSection(PolicySection):
    """What every arbiter shares."""

    kind: str
    """Which arbiter."""


ARBITERS: Final = OneOfOrPlugin(
    Policies(
        {
            "round_robin": (
                ArbiterSection,
                Arbiter,
                "Strict between classes; queue pairs of a class in turn, one packet each.",
            ),
            "weighted": (
                ArbiterSection,
                WeightedClasses,
                "Classes share the port by weight; queue pairs of a class in turn.",
            ),
        }
    ),
    default="round_robin",
    base=ArbiterSection,
    parent=Arbiter,
    methods=("choose_class", "choose_pair", "on_sent"),
)


class ReceiveSection(Section):
    """A bottleneck between NIC and memory, with a buffer before it that pauses the leaf when it fills."""

    enabled: bool = False
    """Whether there is one."""
    rate_bps: RateBps = parse_rate("504G")
    """Payload rate of PCIe or the memory behind it: 504G (63 GB/s) is PCIe Gen5 with 16 lanes."""
    buffer_bytes: PositiveSizeBytes = parse_size("512KiB")
    """Room per port and priority. A choice."""
    xoff_bytes: AutoSizeBytes = None
    """Above this the leaf is told to stop. `auto`: what leaves room for all that may still come."""
    xon_bytes: AutoSizeBytes = None
    """At or below this it is told to go on. `auto`: two largest frames below `xoff`."""

    def check(self) -> Iterator[Refusal]:
        """Refuse thresholds that no fill can reach, or in the wrong order."""
        if self.xoff_bytes is not None and self.xoff_bytes >= self.buffer_bytes:
            yield Refusal(("xoff",), "is not below the buffer's size", "less than `buffer`")
        if self.xon_bytes is not None and self.xoff_bytes is not None and self.xon_bytes > self.xoff_bytes:
            yield Refusal(("xon",), "lies above xoff", "at most `xoff`")


class ContextCacheSection(Section):
    """Contexts of queue pairs that a NIC has at hand. It fetches those of others, one after the other."""

    entries: Annotated[int, Field(ge=0, le=2**20)] = 0
    """Contexts in the cache; 0 for those of all queue pairs."""
    miss_penalty_ps: PositiveTimePs = parse_time("42ns")
    """Time that a missing context occupies the NIC. It fetches several at a time, so this is less than a
    read over PCIe: at 42 ns a NIC that always misses does half of 47 million a second (eRPC)."""


class NicSection(Section):
    """Every NIC of the fabric."""

    latency_ps: TimePs = parse_time("300ns")
    """Fixed latency from a frame's last bit in until the NIC acts on it. A choice, not one vendor's
    figure."""
    pfc_response_ps: AutoTimePs = None
    """Time a NIC takes to obey a pause. `auto`: 905 quanta, up to 100G 394."""

    bond: Literal["per_qp", "first"] = "per_qp"
    """Home ports of the queue pairs of a NIC with several ports: in turn, or all on the first that is up
    (HPN, SIGCOMM'24)."""
    corrupt_every: Annotated[int, Field(ge=0, le=2**31)] = 0
    """Every so many-th data packet that comes in has a wrong ICRC and is lost; 0 for none. A loss that is the
    same in every run, to try `transport.recovery` on."""

    jitter_ps: TimePs = 0
    """A queue pair that had nothing to send begins after a drawn delay of up to so much, at most 2 ms; 0 for
    none. Ends lock-step between equal senders (phase effects)."""
    ttl: Annotated[int, Field(ge=1, le=255)] = 64
    """IPv4's time to live as a packet leaves a NIC; every switch takes one. 64 is the usual first value."""
    arbiter: Annotated[ArbiterSection, ARBITERS] = ARBITERS.section()
    """Order of the queue pairs at a port."""
    receive: ReceiveSection = ReceiveSection.defaults()
    """A slow way from the NIC to memory."""
    queue_pairs: Annotated[int, Field(ge=1, le=2**23)] = 131_072
    """The most queue pairs that a NIC may have (max_qp of `ibv_devinfo`)."""
    context_cache: ContextCacheSection = ContextCacheSection.defaults()
    """Cache for the contexts of queue pairs."""

    dscp: PriorityToDscp = SELECTED
    """DSCP of packets by the priority that their queue pair has; the traffic class of the verbs is four times
    the DSCP. Default: the class selector, 8 x priority. RoCE is often given 26, CNPs 48."""

    def check(self) -> Iterator[Refusal]:
        """Refuse a delay of another order than the packets that it is to mix."""
        if self.jitter_ps > LONGEST_JITTER_PS:
            yield Refusal(("jitter",), "is longer than what mixes packets", "at most 2ms")

    def response_at(self, rate_bps: int) -> int:
        """Time in ps that a NIC's port of `rate_bps` takes to obey a pause."""
        return pause_response_ps(self.pfc_response_ps, rate_bps)


class RecoverySection(PolicySection):
    """What a queue pair does about packets that are lost or out of order."""

    kind: str
    """Which scheme."""

    @property
    def out_of_order(self) -> bool:
        """Whether packets may overtake each other without being taken for lost."""
        return bool(ask(self, "out_of_order"))


RECOVERIES: Final = OneOfOrPlugin(
    Policies(
        {
            "go_back_n": (
                RecoverySection,
                GoBackN,
                "After a loss, everything from the lost packet on is sent again.",
            ),
            "go_back_0": (RecoverySection, GoBack0, "After a loss, the whole message is sent again."),
            "selective_repeat": (
                RecoverySection,
                SelectiveRepeat,
                "After a loss, only what was lost is sent again.",
            ),
            "tcp": (
                RecoverySection,
                TCP,
                (
                    "TCP: delayed acknowledgements, SACK, fast retransmit and a timer that follows the "
                    "round trip."
                ),
            ),
        }
    ),
    default="go_back_n",
    base=RecoverySection,
    parent=Recovery,
    methods=("on_gap", "on_nak", "on_timeout"),
)


class AdaptiveSection(Section):
    """Adaptive retransmission: a short first timeout that doubles, up to the configured one."""

    enabled: bool = False
    """Whether a queue pair sends again before `timeout` has passed. Shorter timeouts are no retries."""
    least_ps: PositiveTimePs = parse_time("64us")
    """The first timeout. A choice: three unloaded round trips of a deep-buffer fabric (22 us each)."""


class ReceiveQueueSection(Section):
    """Receives that a host keeps posted on every queue pair, for SEND and WRITE_WITH_IMM."""

    depth: Annotated[int, Field(ge=0, le=65536)] = 0
    """Receives that are posted; 0: as many as are ever needed. Without one, a message gets an RNR NAK."""
    repost_ps: TimePs = 0
    """What a host needs to post another one for one that was taken, one after the other per NIC, after it
    was notified."""


class OwnTransportSection(PolicySection):
    """What every transport with paths of its own shares."""

    kind: str
    """Which transport."""


TRANSPORTS: Final = OneOfOrPlugin(
    Policies(
        {
            "multipath": (
                OwnTransportSection,
                "actors.optional.multipath:Multipath",
                "One queue pair over all ports, on paths that the NIC owns.",
            )
        }
    ),
    default="multipath",
    base=OwnTransportSection,
    parent=Transport,
    methods=("waits_at", "next_packet", "arrived"),
    abstract={"actors.nic.transport:Transport": ("waits_at", "next_packet", "arrived")},
)


class TransportSection(Section):
    """Queue pairs: reliable connections, or another transport."""

    kind: Annotated[str, Field(min_length=1, max_length=200)] = "rc"
    """`rc`: reliable connections, each on one port, with `recovery` and `congestion_control`. `multipath`:
    one queue pair over all ports of its NIC, on paths that the NIC owns (MetaRoCE's shape), with `paths`;
    without `switch.pfc` and `switch.ecn` in the scenario, PFC is off and switches mark from 100 to 300 KB (at
    400G). `module:Class`: one of your own."""
    paths: Annotated[OwnTransportSection, TRANSPORTS] = TRANSPORTS.section()
    """Knobs of `multipath`, or of a class of your own, for which `paths.kind` is that of `kind`."""
    mtu_bytes: MtuBytes = 4096
    """Payload of a full packet."""
    timeout: Annotated[int, Field(ge=0, le=31)] = 20
    """Local ACK timeout 4.096 us x 2^timeout; 0 waits for ever."""
    retry_count: Annotated[int, Field(ge=0, le=7)] = 7
    """Retries before the queue pair goes into error."""
    recovery: Annotated[RecoverySection, RECOVERIES] = RECOVERIES.section()
    """Handling of loss and reordering."""
    congestion_control: Annotated[CongestionSection, CONTROLS] = CONTROLS.section()
    """Congestion control: the rate or window of a queue pair."""
    adaptive_retransmission: AdaptiveSection = AdaptiveSection.defaults()
    """Adaptive retransmission, as NICs offer it against short flaps (MegaScale, NSDI'24)."""
    receive_queue: ReceiveQueueSection = ReceiveQueueSection.defaults()
    """Receives."""
    rnr_timer: Annotated[int, Field(ge=0, le=31)] = 12
    """Timer code of RNR NAKs (min_rnr_timer): how long a requester waits. 12 is 0.64 ms, 1 is 10 us, 0 is
    655.36 ms; perftest and NCCL use 12."""
    rnr_retry: Annotated[int, Field(ge=0, le=7)] = 7
    """Waits without progress before the queue pair goes into error; 7 is for ever (perftest and NCCL)."""
    remote_access: Literal["read_write", "write", "read", "none"] = "read_write"
    """Operations that a queue pair allows its peer (qp_access_flags); a forbidden one puts both ends in
    error."""
    max_rd_atomic: Annotated[int, Field(ge=1, le=128)] = 16
    """READs that a queue pair has outstanding at most. 16 is what mlx5 offers and perftest uses."""
    ack_every: Annotated[int, Field(ge=1, le=4096)] = 1
    """Packets per ACK; the last packet of a message is always acknowledged."""
    udp_source_port: Literal["per_qp", "per_pair", "disjoint"] = "per_qp"
    """Whether each queue pair draws a UDP source port of its own, all between two NICs share one, or ports
    are searched by which the queue pairs between two NICs take disjoint paths (HPN)."""
    data_priority: Priority = 3
    """Priority of data packets."""
    control_priority: Priority = 6
    """Priority of the library's control messages (clear-to-send)."""
    ack_priority: AutoPriority = None
    """Priority of ACK and NAK. `auto`: that of the queue pair, in which its data travels, as an ordinary RC
    queue pair has it. A class of its own for them, as Meta's fabric has, shortens waiting for completions."""

    @classmethod
    def prepared(cls, keys: dict[str, Any]) -> dict[str, Any]:
        """The knobs of `kind: module:Class` are those of that class."""
        if ":" not in str(keys.get("kind", "")):
            return keys
        paths = keys.get("paths") or {}
        return {**keys, "paths": {"kind": keys["kind"], **paths}} if isinstance(paths, dict) else keys

    def check(self) -> Iterator[Refusal]:
        """Refuse a window without a packet, and a first timeout beyond the last."""
        for key, section in (("recovery", self.recovery), ("congestion_control", self.congestion_control)):
            for refusal in section.misfits(self.mtu_bytes):
                yield refusal._replace(location=(key, *refusal.location))
        kept = (getattr(self.recovery, "window_bytes", None) or 0) // self.mtu_bytes
        reorder = getattr(self.recovery, "reorder", 0)
        if self.out_of_order and 0 < kept < reorder:
            reason = f"a responder keeps {kept} packets (`window`), so none can be {reorder} late"
            yield Refusal(("recovery", "reorder"), reason, f"at most {kept}, or a larger `window`")
        adaptive = self.adaptive_retransmission
        if adaptive.enabled and self.timeout and adaptive.least_ps > self.timeout_ps:
            reason = f"the first timeout is longer than `timeout` ({format_time(self.timeout_ps)})"
            yield Refusal(("adaptive_retransmission", "least"), reason, "at most 4.096 us x 2^timeout")
        yield from self._not_tcp()
        yield from self._not_rc()

    def _not_rc(self) -> Iterator[Refusal]:
        """Refuse a transport that there is not, and with paths what only reliable connections have."""
        if self.is_rc:
            if self.paths != TRANSPORTS.section():
                yield Refusal(("paths",), "a reliable connection has no paths", "kind: multipath")
            return
        if self.kind != self.paths.kind:
            if ":" in self.kind:
                reason = f"`paths` has the knobs of {self.paths.kind}"
                yield Refusal(("paths", "kind"), reason, f"{self.kind!r}, as `transport.kind`")
            else:
                yield Refusal(
                    ("kind",), f"there is no transport {self.kind!r}", "rc, multipath or module:Class"
                )
            return
        for refusal in self.paths.misfits(self.mtu_bytes):
            yield refusal._replace(location=("paths", *refusal.location))
        default = RECOVERIES.section()
        for location, given, accepted in (
            (("recovery", "kind"), self.recovery != default, "recovery left out, or kind: rc"),
            (("congestion_control", "kind"), self.congestion_control.kind != "none", "none, or kind: rc"),
            (("adaptive_retransmission", "enabled"), self.adaptive_retransmission.enabled, "false"),
            (("receive_queue", "depth"), bool(self.receive_queue.depth), "0"),
            (("remote_access",), self.remote_access != "read_write", "read_write"),
        ):
            if given:
                yield Refusal(location, f"{self.kind} has its own rules in place of it", accepted)

    @property
    def is_rc(self) -> bool:
        """Whether queue pairs are reliable connections, or TCP's."""
        return self.kind == "rc"

    @property
    def own(self) -> OwnTransportSection:
        """The section of a transport that is no reliable connection."""
        return self.paths

    @property
    def recovers_drops(self) -> bool:
        """Whether it goes about losses itself, with timers of its own, and is meant for lossy classes."""
        return self.is_tcp or not self.is_rc

    @property
    def ecn_capable(self) -> bool:
        """Whether switches may mark its packets: congestion control reacts to marks."""
        control = self.congestion_control
        if not self.is_rc:
            return True
        deaf = control.kind == "none" or derives_from(control.policy, *BY_DELAY)
        return not deaf and bool(getattr(control, "ecn", True))

    def _not_tcp(self) -> Iterator[Refusal]:
        """Refuse half of a TCP, and a TCP with what only a queue pair has."""
        window = derives_from(self.congestion_control.policy, TCP_WINDOW)
        if window and not self.is_tcp:
            kind = self.congestion_control.kind
            yield Refusal(
                ("congestion_control", "kind"),
                f"{kind} is a window of TCP, and recovery.kind is {self.recovery.kind}",
                "recovery.kind: tcp, or another control",
            )
        if not self.is_tcp:
            return
        if not window:
            kind = self.congestion_control.kind
            reason = f"TCP has a congestion window, and {kind} gives it none"
            yield Refusal(("congestion_control", "kind"), reason, "reno or cubic")
        timeouts = [getattr(self.recovery, f"{name}_timeout_ps") for name in ("least", "first", "most")]
        if timeouts != sorted(timeouts):
            reason = "timeouts are not in the order least_timeout, first_timeout, most_timeout"
            yield Refusal(("recovery", "first_timeout"), reason, "one between least_timeout and most_timeout")
        if self.adaptive_retransmission.enabled:
            reason = "TCP's timer follows the round trip already"
            yield Refusal(("adaptive_retransmission", "enabled"), reason, "false")
        if self.receive_queue.depth:
            yield Refusal(("receive_queue", "depth"), "TCP has no receives that may be missing", "0")
        if self.remote_access != "read_write":
            yield Refusal(("remote_access",), "TCP has no remote access to forbid", "read_write")

    @property
    def is_tcp(self) -> bool:
        """Whether queue pairs are TCP connections."""
        return derives_from(self.recovery.policy, TCP)

    @property
    def out_of_order(self) -> bool:
        """Whether packets may overtake each other without being taken for lost."""
        return self.recovery.out_of_order and self.is_rc

    @property
    def longest_silence_ps(self) -> int:
        """How long a queue pair tries on without an answer, and one timeout more; 0 for ever."""
        if not self.is_tcp:
            return self.timeout_ps * (self.retry_count + 2)
        first, most = (int(getattr(self.recovery, f"{name}_timeout_ps")) for name in ("first", "most"))
        doubled = range(int(getattr(self.recovery, "retries")) + 2)  # noqa: B009  a knob, by its name
        return sum(min(first << times, most) for times in doubled)

    @property
    def timeout_ps(self) -> int:
        """The local ACK timeout; 0 if the queue pair waits for ever."""
        return 4_096_000 << self.timeout if self.timeout else 0
