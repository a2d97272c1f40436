"""Warnings about storage before a run: metadata servers that will refuse, and clients that will give up.

A client has so many chains under way, and each of them one request at a metadata server at a time. What is at
a server beyond its queue is refused and asked again after a backoff that doubles; who is refused once too
often gives up, and the job is `timed_out`.
"""

from typing import NamedTuple

from actors.fabric.model import Topology
from actors.optional.storage_clients import DATA_KINDS
from emu.base.units import about_time
from emu.devices.plan import JobWork, Plan
from emu.scenario.schema import Scenario


class RequestsAtServer(NamedTuple):
    """What a job may have at one metadata server."""

    nic: int
    at_once: int
    in_all: int


def requests_at_servers(work: JobWork) -> list[RequestsAtServer]:
    """By metadata server, the most requests that the clients of a job can have there."""
    assert work.manners is not None, work.name
    at_once: dict[int, int] = {}
    in_all: dict[int, int] = {}
    for host in work.clients:
        for script in host.scripts:
            asked: dict[int, int] = {}
            for phase in script:
                chains: dict[int, int] = {}
                for chain in phase.chains:
                    nics = [
                        host.connections[request.server][0]
                        for group in chain
                        for request in group
                        if request.kind >= DATA_KINDS
                    ]
                    for nic in nics:
                        in_all[nic] = in_all.get(nic, 0) + 1
                    for nic in dict.fromkeys(nics):
                        chains[nic] = chains.get(nic, 0) + 1
                for nic, number in chains.items():
                    asked[nic] = max(asked.get(nic, 0), min(number, work.manners.parallel))
            for nic, number in asked.items():
                at_once[nic] = at_once.get(nic, 0) + number
    return [RequestsAtServer(nic, at_once[nic], in_all[nic]) for nic in sorted(at_once)]


def storage_warnings(scenario: Scenario, topology: Topology, plan: Plan) -> list[str]:
    """A line for each job whose clients overrun the queue of a metadata server: its fullest one."""
    found: list[str] = []
    metadata = scenario.frontend.metadata
    for number, work in enumerate(plan.jobs):
        if not work.enabled or work.manners is None:
            continue
        fullest = max(requests_at_servers(work), key=lambda one: one.at_once, default=None)
        if fullest is None or fullest.at_once <= metadata.queue:
            continue
        server = topology.nodes[topology.host_of(fullest.nic)].name
        manners = work.manners
        patience_ps = manners.backoff_ps * (2**manners.retries - 1)
        needs_ps = fullest.in_all * metadata.operation_ps
        what = "many will be refused more than once"
        if needs_ps > patience_ps:
            what = f"clients will give up ({work.name} timed_out)"
        at_once = f"{fullest.at_once:,} requests of {work.name} at once"
        room = f"{server} may have {at_once}, and queues {metadata.queue:,}"
        patience, needs = about_time(patience_ps), about_time(needs_ps)
        time = f"it takes {needs} for all, and a client asks again for {patience}"
        retries = f"jobs[{number}].workload.retries: {manners.retries}"
        accepted = f"use a queue of {fullest.at_once:,}, more retries, or more metadata servers"
        found.append(f"frontend.metadata.queue: {room}; {time} ({retries}), so {what}; {accepted}")
    return found
