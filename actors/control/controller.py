"""The controller: it takes jobs from operation to operation, and ends the run.

The controller is a device like any other: it knows what arrived over the management network and nothing
else. A job's first operation begins at the job's start by itself, since every host knows the scenario. When
everybody who takes part has reported, the controller writes the operation's row (begun by the first, ended
by the last) and sends BEGIN for the next one to every host of the job: a barrier of two management delays,
in which idle virtual time costs nothing. The operations of a job that is `submitted` wait until a program
that steps the run asks for them. A report that is not a success ends the job; its remaining
operations are not begun.

A job that goes on without ranks that it loses (`jobs[].recover`) is led to its next membership: after the
first failure the controller asks who is at work, waits until everybody has reported, or for a quorum's time,
and takes as lost who said so, who neither reported nor answered, or else the one rank that most others failed
to reach. Where ranks are through and others are not heard of for so long, it asks, too. Whoever is left
begins the operation again, with spare ranks in the places of the lost where there are any. A rank whose host
is back may join again when the next operation begins. Where others join, all meet at the store first.

A job that repeats (`run.repeat`) begins again with its first operation after its last, in the same way; its
rows count on, so that operation n is what n modulo their number was.

When the last job has ended at time t, the run stops at t + management delay: everything before that moment
is executed everywhere, nothing at or after it. One management delay is what it takes to tell everybody, so
no worker can have gone past it.

With `routing.kind: traffic_engineering` the switches are on the management network too, and the controller
hosts the engineer (`actors.control.traffic_engineering`), which a timer wakes every interval. Where ranks
meet at a store before their first operation (`ncclx.init`), the controller hosts the store
(`actors.control.store`). An operator (`actors.control.operator`) decides which operation of its own jobs
begins when; the run then ends when it is done, and all other jobs are.

Not modelled: a controller that fails, clock skew between hosts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mypy_extensions import i64

from actors.control.operator import Operator
from actors.control.store import Store
from actors.control.traffic_engineering import TrafficEngineer
from actors.host.host import MANAGEMENT_RATE_BPS
from actors.kernel.block import Outbox
from actors.kernel.counters import TE_INSTALLS, TE_ROUNDS, TE_UNPLACED_DEMANDS
from actors.kernel.device import Device, Plain, Series, Tally
from actors.kernel.event import COLLECTION, JOB, NEVER_PS, Message
from actors.kernel.queue import EventQueue
from actors.kernel.state import as_int, as_list, load_fields, save_fields
from actors.ncclx.operations import JobOutline
from actors.port.link import MANAGEMENT_PORT, MessagePort
from actors.wire.message import (
    BEGIN,
    BLAME_BITS,
    HALT,
    HEALTH,
    HEARTBEAT,
    MEMBERSHIP_BITS,
    ONLY_ANSWER,
    ONLY_MEET,
    PRESENT_OPERATION,
    REPORT,
    STATUS_ALIVE,
    STATUS_GPU_LOST,
    STATUS_HOST_LOST,
    STATUS_SUCCESS,
    STATUS_TIMED_OUT,
    STORE_ANSWER,
    STORE_ASK,
)

OPERATOR: Final[i64] = 1
"""Port of the operator's timers; those of the store have 0."""
MOST_ROWS: Final = 4096
"""Rows of operations that are kept before rounds that are long over are forgotten."""
_FIELDS: Final = (
    "operation",
    "reported",
    "start_ps",
    "end_ps",
    "status",
    "ended",
    "allowed",
    "idle",
    "membership",
    "others",
    "due_ps",
    "asks",
    "came",
    "lost",
    "back",
    "votes",
    "used",
    "answered",
)
_QUORUM: Final[i64] = 2
"""The port of the timer that ends a job's wait for reports."""
_ANSWER_PS: Final[i64] = 10_000_000
"""What an answer may take beside the delays of the management network: its messages, and those before it."""


class JobProgress:
    """Where a job is: its present operation, and what has been reported about it."""

    def __init__(self, outline: JobOutline) -> None:
        self.outline = outline
        self.operation: i64 = 0
        self.reported: i64 = 0
        self.start_ps: i64 = NEVER_PS
        self.end_ps: i64 = 0
        self.status: i64 = STATUS_SUCCESS
        self.ended: bool = not outline.enabled
        self.allowed: i64 = 0 if outline.submitted else outline.operations
        """How many of its operations may begin."""
        self.idle: bool = outline.submitted
        """Whether its present operation has not begun."""
        self.membership: i64 = 0
        """Who takes part: 1 where it goes on without the ranks that it may spare; else a place in
        `memberships`."""
        self.others: i64 = 0
        """Reports of the present operation that came from ranks which it cannot spare."""
        ranks: int = 1 + max([max(group) for group in outline.memberships], default=-1)
        self.came: list[int] = [0] * ranks
        """By rank, whether it has reported on the present operation."""
        self.lost: list[int] = [0] * ranks
        """Whether it said that it lost its GPU or its host, or did not answer."""
        self.back: list[int] = [0] * ranks
        """Whether its host is back since."""
        self.votes: list[int] = [0] * ranks
        """How many others say that a connection with it failed, of the present operation."""
        self.used: list[int] = [0] * len(outline.memberships)
        """By membership, whether it was the present one: its connections serve once."""
        self.due_ps: i64 = -1
        """Until when it waits for reports after the first; -1 if it does not."""
        self.asks: bool = False
        """Whether it has asked who is at work on the present operation."""
        self.answered: list[int] = [0] * ranks
        """By rank, whether it said so."""

    def within(self) -> i64:
        """The number by which hosts know its present operation."""
        period: i64 = self.outline.period
        return self.operation if period == 0 else self.operation % period


class Controller(Device):
    """The control plane's device. `hosts` are its ends of the management network, by the host's number."""

    def __init__(
        self,
        number: int,
        queue: EventQueue,
        hosts: dict[int, MessagePort],
        outlines: list[JobOutline],
        management_delay_ps: int,
    ) -> None:
        super().__init__(number, queue)
        self.hosts: dict[int, MessagePort] = hosts
        self.jobs: list[JobProgress] = [JobProgress(outline) for outline in outlines]
        self.management_delay_ps: i64 = management_delay_ps
        self.open_jobs: i64 = sum([1 for outline in outlines if outline.enabled])
        self.operations: list[list[int]] = []
        """Rows of operations that have ended: job, operation, start_ps, end_ps, status. Of jobs that begin
        again and again the last rounds only, once there are many."""
        self.engineer: TrafficEngineer | None = None
        """Who places flows, if routing is engineered."""
        self.store: Store | None = None
        """Where ranks meet before their first operation, if that takes time."""
        self.operator: Operator | None = None
        """Who tends a job, if one is tended."""

    def employ(self, operator: Operator) -> None:
        """Let an operator tend its jobs."""
        self.operator = operator
        for job in self.jobs:
            if operator.owns(int(job.outline.job)):
                self.open_jobs -= 1
                job.allowed = 0
        self.open_jobs += 1

    def start(self) -> None:
        self._wake_engineer()
        operator = self.operator
        if operator is not None:
            operator.start(self)

    def on_timer(self, kind: i64, port: i64, subject: i64) -> bool:
        if kind == JOB and port == OPERATOR:
            operator = self.operator
            assert operator is not None, subject
            self.progress += 1
            return operator.on_timer(self, int(subject), int(self.queue.now_ps))
        if kind == JOB:
            if port == _QUORUM:
                return self._quorum_over(self.jobs[subject])
            self._served(subject - 1)
            return True
        engineer = self.engineer
        assert kind == COLLECTION and engineer is not None, kind
        asked: bool = engineer.tick(self.queue.now_ps)
        self._wake_engineer()
        return asked

    def _wake_engineer(self) -> None:
        engineer = self.engineer
        if engineer is not None:
            self.push_timer(self.queue.now_ps + engineer.interval_ps, COLLECTION, 0, 0)

    def admits(self, message: Message, port: i64, subject: i64) -> bool:
        if message.op == STORE_ASK:
            store = self.store
            return store is not None and store.admits(message.a, message.b)
        if message.op == HEARTBEAT or message.op == HEALTH:
            operator = self.operator
            return operator is not None and operator.knows(message.a)
        if message.op != REPORT:
            engineer = self.engineer
            return engineer is not None and engineer.admits(message, subject)
        return 0 <= message.a < len(self.jobs)

    def on_message(self, message: Message, port: i64, subject: i64) -> None:
        if message.op == STORE_ASK:
            store = self.store
            assert store is not None, (port, subject)
            lane: i64 = store.ask(message.a, message.b, message.c)
            if lane >= 0:
                self.push_timer(self.queue.now_ps + store.request_ps, JOB, 0, lane + 1)
            return
        if message.op == HEARTBEAT:
            tender = self.operator
            assert tender is not None, (port, subject)
            tender.on_heartbeat(message.a, message.b, message.c, message.d, message.e)
            return
        if message.op == HEALTH:
            tender = self.operator
            assert tender is not None, (port, subject)
            tender.on_health(message.a, message.b, message.c, message.d, message.e)
            return
        if message.op != REPORT:
            engineer = self.engineer
            assert engineer is not None, (port, subject, message.op)
            engineer.on_message(message, subject, self.queue.now_ps)
            return
        job = self.jobs[message.a]
        if job.ended:  # a rank that failed later than the first, or one that was given up
            return
        operator = self.operator
        if operator is not None and operator.owns(message.a):
            self._report_owned(operator, job, message)
            return
        if job.outline.quorum_ps > 0:
            self._hear(job, message)
        else:
            self._report(job, message)

    def _report(self, job: JobProgress, message: Message) -> None:
        """A rank reports on the present operation."""
        if job.outline.spared and self._spared(job, message):
            return
        known: bool = message.b == job.within() or message.b == PRESENT_OPERATION
        assert known, (message.a, message.b, job.operation)
        job.reported += 1
        if message.d < job.start_ps:
            job.start_ps = message.d
        if message.e > job.end_ps:
            job.end_ps = message.e
        if job.status == STATUS_SUCCESS:
            job.status = message.f
        failed: bool = job.status != STATUS_SUCCESS
        if job.outline.spared and job.membership == 0:
            spared: i64 = len(job.outline.spared)
            if failed and job.others == job.outline.reports - spared:
                self._shrink(job)
                return
            failed = False
        given_up: bool = job.outline.listed and failed
        if job.reported == job.outline.reports or given_up:
            self._operation_over(job)

    def _report_owned(self, operator: Operator, job: JobProgress, message: Message) -> None:
        """A report of a job that the operator tends: rows are the first incarnation's, whichever runs. A rank
        that failed does not tell: its host's heartbeat does.
        """
        number = int(job.outline.job)
        now = int(self.queue.now_ps)
        failed: bool = message.f != STATUS_SUCCESS
        if number in operator.tests:
            operator.on_answer(self, number, message.c, not failed, now)
            return
        trains: bool = number in operator.trains
        if trains and (failed or message.b != job.operation):
            return
        job.reported += 1
        if failed:
            job.status = message.f
        if message.d < job.start_ps:
            job.start_ps = message.d
        if message.e > job.end_ps:
            job.end_ps = message.e
        if job.reported < job.outline.reports:
            return
        if trains:
            tended = self.jobs[operator.tended()]
            row = [int(tended.outline.job), job.operation, job.start_ps, job.end_ps, STATUS_SUCCESS]
            self.operations.append(row)
            tended.operation = job.operation + 1
        lost: bool = job.status != STATUS_SUCCESS
        job.reported = 0
        job.status = STATUS_SUCCESS
        job.start_ps = NEVER_PS
        job.end_ps = 0
        if trains:
            operator.on_step(self, number, now)
        elif number in operator.saves:
            operator.on_saved(self, number, lost, now)
        else:
            operator.on_loaded(self, number, now)

    # ---- what the operator asks for

    def begin_owned(self, job: int, operation: int, hosts: tuple[int, ...], *, tended: bool) -> None:
        """Let an operation of a job begin; `tended` is the job that heartbeats are about from then on."""
        self.jobs[job].operation = operation
        for host in hosts:
            begin = Message(BEGIN, job, operation, 0, 1 if tended else 0, 0, 0)
            self.hosts[host].send(begin, self.queue.now_ps)

    def meet(self, job: int, hosts: tuple[int, ...]) -> None:
        """Let the ranks of a job meet at the store."""
        for host in hosts:
            self.hosts[host].send(Message(BEGIN, job, ONLY_MEET, 0, 0, 0, 0), self.queue.now_ps)

    def halt(self, job: int, hosts: tuple[int, ...]) -> None:
        """End the processes of a job."""
        for host in hosts:
            self.hosts[host].send(Message(HALT, job, 0, 0, 0, 0, 0), self.queue.now_ps)

    def wake(self, time_ps: int, subject: int) -> None:
        """Call the operator's `on_timer` at a time."""
        self.push_timer(time_ps, JOB, OPERATOR, subject)

    def tended_to(self, *, done: bool) -> None:
        """The operator has nothing more to do: its job is done, or given up."""
        operator = self.operator
        assert operator is not None
        tended = self.jobs[operator.tended()]
        tended.ended = True
        if not done:
            tended.status = STATUS_TIMED_OUT
        self._job_over()

    def every_host(self, job: int) -> tuple[int, ...]:
        """The hosts of a job."""
        return self.jobs[job].outline.hosts

    def _spared(self, job: JobProgress, message: Message) -> bool:
        """Whether a report no longer counts; otherwise whose it is has been noted."""
        if message.c not in job.outline.spared:
            job.others += 1
            return False
        return job.membership > 0

    def _shrink(self, job: JobProgress) -> None:
        """All that are left have ended the operation or given it up: they do it again without the others."""
        job.membership = 1
        job.status = STATUS_SUCCESS
        job.reported = len(job.outline.spared)
        job.others = 0
        job.end_ps = 0
        self._begin(job)

    # ---- jobs that go on without whom they lose

    def _hear(self, job: JobProgress, message: Message) -> None:
        """A rank of such a job reports on an operation, or that its host is back."""
        rank: i64 = message.c
        status: i64 = message.f & ((1 << BLAME_BITS) - 1)
        present: bool = message.f >> MEMBERSHIP_BITS == job.membership
        if status == STATUS_ALIVE:
            job.answered[rank] = 1 if present else 0
            return
        if status == STATUS_HOST_LOST:
            job.back[rank] = 1
        gone: bool = status == STATUS_HOST_LOST or status == STATUS_GPU_LOST
        if rank not in job.outline.memberships[job.membership]:
            if gone:
                job.lost[rank] = 1  # it takes nobody's place, and comes back when its host does
            return
        if message.b != PRESENT_OPERATION and not present:
            return  # of what has been begun again meanwhile
        if gone:
            job.lost[rank] = 1
        elif status != STATUS_SUCCESS:
            blamed: i64 = (message.f >> BLAME_BITS) & ((1 << (MEMBERSHIP_BITS - BLAME_BITS)) - 1)
            if blamed > 0:
                job.votes[blamed - 1] += 1
        first: bool = job.due_ps < 0
        if job.status == STATUS_SUCCESS:
            job.status = status
            first = first or status != STATUS_SUCCESS
        self._note_report(job, message)
        if job.reported == len(job.outline.memberships[job.membership]):
            if job.status == STATUS_SUCCESS:
                self._operation_over(job)
            else:
                self._replace(job)
        elif first and not gone and not job.asks:  # of one that is gone it knows; others have yet to notice
            self._await_reports(job)

    def _note_report(self, job: JobProgress, message: Message) -> None:
        """A rank has reported; one that failed before has reported once."""
        if job.came[message.c] == 0:
            job.came[message.c] = 1
            job.reported += 1
            if message.b != PRESENT_OPERATION and message.d < job.start_ps:
                job.start_ps = message.d
            if message.e > job.end_ps:
                job.end_ps = message.e

    def _await_reports(self, job: JobProgress) -> None:
        """The first report, or the first failure: wait for the others. Who is at work is asked before the
        wait after a failure is over, where that leaves time for answers; after another report when it is
        over, by which time whoever hangs has given up.
        """
        wait_ps: i64 = job.outline.patience_ps
        if job.status != STATUS_SUCCESS:
            wait_ps = job.outline.quorum_ps
            job.asks = wait_ps <= self._answers_ps()
            if not job.asks:
                wait_ps -= self._answers_ps()
        self._wait(job, wait_ps)

    def _answers_ps(self) -> i64:
        """How long answers take."""
        return 2 * self.management_delay_ps + _ANSWER_PS

    def _wait(self, job: JobProgress, wait_ps: i64) -> None:
        job.due_ps = self.queue.now_ps + wait_ps
        self.push_timer(job.due_ps, JOB, _QUORUM, job.outline.job)

    def _ask(self, job: JobProgress, wait_ps: i64) -> None:
        """Ask who is at work, and wait for answers and reports."""
        job.asks = True
        job.answered = [0] * len(job.answered)
        for host in job.outline.hosts:
            ask = Message(BEGIN, job.outline.job, ONLY_ANSWER, 0, 0, 0, 0)
            self.hosts[host].send(ask, self.queue.now_ps)
        self._wait(job, wait_ps)

    def _quorum_over(self, job: JobProgress) -> bool:
        """The wait for reports is over, if it still went on: who neither reported nor answered is lost. Those
        who answered are asked again, while nobody is known to be lost.
        """
        if job.due_ps != self.queue.now_ps or job.ended:
            return False
        if not job.asks:
            self._ask(job, self._answers_ps())
            return True
        lost: bool = False
        for rank in job.outline.memberships[job.membership]:
            if job.came[rank] == 0 and job.answered[rank] == 0:
                job.lost[rank] = 1
            if job.lost[rank] == 1:
                lost = True
        if not lost:
            self._ask(job, max(self._answers_ps(), job.outline.quorum_ps))
            return True
        if job.status == STATUS_SUCCESS:
            job.status = STATUS_TIMED_OUT
        self._replace(job)
        return True

    def _replace(self, job: JobProgress) -> None:
        """Go on with the first membership, which are in the order of their sizes, that has nobody who is
        lost; where nobody is known to be, without the one rank that most name as not reached.
        """
        members = job.outline.memberships[job.membership]
        lost: list[int] = [rank for rank in members if job.lost[rank] == 1]
        if not lost:
            most: int = max(job.votes)
            if most > 0 and job.votes.count(most) == 1:
                lost = [job.votes.index(most)]
                job.lost[lost[0]] = 1
        for number, group in enumerate(job.outline.memberships):
            if job.used[number] == 1 or number == job.membership or not lost:
                continue
            fits: bool = True
            joins: bool = False
            for rank in group:
                if job.lost[rank] == 1:
                    fits = False
                if rank not in members:
                    joins = True
            if fits:
                self._go_on_with(job, number, joins)
                return
        self._operation_over(job)

    def _go_on_with(self, job: JobProgress, membership: i64, meets: bool) -> None:
        """Begin the present operation with another membership, after a meeting if others join."""
        job.used[job.membership] = 1
        job.membership = membership
        job.status = STATUS_SUCCESS
        job.end_ps = 0
        self._forget_reports(job)
        store = self.store
        if meets and store is not None:
            store.meet_again(job.outline.job, job.outline.memberships[membership])
        self._begin(job, meets and store is not None)

    def _forget_reports(self, job: JobProgress) -> None:
        job.reported = 0
        job.due_ps = -1
        job.asks = False
        job.came = [0] * len(job.came)
        job.votes = [0] * len(job.votes)

    def _joined(self, job: JobProgress) -> bool:
        """Whether ranks that came back join the operation that begins now, and it was begun with them."""
        if not job.outline.rejoins or job.membership == 0:
            return False
        whole = job.outline.memberships[0]
        if job.outline.memberships[job.membership] == whole:
            return False
        for rank in whole:
            if job.lost[rank] == 1 and job.back[rank] == 0:
                return False
        for number, group in enumerate(job.outline.memberships):
            if group == whole and job.used[number] == 0:
                for rank in whole:
                    job.lost[rank] = 0
                    job.back[rank] = 0
                self._go_on_with(job, number, meets=True)
                return True
        return False

    def _served(self, lane: i64) -> None:
        """A lane of the store is done: it takes the next; if that ends a round, all hosts are answered."""
        store = self.store
        assert store is not None, lane
        now: i64 = self.queue.now_ps
        self.progress += 1
        meeting = store.served(lane)
        if store.serving[lane] >= 0:
            self.push_timer(now + store.request_ps, JOB, 0, lane + 1)
        if meeting is None:
            return
        for host in self.jobs[meeting.job].outline.hosts:
            answer = Message(STORE_ANSWER, meeting.job, 0, 0, 0, 0, 0)
            self.hosts[host].send(answer, now)
            if meeting.round == meeting.rounds and answer.time_ps > meeting.end_ps:
                meeting.end_ps = answer.time_ps
        operator = self.operator
        if operator is not None and meeting.round == meeting.rounds:
            operator.on_met(self, int(meeting.job), int(now))

    def _operation_over(self, job: JobProgress) -> None:
        outline = job.outline
        if outline.listed:
            self.operations.append([outline.job, job.operation, job.start_ps, job.end_ps, job.status])
            if outline.period and len(self.operations) > MOST_ROWS:
                self._forget()
        job.operation += 1
        watch = self.queue.watch
        if watch is not None:
            watch.said_ps = self.queue.now_ps
        if job.status != STATUS_SUCCESS or job.operation == outline.operations:
            job.ended = True
            self._job_over()
            return
        job.reported = 0
        if job.outline.quorum_ps > 0:
            self._forget_reports(job)
        elif job.membership > 0:
            job.reported = len(job.outline.spared)
        job.others = 0
        job.start_ps = NEVER_PS
        job.end_ps = 0
        if job.operation < job.allowed:
            if not self._joined(job):
                self._begin(job)
        else:
            job.idle = True

    def _job_over(self) -> None:
        """A job has ended; with the last one the run does."""
        self.open_jobs -= 1
        if self.open_jobs == 0:
            self.queue.stop_ps = self.queue.now_ps + self.management_delay_ps

    def _forget(self) -> None:
        """Drop the rows of all rounds of repeated jobs but each one's last two, and the present one."""
        kept: list[list[int]] = []
        for row in self.operations:
            job = self.jobs[row[0]]
            period: i64 = job.outline.period
            if period == 0 or row[1] >= (job.operation // period - 2) * period:
                kept.append(row)
        self.operations = kept

    def submit(self, number: int) -> bool:
        """Let a job's next operation begin: now, or after those that were submitted before. False if it has
        no more.
        """
        job = self.jobs[number]
        if job.ended or job.allowed == job.outline.operations:
            return False
        job.allowed += 1
        if job.idle:
            self._begin(job)
        return True

    def _begin(self, job: JobProgress, meets: bool = False) -> None:
        job.idle = False
        for host in job.outline.hosts:
            begin = Message(BEGIN, job.outline.job, job.within(), job.membership, 0, 1 if meets else 0, 0)
            self.hosts[host].send(begin, self.queue.now_ps)

    def series(self) -> list[Series]:
        if self.engineer is None:
            return []
        return [Series(TE_ROUNDS), Series(TE_INSTALLS), Series(TE_UNPLACED_DEMANDS)]

    def count(self, into: Tally) -> None:
        engineer = self.engineer
        if engineer is not None:
            into.add(engineer.rounds)
            into.add(engineer.installs)
            into.add(engineer.unplaced)

    def results(self) -> dict[str, list[list[int]]]:
        """Every operation that has ended: job, operation, start_ps, end_ps, status. Of jobs that meet at the
        store, rows of `actors.control.store`.
        """
        store = self.store
        tables = {"operations": self.operations}
        if store is not None:
            tables["inits"] = store.rows()
        if self.operator is not None:
            tables["operator"] = self.operator.rows
            tables["health"] = self.operator.health_rows()
        return tables

    def end_states(self) -> list[int]:
        """Operations ended and status, job after job."""
        values: list[int] = []
        for job in self.jobs:
            values += [job.operation, job.status]
        return values

    def save(self) -> list[Plain]:
        """The controller's state; the end of the run is the partition's."""
        links: list[Plain] = [port.free_ps for port in self.hosts.values()]
        jobs: list[Plain] = [save_fields(job, _FIELDS) for job in self.jobs]
        engineer = self.engineer
        placing: Plain = None if engineer is None else engineer.save()
        store = self.store
        meeting: Plain = None if store is None else store.save()
        operator = self.operator
        tending: Plain = None if operator is None else operator.save()
        own = save_fields(self, ("operations", "open_jobs"))
        return [super().save(), links, jobs, own, placing, meeting, tending]

    def load(self, state: list[Plain]) -> None:
        """Take the state that `save` returned."""
        base, links, jobs, own, placing, meeting, tending = state
        operator = self.operator
        if operator is not None:
            operator.load(tending)
        store = self.store
        if store is not None:
            store.load(meeting)
        super().load(as_list(base))
        for port, free_ps in zip(self.hosts.values(), as_list(links), strict=True):
            port.free_ps = as_int(free_ps)
        for job, saved in zip(self.jobs, as_list(jobs), strict=True):
            load_fields(job, _FIELDS, saved)
        load_fields(self, ("operations", "open_jobs"), own)
        engineer = self.engineer
        if engineer is not None:
            engineer.load(as_list(placing))


def build_controller(
    number: int,
    hosts: tuple[int, ...],
    outlines: list[JobOutline],
    management_delay_ps: int,
    queue: EventQueue,
    outbox_for: Callable[[int], Outbox | None],
) -> Controller:
    """The controller of a fabric with these hosts; `outbox_for` says where a host lives."""
    links = {
        host: MessagePort(
            queue, MANAGEMENT_RATE_BPS, management_delay_ps, host, MANAGEMENT_PORT, 0, outbox_for(host)
        )
        for host in hosts
    }
    return Controller(number, queue, links, outlines, management_delay_ps)
