"""The queue pairs of a plan in columns: a NIC has a table of numbers, and no object for each queue pair.

A job of 24,576 GPUs has 2.5 million ends of connections. Each is noted, numbered and looked at in loops over
columns; a `QpPlan` is made of a row where somebody asks for one.
"""

from typing import Final, NamedTuple

from mypy_extensions import i64

from actors.kernel.mixing import Stream
from actors.kernel.vectors import append, vec
from actors.nic.queue_pair.numbers import FIRST_UDP_SOURCE, UDP_PURPOSE, UDP_SOURCES, assign_qpns

_LOGS: Final[i64] = 1
_SENDS: Final[i64] = 2
_FLAGS: Final[i64] = 4
_PRIORITY_SHIFT: Final[i64] = 3
_PRIORITY_MASK: Final[i64] = 0xFF
_JOB_SHIFT: Final[i64] = 11
_KINDS: Final = 4
"""Of queue pairs at a NIC: whether data leaves there, and whether it is one of clear-to-sends."""


class QpPlan(NamedTuple):
    """One end of a reliable connection: a queue pair of `nic`, and what it knows of the other end."""

    nic: int
    index: int  # type: ignore[assignment]  # in place of the method of tuples
    qpn: int
    remote_nic: int
    remote_index: int
    remote_qpn: int
    remote_address: int
    udp_source: int
    priority: int
    log_deliveries: bool
    """Whether the NIC notes when each message was delivered here."""
    job: int
    turn: int = 0
    """A bond of n ports sends it by port `turn` modulo n. Where the library opens a queue pair on every port
    it is the place in the connection, the same at both ends; else the place among the queue pairs of its kind
    at the NIC (data leaves, data arrives; the same two of clear-to-sends)."""
    sends: bool = False
    """Whether data leaves here."""


class End(NamedTuple):
    """A queue pair before it has numbers."""

    remote_nic: int
    remote_index: int
    priority: int
    log_deliveries: bool
    job: int
    sends: bool
    """Whether this is the end that data leaves, of a connection for clear-to-sends the end of the sender."""
    flags: bool
    """Whether it carries clear-to-sends."""
    turn: int


class PairColumns:
    """The queue pairs of one NIC, by index."""

    def __init__(self, nic: int) -> None:
        self.nic: i64 = nic
        self.remote_nics: vec[i64] = vec[i64]()
        self.remote_indices: vec[i64] = vec[i64]()
        self.turns: vec[i64] = vec[i64]()
        self.traits: vec[i64] = vec[i64]()
        """Job, priority, and in the last bits what kind it is."""
        self.qpns: vec[i64] = vec[i64]()
        self.remote_qpns: vec[i64] = vec[i64]()
        self.udp_sources: vec[i64] = vec[i64]()
        self._next: vec[i64] = vec[i64]([0] * _KINDS)
        """By kind, how many there are."""

    def __len__(self) -> int:
        return len(self.remote_nics)

    def skip(self, remote_nic: i64, remote_index: i64) -> None:
        """Note a queue pair that is built already, and counts among none of a kind."""
        self.remote_nics = append(self.remote_nics, remote_nic)
        self.remote_indices = append(self.remote_indices, remote_index)
        self.turns = append(self.turns, 0)
        self.traits = append(self.traits, 0)

    def note(
        self,
        remote_nic: i64,
        remote_index: i64,
        priority: i64,
        job: i64,
        *,
        logs: bool,
        sends: bool,
        flags: bool,
        turn: i64 = -1,
    ) -> None:
        """Note a queue pair; without a `turn` it gets the next of its kind."""
        kind: i64 = 0
        if sends:
            kind += _SENDS
        if flags:
            kind += _FLAGS
        place: i64 = kind >> 1
        if turn < 0:
            turn = self._next[place]
            self._next[place] = turn + 1
        if logs:
            kind += _LOGS
        self.remote_nics = append(self.remote_nics, remote_nic)
        self.remote_indices = append(self.remote_indices, remote_index)
        self.turns = append(self.turns, turn)
        self.traits = append(self.traits, job << _JOB_SHIFT | priority << _PRIORITY_SHIFT | kind)

    def priority(self, index: i64) -> i64:
        """That of a queue pair's packets."""
        return self.traits[index] >> _PRIORITY_SHIFT & _PRIORITY_MASK

    def end(self, index: i64) -> End:
        """A queue pair without its numbers."""
        traits: i64 = self.traits[index]
        return End(
            int(self.remote_nics[index]),
            int(self.remote_indices[index]),
            int(self.priority(index)),
            traits & _LOGS != 0,
            int(traits >> _JOB_SHIFT),
            traits & _SENDS != 0,
            traits & _FLAGS != 0,
            int(self.turns[index]),
        )

    def plan(self, index: i64, addresses: dict[int, int]) -> QpPlan:
        """A queue pair with its numbers; `addresses` are those of NICs."""
        traits: i64 = self.traits[index]
        remote = int(self.remote_nics[index])
        return QpPlan(
            int(self.nic),
            int(index),
            int(self.qpns[index]),
            remote,
            int(self.remote_indices[index]),
            int(self.remote_qpns[index]),
            addresses[remote],
            int(self.udp_sources[index]),
            int(self.priority(index)),
            traits & _LOGS != 0,
            int(traits >> _JOB_SHIFT),
            int(self.turns[index]),
            traits & (_SENDS | _FLAGS) == _SENDS,
        )

    # ---- numbers

    def draw_numbers(self, seed: int) -> None:
        """Draw queue pair numbers."""
        self.qpns = vec[i64](assign_qpns(seed, int(self.nic), len(self)))

    def meet(self, others: dict[int, "PairColumns"]) -> None:
        """Learn the numbers of the other ends."""
        found: vec[i64] = vec[i64]([0] * len(self))
        known: i64 = -1
        other = self
        at: i64 = 0
        while at < len(found):
            if self.remote_nics[at] != known:
                known = self.remote_nics[at]
                other = others[int(known)]
            found[at] = other.qpns[self.remote_indices[at]]
            at += 1
        self.remote_qpns = found

    def draw_sources(self, seed: int, by_peer: bool) -> None:
        """Draw UDP source ports, for each queue pair one of its own or for all to a peer the same
        (`actors.nic.queue_pair.numbers.assign_udp_source`).
        """
        stream = Stream(seed, int(self.nic), UDP_PURPOSE)
        found: vec[i64] = vec[i64]([0] * len(self))
        at: i64 = 0
        while at < len(found):
            stream.counter = at
            if by_peer:
                stream.counter = self.remote_nics[at]
            found[at] = FIRST_UDP_SOURCE + stream.below(UDP_SOURCES)
            at += 1
        self.udp_sources = found

    def set_sources(self, ports: list[int]) -> None:
        """Have these UDP source ports."""
        self.udp_sources = vec[i64](ports)


DEALT: Final = -1
"""Each end deals its queue pairs over its ports by itself."""
STRIPED: Final = -2
"""The queue pairs of a connection go over the ports in turn, from the first one on, at both ends."""


def connect(
    own: PairColumns,
    peer: PairColumns,
    priority: i64,
    job: i64,
    count: i64,
    logs: bool,
    flags: bool,
    port: i64 = DEALT,
) -> None:
    """Note so many queue pairs from one NIC to another (or to itself), which logs deliveries if asked to.

    `port` is the port of all of them at both ends, or DEALT, or STRIPED.
    """
    one: i64 = 0
    if own is peer:
        one = 1
    place: i64 = 0
    while place < count:
        index: i64 = len(own)
        other: i64 = len(peer) + one
        turn: i64 = port
        if port == STRIPED:
            turn = place
        own.note(peer.nic, other, priority, job, logs=False, sends=True, flags=flags, turn=turn)
        peer.note(own.nic, index, priority, job, logs=logs, sends=False, flags=flags, turn=turn)
        place += 1
