"""Event logs and traces of queue pairs: given to devices, and what they have at the end."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from actors.fabric.model import Topology
from actors.host.host import Host
from actors.kernel.device import Device
from actors.kernel.event_log import GRANTED, OPERATED, PAUSED, EventLog
from actors.ncclx.rank.rank_program import ScriptProgram
from actors.nic.nic import Nic
from actors.optional.flow_trace import FlowTrace
from actors.switch.switch import Switch
from emu.counts.collected import Rows
from emu.devices.switches import fabric_ports
from emu.scenario.schema import Scenario

LASTING_PS: Final = -1
"""The end of what was not over when the run was."""


def give_recorders(scenario: Scenario, topology: Topology, devices: Iterable[Device]) -> None:
    """Give hosts, NICs and switches an event log, and NICs a trace, where the scenario asks for them."""
    run = scenario.run
    if not run.event_log and not run.trace.flows:
        return
    for device in devices:
        if run.event_log and isinstance(device, Host | Nic | Switch):
            device.notes.events = EventLog(run.event_log)
        if run.trace.flows and isinstance(device, Nic):
            name = topology.nodes[int(device.number)].name
            pairs = [
                pair
                for pair in device.pairs
                if run.trace.follows(name, topology.nodes[topology.nic_at(int(pair.remote_address))].name)
            ]
            if pairs:
                trace = FlowTrace(run.trace.every_ps, run.trace.most_rows, pairs)
                for port in device.ports():
                    port.set_tap(trace)


def recorded_by(device: Device) -> Rows:
    """Tables of what the recorders of a device have: `events`, `trace`, and how many rows are `missed`.

    An event is a row of kind, port or job, rank or -1, the three other numbers of `actors.kernel.event_log`,
    when it began and when it ended.
    """
    tables: dict[str, list[list[int]]] = {}
    missed = [0, 0]
    log = device.events
    if log is not None:
        tables["events"] = _reported(device, log.rows() + _lasting(device))
        missed[0] = log.missed()
    if isinstance(device, Nic):
        traces = [tap for tap in device.ports()[0].taps if isinstance(tap, FlowTrace)]
        if traces:
            tables["trace"] = traces[0].rows
            missed[1] = int(traces[0].missed)
    if any(missed):
        tables["missed"] = [missed]
    return tables


def _reported(device: Device, rows: list[list[int]]) -> list[list[int]]:
    """The same rows, with job and rank in place of the host's program."""
    if not isinstance(device, Host):
        for row in rows:
            row.insert(2, -1)
        return rows
    whose = [
        (int(one.job), int(one.rank) if isinstance(one, ScriptProgram) else -1) for one in device.programs
    ]
    for row in rows:
        row[1:2] = whose[row[1]]
    return rows


def _lasting(device: Device) -> list[list[int]]:
    """Events that are not over: operations, waits for clear-to-sends, pauses."""
    rows: list[list[int]] = []
    if isinstance(device, Host):
        for program in device.programs:
            if not isinstance(program, ScriptProgram):
                continue
            place = int(program.number)
            if program.running and program.copying:
                began_ps = int(program.begun_ps)
                rows.append([int(OPERATED), place, int(program.operation), 0, 0, began_ps, LASTING_PS])
            for end in program.ends.sends:
                if end.stuck_ps >= 0:
                    who = [place, int(end.channel), int(end.peer), int(end.posted)]
                    rows.append([int(GRANTED), *who, int(end.stuck_ps), LASTING_PS])
    elif isinstance(device, Nic | Switch):
        for number, port in enumerate(fabric_ports(device)):
            if port.pfc is not None:
                for priority, since_ps in port.pfc.paused_now():
                    rows.append([int(PAUSED), number, priority, 0, 0, since_ps, LASTING_PS])
    return rows
