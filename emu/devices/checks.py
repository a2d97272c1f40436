"""Checks before a run: of plug-ins, of paths from senders to receivers, of real payload.

A plug-in is a class of the user's own in the place of a policy. One that cannot be made is refused before the
run, by key, with Python's own reason. One that fails in the run ends it as a failure of the runtime, and what
is reported is where in the user's file that was, not where in ours.

Not modelled: what a plug-in does to other devices behind the kernel's back.

Real payload that is reduced must not be cut between the bytes of an element, and all of it must fit memory.

Most fabrics join all their NICs, and then every sender reaches its receivers. Rails that nothing joins do
not: a job whose ranks would have to send from rail to rail is refused before it runs, rather than time out in
it.
"""

from __future__ import annotations

import linecache
import re
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final

from actors.fabric.model import FABRIC, Role, Topology, prefix_of
from actors.fabric.routes import routes
from actors.gpu.memory import ELEMENT_BYTES
from actors.host.host import POSTED
from actors.kernel.mixing import Stream
from actors.kernel.queue import EventQueue
from actors.ncclx.operations import TO_ALL
from actors.ncclx.payload import Part, parts_of
from actors.ncclx.script import UNLABELLED, GroupCall
from actors.switch.ecn import EgressQueue
from actors.wire.message import POST_READ
from emu.base.errors import EmuError, Problem, RuntimeFailure, ScenarioError
from emu.base.units import format_size
from emu.devices.buffer_sizes import shared_pool_bytes
from emu.devices.nics import arbiter_of, control_of, recovery_of
from emu.devices.plan import Plan
from emu.devices.switches import aqm_of, build_switch, pool_of, scheduler_of
from emu.scenario.plugins import SEPARATOR, HookFailure, load_plugin
from emu.scenario.schema import Scenario

MOST_SHOWN: Final = 16
SOURCES: Final = Path(__file__).parents[2]
"""Where `actors` and `emu` are."""
SHOWN_FRAMES: Final = 8
"""The deepest frame in the user's files."""
MOST_HELD_BYTES: Final = 1 << 30
"""Real payload of all ranks together."""


def own_classes(scenario: Scenario) -> dict[str, str]:
    """Classes of the user's own, `module:Class`, by key."""
    named = {"routing.kind": scenario.routing.kind}
    for place, view in _views(scenario):
        named |= {
            f"{place}transport.congestion_control.kind": view.transport.congestion_control.kind,
            f"{place}transport.recovery.kind": view.transport.recovery.kind,
            f"{place}transport.kind": view.transport.kind,
            f"{place}nic.arbiter.kind": view.nic.arbiter.kind,
            f"{place}switch.buffer.admission.kind": view.switch.buffer.admission.kind,
            f"{place}switch.ecn.kind": view.switch.ecn.kind,
            f"{place}switch.scheduling.kind": view.switch.scheduling.kind,
        }
    for at, job in enumerate(scenario.jobs):
        operations = getattr(job.workload, "operations", ())
        named[f"jobs[{at}].workload.algorithm"] = str(getattr(job.workload, "algorithm", ""))
        for number, operation in enumerate(operations):
            key = f"jobs[{at}].workload.operations[{number}].algorithm"
            named[key] = str(getattr(operation, "algorithm", ""))
    return {key: name for key, name in named.items() if SEPARATOR in name}


def _views(scenario: Scenario) -> Iterator[tuple[str, Scenario]]:
    """The scenario, and what each override makes of it, with where that stands."""
    for at, view in enumerate(scenario.every):
        yield f"overrides[{at - 1}]." if at else "", view


def check_made(scenario: Scenario, topology: Topology) -> None:
    """See whether devices can be made: buffers in which something is left to share, and one of each class of
    the user's own. Raises ScenarioError."""
    for switch in topology.switches:
        shared_pool_bytes(scenario, topology, switch)
    rate_bps = max(end.rate_bps for nic in topology.nics for end in topology.ports(nic) if end.kind == FABRIC)
    trial_queue = EgressQueue("switch", 0, 0, rate_bps, Stream(0, 0, 0))
    trials: dict[str, Callable[[], object]] = {
        "routing.kind": lambda: [
            build_switch(scenario, topology, switch, EventQueue(), _no_outbox)
            for switch in topology.switches[:1]
        ],
    }
    largest = scenario.largest_frame_bytes
    for place, view in _views(scenario):
        trials |= {
            f"{place}transport.congestion_control.kind": partial(
                control_of, view.transport.congestion_control, rate_bps, view.transport.mtu_bytes
            ),
            f"{place}transport.recovery.kind": partial(recovery_of, view.transport, rate_bps),
            f"{place}transport.kind": partial(recovery_of, view.transport, rate_bps),
            f"{place}nic.arbiter.kind": partial(arbiter_of, view.nic.arbiter, largest),
            f"{place}switch.buffer.admission.kind": partial(pool_of, view.switch.buffer, largest, 1, 0),
            f"{place}switch.ecn.kind": partial(aqm_of, view.switch.ecn, trial_queue),
            f"{place}switch.scheduling.kind": partial(scheduler_of, view.switch.scheduling, largest),
        }
    problems = []
    for key, name in own_classes(scenario).items():
        if key not in trials:  # an algorithm, which was made when it was read
            continue
        try:
            trials[key]()
        except EmuError:
            raise
        except SystemExit as error:
            called = f"its `__init__` called sys.exit({error.code!r})"
            raise RuntimeFailure(f"{key}: {name}: {called}") from error
        except Exception as error:  # noqa: BLE001  whatever somebody else's code raises
            reason = f"{name!r} cannot be made: {type(error).__name__}: {' '.join(str(error).split())}"
            accepted = "a class whose instances can be made as those of its base are"
            problems.append(Problem(scenario.name, 0, key, reason[:400], accepted))
    if problems:
        raise ScenarioError(problems)


@contextmanager
def blaming(scenario: Scenario) -> Iterator[None]:
    """Tell a failure in a file of the user's own as that, by key. Raises RuntimeFailure."""
    try:
        yield
    except HookFailure as error:
        keys = [key for key, name in own_classes(scenario).items() if name == error.plugin]
        raise RuntimeFailure(": ".join([*keys[:1], str(error)])) from error
    except EmuError:
        raise
    except (Exception, SystemExit) as error:
        modules = {name.partition(SEPARATOR)[0]: key for key, name in own_classes(scenario).items()}
        found = [
            (str(frame.f_globals["__name__"]), frame.f_code, line)
            for frame, line in traceback.walk_tb(error.__traceback__)
            if frame.f_globals.get("__name__") in modules
        ]
        if not found:
            _blame_a_hook(scenario, error)
            raise
        key = modules[found[-1][0]]
        if isinstance(error, SystemExit):
            _, code, line = found[-1]
            called = f"`{code.co_name}` called sys.exit({error.code!r}) ({code.co_filename}:{line})"
            raise RuntimeFailure(f"{key}: {own_classes(scenario)[key]}: its {called}") from error
        lines = [f"{key}: {own_classes(scenario)[key]} failed: {type(error).__name__}: {error}"]
        for _, code, line in found[-SHOWN_FRAMES:]:
            lines.append(f"  {code.co_filename}:{line} in {code.co_name}")
        raise RuntimeFailure("\n".join(lines)) from error


def _blame_a_hook(scenario: Scenario, error: BaseException) -> None:
    """Tell a hook that returned something though it returns nothing: compiled code refuses that at the line
    that calls it. Raises RuntimeFailure.
    """
    *_, last = traceback.extract_tb(error.__traceback__)
    # Compiled code knows its files from where it was compiled: `actors/...`.
    line = linecache.getline(str(SOURCES / last.filename), last.lineno or 0)
    called = re.findall(r"\.(\w+)\(", line)
    for key, name in own_classes(scenario).items() if isinstance(error, TypeError) else ():
        own = load_plugin(name)
        for hook in called:
            method = getattr(own, hook, None)
            code = getattr(method, "__code__", None)
            if code is not None and sys.modules[own.__module__].__file__ == code.co_filename:
                where = f"{code.co_filename}:{code.co_firstlineno}"
                raise RuntimeFailure(
                    f"{key}: {name}: its `{hook}` returned what it may not ({where}): {error}"
                )


def _no_outbox(peer: int) -> None:
    """The outbox of a switch that is made to see whether it can be."""
    del peer


def check_hosts(scenario: Scenario, topology: Topology, plan: Plan) -> None:
    """Raises ScenarioError if a server would have more ranks, and jobs with flows from it, than it can tell
    apart."""
    counts: Counter[int] = Counter()
    for job in plan.jobs:
        counts.update(() if job.wired is None else job.wired.nodes)
        counts.update({flow.host for flow in job.flows})
        counts.update(one.host for one in job.clients)
    host, most = max(counts.items(), key=lambda one: (one[1], -one[0]), default=(0, 0))
    if most > POSTED:
        reason = f"server {topology.nodes[host].name} has {most} ranks of jobs"
        raise ScenarioError(
            [Problem(scenario.name, 0, "jobs", reason, f"at most {POSTED} ranks a server, over all jobs")]
        )


def check_queue_pairs(scenario: Scenario, topology: Topology, plan: Plan) -> None:
    """Raises ScenarioError if a NIC would have more queue pairs than it may."""
    for nic, pairs in plan.pairs.items():
        most = scenario.at(topology, nic).nic.queue_pairs
        if len(pairs) > most:
            key = scenario.key_at(topology, nic, "nic.queue_pairs")
            reason = f"{topology.nodes[nic].name} would have {len(pairs)} queue pairs, and may have {most}"
            accepted = "fewer channels, `ncclx.qps_per_connection` or `qps` of flows, or a higher limit"
            raise ScenarioError([Problem(scenario.name, 0, key, reason, accepted)])


def check_connections(scenario: Scenario, topology: Topology, plan: Plan) -> None:
    """Raises ScenarioError with a problem for each job that connects NICs without a path between them."""
    found = routes(topology)
    cabled = any(not topology.prefix_switches(prefix) for prefix in range(topology.prefixes))
    if found.all_reachable() and not (cabled and topology.prefixes > 1):
        return
    reached: dict[int, int] = {}
    problems: dict[int, Problem] = {}
    for nic, pairs in plan.pairs.items():
        for pair in pairs:
            if pair.job in problems:
                continue
            if nic not in reached:
                ports = [port for port in topology.ports(nic) if port.kind == FABRIC]
                reached[nic] = 0
                for port in ports:
                    if topology.nodes[port.peer].role is Role.SWITCH:
                        reached[nic] |= found.reached_from(port.peer)
                    else:  # a cable to another NIC, which has the same prefix
                        reached[nic] |= 1 << prefix_of(topology.address_of(port.peer))
            if not reached[nic] >> prefix_of(pair.remote_address) & 1:
                names = topology.nodes[nic].name, topology.nodes[pair.remote_nic].name
                reason = f"{names[0]} sends to {names[1]}, and the fabric has no path between them"
                accepted = "ranks whose NICs reach each other"
                if any(
                    one.op in TO_ALL and one.algorithm == "direct" for one in plan.jobs[pair.job].operations
                ):
                    accepted += ", or `algorithm: pxn` (`auto` where `ncclx.pxn` is on)"
                problems[pair.job] = Problem(scenario.name, 0, f"jobs[{pair.job}].ranks", reason, accepted)
    if problems:
        raise ScenarioError(problems.values())


def check_transports(scenario: Scenario, topology: Topology, plan: Plan) -> None:
    """Raises ScenarioError for a job that joins queue pairs and TCP, or READs over TCP or paths."""
    if not any(view.transport.recovers_drops for _, view in _views(scenario)):
        return
    paths = not scenario.transport.is_rc
    tcp = {nic: scenario.at(topology, nic).transport.is_tcp for nic in topology.nics}
    problems: dict[int, Problem] = {}
    for nic, pairs in plan.pairs.items():
        for pair in pairs:
            if tcp[nic] or not tcp[pair.remote_nic]:
                continue
            names = topology.nodes[nic].name, topology.nodes[pair.remote_nic].name
            problems[pair.job] = Problem(
                scenario.name,
                0,
                f"jobs[{pair.job}].ranks",
                f"{names[0]} has queue pairs and {names[1]} TCP connections (transport.recovery.kind)",
                "ranks of NICs with one transport",
            )
    for work in plan.jobs:
        if any(flow.flags & POST_READ and (paths or tcp[flow.nic]) for flow in work.flows):
            key = f"jobs[{work.job}].workload.verb"
            reason = f"{scenario.transport.kind if paths else 'TCP'} has no READ"
            problems[work.job] = Problem(scenario.name, 0, key, reason, "write or send")
        if paths and work.clients:
            key, accepted = (
                f"jobs[{work.job}].workload.kind",
                "transport.kind: rc, or a workload without storage",
            )
            reason = f"storage reads by READ, which {scenario.transport.kind} does not have"
            problems[work.job] = Problem(scenario.name, 0, key, reason, accepted)
    if problems:
        raise ScenarioError(problems.values())


def check_payload(scenario: Scenario, plan: Plan) -> None:
    """Refuse collectives that cut through elements that they reduce, and more than fits memory. Raises
    ScenarioError."""
    problems: dict[str, Problem] = {}
    held_bytes = 0
    for work in plan.jobs:
        if work.wired is None:
            continue
        seen: dict[tuple[int, tuple[GroupCall, ...]], None] = {}
        for rank in range(len(work.wired.gpus)):
            for part in parts_of(work.wired, rank):
                held_bytes += max(call.size_bytes for call in part.calls)
                calls = part.number, tuple(part.calls)
                if calls not in seen:
                    problems = {one.key: one for one in _cut_through(scenario, work.job, part)} | problems
                    seen[calls] = None
    found = list(problems.values())
    if held_bytes > MOST_HELD_BYTES:
        reason = f"real payload takes {format_size(held_bytes)} of memory, ranks times size"
        accepted = f"sizes, or at most {format_size(MOST_HELD_BYTES)}"
        found.append(Problem(scenario.name, 0, "payload", reason, accepted))
    if found:
        raise ScenarioError(found)


def _cut_through(scenario: Scenario, job: int, part: Part) -> Iterator[Problem]:
    """Calls of one rank whose steps cut through elements."""
    for call in part.cutting():
        width = ELEMENT_BYTES[call.dtype]
        key = "sizes" if call.label == UNLABELLED else f"operations[{call.label}].size"
        cut = f"{call.algorithm} cuts {call.size_bytes} B"
        reason = f"{cut} between the bytes of an element of {width} B"
        accepted = f"a multiple of {width * part.ranks}B"
        yield Problem(scenario.name, 0, f"jobs[{job}].workload.{key}", reason, accepted)


def disagreements(plan: Plan) -> tuple[str, ...]:
    """Calls of programs that do not fit one another, a line for each group of ranks, at most sixteen."""
    found = (
        f"job {work.name}: {line}"
        for work in plan.jobs
        if work.wired is not None
        for line in work.wired.script.disagreements()
    )
    return tuple(islice(found, MOST_SHOWN))
