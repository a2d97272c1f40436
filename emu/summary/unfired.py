"""Features that the scenario configured in vain.

A result is easily misread when the mechanism under study never came into play: a buffer threshold that no
queue reached, a fault after the end, a hash without a choice. Each such feature is one line, with the
scenario's key and why it made no difference.

A feature counts as configured if it is on; knobs that are on in every scenario (timeouts, headroom) count if
their value is not the default. The rules look at values, not at what was written, so that the effective
scenario of a run directory, where everything is written, gives the same lines.

A reason says what was counted, and no more: a mechanism may have failed to fire for another reason than that
nothing needed it, and then the line says what was seen instead (frames dropped where none was paused, a queue
that grew where nothing is marked).

Faults. A fault that begins after the end, repairs what is up, or breaks what nothing used in the run is one
line: pauses that are lost where none is sent, headroom that nothing needs, a queue pair that the NIC does not
have. The rules look at the counters of the whole run, so a fault that they do not name may still have done
nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from actors.kernel.counters import (
    CREDIT_GRANTS,
    CUT_THROUGH_FRAMES,
    GPU_COPIES,
    GPU_OVERTAKEN_COPIES,
    HEADROOM_PEAK_BYTES,
    HEADROOM_POOL_PEAK_BYTES,
    HOST_COMPUTE_PS,
    HOST_DIRECT_SLICES,
    HOST_DIVERTED_SLICES,
    HOST_HELD_SLICES,
    HOST_OVERTAKEN_CALLS,
    HOST_SLOWER_COMPUTE_PS,
    INGRESS_PEAK_BYTES,
    NIC_BOND_FAILOVERS,
    NIC_CONTEXT_MISSES,
    NIC_OUT_OF_BUFFER,
    NIC_PATHS_FAILED,
    NIC_PCIE_WAIT_PS,
    NIC_RECEIVE_BUFFER_PEAK_BYTES,
    NIC_ROCE_ADP_RETRANS,
    NIC_RP_CNP_HANDLED,
    NIC_RX_ICRC_ENCAPSULATED,
    NVLINK_TRANSFERS,
    PFC_TRANSMIT_XOFF_FRAMES,
    PFC_WATCHDOG_STORMS,
    PORT_LINK_DOWNED,
    PORT_TRANSMIT_WAIT_PS,
    QOS_MOVED_FRAMES,
    QUEUE_MARKED_FRAMES,
    QUEUE_PEAK_BYTES,
    VOQ_PEAK_BYTES,
)
from actors.wire.frame import LARGEST_HEADERS_BYTES
from emu.base.spelling import listed
from emu.base.units import about_size, counted, distinct_texts, format_time, shown_time
from emu.counts.collected import DeviceRecord
from emu.counts.counts import Counts
from emu.counts.device_state import PAIR_ERROR
from emu.results.summary import Drops, Fabric, FaultEffect, Unfired
from emu.scenario.schema import Scenario
from emu.scenario.sections.nic import TransportSection
from emu.scenario.sections.routing import HashedSection
from emu.scenario.sections.switch import EcnSection

NO_CHOICE: Final = "no packet had a choice between equal paths"


def _chosen(fabric: Fabric) -> bool:
    """Whether some packet had a choice between equal ports."""
    return any(row.data_bytes for row in (*fabric.uplinks, *fabric.groups))


def _unpaused(scenario: Scenario, fabric: Fabric, counts: Counts) -> str:
    """What was seen where no pause was sent."""
    pfc = scenario.switch.pfc
    held = counts.highest((INGRESS_PEAK_BYTES,), pfc.priorities)
    lossless = listed(map(str, pfc.priorities))
    reason = f"no pause was sent; lossless priority groups ({lossless}) held {about_size(held)} at most"
    dropped = _drops(fabric).by_reason.get("no_shared_room", 0)
    return f"{reason}, and {counted(dropped, 'frame')} of lossy ones dropped" if dropped else reason


def _unmarked(scenario: Scenario, counts: Counts, queues: Sequence[int]) -> str:
    """What was seen where no frame was marked in some queues, and why where the configuration says so."""
    kinds = sorted({one.congestion_control.kind for one in scenario.transports})
    incapable = not any(one.ecn_capable for one in scenario.transports)
    why = f", because no frame was ECN-capable (transport.congestion_control.kind: {listed(kinds)})"
    return _unmarked_queues(counts, queues) + (why if incapable else "")


def _unmarked_queues(counts: Counts, queues: Sequence[int]) -> str:
    """What queues held in which no frame was marked."""
    depths = QUEUE_PEAK_BYTES, VOQ_PEAK_BYTES
    held = counts.highest(depths, queues)
    reason = f"no frame was marked; its queues ({listed(map(str, queues))}) held {about_size(held)} at most"
    others = [queue for queue in range(8) if queue not in queues]
    fullest = max(others, key=lambda queue: (counts.highest(depths, (queue,)), -queue), default=-1)
    most = counts.highest(depths, (fullest,))
    return (
        f"{reason}, and queue {fullest}, which does not mark, {about_size(most)}" if most > held else reason
    )


def _packets(scenario: Scenario, fabric: Fabric, counts: Counts) -> Iterator[Unfired]:
    """How switches are configured to treat packets."""
    deep = scenario.switch.deep_buffer
    if deep != type(deep)() and deep.where != "none" and counts.total(CREDIT_GRANTS) == 0:
        yield Unfired(feature="switch.deep_buffer", reason="no packet crossed a modular switch")
    if scenario.switch.forwarding == "cut_through" and counts.total(CUT_THROUGH_FRAMES) == 0:
        yield Unfired(feature="switch.forwarding", reason="every frame waited for its tail")
    if scenario.classified and counts.total(QOS_MOVED_FRAMES) == 0:
        yield Unfired(feature="switch.qos", reason="no map moved a frame")
    if scenario.nic.ttl != type(scenario.nic)().ttl and _drops(fabric).by_reason.get("ttl", 0) == 0:
        yield Unfired(feature="nic.ttl", reason="no packet outlived its TTL")
    used = {(row.source, row.destination) for row in fabric.links if row.data_bytes}
    for at, route in enumerate(scenario.switch.static_routes):
        if (route.switch, route.via) not in used:
            reason = f"{route.switch} sent no data to {route.via}"
            yield Unfired(feature=f"switch.static_routes[{at}]", reason=reason)
    yield from _routes(scenario, fabric, counts)
    if scenario.link.bit_error_rate and _drops(fabric).by_reason.get("corrupt", 0) == 0:
        yield Unfired(feature="link.bit_error_rate", reason="no frame was spoilt")


def _routes(scenario: Scenario, fabric: Fabric, counts: Counts) -> Iterator[Unfired]:
    """What switches are to do about links that fail."""
    link, routing = scenario.link, scenario.routing
    if counts.total(PORT_LINK_DOWNED) == 0 and _drops(fabric).by_reason.get("link_down", 0) == 0:
        for key in ("down_debounce", "up_debounce"):
            if getattr(link, f"{key}_ps"):
                yield Unfired(feature=f"link.{key}", reason="no link lost its signal")
    silent = any(fault.loses_all for fault in scenario.faults)
    drained = any(fault.kind == "switch_drain" for fault in scenario.faults)
    if counts.total(PORT_LINK_DOWNED) or silent or drained:
        return
    reason = "no link was taken out of use"
    if routing.paths != "auto":
        yield Unfired(feature="routing.paths", reason=f"{reason}; until then both give the same")
    if routing.bgp.enabled:
        yield Unfired(feature="routing.bgp", reason=reason)
    if isinstance(routing, HashedSection) and routing.resilient_buckets:
        yield Unfired(feature="routing.resilient_buckets", reason=reason)


def _fabric(scenario: Scenario, fabric: Fabric, counts: Counts) -> Iterator[Unfired]:
    if scenario.credited and counts.total(PORT_TRANSMIT_WAIT_PS) == 0:
        reason = "no virtual lane ran out of credits"
        yield Unfired(feature="link.flow_control", reason=reason)
    if scenario.switch.pfc.enabled and not scenario.credited and fabric.pfc_transmit_xoff_frames == 0:
        yield Unfired(feature="switch.pfc", reason=_unpaused(scenario, fabric, counts))
    pfc = scenario.switch.pfc
    if (
        pfc.enabled
        and not scenario.credited
        and fabric.pfc_transmit_xoff_frames == _drops(fabric).congestion == 0
    ):
        reason = "nothing was paused, and nothing dropped for want of room"
        for at, one in enumerate(scenario.overrides):
            if one.has("switch.pfc.enabled"):
                yield Unfired(feature=f"overrides[{at}].switch.pfc.enabled", reason=reason)
    if scenario.switch.pfc.watchdog.enabled and counts.total(PFC_WATCHDOG_STORMS) == 0:
        reason = "no queue with frames waiting was paused for its detection time"
        yield Unfired(feature="switch.pfc.watchdog", reason=reason)
    ecn = scenario.switch.ecn
    if ecn.enabled and fabric.queue_marked_frames == _drops(fabric).by_reason.get("aqm", 0) == 0:
        queues = [queue for queue, one in enumerate(ecn.profiles_of()) if one is not None]
        yield Unfired(feature="switch.ecn", reason=_unmarked(scenario, counts, queues))
    yield from _profiles(scenario, fabric, counts)
    yield from _congestion_control(scenario, fabric, counts)
    if scenario.nic.receive.enabled:
        peak_bytes, _ = counts.peak(NIC_RECEIVE_BUFFER_PEAK_BYTES)
        if peak_bytes <= scenario.transport.mtu_bytes + LARGEST_HEADERS_BYTES:
            yield Unfired(feature="nic.receive", reason="no packet waited on its way to memory")
    if not _chosen(fabric):
        yield Unfired(feature="routing.kind", reason=NO_CHOICE)
    elif fabric.engineering is not None and fabric.engineering.matched_frames == 0:
        reason = "no packet matched an entry of the controller"
        yield Unfired(feature="routing.kind", reason=reason)
    yield from _transport(scenario, fabric, counts)


def _profiles(scenario: Scenario, fabric: Fabric, counts: Counts) -> Iterator[Unfired]:
    """Thresholds of the buffer, its headroom and its queues that nothing came near."""
    buffer = scenario.switch.buffer
    configured = [one.headroom_bytes for one in (buffer, *buffer.profiles)]
    if any(size is not None for size in configured) and counts.total(HEADROOM_PEAK_BYTES) == 0:
        yield Unfired(feature="switch.buffer.headroom", reason="no frame went into headroom")
    if buffer.headroom_pool_bytes is not None and counts.total(HEADROOM_POOL_PEAK_BYTES) == 0:
        yield Unfired(feature="switch.buffer.headroom_pool", reason="no frame went into headroom")
    for at, profile in enumerate(buffer.profiles):
        if counts.priorities(INGRESS_PEAK_BYTES, profile.priorities) == 0:
            reason = "nothing of its priority groups had to wait"
            yield Unfired(feature=f"switch.buffer.profiles[{at}]", reason=reason)
    if buffer.xoff_bytes is not None and fabric.pfc_transmit_xoff_frames == _drops(fabric).congestion == 0:
        yield Unfired(
            feature="switch.buffer.xoff", reason="nothing was paused, and nothing dropped for want of room"
        )
    if buffer.limited and _drops(fabric).by_reason.get("egress_limit", 0) == 0:
        key = next(one for one in buffer.limits if getattr(buffer, one)).removesuffix("_bytes")
        yield Unfired(feature=f"switch.buffer.{key}", reason="no queue came to its limit")
    ecn = scenario.switch.ecn
    for at, marking in enumerate(ecn.profiles if isinstance(ecn, EcnSection) and ecn.enabled else ()):
        if counts.priorities(QUEUE_MARKED_FRAMES, marking.priorities) == 0:
            reason = _unmarked(scenario, counts, marking.priorities)
            yield Unfired(feature=f"switch.ecn.profiles[{at}]", reason=reason)


def _paths(scenario: Scenario, fabric: Fabric, counts: Counts) -> Iterator[Unfired]:
    """What a NIC that owns its paths had no use for."""
    if scenario.transport.kind != "multipath":
        return
    if getattr(scenario.topology, "nic_ports", 1) == 1 and not _chosen(fabric):
        yield Unfired(feature="transport.kind", reason="every queue pair had one path")
    paths = scenario.transport.paths
    fields = type(paths).model_fields
    for knob in ("silent_after", "probe"):
        field = "probe_ps" if knob == "probe" else knob
        if counts.total(NIC_PATHS_FAILED) == 0 and getattr(paths, field) != fields[field].default:
            yield Unfired(feature=f"transport.paths.{knob}", reason="no path was given up")


def _transport(scenario: Scenario, fabric: Fabric, counts: Counts) -> Iterator[Unfired]:
    transport = scenario.transport
    default = TransportSection()
    if fabric.nic_local_ack_timeout_err == 0 and transport.timeout_ps > 0:
        for knob in ("timeout", "retry_count"):
            if getattr(transport, knob) != getattr(default, knob):
                yield Unfired(
                    feature=f"transport.{knob}", reason="no queue pair waited for the whole timeout"
                )
    if scenario.transport.udp_source_port == "disjoint" and not _chosen(fabric):
        yield Unfired(feature="transport.udp_source_port", reason=NO_CHOICE)
    yield from _paths(scenario, fabric, counts)
    if scenario.nic.corrupt_every and counts.total(NIC_RX_ICRC_ENCAPSULATED) == 0:
        yield Unfired(feature="nic.corrupt_every", reason="no NIC got so many data packets")
    if scenario.nic.bond != type(scenario.nic)().bond and counts.total(NIC_BOND_FAILOVERS) == 0:
        yield Unfired(feature="nic.bond", reason="no queue pair had to leave its port")
    if transport.recovery != default.recovery and not (
        fabric.nic_out_of_sequence or fabric.nic_retransmitted_frames
    ):
        yield Unfired(feature="transport.recovery", reason="no packet was out of order or sent again")
    adaptive = transport.adaptive_retransmission
    if adaptive.enabled and transport.timeout_ps and counts.total(NIC_ROCE_ADP_RETRANS) == 0:
        feature = "transport.adaptive_retransmission"
        yield Unfired(feature=feature, reason="no acknowledgement was overdue by the first timeout")
    if transport.receive_queue.depth and counts.total(NIC_OUT_OF_BUFFER) == 0:
        yield Unfired(feature="transport.receive_queue", reason="every message found a receive posted")
    elif not transport.receive_queue.depth:
        for knob in ("rnr_timer", "rnr_retry"):
            if getattr(transport, knob) != getattr(default, knob):
                yield Unfired(feature=f"transport.{knob}", reason="receives never run out")
    reads = any(job.workload.reads for job in scenario.jobs)
    if transport.max_rd_atomic != default.max_rd_atomic and not reads:
        yield Unfired(feature="transport.max_rd_atomic", reason="no job posts READs")


def _congestion_control(scenario: Scenario, fabric: Fabric, counts: Counts) -> Iterator[Unfired]:
    """Whether what should have slowed queue pairs down never had a reason to."""
    section = scenario.transport.congestion_control
    feature = "transport.congestion_control"
    if section.kind == "dcqcn" and counts.total(NIC_RP_CNP_HANDLED) == 0:
        yield Unfired(feature=feature, reason="no CNP came to a sender")
    elif section.kind not in ("none", "dcqcn") and fabric.buffer_peak_bytes == 0:
        yield Unfired(feature=feature, reason="no packet waited in a switch")


def _library(scenario: Scenario, counts: Counts, *, timed_out: bool) -> Iterator[Unfired]:
    """What the collective library is given beyond its defaults."""
    ncclx = scenario.ncclx
    if ncclx.outstanding != type(ncclx.outstanding)() and counts.total(HOST_HELD_SLICES) == 0:
        yield Unfired(feature="ncclx.outstanding", reason="no slice waited for a limit")
    if ncclx.qp_policy == "least_loaded" and counts.total(HOST_DIVERTED_SLICES) == 0:
        reason = "every slice went to the queue pair next in turn, as with round_robin"
        yield Unfired(feature="ncclx.qp_policy", reason=reason)
    if ncclx.qp_policy != "dqplb" and ncclx.dqplb != type(ncclx.dqplb)():
        yield Unfired(feature="ncclx.dqplb", reason=f"qp_policy is {ncclx.qp_policy}")
    pairwise = any(job.workload.pairwise for job in scenario.jobs)
    usual = type(ncclx).model_fields["p2p_chunk_bytes"].default
    if ncclx.p2p_chunk_bytes not in (None, usual) and not pairwise:
        yield Unfired(feature="ncclx.p2p_chunk", reason="no collective is made of sends and receives")
    if ncclx.zero_copy and counts.total(HOST_DIRECT_SLICES) == 0:
        yield Unfired(feature="ncclx.zero_copy", reason="no slice went without the GPU")
    if ncclx.watchdog_ps is not None and not timed_out:
        yield Unfired(feature="ncclx.watchdog", reason="every operation was over in time")


def _inside(scenario: Scenario, counts: Counts) -> Iterator[Unfired]:
    """What servers have inside beyond the defaults."""
    nvlink = scenario.host.nvlink
    entries = scenario.nic.context_cache.entries
    if entries and counts.peak(NIC_CONTEXT_MISSES)[0] <= entries:
        reason = "no NIC used more queue pairs than it has entries for"
        yield Unfired(feature="nic.context_cache", reason=reason)
    if scenario.host.pcie.enabled and counts.total(NIC_PCIE_WAIT_PS) == 0:
        peak_bytes, _ = counts.peak(NIC_RECEIVE_BUFFER_PEAK_BYTES)
        if peak_bytes <= scenario.transport.mtu_bytes + LARGEST_HEADERS_BYTES:
            yield Unfired(feature="host.pcie", reason="no packet waited for PCIe on its way in or out")
    if nvlink != type(nvlink)() and nvlink.enabled and counts.total(NVLINK_TRANSFERS) == 0:
        yield Unfired(feature="host.nvlink", reason="nothing was sent over NVLink")


def _overridden(scenario: Scenario, fabric: Fabric, counts: Counts) -> Iterator[Unfired]:
    """What overrides configured in vain."""
    for at, (one, view) in enumerate(zip(scenario.overrides, scenario.every[1:], strict=True)):
        rules = *_fabric(view, fabric, counts), *_packets(view, fabric, counts), *_inside(view, counts)
        for rule in rules:
            if one.has(rule.feature.partition("[")[0]):
                yield Unfired(feature=f"overrides[{at}].{rule.feature}", reason=rule.reason)


def _drops(fabric: Fabric) -> Drops:
    """What was dropped; packet level always knows."""
    assert fabric.drops is not None, "flow level has no features that could have fired in vain"
    return fabric.drops


def never_fired(
    scenario: Scenario,
    fabric: Fabric,
    counts: Counts,
    virtual_ps: int,
    *,
    timed_out: bool = False,
) -> list[Unfired]:
    """Every configured feature that made no difference, fabric first, then library and jobs. Faults are in
    `emu.summary.unfired`.
    """
    found = [*_fabric(scenario, fabric, counts), *_packets(scenario, fabric, counts)]
    found += _overridden(scenario, fabric, counts)
    collective = any(job.workload.calls_library for job in scenario.jobs)
    if scenario.ncclx.sms_per_channel and counts.total(HOST_SLOWER_COMPUTE_PS) == 0:
        reason = "no computing was slowed by a collective"
        found.append(Unfired(feature="ncclx.sms_per_channel", reason=reason))
    if not collective and scenario.ncclx != type(scenario.ncclx)():
        found.append(Unfired(feature="ncclx", reason="no job runs a collective"))
    elif collective:
        found += _library(scenario, counts, timed_out=timed_out)
    found += _inside(scenario, counts)
    if scenario.payload == "real" and not any(job.workload.carries_content for job in scenario.jobs):
        found.append(Unfired(feature="payload", reason="no job runs a collective"))
    for at, section in enumerate(scenario.jobs):
        passed = counts.total(GPU_OVERTAKEN_COPIES) + counts.total(HOST_OVERTAKEN_CALLS)
        if section.workload.prioritised and passed == 0:
            feature = f"jobs[{at}].workload.communicators"
            found.append(Unfired(feature=feature, reason="no copy or call passed one of a lower priority"))
        if section.start_ps >= virtual_ps:
            reason = f"the run ended at {shown_time(virtual_ps)}, before {section.name} began"
            found.append(Unfired(feature=f"jobs[{at}]", reason=reason))
    return found


_PAUSED: Final = PFC_TRANSMIT_XOFF_FRAMES
_UNMOVED: Final[Mapping[str, tuple[tuple[str, ...], str]]] = {
    "pause_loss": ((_PAUSED,), "no pause was sent that could be lost"),
    "headroom_drift": ((HEADROOM_PEAK_BYTES, "headroom_overrun"), "no frame needed headroom"),
    "alpha_drift": ((_PAUSED, "no_shared_room"), "no buffer filled up to its threshold"),
    "pfc_drift": ((_PAUSED, "no_shared_room"), "nothing was paused, and nothing dropped for want of room"),
    "credit_drift": ((CREDIT_GRANTS,), "no packet crossed a modular switch"),
    "gpu_slow": ((GPU_COPIES, HOST_COMPUTE_PS), "no GPU had anything to do"),
    "gpu_hung": ((GPU_COPIES, HOST_COMPUTE_PS), "no GPU had anything to do"),
}
"""By kind: counters, or reasons of drops, all of which are 0 where it did nothing, and how to say so."""
_HASHES: Final = ("hash_seed_drift", "hash_fields_drift")


def idle_captures(scenario: Scenario, records: Sequence[DeviceRecord]) -> Iterator[Unfired]:
    """Captures without a packet."""
    kept = {one.capture for record in records for one in record.captured if one.rows}
    for number in range(len(scenario.run.capture)):
        if number not in kept:
            yield Unfired(
                feature=f"run.capture[{number}]", reason="no frame passed its ports, span and filter"
            )


def idle_span(scenario: Scenario, fabric: Fabric, virtual_ps: int) -> Iterator[Unfired]:
    """A span that begins after the run."""
    if scenario.run.span.for_ps and fabric.span is None:
        reason = f"the run ended at {format_time(virtual_ps)}, before it began"
        yield Unfired(feature="run.span", reason=reason)


def idle_faults(
    effects: Sequence[FaultEffect],
    fabric: Fabric,
    counts: Counts,
    records: Sequence[DeviceRecord],
    names: Sequence[str],
    virtual_ps: int,
    *,
    flipped: bool,
) -> Iterator[Unfired]:
    """The faults, by place. `names` are those of the devices, by number; `flipped`: a bit turned over."""
    for at, effect in enumerate(effects):
        reason = ""
        if effect.kind == "random" and not effect.target:
            reason = "none was drawn: raise acceleration or within"
        elif not effect.happened:
            ended, _ = distinct_texts([virtual_ps, effect.at_ps])
            reason = f"the run ended at {ended}, before {format_time(effect.at_ps)}"
        elif effect.kind == "link_up" and not any(
            other.kind != "link_up" and other.at_ps <= effect.at_ps and other.target == effect.target
            for other in effects
        ):
            reason = f"{effect.target} was up already"
        elif effect.kind == "bit_flip" and not flipped:
            reason = "no collective of that GPU was under way"
        elif effect.kind == "qp_error" and not _in_error(effect, records, names):
            reason = f"{effect.target} has no such queue pair, or it was in error already"
        elif effect.kind in _HASHES and not _chosen(fabric):
            reason = NO_CHOICE
        elif effect.kind in _UNMOVED:
            seen, reported = _UNMOVED[effect.kind]
            if not any(counts.total(one) or _drops(fabric).by_reason.get(one) for one in seen):
                reason = reported
        if reason:
            yield Unfired(feature=f"faults[{at}]", reason=reason)


def _in_error(effect: FaultEffect, records: Sequence[DeviceRecord], names: Sequence[str]) -> bool:
    """Whether a NIC that is hit logged a queue pair in error at that time or later."""
    hit_devices = [one for one in records if names[one.number] == effect.target]
    return not hit_devices or any(
        at_ps >= effect.at_ps and item == PAIR_ERROR
        for one in hit_devices
        for at_ps, item, *_ in one.shown.get("log", ())
    )
