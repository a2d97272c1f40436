"""Reader of what NCCL writes with `NCCL_DEBUG=INFO`: what it found, what it chose, what was called.

Lines of other programs between NCCL's are passed over. Read are, of the communicator with the most ranks:
servers and ranks (`nRanks 16 nNodes 2 localRanks 8`), rings (`Channel 00/16 : 0 1 ...`), trees (`Trees [0]`),
channels (`16 coll channels`), variables (`NCCL_ALGO set by environment to Ring`), algorithm and protocol of a
size (`-> Algo 1 proto 2`, with `NCCL_DEBUG_SUBSYS=TUNING`) and the calls of its lowest rank (`AllReduce:
opCount 0 ... count 1048576 datatype 7`, with `COLL`).

Source: NCCL 2.12 to 2.28, `src/init.cc`, `src/graph/connect.cc`, `src/enqueue.cc`, `src/collectives.cc`.
"""

import re
from dataclasses import dataclass, field
from typing import Final

from emu.base.errors import FormatError
from emu.scenario.readers.foreign import LONGEST_SHOWN, limited

MOST_LINES: Final = 10**7
MOST_CALLS: Final = 4096
LINE: Final = re.compile(r"\S+:(\d+):\d+ \[(\d+)\] NCCL INFO (.*)$")
_COMM: Final = re.compile(r"comm (0x[0-9a-f]+) rank (\d+) n[rR]anks (\d+)")
_NODES: Final = re.compile(r"nNodes (\d+) localRanks (\d+)")
_RING: Final = re.compile(r"Channel (\d+)/(\d+) :((?: +\d+)+)\s*$")
_CHANNELS: Final = re.compile(r"(\d+) coll channels")
_SET: Final = re.compile(r"(NCCL_\w+) set by environment to (.*?)\.?$")
_CHOICE: Final = re.compile(r"(?:(\w+): )?(\d+) Bytes -> Algo (\w+) proto (\w+)")
_CALL: Final = re.compile(
    r"(\w+): opCount \w+ sendbuff \S+ recvbuff \S+ count (\d+) datatype (\d+) op \d+ root (-?\d+) "
    r"comm (0x[0-9a-f]+) \[nranks=(\d+)\]"
)
_KNOWN: Final = (_COMM, _NODES, _RING, _CHANNELS, _SET, _CHOICE, _CALL)
ALGORITHMS: Final = ("tree", "ring", "collnet_direct", "collnet_chain", "nvls", "nvls_tree", "pat")
"""By NCCL's numbers."""
PROTOCOLS: Final = ("LL", "LL128", "SIMPLE")
ELEMENT_BYTES: Final = (1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1)
"""By NCCL's numbers of types: int8, uint8, int32, uint32, int64, uint64, half, float, double, bfloat16, two
of fp8."""
OPERATIONS: Final = {
    "AllReduce": ("all_reduce", False),
    "Broadcast": ("broadcast", False),
    "Reduce": ("reduce", False),
    "AllGather": ("all_gather", True),
    "ReduceScatter": ("reduce_scatter", True),
    "AlltoAll": ("all_to_all", True),
}
"""By NCCL's names: the operation, and whether `count` is of one rank's block."""


class NcclLogError(FormatError):
    """A log in which nothing of use was found."""


@dataclass
class LoggedCall:
    """A collective of the lowest rank."""

    op: str
    bytes: int
    root: int
    ranks: int


@dataclass
class NcclLog:
    """What a log says."""

    ranks: int = 0
    servers: int = 1
    per_server: int = 0
    channels: int = 0
    rings: list[list[int]] = field(default_factory=list)
    trees: dict[int, str] = field(default_factory=dict)
    """By rank: children, rank and parent in the first tree."""
    variables: dict[str, str] = field(default_factory=dict)
    choices: dict[tuple[str, int], tuple[str, str]] = field(default_factory=dict)
    """By operation (empty: not written down) and bytes: algorithm and protocol."""
    calls: list[LoggedCall] = field(default_factory=list)
    others: int = 0
    """Calls on smaller communicators."""
    unread: dict[str, int] = field(default_factory=dict)
    """Lines of NCCL that say something else, by how they begin, and how many there are."""


def is_nccl_log(text: str) -> bool:
    """Whether lines of NCCL's are in a text."""
    return " NCCL INFO " in text and any(LINE.search(line) for line in text.splitlines()[:2000])


def read_nccl_log(text: str) -> NcclLog:
    """What a log says. Raises NcclLogError."""
    log = NcclLog()
    process = ""
    ranks_of: dict[str, dict[str, int]] = {}
    lines = text.splitlines()
    limited(NcclLogError, 1, len(lines), MOST_LINES, "lines")
    rows = [(at, found) for at, line in enumerate(lines, start=1) if (found := LINE.search(line))]
    for _, found in rows:
        comm = _COMM.search(found[3])
        if comm is not None:
            log.ranks = max(log.ranks, int(comm[3]))
            ranks_of.setdefault(comm[1], {}).setdefault(found[1], int(comm[2]))
    if not log.ranks:
        raise NcclLogError(
            1, "no communicator is made in it", "a log with NCCL_DEBUG=INFO from the beginning"
        )
    whole = {
        (comm[1], found[1])
        for _, found in rows
        if (comm := _COMM.search(found[3])) is not None and int(comm[3]) == log.ranks
    }
    lowest = min(((ranks_of[comm][pid], pid) for comm, pid in whole), default=(0, ""))
    process = lowest[1]
    for at, found in rows:
        _take(log, at, found[3], found[1] == process)
    return log


def _take(log: NcclLog, at: int, text: str, of_lowest: bool) -> None:
    if not any(known.search(text) for known in _KNOWN) and not text.startswith("Trees [0] "):
        begins = re.split(r"[\d:=/\[]", text, maxsplit=1)[0].strip()[:LONGEST_SHOWN] or text[:LONGEST_SHOWN]
        log.unread[begins] = log.unread.get(begins, 0) + 1
        return
    comm, nodes = _COMM.search(text), _NODES.search(text)
    if comm is not None and nodes is not None and int(comm[3]) == log.ranks:
        log.servers, log.per_server = int(nodes[1]), max(log.per_server, int(nodes[2]))
        if text.startswith("comm") and " Trees " in text:
            log.trees[int(comm[2])] = text
        return
    ring = _RING.search(text)
    if ring is not None:
        ranks = [int(one) for one in ring[3].split()]
        if len(ranks) == log.ranks and sorted(ranks) == list(range(log.ranks)):
            log.rings.append(ranks)
        return
    channels = _CHANNELS.search(text)
    if channels is not None and of_lowest and not log.channels:
        log.channels = int(channels[1])
    variable = _SET.search(text)
    if variable is not None:
        log.variables[variable[1]] = variable[2]
    if text.startswith("Trees [0] "):
        first = text.removeprefix("Trees [0] ").split(" ")[0]
        middle = first.split("->")
        if len(middle) == 3 and middle[1].isdecimal():
            log.trees.setdefault(int(middle[1]), first)
    # Every rank writes what it chose; calls are those of the lowest rank alone, or they would count n times.
    choice = _CHOICE.search(text)
    if choice is not None:
        op = OPERATIONS.get(choice[1] or "", ("", False))[0]
        log.choices[op, int(choice[2])] = (_named(choice[3], ALGORITHMS), _named(choice[4], PROTOCOLS))
    call = _CALL.search(text)
    if call is None or not of_lowest:
        return
    if int(call[6]) != log.ranks:
        log.others += 1
        return
    name, count, kind = call[1], int(call[2]), int(call[3])
    if name not in OPERATIONS or kind >= len(ELEMENT_BYTES):
        raise NcclLogError(at, f"calls {name[:40]} of type {kind}", ", ".join(OPERATIONS))
    op, by_block = OPERATIONS[name]
    size = count * ELEMENT_BYTES[kind] * (log.ranks if by_block else 1)
    limited(NcclLogError, at, len(log.calls) + 1, MOST_CALLS, "calls")
    log.calls.append(LoggedCall(op, size, max(0, int(call[4])), log.ranks))


def _named(word: str, names: tuple[str, ...]) -> str:
    """NCCL's name or number of an algorithm or a protocol."""
    if word.isdecimal():
        return names[int(word)] if int(word) < len(names) else word
    return word.lower() if names is ALGORITHMS else word
