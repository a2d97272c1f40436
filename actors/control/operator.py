"""The operator: it notices that a job is in trouble, and brings it back to work.

The operator sits with the controller and knows what hosts send over the management network, no more. It tends
one job. Every host of the job, and every spare one, sends a *heartbeat* each `beat_ps`: the job that it runs
for the operator, how many bytes that job has handed to its NICs, the status of the first process that failed
(or that a GPU is gone), and how many rows of GPU memory were remapped. Two management delays after each beat
is due, the operator looks at what came, and goes by its *rules*:

    missed    a host of the job was not heard for so many beats
    failed    a process of the job failed on a host, or a GPU there is gone
    silent    the job handed no byte to any NIC for so many beats while it was in a step
    rows      a GPU has so many remapped rows: its host goes before it fails
    straggler in so many steps a host computed for longer than its peers, the others of the job, by a share:
              it goes as with `rows`, or is reported
    stalled   no NIC of a host had anything acknowledged for so long though bytes were under way: it is
    reported

What follows an alarm, one after the other:

    stop      all hosts end the job's processes: two management delays
    check     the self-check suite, on all hosts of the job and all spare ones that are not evicted, test
              after test, each until everybody has answered or for `deadline_ps`. A host whose process does
              not answer, or fails, does not pass; with `check_permille` nor does one that takes by so much
              longer than the median of the hosts in a test that each does by itself (a NIC on 4 lanes). A
              test of several hosts counts only where each of them passed those before; if it fails then, none
              of them passes
    place     each host that did not pass is evicted, and a spare one that did takes its place
    launch    `launch_ps`
    meet      the ranks meet at the store (`actors.control.store`)
    load      of the newest checkpoint, and on to the GPUs: `staged_ps`
    resume    with the step after it

A host that is *told* is a line for somebody to read: nothing is done about it. A host's pace is that of its
slowest rank, and its peers' the median; they are compared when every host has done so many steps since the
last time.

After `rows` the job goes on to the end of its step, saves, and, when that checkpoint is whole, is stopped;
the host is evicted without a suite, and nothing is done again.

A checkpoint after every `save_every` steps: the job stands still for `staged_ps` (from GPU to host memory),
and goes on while hosts write to storage. It is whole when all have reported. If the one before is still
being written, one is left out. What is being written when a job stops is written to its end, where hosts
still can, and counts if it is whole when the job is placed.

An alarm during launch, meeting or load begins again with the stop. There is an end to it when no spare host
is left, or no restart.

A process that is to run elsewhere is another program on another host. All *incarnations* of the job that
there can be were built when time began (`emu.scenario.operated_jobs`); the operator picks one.

Source: MegaScale (NSDI'24), sections 4.1 to 4.4: heartbeats with status and RDMA traffic, alerts, self-check
suite, eviction, two-stage checkpoints. Row remapping: NVIDIA's GPU memory error management; Meta's and
MegaScale's operators watch it.

Not modelled: an operator that fails, hosts that are repaired during a run, a job's warm restart on hosts that
keep their memory.
"""

from collections.abc import Collection
from typing import Final, NamedTuple, Protocol

from actors.kernel.device import Plain
from actors.kernel.state import load_fields, save_fields
from actors.wire.message import STATUS_GPU_LOST, STATUS_SUCCESS

# What the operator is at.
TRAINS: Final = 0
STAGES: Final = 1
STOPS: Final = 2
CHECKS: Final = 3
LAUNCHES: Final = 4
MEETS: Final = 5
LOADS: Final = 6
UNLOADS: Final = 7
HOLDS: Final = 8
ENDED: Final = 9

# What a row of the table `operator` tells: at_ps, one of these, a, b.
BEGUN: Final = 0
NOTICED: Final = 1
STOPPED: Final = 2
CHECKED: Final = 3
EVICTED: Final = 4
PLACED: Final = 5
LAUNCHED: Final = 6
MET: Final = 7
LOADED: Final = 8
RESUMED: Final = 9
SAVING: Final = 10
SAVED: Final = 11
LEFT_OUT: Final = 12
DONE: Final = 13
GAVE_UP: Final = 14
REPORTED: Final = 15

# Rules, and why it gave up.
MISSED: Final = 0
FAILED: Final = 1
SILENT: Final = 2
ROWS: Final = 3
STRAGGLER: Final = 4
STALLED: Final = 5
NO_SPARE: Final = 0
NO_RESTART: Final = 1

LOOK: Final = 1
"""Subject of the timer that looks at heartbeats; those of stages have 2 and above, another one each."""

_FIELDS: Final = (
    "at",
    "turn",
    "present",
    "step",
    "whole",
    "saves_step",
    "quiet",
    "handed_bytes",
    "round",
    "test",
    "due",
    "beats",
    "heard",
    "rows",
    "silent_answers",
    "failed",
    "unfit",
    "evicted",
    "paces",
    "marks",
    "stalls",
    "most",
    "reported",
    "began_ps",
    "took_ps",
)


class Incarnation(NamedTuple):
    """The job on certain hosts, after so many restarts. Of a job without checkpoints, `save` and `load` are
    -1.
    """

    restart: int
    hosts: tuple[int, ...]
    """By place in the job."""
    train: int
    """The number of the job in the controller's list, as those that follow."""
    save: int
    load: int


class Test(NamedTuple):
    """One test of the self-check suite: a job, and who answers."""

    job: int
    name: str
    host_of: dict[int, int]
    """Who answers, as a report has it, and the host where it runs."""
    groups: tuple[tuple[int, ...], ...] = ()
    """Hosts that are tested together; none: each by itself."""


class OperatorPlan(NamedTuple):
    """What the operator knows beforehand."""

    beat_ps: int
    missed: int
    silent: int
    """Beats; 0: no such rule."""
    rows: int
    """0: no such rule."""
    straggler_steps: int
    """0: no such rule."""
    straggler_permille: int
    """How much longer than its peers."""
    straggler_evicted: bool
    stalled_ps: int
    """0: no such rule."""
    sample_ps: int
    """From sample to sample of the NICs; 0: there are none."""
    save_every: int
    """Steps; 0: no checkpoints."""
    staged_ps: int
    launch_ps: int
    deadline_ps: int
    check_permille: int
    """How much longer than the median a test may take on a host; 0: until `deadline_ps`."""
    stop_ps: int
    """What processes are given to end."""
    start_ps: int
    steps: int
    restarts: int
    meets: bool
    spares: tuple[int, ...]
    racks: dict[int, int]
    """By host."""
    incarnations: tuple[Incarnation, ...]
    suites: tuple[tuple[Test, ...], ...]
    """By restart."""


def replaced(
    hosts: tuple[int, ...], evicted: Collection[int], spares: tuple[int, ...], racks: dict[int, int]
) -> tuple[int, ...] | None:
    """The hosts of a job with spare ones in the places of the evicted: in order of places, of its own rack
    where there is one, else the first. None if they are too few.
    """
    found = list(hosts)
    for place, host in enumerate(hosts):
        if host not in evicted:
            continue
        free = [one for one in spares if one not in evicted and one not in found]
        if not free:
            return None
        near = [one for one in free if racks[one] == racks[host]]
        found[place] = (near or free)[0]
    return tuple(found)


class Tending(Protocol):
    """What the operator asks of its controller."""

    def begin_owned(self, job: int, operation: int, hosts: tuple[int, ...], *, tended: bool) -> None:
        """Let an operation of a job begin; `tended` is the job that heartbeats are about from then on."""

    def meet(self, job: int, hosts: tuple[int, ...]) -> None:
        """Let the ranks of a job meet at the store."""

    def halt(self, job: int, hosts: tuple[int, ...]) -> None:
        """End the processes of a job."""

    def wake(self, time_ps: int, subject: int) -> None:
        """Call `Operator.on_timer` at a time."""

    def tended_to(self, *, done: bool) -> None:
        """The operator has nothing more to do: its job is done, or given up."""

    def every_host(self, job: int) -> tuple[int, ...]:
        """The hosts of a job."""


class Operator:
    """The operator of one job. Clock and links are the controller's."""

    def __init__(self, plan: OperatorPlan, delay_ps: int) -> None:
        self.plan = plan
        self.delay_ps: int = delay_ps
        self.at: int = TRAINS
        self.turn: int = LOOK
        """The timer of a stage that counts."""
        self.present: int = 0
        """The incarnation."""
        self.step: int = 0
        """The step that is under way, or comes next."""
        self.whole: int = 0
        """Steps that the newest whole checkpoint has."""
        self.saves_step: int = -1
        """Steps that the checkpoint has that is being written; -1: none is."""
        self.quiet: int = 0
        """Looks since the job last handed bytes to a NIC."""
        self.handed_bytes: int = 0
        self.round: int = 0
        """Suites that were begun."""
        self.test: int = 0
        self.due: int = -1
        """The host that is to go after the next checkpoint; -1: none."""
        self.beats: int = 0
        """Looks so far."""
        self.tests: dict[int, int] = {}
        """By job: the place of a test in its suite."""
        for suite in plan.suites:
            for place, test in enumerate(suite):
                self.tests[test.job] = place
        self.trains: dict[int, int] = {one.train: at for at, one in enumerate(plan.incarnations)}
        self.saves: dict[int, int] = {
            one.save: at for at, one in enumerate(plan.incarnations) if one.save >= 0
        }
        self.loads: dict[int, int] = {
            one.load: at for at, one in enumerate(plan.incarnations) if one.load >= 0
        }
        hosts = [*plan.incarnations[0].hosts, *plan.spares]
        self.heard: dict[int, list[int]] = {host: [0, -1, 0, 0, 0] for host in hosts}
        """By host, the last heartbeat: number of looks before it, job, bytes, status, rows."""
        self.paces: dict[int, list[int]] = {host: [0, 0] for host in hosts}
        """By host: steps that its slowest rank has done, and how long it has computed in them."""
        self.marks: dict[int, list[int]] = {host: [0, 0] for host in hosts}
        """The same when all had done so many steps the last time."""
        self.stalls: dict[int, int] = dict.fromkeys(hosts, 0)
        """By host, the longest stall of which the last heartbeat told."""
        self.most: dict[int, list[int]] = {host: [0, 0] for host in hosts}
        """By host, over all heartbeats: the most bytes in a sample, and the longest stall."""
        self.reported: list[int] = []
        """Hosts of which a rule has told, as rule x 2^32 + host."""
        self.silent_answers: list[int] = []
        """Who has not answered the present test."""
        self.failed: list[int] = []
        """Hosts where a process of the present test failed."""
        self.unfit: list[int] = []
        """Hosts that did not pass the present suite."""
        self.began_ps: int = 0
        """When the present test began."""
        self.took_ps: dict[int, int] = {}
        """By host, how long the present test has taken there, until its last answer."""
        self.evicted: list[int] = []
        self.rows: list[list[int]] = []

    def owns(self, job: int) -> bool:
        """Whether a job is the operator's to begin."""
        return job in self.trains or job in self.saves or job in self.loads or job in self.tests

    def tended(self) -> int:
        """The job that it tends, as its number in the scenario."""
        return self.plan.incarnations[0].train

    def start(self, tending: Tending) -> None:
        """The first look: the job begins by itself, at its start."""
        self._note(self.plan.start_ps, BEGUN, 0, 0)
        tending.wake(self.plan.beat_ps + 2 * self.delay_ps, LOOK)

    def _note(self, now: int, what: int, a: int, b: int) -> None:
        self.rows.append([now, what, a, b])

    def _incarnation(self) -> Incarnation:
        return self.plan.incarnations[self.present]

    # ---- heartbeats

    def on_heartbeat(self, host: int, job: int, handed_bytes: int, status: int, rows: int) -> None:
        """A heartbeat came."""
        self.heard[host] = [self.beats, job, handed_bytes, status, rows]

    def on_health(self, host: int, computed_ps: int, steps: int, busiest_bytes: int, stall_ps: int) -> None:
        """What follows a heartbeat came."""
        self.paces[host] = [steps, computed_ps]
        self.stalls[host] = stall_ps
        most = self.most[host]
        self.most[host] = [max(most[0], busiest_bytes), max(most[1], stall_ps)]

    def knows(self, host: int) -> bool:
        """Whether a host's heartbeats are for this operator."""
        return host in self.heard

    def on_timer(self, tending: Tending, subject: int, now: int) -> bool:
        """A look at the heartbeats, or a stage is over; whether it had an effect."""
        if self.at == ENDED:
            return False
        if subject == LOOK:
            self.beats += 1
            self._look(tending, now)
            if self.at != ENDED:
                tending.wake(now + self.plan.beat_ps, LOOK)
            return True
        if subject != self.turn:
            return False
        if self.at == STAGES and self.due >= 0 and self.saves_step == self.step:
            self.at = HOLDS
        elif self.at == STAGES:
            self._next_step(tending, now)
        elif self.at == STOPS:
            self._stopped(tending, now)
        elif self.at == CHECKS:
            self._tested(tending, now)
        elif self.at == LAUNCHES:
            self._launched(tending, now)
        elif self.at == UNLOADS:
            self._resume(tending, now)
        return True

    def _stage(self, tending: Tending, at: int, time_ps: int) -> None:
        """Be at something else, to the given time."""
        self.at = at
        self.turn += 1
        tending.wake(time_ps, self.turn)

    def _look(self, tending: Tending, now: int) -> None:
        if self.at == STOPS or self.at == CHECKS or now < self.plan.start_ps:
            return
        one = self._incarnation()
        handed_bytes = 0
        for host in one.hosts:
            beat, job, host_bytes, status, rows = self.heard[host]
            if self.beats - 1 - beat >= self.plan.missed:
                self._alarm(tending, MISSED, host, now)
                return
            if status != STATUS_SUCCESS and (job == one.train or status == STATUS_GPU_LOST):
                self._alarm(tending, FAILED, host, now)
                return
            if job != one.train:
                continue
            if self.plan.rows > 0 and rows >= self.plan.rows and self.due < 0 and self.plan.save_every > 0:
                self.due = host
                self._note(now, NOTICED, ROWS, host)
            handed_bytes += host_bytes
        if all(self.heard[host][1] == one.train for host in one.hosts):
            self._judge_health(one, now)
        if self.at != TRAINS or handed_bytes != self.handed_bytes:
            self.quiet = 0
        else:
            self.quiet += 1
        self.handed_bytes = handed_bytes
        if self.plan.silent > 0 and self.quiet >= self.plan.silent:
            self._alarm(tending, SILENT, -1, now)

    def _judge_health(self, one: Incarnation, now: int) -> None:
        """Look for a host whose NICs stalled, and for one that computes for longer than its peers."""
        plan = self.plan
        for host in one.hosts if plan.stalled_ps > 0 else ():
            if self.stalls[host] >= plan.stalled_ps:
                self._tell(STALLED, host, now)
        steps = plan.straggler_steps
        if steps == 0 or any(self.paces[host][0] - self.marks[host][0] < steps for host in one.hosts):
            return
        taken = {}
        for host in one.hosts:
            done, computed_ps = self.paces[host]
            taken[host] = (computed_ps - self.marks[host][1]) // (done - self.marks[host][0])
            self.marks[host] = [done, computed_ps]
        slowest = max(one.hosts, key=lambda host: taken[host])
        peers = sorted(taken[host] for host in one.hosts if host != slowest)
        if not peers or taken[slowest] * 1000 < peers[len(peers) // 2] * (1000 + plan.straggler_permille):
            return
        if not plan.straggler_evicted:
            self._tell(STRAGGLER, slowest, now)
        elif self.due < 0:
            self.due = slowest
            self._note(now, NOTICED, STRAGGLER, slowest)

    def _tell(self, rule: int, host: int, now: int) -> None:
        """Tell of a host, once for each rule."""
        if (rule << 32 | host) not in self.reported:
            self.reported.append(rule << 32 | host)
            self._note(now, REPORTED, rule, host)

    def health_rows(self) -> list[list[int]]:
        """Host, the most bytes that its NICs had acknowledged in a sample, and their longest stall."""
        return [[host, *most] for host, most in self.most.items()] if self.plan.sample_ps > 0 else []

    def _alarm(self, tending: Tending, rule: int, host: int, now: int) -> None:
        self._note(now, NOTICED, rule, host)
        self.due = -1
        self._stop(tending, now)

    def _stop(self, tending: Tending, now: int) -> None:
        one = self._incarnation()
        tending.halt(one.train, one.hosts)
        self._stage(tending, STOPS, now + self.plan.stop_ps)

    # ---- steps and checkpoints

    def on_step(self, tending: Tending, job: int, now: int) -> None:
        """All ranks of an incarnation have done the step under way."""
        one = self._incarnation()
        if job != one.train or self.at != TRAINS:
            return
        self.step += 1
        if self.step == self.plan.steps:
            self._note(now, DONE, self.step, 0)
            self._end(tending, done=True)
            return
        every: int = self.plan.save_every
        wanted: bool = self.due >= 0 or (every > 0 and self.step % every == 0)
        if not wanted:
            self._next_step(tending, now)
        elif self.saves_step >= 0:
            self._note(now, LEFT_OUT, self.step, 0)
            self._next_step(tending, now)
        else:
            self._note(now, SAVING, self.step, 0)
            self.saves_step = self.step
            tending.begin_owned(one.save, 0, one.hosts, tended=False)
            self._stage(tending, STAGES, now + self.plan.staged_ps)

    def _next_step(self, tending: Tending, now: int) -> None:
        one = self._incarnation()
        self.at = TRAINS
        self.quiet = 0
        tending.begin_owned(one.train, self.step, one.hosts, tended=True)

    def on_saved(self, tending: Tending, job: int, failed: bool, now: int) -> None:
        """The hosts of an incarnation have written a checkpoint, or could not."""
        if self.saves[job] != self.present or self.saves_step < 0:
            return
        step: int = self.saves_step
        self.saves_step = -1
        if not failed:
            self.whole = step
            self._note(now, SAVED, step, 0)
        if self.at == HOLDS and failed:
            self._next_step(tending, now)
        elif self.at == HOLDS:
            self.unfit = [self.due]
            self._stop(tending, now)

    # ---- after an alarm

    def _stopped(self, tending: Tending, now: int) -> None:
        self._note(now, STOPPED, self.step, 0)
        if self.due >= 0:
            self.due = -1
            self._place(tending, now)
            return
        self.unfit = []
        if self._incarnation().restart == self.plan.restarts:
            self._give_up(tending, NO_RESTART, now)
            return
        self.test = 0
        self.round += 1
        self._begin_test(tending, now)

    def _suite(self) -> tuple[Test, ...]:
        return self.plan.suites[self._incarnation().restart]

    def _begin_test(self, tending: Tending, now: int) -> None:
        suite = self._suite()
        if self.test == len(suite):
            self._place(tending, now)
            return
        test = suite[self.test]
        self.silent_answers = list(test.host_of)
        self.failed = []
        self.began_ps = now
        self.took_ps = {}
        hosts = tuple([host for host in tending.every_host(test.job) if host not in self.evicted])
        tending.begin_owned(test.job, 0, hosts, tended=False)
        self._stage(tending, CHECKS, now + self.plan.deadline_ps)

    def on_answer(self, tending: Tending, job: int, who: int, passed: bool, now: int) -> None:
        """A process of a test has ended."""
        if self.at != CHECKS or self._suite()[self.test].job != job or who not in self.silent_answers:
            return
        self.silent_answers.remove(who)
        test = self._suite()[self.test]
        self.took_ps[test.host_of[who]] = now - self.began_ps - 2 * self.delay_ps
        if not passed:
            self.failed.append(test.host_of[who])
        if all(test.host_of[one] in self.evicted for one in self.silent_answers):
            self._tested(tending, now)

    def _tested(self, tending: Tending, now: int) -> None:
        """Everybody has answered, or the time is up."""
        test = self._suite()[self.test]
        named = [*self.failed, *(test.host_of[one] for one in self.silent_answers)]
        failed = [host for host in dict.fromkeys(named) if host not in self.evicted]
        failed += [host for host in self._slow(test) if host not in failed]
        for group in test.groups:
            gone = [host for host in group if self.heard[host][3] == STATUS_GPU_LOST]
            if any(host in self.unfit or host in self.evicted for host in group):
                failed = [host for host in failed if host not in group]
            elif gone:
                failed = [host for host in failed if host not in group or host in gone]
        self._note(now, CHECKED, self.test, len(failed))
        if named:
            tending.halt(test.job, tending.every_host(test.job))
        self.unfit += [host for host in failed if host not in self.unfit]
        self.test += 1
        self._begin_test(tending, now)

    def _slow(self, test: Test) -> list[int]:
        """Hosts on which a test that each does by itself took much longer than on most."""
        if not self.plan.check_permille or test.groups or not self.took_ps:
            return []
        times = sorted(self.took_ps.values())
        most_ps = times[(len(times) - 1) // 2] * (1000 + self.plan.check_permille) // 1000
        return [host for host, took_ps in self.took_ps.items() if took_ps > most_ps]

    def _place(self, tending: Tending, now: int) -> None:
        """Evict, put spare hosts in place, and find the incarnation that runs so."""
        one = self._incarnation()
        if one.restart == self.plan.restarts:
            self._give_up(tending, NO_RESTART, now)
            return
        for host in sorted(self.unfit):
            self.evicted.append(host)
            self._note(now, EVICTED, host, 1 if host in one.hosts else 0)
        self.unfit = []
        hosts = replaced(one.hosts, self.evicted, self.plan.spares, self.plan.racks)
        if hosts is None:
            self._give_up(tending, NO_SPARE, now)
            return
        for before, after in zip(one.hosts, hosts, strict=True):
            if before != after:
                self._note(now, PLACED, after, before)
        places = [(each.restart, each.hosts) for each in self.plan.incarnations]
        self.present = places.index((one.restart + 1, hosts))
        self.saves_step = -1
        self._stage(tending, LAUNCHES, now + self.plan.launch_ps)

    def _launched(self, tending: Tending, now: int) -> None:
        self._note(now, LAUNCHED, 0, 0)
        one = self._incarnation()
        if self.plan.meets:
            self.at = MEETS
            tending.meet(one.train, one.hosts)
        else:
            self._load(tending, now)

    def on_met(self, tending: Tending, job: int, now: int) -> None:
        """The ranks of a job have met."""
        if self.at == MEETS and job == self._incarnation().train:
            self._note(now, MET, 0, 0)
            self._load(tending, now)

    def _load(self, tending: Tending, now: int) -> None:
        self.step = self.whole
        one = self._incarnation()
        if self.whole == 0:
            self._resume(tending, now)
            return
        self.at = LOADS
        tending.begin_owned(one.load, 0, tending.every_host(one.load), tended=False)

    def on_loaded(self, tending: Tending, job: int, now: int) -> None:
        """The hosts have a checkpoint in their memory; it goes on to the GPUs."""
        if self.at == LOADS and job == self._incarnation().load:
            self._note(now, LOADED, self.whole, 0)
            self._stage(tending, UNLOADS, now + self.plan.staged_ps)

    def _resume(self, tending: Tending, now: int) -> None:
        self._note(now, RESUMED, self.step, 0)
        self.handed_bytes = 0
        for host in self.paces:
            self.paces[host] = [0, 0]
            self.marks[host] = [0, 0]
            self.stalls[host] = 0
        self._next_step(tending, now)

    def _give_up(self, tending: Tending, why: int, now: int) -> None:
        self._note(now, GAVE_UP, why, 0)
        self._end(tending, done=False)

    def _end(self, tending: Tending, *, done: bool) -> None:
        self.at = ENDED
        tending.tended_to(done=done)

    # ---- snapshots

    def save(self) -> list[Plain]:
        """The operator's state."""
        return save_fields(self, _FIELDS)

    def load(self, state: Plain) -> None:
        """Take the state that `save` returned."""
        load_fields(self, _FIELDS, state)
