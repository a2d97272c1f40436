"""A run that a program drives step by step, deciding on the way what a job does next.

    run = emu.stepped("scenario.yaml")
    run.submit("train")
    while run.next("train"):
        print(run.operations("train")[-1])
        run.submit("train")

Virtual time stands still between the calls, at a sync point: everything before `now_ps` has been executed
and nothing at or after it. What is submitted there begins one management delay later on every host of the
job. The answer depends on the calls and their virtual times, not on `parts`.

Not modelled: workers on Ray.
"""

from __future__ import annotations

from actors.control.controller import Controller
from actors.host.host import MANAGEMENT_RATE_BPS
from actors.kernel.event import NEVER_PS
from actors.nic.nic import Nic
from actors.port.port import Port
from actors.port.tap import Tap
from actors.switch.switch import Switch
from emu.base.errors import UsageError
from emu.counts.digest import run_digest
from emu.devices.lookahead import message_lookahead_ps
from emu.engine.blueprint import RunPlan
from emu.engine.in_process import InProcess
from emu.engine.live.changes import Changes
from emu.engine.outcome import Ending
from emu.engine.sync.logical_process import LogicalProcess, records_of
from emu.scenario.schema import Scenario


class Stepped:
    """A run in this process that goes on when it is told to."""

    def __init__(self, plan: RunPlan) -> None:
        self.now_ps: int = 0
        """Everything before has been executed."""
        self.ending: Ending | None = None
        """How the run ended, once it has."""
        self._plan = plan
        self._logical_processes = [_logical_process(plan, part) for part in range(plan.workers)]
        self._parts = InProcess(self._logical_processes, 1, lambda: True)
        self._devices = [device for one in self._logical_processes for device in one.partition.devices]
        self._controller = next(device for device in self._devices if isinstance(device, Controller))
        self._hears_after_ps = message_lookahead_ps(
            int(MANAGEMENT_RATE_BPS), plan.scenario.control.management_delay_ps
        )
        for one in self._logical_processes:
            one.watch = one.partition.kernel.watch([int(self._controller.number)])
            one.partition.start()

    def advance(self, until_ps: int) -> Ending | None:
        """Execute everything before `until_ps`; how the run ended, if it has.

        Raises UsageError for a time that is past.
        """
        if self.ending is not None:
            return self.ending
        if until_ps <= self.now_ps:
            raise UsageError(f"cannot advance to {until_ps} ps: the run is at {self.now_ps} ps")
        self._go_on(until_ps)
        return self.ending

    def next(self, job: str) -> tuple[int, int, int, int] | None:
        """Go on to the next operation of a job that is done, at the time at which the controller knows:
        number, start_ps, end_ps, status (0 is success). None if the run ends without one.
        """
        before = self._done(job)
        self._listen(self._hears_after_ps)
        while self._done(job) == before and self.ending is None:
            self._go_on(int(NEVER_PS))
        self._listen(int(NEVER_PS))
        return self.operations(job)[-1] if self._done(job) > before else None

    def submit(self, job: str) -> None:
        """Let the next operation of a `submitted` job begin, after those that were submitted before.

        Raises UsageError for a job that begins by itself, has no operation left, or has ended.
        """
        number = self._number(job)
        if not self._plan.scenario.jobs[number].submitted:
            raise UsageError(f"job {job} begins by itself; `submitted: true` would let it wait")
        if self.ending is not None or not self._controller.submit(number):
            raise UsageError(f"job {job} has no operation left to submit")

    def operations(self, job: str) -> list[tuple[int, int, int, int]]:
        """The operations of a job that are done: number, start_ps, end_ps, status (0 is success)."""
        number = self._number(job)
        rows = (tuple(row) for row in self._controller.operations)
        return [
            (operation, start_ps, end_ps, status)
            for of, operation, start_ps, end_ps, status in rows
            if of == number
        ]

    def tap(self, device: str, port: int, tap: Tap) -> None:
        """Show a tap what arrives at a fabric port of a switch or NIC. Raises UsageError if there is none.

        It sees frames that arrive whole; not PFC frames, nor what was lost on the way.
        """
        by_name = {node.name: node.number for node in self._plan.topology.nodes}
        found = [one for one in self._devices if one.number == by_name.get(device)]
        ports: list[Port] = []
        if found and isinstance(found[0], Switch):
            ports = list(found[0].ports)
        elif found and isinstance(found[0], Nic):
            ports = list(found[0].ports())
        if not ports:
            raise UsageError(f"there is no switch or NIC {device}")
        if not 0 <= port < len(ports):
            raise UsageError(f"{device} has no fabric port {port}; accepted: 0 to {len(ports) - 1}")
        ports[port].set_tap(tap)

    def digest(self) -> str:
        """What the devices have done so far, mixed; the run's digest once it has ended."""
        return run_digest(record for one in self._logical_processes for record in records_of(one.partition))

    def _go_on(self, until_ps: int) -> None:
        self.ending = self._parts.advance(until_ps)
        first = self._logical_processes[0]
        self.now_ps = first.machine.sync_ps if self.ending is None else first.virtual_ps

    def _listen(self, hears_after_ps: int) -> None:
        """Whether the run is to stand still when the controller has heard that an operation is done."""
        for one in self._logical_processes:
            assert one.watch is not None, one.partition.index
            one.watch.take_said_ps()
            one.machine.hears_after_ps = hears_after_ps

    def _done(self, job: str) -> int:
        return int(self._controller.jobs[self._number(job)].operation)

    def _number(self, job: str) -> int:
        names = [section.name for section in self._plan.scenario.jobs]
        if job not in names:
            raise UsageError(f"there is no job {job}; there are {', '.join(names)}")
        return names.index(job)


def _logical_process(plan: RunPlan, part: int) -> LogicalProcess:
    """Nothing is sampled: who steps the run looks for itself."""
    partition, machine = plan.partition(part), plan.machine(part)
    changes = Changes(plan, part, partition, machine, live=False)
    return LogicalProcess(partition, machine, changes.act, changes.busiest)


def check_unattended(scenario: Scenario) -> None:
    """Refuse to run by itself a scenario whose jobs wait for somebody. Raises UsageError."""
    waiting = [section for section in scenario.jobs if section.attended and section.enabled]
    if waiting:
        how = "submit its operations; step the run with emu.stepped"
        if not waiting[0].submitted:
            how = "post what it does; open the run with emu.open, or set enabled: false"
        raise UsageError(f"job {waiting[0].name} waits for a program to {how}")
