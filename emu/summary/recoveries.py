"""What an operator did: each restart of the job it tends, what every part of it took, and where time went.

Times follow from the operator's own rows (`actors.control.operator`): a part lasts from its row to the next.
A step that was done several times counts the last time; the others, and the one that was under way at an
alarm, are work done again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal

from actors.control import operator as noted
from actors.fabric.model import Topology
from emu.base.units import about_time, distinct_texts, shown_time
from emu.counts.collected import DeviceRecord, JobPlan, TendedFacts
from emu.results.summary import (
    HostHealth,
    OperatorResult,
    Recovery,
    RecoveryTimes,
    ReportedHost,
    SavedCheckpoint,
    SelfCheck,
    TimeSpent,
)

RULES: Final[tuple[Literal["missed", "failed", "silent", "rows", "straggler", "stalled"], ...]] = (
    "missed",
    "failed",
    "silent",
    "rows",
    "straggler",
    "stalled",
)
PLANNED: Final = ("rows", "straggler")
"""Rules after which the job goes on to its next checkpoint first."""
WORDS: Final = (
    "begun",
    "noticed",
    "stopped",
    "checked",
    "evicted",
    "placed",
    "launched",
    "met",
    "loaded",
    "resumed",
    "saving",
    "saved",
    "left_out",
    "done",
    "gave_up",
    "reported",
)
"""What a row tells, in the words of the journal."""
REASONS: Final[tuple[Literal["no_spare", "no_restart"], ...]] = ("no_spare", "no_restart")


PARTS: Final = (noted.BEGUN, noted.STOPPED, noted.CHECKED, noted.LAUNCHED, noted.MET, noted.RESUMED)
"""Rows that end a part of a recovery."""
STEPPED: Final = (noted.STOPPED, noted.RESUMED, noted.SAVING, noted.SAVED, noted.LOADED, noted.LEFT_OUT)
"""Rows that name a step."""


def operator_rows(records: Iterable[DeviceRecord]) -> list[list[int]]:
    """The operator's rows."""
    return [list(row) for record in records for row in record.results.get("operator", ())]


Entry = tuple[str, int, dict[str, Any]]
"""A line of the journal: kind, time and facts."""


def operator_entries(
    plans: Sequence[JobPlan], topology: Topology, rows: Iterable[Sequence[int]]
) -> Iterator[Entry]:
    """The journal's lines about an operator's rows."""
    names = topology.nodes
    facts = next((plan.tended for plan in plans if plan.tended is not None), None)
    if facts is None:
        return
    for at_ps, what, a, b in rows:
        entry: dict[str, Any] = {"job": facts.job, "what": WORDS[what]}
        if what in (noted.NOTICED, noted.REPORTED):
            entry |= {"rule": RULES[a]} | ({"host": names[b].name} if b >= 0 else {})
        elif what == noted.CHECKED:
            entry |= {"test": facts.tests[a], "failed": b}
        elif what == noted.EVICTED:
            entry |= {"host": names[a].name}
        elif what == noted.PLACED:
            entry |= {"host": names[a].name, "for": names[b].name}
        elif what == noted.GAVE_UP:
            entry |= {"why": REASONS[a]}
        elif what in STEPPED:
            entry |= {"step": a}
        yield "operator", at_ps, entry


def entry_line(entry: Entry) -> str:
    """The same for somebody who watches."""
    _, at_ps, facts = entry
    rest = [f"{key} {value}" for key, value in facts.items() if key not in ("job", "what", "host")]
    on = f" {facts['host']}" if "host" in facts else ""
    more = f" ({', '.join(rest)})" if rest else ""
    return f"{shown_time(at_ps)}: operator of {facts['job']}: {facts['what'].replace('_', ' ')}{on}{more}"


def operator_result(
    facts: TendedFacts,
    rows: Sequence[Sequence[int]],
    operations: Sequence[Sequence[int]],
    names: Mapping[int, str],
    virtual_ps: int,
    health: Sequence[Sequence[int]] = (),
) -> OperatorResult:
    """From the operator's rows, those of its hosts' health, and those of the operations of all incarnations
    (job, step, start_ps, end_ps, status) in their order.
    """
    begun_ps = rows[0][0] if rows else 0
    last = rows[-1] if rows else (0, noted.BEGUN, 0, 0)
    ended = last[1] in (noted.DONE, noted.GAVE_UP)
    end_ps = last[0] if ended else max(virtual_ps, begun_ps)
    steps = {row[1]: (row[2], row[3]) for row in operations}
    recoveries = list(_recoveries(facts, rows, operations, names))
    saved = [
        SavedCheckpoint(step=row[2], begun_ps=row[0], whole_ps=None) for row in rows if row[1] == noted.SAVING
    ]
    for at, one in enumerate(saved):
        until_ps = saved[at + 1].begun_ps if at + 1 < len(saved) else end_ps
        whole = [
            row[0]
            for row in rows
            if row[1:3] == [noted.SAVED, one.step] and one.begun_ps <= row[0] <= until_ps
        ]
        saved[at] = one.model_copy(update={"whole_ps": whole[0] if whole else None})
    return OperatorResult(
        job=facts.job,
        ending="done" if last[1] == noted.DONE else "gave_up" if last[1] == noted.GAVE_UP else "unfinished",
        reason=REASONS[last[2]] if last[1] == noted.GAVE_UP else None,
        begun_ps=begun_ps,
        end_ps=end_ps,
        steps=len(steps),
        restarts=recoveries,
        checkpoints=saved,
        left_out=sum(row[1] == noted.LEFT_OUT for row in rows),
        reported=[
            ReportedHost(rule=RULES[rule], host=names[host], at_ps=at_ps)
            for at_ps, what, rule, host in rows
            if what == noted.REPORTED
        ],
        health=[
            HostHealth(
                host=names[host],
                busiest_bps=most_bytes * 8 * 10**12 // facts.sample_ps,
                longest_stall_ps=stall_ps,
            )
            for host, most_bytes, stall_ps in health
        ],
        **_spent(steps, operations, recoveries, begun_ps, end_ps),
    )


def _spent(
    steps: Mapping[int, tuple[int, int]],
    operations: Sequence[Sequence[int]],
    recoveries: Sequence[Recovery],
    begun_ps: int,
    end_ps: int,
) -> dict[str, Any]:
    """Where time went, and the share of it that counts."""
    kept_ps = sum(end - start for start, end in steps.values())
    redone_ps = sum(row[3] - row[2] for row in operations) - kept_ps
    whole_ps = end_ps - begun_ps
    took = [one.took for one in recoveries]
    spent = {
        "kept_ps": kept_ps,
        "redone_ps": redone_ps,
        "noticing_ps": sum(one.noticed_ps - one.since_ps for one in recoveries),
        "stopping_ps": sum(one.stop_ps for one in took),
        "self_check_ps": sum(one.self_check_ps for one in took),
        "launch_ps": sum(one.launch_ps for one in took),
        "init_ps": sum(one.init_ps for one in took),
        "load_ps": sum(one.load_ps for one in took),
    }
    spent["between_ps"] = whole_ps - sum(spent.values())
    return {"goodput": round(kept_ps / whole_ps, 6) if whole_ps else 0.0, "spent": TimeSpent(**spent)}


def _recoveries(
    facts: TendedFacts,
    rows: Sequence[Sequence[int]],
    operations: Sequence[Sequence[int]],
    names: Mapping[int, str],
) -> Iterator[Recovery]:
    """Each alarm, and what followed until the next one."""
    begins = [at for at, row in enumerate(rows) if row[1] == noted.STOPPED]
    for number, at in enumerate(begins):
        until = begins[number + 1] if number + 1 < len(begins) else len(rows)
        alarm = max(place for place in range(at) if rows[place][1] == noted.NOTICED)
        after = rows[at:until]
        if number + 1 < len(begins):  # the next alarm is not a part of this
            after = [row for row in after if row[1] != noted.NOTICED]
        yield _recovery(facts, rows[:alarm], rows[alarm], after, operations, names)


def _recovery(
    facts: TendedFacts,
    before: Sequence[Sequence[int]],
    alarm: Sequence[int],
    after: Sequence[Sequence[int]],
    operations: Sequence[Sequence[int]],
    names: Mapping[int, str],
) -> Recovery:
    """One. `after` begins with the row that says that the job stopped."""
    stopped_ps, step = after[0][0], after[0][2]
    planned = RULES[alarm[2]] in PLANNED
    noticed_ps = stopped_ps - facts.stop_ps if planned else alarm[0]
    at_ps = {row[1]: row[0] for row in after}
    checks, last_ps = [], stopped_ps
    for row in after:
        if row[1] == noted.CHECKED:
            checks.append(SelfCheck(test=facts.tests[row[2]], failed=row[3], took_ps=row[0] - last_ps))
            last_ps = row[0]
    launched_ps = at_ps.get(noted.LAUNCHED)
    met_ps = at_ps.get(noted.MET, launched_ps)
    resumed_ps = at_ps.get(noted.RESUMED)
    done_ps = [row[3] for row in operations if row[3] <= noticed_ps]
    parts_ps = [row[0] for row in before if row[1] in PARTS]
    first = [row[2] for row in after if row[1] == noted.RESUMED]
    again = [
        row[3] for row in operations if resumed_ps is not None and row[2] >= resumed_ps and row[1] == step - 1
    ]
    return Recovery(
        rule=RULES[alarm[2]],
        host=names.get(alarm[3], ""),
        alarm_ps=alarm[0],
        since_ps=noticed_ps if planned else max([*done_ps, *parts_ps]),
        noticed_ps=noticed_ps,
        stopped_ps=stopped_ps,
        checks=checks,
        evicted=[names[row[2]] for row in after if row[1] == noted.EVICTED],
        placed=[f"{names[row[2]]} for {names[row[3]]}" for row in after if row[1] == noted.PLACED],
        resumed_ps=resumed_ps,
        from_step=first[0] if first else None,
        lost_steps=step - first[0] if first else None,
        caught_up_ps=resumed_ps if first and first[0] >= step else min(again, default=None),
        took=RecoveryTimes(
            stop_ps=stopped_ps - noticed_ps,
            self_check_ps=last_ps - stopped_ps,
            launch_ps=launched_ps - last_ps if launched_ps is not None else 0,
            init_ps=met_ps - launched_ps if launched_ps is not None and met_ps is not None else 0,
            load_ps=resumed_ps - met_ps if resumed_ps is not None and met_ps is not None else 0,
            whole_ps=resumed_ps - noticed_ps if resumed_ps is not None else 0,
        ),
    )


def operator_lines(result: OperatorResult | None) -> list[str]:
    """What became of the job that an operator tends."""
    if result is None:
        return []
    lines = [
        f"# {result.job}: reported {one.host}, {one.rule}, at {at}"
        for one, at in zip(
            result.reported, distinct_texts([one.at_ps for one in result.reported]), strict=True
        )
    ]
    for one in result.restarts:
        where = f" on {one.host}" if one.host else ""
        took = one.took
        parts = [
            ("stop", took.stop_ps, True),
            ("self-check", took.self_check_ps, bool(one.checks)),
            ("launch", took.launch_ps, one.resumed_ps is not None),
            ("init", took.init_ps, one.resumed_ps is not None),
            ("load", took.load_ps, one.resumed_ps is not None),
        ]
        said = ", ".join(f"{part} {about_time(ps)}" for part, ps, done in parts if done or ps > 0)
        moments = [one.alarm_ps, one.noticed_ps, *([] if one.resumed_ps is None else [one.resumed_ps])]
        alarm, noticed, *resumed = distinct_texts(moments)
        when = f"noticed at {alarm}"
        if one.rule in PLANNED:
            when += f", stopped after a checkpoint at {noticed}"
        lines.append(f"# {result.job}: {one.rule}{where}, {when}: {said}")
        if not resumed:
            continue
        moved = ", ".join(one.placed) or "on the same hosts"
        lost = "1 step" if one.lost_steps == 1 else f"{one.lost_steps} steps"
        lines.append(f"#   {moved}; goes on at {resumed[0]}, step {one.from_step}, {lost} again")
    why = {"no_spare": ": no spare host is left", "no_restart": ": no restart is left", None: ""}[
        result.reason
    ]
    ending = {"done": "done", "gave_up": f"given up{why}", "unfinished": "not done"}[result.ending]
    whole = (
        f"{result.steps} steps {ending}"
        if result.ending == "done"
        else f"{ending}, after {result.steps} steps"
    )
    return [*lines, f"# {result.job}: {whole}; goodput {result.goodput:.1%}"]
