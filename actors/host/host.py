"""The CPUs of a server: programs, and the proxies that post and complete for them.

A *program* is a state machine over tables: one rank of a collective job, or one host's share of a job of
flows. The host calls it when its job begins an operation, when a NIC or a GPU reports that something is done,
and when a timer runs out; the program answers by asking the host for posts, copies, timers and reports. It
never waits and never polls, and its state is plain, so that it can be saved between any two events.

Port p of the host is its p-th host link in the topology (GPUs first, then NICs), and the
management network is one more port. A completion finds its program through a table, (port, queue pair) to
(program, context); a finished copy carries the number of its program.

Every program has a *proxy*, the CPU thread that serves it. Where the scenario gives an operation of the
proxy a cost, posts and completions of a program wait in the proxy's line, in the order in which they came
up, and each takes that long; a program never waits for the proxy of another. Copies, and transfers over
NVLink, are free: GPU threads and proxy share flags in memory. A cost of zero needs no line and no event.

Rounds. With `ProxyCosts.poll_ps` a proxy goes round the connections over NICs that its rank's calls use, and
looks at each: what comes up while it idles waits for half of a round, what comes up while it works for the
next one. It does all that is ready at the beginning of a round: the first operation takes `cost_ps`, each
further one `batched_ps`. Data in lines with flags of their own (LL, LL128) is seen by the GPU that waits for
it, so its completions do not wait for the receiver's proxy.

Receives. Where a scenario counts them, the host posts another for each that was taken, `repost_ps` each, one
after the other per NIC.

Jobs. The first operation of a job begins at the job's start, which every host knows from the scenario; each
following one when BEGIN arrives from the controller. A program answers with one REPORT per operation. Where
ranks meet at a store first (`actors.control.store`), the host asks for each of its ranks, round by round, and
lets the first operation begin when the last answer is here.

Heartbeats. Where an operator tends a job (`actors.control.operator`), the host tells it each `beat_ps` how
that job is: bytes handed to NICs, the first process that failed, rows of GPU memory that were remapped. Where
its rules ask for that, a second message says how long the rank that computed most has computed in the steps
that it has done, and what samples of the NICs each `sample_ps` showed since the last heartbeat: the most
bytes that were acknowledged within one, and the longest time in which none were though some were under way.

Faults. A host that is lost hears nothing, and its programs are gone: when it is back, each reports to the
controller that it failed. A slow one takes a multiple of the proxies' costs. Where a GPU is slow or hangs,
what programs compute there takes longer or stands still: the host tells them.

Source: proxies as in NCCL (`src/proxy.cc`, progressOps; `src/transport/net.cc`): one progress thread per
communicator and rank, which goes through all operations under way.

Not modelled: CPU cores that proxies compete for, interrupts, NUMA.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64, mypyc_attr

from actors.kernel.counters import (
    HOST_COMPUTE_PS,
    HOST_COMPUTE_WORK_PS,
    HOST_CONNECT_WAIT_PS,
    HOST_CTS_RECEIVED,
    HOST_CTS_WAIT_PEAK_PS,
    HOST_CTS_WAIT_PS,
    HOST_DEFERRED_SEGMENTS,
    HOST_DIRECT_SLICES,
    HOST_DIVERTED_SLICES,
    HOST_HELD_SLICES,
    HOST_MADE_QUEUE_PAIRS,
    HOST_OVERTAKEN_CALLS,
    HOST_SLOWER_COMPUTE_PS,
    HOST_SM_WAIT_PS,
)
from actors.kernel.device import Device, Plain, Series, Tally, series_of
from actors.kernel.event import COLLECTION, JOB, MAX_PORTS, NEVER_PS, PROXY, SUBJECT_MASK, Message
from actors.kernel.queue import EventQueue
from actors.kernel.state import as_int, as_list, load_event, load_fields, save_event, save_fields
from actors.kernel.vectors import append, vec
from actors.port.link import MessagePort
from actors.wire.fault import COMPUTE, COMPUTE_HUNG, GPU_GONE, LOST, ROWS, SLOW
from actors.wire.message import (
    BEGIN,
    COMPLETED_RECEIVE,
    COMPLETED_SEND,
    COMPLETION,
    COPIED,
    COPY,
    HALT,
    HEALTH,
    HEARTBEAT,
    MODIFIED,
    MODIFY,
    ONLY_ANSWER,
    ONLY_MEET,
    POST,
    RECEIVE,
    REPORT,
    SHARE,
    STATUS_GPU_LOST,
    STATUS_HOST_LOST,
    STATUS_SUCCESS,
    STATUS_TIMED_OUT,
    STORE_ANSWER,
    STORE_ASK,
)

MANAGEMENT_RATE_BPS: Final = 10 * 10**9
"""Rate of the management network, each way and host."""
MEETING: Final[i64] = 0xFFFFFFF
"""Subject of the timer that ends the patience of a rank at the store; programs' own are below."""

POSTED: Final[i64] = MAX_PORTS - 1
"""The port of the alarm of a post of an open job. It is no program's, and the last: what a program outside
posts at a time comes after everything else that the host does then, so it does not matter whether that
program knew of it before."""

_TABLES: Final = ("flows", "cts_waits", "flights", "called", "failures")
"""Tables of every host; `Program.add_results` has their columns."""
_SCRIPTED_TABLES: Final = ("steps", "calls", "payload", "sm_waits", "clients", "requests")
"""Tables of hosts where there is anything in them."""
_FIELDS: Final = (
    "lost",
    "tended",
    "handed",
    "steps",
    "computed_ps",
    "moved",
    "sampled_job",
    "sampled_bytes",
    "stalled_ps",
    "longest_stall_ps",
    "busiest_bytes",
    "_receives",
)
_PROXY: Final = ("busy", "ports", "batch")
_ATTENDANCE: Final = ("left", "operation", "patience_ps", "absent")


class Proxy:
    """The line of one program's proxy: messages to handle (completions) or to send (posts), and their
    ports.
    """

    def __init__(self) -> None:
        self.busy: bool = False
        """Whether an operation is under way: its end is a pending event."""
        self.messages: list[Message] = []
        self.ports: list[int] = []
        self.batch: i64 = 0
        """What of `messages` is done in this round, where it goes round."""


class ProxyCosts:
    """What proxies of a host cost, at its present speed."""

    def __init__(self, cost_ps: int, poll_ps: int = 0, batched_ps: int = 0) -> None:
        self.built: tuple[int, int, int] = cost_ps, poll_ps, batched_ps
        """The three where the host is not slow."""
        self.cost_ps: i64 = cost_ps
        """What an operation costs, with rounds the first of one."""
        self.poll_ps: i64 = poll_ps
        """What a proxy takes to look at a connection; 0: it need not look."""
        self.batched_ps: i64 = batched_ps
        """What each operation of a round but the first costs."""
        self.free: bool = cost_ps == 0 and poll_ps == 0
        """Whether a proxy does everything in no time."""

    def slow_down(self, permille: int) -> None:
        """Let everything take so many thousandths of its time."""
        cost, poll, batched = self.built
        self.cost_ps = cost * permille // 1000
        self.poll_ps = poll * permille // 1000
        self.batched_ps = batched * permille // 1000


class PairTable:
    """For one port: which program, and with which context, owns each queue pair of the NIC behind it."""

    def __init__(self) -> None:
        self.owners: vec[i64] = vec[i64]()
        """For each queue pair its program, -1 where it has none, and the context."""

    def bound(self, pair: i64) -> bool:
        """Whether a program owns the queue pair."""
        return 2 * pair < len(self.owners) and self.owners[2 * pair] >= 0

    def bind(self, pair: int, program: int, context: int) -> None:
        """Give a queue pair to a program."""
        place: int = 2 * pair
        while len(self.owners) <= place:
            self.owners = append(append(self.owners, -1), 0)
        assert self.owners[place] == -1, f"queue pair {pair} is bound to program {self.owners[place]}"
        self.owners[place] = program
        self.owners[place + 1] = context


class Attendance:
    """How one rank meets the others at the store. One that is `absent` never comes. After `patience_ps` (0:
    never) it gives up.
    """

    def __init__(self, rank: int, rounds: int, absent: bool, patience_ps: int) -> None:
        self.rank: i64 = rank
        self.rounds: i64 = rounds
        self.left: i64 = rounds
        """Rounds that are not over."""
        self.absent: bool = absent
        self.patience_ps: i64 = patience_ps
        self.operation: i64 = 0
        """What is to begin then."""

    def come(self, host: Host, program: Program, operation: i64, now: i64) -> None:
        """Come to the next round, after which, or after those that follow, an operation is to begin."""
        if self.absent:
            return
        if self.patience_ps > 0:
            host.push_timer(now + self.patience_ps, JOB, program.number, MEETING)
            self.patience_ps = 0
        self.operation = operation
        host.management.send(Message(STORE_ASK, program.job, self.rank, now, 0, 0, 0), now)

    def save(self) -> list[Plain]:
        """How far the rank is."""
        return save_fields(self, _ATTENDANCE)

    def load(self, state: Plain) -> None:
        """Take the state that `save` returned."""
        load_fields(self, _ATTENDANCE, state)


LIBRARY_SERIES: Final = (
    HOST_CTS_RECEIVED,
    HOST_CTS_WAIT_PS,
    HOST_HELD_SLICES,
    HOST_DEFERRED_SEGMENTS,
    HOST_DIRECT_SLICES,
    HOST_SLOWER_COMPUTE_PS,
    HOST_SM_WAIT_PS,
    HOST_OVERTAKEN_CALLS,
    HOST_CTS_WAIT_PEAK_PS,
)
"""What a rank of a collective counts. The last is a peak, the others add up over the ranks of a host."""


CONNECT_SERIES: Final = (HOST_MADE_QUEUE_PAIRS, HOST_CONNECT_WAIT_PS)
"""What a rank counts that makes its queue pairs on demand."""


COMPUTE_SERIES: Final = (HOST_COMPUTE_PS, HOST_COMPUTE_WORK_PS)
"""What is counted for each GPU that programs compute on: how long they did, over all streams, and how long
the same takes where the GPU is not slow. A piece counts when it is done."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Program:
    """Base of what runs on a host. `number` is its place there, given when the host takes it in."""

    def __init__(self, job: int, start_ps: int) -> None:
        self.job: i64 = job
        self.start_ps: i64 = start_ps
        """When the job's first operation begins."""
        self.number: i64 = 0

    def on_begin(self, host: Host, operation: i64, now: i64) -> None:
        """An operation of the job begins."""
        raise AssertionError(f"program {self.number} has no operation {operation}")

    def on_members(self, host: Host, membership: i64, now: i64) -> bool:
        """The job goes on with another membership: the operation that begins now, and all that follow.
        Returns whether this rank takes part.
        """
        return True

    def on_asked(self, host: Host, now: i64) -> None:
        """The controller asks who is at work on the present operation."""

    def on_halted(self, host: Host, now: i64) -> None:
        """The process is ended, for good."""

    def trouble(self) -> i64:
        """The status with which the process failed; 0 of one that runs, or was ended."""
        return 0

    def on_completion(self, host: Host, context: i64, message: Message, now: i64) -> None:
        """A NIC completed something on a queue pair that was bound with `context`."""
        raise AssertionError(f"program {self.number} has no queue pair: context {context}")

    def on_modified(self, host: Host, context: i64, message: Message, now: i64) -> None:
        """A queue pair is in state `b`; `e` says whether that is what was asked for."""

    def copies(self, channel: i64) -> bool:
        """Whether there is such a channel; asked of what another worker sent."""
        return True

    def on_copied(self, host: Host, message: Message, now: i64) -> None:
        """A GPU finished a copy that this program asked for."""
        raise AssertionError(f"program {self.number} copies nothing: channel {message.a}")

    def on_timer(self, host: Host, subject: i64, now: i64) -> bool:
        """A timer that this program set ran out; its subject is above zero. Returns whether it had an effect,
        as `Device.on_timer` does."""
        raise AssertionError(f"program {self.number} has no timer {subject}")

    def stirred(self, host: Host, now: i64) -> bool:
        """SMs of its GPU changed hands elsewhere, perhaps; whether it went on."""
        return False

    def on_paced(self, host: Host, gpu_port: i64, factor: i64, now: i64) -> None:
        """Computing on the GPU behind a port takes `factor` thousandths of its time from now on; at 0 it
        stands still.
        """

    def on_ask(self, host: Host, post: list[int], now: i64) -> None:
        """A program outside has posted something: this program's number, the post's, and what it is."""
        raise AssertionError(f"program {self.number} is not open: {post}")

    def on_lost(self, host: Host, gpu_port: i64, status: i64, now: i64) -> None:
        """The GPU behind a port of the host is gone, or (below zero) the host was, and all it remembered."""

    def polled(self) -> i64:
        """How many connections over NICs its proxy looks at in a round."""
        return 0

    def sees_data(self, context: i64) -> bool:
        """Whether what arrives on a queue pair is seen by the GPU that waits for it, without the proxy."""
        return False

    def computes_on(self) -> i64:
        """The host's port to the GPU that it computes on; -1 where it computes nothing."""
        return -1

    def computed(self) -> i64:
        """How long it has computed, ps; the first of `COMPUTE_SERIES`, where it computes."""
        return 0

    def computed_work(self) -> i64:
        """How long that takes where the GPU is not slow, ps; the other one."""
        return 0

    def count_library(self, total: Tally) -> bool:
        """Add the values of `LIBRARY_SERIES` to those of other programs. Returns whether it has any, as ranks
        of collectives have.
        """
        return False

    def holding(self) -> int:
        """Job and rank, as job x 2^20 + rank, of a rank whose collectives hold SMs; -1 of another."""
        return -1

    def diverted(self) -> i64:
        """Slices that did not go to the queue pair next in turn; -1 where the program never chooses."""
        return -1

    def count_connects(self, total: Tally) -> bool:
        """Add the values of `CONNECT_SERIES` to those of other programs; no program has any whose queue pairs
        are there from the beginning."""
        return False

    def add_results(self, tables: dict[str, list[list[int]]]) -> None:
        """Add the rows that it has to the host's tables.

        Their columns, behind the job:

        flows      flow, start_ps, completed_ps, status
        cts_waits  operation, wait_ps, how many clear-to-sends
        flights    rank, call, group, call of the group, operation, bytes, begun_ps, end_ps (-1: it runs)
        called     rank, group, calls begun, calls ended
        failures   rank, group, call of the group, status, what it waited for, peer, host's port, queue
                   pair's number, at_ps
        steps      rank, step, begin_ps, end_ps, compute_ps, waits by reason
        calls      rank, step, label, begun_ps, end_ps
        payload    see `actors.gpu.memory`
        clients    client of storage, begun_ps, ended_ps, status
        requests   kind, answered, ps in all, ps at most, refused
        sm_waits   rank, group, call of the group, asked_ps, had_ps (-1: it still waits), who held them as
                   `holding` has it; of calls that are not over and waited for SMs
        """

    def save(self) -> list[Plain]:
        """The program's state, except what it was built from."""
        return []

    def load(self, state: list[Plain]) -> None:
        """Take the state that `save` of an equally built program returned."""
        assert not state, (self.number, state)


class Host(Device):
    """One server's CPUs. `ports` are its ends of the host links in port order, `management` leads to the
    controller.
    """

    def __init__(
        self,
        number: int,
        queue: EventQueue,
        ports: list[MessagePort],
        management: MessagePort,
        proxy_cost_ps: int,
    ) -> None:
        super().__init__(number, queue)
        self.ports: vec[MessagePort] = vec[MessagePort](ports)
        self.management: MessagePort = management
        self.proxy: ProxyCosts = ProxyCosts(proxy_cost_ps)
        self.to_gpu: list[bool] = [False] * len(ports)
        """By port, whether a GPU is behind it: what is posted there goes over NVLink, without a proxy."""
        self._library_total: Tally = Tally()
        self._connect_total: Tally = Tally()
        self._computing_total: Tally = Tally()
        self._counts_library: bool = False
        """Whether any program has values of `LIBRARY_SERIES`, of `CONNECT_SERIES`, ..."""
        self._counts_connects: bool = False
        self._diverted: i64 = -1
        """... and what they have diverted, -1 where none ever chooses: as added up last."""
        self.reposting: bool = False
        """Whether receives are counted, and taken ones are posted again."""
        self.repost_ps: i64 = 0
        self._receives: list[list[int]] = [[] for _ in ports]
        """By port, the queue pairs that wait for a receive to be posted."""
        self.programs: vec[Program] = vec[Program]()
        self.meetings: dict[int, Attendance] = {}
        """By program, of ranks that have to meet the others before their first operation."""
        self._pairs: vec[PairTable] = vec[PairTable]([PairTable() for _ in ports])
        self._proxies: list[Proxy] = []
        self.beat_ps: i64 = 0
        """From heartbeat to heartbeat; 0: there are none."""
        self.tended: i64 = -1
        """The job that heartbeats are about."""
        self.handed: list[int] = []
        """By program, the bytes that it handed to NICs; counted where there are heartbeats."""
        self.tells_health: bool = False
        """Whether a second message follows each heartbeat."""
        self.sample_ps: i64 = 0
        """From sample to sample of the NICs; 0: there are none."""
        self.steps: list[int] = []
        """By program, the operations that it has done, and ..."""
        self.computed_ps: list[int] = []
        """... how long it had computed at the end of the last; both where health is reported."""
        self.moved: list[int] = []
        """By program, the bytes that NICs have acknowledged; counted where there are samples."""
        self.sampled_job: i64 = -1
        self.sampled_bytes: i64 = 0
        """What the job of the last sample had moved by then."""
        self.stalled_ps: i64 = 0
        """How long it has moved none."""
        self.longest_stall_ps: i64 = 0
        self.busiest_bytes: i64 = 0
        self.posts: dict[int, list[int]] = {}
        """What was posted to an open job for the present time, by the subject of its alarm."""
        self.reported: list[list[int]] = []
        """What came of posts since somebody looked, a list that hosts of a partition share: number, rank,
        begun_ps, end_ps, status."""
        self.stops: bool = False
        """Whether the run is to stop with the present time when something came of one."""
        self.lost: bool = False

    def add(self, program: Program) -> int:
        """Take a program in and return its number."""
        program.number = len(self.programs)
        assert program.number < POSTED, f"host {self.number} has no place for another program"
        self.programs = append(self.programs, program)
        self._proxies.append(Proxy())
        self.handed.append(0)
        self.steps.append(0)
        self.computed_ps.append(0)
        self.moved.append(0)
        return program.number

    def bind(self, port: int, pair: int, program: int, context: int) -> None:
        """Let completions on a queue pair of the NIC behind `port` reach a program, with a context of its
        own.
        """
        self._pairs[port].bind(pair, program, context)

    def start(self) -> None:
        """Set the alarm of every program's job that begins by itself."""
        for program in self.programs:
            if program.start_ps < NEVER_PS:
                self.push_timer(program.start_ps, JOB, program.number, 0)
        if self.beat_ps > 0:
            self.push_timer(self.beat_ps, COLLECTION, 0, 0)
        if self.sample_ps > 0:
            self.push_timer(self.sample_ps, COLLECTION, 1, 0)

    # ---- an open job

    def ask(self, post: list[int], subject: int, now: int) -> None:
        """A program outside posts something now. Subjects are consecutive."""
        if len(self.posts) == 0:
            self.push_timer(now, JOB, POSTED, subject)
        self.posts[subject] = post

    def tell(self, number: i64, rank: i64, begun_ps: i64, status: i64) -> None:
        """Something came of a post now."""
        now: i64 = self.queue.now_ps
        self.reported.append([number, rank, begun_ps, now, status])
        watch = self.queue.watch
        if watch is not None:
            watch.said_ps = now
        if self.stops:
            self.queue.stop_ps = now + 1

    # ---- what programs ask for

    def post(
        self,
        program: i64,
        port: i64,
        pair: i64,
        number: i64,
        size_bytes: i64,
        flags: i64,
        immediate: i64,
        data: bytes | None = None,
    ) -> None:
        """Ring the doorbell: a work request on a queue pair of the NIC behind `port`, or a transfer on a pair
        of the GPU there; of `data` where payload is real.
        """
        message = Message(POST, pair, number, size_bytes, flags, immediate, 0)
        message.data = data
        if self.beat_ps > 0 and not self.to_gpu[port]:
            self.handed[program] += size_bytes
        if self.proxy.free or self.to_gpu[port]:
            self.ports[port].send(message, self.queue.now_ps)
        else:
            self._line_up(program, message, port)

    def share(self, port: i64, more_bps: i64) -> None:
        """A copy between a GPU and host memory takes so much more, or less, of the link over which the NIC
        behind `port` reads what it sends.
        """
        self.ports[port].send(Message(SHARE, more_bps, 0, 0, 0, 0, 0), self.queue.now_ps)

    def modify(self, port: i64, pair: i64, state: i64, psn: i64) -> None:
        """Ask for another state of a queue pair (`actors.nic.queue_pair.queue_pair`); `on_modified` says what
        came of it.
        """
        self.ports[port].send(Message(MODIFY, pair, state, psn, 0, 0, 0), self.queue.now_ps)

    def copy(
        self,
        program: i64,
        port: i64,
        channel: i64,
        size_bytes: i64,
        kind: i64,
        note: i64,
        priority: i64,
        order: bytes | None = None,
    ) -> None:
        """Ask the GPU behind `port` for a copy; `note` comes back with COPIED. Where payload is real, `order`
        says of what (`actors.gpu.memory`).
        """
        message = Message(COPY, channel, size_bytes, kind, program, note, priority)
        message.data = order
        self.ports[port].send(message, self.queue.now_ps)

    def report(self, job: i64, operation: i64, rank: i64, start_ps: i64, end_ps: i64, status: i64) -> None:
        """Tell the controller how an operation ended here."""
        self.management.send(
            Message(REPORT, job, operation, rank, start_ps, end_ps, status), self.queue.now_ps
        )

    def set_timer(self, program: i64, time_ps: i64, subject: i64) -> None:
        """Call the program's `on_timer` at a time; one pending timer per subject, which is above zero."""
        assert subject > 0, (program, subject)
        self.push_timer(time_ps, JOB, program, subject)

    # ---- what arrives

    def admits(self, message: Message, port: i64, subject: i64) -> bool:
        if message.op == COMPLETION or message.op == MODIFIED:
            if port >= len(self.ports) or message.a < 0:
                return False
            return self._pairs[port].bound(message.a) or message.d == COMPLETED_RECEIVE
        if message.op != COPIED:
            return True
        return 0 <= message.d < len(self.programs) and self.programs[message.d].copies(message.a)

    def on_message(self, message: Message, port: i64, subject: i64) -> None:
        now: i64 = self.queue.now_ps
        if self.lost:
            return
        if message.op == COMPLETION:
            pairs = self._pairs[port]
            if message.d == COMPLETED_RECEIVE:
                if message.e != STATUS_SUCCESS:
                    return  # flushed: the queue pair is in error
                if self.reposting and not self.to_gpu[port]:
                    self._repost(port, message.a, now)
                if not pairs.bound(message.a):
                    return  # a receive that nobody waits for
            place: i64 = 2 * message.a
            program: i64 = pairs.owners[place]
            assert program >= 0, (self.number, port, message.a)
            if self.sample_ps > 0 and message.d == COMPLETED_SEND and not self.to_gpu[port]:
                self.moved[program] += message.c
            own: i64 = pairs.owners[place + 1]
            if (
                self.proxy.cost_ps == 0
                or self.to_gpu[port]
                or (
                    self.proxy.poll_ps > 0
                    and message.d == COMPLETED_RECEIVE
                    and self.programs[program].sees_data(own)
                )
            ):
                self.programs[program].on_completion(self, own, message, now)
            else:
                self._line_up(program, message, port)
        elif message.op == MODIFIED:
            owners = self._pairs[port].owners
            owner: i64 = owners[2 * message.a]
            self.programs[owner].on_modified(self, owners[2 * message.a + 1], message, now)
        elif message.op == COPIED:
            self.programs[message.d].on_copied(self, message, now)
        elif message.op == STORE_ANSWER:
            self._answered(message.a, now)
        elif message.op == HALT:
            self._halt(message.a, now)
        else:
            assert message.op == BEGIN, (self.number, port, subject, message.op)
            if message.d != 0:
                self.tended = message.a
            self._let_begin(message.a, message.b, message.c, message.e != 0, now)

    def on_timer(self, kind: i64, port: i64, subject: i64) -> bool:
        now: i64 = self.queue.now_ps
        if kind == COLLECTION:
            return self._beat(now) if port == 0 else self._sample(now)
        if kind == JOB and port == POSTED:
            post = self.posts.pop(subject)
            if len(self.posts) > 0:
                # Each alarm sets the next: thousands at one time would make a long chain in the queue.
                self.push_timer(now, JOB, POSTED, (subject + 1) & SUBJECT_MASK)
            if self.lost:
                self.tell(post[1], -1, now, STATUS_HOST_LOST)
            else:
                self.programs[post[0]].on_ask(self, post, now)
            return True
        if self.lost:
            return False
        if kind == PROXY:
            if port > 0:
                return self._reposted(port - 1, now)
            return self._proxy_done(subject, now)
        assert kind == JOB, (self.number, kind)
        program = self.programs[port]
        if subject == 0:
            self._begin(program, 0, now)
            return True
        if subject != MEETING:
            return program.on_timer(self, subject, now)
        absent: bool = self.meetings[port].left > 0
        if absent:
            self.meetings[port].left = 0
            program.on_lost(self, -1, STATUS_TIMED_OUT, now)
        return absent

    def apply_fault(self, op: int, place: int, values: list[int] | None) -> None:
        now: i64 = self.queue.now_ps
        if op == SLOW:
            self.proxy.slow_down(1000 if values is None else values[0])
        elif op == GPU_GONE:
            if values is not None and not self.lost:
                self.note(op, place, values)
                for program in self.programs:
                    program.on_lost(self, place, STATUS_GPU_LOST, now)
        elif op == COMPUTE or op == COMPUTE_HUNG:
            slow = self.fault_state(int(COMPUTE), place)
            factor: i64 = 1000 if slow is None else slow[0]
            if self.fault_state(int(COMPUTE_HUNG), place) is not None:
                factor = 0
            for program in self.programs:
                program.on_paced(self, place, factor, now)
        elif op == ROWS:
            return  # the next heartbeat tells
        elif op == LOST:
            self.lost = values is not None
            if self.lost:
                self._proxies = [Proxy() for _ in self.programs]
                self._receives = [[] for _ in self.ports]
            else:
                self.note(op, place, [0, 0, 0])
                for program in self.programs:
                    program.on_lost(self, -1, STATUS_HOST_LOST, now)
        else:
            super().apply_fault(op, place, values)

    def _beat(self, now: i64) -> bool:
        """Send a heartbeat, unless the host is lost, and set the alarm of the next one."""
        self.push_timer(now + self.beat_ps, COLLECTION, 0, 0)
        if self.lost:
            return False
        handed: i64 = 0
        status: i64 = STATUS_SUCCESS
        for one in self.programs:
            if one.job == self.tended:
                handed += self.handed[one.number]
                if status == STATUS_SUCCESS:
                    status = one.trouble()
        rows: i64 = 0
        for port in range(len(self.ports)):
            if status == STATUS_SUCCESS and self.fault_state(int(GPU_GONE), port) is not None:
                status = STATUS_GPU_LOST
            remapped = self.fault_state(int(ROWS), port)
            if remapped is not None and remapped[0] > rows:
                rows = remapped[0]
        self.management.send(Message(HEARTBEAT, self.number, self.tended, handed, status, rows, 0), now)
        if self.tells_health:
            self._tell_health(now)
        return True

    def _tell_health(self, now: i64) -> None:
        """Say how the job's ranks compute, and what the samples since the last heartbeat showed."""
        steps: i64 = 0
        computed_ps: i64 = 0
        for one in self.programs:
            if one.job == self.tended and self.computed_ps[one.number] > computed_ps:
                computed_ps, steps = self.computed_ps[one.number], self.steps[one.number]
        if self.stalled_ps > self.longest_stall_ps:
            self.longest_stall_ps = self.stalled_ps
        found = Message(HEALTH, self.number, computed_ps, steps, self.busiest_bytes, self.longest_stall_ps, 0)
        self.management.send(found, now)
        self.longest_stall_ps = 0
        self.busiest_bytes = 0

    def _sample(self, now: i64) -> bool:
        """Look at what the job that is tended has moved, and set the alarm of the next look."""
        self.push_timer(now + self.sample_ps, COLLECTION, 1, 0)
        if self.lost:
            return False
        handed: i64 = 0
        moved: i64 = 0
        for one in self.programs:
            if one.job == self.tended:
                handed += self.handed[one.number]
                moved += self.moved[one.number]
        if self.sampled_job != self.tended:
            self.sampled_job, self.sampled_bytes, self.stalled_ps = self.tended, moved, 0
        since: i64 = moved - self.sampled_bytes
        self.sampled_bytes = moved
        if since > self.busiest_bytes:
            self.busiest_bytes = since
        if since == 0 and handed > moved:
            self.stalled_ps += self.sample_ps
        else:
            if self.stalled_ps > self.longest_stall_ps:
                self.longest_stall_ps = self.stalled_ps
            self.stalled_ps = 0
        return True

    def step_done(self, program: i64) -> None:
        """A program has done an operation."""
        if self.tells_health:
            self.steps[program] += 1
            self.computed_ps[program] = self.programs[program].computed()

    def _halt(self, job: i64, now: i64) -> None:
        """End the processes of a job."""
        for one in self.programs:
            if one.job == job:
                self._proxies[one.number] = Proxy()
                attendance = self.meetings.get(one.number)
                if attendance is not None:
                    attendance.absent = True
                one.on_halted(self, now)

    def _let_begin(self, job: i64, operation: i64, membership: i64, meets: bool, now: i64) -> None:
        """An operation of a job begins among the ranks of a membership, which meet at the store first if they
        are to.
        """
        for one in self.programs:
            if one.job == job:
                if operation == ONLY_ANSWER:
                    one.on_asked(self, now)
                    continue
                if membership > 0 and not one.on_members(self, membership, now):
                    continue
                if meets and one.number in self.meetings:
                    attendance = self.meetings[one.number]
                    attendance.left = attendance.rounds
                self._begin(one, operation, now)

    def _answered(self, job: i64, now: i64) -> None:
        """A round of a job at the store is over."""
        for number, attendance in self.meetings.items():
            if self.programs[number].job == job and attendance.left > 0 and not attendance.absent:
                attendance.left -= 1
                self._begin(self.programs[number], attendance.operation, now)

    def _begin(self, program: Program, operation: i64, now: i64) -> None:
        """Let an operation begin, or have the rank come to the next round first."""
        attendance = self.meetings.get(program.number)
        if attendance is None or attendance.left == 0:
            if operation != ONLY_MEET:
                program.on_begin(self, operation, now)
        else:
            attendance.come(self, program, operation, now)

    def _line_up(self, program: i64, message: Message, port: i64) -> None:
        proxy = self._proxies[program]
        proxy.messages.append(message)
        proxy.ports.append(port)
        if not proxy.busy:
            proxy.busy = True
            at_ps: i64 = self.queue.now_ps + self.proxy.cost_ps
            if self.proxy.poll_ps > 0:
                at_ps += self.programs[program].polled() * self.proxy.poll_ps // 2
                proxy.batch = 0
            self.push_timer(at_ps, PROXY, 0, program)

    def _repost(self, port: i64, pair: i64, now: i64) -> None:
        """A receive was taken: post another, when those before it have been."""
        if self.repost_ps == 0:
            self.ports[port].send(Message(RECEIVE, pair, 1, 0, 0, 0, 0), now)
            return
        line = self._receives[port]
        line.append(pair)
        if len(line) == 1:
            self.push_timer(now + self.repost_ps, PROXY, port + 1, 0)

    def _reposted(self, port: i64, now: i64) -> bool:
        line = self._receives[port]
        if not line:
            return False  # the host was lost meanwhile
        pair: i64 = line.pop(0)
        self.ports[port].send(Message(RECEIVE, pair, 1, 0, 0, 0, 0), now)
        if line:
            self.push_timer(now + self.repost_ps, PROXY, port + 1, 0)
        return True

    def _proxy_done(self, program: i64, now: i64) -> bool:
        """The operation at the head of a proxy's line has had its time."""
        proxy = self._proxies[program]
        if not proxy.messages:
            return False  # the host was lost meanwhile
        polls: bool = self.proxy.poll_ps > 0
        if polls and proxy.batch == 0:
            proxy.batch = len(proxy.messages)  # the round begins: all that is there
        message = proxy.messages.pop(0)
        port: i64 = proxy.ports.pop(0)
        if message.op == POST:
            self.ports[port].send(message, now)
        else:
            context: i64 = self._pairs[port].owners[2 * message.a + 1]
            self.programs[program].on_completion(self, context, message, now)
        if not proxy.messages:
            proxy.busy = False
            return True
        at_ps: i64 = now + self.proxy.cost_ps
        if polls:
            proxy.batch -= 1
            if proxy.batch > 0:
                at_ps = now + self.proxy.batched_ps
            else:
                at_ps += self.programs[program].polled() * self.proxy.poll_ps
        self.push_timer(at_ps, PROXY, 0, program)
        return True

    # ---- what is left

    def series(self) -> list[Series]:
        computing = {int(one.computes_on()) for one in self.programs if one.computes_on() >= 0}
        found = [series_of(name, port) for port in sorted(computing) for name in COMPUTE_SERIES]
        self._add_up()
        if self._counts_library:
            found += [series_of(name) for name in LIBRARY_SERIES]
        if self._diverted >= 0:
            found.append(series_of(HOST_DIVERTED_SLICES))
        if self._counts_connects:
            found += [series_of(name) for name in CONNECT_SERIES]
        return found

    def _add_up(self) -> None:
        """Add up what programs count, each of which is looked at once."""
        library = self._library_total
        connects = self._connect_total
        computing = self._computing_total
        library.zero(len(LIBRARY_SERIES))
        connects.zero(len(CONNECT_SERIES))
        computing.zero(3 * len(self.ports))
        computed = computing.numbers
        counts_library: bool = False
        counts_connects: bool = False
        diverted: i64 = -1
        for program in self.programs:
            port: i64 = program.computes_on()
            if port >= 0:
                place: i64 = 3 * port
                computed[place] = 1
                computed[place + 1] += program.computed()
                computed[place + 2] += program.computed_work()
            if program.count_library(library):
                counts_library = True
            more: i64 = program.diverted()
            if more >= 0:
                if diverted < 0:
                    diverted = 0
                diverted += more
            if program.count_connects(connects):
                counts_connects = True
        self._counts_library = counts_library
        self._counts_connects = counts_connects
        self._diverted = diverted

    def _write_computing(self, into: Tally) -> None:
        """Write what programs computed on the GPU behind each port on which any computes, as added up."""
        computed = self._computing_total.numbers
        at: i64 = 0
        while at < len(computed):
            if computed[at] != 0:
                into.add(computed[at + 1])
                into.add(computed[at + 2])
            at += 3

    def count(self, into: Tally) -> None:
        self._add_up()
        self._write_computing(into)
        if self._counts_library:
            into.add_table(self._library_total.numbers)
        if self._diverted >= 0:
            into.add(self._diverted)
        if self._counts_connects:
            into.add_table(self._connect_total.numbers)

    def results(self) -> dict[str, list[list[int]]]:
        """The flows that were posted here; of ranks the waits of clear-to-sends, the flight recorders and the
        failures; and the steps and calls of scripts, clients of storage and their requests, and what came
        out of operations with real payload and zero-copy, if any. See `actors.host.host`.
        """
        tables: dict[str, list[list[int]]] = {name: [] for name in (*_TABLES, *_SCRIPTED_TABLES)}
        for program in self.programs:
            program.add_results(tables)
        return {name: rows for name, rows in tables.items() if rows or name in _TABLES}

    def save(self) -> list[Plain]:
        """The host's state: links, proxies, programs."""
        links: list[Plain] = [port.free_ps for port in self.ports]
        proxies: list[Plain] = []
        for proxy in self._proxies:
            events: list[Plain] = [save_event(message) for message in proxy.messages]
            proxies.append([save_fields(proxy, _PROXY), events])
        programs: list[Plain] = [program.save() for program in self.programs]
        meetings: list[Plain] = [one.save() for one in self.meetings.values()]
        own = save_fields(self, _FIELDS)
        return [super().save(), own, links, self.management.free_ps, proxies, programs, meetings]

    def load(self, state: list[Plain]) -> None:
        """Take the state that `save` returned."""
        base, own, links, management_free_ps, proxies, programs, meetings = state
        load_fields(self, _FIELDS, own)
        for one, saved in zip(self.meetings.values(), as_list(meetings), strict=True):
            one.load(saved)
        super().load(as_list(base))
        for link, free_ps in zip(self.ports, as_list(links), strict=True):
            link.free_ps = as_int(free_ps)
        self.management.free_ps = as_int(management_free_ps)
        for proxy, saved in zip(self._proxies, as_list(proxies), strict=True):
            fields, events = as_list(saved)
            load_fields(proxy, _PROXY, fields)
            proxy.messages = [_message(event) for event in as_list(events)]
        for program, part in zip(self.programs, as_list(programs), strict=True):
            program.load(as_list(part))
        self.reapply_faults()


def _message(state: Plain) -> Message:
    message = load_event(state)
    assert isinstance(message, Message), state
    return message
