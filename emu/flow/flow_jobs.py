"""Jobs of flows: every queue pair of a flow is a transfer of its own.

A flow begins when it is posted: the host's proxy posts message by message, those of one flow after those of
the one before. Then come the doorbell, its bytes at the rate that links leave it, and what the last packet
takes to the receiver; its completion comes back with the last acknowledgement.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from actors.fabric.paths import Delays
from actors.fabric.paths import crossing_ps as unloaded_ps
from actors.flow.filling import LIGHT, PAUSING, UNIT
from actors.flow.progress import Progress, Shape
from actors.kernel.units import serialisation_ps
from actors.wire.frame import READ_REQUEST, READ_RESPONSE_ONLY, wire_size
from actors.wire.message import POST_READ, POST_SEND, POST_WITH_IMMEDIATE
from emu.devices.plan import FlowWork, JobWork
from emu.flow.connections import PS_OF_BIT_AT_KBPS
from emu.flow.messages import Load, answer_bytes, crossing_ps, host_ps, message_load, read_load
from emu.flow.queue_pair_paths import FlowFabric, Way, strands_of
from emu.flow.script_jobs import Sharing


class Asks(NamedTuple):
    """How data is asked for by READs; nothing: it is sent unasked."""

    message_bits: int = 0
    """What a READ brings, on the wire."""
    most: int = 0
    """READs that a queue pair has under way at most."""
    ask_ps: int = 0
    """What a request takes to who has the data."""


class FlowRun:
    """The flows of one job. `over` is called when all have ended."""

    def __init__(
        self,
        work: JobWork,
        fabric: FlowFabric,
        delays: Delays,
        progress: Progress,
        over: Callable[[int], None],
    ) -> None:
        self.rows: dict[int, list[list[int]]] = {}
        """By host: job, flow, begun, completed, status."""
        self.deliveries: dict[int, list[list[int]]] = {}
        """By receiving NIC: queue pair, message, when, bytes."""
        self.sharing = Sharing()
        self.work = work
        self._fabric = fabric
        self._delays = delays
        self._progress = progress
        self._over = over
        self._open = len(work.flows)
        self._proxies: dict[int, int] = {}
        """By host, until when its proxy posts what was asked for so far."""

    def begin(self) -> None:
        """Let every flow begin at its time."""
        for flow in self.work.flows:
            self._progress.at(self.work.start_ps + flow.start_ps, partial(self._post, flow))

    def _post(self, flow: FlowWork) -> None:
        now_ps = self._progress.now_ps
        busy = [place for place in range(len(flow.pairs)) if place < -(-flow.size_bytes // flow.write_bytes)]
        ended: list[int] = []
        begins_ps = host_ps(self._fabric.topology, flow.nic, self._delays) + self._request_ps(flow)
        posts_ps = max(self._proxies.get(flow.host, 0), now_ps)
        writes = -(-flow.size_bytes // flow.write_bytes)
        self._proxies[flow.host] = posts_ps + writes * self._delays.at(flow.host).proxy_ps
        for place in busy:
            self._progress.at(
                posts_ps + begins_ps, partial(self._send, flow, place, ended, len(busy), now_ps)
            )

    def _request_ps(self, flow: FlowWork) -> int:
        """What a READ's request takes to who has the data."""
        if not flow.flags & POST_READ:
            return 0
        request = int(wire_size(int(READ_REQUEST), 0))
        ends = flow.destination, flow.source
        return unloaded_ps(self._delays, self._fabric.topology, *ends, request, request)

    def _asks(self, flow: FlowWork) -> tuple[Asks, int]:
        """How a flow's READs are asked for, and at which rate if nobody else sends; other flows are not."""
        if not flow.flags & POST_READ:
            return Asks(), 0
        fabric = self._fabric
        mtu_bytes = fabric.mtu_bytes(flow.source, flow.destination)
        message = read_load(min(flow.write_bytes, flow.size_bytes), mtu_bytes).wire_bytes
        asks = Asks(message * 8, fabric.max_reads, self._request_ps(flow))
        largest = min(message, int(wire_size(int(READ_RESPONSE_ONLY), mtu_bytes)))
        ends = flow.source, flow.destination
        turn_ps = asks.ask_ps + unloaded_ps(self._delays, fabric.topology, *ends, message, largest)
        return asks, asks.most * asks.message_bits * PS_OF_BIT_AT_KBPS // turn_ps

    def _send(self, flow: FlowWork, place: int, ended: list[int], many: int, begun_ps: int) -> None:
        fabric = self._fabric
        way = fabric.way(flow.source, flow.pairs[place][0])
        load = self._load(flow, place)
        fabric.count(way, load)
        acks = load.ack_bytes * UNIT // load.wire_bytes
        most_kbps = self._posted_kbps(flow, place, load.wire_bytes * 8)
        asks, asked_kbps = self._asks(flow)
        if asked_kbps:
            most_kbps = min(most_kbps or asked_kbps, asked_kbps)
        if most_kbps >= way.ports_kbps:
            most_kbps = 0
        strands = (
            *strands_of(way.there, UNIT, PAUSING, way.pair),
            *strands_of(way.back, acks, LIGHT, way.pair),
        )
        window, bits = asks.most * asks.message_bits, load.wire_bytes * 8
        shape = Shape(strands, most_kbps=most_kbps, window_bits=window)
        alone_ps = bits * PS_OF_BIT_AT_KBPS // self._progress.alone_kbps(shape)
        late_ps = max(way.whole_ps(load, self._packet_bytes(flow)) - alone_ps, 0)
        sent = partial(self._sent, flow, place, way, ended, many, begun_ps, late_ps)
        self._progress.begin(shape, bits, partial(self._shared, self._progress.now_ps, alone_ps, sent))

    def _shared(self, begun_ps: int, alone_ps: int, sent: Callable[[], None]) -> None:
        self.sharing.add(self._progress.now_ps - begun_ps, alone_ps)
        sent()

    def _posted_kbps(self, flow: FlowWork, place: int, bits: int) -> int:
        """The rate at which the host's proxy posts a flow's messages, of which those of one queue pair are so
        many bits by the number of queue pairs.
        """
        each_ps = self._delays.at(flow.host).proxy_ps
        writes = -(-flow.size_bytes // flow.write_bytes)
        mine = (writes - place + len(flow.pairs) - 1) // len(flow.pairs)
        return max(bits * PS_OF_BIT_AT_KBPS // (mine * each_ps * len(flow.pairs)), 1) if each_ps else 0

    def _load(self, flow: FlowWork, place: int) -> Load:
        """What one queue pair of a flow sends."""
        count = len(flow.pairs)
        writes = -(-flow.size_bytes // flow.write_bytes)
        mine = (writes - place + count - 1) // count
        whole = self._message(flow, flow.write_bytes)
        if (writes - 1) % count != place:
            return Load().plus(whole, mine)
        last_bytes = flow.size_bytes - (writes - 1) * flow.write_bytes
        return Load().plus(whole, mine - 1).plus(self._message(flow, last_bytes))

    def _message(self, flow: FlowWork, size_bytes: int) -> Load:
        """What one message of a flow is."""
        mtu_bytes = self._fabric.mtu_bytes(flow.source, flow.destination)
        if flow.flags & POST_READ:
            return read_load(size_bytes, mtu_bytes)
        immediate, send = flow.flags & POST_WITH_IMMEDIATE != 0, flow.flags & POST_SEND != 0
        every = self._fabric.acknowledged_every(flow.destination)
        pathed = self._fabric.pathed
        return message_load(size_bytes, mtu_bytes, every, immediate=immediate, send=send, pathed=pathed)

    def _packet_bytes(self, flow: FlowWork) -> int:
        """The largest packet of a flow on the wire."""
        mtu_bytes = self._fabric.mtu_bytes(flow.source, flow.destination)
        return self._fabric.packet_bytes(min(mtu_bytes, flow.size_bytes, flow.write_bytes))

    def _sent(
        self,
        flow: FlowWork,
        place: int,
        way: Way,
        ended: list[int],
        many: int,
        begun_ps: int,
        late_ps: int,
    ) -> None:
        """The last bit of a queue pair has left the slowest link, but for what one port has more than others
        (`late_ps`).
        """
        topology, delays = self._fabric.topology, self._delays
        packet = self._packet_bytes(flow)
        at_ps = self._progress.now_ps + late_ps + crossing_ps(topology, way.ends, delays, packet)
        if packet < self._load(flow, place).wire_bytes:
            at_ps += self._fabric.reported_ps(way.ends)
        self._arrived(flow, place, way, ended, many, begun_ps, at_ps)

    def _arrived(
        self, flow: FlowWork, place: int, way: Way, ended: list[int], many: int, begun_ps: int, at_ps: int
    ) -> None:
        """The last bit of a queue pair is at the receiver."""
        topology, delays = self._fabric.topology, self._delays
        self._deliver(flow, place, at_ps)
        ack = answer_bytes(pathed=self._fabric.pathed)
        slowest_ps = serialisation_ps(ack, min(end.rate_bps for _, end in way.ends))
        back_ps = crossing_ps(topology, way.ends, delays, ack) + slowest_ps
        if flow.flags & POST_READ:
            back_ps = 0
        ended.append(at_ps + back_ps + host_ps(topology, flow.nic, delays))
        if len(ended) == many:
            end_ps = max(ended)
            self._progress.at(end_ps, partial(self._ended, flow, begun_ps, end_ps))

    def _deliver(self, flow: FlowWork, place: int, at_ps: int) -> None:
        index = flow.pairs[place][1]
        number = dict(flow.last_messages())[index]
        self.deliveries.setdefault(flow.destination, []).append([index, number, at_ps, flow.write_bytes])

    def _ended(self, flow: FlowWork, begun_ps: int, end_ps: int) -> None:
        self.rows.setdefault(flow.host, []).append([self.work.job, flow.flow, begun_ps, end_ps, 0])
        self._open -= 1
        if self._open == 0:
            self._over(end_ps)
