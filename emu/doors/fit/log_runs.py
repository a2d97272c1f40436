"""What a scenario answers to the tests of a log: runs at packet level, one for all sizes of a log.

A log of nccl-tests is a job of that collective with one warm-up. Logs of perftest are flows between GPUs of
two servers: for a bandwidth test as many messages as fill the path, and their time a message; for a latency
test one message, from its post until the CPU of the receiver has seen it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

from actors.fabric.model import Role
from emu.api import prepare, run_prepared
from emu.base.errors import RuntimeFailure, UsageError
from emu.base.shipped import scenario_named
from emu.base.units import counted
from emu.doors.fit.read_counters import counted_by
from emu.doors.fit.read_logs import Log
from emu.engine.outcome import RunOptions
from emu.many_runs import Machines, carried
from emu.many_runs import answers as worked_out
from emu.scenario.load import Loaded, load
from emu.scenario.set_options import Override, override_with

Settings = Mapping[str, str]
"""Keys of a scenario and their values, as `--set` takes them."""
FILLING_BYTES: Final = 4 << 20
LEAST_MESSAGES: Final = 8
APART_US: Final = 200_000
CLOSED_BYTES: Final = 64 << 20
"""Above, times are a line in the size: a closed form, until packets confirm the fit."""


class Answer(NamedTuple):
    """What a log's sizes take."""

    times_us: tuple[float, ...]
    ways: tuple[str, ...]
    """How the library did each, in words; empty of perftest."""
    counters: tuple[tuple[str, int], ...] = ()
    """What the NICs counted of PFC, ECN and recovery, by the names of real ones."""


class Question(NamedTuple):
    """One run: these sizes of a log, with these changes."""

    log: Log
    settings: tuple[tuple[str, str], ...]


class Model:
    """A scenario that is asked for the times of logs."""

    def __init__(
        self, scenario: str, overrides: Sequence[Override], variant: str, machines: Machines
    ) -> None:
        _, named = scenario_named(scenario)
        self._load = partial(_loaded, scenario, tuple(overrides), variant or named)
        self._machines = machines
        self._path = scenario
        self._known: dict[Question, Answer] = {}
        first = prepare(
            self._load(
                [{"name": "fit", "workload": {"kind": "collective", "op": "barrier", "sizes": ["4B"]}}], ()
            )
        )
        self._topology = first.topology
        self.scenario = first.scenario

    def nic_bps(self) -> int:
        """The rate of the slowest NIC, all ports together."""
        topology = self._topology
        rates = dict.fromkeys(topology.nics, 0)
        for link in topology.links:
            for end, other in ((link.a, link.b), (link.b, link.a)):
                if end in rates and topology.nodes[other].role is Role.SWITCH:
                    rates[end] += link.rate_bps
        return min(rates.values())

    def _gpus(self, log: Log) -> list[int] | str:
        """Which GPUs, by number, are the ranks of a log: equally many of each of the first servers. Raises
        UsageError."""
        topology = self._topology
        if not log.servers:
            return "all"
        each = -(-log.ranks // log.servers)
        by_host: dict[int, list[int]] = {}
        for number, gpu in enumerate(topology.gpus):
            by_host.setdefault(topology.host_of(gpu), []).append(number)
        chosen = [gpus[:each] for gpus in by_host.values() if len(gpus) >= each][: log.servers]
        if len(chosen) < log.servers:
            raise UsageError(
                f"{log.file}: {counted(log.ranks, 'rank')} on {counted(log.servers, 'server')}; the scenario"
                f" has {counted(len(chosen), 'server')} with {counted(each, 'GPU')}; accepted: a scenario of"
                " servers like the log's"
            )
        return [number for gpus in chosen for number in gpus][: log.ranks]

    def ask(self, questions: Sequence[tuple[Log, Settings]], closed: bool = False) -> list[Answer]:
        """What these logs' sizes take with these changes, in order; what was asked before is remembered.

        With `closed`, sizes above `CLOSED_BYTES` follow from the two largest below by a closed form: each
        further byte takes as long as between those two.
        """
        if closed:
            short = [(_up_to_closed(log), settings) for log, settings in questions]
            return [_prolonged(log, one) for (log, _), one in zip(questions, self.ask(short), strict=True)]
        wanted = [Question(log, tuple(settings.items())) for log, settings in questions]
        new = [one for one in dict.fromkeys(wanted) if one not in self._known]
        ready = partial(carried, files=[self._path])
        items = [(one, _jobs(one.log, self._gpus(one.log))) for one in new]
        answered = worked_out(self._machines, partial(_answer, self._load), items, ready)
        for one, answer in zip(new, answered, strict=True):
            self._known[one] = answer
        return [self._known[one] for one in wanted]


def _answer(load: Callable[..., Loaded], asked: tuple[Question, list[object]]) -> Answer:
    """What a question's run answers, here or on a node."""
    question, jobs = asked
    log = question.log
    prepared = prepare(load(jobs, question.settings))
    result = run_prepared(prepared, RunOptions(local=True, metrics=False), diagnose=False)
    summary = result.summary
    if any(job.status != "success" for job in summary.jobs.values()):
        settings = ", ".join(f"{key}={value}" for key, value in question.settings) or "the scenario alone"
        raise RuntimeFailure(f"{log.file}: the run with {settings} did not succeed: {result.verdict}")
    counters = tuple(counted_by(result.outcome.devices, prepared.topology.nics).items())
    if not log.operation.endswith(("_bw", "_lat")):
        job = summary.jobs["fit"]
        done = {one.bytes: ((one.end_ps or 0) - (one.start_ps or 0)) / 1e6 for one in job.collectives}
        ways = {
            one.size_bytes: f"{one.algorithm}, {one.protocol}, {counted(one.channels, 'channel')}"
            for one in prepared.jobs[0].collectives
        }
        sizes = [row.size_bytes for row in log.rows]
        times_us = tuple(done[size] for size in sizes)
        return Answer(times_us, tuple(ways[size] for size in sizes), counters)
    host = prepared.scenario.host
    seen_ps = host.proxy_cost_ps + (
        host.link_delay_ps if host.nic_link_delay_ps is None else host.nic_link_delay_ps
    )
    times = []
    for number, row in enumerate(log.rows):
        (flow,) = summary.jobs[f"size_{number}"].flows
        took_ps = (flow.delivered_ps or 0) - (flow.start_ps or 0)
        if log.operation == "write_bw":
            times.append(took_ps / 1e6 / _messages(row.size_bytes))
        else:
            times.append((took_ps + seen_ps) / 1e6)
    return Answer(tuple(times), tuple("" for _ in log.rows), counters)


def _up_to_closed(log: Log) -> Log:
    rows = [row for row in log.rows if row.size_bytes <= CLOSED_BYTES]
    return log if len(rows) < LEAST_BELOW else log._replace(rows=tuple(rows))


LEAST_BELOW: Final = 3


def _prolonged(log: Log, answer: Answer) -> Answer:
    """The answer for all sizes of the log from that for those below."""
    times, ways = list(answer.times_us), list(answer.ways)
    have = len(times)
    for row in log.rows[have:]:
        one, two = log.rows[have - 2], log.rows[have - 1]
        slope = (answer.times_us[-1] - answer.times_us[-2]) / (two.size_bytes - one.size_bytes)
        times.append(answer.times_us[-1] + slope * (row.size_bytes - two.size_bytes))
        ways.append(answer.ways[-1])
    return Answer(tuple(times), tuple(ways))


def _messages(size_bytes: int) -> int:
    return max(FILLING_BYTES // size_bytes, LEAST_MESSAGES) if size_bytes < FILLING_BYTES else LEAST_MESSAGES


def _jobs(log: Log, gpus: list[int] | str) -> list[object]:
    if not log.operation.endswith(("_bw", "_lat")):
        sizes = [f"{row.size_bytes}B" for row in log.rows]
        workload = {"kind": "collective", "op": log.operation, "sizes": sizes, "iterations": 1, "warmup": 1}
        return [{"name": "fit", "ranks": gpus, "workload": workload}]
    jobs: list[object] = []
    for number, row in enumerate(log.rows):
        count = _messages(row.size_bytes) if log.operation == "write_bw" else 1
        flow = {"src": 0, "dst": 1, "size": f"{row.size_bytes * count}B"}
        workload = {
            "kind": "flows",
            "verb": "send" if log.operation == "send_lat" else "write",
            "qps": log.queue_pairs,
            "message": f"{row.size_bytes}B",
            "flows": [flow],
        }
        one: dict[str, object] = {"name": f"size_{number}", "start": f"{number * APART_US}us"}
        jobs.append({**one, "ranks": gpus, "workload": workload})
    return jobs


def _loaded(
    scenario: str,
    overrides: tuple[Override, ...],
    variant: str,
    jobs: list[object],
    settings: Sequence[tuple[str, str]],
) -> Loaded:
    emptied = {"jobs": jobs, "faults": [], "expect": [], "run.sample_every": "10s"}
    changes = [override_with(key, value, "emu fit") for key, value in emptied.items()]
    changes += [*overrides, *(override_with(key, value, "emu fit") for key, value in settings)]
    return load(scenario_named(scenario)[0], changes, variant)
