"""SONiC's RoCEv2 test plan on the configuration of a box: test cases 1 to 7, by the plan's own criteria.

Four NICs at one switch with the configuration that is tested (for case 7 eight at two leaves with four
spines between), one priority for each queue, with a DSCP that the box's own maps lead there. The plan's flows
of 4 GB or three minutes are as long here as the case takes (`Box.incast_bytes`, `FAIR_BYTES`, ...), at the
rate of the box's ports. ACK and NAK travel in queue 6 and CNPs in queue 5 where the maps lead to them. A
sender's timer is 4.2 ms, like the 5 ms of the plan's tester; NCCL's 4.3 s would outlast the run.

Source: sonic-net/sonic-mgmt, pull requests 21514 (plan), 23240 (case 1), 25347 (case 2, with the output of an
S6100), 27040 (case 3), 27207 (case 4).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from actors.kernel.counters import (
    NIC_LOCAL_ACK_TIMEOUT_ERR,
    NIC_NP_CNP_SENT,
    NIC_PACKET_SEQ_ERR,
    NIC_TRANSMIT_ACKS,
    PFC_TRANSMIT_XOFF_FRAMES,
)
from emu.api import prepare, run_prepared
from emu.base.errors import UsageError
from emu.base.outside import file_text, json_of
from emu.base.spelling import listed
from emu.base.units import format_rate, format_size, parse_rate
from emu.doors.accept.answers import Answer, Check
from emu.engine.outcome import RunOptions
from emu.many_runs import Machines, carried
from emu.many_runs import answers as answers_of
from emu.results.summary import Summary
from emu.scenario.load import Loaded, load_mapping
from emu.scenario.yaml.document import MAX_FILE_BYTES

SHORT_BYTES: Final = 8 << 20
LONG_BYTES: Final = 32 << 20
"""Where DCQCN has to find its rates."""
FAIR_BYTES: Final = 512 << 20
"""Where the first cuts of DCQCN count little in the rates of whole flows."""
MOST_BYTES: Final = 4 << 30
"""Of a flow; the plan's 4 GB."""
TX_DEPTH: Final = 16384
"""Messages that a flow of cases 2 and 5 may have under way: as many as there can be, since the plan's tester
sends at line rate. With perftest's 128 flows wait for acknowledgements before they fill a large pool."""
LOSSY_QUEUES: Final = (0, 1)
ACK_QUEUE: Final = 6
CNP_QUEUE: Final = 5
TIMER: Final = 10
"""4.096 us x 2^10 = 4.2 ms."""
FAIR: Final = 0.3
HOSTS: Final = 4
"""Under a switch."""
Topology = Literal["star", "clos"]
READ: Final = frozenset(
    (
        *("BUFFER_POOL", "BUFFER_PROFILE", "BUFFER_PG", "BUFFER_QUEUE", "PORT_QOS_MAP", "QUEUE"),
        *("WRED_PROFILE", "SCHEDULER", "PFC_WD", "DSCP_TO_TC_MAP", "TC_TO_QUEUE_MAP", "CABLE_LENGTH"),
        *("TC_TO_PRIORITY_GROUP_MAP", "MAP_PFC_PRIORITY_TO_QUEUE", "PORT"),
    )
)
"""Tables of config_db.json that are understood."""


class Box(NamedTuple):
    """What a configuration says that the tests need."""

    file: Path
    tables: Mapping[str, Any]
    rate_bps: int
    pool_bytes: int
    dscps: Mapping[int, int]
    """By queue, a DSCP that leads to it; of a lossless queue one that is lossless."""
    lossless: tuple[int, ...]
    """At most two of them."""
    notes: tuple[str, ...]

    @property
    def pool_sized_bytes(self) -> int:
        """Size of the flow of case 5, which a receiver stops nine tenths of the time: the pool's."""
        return min(max(self.pool_bytes >> 20 << 20, SHORT_BYTES), MOST_BYTES)

    @property
    def incast_bytes(self) -> int:
        """Size that a sender of case 2 sends: 4 GB are more than most pools, a third has to wait."""
        return min(max(4 * self.pool_bytes >> 20 << 20, SHORT_BYTES), MOST_BYTES)

    @property
    def lossy(self) -> tuple[int, ...]:
        """Queues of lossy data."""
        return tuple(queue for queue in LOSSY_QUEUES if queue in self.dscps and queue not in self.lossless)

    def profile(self, table: str, queue: int) -> str:
        """The profile that a table gives a queue or priority group, with its entry."""
        for key, entry in self.tables.get(table, {}).items():
            first, _, last = key.rpartition("|")[2].partition("-")
            if first.isdigit() and int(first) <= queue <= int(last or first):
                name = str(entry.get("profile", entry.get("wred_profile", ""))).strip("[]").rpartition("|")[2]
                return f"{table}|{key} -> {name}"
        rest = ", so pg_profile_lookup.ini" if table == "BUFFER_PG" else ""
        return f"{table} (no entry of {queue}{rest})"


class _Wish(NamedTuple):
    """One run: where from, where to, what and how."""

    name: str
    flows: tuple[tuple[int, int, int, int, int], ...]
    """Source, destination, queue, bytes, bytes of a message."""
    dcqcn: bool = False
    marking: bool = False
    storm: tuple[int, ...] = ()
    """Ranks whose NICs pause the box nine tenths of the time."""
    leaves: int = 1
    queue_pairs: int = 1
    depth: int = 128
    """Messages that a flow has under way at most; perftest's."""
    wide: bool = False
    """Whether uplinks have four times the ports' rate, so that no hash fills one."""

    def across(self) -> _Wish:
        """The same over two leaves with spines between: senders under one, receivers under the other."""
        flows = tuple((one[0], one[1] + HOSTS, one[2], one[3], one[4]) for one in self.flows)
        storm = tuple(rank + HOSTS for rank in self.storm)
        return self._replace(flows=flows, storm=storm, leaves=2, wide=True)


class _Seen(NamedTuple):
    """What the runs of a test left, so far as it is asked for."""

    statuses: Mapping[str, str]
    rates_bps: Mapping[str, int]
    naks: Mapping[int, int]
    """By rank, NAKs that its NIC received."""
    timers: Mapping[int, int]
    pauses: Mapping[int, int]
    """By priority, XOFF frames that the switches sent."""
    acks: int
    cnps: int
    marks: int
    drops: int
    uplinks: int
    """How many uplinks of leaf 0 carried data."""
    retransmitted: int
    digest: str


def box_of(file: Path, rate_bps: int | None) -> Box:
    """What a config_db.json says. Raises ScenarioError or UsageError, a line for each thing that is wrong."""
    lossy = UsageError(
        f"{file}: names no lossless queue (PORT_QOS_MAP|<port>|pfc_enable); accepted: a file that names one"
    )
    tables = _tables(file)
    ports = [] if tables is None else tables.get("PORT_QOS_MAP", {}).values()
    if tables is not None and not any(str(entry.get("pfc_enable", "")).strip() for entry in ports):
        raise lossy
    loaded = _loaded(file, rate_bps or parse_rate("100G"), {}, _Wish("none", ((0, 1, 3, 4096, 4096),)))
    switch = loaded.scenario.switch
    if not switch.pfc.enabled or not switch.pfc.priorities:
        raise lossy
    dscps: dict[int, int] = {}
    for dscp in range(64):
        traffic_class = switch.qos.dscp_to_tc[dscp]
        queue, group = switch.qos.tc_to_queue[traffic_class], switch.qos.tc_to_priority_group[traffic_class]
        if (queue in switch.pfc.priorities) == (group in switch.pfc.priorities):
            dscps.setdefault(queue, dscp)
    lossless = tuple(one for one in switch.pfc.priorities if one in dscps)[:2]
    if not lossless:
        raise UsageError(
            f"{file}: no DSCP leads to a lossless queue (DSCP_TO_TC_MAP, TC_TO_QUEUE_MAP,"
            " TC_TO_PRIORITY_GROUP_MAP); accepted: maps that lead one there"
        )
    assert tables is not None, file
    unread = sorted(set(tables) - READ)
    notes = [*loaded.notes, *([f"tables not read: {listed(unread, 20)}"] if unread else [])]
    pool_bytes = switch.buffer.pool_bytes or 0
    return Box(file, tables, rate_bps or _speed(tables), pool_bytes, dscps, lossless, tuple(notes))


def _tables(file: Path) -> dict[str, dict[str, Any]] | None:
    """The tables of a configuration; None where it is no such thing, of which the loader says more. Raises
    UsageError."""
    text = file_text(file, "a config_db.json", MAX_FILE_BYTES)
    if not text.strip():
        raise UsageError(f"{file}: is empty; accepted: a config_db.json")
    try:
        value = json_of(text)
    except ValueError:
        return None
    if not isinstance(value, dict):
        return None
    return {
        name: {key: entry for key, entry in table.items() if isinstance(entry, dict)}
        for name, table in value.items()
        if isinstance(table, dict)
    }


def _speed(tables: Mapping[str, Any]) -> int:
    """The rate that most ports have; 100G where the file does not say."""
    speeds = [
        int(port["speed"])
        for port in tables.get("PORT", {}).values()
        if str(port.get("speed", "")).isdigit() and port.get("admin_status") != "down"
    ]
    return max(speeds, key=speeds.count) * 1_000_000 if speeds else parse_rate("100G")


def _loaded(file: Path, rate_bps: int, dscps: Mapping[int, int], wish: _Wish) -> Loaded:
    """The scenario of a run."""
    link = format_rate(rate_bps)
    switch: dict[str, object] = {"config_db": str(file.resolve())}
    if not wish.marking:
        switch["ecn"] = {"enabled": False}
    topology: dict[str, object] = {"kind": "star", "hosts": HOSTS, "link": link}
    if wish.leaves > 1:
        topology = {
            "kind": "ai_zone",
            "racks": 2,
            "hosts_per_rack": HOSTS,
            "gpus_per_host": 1,
            "spines": 4,
            "link": link,
            "uplink": format_rate(4 * rate_bps) if wish.wide else link,
        }
    transport: dict[str, object] = {"timeout": TIMER}
    if ACK_QUEUE in dscps:
        transport["ack_priority"] = ACK_QUEUE
    if wish.dcqcn:
        control: dict[str, object] = {"kind": "dcqcn"}
        if CNP_QUEUE in dscps:
            control["cnp_priority"] = CNP_QUEUE
        transport["congestion_control"] = control
    jobs = [
        {
            "name": f"flow_{number}",
            "workload": {
                "kind": "flows",
                "qps": wish.queue_pairs,
                "tx_depth": wish.depth,
                "message": f"{message}B",
                "flows": [{"src": source, "dst": to, "size": f"{size}B", "priority": queue}],
            },
        }
        for number, (source, to, queue, size, message) in enumerate(wish.flows)
    ]
    faults = [
        {"kind": "pause_storm", "target": f"nic-{rank}-0", "at": "20us", "for": "90us", "every": "100us"}
        for rank in wish.storm
    ]
    return load_mapping(
        {
            "name": f"sonic_{wish.name}",
            "topology": topology,
            "switch": switch,
            "routing": {"kind": "e_ecmp"},
            **({"nic": {"dscp": dict(dscps)}} if dscps else {}),
            "transport": transport,
            "run": {"sample_every": "1ms", "max_time": "6s"},
            "jobs": jobs,
            "faults": faults,
        }
    )


def _run(box: Box, wish: _Wish) -> _Seen:
    """One run."""
    prepared = prepare(_loaded(box.file, box.rate_bps, box.dscps, wish))
    result = run_prepared(prepared, RunOptions(local=True, metrics=False), diagnose=False)
    topology, summary = prepared.topology, result.summary
    rank_of = {topology.nics_of_gpu(gpu)[0]: rank for rank, gpu in enumerate(topology.gpus)}
    naks: dict[int, int] = {}
    timers: dict[int, int] = {}
    pauses: dict[int, int] = {}
    totals: dict[str, int] = {NIC_TRANSMIT_ACKS: 0, NIC_NP_CNP_SENT: 0}
    for record in result.outcome.devices:
        for series, value in zip(record.series, record.counters, strict=True):
            rank = rank_of.get(record.number)
            if rank is None:
                if series.metric == PFC_TRANSMIT_XOFF_FRAMES and value:
                    pauses[series.priority] = pauses.get(series.priority, 0) + value
            elif series.metric == NIC_PACKET_SEQ_ERR:
                naks[rank] = naks.get(rank, 0) + value
            elif series.metric == NIC_LOCAL_ACK_TIMEOUT_ERR:
                timers[rank] = timers.get(rank, 0) + value
            elif series.metric in totals:
                totals[series.metric] += value
    flows = {name: job.flows[0] for name, job in summary.jobs.items()}
    return _Seen(
        {name: flow.status for name, flow in flows.items()},
        {name: flow.throughput_bps or 0 for name, flow in flows.items()},
        naks,
        timers,
        pauses,
        totals[NIC_TRANSMIT_ACKS],
        totals[NIC_NP_CNP_SENT],
        summary.fabric.queue_marked_frames or 0,
        summary.fabric.drops.congestion if summary.fabric.drops else 0,
        _busy_uplinks(summary),
        summary.fabric.nic_retransmitted_frames or 0,
        summary.digest[:12],
    )


def _busy_uplinks(summary: Summary) -> int:
    """How many uplinks of the first leaf carried data."""
    return sum(
        link.data_bytes > 0
        for link in summary.fabric.links
        if link.source == "rtsw-0" and link.destination.startswith("ctsw")
    )


def _incast(
    box: Box, name: str, size: int, message: int, same: bool = True, small: int = 0, lossy_bytes: int = 0
) -> _Wish:
    """Three senders, one receiver: two lossless, and lossy queues from the third, of `size` unless it is
    given."""
    first, second = box.lossless[0], box.lossless[0 if same else -1]
    lossy = [(2, 3, queue, (lossy_bytes or size) // len(box.lossy), message) for queue in box.lossy]
    return _Wish(
        name,
        (
            (0, 3, first, size, message),
            (1, 3, second, size, small or message),
            *lossy,
        ),
    )


def _count(what: str, found: int, asked: str, holds: bool | None) -> Check:
    return Check(what, f"{found:,}", asked, holds, float(found))


def _whole(seen: _Seen, flows: Sequence[int], ranks: Sequence[int]) -> list[Check]:
    """Messages that failed, NAKs and timers of lossless flows, all 0."""
    failed = sum(seen.statuses[f"flow_{one}"] != "success" for one in flows)
    naks = sum(seen.naks.get(rank, 0) for rank in ranks)
    timers = sum(seen.timers.get(rank, 0) for rank in ranks)
    return [
        _count("lossless flows failed", failed, "0", failed == 0),
        _count("lossless NAKs", naks, "0", naks == 0),
        _count("lossless timers expired", timers, "0", timers == 0),
    ]


def _signals(seen: _Seen, marks: bool | None, cnps: bool | None) -> list[Check]:
    """ACKs, marks and CNPs: some (True), none (False) or whatever (None)."""

    def asked(wanted: bool | None) -> str:
        return "" if wanted is None else "above 0" if wanted else "0"

    return [
        _count("ACKs", seen.acks, "above 0", seen.acks > 0),
        _count(
            "frames marked", seen.marks, asked(marks), None if marks is None else (seen.marks > 0) == marks
        ),
        _count("CNPs", seen.cnps, asked(cnps), None if cnps is None else (seen.cnps > 0) == cnps),
    ]


def _paused(box: Box, seen: _Seen, lossless: Sequence[int], wanted: bool | None) -> list[Check]:
    """Pauses on lossless priorities, and none on lossy ones."""
    checks = []
    for queue in dict.fromkeys(lossless):
        found = seen.pauses.get(queue, 0)
        asked = "" if wanted is None else "above 0" if wanted else "0"
        checks.append(
            _count(
                f"PFC of priority {queue}", found, asked, None if wanted is None else (found > 0) == wanted
            )
        )
    lossy = sum(seen.pauses.get(queue, 0) for queue in box.lossy)
    return [*checks, _count("PFC of lossy priorities", lossy, "0", lossy == 0)]


def _why(box: Box, checks: Sequence[Check]) -> str:
    """The keys of config_db.json that explain what does not hold."""
    queue = box.lossless[0]
    group = box.profile("BUFFER_PG", queue)
    by_key: dict[str, list[str]] = {}
    for check in checks:
        if check.holds is not False:
            continue
        if check.what.startswith("lossless"):
            key = f"{group} (xoff, dynamic_th) and BUFFER_POOL (xoff): headroom and threshold"
        elif check.what.startswith("PFC of lossy"):
            key = "TC_TO_PRIORITY_GROUP_MAP leads a lossy class to a lossless group"
        elif check.what.startswith("PFC"):
            key = f"PORT_QOS_MAP (pfc_enable) and {group} (dynamic_th): no group came to its threshold"
        elif check.what in ("frames marked", "CNPs"):
            key = f"{box.profile('QUEUE', queue)} and WRED_PROFILE (ecn, wred_green_enable, thresholds)"
        elif check.what in ("lossy NAKs", "frames dropped"):
            key = f"BUFFER_POOL (size) and {box.profile('BUFFER_QUEUE', box.lossy[0])}: flows fit the buffer"
        elif check.what == "ACKs":
            key = "DSCP_TO_TC_MAP and TC_TO_QUEUE_MAP: acknowledgements do not come back"
        else:
            key = f"{box.profile('QUEUE', queue)}, SCHEDULER (weight) and WRED_PROFILE (thresholds)"
        by_key.setdefault(key, []).append(check.what)
    return "; ".join(f"{', '.join(whats)}: {key}" for key, whats in by_key.items())


Test = Callable[[Box, Sequence[_Seen]], tuple[list[Check], list[str]]]


class _Case(NamedTuple):
    """A test case: its runs, and how they are judged."""

    test: str
    title: str
    wishes: tuple[_Wish, ...]
    judge: Test


def _free(box: Box, seen: Sequence[_Seen]) -> tuple[list[Check], list[str]]:
    (one,) = seen
    return [
        *_whole(one, range(len(one.statuses)), range(4)),
        *_signals(one, marks=False, cnps=False),
        *_paused(box, one, box.lossless, wanted=False),
        _count("frames dropped", one.drops, "0", one.drops == 0),
    ], []


S6100: Final = (
    "hardware (S6100, pull request 25347): lossless 0 failed messages and 0 NAKs; lossy 33 and 23 NAKs;"
    " latency 820 ns at least, 1,008 us in the mean, 1,378 us at most"
)


def _pfc(box: Box, seen: Sequence[_Seen], lossless: Sequence[int]) -> tuple[list[Check], list[str]]:
    (one,) = seen
    naks = one.naks.get(2, 0)
    return [
        *_whole(one, (0, 1), (0, 1)),
        *_signals(one, marks=False, cnps=False),
        *_paused(box, one, lossless, wanted=True),
        _count("lossy NAKs", naks, "above 0", naks > 0),
        _count("frames dropped", one.drops, "above 0 (lossy)", one.drops > 0),
        _count("timers of lossy flows", one.timers.get(2, 0), "", None),
    ], [
        S6100,
        (
            f"lossy NAKs here {naks:,}: a responder sends one NAK for each gap until it is repaired. The"
            " tester on"
            " hardware completed 19 of 1.5 million lossy messages in 20 s, so few gaps were repaired and"
            " few NAKs"
            " followed; here go-back-N repairs each gap. The counts follow from the"
            " sender's"
            " recovery and the length of the run, so only their being above 0 is judged"
        ),
    ]


def _dcqcn(box: Box, seen: Sequence[_Seen]) -> tuple[list[Check], list[str]]:
    one, without = seen
    before = sum(without.pauses.get(queue, 0) for queue in box.lossless)
    after = sum(one.pauses.get(queue, 0) for queue in box.lossless)
    return [
        *_whole(one, (0, 1), (0, 1)),
        *_signals(one, marks=True, cnps=True),
        _count("PFC, fewer than without DCQCN", after, f"at most {before:,}", after <= before),
    ], []


def _propagated(box: Box, seen: Sequence[_Seen]) -> tuple[list[Check], list[str]]:
    calm, stormed = seen
    queue = box.lossless[0]
    found = stormed.pauses.get(queue, 0)
    return [
        *_whole(calm, (0,), (0,)),
        _count("PFC before the tester pauses", calm.pauses.get(queue, 0), "0", not calm.pauses.get(queue, 0)),
        *_whole(stormed, (0,), (0,)),
        _count(f"PFC of priority {queue} passed on", found, "above 0", found > 0),
    ], ["the plan asks step 7 for PFC of both lossless priorities and sends on one: the one is judged"]


def _fair(_box: Box, seen: Sequence[_Seen]) -> tuple[list[Check], list[str]]:
    (one,) = seen
    rates = [one.rates_bps["flow_0"], one.rates_bps["flow_1"]]
    apart = 1 - min(rates) / max(rates) if max(rates) else 1.0
    shown = f"{100 * apart:.1f} % ({rates[0] / 1e9:.1f} and {rates[1] / 1e9:.1f} Gbit/s)"
    timers = one.timers.get(2, 0)
    ended = all(status == "success" for status in one.statuses.values())
    return [
        *_whole(one, (0, 1), (0, 1)),
        *_signals(one, marks=True, cnps=True),
        Check("rates of ranks 0 and 1 apart", shown, "under 30 %", apart < FAIR, apart),
        Check("lossy flows end", "yes" if ended else "no", "yes", ended, float(ended)),
    ], [
        (
            f"lossy flows: {timers:,} timers of 4.2 ms expired, where the last packets of a message were"
            " lost and no"
            " NAK could ask for them; with NCCL's timer (transport.timeout 20) each would wait 4.3 s"
        )
    ]


def _hashed(_box: Box, seen: Sequence[_Seen]) -> tuple[list[Check], list[str]]:
    one, many, pairs = seen
    return [
        _count("uplinks of 1 pair, 1 queue pair", one.uplinks, "1", one.uplinks == 1),
        _count("uplinks of 1 pair, 16 queue pairs", many.uplinks, "1 or more", many.uplinks >= 1),
        _count("uplinks of 4 pairs, 16 queue pairs", pairs.uplinks, "2 or more", pairs.uplinks >= 2),
        _count(
            "NAKs",
            sum(sum(run.naks.values()) for run in seen),
            "0",
            not any(any(r.naks.values()) for r in seen),
        ),
    ], ["the hash is the emulator's e_ecmp (queue pair in the hash); a box's own is not in config_db.json"]


def cases(box: Box) -> list[_Case]:
    """The test cases, for a box."""
    a, b = box.lossless[0], box.lossless[-1]
    message, large = 128 << 10, 1 << 20
    apart = tuple((1, 3, queue, SHORT_BYTES // len(box.lossy), large) for queue in box.lossy)
    size = box.incast_bytes
    same = _incast(box, "tc2_1", size, message)._replace(depth=TX_DEPTH)
    two = _incast(box, "tc2_2", size, message, same=False)._replace(depth=TX_DEPTH)
    mixed = _incast(box, "tc2_3", size, message, same=False, small=4096)._replace(depth=TX_DEPTH)
    long = _incast(box, "tc3", LONG_BYTES, message)
    storage = _incast(box, "tc4", LONG_BYTES, large)
    fair = _incast(box, "tc6", FAIR_BYTES, large, lossy_bytes=LONG_BYTES)
    calm = _Wish("tc5", ((0, 2, a, box.pool_sized_bytes, message),), depth=TX_DEPTH)
    hashed = [
        _Wish(
            f"tc7_{pairs}_{count}", tuple((at, 4 + at, a, SHORT_BYTES, large) for at in range(pairs))
        )._replace(leaves=2, queue_pairs=count)
        for pairs, count in ((1, 1), (1, 16), (4, 16))
    ]
    return [
        _Case(
            "TC1",
            "no congestion",
            (_Wish("tc1", ((0, 2, a, SHORT_BYTES, large), *apart), marking=True),),
            _free,
        ),
        _Case("TC2.1", "PFC, 3:1 incast, one lossless queue", (same,), partial(_pfc, lossless=(a,))),
        _Case("TC2.2", "PFC, 3:1 incast, both lossless queues", (two,), partial(_pfc, lossless=(a, b))),
        _Case("TC2.3", "PFC, 3:1 incast, 128 KB and 4 KB messages", (mixed,), partial(_pfc, lossless=(a, b))),
        _Case("TC3", "DCQCN, 3:1 incast", (long._replace(dcqcn=True, marking=True), long), _dcqcn),
        _Case(
            "TC4",
            "storage, 1 MB messages, DCQCN on and off",
            (storage._replace(dcqcn=True, marking=True), storage),
            _dcqcn,
        ),
        _Case("TC5", "PFC propagation", (calm, calm._replace(name="tc5_storm", storm=(2,))), _propagated),
        _Case("TC6", "fairness of queue pairs with DCQCN", (fair._replace(dcqcn=True, marking=True),), _fair),
        _Case("TC7", "hashing over four spines", tuple(hashed), _hashed),
    ]


Tell = Callable[[str], None]
"""Hears how many of how many runs are done, and the last."""


def answer(
    box: Box, wanted: Sequence[str], machines: Machines, tell: Tell, topology: Topology = "star"
) -> list[Answer]:
    """Carry out the cases of these names on a box; with `clos` on two leaves and four spines."""
    chosen = [case for case in cases(box) if not wanted or case.test in wanted or case.test[:3] in wanted]
    if topology == "clos":
        chosen = [
            case._replace(wishes=tuple(one if one.leaves > 1 else one.across() for one in case.wishes))
            for case in chosen
        ]
    wishes = [wish for case in chosen for wish in case.wishes]
    seen: list[_Seen] = []
    for one in answers_of(machines, partial(_run, box), wishes, partial(carried, files=[box.file])):
        seen.append(one)
        tell(f"{len(seen)} of {len(wishes)} runs: {wishes[len(seen) - 1].name}")
    answers = []
    for case in chosen:
        own, seen = seen[: len(case.wishes)], seen[len(case.wishes) :]
        checks, notes = case.judge(box, own)
        digest = " ".join(run.digest for run in own)
        answers.append(Answer(case.test, case.title, tuple(checks), _why(box, checks), tuple(notes), digest))
    return answers


def names() -> list[str]:
    """Names of all test cases."""
    return ["TC1", "TC2", "TC2.1", "TC2.2", "TC2.3", "TC3", "TC4", "TC5", "TC6", "TC7"]


def about(box: Box) -> list[str]:
    """What was tested, in a few lines."""
    queues = ", ".join(f"queue {queue}: DSCP {dscp}" for queue, dscp in sorted(box.dscps.items()))
    return [
        f"{box.file}: ports of {format_rate(box.rate_bps)}, lossless queues {listed(map(str, box.lossless))}",
        queues,
        (
            f"flows of {format_size(SHORT_BYTES)} (case 2 {format_size(box.incast_bytes)}, 3 and 4"
            f" {format_size(LONG_BYTES)}, 5 {format_size(box.pool_sized_bytes)}, 6 {format_size(FAIR_BYTES)})"
            " in place of 4 GB or 3 minutes"
        ),
        *box.notes,
    ]
