"""Who waits for whom: the chain from a rank down to what holds its frames, and its ends.

The chain is reported in one sentence. It is asked for where a run came to no end. Every link of the chain is
something that a device shows:

1. a rank waits for data, a clear-to-send or an acknowledgement of another rank (its host says so);
2. if that was sent and is not acknowledged (queue pairs with packets outstanding towards the rank's NIC), the
   wait goes on in the fabric: from the sender's NIC along ports that hold frames and may not send them,
   because their peer told them to stop, gave them no credits, or their link is down. A port towards the
   destination goes before another, which can hold frames up as well;
3. if it was not sent, the wait goes on at that other rank;
   Where its call waits for SMs of its GPU, at the rank, of whatever job, whose call holds them;
4. a rank that waits for nobody, a device that says stop and is held up by nobody, or a link that is down is
   the end: the root. A chain that comes back to itself is a circle.

A run that ends at `run.max_time` breaks off whatever is in flight. There a queue pair waits only if nothing
of it was acknowledged for longer than what shares its ends takes to drain (`stuck`), and where packets move
no chain of ranks is reported.

Of all ranks' chains the shortest that ends in the fabric, or at a rank that waits for nobody, is reported.
Where ranks wait for one another in a circle, as those of a ring do, and a suspect is known, the chain ends at
a rank of the suspect's server. Without ranks, chains begin at queue pairs.

Ranks that hold others up. The flight recorders and failures of a job that did not end well already name ranks
that never joined, or called another size (`emu.run_directory.flight_recorder`). Where no other cause
is found the chain of waits is reported.

Queue pairs in error by themselves. NICs log every queue pair that goes into error, with the status of what it
was doing. A queue pair whose retries ran out is a consequence: its way or its peer was lost. One that was not
allowed to send any more, or was flushed alone, is a cause. Where several are, the earliest is.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from actors.fabric.model import Role
from actors.fabric.routes import routes
from actors.kernel.units import serialisation_ps
from actors.ncclx.rank.sm_share import MEMBER
from actors.wire.message import STATUS_FLUSHED, STATUS_NOT_SENDING
from emu.base.units import shown_time
from emu.counts.device_state import PAIR_ERROR, WAIT_ACKNOWLEDGEMENT, WAIT_DATA, WAITS
from emu.summary.jobs import SUCCESS, status_name
from emu.views.diagnosis.finding import Finding
from emu.views.diagnosis.view import View

TIME_LIMIT: Final = "time_limit"
QUIET_PS: Final = 50_000_000
"""For so long a queue pair may hear nothing on an idle fabric: above every round trip that is modelled."""
DRAINS: Final = 4
"""How many times as long as what shares its ends takes on their link: others share the links between."""
_REMOTE: Final = 2
_SENT: Final = 4
_QUIET: Final = 5
"""Columns of table `outstanding`."""
MOST_PORTS: Final = 8
"""Ports of a chain that are reported one by one."""


class Chain(NamedTuple):
    """A chain of waits, and how good it is as an answer: the less the better."""

    grade: int
    """0: ends in the fabric or at a rank that waits for nobody; 1: nothing holds what was sent; 2: at a
    suspect; 3: a circle.
    """
    words: tuple[str, ...]


class _Rank(NamedTuple):
    """A rank that waits."""

    host: int
    operation: int
    why: int
    peer: int
    nic: int
    pair: int


def chain_of_waits(view: View, suspect: str = "") -> str:
    """The sentence; empty if the run came to an end, or nobody waits. `suspect` is a device."""
    if view.ending == "finished" or (view.ending == TIME_LIMIT and not breaks_off(view, suspect)):
        return ""
    ranks = _ranks(view)
    host = host_of(view, suspect)
    chains = [_from_rank(view, ranks, one, host) for one in sorted(ranks)]
    if not chains:
        chains = [_from_pair(view, nic, row) for nic, row in _outstanding(view)]
    if not chains:
        return ""
    return "; ".join(min(chains, key=lambda one: (one.grade, len(one.words))).words)


def host_of(view: View, name: str) -> int:
    """The host of a device in a server; -1 of another."""
    for node in view.topology.nodes:
        if node.name == name and node.host >= 0:
            return view.topology.hosts[node.host]
    return -1


def _ranks(view: View) -> dict[tuple[int, int], _Rank]:
    found = {}
    for host in view.numbers(Role.HOST):
        for job, rank, operation, why, peer, port, pair in view.rows(host, "ranks"):
            if why:
                nic = view.topology.ports(host)[port].peer if port >= 0 else -1
                found[job, rank] = _Rank(host, operation, why, peer, nic, pair)
    return found


def breaks_off(view: View, suspect: str = "") -> bool:
    """Whether somebody waits where the run broke off at its time limit: a queue pair, or, if nothing is in
    flight, whoever the suspect holds up.
    """
    pairs = [nic for nic in view.numbers(Role.NIC) if view.rows(nic, "outstanding")]
    return bool(stuck(view)) if pairs else bool(suspect)


def stuck(view: View) -> list[tuple[int, Sequence[int]]]:
    """NICs and rows of the queue pairs that have waited for longer than what is in flight takes to drain."""
    rows = [(nic, row) for nic in view.numbers(Role.NIC) for row in view.rows(nic, "outstanding")]
    if view.ending != TIME_LIMIT:
        return rows
    sent: Counter[int] = Counter()
    for nic, row in rows:
        sent[nic] += row[_SENT]
        sent[view.topology.nic_at(row[_REMOTE])] += row[_SENT]
    return [(nic, row) for nic, row in rows if _is_stuck(view, nic, row, sent)]


def _is_stuck(view: View, nic: int, row: Sequence[int], sent: Mapping[int, int]) -> bool:
    if row[_SENT] == 0:
        return _blocked_port(view, nic, row[_REMOTE]) is not None
    quiet_ps = row[_QUIET] if len(row) > _QUIET else -1
    ends = nic, view.topology.nic_at(row[_REMOTE])
    rate_bps = min(end.rate_bps for _, end in view.fabric_ports(nic))
    packet_ps = serialisation_ps(view.scenario.transport.mtu_bytes, rate_bps)
    return quiet_ps < 0 or quiet_ps > QUIET_PS + DRAINS * packet_ps * sum(sent[end] for end in ends)


def _outstanding(view: View) -> Iterator[tuple[int, Sequence[int]]]:
    yield from stuck(view)


def _from_rank(view: View, ranks: dict[tuple[int, int], _Rank], start: tuple[int, int], host: int) -> Chain:
    job, rank = start
    words: list[str] = []
    seen: list[tuple[int, int]] = []
    # From each rank on along the strongest evidence: a queue pair on the wire, then SMs that another job
    # holds, then the peer's own wait.
    while (job, rank) not in seen:
        one = ranks[job, rank]
        words.append(_waiting(view, job, rank, one, first=not seen or seen[-1][0] != job))
        seen.append((job, rank))
        way, own = _on_the_wire(view, ranks, job, one), None
        if way is None and one.why == WAIT_DATA:
            way = own = _asked_for(view, ranks, job, one)
        if way is not None:
            more = _from_pair(view, *way)
            if own is not None:
                words.append(f"what rank {rank} sent there, clear-to-sends among it, did not arrive")
            return Chain(more.grade, (*words, *more.words))
        held = _held_by(view, job, one.peer)
        if held is not None:
            name = view.job_name(held[0])
            words.append(f"rank {one.peer} waits for SMs of its GPU, which rank {held[1]} of {name} holds")
            if held in seen:
                return Chain(0, (*words, "and so on in a circle"))
            job, rank = held
            if held not in ranks:
                return Chain(0, tuple(words))
            continue
        if (job, one.peer) not in ranks:
            words.append(f"rank {one.peer} waits for nobody and has not sent it")
            return Chain(0, tuple(words))
        rank = one.peer
        if ranks[job, rank].host == host:
            return Chain(2, (*words, f"rank {rank} is one of {view.name(host)}"))
    circle = seen[seen.index((job, rank)) :]
    return Chain(3, (*words[:2], f"{len(circle)} ranks wait for one another in a circle"))


def _held_by(view: View, job: int, rank: int) -> tuple[int, int] | None:
    """Job and rank whose collectives hold the SMs that a rank's call waits for."""
    for host in view.numbers(Role.HOST):
        for waiting, its, holder in view.rows(host, "sm_waits"):
            if (waiting, its) == (job, rank):
                return holder // MEMBER, holder % MEMBER
    return None


def _waiting(view: View, job: int, rank: int, one: _Rank, first: bool) -> str:
    whose = f"{view.job_name(job)} rank {rank}" if first else f"rank {rank}"
    where = f" on {view.name(one.nic)}" if one.nic >= 0 else ""
    operation = f" in operation {one.operation}" if first else ""
    return f"{whose} waits{operation} for {WAITS[one.why]} from rank {one.peer}{where}"


def _on_the_wire(
    view: View, ranks: dict[tuple[int, int], _Rank], job: int, one: _Rank
) -> tuple[int, Sequence[int]] | None:
    """The sender's NIC and its queue pair with what a rank waits for, if it was posted there."""
    other = ranks.get((job, one.peer))
    for nic, row in _outstanding(view):
        towards = view.topology.nic_at(row[2])
        if one.why == WAIT_ACKNOWLEDGEMENT:
            if nic == one.nic and row[0] == one.pair:
                return nic, row
        elif towards == one.nic and (other is None or view.topology.host_of(nic) == other.host):
            return nic, row
    return None


def _asked_for(
    view: View, ranks: dict[tuple[int, int], _Rank], job: int, one: _Rank
) -> tuple[int, Sequence[int]] | None:
    """What a rank that waits for data has under way to the rank that is to send it: clear-to-sends."""
    other = ranks.get((job, one.peer))
    for nic, row in _outstanding(view):
        towards = view.topology.nic_at(row[2])
        if nic == one.nic and other is not None and view.topology.host_of(towards) == other.host:
            return nic, row
    return None


def _from_pair(view: View, nic: int, row: Sequence[int]) -> Chain:
    """On from a queue pair: what holds its packets."""
    _, qpn, remote, left, sent, *_ = row
    towards = view.topology.nic_at(remote)
    words = (
        f"queue pair {qpn} of {view.name(nic)} has {left} packets that {view.name(towards)} has not "
        f"acknowledged, {sent} of them sent"
    )
    steps = _held(view, nic, remote)
    if not steps:
        lost = f"no port on the way holds them: {view.name(towards)} does, or they or their answer were lost"
        return Chain(1, (words, lost))
    return Chain(0, (words, *steps))


def _held(view: View, nic: int, remote: int) -> list[str]:
    """Ports that hold frames on their way to an address, each because of the next."""
    device, words, seen, holding = nic, list[str](), list[int](), list[int]()
    while True:
        seen.append(device)
        found = _blocked_port(view, device, remote)
        if found is None:
            onwards = _next_hop(view, device, remote)
            if words or onwards is None or onwards in seen:
                break
            device = onwards
            continue
        holding.append(device)
        port, up = found
        peer, _ = view.peer(device, port)
        name = view.port_name(device, port)
        if not up:
            words.append(f"{name} holds frames and its link is down")
            return _short(words)
        words.append(f"{name} holds frames, {_why(view, peer)}")
        if peer in holding:  # A device that frames only pass holds nobody up.
            words.append(f"and so on in a circle through {view.name(peer)}")
            return _short(words)
        device = peer
    if words:
        words.append(f"{view.name(device)} is held up by nobody: the root")
    return _short(words)


def _short(words: list[str]) -> list[str]:
    if len(words) <= MOST_PORTS:
        return words
    left = len(words) - MOST_PORTS
    return [*words[: MOST_PORTS - 2], f"likewise {left + 1} more", words[-1]]


def _why(view: View, peer: int) -> str:
    if view.credited:
        return f"without credits from {view.name(peer)}"
    return f"told to stop by {view.name(peer)}"


def _blocked_port(view: View, device: int, remote: int) -> tuple[int, bool] | None:
    """A port that holds frames and may not send them, and whether its link is up; those on the way first."""
    ports: dict[int, bool] = {}
    for port, waiting, blocked, _, up in view.rows(device, "held"):
        if waiting and (waiting & blocked or not up):
            ports[port] = bool(up)
    for egress, _, _, blocked, up in view.rows(device, "voqs"):
        if blocked or not up:
            ports[egress] = bool(up)
    if not ports:
        return None
    way = _way(view, device, remote)
    best = min(ports, key=lambda port: (port not in way, port))
    return best, ports[best]


def _way(view: View, device: int, remote: int) -> tuple[int, ...]:
    if view.role(device) is not Role.SWITCH:
        return ()
    own, group = routes(view.topology).towards(device, remote)
    return group if own is None else (own,)


def _next_hop(view: View, device: int, remote: int) -> int | None:
    """Who comes next where a device holds nothing: the first that does, of those on the way."""
    if view.role(device) is Role.SWITCH:
        ways = _way(view, device, remote)
        blocked = [port for port in ways if _blocked_port(view, view.peer(device, port)[0], remote)]
        ports = tuple(blocked[:1]) or ways[:1]
    else:
        ports = tuple(port for port, _ in view.fabric_ports(device))[:1]
    return view.peer(device, ports[0])[0] if ports else None


MOST_LINES: Final = 8


def ranks_behind(view: View) -> Iterator[Finding]:
    """Ranks that are behind by themselves; last, who waits for whom."""
    for name, job in view.jobs.items():
        if job.status == SUCCESS:
            continue
        for line in job.suspects:
            for sign, cause, score in (
                ("never joined", "rank_absent", 500),
                (" called ", "rank_mismatch", 955),
            ):
                if sign in line:
                    rank = line.split()[1]
                    yield Finding(
                        cause, f"{name} rank {rank}", score, f"{name}: {line}", (line,), alarms=True
                    )
    lines = waits(view)
    if lines:
        chain = chain_of_waits(view) or lines[0]
        yield Finding("unexplained_wait", chain.split()[0], 100, chain, tuple(lines), alarms=True)


def waits(view: View) -> list[str]:
    """Who waits for whom at the end of a run that came to none: ranks, queue pairs, ports."""
    if view.ending == "finished" or (view.ending == TIME_LIMIT and not breaks_off(view)):
        return []
    lines: list[str] = []
    for host in view.numbers(Role.HOST):
        for job, rank, operation, why, peer, port, pair in view.rows(host, "ranks"):
            where = view.name(view.topology.ports(host)[port].peer) if port >= 0 else "its NIC"
            lines.append(
                f"{view.job_name(job)} rank {rank} waits in operation {operation} for {WAITS[why]} from "
                f"rank {peer}, on {where} queue pair {pair}"
            )
    lines += [_own_wait(view, nic, row) for nic, row in stuck(view)]
    for number in view.networked():
        for port, waiting, blocked, _, up in view.rows(number, "held"):
            if waiting & blocked:
                lines.append(f"{view.port_name(number, port)} holds frames and is told to hold them")
            elif waiting and not up:
                lines.append(f"{view.port_name(number, port)} holds frames and its link is down")
    return lines[:MOST_LINES]


def _own_wait(view: View, nic: int, row: Sequence[int]) -> str:
    _, qpn, remote, left, sent, *_ = row
    towards = view.name(view.topology.nic_at(remote))
    return (
        f"{view.name(nic)} waits for {towards}: queue pair {qpn} has {left} packets unacknowledged, {sent} "
        "of them sent"
    )


def pairs_in_error(view: View) -> Iterator[Finding]:
    """The queue pairs in error by themselves, each NIC once."""
    for nic in view.numbers(Role.NIC):
        rows = [row for row in view.rows(nic, "log") if row[1] == PAIR_ERROR]
        own = [row for row in rows if row[4] in (STATUS_NOT_SENDING, STATUS_FLUSHED)]
        if not own:
            continue
        at_ps, _, pair, qpn, status, _ = own[0]
        name = view.name(nic)
        failed = [
            f"rank {one.rank} of {job} waited for rank {one.peer} on {one.nic}: {one.status}"
            for job, row in view.jobs.items()
            for one in row.failures[:2]
        ]
        yield Finding(
            "qp_error",
            name,
            910,
            f"queue pair {qpn} (index {pair}) of {name} went into error at {shown_time(at_ps)} by itself "
            f"({status_name(status)}), not for want of an answer",
            (f"{name} log at {shown_time(at_ps)}: queue pair {qpn} in error", *failed),
            at_ps,
        )
