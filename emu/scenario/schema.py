"""What is a scenario? The root section, complete: whatever a run depends on is in it.

The sections are in modules of their own, one per subject; kinds, policies and patterns are tables in them.
"""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Annotated, Literal

from pydantic import Field

from actors.wire.frame import LARGEST_HEADERS_BYTES
from emu.scenario.expect.expect import Expectation, path_steps
from emu.scenario.expect.series import EXPECTATIONS, SeriesExpectation, deadline
from emu.scenario.faults.table import FAULTS, FaultSection
from emu.scenario.sections.host import GpuSection, HostSection
from emu.scenario.sections.jobs import JobSection
from emu.scenario.sections.link import LinkSection
from emu.scenario.sections.ncclx import NcclxSection
from emu.scenario.sections.nic import NicSection, TransportSection
from emu.scenario.sections.routing import POLICIES, EEcmp, RoutingSection
from emu.scenario.sections.run import ControlSection, RunSection
from emu.scenario.sections.section import Refusal, Section
from emu.scenario.sections.switch import SwitchSection
from emu.scenario.sections.topology import TOPOLOGIES, TopologySection
from emu.scenario.yaml.values import Name
from emu.spelling import did_you_mean, listed
from emu.units import parse_time

LEAST_AUTO_STALL_PS = parse_time("10ms")
LONGEST_AUTO_STALL_PS = parse_time("100s")
TAKEN_FOR_LOSS = "go-back-N takes that for losses"


class Scenario(Section):
    """One run: a fabric, how its devices behave, the jobs on it, what breaks, and what must come out."""

    name: Name
    """Name of the scenario, in results and metrics."""
    description: Annotated[str, Field(max_length=4000)] = ""
    """Which question it answers."""
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 1
    """Seed of every random stream: same scenario and seed, same result, bit for bit."""
    topology: Annotated[TopologySection, TOPOLOGIES]
    """The fabric."""
    routing: Annotated[RoutingSection, POLICIES] = EEcmp()
    """How switches choose among equal paths."""
    switch: SwitchSection = SwitchSection()
    """The switches."""
    link: LinkSection = LinkSection()
    """The cables."""
    nic: NicSection = NicSection()
    """The NICs."""
    transport: TransportSection = TransportSection()
    """Their queue pairs."""
    host: HostSection = HostSection()
    """The servers."""
    gpu: GpuSection = GpuSection()
    """The GPUs."""
    ncclx: NcclxSection = NcclxSection()
    """The collective library."""
    payload: Literal["sizes", "real"] = "sizes"
    """Whether packets of collectives carry bytes, reductions are done on them and results compared
    (`#wrong`), or packets carry no more than their size."""
    control: ControlSection = ControlSection()
    """The control plane."""
    run: RunSection = RunSection()
    """Limits and sampling."""
    jobs: Annotated[tuple[JobSection, ...], Field(min_length=1, max_length=1024)]
    """What runs on it."""
    faults: Annotated[tuple[Annotated[FaultSection, FAULTS], ...], Field(max_length=65536)] = ()
    """What breaks."""
    expect: Annotated[
        tuple[Annotated[Expectation | SeriesExpectation, EXPECTATIONS], ...], Field(max_length=4096)
    ] = ()
    """What must be true of the results."""

    def check(self) -> Iterator[Refusal]:
        """Refuse sections that contradict each other."""
        names = [job.name for job in self.jobs]
        for index, name in enumerate(names):
            if name in names[:index]:
                yield Refusal(("jobs", index, "name"), f"{name!r} is used twice", "a name of its own")
        for index, job in enumerate(self.jobs):
            if job.mismatch is not None and self.payload == "real":
                reason = "ranks that call other sizes have no result that could be compared (payload: real)"
                yield Refusal(("jobs", index, "mismatch"), reason, "payload: sizes")
        if not any(job.enabled for job in self.jobs):
            yield Refusal(("jobs",), "no job is enabled", "a job that runs")
        if self.ncclx.channels * self.ncclx.sms_per_channel >= self.gpu.sms:
            reason = f"{self.ncclx.channels} channels take all {self.gpu.sms} SMs of a GPU"
            yield Refusal(("ncclx", "channels"), reason, "fewer, a smaller sms_per_channel, or more gpu.sms")
        pfc = self.switch.pfc
        if self.credited:
            yield from self._without_room()
        elif pfc.enabled and self.transport.data_priority not in pfc.priorities:
            reason = f"data at priority {self.transport.data_priority} is not lossless"
            accepted = (
                f"one of switch.pfc.priorities ({listed(map(str, pfc.priorities))}), or pfc.enabled: false"
            )
            yield Refusal(("transport", "data_priority"), reason, accepted)
        if self.routing.reorders and not self.transport.out_of_order:
            accepted = "a transport.recovery that takes packets out of order"
            odd = self.routing.packet_fields
            if odd:
                reason = f"packets of one flow differ in {' and '.join(odd)} and go different ways"
                yield Refusal(("routing", "fields"), f"{reason}: {TAKEN_FOR_LOSS}", accepted)
            else:
                reason = f"{self.routing.policy} reorders packets, and {TAKEN_FOR_LOSS}"
                accepted += ", or routing.allow_reordering: true"
                yield Refusal(("routing", "policy"), reason, accepted)
        yield from self._check_expectations(names)

    def _check_expectations(self, names: list[str]) -> Iterator[Refusal]:
        """Refuse what speaks of jobs and faults that the scenario has not."""
        count = len(self.faults)
        for index, expectation in enumerate(self.expect):
            if isinstance(expectation, SeriesExpectation):
                within = expectation.within
                if within is not None and deadline(within).fault >= count:
                    reason = f"there is no fault {deadline(within).fault}: the scenario has {count}, from 0"
                    yield Refusal(("expect", index, "within"), reason, "a fault by its place in faults")
                for label in ("comm_name", "job_name"):
                    wanted = getattr(expectation.where, label)
                    if wanted is not None and not any(fnmatchcase(name, wanted) for name in names):
                        reason = f"there is no job {wanted!r}{did_you_mean(wanted, names)}"
                        yield Refusal(("expect", index, "where", label), reason, listed(names))
                continue
            steps = path_steps(expectation.value)
            if steps[0] == "jobs" and len(steps) > 1 and steps[1] not in names:
                reason = f"there is no job {steps[1]!r}{did_you_mean(str(steps[1]), names)}"
                yield Refusal(("expect", index, "value"), reason, f"jobs.NAME with {listed(names)}")
            place = steps[1] if steps[0] == "faults" and len(steps) > 1 else None
            if isinstance(place, int) and not -count <= place < count:
                reason = f"there is no fault {place}: the scenario has {count}"
                yield Refusal(("expect", index, "value"), reason, "an index into faults")

    @property
    def classified(self) -> bool:
        """Whether switches go by DSCP: a map is not the default, or NICs give other DSCPs."""
        qos = self.switch.qos
        return not qos.plain or bool(qos.exceptions) or self.nic.dscp != NicSection().dscp

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
        if self.classified:
            reason = "DSCP maps are Ethernet's, and links have credits"
            yield Refusal(("switch", "qos"), reason, "link.flow_control: pfc, or no maps")
        if self.switch.deep_buffer.where in ("spines", "listed"):
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
        transport = self.transport
        if transport.timeout_ps == 0:
            return LONGEST_AUTO_STALL_PS
        retries_ps = transport.timeout_ps * (transport.retry_count + 2)
        return min(max(retries_ps, LEAST_AUTO_STALL_PS), LONGEST_AUTO_STALL_PS)
