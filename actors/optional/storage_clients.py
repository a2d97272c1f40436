"""Clients of storage, and the servers that answer them: requests and answers over the front-end network.

A *request* is a WRITE with immediate of its bytes to a server, its answer one back on the same connection;
the immediate is the request's number, and says whether the server refused. What a client does is a script:
phases, one after another; in each phase chains, so many at a time; in each chain groups, one after another;
the requests of a group at once. A protocol is nothing but such a script (`emu.workload.file_operations`).

A server takes requests for data as they come: what disks cost stands at its NIC
(`actors.nic.memory_path`). A request for metadata waits in a queue and takes the server so long, one after
another. A request that finds the queue full is refused at once; its client asks again, after a time that
doubles with each refusal, of which half is drawn, and gives up after so many.

A server that is gone. A client whose connection broke, or that has no answer for `timeout_ps`, gives that
server up. What it was to write there it writes to another one to which it is connected, and which has no
other chunk of the block. What it was to read or to ask there it cannot have elsewhere, and ends.

With FUSE every request goes through a daemon of the client's host first, one for all clients of a job there,
which takes so long for each piece of so many bytes, one after another.

The clients of a host know no network: they act through `StorageNetwork`, here over queue pairs, at flow level
over rates (`emu.flow`).

A checkpoint that is saved goes from GPU to host memory first. Where servers are of a known build
(`host.node`), that *copy* takes its part of the GPU's link for as long as it lasts, and the NIC that reads
from that GPU is notified.

Sources. FUSE: Vangoor et al., To FUSE or Not to FUSE (FAST'17): a request queue in the kernel, a daemon in
user space, requests of up to 128 KiB. Refusals and backoff are ours.

Not modelled: reads of the copies of what is lost, several threads of a daemon, caches.
"""

from typing import Final, NamedTuple

from actors.host.host import Host, Program
from actors.kernel.device import Plain
from actors.kernel.event import NEVER_PS, Message
from actors.kernel.mixing import Stream
from actors.kernel.state import as_int, as_list, load_fields, save_fields
from actors.wire.message import (
    COMPLETED_RECEIVE,
    POST_WITH_IMMEDIATE,
    STATUS_SUCCESS,
    STATUS_TIMED_OUT,
)

KINDS: Final = (
    "read",
    "write",
    "name",
    "file",
    "block",
    "open",
    "close",
    "layoutget",
    "layoutcommit",
    "layoutreturn",
)
"""What requests are called. The first two move data, the others are for metadata."""
DATA_KINDS: Final = 2
WRITES: Final = 1
"""The kind that can be done elsewhere."""
CONTROL_BYTES: Final = 256
"""Size of a request or an answer without its data. A choice."""
REFUSED: Final = 1 << 31
"""Bit of an answer's immediate."""
MOST_REQUESTS: Final = 1 << 26
"""Requests of the clients of one job on one host, at most: their timers are numbered."""
_PURPOSE: Final = 0x4241434B
"""Names the random stream of backoffs ("BACK")."""
_CHAIN_FIELDS: Final = ("at", "left")
_CLIENT_FIELDS: Final = (
    "phase",
    "following",
    "running",
    "begun_ps",
    "asked_ps",
    "ended_ps",
    "status",
    "dead",
)
_FIELDS: Final = (
    "_asked",
    "_refusals",
    "_sent",
    "_moved",
    "_watching",
    "_tallies",
    "_open",
    "_start_ps",
    "_daemon_free_ps",
)
ANSWERED, TOOK, LONGEST, REFUSALS, MOVED, ELSEWHERE = range(6)
"""What is counted of requests of a kind: answers, their times in all and at most, refusals, bytes of data
moved, writes that went to another server."""


class Request(NamedTuple):
    """One request: its kind (`KINDS`), to whom, and the bytes of data there and back."""

    kind: int
    server: int
    up_bytes: int = 0
    down_bytes: int = 0


Group = tuple[Request, ...]
Chain = tuple[Group, ...]


class Phase(NamedTuple):
    """Chains, of which a client has so many under way; not before a time after its job's start."""

    chains: tuple[Chain, ...]
    earliest_ps: int = 0


ClientScript = tuple[Phase, ...]


class Copy(NamedTuple):
    """A part of a checkpoint on its way from a GPU to host memory."""

    ports: tuple[int, ...]
    """The host's ports to the NICs that read over the same link."""
    rate_bps: int
    takes_ps: int


class Manners(NamedTuple):
    """How the clients of a job ask."""

    parallel: int
    """Chains of a client under way."""
    daemon_ps: int
    """What a piece of a request takes the daemon; 0: there is none."""
    piece_bytes: int
    backoff_ps: int
    """Before the first repetition of a request that was refused."""
    retries: int
    timeout_ps: int = NEVER_PS
    """Without an answer for so long, the server is given up."""


def flattened(scripts: tuple[ClientScript, ...]) -> list[Request]:
    """The requests of the clients of a job on a host, in the order of their numbers."""
    return [
        request
        for script in scripts
        for phase in script
        for chain in phase.chains
        for group in chain
        for request in group
    ]


def request_bytes(request: Request) -> int:
    """What goes to the server."""
    return CONTROL_BYTES + request.up_bytes


def answer_bytes(request: Request) -> int:
    """What comes back."""
    return CONTROL_BYTES + request.down_bytes


class ServiceQueue:
    """One after another, each for the same time; so many may wait."""

    def __init__(self, service_ps: int, most: int) -> None:
        self.service_ps = service_ps
        self.most = most
        self.free_ps = 0

    def take(self, now_ps: int) -> int:
        """When a request that comes now is done; -1 if there is no room for it."""
        begins_ps = max(self.free_ps, now_ps)
        if begins_ps - now_ps > self.service_ps * (self.most - 1):
            return -1
        self.free_ps = begins_ps + self.service_ps
        return self.free_ps


class StorageNetwork:
    """What clients act through."""

    def send(self, number: int, now_ps: int) -> None:
        """A request goes to its server."""
        raise NotImplementedError

    def later(self, time_ps: int, subject: int) -> None:
        """Call `StorageClients.due` with the subject then."""
        raise NotImplementedError

    def over(self, begun_ps: int, ended_ps: int, status: int) -> None:
        """All clients of the host are through."""
        raise NotImplementedError


class _Chain:
    """A chain of a script: its groups of request numbers, and how far it is."""

    __slots__ = ("at", "client", "groups", "left")

    def __init__(self, client: int, groups: list[list[int]]) -> None:
        self.client = client
        self.groups = groups
        self.at = 0
        self.left = 0


class _Client:
    """One client: its phases, and how far it is."""

    __slots__ = (
        "asked_ps",
        "begun_ps",
        "dead",
        "ended_ps",
        "following",
        "phase",
        "phases",
        "running",
        "stores",
        "status",
    )

    def __init__(self, phases: list[tuple[int, list[_Chain]]], stores: list[int]) -> None:
        self.phases = phases
        self.stores = stores
        """Places of the servers that it can write to."""
        self.dead: list[int] = []
        """Those that it has given up."""
        self.phase = 0
        self.following = 0
        self.running = 0
        self.begun_ps = -1
        self.asked_ps = -1
        """When it asked first: before, its part was copied to host memory."""
        self.ended_ps = -1
        self.status = int(STATUS_SUCCESS)


class StorageClients:
    """The clients of one job on one host. `draws` names their random stream; `spares` are places of storage
    servers, one of each client or -1, that it is connected to and has nothing to ask of.
    """

    def __init__(
        self,
        scripts: tuple[ClientScript, ...],
        manners: Manners,
        network: StorageNetwork,
        draws: tuple[int, int],
        spares: tuple[int, ...] = (),
    ) -> None:
        self.requests = flattened(scripts)
        self._spares = spares or (-1,) * len(scripts)
        self.manners = manners
        self._network = network
        self._chain_of: list[_Chain] = []
        self._clients = [self._client(number, script) for number, script in enumerate(scripts)]
        self._stream = Stream(*draws, _PURPOSE)
        self._start_ps = 0
        self._open = len(self._clients)
        self._daemon_free_ps = 0
        self._asked: dict[int, int] = {}
        """Requests that are under way, and when they were asked first."""
        self._sent: dict[int, int] = {}
        """Requests that are at their servers, and since when, the oldest first."""
        self._moved: dict[int, int] = {}
        """Writes that went elsewhere, and the place of their server."""
        self._watching = False
        """Whether a look at what is overdue is to come."""
        self._refusals: dict[int, int] = {}
        self._tallies = [[0] * 6 for _ in KINDS]
        """By kind."""

    def _client(self, number: int, script: ClientScript) -> _Client:
        phases = []
        for phase in script:
            chains = []
            for groups in phase.chains:
                chain = _Chain(number, [])
                for group in groups:
                    first = len(self._chain_of)
                    self._chain_of += [chain] * len(group)
                    chain.groups.append(list(range(first, len(self._chain_of))))
                chains.append(chain)
            phases.append((phase.earliest_ps, chains))
        stores = [one.server for one in flattened((script,)) if one.kind < DATA_KINDS]
        if self._spares[number] >= 0:
            stores.append(self._spares[number])
        return _Client(phases, list(dict.fromkeys(stores)))

    def place_of(self, number: int) -> int:
        """The place of the server that a request goes to."""
        return self._moved.get(number, self.requests[number].server)

    # ---- what happens to them

    def begin(self, now_ps: int) -> None:
        """The job begins."""
        if self._open == 0:
            self._anew()
        self._start_ps = now_ps
        for number in range(len(self._clients)):
            self._enter(number, now_ps)

    def _anew(self) -> None:
        """The job repeats: all is to be done once more."""
        self._open = len(self._clients)
        for client in self._clients:
            client.phase = client.following = 0
            client.begun_ps = client.asked_ps = client.ended_ps = -1
            for _, chains in client.phases:
                for chain in chains:
                    chain.at = 0

    def due(self, subject: int, now_ps: int) -> bool:
        """What was put off is due: a request, or the next phase of a client. Whether that had an effect."""
        number = subject - 1
        if number == len(self.requests) + len(self._clients):
            return self._overdue(now_ps)
        if number >= len(self.requests):
            if self._clients[number - len(self.requests)].ended_ps < 0:
                self._enter(number - len(self.requests), now_ps)
        elif number not in self._asked:
            return False
        else:
            self._send(number, now_ps)
        return True

    def _send(self, number: int, now_ps: int) -> None:
        """A request goes to its server, or to another if that is gone."""
        client = self._clients[self._chain_of[number].client]
        if client.dead and self.place_of(number) in client.dead and not self._redirect(number):
            self._give_up(self._chain_of[number].client, int(STATUS_TIMED_OUT), now_ps)
            return
        self._sent.pop(number, None)
        self._sent[number] = now_ps
        if not self._watching and self.manners.timeout_ps < NEVER_PS:
            self._watch(now_ps + self.manners.timeout_ps)
        self._network.send(number, now_ps)

    def _watch(self, time_ps: int) -> None:
        self._watching = True
        self._network.later(time_ps, len(self.requests) + len(self._clients) + 1)

    def _overdue(self, now_ps: int) -> bool:
        """Give up the servers that have not answered; whether there are any."""
        self._watching = False
        limit_ps = now_ps - self.manners.timeout_ps
        late = [number for number, at_ps in self._sent.items() if at_ps <= limit_ps]
        for number in late:
            if self._sent.get(number, now_ps) <= limit_ps:
                self._abandon(number, int(STATUS_TIMED_OUT), now_ps)
        if self._sent and not self._watching:
            self._watch(next(iter(self._sent.values())) + self.manners.timeout_ps)
        return bool(late)

    def _abandon(self, number: int, status: int, now_ps: int) -> None:
        """The server of a request is gone: all that a client has there goes elsewhere, or the client ends."""
        owner = self._chain_of[number].client
        client, place = self._clients[owner], self.place_of(number)
        if place not in client.dead:
            client.dead.append(place)
        there = [
            one for one in self._sent if self._chain_of[one].client == owner and self.place_of(one) == place
        ]
        for one in there:
            del self._sent[one]
        for one in there:
            if not self._redirect(one):
                self._give_up(owner, status, now_ps)
                return
        for one in there:
            self._send(one, now_ps)

    def _redirect(self, number: int) -> bool:
        """Let a write go to another server that has no chunk of its block; whether there is one."""
        request, chain = self.requests[number], self._chain_of[number]
        if request.kind != WRITES:
            return False
        client = self._clients[chain.client]
        group = next(group for group in chain.groups if number in group)
        taken = {self.place_of(one) for one in group}
        first = client.stores.index(self.place_of(number))
        for place in client.stores[first + 1 :] + client.stores[:first]:
            if place not in client.dead and place not in taken:
                self._moved[number] = place
                self._tallies[request.kind][ELSEWHERE] += 1
                return True
        return False

    def answered(self, number: int, refused: bool, now_ps: int) -> None:
        """A request has its answer."""
        if number not in self._asked:
            return  # its client has given up
        request = self.requests[number]
        tally = self._tallies[request.kind]
        self._sent.pop(number, None)
        if refused:
            tally[REFUSALS] += 1
            self._again(number, now_ps)
            return
        took_ps = now_ps - self._asked.pop(number)
        self._refusals.pop(number, None)
        tally[ANSWERED] += 1
        tally[TOOK] += took_ps
        tally[LONGEST] = max(tally[LONGEST], took_ps)
        tally[MOVED] += request.up_bytes + request.down_bytes
        chain = self._chain_of[number]
        chain.left -= 1
        if chain.left:
            return
        chain.at += 1
        if chain.at < len(chain.groups):
            self._ask(chain, now_ps)
            return
        client = self._clients[chain.client]
        client.running -= 1
        self._go_on(client, chain.client, now_ps)

    def broken(self, number: int, status: int, now_ps: int) -> None:
        """A connection broke while it carried a request."""
        if number in self._sent:
            self._abandon(number, status, now_ps)

    def lost(self, status: int, now_ps: int) -> None:
        """The host was gone, and all that its clients knew."""
        for number, client in enumerate(self._clients):
            if client.ended_ps < 0:
                self._give_up(number, status, now_ps)

    # ---- what they do

    def _enter(self, number: int, now_ps: int) -> None:
        """A client's next phase, when its time has come; after the last it is through."""
        client = self._clients[number]
        if client.begun_ps < 0:
            client.begun_ps = now_ps
        if client.phase == len(client.phases):
            self._end(client, int(STATUS_SUCCESS), now_ps)
            return
        due_ps = self._start_ps + client.phases[client.phase][0]
        if due_ps > now_ps:
            self._network.later(due_ps, len(self.requests) + number + 1)
        else:
            self._go_on(client, number, now_ps)

    def _go_on(self, client: _Client, number: int, now_ps: int) -> None:
        """Begin as many chains as may be; with the last one over, enter the next phase."""
        chains = client.phases[client.phase][1]
        while client.following < len(chains) and client.running < self.manners.parallel:
            chain = chains[client.following]
            client.following += 1
            client.running += 1
            self._ask(chain, now_ps)
        if client.running == 0:
            client.phase += 1
            client.following = 0
            self._enter(number, now_ps)

    def _ask(self, chain: _Chain, now_ps: int) -> None:
        """Ask what the next group of a chain asks."""
        group = chain.groups[chain.at]
        chain.left = len(group)
        manners = self.manners
        client = self._clients[chain.client]
        if client.asked_ps < 0:
            client.asked_ps = now_ps
        for number in group:
            self._asked[number] = now_ps
            if not manners.daemon_ps:
                self._send(number, now_ps)
                if client.ended_ps >= 0:
                    return
                continue
            request = self.requests[number]
            pieces = max(-(-(request.up_bytes + request.down_bytes) // manners.piece_bytes), 1)
            free_ps = max(self._daemon_free_ps, now_ps) + pieces * manners.daemon_ps
            self._daemon_free_ps = free_ps
            self._network.later(free_ps, number + 1)

    def _again(self, number: int, now_ps: int) -> None:
        """A request was refused."""
        refusals = self._refusals.get(number, 0)
        if refusals == self.manners.retries:
            self._give_up(self._chain_of[number].client, int(STATUS_TIMED_OUT), now_ps)
            return
        self._refusals[number] = refusals + 1
        half_ps = (self.manners.backoff_ps << refusals) // 2
        drawn_ps = self._stream.draw62() * half_ps >> 62
        self._network.later(now_ps + half_ps + drawn_ps, number + 1)

    def _give_up(self, number: int, status: int, now_ps: int) -> None:
        """A client ends before its time; what it asked is forgotten."""
        for one in [one for one in self._asked if self._chain_of[one].client == number]:
            del self._asked[one]
            self._sent.pop(one, None)
        client = self._clients[number]
        if client.begun_ps < 0:
            client.begun_ps = now_ps
        self._end(client, status, now_ps)

    def _end(self, client: _Client, status: int, now_ps: int) -> None:
        client.ended_ps = now_ps
        client.status = status
        self._open -= 1
        if self._open == 0:
            failed = [one.status for one in self._clients if one.status != STATUS_SUCCESS]
            begun_ps = min(one.begun_ps for one in self._clients)
            self._network.over(begun_ps, now_ps, failed[0] if failed else int(STATUS_SUCCESS))

    # ---- what is left

    def client_rows(self, job: int, first: int) -> list[list[int]]:
        """Rows of clients that are through: job, number, begun_ps, asked_ps, ended_ps, status."""
        return [
            [job, first + number, one.begun_ps, max(one.asked_ps, one.begun_ps), one.ended_ps, one.status]
            for number, one in enumerate(self._clients)
            if one.ended_ps >= 0
        ]

    def request_rows(self, job: int) -> list[list[int]]:
        """Job, kind, and what is counted of it."""
        return [[job, kind, *tally] for kind, tally in enumerate(self._tallies) if any(tally)]

    def save(self) -> list[Plain]:
        """How far they are."""
        chains = [chain for client in self._clients for _, phase in client.phases for chain in phase]
        clients: list[Plain] = [save_fields(client, _CLIENT_FIELDS) for client in self._clients]
        along: list[Plain] = [save_fields(chain, _CHAIN_FIELDS) for chain in chains]
        return [save_fields(self, _FIELDS), clients, along, int(self._stream.counter)]

    def load(self, state: list[Plain]) -> None:
        """Take the state that `save` returned."""
        fields, clients, along, counter = state
        load_fields(self, _FIELDS, fields)
        chains = [chain for client in self._clients for _, phase in client.phases for chain in phase]
        for client, saved in zip(self._clients, as_list(clients), strict=True):
            load_fields(client, _CLIENT_FIELDS, saved)
        for chain, saved in zip(chains, as_list(along), strict=True):
            load_fields(chain, _CHAIN_FIELDS, saved)
        self._stream.counter = as_int(counter)


class ClientProgram(Program):
    """The clients of a job on a host. `rank` is what its report calls it, `first` its first client."""

    def __init__(self, host: Host, job: int, start_ps: int, rank: int, first: int) -> None:
        super().__init__(job, start_ps)
        self.host = host
        self.rank = rank
        self.first = first
        self.pairs: list[tuple[int, int]] = []
        """By the servers of its requests: the host's port and the queue pair behind it."""
        self.clients: StorageClients | None = None
        self.copies_first: tuple[Copy, ...] = ()
        """What its clients begin with."""
        self._copying: list[int] = []
        """The places of copies that are under way."""

    def _mine(self) -> StorageClients:
        assert self.clients is not None, self.number
        return self.clients

    def on_begin(self, host: Host, operation: int, now: int) -> None:
        self._mine().begin(now)
        for place, copy in enumerate(self.copies_first):
            self._share(copy, copy.rate_bps)
            self._copying.append(place)
            host.set_timer(self.number, now + copy.takes_ps, MOST_REQUESTS + place)

    def _share(self, copy: Copy, more_bps: int) -> None:
        for port in copy.ports:
            self.host.share(port, more_bps)

    def on_timer(self, host: Host, subject: int, now: int) -> bool:
        if subject < MOST_REQUESTS:
            return self._mine().due(subject, now)
        place = subject - MOST_REQUESTS
        if place not in self._copying:
            return False  # the host was lost meanwhile
        self._copying.remove(place)
        self._share(self.copies_first[place], -self.copies_first[place].rate_bps)
        return True

    def on_completion(self, host: Host, context: int, message: Message, now: int) -> None:
        if message.d == COMPLETED_RECEIVE:
            self._mine().answered(message.b & (REFUSED - 1), message.b & REFUSED != 0, now)
        elif message.e != STATUS_SUCCESS:
            self._mine().broken(message.b, message.e, now)

    def on_lost(self, host: Host, gpu_port: int, status: int, now: int) -> None:
        if gpu_port >= 0:
            return
        for place in self._copying:
            self._share(self.copies_first[place], -self.copies_first[place].rate_bps)
        self._copying = []
        if self.start_ps <= now:
            self._mine().lost(status, now)

    def add_results(self, tables: dict[str, list[list[int]]]) -> None:
        tables["clients"] += self._mine().client_rows(self.job, self.first)
        tables["requests"] += self._mine().request_rows(self.job)

    def save(self) -> list[Plain]:
        copying: list[Plain] = list[Plain](self._copying)
        return [self._mine().save(), copying]

    def load(self, state: list[Plain]) -> None:
        clients, copying = state
        self._mine().load(as_list(clients))
        self._copying = [as_int(place) for place in as_list(copying)]


class HostNetwork(StorageNetwork):
    """The queue pairs of a host and its clock."""

    def __init__(self, program: ClientProgram) -> None:
        self._program = program

    def send(self, number: int, now_ps: int) -> None:
        program = self._program
        clients = program._mine()
        port, pair = program.pairs[clients.place_of(number)]
        size_bytes = request_bytes(clients.requests[number])
        program.host.post(program.number, port, pair, number, size_bytes, POST_WITH_IMMEDIATE, number)

    def later(self, time_ps: int, subject: int) -> None:
        self._program.host.set_timer(self._program.number, time_ps, subject)

    def over(self, begun_ps: int, ended_ps: int, status: int) -> None:
        program = self._program
        program.host.report(program.job, 0, program.rank, begun_ps, ended_ps, status)


class ServerProgram(Program):
    """What answers the clients of all jobs at one server."""

    def __init__(self, metadata: ServiceQueue) -> None:
        super().__init__(-1, NEVER_PS)
        self.metadata = metadata
        self._clients: list[tuple[int, int, list[Request]]] = []
        self._waiting: list[tuple[int, int, int]] = []
        """Requests for metadata: when they are done, from which connection, number."""

    def add(self, port: int, pair: int, requests: list[Request]) -> int:
        """Answer the requests that come on a queue pair; returns its context."""
        self._clients.append((port, pair, requests))
        return len(self._clients) - 1

    def on_completion(self, host: Host, context: int, message: Message, now: int) -> None:
        if message.d != COMPLETED_RECEIVE:
            return  # of an answer; a connection that broke is its client's to notice
        number = message.b
        if self._clients[context][2][number].kind < DATA_KINDS:
            self._answer(host, context, number)
            return
        done_ps = self.metadata.take(now)
        if done_ps < 0:
            port, pair, _ = self._clients[context]
            immediate = number | REFUSED
            host.post(self.number, port, pair, number, CONTROL_BYTES, POST_WITH_IMMEDIATE, immediate)
            return
        self._waiting.append((done_ps, context, number))
        if len(self._waiting) == 1:
            host.set_timer(self.number, done_ps, 1)

    def on_timer(self, host: Host, subject: int, now: int) -> bool:
        if not self._waiting:
            return False  # the host was lost meanwhile
        _, context, number = self._waiting.pop(0)
        self._answer(host, context, number)
        if self._waiting:
            host.set_timer(self.number, self._waiting[0][0], 1)
        return True

    def on_lost(self, host: Host, gpu_port: int, status: int, now: int) -> None:
        if gpu_port < 0:
            self._waiting.clear()
            self.metadata.free_ps = 0

    def _answer(self, host: Host, context: int, number: int) -> None:
        port, pair, requests = self._clients[context]
        size_bytes = answer_bytes(requests[number])
        host.post(self.number, port, pair, number, size_bytes, POST_WITH_IMMEDIATE, number)

    def save(self) -> list[Plain]:
        waiting: list[Plain] = [list[Plain](one) for one in self._waiting]
        return [self.metadata.free_ps, waiting]

    def load(self, state: list[Plain]) -> None:
        free_ps, waiting = state
        self.metadata.free_ps = as_int(free_ps)
        self._waiting = []
        for one in as_list(waiting):
            done_ps, context, number = as_list(one)
            self._waiting.append((as_int(done_ps), as_int(context), as_int(number)))
