"""Answers of devices to an operator who logs in at the end of a run.

Tables of integers, from the state that the device has, under the names of
`emu.counts.device_state`: its neighbours (LLDP; none where all are as meant), ports that were down, what its
running configuration differs in from what it started with, its log, how late its links are by the time stamps
at both ends, queue pairs in error, what holds frames, and for whom its ranks wait. Nothing is said of what is
as it should be, so the answer is short on a fabric that is well. A host that is lost does not answer.

Not modelled: a management network that fails, so every switch answers; log buffers are those of
`actors.kernel.device`.
"""

from __future__ import annotations

from collections.abc import Sequence

from actors.host.host import Host
from actors.kernel.device import Device
from actors.kernel.event import NEVER_PS
from actors.ncclx.rank.rank_program import ScriptProgram
from actors.nic.nic import Nic
from actors.nic.queue_pair.queue_pair import ERROR, QueuePair
from actors.optional.deep import DeepSwitch
from actors.port.link import KEPT_DOWNS, PRIORITIES
from actors.port.pfc import ALL_CLASSES
from actors.port.port import Port
from actors.switch.ecn import Red
from actors.switch.egress import SwitchPort
from actors.switch.switch import Classes, Switch
from actors.wire.fault import FAULT_OPERATIONS
from emu.counts.device_state import (
    ALPHA,
    BOOTED,
    CREDITS,
    DSCP,
    ECN,
    GPU_GONE,
    HASH_FIELDS,
    HASH_SEED,
    HEADROOM,
    PAIR_ERROR,
    PFC,
    ROUTE,
    SPEED,
    TIMER,
)
from emu.engine.waiting import held_in_queues

Rows = list[list[int]]
_ITEMS = {
    "route": ROUTE,
    "rate": SPEED,
    "pfc_off": PFC,
    "headroom": HEADROOM,
    "alpha": ALPHA,
    "ecn": ECN,
    "dscp": DSCP,
    "hash_seed": HASH_SEED,
    "hash_fields": HASH_FIELDS,
    "credits": CREDITS,
    "pair_error": PAIR_ERROR,
    "gpu_gone": GPU_GONE,
    "lost": BOOTED,
    "timer_expired": TIMER,
}
"""What devices note, by the name of what they received, and the item it is."""


def shown_by(device: Device, *, cables: bool = True) -> dict[str, Rows]:
    """The tables of one device; empty ones are left out, and its neighbours if nobody asks for `cables`."""
    tables: dict[str, Rows] = {
        "log": [[row[0], _ITEMS[FAULT_OPERATIONS[row[1]]], *row[2:]] for row in device.log]
    }
    if isinstance(device, Switch):
        ports: list[Port] = list(device.ports)
        _of_ports(tables, ports, cables)
        if device.fault_states:  # nothing else changes a configuration
            tables["differs"] += _switch_differs(device)
        if isinstance(device, DeepSwitch):
            tables["voqs"] = _voqs(device)
        tables["withdrawn"] = [[int(link)] for link in device.down]
    elif isinstance(device, Nic):
        ports = list(device.ports())
        _of_ports(tables, ports, cables)
        tables["differs"] += [
            [PFC, int(port.number), 0, 0, 0, 1, 0, 0]
            for port in ports
            if port.pfc is not None and port.pfc.silent and port.pfc.ignored == ALL_CLASSES
        ]
        tables["receive"] = _receive(device)
        tables["pairs"] = [
            [int(pair.index), int(pair.qpn), int(pair.remote_address), int(pair.remote_qpn)]
            for pair in device.pairs
            if pair.state == ERROR
        ]
        tables["outstanding"] = [
            [
                int(pair.index),
                int(pair.qpn),
                int(pair.remote_address),
                int(pair.end_psn - pair.una_psn),
                int(pair.next_psn - pair.una_psn),
                _quiet_ps(device, pair),
            ]
            for pair in device.pairs
            if pair.head is not None
        ]
    elif isinstance(device, Host):
        if device.lost:
            return {"silent": [[1]]}
        ranks = [program for program in device.programs if isinstance(program, ScriptProgram)]
        tables["ranks"] = [_rank_row(program) for program in ranks if program.running]
        tables["sm_waits"] = [
            [job, rank, holder]
            for program in ranks
            for job, rank, _, _, _, had_ps, holder in program.sm_rows()
            if had_ps < 0
        ]
    return {name: rows for name, rows in tables.items() if rows}


def _quiet_ps(nic: Nic, pair: QueuePair) -> int:
    """Since when nothing that a queue pair has sent was acknowledged; -1 if a timer has run out meanwhile."""
    if pair.retries or pair.rnr_retries or pair.backoff:
        return -1
    return int(nic.queue.now_ps - (pair.deadline_ps - nic.first_timeout_ps))


def _rank_row(program: ScriptProgram) -> list[int]:
    """Job, rank and operation, and what the rank waits for first."""
    waits = program.ends.waiting(0, len(program.ends.channels))
    return [int(program.job), int(program.rank), int(program.operation), *map(int, waits)]


def _of_ports(tables: dict[str, Rows], ports: Sequence[Port], cables: bool) -> None:
    """What switches and NICs have to say of their ports on the fabric."""
    neighbours: Rows = []
    downs: Rows = []
    late: Rows = []
    held: Rows = []
    differs: Rows = []
    for port in ports:
        number, flow, added = int(port.number), port.pfc, port.added_delay
        if cables:
            neighbours.append([number, int(port.wire.peer), int(port.wire.peer_port)])
        if port.ever_down:
            downs += _downs(port)
        if added is not None and added.late_frames > 0:
            frames = [int(added.late_frames), int(added.late_ps)]
            late.append([number, *frames, int(added.latest_ps), int(added.late_since_ps)])
        signalled = 0 if flow is None else int(flow.signalled)
        if port.waiting or signalled:
            held.append([number, int(port.waiting), int(port.blocked), signalled, int(port.up)])
        if port.rate_bps != port.wire.rate_bps:
            differs.append([SPEED, number, int(port.rate_bps), 0, 0, int(port.wire.rate_bps), 0, 0])
    tables |= {"neighbours": neighbours, "downs": downs, "late": late, "held": held, "differs": differs}


def _downs(port: Port) -> Rows:
    """The last times a port was down, and before them how often it was in all."""
    starts, ends = list(port.down_starts), list(port.down_ends)
    rows = [
        [int(port.number), int(port.downs), int(start_ps), -1 if end_ps == NEVER_PS else int(end_ps)]
        for start_ps, end_ps in zip(starts, ends, strict=True)
    ]
    return rows[-KEPT_DOWNS:]


def _voqs(switch: DeepSwitch) -> Rows:
    """What ingresses hold for each egress and class, whether that is told to hold, and is up."""
    return [
        [
            egress,
            priority,
            frames,
            int(switch.ports[egress].blocked >> priority) & 1,
            int(switch.ports[egress].up),
        ]
        for (egress, priority), frames in held_in_queues(switch).items()
    ]


def _switch_differs(switch: Switch) -> Rows:
    """Item, place, three values as they run, three as they were at the start; where they differ."""
    rows: Rows = []
    for part in switch.buffer.all_parts():
        if part.alpha_fixed != part.built_alpha_fixed:
            rows.append([ALPHA, 0, int(part.alpha_fixed), 0, 0, int(part.built_alpha_fixed), 0, 0])
            break
    if switch.hash_seed != switch.built_seed:
        rows.append([HASH_SEED, 0, int(switch.hash_seed), 0, 0, switch.built_seed, 0, 0])
    if switch.policy != switch.built_policy:
        rows.append([HASH_FIELDS, 0, int(switch.policy), 0, 0, switch.built_policy, 0, 0])
    if isinstance(switch, DeepSwitch):
        window = [int(switch.initial_credit_bytes), int(switch.most_credit_bytes)]
        if window != switch.built_credit_bytes:
            rows.append([CREDITS, 0, *window, 0, *switch.built_credit_bytes, 0])
    if switch.classes is not None:
        rows += _maps(switch.classes)
    for port in switch.ports:
        rows += _port_differs(switch, port)
    return rows


def _maps(classes: Classes) -> Rows:
    rows: Rows = []
    for dscp in range(64):
        now = [int(classes.queue_of[dscp]), int(classes.group_of[dscp])]
        built = [int(classes.built_queue_of[dscp]), int(classes.built_group_of[dscp])]
        if now != built:
            rows.append([DSCP, dscp, *now, 0, *built, 0])
    return rows


def _port_differs(switch: Switch, port: SwitchPort) -> Rows:
    rows: Rows = []
    number = int(port.number)
    groups = [switch.buffer.group_at(number * PRIORITIES + one) for one in range(PRIORITIES)]
    if any(group.lossless != group.built_lossless for group in groups):
        rows.append([PFC, number, 0, 0, 0, 1, 0, 0])
    for group in groups:
        if group.headroom_bytes != group.built_headroom_bytes:
            carved, built_bytes = int(group.headroom_bytes), int(group.built_headroom_bytes)
            rows.append([HEADROOM, number, carved, 0, 0, built_bytes, 0, 0])
            break
    for red in port.aqms:
        if not isinstance(red, Red):
            continue
        marks = [int(red.kmin_bytes), int(red.kmax_bytes), int(red.pmax_fixed)]
        meant = [red.built_kmin_bytes, red.built_kmax_bytes, red.built_pmax_fixed]
        if marks != meant:
            rows.append([ECN, number, *marks, *meant])
            break
    return rows


def _receive(nic: Nic) -> Rows:
    """Port, priority, the most that its receive buffer held, and its size; of those that held anything."""
    receive = nic.receive
    if receive is None:
        return []
    return [
        [number // PRIORITIES, number % PRIORITIES, int(group.peak_bytes), int(group.size_bytes)]
        for number, group in enumerate(receive.groups)
        if group.peak_bytes
    ]
