"""State series: jobs, collectives, faults and neighbours of ports at the time of a scrape.

Read between slices from what devices keep anyway: rows of labels and values for each series of
`emu.results.metrics`. The worker that hosts the controller exports the series of jobs,
collectives and faults, so that a sum over workers counts each once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from actors.control import operator as noted
from actors.control.controller import Controller
from actors.host.host import Host
from actors.kernel.device import Device
from actors.nic.nic import Nic
from actors.port.port import Port
from actors.switch.switch import Switch
from actors.wire.message import STATUS_SUCCESS
from emu.counts.collected import JobPlan
from emu.devices.job_plans import job_plans
from emu.devices.switches import fabric_ports
from emu.engine.blueprint import RunPlan
from emu.engine.sync.partition import Partition
from emu.results.busbw import bandwidth_bps, bus_factor
from emu.results.metrics import algorithm_name, collective_name, size_range
from emu.results.planned_rows import CollectivePlan
from emu.scenario.faults.events import Fault, spans_of
from emu.scenario.spans import plane_names, port_labels
from emu.summary.recoveries import PLANNED, RULES, operator_result
from emu.summary.series import members_of

WORKS: Final = frozenset((noted.TRAINS, noted.STAGES, noted.HOLDS))
"""What an operator is at while its job does steps, or saves."""
RECOVERS: Final = frozenset(
    (noted.STOPS, noted.CHECKS, noted.LAUNCHES, noted.MEETS, noted.LOADS, noted.UNLOADS)
)

Rows = dict[str, list[tuple[tuple[str, ...], int]]]
"""By key of the series: values of its labels, and its value."""


class StateReading:
    """The state of one process's devices. `faults` gives those of the run as it is now, changes included."""

    def __init__(
        self, plan: RunPlan, partitions: Sequence[Partition], faults: Callable[[], Sequence[Fault]]
    ) -> None:
        self._topology = plan.topology
        self._plan = plan
        self._partitions = partitions
        self._faults = faults
        self._devices: list[Device] = []
        """All of them, once somebody has asked."""
        self._members: list[tuple[tuple[str, ...], Port]] | None = None
        """Labels and port of every member of every routing group, once somebody has asked."""
        self._fixed: Rows = {}
        self._known_faults: Sequence[Fault] | None = None
        self._spans: list[tuple[int, int]] = []
        """Spans of the known faults."""
        self._payload_hosts: list[Host] = []
        self._controller: Controller | None = None
        self._jobs: Sequence[JobPlan] = ()
        self._hosts: list[int] = []
        self._labels: list[list[tuple[str, ...]]] = []
        self._seen: dict[int, int] = {}
        """By job, the last operation whose row was read."""
        self._steps: dict[int, int] = {}
        """By job, how long its last step took."""
        self._last: dict[tuple[str, ...], tuple[int, int, int]] = {}
        """By labels, time, algbw and busbw of the last collective."""

    def _look_up(self) -> list[tuple[tuple[str, ...], Port]]:
        """Look at the devices for the first time; those that sleep wake."""
        plan = self._plan.blueprint.plan
        self._devices = [device for partition in self._partitions for device in partition.devices]
        if self._plan.blueprint.scenario.payload == "real":
            self._payload_hosts = [device for device in self._devices if isinstance(device, Host)]
        self._controller = next((one for one in self._devices if isinstance(one, Controller)), None)
        self._jobs = job_plans(plan, self._topology)
        # An operator's own jobs, behind those of the scenario, have no series.
        self._hosts = [len(work.hosts()) for work in plan.jobs]
        self._labels = [self._labels_of(number) for number in range(len(self._jobs))]
        self._fixed = self._fixed_rows()
        return [
            (labels, device.ports[at])
            for device in self._devices
            if isinstance(device, Switch)
            for labels, at in members_of(self._topology, device.number)
        ]

    def rows(self, now_ps: int) -> Rows:
        """Everything, now."""
        if self._members is None:
            self._members = self._look_up()
        found: Rows = dict(self._fixed)
        found["routing_group_member_payload_bytes"] = [
            (labels, int(port.sent_data_bytes)) for labels, port in self._members
        ]
        wrong: dict[str, int] = {}
        for host in self._payload_hosts:
            for number, _, _, elements, *_ in host.results().get("payload", ()):
                name = self._jobs[number].name
                wrong[name] = wrong.get(name, 0) + elements
        if wrong:
            found["payload_wrong_elements"] = [((name,), wrong[name]) for name in sorted(wrong)]
        if self._controller is not None:
            self._add_jobs(found, self._controller)
            self._add_operator(found, self._controller, now_ps)
            spans = self._fault_spans()
            found["faults"] = [((), sum(begin_ps <= now_ps for begin_ps, _ in spans))]
            found["faults_active"] = [((), sum(begin_ps <= now_ps < end_ps for begin_ps, end_ps in spans))]
        return found

    def _fault_spans(self) -> list[tuple[int, int]]:
        """From when to when each fault stands; worked out anew where a change made others of them."""
        faults = self._faults()
        if faults is not self._known_faults:
            self._known_faults = faults
            self._spans = spans_of(faults)
        return self._spans

    def _fixed_rows(self) -> Rows:
        """What never changes: whom ports are connected to, and the sizes of buffers."""
        found: Rows = {"port_info": [], "buffer_pool_bytes": []}
        nodes = self._topology.nodes
        of_switch = plane_names(self._topology)
        for device in self._devices:
            if isinstance(device, Switch | Nic):
                for at in range(len(fabric_ports(device))):
                    found["port_info"].append((port_labels(self._topology, device.number, at, of_switch), 1))
            if isinstance(device, Switch):
                name = nodes[device.number].name
                found["buffer_pool_bytes"].append(((name,), int(device.buffer.pool_bytes)))
        return found

    def _add_jobs(self, found: Rows, controller: Controller) -> None:
        for key in ("job_operations", "job_running", "job_failed", "job_step_time_ps", "job_mfu_ppm"):
            found[key] = []
        for plan, job in zip(self._jobs, controller.jobs, strict=False):
            found["job_operations"].append(((plan.name,), int(job.operation)))
            found["job_running"].append(((plan.name,), int(not job.ended)))
            broken = job.status != STATUS_SUCCESS or self._is_down(plan, controller)
            found["job_failed"].append(((plan.name,), int(broken)))
        self._take_new(controller.operations)
        for number, step_ps in sorted(self._steps.items()):
            plan = self._jobs[number]
            found["job_step_time_ps"].append(((plan.name,), step_ps))
            mfu_ppm = plan.facts.step_mfu_ppm(plan.ranks, step_ps)
            if mfu_ppm is not None:
                found["job_mfu_ppm"].append(((plan.name,), mfu_ppm))
        counts = self._counts(controller)
        found["collectives"] = sorted(counts.items())
        ordered = sorted(self._last.items())
        for at, key in enumerate(
            (
                "collective_exec_time_ps",
                "collective_algorithm_bandwidth_bytes_per_second",
                "collective_bus_bandwidth_bytes_per_second",
            )
        ):
            found[key] = [(labels, values[at]) for labels, values in ordered]

    def _is_down(self, plan: JobPlan, controller: Controller) -> bool:
        """Whether a job that is tended stands still because something broke."""
        operator = controller.operator
        if operator is None or plan.tended is None or operator.at not in RECOVERS:
            return False
        noticed = [row[2] for row in operator.rows if row[1] == noted.NOTICED]
        return bool(noticed) and RULES[noticed[-1]] not in PLANNED

    def _add_operator(self, found: Rows, controller: Controller, now_ps: int) -> None:
        """What the operator of a job did, and has."""
        operator = controller.operator
        facts = next((plan.tended for plan in self._jobs if plan.tended is not None), None)
        if operator is None or facts is None:
            return
        names = {host: self._topology.nodes[host].name for host in self._topology.hosts}
        job = facts.job
        counts: dict[tuple[str, tuple[str, ...]], int] = {
            ("operator_restarts", (job,)): 0,
            ("operator_checkpoints", (job, "saved")): 0,
            ("operator_checkpoints", (job, "left_out")): 0,
        }
        for _, what, a, b in operator.rows:
            key = {
                noted.NOTICED: ("operator_notices", (job, RULES[a % len(RULES)], names.get(b, ""))),
                noted.REPORTED: ("operator_reported", (job, RULES[a % len(RULES)], names.get(b, ""))),
                noted.STOPPED: ("operator_restarts", (job,)),
                noted.EVICTED: ("operator_evictions", (job, names.get(a, ""))),
                noted.SAVED: ("operator_checkpoints", (job, "saved")),
                noted.LEFT_OUT: ("operator_checkpoints", (job, "left_out")),
            }.get(what)
            if key is not None:
                counts[key] = counts.get(key, 0) + 1
        for (metric, labels), count in sorted(counts.items()):
            found.setdefault(metric, []).append((labels, count))
        tended = operator.tended()
        done = [row for row in controller.operations if row[0] == tended]
        result = operator_result(facts, operator.rows, done, names, now_ps)
        found["operator_working"] = [((job,), int(operator.at in WORKS))]
        found["operator_checkpoint_step"] = [((job,), operator.whole)]
        found["operator_step"] = [((job,), operator.step)]
        found["operator_goodput_ppm"] = [((job,), round(result.goodput * 10**6))]
        found["operator_remapped_rows"] = [
            ((names[host],), heard[4]) for host, heard in sorted(operator.heard.items())
        ]

    def _take_new(self, rows: Sequence[Sequence[int]]) -> None:
        """What the operations came to that ended since the last look; the newest rows are at the end."""
        new: list[Sequence[int]] = []
        for row in reversed(rows):
            if row[1] <= self._seen.get(row[0], -1):
                break
            new.append(row)
        if rows and not new and rows[-1][1] < self._seen.get(rows[-1][0], -1):
            self._seen.clear()  # The run went back.
            self._last.clear()
            self._steps.clear()
            new = list(reversed(rows))
        for number, operation, start_ps, end_ps, status in reversed(new):
            self._seen[number] = operation
            if status == STATUS_SUCCESS:
                self._take(number, operation, end_ps - start_ps)

    def _take(self, number: int, operation: int, time_ps: int) -> None:
        job = self._jobs[number]
        if not job.collectives:
            self._steps[number] = time_ps  # A step of training is no collective.
            return
        place = operation % len(job.collectives)
        plan = job.collectives[place]
        self._last[self._labels[number][place]] = (
            time_ps,
            _rate(plan, time_ps, bus=False),
            _rate(plan, time_ps, bus=True),
        )

    def _counts(self, controller: Controller) -> dict[tuple[str, ...], int]:
        """How many collectives ended well, by labels: worked out, since rounds long over are forgotten."""
        counts: dict[tuple[str, ...], int] = {}
        for labels, job in zip(self._labels, controller.jobs, strict=False):
            period, done = len(labels), int(job.operation)
            for place, one in enumerate(labels):
                count = done // period + (place < done % period)
                count -= job.status != STATUS_SUCCESS and (done - 1) % period == place
                if count:
                    counts[one] = counts.get(one, 0) + count
        return counts

    def _labels_of(self, number: int) -> list[tuple[str, ...]]:
        job = self._jobs[number]
        return [
            (
                job.name,
                str(self._hosts[number]),
                str(job.ranks),
                collective_name(plan.op),
                size_range(plan.size_bytes),
                algorithm_name(plan.algorithm),
            )
            for plan in job.collectives
        ]


def _rate(plan: CollectivePlan, time_ps: int, bus: bool) -> int:
    factor = bus_factor(plan.op, plan.ranks) if bus else bus_factor("", plan.ranks)
    return (bandwidth_bps(plan.size_bytes, time_ps, factor) or 0) // 8
