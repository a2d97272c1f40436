"""Chains of waiting: who waits for whom when nothing moves any more.

Asked once, at a stall. Each worker names what its devices wait for; put together, the waits of a deadlock
close a circle. Four kinds:

* a port holds frames of a class that the device at the other end has paused or given no credits for, or
  whose link is down; in a modular switch, an ingress holds frames for such an egress;
* a queue pair has packets that the NIC at the other end has not acknowledged;
* a rank of a collective waits for data from the rank before it, for a clear-to-send from the rank after it,
  for an acknowledgement, or for SMs that another rank's call holds, of whatever job;
* the bootstrap store waits for ranks that did not come.

A circle of pauses is the reason by itself, so it comes first.
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from actors.control.controller import Controller
from actors.fabric.model import Topology
from actors.host.host import Host
from actors.kernel.device import Device
from actors.kernel.event import NEVER_PS
from actors.ncclx.rank.rank_program import ScriptProgram
from actors.ncclx.rank.sm_share import MEMBER
from actors.nic.nic import Nic
from actors.optional.deep import DeepSwitch
from actors.port.port import Port
from actors.switch.switch import Switch

MOST_SHOWN: Final = 8


class Wait(NamedTuple):
    """One device waits for another (-1 where it cannot be named); `paused` if it is because of PFC."""

    device: int
    waits_for: int
    why: str
    paused: bool


def waits_of(devices: Iterable[Device], topology: Topology) -> list[Wait]:
    """What these devices wait for, in their order."""
    nics = {topology.address_of(nic): nic for nic in topology.nics}
    found: list[Wait] = []
    for device in devices:
        if isinstance(device, Switch):
            found += _waits_of_ports(device.number, list(device.ports))
            if isinstance(device, DeepSwitch):
                found += _waits_of_voqs(device)
        elif isinstance(device, Nic):
            found += _waits_of_ports(device.number, list(device.ports()))
            found += _waits_of_pairs(device, nics)
        elif isinstance(device, Host):
            for program in device.programs:
                if isinstance(program, ScriptProgram) and program.running:
                    found += _waits_of_rank(device.number, program)
        elif isinstance(device, Controller):
            found += _waits_of_store(device)
    return found


def explain(waits: Sequence[Wait], topology: Topology) -> list[str]:
    """The waits in words: a circle of pauses first, then the others, at most `MOST_SHOWN` of them."""
    names = [node.name for node in topology.nodes]
    lines: list[str] = []
    circle = circle_of({(wait.device, wait.waits_for) for wait in waits if wait.paused})
    if circle:
        lines.append("a circle of pauses: " + " -> ".join(names[device] for device in [*circle, circle[0]]))
    for wait in waits[:MOST_SHOWN]:
        towards = f" for {names[wait.waits_for]}" if wait.waits_for >= 0 else ""
        lines.append(f"{names[wait.device]} waits{towards}: {wait.why}")
    if len(waits) > MOST_SHOWN:
        lines.append(f"and {len(waits) - MOST_SHOWN} more")
    return lines


def circle_of(edges: Iterable[tuple[int, int]]) -> list[int]:
    """The devices of one circle, from the least of them on; empty if there is none."""
    onwards: dict[int, list[int]] = {}
    for device, waits_for in sorted(edges):
        onwards.setdefault(device, []).append(waits_for)
    done: dict[int, bool] = {}
    for start in onwards:
        path: list[int] = []
        places: dict[int, int] = {}
        stack: list[tuple[int, int]] = [(start, 0)]
        while stack:
            device, taken = stack.pop()
            if taken == 0:
                if device in places:
                    circle = path[places[device] :]
                    least = circle.index(min(circle))
                    return circle[least:] + circle[:least]
                if device in done:
                    continue
                places[device] = len(path)
                path.append(device)
            following = onwards.get(device, [])
            if taken < len(following):
                stack += [(device, taken + 1), (following[taken], 0)]
            else:
                done[device] = True
                del places[path.pop()]
    return []


def _waits_of_ports(device: int, ports: Sequence[Port]) -> list[Wait]:
    found: list[Wait] = []
    for port in ports:
        held = [priority for priority in range(8) if (port.waiting >> priority) & 1]
        paused = [priority for priority in held if (port.blocked >> priority) & 1]
        if paused:
            classes = ", ".join(map(str, paused))
            why = f"port {port.number} is told to hold priority {classes}"
            if port.credits is not None:
                why = f"port {port.number} has no credits left for virtual lane {classes}"
            found.append(Wait(device, int(port.wire.peer), why, paused=True))
        elif held and not port.up:
            found.append(
                Wait(device, int(port.wire.peer), f"the link of port {port.number} is down", paused=False)
            )
    return found


def held_in_queues(switch: DeepSwitch) -> dict[tuple[int, int], int]:
    """Frames that ingresses hold, by egress and class, in that order."""
    held: dict[tuple[int, int], int] = {}
    for voq in switch.voqs.values():
        frames = len(voq.frames())
        if frames:
            place = (int(voq.egress), int(voq.priority))
            held[place] = held.get(place, 0) + frames
    return dict(sorted(held.items()))


def _waits_of_voqs(switch: DeepSwitch) -> list[Wait]:
    """One line for each egress and class that ingresses hold frames for; paused if its peer said so."""
    found: list[Wait] = []
    for (egress, priority), frames in held_in_queues(switch).items():
        port = switch.ports[egress]
        paused = bool((port.blocked >> priority) & 1)
        state = "told to hold it" if paused else "granted no more" if port.up else "whose link is down"
        why = f"{frames} frames of priority {priority} are in virtual output queues of port {egress}, {state}"
        found.append(Wait(int(switch.number), int(port.wire.peer), why, paused))
    return found


def _waits_of_pairs(nic: Nic, nics: dict[int, int]) -> list[Wait]:
    found: list[Wait] = []
    for pair in nic.pairs:
        if pair.head is None:
            continue
        sent = int(pair.next_psn - pair.una_psn)
        left = int(pair.end_psn - pair.una_psn)
        why = f"queue pair {pair.qpn} has {left} packets unacknowledged, {sent} of them sent"
        found.append(Wait(int(nic.number), nics.get(int(pair.remote_address), -1), why, paused=False))
    return found


def _waits_of_store(controller: Controller) -> list[Wait]:
    """Jobs whose ranks have not all come to the store."""
    found: list[Wait] = []
    for meeting in controller.store.meetings.values() if controller.store else ():
        missing = [rank for rank, came in enumerate(meeting.asked) if not came]
        if meeting.begun_ps < NEVER_PS and meeting.end_ps < 0 and missing:
            ranks = ", ".join(map(str, missing[:MOST_SHOWN])) + (", .." if len(missing) > MOST_SHOWN else "")
            why = f"job {meeting.job}: rank {ranks} did not come to round {meeting.round + 1} of its init"
            found.append(Wait(int(controller.number), -1, why, paused=False))
    return found


def _waits_of_rank(host: int, program: ScriptProgram) -> list[Wait]:
    for _, rank, _, _, _, had_ps, holder in program.sm_rows():
        if had_ps < 0:
            where = f"rank {rank} of job {program.job}, operation {program.operation}"
            held = f"rank {holder % MEMBER} of job {holder // MEMBER}"
            return [Wait(host, -1, f"{where}: a call waits for SMs that {held} holds", paused=False)]
    for channel in program.ends.channels:
        what = channel.waits_for()
        if what:
            where = f"rank {program.rank} of job {program.job}, operation {program.operation}"
            return [Wait(host, -1, f"{where}: channel {channel.number} waits for {what}", paused=False)]
    return []
