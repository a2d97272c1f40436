"""What flow level cannot answer, refused before a run: a line for each key, and what would be answered.

What it does not model at all is refused, and so is an expectation about what it does not know: an answer that
is silent about losses is not an answer that there were none.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import Final

from actors.fabric.model import Topology
from actors.kernel.event import NEVER_PS
from actors.ncclx.transport.wiring import WiredJob
from actors.nic.queue_pair.pair_columns import QpPlan
from actors.optional.perftest import TX_DEPTH
from emu.base.errors import Problem, ScenarioError
from emu.devices.buffer_sizes import is_deep, port_pools_bytes
from emu.devices.plan import Plan
from emu.devices.pricing.estimate import call_hops
from emu.flow.calls import PACKETS, has_closed_form, loops_of
from emu.flow.fault_line import KNOWN, is_known
from emu.flow.queue_pair_paths import is_spread
from emu.scenario.expect import SeriesExpectation, path_steps
from emu.scenario.faults.events import Fault
from emu.scenario.faults.targets import is_measured
from emu.scenario.schema import Scenario
from emu.summary.fabric import UNKNOWN
from emu.topology.front_end import FRONT_END

MOST_NEEDED_HOPS: Final = 20_000_000
"""Packet-hops of an isolated run of a call that has no closed form."""
BITS_PS: Final = 8 * 10**12
"""In a byte, and ps in a second."""
ROUND_TRIPS: Final = 3
"""Credit delays that a packet waits at most in a modular switch where nobody else sends."""
Line = tuple[str, str, str]
"""Key, reason, what is accepted."""


def check_flow_level(scenario: Scenario, topology: Topology, plan: Plan, faults: Sequence[Fault]) -> None:
    """Refuse a scenario that flow level cannot answer. Raises ScenarioError with every reason."""
    lines = [
        *_devices(scenario, topology),
        *_faults(scenario, topology, faults),
        *_library(scenario),
        *_jobs(scenario, plan),
        *_calls(scenario, topology, plan),
        *_asked(scenario),
    ]
    if lines:
        raise ScenarioError([Problem(scenario.name, 0, *line) for line in lines])


def _devices(scenario: Scenario, topology: Topology) -> Iterator[Line]:
    """What of fabric and NICs."""
    control, routing = scenario.transport.congestion_control.kind, scenario.routing
    if control != "none":
        reason = f"flow level has no congestion control: {control} needs many round trips to even rates"
        yield "transport.congestion_control.kind", reason, f"none, or {PACKETS}"
    yield from _routing(scenario)
    if getattr(routing, "resilient_buckets", 0):
        yield "routing.resilient_buckets", "flow level has no resilient hashing", f"0, or {PACKETS}"
    if scenario.credited:
        yield "link.flow_control", "flow level has no credits", f"pfc, or {PACKETS}"
    elif not scenario.switch.pfc.enabled and scenario.transport.is_rc:
        yield "switch.pfc.enabled", "flow level loses nothing", f"true, or {PACKETS}"
    yield from _modular(scenario, topology)
    buffer = scenario.switch.buffer
    if buffer.profiles or buffer.xoff_bytes is not None:
        key = "switch.buffer.profiles" if buffer.profiles else "switch.buffer.xoff"
        yield key, "flow level has one dynamic threshold for all ports", f"none, or {PACKETS}"
    for key, given in (
        ("switch.buffer.admission.kind", buffer.admission.kind != type(buffer)().admission.kind),
        ("link.bit_error_rate", bool(scenario.link.bit_error_rate)),
        ("nic.corrupt_every", bool(scenario.nic.corrupt_every)),
        ("nic.context_cache.entries", bool(scenario.nic.context_cache.entries)),
        ("nic.jitter", bool(scenario.nic.jitter_ps)),
        ("nic.arbiter.kind", scenario.nic.arbiter.kind != "round_robin"),
        ("nic.receive.enabled", scenario.nic.receive.enabled),
        ("host.node", scenario.host.node != "none"),
        ("host.pcie.enabled", scenario.host.pcie.enabled),
        ("transport.receive_queue.depth", bool(scenario.transport.receive_queue.depth)),
        ("transport.kind", scenario.transport.kind not in ("rc", "multipath")),
        ("transport.recovery.kind", scenario.transport.recovery.kind == "tcp"),
        ("overrides", any(_overridden(scenario, topology))),
        ("payload", scenario.payload == "real"),
        ("run.repeat", scenario.run.repeat),
        ("run.span", bool(scenario.run.span.for_ps)),
        ("run.capture", bool(scenario.run.capture)),
        ("run.event_log", bool(scenario.run.event_log)),
        ("run.trace.flows", scenario.run.trace.flows is not None),
    ):
        if given:
            yield key, "flow level does not have this", f"its default, or {PACKETS}"


def _modular(scenario: Scenario, topology: Topology) -> Iterator[Line]:
    """What of modular switches: ports whose credit or buffer is too small for their own round trip."""
    section = scenario.switch.deep_buffer
    deep = [switch for switch in topology.switches if is_deep(scenario, topology, switch)]
    rates = {end.rate_bps for switch in deep for end in topology.ports(switch)}
    least = max(rates, default=0) * section.credit_delay_ps // BITS_PS
    if section.most_credit_bytes < least:
        reason = f"flow level takes a modular switch for as fast as its links, which need {least} B of credit"
        yield "switch.deep_buffer.most_credit", reason, f"at least {least}, or {PACKETS}"
    for switch in deep if scenario.switch.pfc.enabled else ():
        held = min(port_pools_bytes(scenario, topology, switch)) * section.alpha / (1 + section.alpha)
        if held < ROUND_TRIPS * least:
            name = topology.nodes[switch].name
            reason = (
                f"flow level takes the ports of modular switches for deep: one of {name} is paused "
                f"with {int(held)} B, less than {ROUND_TRIPS} credit delays of its link"
            )
            yield "switch.deep_buffer.port_buffer", reason, f"more, or {PACKETS}"
            return


def _faults(scenario: Scenario, topology: Topology, faults: Sequence[Fault]) -> Iterator[Line]:
    """What of the faults: one line for each that flow level does not have."""
    for entry, section in enumerate(scenario.faults):
        occurred = [one for one in faults if one.entry == entry]
        key = f"faults[{entry}]"
        if is_measured(section.hits):
            reason = "flow level does not measure what is busiest"
            yield f"{key}.target", reason, f"a name, or {PACKETS}"
            continue
        if section.kind == "miscabling":
            continue
        if section.kind != "gpu_slow" and not scenario.transport.is_rc:
            reason = "flow level splits a queue pair evenly over its paths, whatever breaks"
            yield f"{key}.kind", reason, f"gpu_slow, or {PACKETS}"
            continue
        unknown = next((one for one in occurred if not is_known(one)), None)
        if unknown is not None and unknown.kind == "degrade":
            reason = "flow level has no loss and no bit errors: it loses nothing"
            yield key, reason, f"rate alone, or {PACKETS}"
        elif unknown is not None:
            yield f"{key}.kind", f"flow level has no {unknown.kind}", f"{', '.join(KNOWN)}, or {PACKETS}"
        elif any(
            topology.nodes[one.device].network == FRONT_END for each in occurred for one in each.changes
        ):
            yield key, "flow level has no faults of the front end", f"the back end, or {PACKETS}"


def _routing(scenario: Scenario) -> Iterator[Line]:
    """What of the choice of ways."""
    routing = scenario.routing
    by_packet = is_spread(routing)
    if by_packet and not scenario.transport.is_rc:
        reason = "a path of multipath keeps its order, and flow level does not know what it makes of gaps"
        yield "routing.kind", reason, f"ecmp, or {PACKETS}"
        return
    if by_packet and not scenario.transport.out_of_order:
        reason = "flow level does not know what go-back-N makes of packets that overtake each other"
        accepted = f"transport.recovery that takes packets out of order, or {PACKETS}"
        yield "routing.allow_reordering", reason, accepted
    elif routing.kind == "adaptive" and not by_packet:
        reason = "flow level does not know which port has least to send when a flowlet begins"
        yield "routing.granularity", reason, f"packet, or {PACKETS}"
    elif not by_packet and (routing.kind not in ("ecmp", "e_ecmp") or routing.by_packet):
        reason = f"flow level has no {routing.kind}: it takes the way that hashes give a queue pair, or all"
        accepted = "ecmp or e_ecmp over fields that a flow keeps, spray, adaptive by packet"
        yield "routing.kind", reason, f"{accepted}, or {PACKETS}"


def _overridden(scenario: Scenario, topology: Topology) -> Iterator[bool]:
    """Whether overrides change what flow level goes by: anything of the back end, more than the transport and
    PFC of the front end.
    """
    for node in topology.nodes[:-1] if scenario.overrides else ():
        own = scenario.at(topology, node.number)
        if node.network != FRONT_END:
            yield own is not scenario
            continue
        switch = own.switch.model_copy(update={"pfc": scenario.switch.pfc})
        transport = own.transport.model_copy(
            update={
                "recovery": scenario.transport.recovery,
                "congestion_control": scenario.transport.congestion_control,
            }
        )
        yield (switch, transport, own.nic, own.link, own.host) != (
            scenario.switch,
            scenario.transport,
            scenario.nic,
            scenario.link,
            scenario.host,
        )


def _library(scenario: Scenario) -> Iterator[Line]:
    """What of the collective library."""
    ncclx = scenario.ncclx
    if ncclx.qp_policy not in ("round_robin", "split"):
        reason = "flow level shares slices out by turns, and not by what is outstanding"
        yield "ncclx.qp_policy", reason, f"round_robin or split, or {PACKETS}"
    limits = ncclx.outstanding
    limited = any((limits.connection_bytes, limits.rack_bytes, limits.zone_bytes, limits.pod_bytes))
    for key, given in (
        ("ncclx.zero_copy", ncclx.zero_copy),
        ("ncclx.sms_per_channel", bool(ncclx.sms_per_channel)),
        ("ncclx.outstanding", limited),
        ("ncclx.watchdog", ncclx.watchdog_ps is not None),
        ("ncclx.init.store", ncclx.init.store != "none"),
        ("ncclx.connect.when", ncclx.connect.when != "beforehand"),
    ):
        if given:
            yield key, "flow level does not have this", f"its default, or {PACKETS}"


def _jobs(scenario: Scenario, plan: Plan) -> Iterator[Line]:
    """What of the jobs."""
    classes: set[int] = set()
    for number, (job, work) in enumerate(zip(scenario.jobs, plan.jobs, strict=True)):
        if not work.enabled:
            continue
        key = f"jobs[{number}]"
        for name, given in (
            ("submitted", work.start_ps == NEVER_PS),
            ("absent", bool(job.absent)),
            ("mismatch", job.mismatch is not None),
            ("shrink", bool(job.shrink)),
            ("recover", job.recover is not None),
        ):
            if given:
                yield f"{key}.{name}", "flow level does not have this", f"its default, or {PACKETS}"
        if getattr(job.workload, "tx_depth", TX_DEPTH) != TX_DEPTH:
            reason = "flow level does not hold a queue pair back for its depth"
            yield f"{key}.workload.tx_depth", reason, f"{TX_DEPTH}, or {PACKETS}"
        if job.workload.flows_on_front_end:
            reason = "flow level has clients of storage on the front end, and no other flows"
            yield f"{key}.workload.network", reason, f"backend, or {PACKETS}"
        named = [pair.priority for flow in work.flows for pair in _pairs_of(plan, flow.source, flow.pairs)]
        classes.update(named)
        if work.wired is not None:
            classes.add(work.wired.settings.data_priority)
            groups = work.wired.script.groups
            classes.update(one.data_priority for one in groups if one.data_priority is not None)
    if len(classes) > 1:
        reason = f"flow level has one class of data, and jobs use {', '.join(map(str, sorted(classes)))}"
        yield "jobs", reason, f"one data_priority, or {PACKETS}"


def _calls(scenario: Scenario, topology: Topology, plan: Plan) -> Iterator[Line]:
    """What of calls that have to run alone, and are too large for that: the first of each job."""
    for number, work in enumerate(plan.jobs):
        if work.wired is not None and work.enabled:
            found = next(_too_large(scenario, topology, work.wired), "")
            if found:
                accepted = (
                    f"at most {MOST_NEEDED_HOPS:,} (fewer ranks or bytes, ring or direct), or {PACKETS}"
                )
                yield f"jobs[{number}].workload", found, accepted


def _too_large(scenario: Scenario, topology: Topology, job: WiredJob) -> Iterator[str]:
    """Why calls of a job cannot be run alone; those of groups of one size once."""
    seen: set[Hashable] = set()
    for group, schedule in enumerate(job.schedules):
        for operation in schedule.operations:
            key = operation._replace(iteration=0, warmup=False), len(schedule.nodes), schedule.channels
            if has_closed_form(operation) or key in seen:
                continue
            seen.add(key)
            size_bytes = operation.size_bytes
            more_bytes, loops = loops_of(schedule, operation)
            part_bytes = size_bytes - (loops - 1) * more_bytes if loops else size_bytes
            hops = call_hops(scenario, topology, job, group, operation) * part_bytes // max(size_bytes, 1)
            if hops > MOST_NEEDED_HOPS:
                name = f"{operation.op} by {operation.algorithm} of {size_bytes:,} B"
                yield f"flow level runs {name} alone: {part_bytes:,} B of it are {hops:,} packet-hops"


def _pairs_of(plan: Plan, nic: int, pairs: tuple[tuple[int, int], ...]) -> Iterator[QpPlan]:
    for index, _ in pairs[:1]:
        yield plan.pairs[nic][index]


def _asked(scenario: Scenario) -> Iterator[Line]:
    """What of the expectations."""
    for number, one in enumerate(scenario.expect):
        if isinstance(one, SeriesExpectation):
            yield f"expect[{number}]", "flow level has no series over time", f"value, or {PACKETS}"
            continue
        steps = path_steps(one.value)
        root = steps[1] if steps[0] == "fabric" and len(steps) > 1 else steps[0]
        words = [str(step) for step in steps]
        if (
            root in UNKNOWN
            or root in ("never_fired", "diagnosis")
            or words[-1] == "frames_lost"
            or _about_pauses(words)
        ):
            reason = f"flow level does not know {one.value}"
            yield f"expect[{number}].value", reason, f"what it knows (docs/flow_level.md), or {PACKETS}"


def _about_pauses(words: list[str]) -> bool:
    return words[-1].startswith(("paused", "up_xoff", "down_xoff")) or "cts_wait" in words
