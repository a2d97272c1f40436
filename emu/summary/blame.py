"""The rank that is behind when a job does not end, from what the ranks remember.

For each group whose members wait, in this order:

1. a member that has not begun the call that others are in, and is in no call itself, *never joined* it;
2. members that announced another operation, size, root, type or reduction for the same call than most did,
   *called another*;
3. a queue pair that went into error *lost* its peer;
4. if none of that explains it, who is in which call while others wait for it in another: they wait for one
   another in a ring;
5. calls that waited for SMs, or still do, and which rank of which job held them: two jobs on the same GPUs
   that begin in different orders wait for each other so;
6. for whom each rank waited when its watchdog ended its call.

Calls are read off the tables that hosts report. A *group* is a communicator of a job, by its number there: of
a benchmark the colours of its split, of a script what its plan lists. A *call* is known by its group and by
its number among the rank's calls of that group, from 0, so the same call of different ranks has the same
number.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from actors.fabric.model import Topology
from actors.ncclx.operations import announced
from actors.ncclx.rank.sm_share import MEMBER
from actors.wire.message import STATUS_TIMED_OUT
from emu.base.units import shown_time
from emu.counts.collected import DeviceRecord, GroupPlan, JobPlan
from emu.results.summary import Job, RankFailure
from emu.summary.jobs import SUCCESS, status_name

_WAITS = ("nothing", "data", "clear_to_send", "acknowledgement", "error")


class Flight(NamedTuple):
    """One remembered call of one rank, as it announced it."""

    record: int
    """Its number among all calls of the rank."""
    group: int
    number: int
    op: str
    size_bytes: int
    begun_ps: int
    end_ps: int
    """-1 while it runs."""
    dtype: str
    redop: str
    root: int
    """By place in the group."""

    @property
    def done(self) -> bool:
        """Whether it is over."""
        return self.end_ps >= 0


class RankCalls:
    """The calls of one rank."""

    def __init__(self) -> None:
        self.flights: list[Flight] = []
        """Those it remembers, oldest first."""
        self.begun: dict[int, int] = {}
        """By group, how many calls it began."""
        self.ended: dict[int, int] = {}

    def present(self, group: int) -> Flight | None:
        """The call of a group in which it is."""
        return next((one for one in reversed(self.flights) if one.group == group and not one.done), None)

    def waiting(self) -> list[Flight]:
        """All calls in which it is."""
        return [one for one in self.flights if not one.done]


def calls_of(job: int, ranks: int, records: Iterable[DeviceRecord]) -> list[RankCalls]:
    """What the ranks of a job called; nothing where they never joined."""
    found = [RankCalls() for _ in range(ranks)]
    for record in records:
        if not record.results:
            continue
        for number, rank, *row in record.results.get("flights", ()):
            if number == job:
                place, group, call, op, *rest = row
                said = announced(op)
                size_bytes, begun_ps, end_ps = rest
                kind = said.dtype, said.redop, said.root
                flight = Flight(place, group, call, said.op, size_bytes, begun_ps, end_ps, *kind)
                found[rank].flights.append(flight)
        for number, rank, group, begun, ended in record.results.get("called", ()):
            if number == job:
                found[rank].begun[group] = begun
                found[rank].ended[group] = ended
    return found


def failures_of(
    job: int, groups: Sequence[GroupPlan], records: Iterable[DeviceRecord], topology: Topology
) -> list[RankFailure]:
    """The failures of a job's ranks, earliest first."""
    found = []
    for record in records:
        for number, rank, *row in record.results.get("failures", ()):
            if number != job:
                continue
            group, call, status, why, peer, port, qpn, at_ps = row
            nic = topology.nodes[topology.ports(record.number)[port].peer].name if port >= 0 else None
            found.append(
                RankFailure(
                    rank=rank,
                    communicator=groups[group].name if 0 <= group < len(groups) else "",
                    operation=call,
                    status=status_name(status),
                    waits_for=_WAITS[why],
                    peer=peer if peer >= 0 else None,
                    nic=nic,
                    qpn=qpn if qpn >= 0 else None,
                    at_ps=at_ps,
                )
            )
    return sorted(found, key=lambda one: (one.at_ps, one.rank))


MOST_NAMED: Final = 16
MOST_FAILURES: Final = 64
_TIMED_OUT: Final = status_name(STATUS_TIMED_OUT)
_WORDS: Final = {"data": "data", "clear_to_send": "a clear-to-send", "acknowledgement": "an acknowledgement"}


def with_failures(
    topology: Topology,
    plans: Sequence[JobPlan],
    jobs: Mapping[str, Job],
    records: Sequence[DeviceRecord],
) -> dict[str, Job]:
    """The jobs with what their ranks' failures were, and who is to blame for them."""
    found = {}
    names = {plan.job: plan.name for plan in plans}
    for plan in plans:
        job = jobs[plan.name]
        failures = failures_of(plan.job, plan.groups, records, topology)
        calls = calls_of(plan.job, plan.ranks, records)
        suspects = strangers(job) or blame(plan, job, failures, calls, sm_waits(plan, names, records))
        update = {"failures": failures[:MOST_FAILURES], "suspects": suspects}
        found[plan.name] = job.model_copy(update=update)
    return found


def strangers(job: Job) -> list[str]:
    """A line for each rank for which the store waited in vain."""
    init = job.init
    if init is None or init.end_ps is not None:
        return []
    where = f"round {init.done + 1} of {init.rounds} of the init"
    return [f"rank {rank} never came to the store ({where})" for rank in init.missing]


def sm_waits(plan: JobPlan, names: Mapping[int, str], records: Iterable[DeviceRecord]) -> list[str]:
    """A line for each rank of a job whose call waited for SMs and is not over."""
    told = [record.results["sm_waits"] for record in records if "sm_waits" in record.results]
    rows = [row for rows in told for row in rows if row[0] == plan.job]
    lines = []
    for _, rank, group, call, asked_ps, had_ps, holder in sorted(map(tuple, rows)):
        other = f"rank {holder % MEMBER}"
        if holder // MEMBER != plan.job:
            other += f" of job {names[holder // MEMBER]}"
        of = f" of {plan.groups[group].name}" if plan.groups[group].name else ""
        what = f"SMs of its GPU, which {other}"
        if had_ps < 0:
            lines.append(f"rank {rank} waits for {what} holds, in operation {call}{of}")
        else:
            waited = shown_time(had_ps - asked_ps)
            lines.append(f"rank {rank} waited {waited} for {what} held, in operation {call}{of}")
    return lines[:MOST_NAMED]


def blame(
    plan: JobPlan,
    job: Job,
    failures: Sequence[RankFailure],
    calls: Sequence[RankCalls],
    sms: Sequence[str] = (),
) -> list[str]:
    """A line for each rank that is to blame, the plainest cause first; nothing for a job that ended well."""
    if job.status == SUCCESS or not plan.enabled or not plan.groups or not any(one.begun for one in calls):
        return []
    lines = [*_never_joined(plan, calls), *_called_another(plan, calls), *_lost(failures)]
    if not lines:
        lines = _in_a_ring(plan, calls)
    lines += sms
    waiting = [one for one in failures if one.waits_for in _WORDS and one.status == _TIMED_OUT]
    for one in waiting[: 8 if not lines else 3]:
        pair = f", queue pair {one.qpn}" if one.qpn is not None else ""
        wait = f"{_WORDS[one.waits_for]} from rank {one.peer} on {one.nic}{pair}"
        call = calls[one.rank].flights
        flight = next((f for f in call if not f.done and f.number == one.operation), None)
        what = _named(plan, flight) if flight is not None else f"operation {one.operation}"
        lines.append(f"rank {one.rank} waited for {wait} when its watchdog ended {what}")
    return lines


def _named(plan: JobPlan, flight: Flight) -> str:
    """A call in words."""
    group = plan.groups[flight.group]
    of = f" of {group.name}" if group.name else ""
    ends = f", rank {group.ranks[0]} to rank {group.ranks[1]}" if group.points else ""
    return f"{flight.op} (operation {flight.number}{of}{ends})"


def _waited_for(plan: JobPlan, calls: Sequence[RankCalls]) -> list[tuple[int, GroupPlan, Flight]]:
    """For every group whose members wait, the call of the member that came furthest. Transfers come last."""
    found = []
    for number, group in enumerate(plan.groups):
        present = [one for rank in group.ranks if (one := calls[rank].present(number)) is not None]
        if present:
            found.append((number, group, max(present, key=lambda one: one.number)))
    return sorted(found, key=lambda one: one[1].points)


def _never_joined(plan: JobPlan, calls: Sequence[RankCalls]) -> list[str]:
    lines: dict[int, str] = {}
    for number, group, furthest in _waited_for(plan, calls):
        for rank in group.ranks:
            late = calls[rank].begun.get(number, 0) <= furthest.number
            if late and not calls[rank].waiting() and rank not in lines:
                op = furthest
                if group.points:
                    op = furthest._replace(op="recv" if furthest.op == "send" else "send")
                lines[rank] = f"rank {rank} never joined {_named(plan, op)}"
    return [lines[rank] for rank in sorted(lines)][:MOST_NAMED]


def _called_another(plan: JobPlan, calls: Sequence[RankCalls]) -> list[str]:
    lines: list[str] = []
    for number, group, _ in _waited_for(plan, calls):
        announced: dict[int, dict[int, tuple[object, ...]]] = {}
        for rank in group.ranks:
            for flight in calls[rank].flights:
                if flight.group == number:
                    op = "send" if flight.op == "recv" else flight.op
                    said = op, flight.size_bytes, flight.root, flight.dtype, flight.redop
                    announced.setdefault(flight.number, {})[rank] = said
        for call in sorted(announced):
            by_rank = announced[call]
            all_said = list(by_rank.values())
            usual = max(all_said, key=lambda one: (all_said.count(one), -all_said.index(one)))
            right = [rank for rank, one in by_rank.items() if one == usual]
            wrong = [rank for rank, one in by_rank.items() if one != usual]
            if wrong:
                who = f"the {len(right)} others" if len(right) > 1 else f"rank {right[0]}"
                theirs = _call_of(calls[right[0]], number, call)
                mine = [(rank, _call_of(calls[rank], number, call)) for rank in wrong]
                lines += [_mistake(plan, rank, one, who, theirs) for rank, one in mine]
                break
    return lines[:MOST_NAMED]


def _call_of(calls: RankCalls, group: int, number: int) -> Flight:
    return next(one for one in calls.flights if (one.group, one.number) == (group, number))


def _mistake(plan: JobPlan, rank: int, mine: Flight, who: str, theirs: Flight) -> str:
    pair = {mine.op, theirs.op} == {"send", "recv"}
    other = "" if mine.op == theirs.op or pair else f"{theirs.op} "
    return (
        f"rank {rank} called {_named(plan, mine)} {_with(mine, theirs)}, {who} {other}{_with(theirs, mine)}"
    )


def _with(mine: Flight, theirs: Flight) -> str:
    """The size of a call, and in what else it differs from another."""
    said = [f"{mine.size_bytes} B"]
    if mine.root != theirs.root:
        said.append(f"root {mine.root}")
    if mine.dtype != theirs.dtype:
        said.append(mine.dtype)
    if mine.redop != theirs.redop:
        said.append(mine.redop)
    return "with " + " and ".join(said)


def _lost(failures: Sequence[RankFailure]) -> list[str]:
    return [
        f"rank {one.rank} lost rank {one.peer} at {shown_time(one.at_ps)}: "
        f"queue pair {one.qpn} of {one.nic}: {one.status}"
        for one in failures
        if one.status != _TIMED_OUT
    ]


def _in_a_ring(plan: JobPlan, calls: Sequence[RankCalls]) -> list[str]:
    """Who is in which call while others wait for it in another."""
    lines: list[str] = []
    for number, group, furthest in _waited_for(plan, calls):
        for rank in group.ranks:
            elsewhere = [one for one in calls[rank].waiting() if one.group != number]
            if calls[rank].begun.get(number, 0) <= furthest.number and elsewhere:
                lines.append(
                    f"rank {rank} is in {_named(plan, elsewhere[0])} while others wait for it in "
                    f"{_named(plan, furthest)}"
                )
    return lines[:MOST_NAMED]
