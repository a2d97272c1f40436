"""Flows of plain verbs, as perftest's `ib_write_bw`, `ib_send_bw` and `ib_read_bw` post them.

A flow is a number of messages to or (READ) from one peer. What is said of WRITEs below holds for all. It is a
number of WRITEs to one peer, spread over its queue pairs in turn: WRITE m goes to queue pair m
modulo their number. Each queue pair has at most `tx_depth` WRITEs outstanding; a completion makes room for
its next one. A flow is *completed* when the sender's host has the last completion. When its last byte was
*delivered* is logged by the receiving NIC; the two are never mixed.

A WRITE that fails (its queue pair is in error) ends its queue pair's share; the flow goes on where it can
and ends with the first failure as its status. The program reports to the controller once, when all its
flows have ended.

Source: linux-rdma/perftest, `ib_write_bw` (-q queue pairs, -s message size, -t depth, 128 by default).

Not modelled: completion moderation (`-Q`), two-way tests, posting lists.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from actors.host.host import Host, Program
from actors.kernel.device import Plain
from actors.kernel.event import Message
from actors.kernel.state import as_int, as_list, load_fields, save_fields
from actors.wire.message import STATUS_SUCCESS

TX_DEPTH: Final = 128
"""WRITEs outstanding on one queue pair, unless a job says otherwise (perftest's default of -t)."""

_PAIR_FIELDS: Final = ("posted", "completed", "failed")
_FLOW_FIELDS: Final = ("begun_ps", "started_ps", "completed_ps", "status", "open_pairs")


class FlowPair:
    """One queue pair of a flow: how many of its WRITEs are posted and completed."""

    def __init__(self, flow: Flow, port: int, pair: int, place: int, writes: int) -> None:
        self.flow = flow
        self.port: i64 = port
        self.pair: i64 = pair
        self.place: i64 = place
        """Which of the flow's queue pairs it is: its WRITEs are `place`, `place` + number of pairs, .."""
        self.writes: i64 = writes
        self.posted: i64 = 0
        self.completed: i64 = 0
        self.failed: bool = False


class Flow:
    """One flow: `write_bytes` each, the last WRITE what is left of `size_bytes`; `flags` are POST's."""

    def __init__(
        self,
        number: int,
        start_ps: int,
        size_bytes: int,
        write_bytes: int,
        flags: int = 0,
        tx_depth: int = TX_DEPTH,
    ) -> None:
        self.number: i64 = number
        self.start_ps: i64 = start_ps
        self.size_bytes: i64 = size_bytes
        self.write_bytes: i64 = write_bytes
        self.flags: i64 = flags
        self.tx_depth: i64 = tx_depth
        """WRITEs that each of its queue pairs has outstanding at most."""
        self.pairs: list[FlowPair] = []
        self.begun_ps: i64 = -1
        self.started_ps: i64 = -1
        """When it began, once it is completed; of a flow that is posted again and again, like `completed_ps`,
        the last time that it was completed."""
        self.completed_ps: i64 = -1
        self.status: i64 = STATUS_SUCCESS
        self.open_pairs: i64 = 0
        """Queue pairs with WRITEs still to be completed."""


class FlowProgram(Program):
    """A host's share of a job of flows. `rank` is what its report calls it: the host's number."""

    def __init__(self, job: int, start_ps: int, rank: int) -> None:
        super().__init__(job, start_ps)
        self.rank: i64 = rank
        self.flows: list[Flow] = []
        self.open_flows: i64 = 0
        self._pairs: list[FlowPair] = []

    def add(self, flow: Flow, pairs: list[tuple[int, int]]) -> list[int]:
        """Take a flow in, over these (port, queue pair); returns the contexts to bind them with, in order."""
        writes = -(-flow.size_bytes // flow.write_bytes)
        contexts: list[int] = []
        for place, (port, pair) in enumerate(pairs):
            share = (writes - place + len(pairs) - 1) // len(pairs)
            one = FlowPair(flow, port, pair, place, share)
            flow.pairs.append(one)
            contexts.append(len(self._pairs))
            self._pairs.append(one)
            if share > 0:
                flow.open_pairs += 1
        self.flows.append(flow)
        self.open_flows += 1
        return contexts

    def on_begin(self, host: Host, operation: i64, now: i64) -> None:
        if self.open_flows == 0:
            self._again()
        for at, flow in enumerate(self.flows):
            if flow.start_ps == 0:
                self._begin(host, flow, now)
            else:
                host.set_timer(self.number, now + flow.start_ps, at + 1)

    def _again(self) -> None:
        """Every flow is to be posted once more: the job repeats."""
        self.open_flows = len(self.flows)
        for one in self._pairs:
            if one.writes > 0:
                one.flow.open_pairs += 1
            one.posted = 0
            one.completed = 0

    def on_lost(self, host: Host, gpu_port: i64, status: i64, now: i64) -> None:
        if gpu_port >= 0 or self.start_ps > now or self.open_flows == 0:
            return
        for flow in self.flows:
            if flow.completed_ps < 0:
                flow.status = status
                flow.completed_ps = now
                if flow.begun_ps < 0:
                    flow.begun_ps = now
        self.open_flows = 1
        self._ended(host, now)

    def on_timer(self, host: Host, subject: i64, now: i64) -> bool:
        if self.open_flows == 0:
            return False
        self._begin(host, self.flows[subject - 1], now)
        return True

    def _begin(self, host: Host, flow: Flow, now: i64) -> None:
        """Post the flow's first WRITEs, one to each queue pair in turn, as many as the depth allows."""
        flow.begun_ps = now
        turn: i64 = 0
        while turn < flow.tx_depth:
            for one in flow.pairs:
                if one.posted < one.writes:
                    self._post(host, one)
            turn += 1

    def _post(self, host: Host, one: FlowPair) -> None:
        flow = one.flow
        write: i64 = one.posted * len(flow.pairs) + one.place
        size: i64 = flow.size_bytes - write * flow.write_bytes
        if size > flow.write_bytes:
            size = flow.write_bytes
        host.post(self.number, one.port, one.pair, write, size, flow.flags, write & 0xFFFFFFFF)
        one.posted += 1

    def on_completion(self, host: Host, context: i64, message: Message, now: i64) -> None:
        if self.open_flows == 0:
            return  # the host was lost
        one = self._pairs[context]
        flow = one.flow
        one.completed += 1
        if message.e != STATUS_SUCCESS:
            one.failed = True
            if flow.status == STATUS_SUCCESS:
                flow.status = message.e
        elif one.posted < one.writes and not one.failed:
            self._post(host, one)
        if one.completed == one.posted and (one.failed or one.posted == one.writes):
            flow.open_pairs -= 1
            if flow.open_pairs == 0:
                flow.started_ps = flow.begun_ps
                flow.completed_ps = now
                self._ended(host, now)

    def _ended(self, host: Host, now: i64) -> None:
        """A flow has ended; with the last one, report."""
        self.open_flows -= 1
        if self.open_flows > 0:
            return
        start_ps: i64 = now
        status: i64 = STATUS_SUCCESS
        for flow in self.flows:
            if flow.begun_ps < start_ps:
                start_ps = flow.begun_ps
            if status == STATUS_SUCCESS:
                status = flow.status
        host.report(self.job, 0, self.rank, start_ps, now, status)

    def add_results(self, tables: dict[str, list[list[int]]]) -> None:
        tables["flows"] += [
            [self.job, flow.number, flow.started_ps, flow.completed_ps, flow.status]
            for flow in self.flows
            if flow.completed_ps >= 0
        ]

    def save(self) -> list[Plain]:
        flows: list[Plain] = [save_fields(flow, _FLOW_FIELDS) for flow in self.flows]
        pairs: list[Plain] = [save_fields(one, _PAIR_FIELDS) for one in self._pairs]
        return [self.open_flows, flows, pairs]

    def load(self, state: list[Plain]) -> None:
        open_flows, flows, pairs = state
        self.open_flows = as_int(open_flows)
        for flow, saved in zip(self.flows, as_list(flows), strict=True):
            load_fields(flow, _FLOW_FIELDS, saved)
        for one, part in zip(self._pairs, as_list(pairs), strict=True):
            load_fields(one, _PAIR_FIELDS, part)
