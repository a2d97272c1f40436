"""Connections of the library as flow level sees them: what slices put on links, and their latencies.

A connection carries slices from one rank to another. They go to its queue pairs as the policy of the library
says, so bytes are counted exactly. Latencies are those of the closed forms:

    copy    ask the GPU, its latency, the bytes of a slice at its copy rate, answer
    fixed   post, every link and device on the way but the slice's own time on the slowest link, completion
    clear   a clear-to-send from the receiver's host to the sender's
    turn    from one use of a buffer slot to the next: a slice there, out of its slot, and a clear-to-send
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from actors.fabric.paths import Delays, Unloaded
from actors.flow.filling import LIGHT, PAUSING, QUIET, UNIT
from actors.flow.progress import Strand
from actors.gpu.nvlink import SHARE, written_bps
from actors.kernel.units import serialisation_ps
from actors.ncclx.protocols import LL, LL128
from actors.ncclx.transport.clear_to_send import CTS_BYTES
from actors.ncclx.transport.posting import SPLIT_ALIGN_BYTES
from actors.ncclx.transport.wiring import Side
from actors.wire.message import (
    COPY_FLAGGED,
    COPY_FROM_NIC,
    COPY_LINES,
    COPY_PLAIN,
    COPY_TO_NIC,
    MESSAGE_BYTES,
)
from emu.devices.plan import copy_costs
from emu.flow.messages import Load, crossing_ps, directed, host_ps, message_load
from emu.flow.queue_pair_paths import CONTROL, FlowFabric, Paths, Way, parted
from emu.scenario.schema import Scenario

PS_OF_BIT_AT_KBPS: Final = 10**9


@dataclass(frozen=True)
class Slices:
    """The slices that a rank sends on a connection in one operation, as bytes of the buffer slots."""

    sizes: tuple[int, ...]
    parts: int = 1
    """Chunks that they are."""
    loop: tuple[int, ...] = ()
    """What comes before them, `loops` times."""
    loops: int = 0

    @cached_property
    def count(self) -> int:
        """How many they are."""
        return len(self.sizes) + self.loops * len(self.loop)

    @cached_property
    def total_bytes(self) -> int:
        """All of them."""
        return self.shared_bytes(int(SHARE))

    def shared_bytes(self, share: int) -> int:
        """What a link carries of them that takes this share of each, in units of 2^-16. Worked out once."""
        found = self._shared.get(share)
        if found is None:
            whole, loop = (sum(size * share >> 16 for size in sizes) for sizes in (self.sizes, self.loop))
            found = self._shared[share] = whole + self.loops * loop
        return found

    @cached_property
    def _shared(self) -> dict[int, int]:
        return {}

    @cached_property
    def inside_bits(self) -> int:
        """What they are on an NVLink, where an empty one takes as much as a message."""
        whole, loop = (
            sum(max(size, int(MESSAGE_BYTES)) for size in sizes) for sizes in (self.sizes, self.loop)
        )
        return (whole + self.loops * loop) * 8

    @cached_property
    def largest_bytes(self) -> int:
        """The largest."""
        return max(self.sizes)

    @cached_property
    def _loads(self) -> dict[tuple[int, int, int, str, int, int, bool], list[Load]]:
        return {}

    def loads(
        self,
        first: int,
        pairs: int,
        spread: int,
        policy: str,
        mtu_bytes: int,
        ack_every: int,
        *,
        pathed: bool = False,
    ) -> list[Load]:
        """By queue pair, where slice number `first` of its connection comes first. With `round_robin` a slice
        is cut over `spread` of them. Worked out once."""
        key = (first % pairs, pairs, spread, policy, mtu_bytes, ack_every, pathed)
        found = self._loads.get(key)
        if found is None:
            counts: list[dict[int, int]] = [{} for _ in range(pairs)]
            at = first
            for turn in range(min(self.loops, pairs)):  # by the next turn each is where the first one was
                _count(counts, self.loop, at, policy, spread, (self.loops - turn + pairs - 1) // pairs)
                at += len(self.loop)
            _count(counts, self.sizes, first + self.loops * len(self.loop), policy, spread)
            found = [_load_of(each, mtu_bytes, ack_every, pathed=pathed) for each in counts]
            self._loads[key] = found
        return found


def _count(
    counts: list[dict[int, int]], sizes: Sequence[int], first: int, policy: str, spread: int, times: int = 1
) -> None:
    """WRITEs by queue pair and size."""
    for at, size in enumerate(sizes, first):
        for place, piece in pieces(at, size, len(counts), policy, spread):
            counts[place][piece] = counts[place].get(piece, 0) + times


def pieces(number: int, size: int, pairs: int, policy: str, spread: int = 1) -> list[tuple[int, int]]:
    """Queue pair and bytes of each WRITE of a slice."""
    many = spread if policy == "round_robin" else pairs
    if many == 1:
        return [(number % pairs, size)]
    align = int(SPLIT_ALIGN_BYTES)
    each = (size + many - 1) // many
    piece = (each + align - 1) // align * align
    first = number * many % pairs
    return [(first + place, max(min(piece, size - place * piece), 0)) for place in range(many)]


def _load_of(counts: dict[int, int], mtu_bytes: int, ack_every: int, *, pathed: bool) -> Load:
    total = Load()
    for size, many in counts.items():
        one = message_load(size, mtu_bytes, ack_every, immediate=True, send=False, pathed=pathed)
        total = total.plus(one, many)
    return total


OnLinks = tuple[tuple[int, tuple[int, ...], int, int], ...]
"""Bits on paths of links, of which kind they are for `actors.flow.filling`, and of which pair."""


@dataclass(frozen=True, slots=True)
class Connection:
    """One connection in one operation. Times in ps, `bits` on the wire."""

    bits: int
    loads: OnLinks
    pairs: int
    line_kbps: int
    """Rate of the slowest link."""
    slice_bits: int
    fixed_ps: int
    copy_ps: int
    clear_ps: int
    slots: int
    nic: int = -1
    """By which it leaves; -1 over NVLink."""
    first: int = 0
    """Slices that its connection carried before."""
    hops: int = 0
    """Packets by the links that they cross; over NVLink slices, by two."""
    shares: tuple[int, int] = (0, 0)
    """What a slice takes of its two NVLinks if the NVSwitch works on it, in units of 2^-16; else 0."""
    block: tuple[int, int] = (-1, -1)
    """GPU and thread block that write it, where they have a rate."""
    block_kbps: int = 0
    """That rate, on the wire."""

    @property
    def inside(self) -> bool:
        """Whether it is over NVLink."""
        return self.nic < 0

    def shape(self) -> tuple[int, ...]:
        """What two connections over NVLink have in common that take the same."""
        rates = (self.line_kbps, self.block_kbps)
        return (self.bits, *rates, self.slice_bits, self.fixed_ps, self.clear_ps, *self.shares)

    @property
    def slice_ps(self) -> int:
        """A slice on the slowest link, alone, or the time that its block needs."""
        kbps = min(self.line_kbps, self.block_kbps or self.line_kbps)
        return self.slice_bits * PS_OF_BIT_AT_KBPS // kbps

    def written_ps(self, sharing: int = 1) -> int:
        """How long its block writes, which writes so many connections like it; 0 where it has no rate."""
        return sharing * self.bits * PS_OF_BIT_AT_KBPS // self.block_kbps if self.block_kbps else 0

    @property
    def step_ps(self) -> int:
        """A slice from one rank's buffers to the next one's, alone."""
        return self.fixed_ps + self.slice_ps + self.copy_ps

    @property
    def turn_ps(self) -> int:
        """How long a slot is in use for a slice, alone."""
        return self.step_ps + self.clear_ps

    def strands(self, whole_bits: int) -> list[Strand]:
        """Its shares of a rate of which `whole_bits` is what is to be sent."""
        return [
            Strand(max(bits * UNIT // whole_bits, 1), links, kind, pair)
            for bits, links, kind, pair in self.loads
            if bits
        ]


class Connections:
    """Makes the connections of one job."""

    def __init__(self, scenario: Scenario, fabric: FlowFabric, delays: Delays) -> None:
        self.scenario = scenario
        self._fabric = fabric
        self._delays = delays
        self._unloaded = Unloaded(delays, fabric.topology, int(CTS_BYTES))
        self._posted: dict[tuple[int, int, int, int, int], int] = {}
        """Slices that a connection carried before: group, channel, ranks, lane."""
        self._fixed: dict[tuple[Paths, int, bool], int] = {}
        self._clear: dict[tuple[int, int], int] = {}
        self.used: set[int] = set()
        """Links of the fabric on which it sent."""

    def connection(
        self,
        send: Side,
        receive: Side,
        rank: int,
        slices: Slices,
        cut: tuple[int, int],
        block: tuple[int, int],
    ) -> Connection:
        """The connection with these two sides, of which a rank sends slices; they are counted. `cut` are
        slots and protocol, `block` is who copies into the buffer of a NIC.
        """
        slots, protocol = cut
        largest = slices.largest_bytes
        copy_ps = self.copy_ps(largest, protocol)
        if send.inside:
            return self._inside(send, slices, slots, copy_ps, protocol)
        block_kbps = self._block_kbps(protocol)
        copy_ps = self._copy_for_nics_ps(largest, protocol, copy_ps, block_kbps)
        fabric, policy = self._fabric, self.scenario.ncclx.qp_policy
        key = (send.group, send.channel, rank, send.peer, send.lane)
        first = self._posted.get(key, 0)
        self._posted[key] = first + slices.count
        mtu_bytes = fabric.mtu_bytes(send.nic, send.peer_nic)
        loads = slices.loads(
            first,
            len(send.pairs),
            send.ports,
            policy,
            mtu_bytes,
            fabric.ack_every,
            pathed=fabric.pathed,
        )
        way = fabric.way(send.nic, send.pairs[0])
        packets = [-(-load.payload_bytes // mtu_bytes) for load in loads]
        found, hops = self._sent(send, loads, packets)
        clear_ps = 0
        if receive.control >= 0:
            clear_ps = self._clear_ps(receive)
            one = message_load(
                int(CTS_BYTES), mtu_bytes, fabric.ack_every, immediate=True, send=False, pathed=fabric.pathed
            )
            found = (*found, *self._cleared(receive, one, slices.count))
        bits = sum(load.wire_bytes for load in loads) * 8
        share = largest * bits // max(slices.total_bytes, 1) if slices.total_bytes else bits
        return Connection(
            bits,
            found,
            len(loads),
            way.line_kbps,
            share,
            self._fixed_ps(send, way, largest, mtu_bytes),
            copy_ps,
            clear_ps,
            slots,
            send.nic,
            first,
            hops,
            block=block if block_kbps else (-1, -1),
            block_kbps=block_kbps * bits // max(8 * slices.total_bytes, 1),
        )

    def _block_kbps(self, protocol: int) -> int:
        """What a thread block copies into a buffer of a NIC, lines and all; 0 where it is no limit."""
        rate_bps = self.scenario.gpu.nic_copy_rate_bps or 0
        return written_bps(rate_bps, protocol) // 1000

    def _copy_for_nics_ps(self, size_bytes: int, protocol: int, copy_ps: int, block_kbps: int) -> int:
        """What both copies of a slice for NICs cost more than `copy_ps`, which is of one between NVLinks."""
        costs = copy_costs(self.scenario)
        plain = {int(LL): int(COPY_LINES), int(LL128): int(COPY_FLAGGED)}.get(protocol, int(COPY_PLAIN))
        usual_ps = costs.latencies[plain]
        total_ps = copy_ps
        for end in (int(COPY_TO_NIC), int(COPY_FROM_NIC)):
            total_ps += costs.latencies[plain | end] - usual_ps
        if protocol == LL and costs.differ_by_nic():
            total_ps += self._asked_ps()
        if block_kbps:
            total_ps += size_bytes * 8 * PS_OF_BIT_AT_KBPS // block_kbps
        if costs.staged_bps:
            total_ps += 2 * serialisation_ps(size_bytes, int(costs.staged_bps))
        return total_ps

    def _sent(self, send: Side, loads: Sequence[Load], packets: Sequence[int]) -> tuple[OnLinks, int]:
        """What loads of queue pairs put on links, where it is counted, and their packets by the links that
        they cross."""
        found: list[tuple[int, tuple[int, ...], int, int]] = []
        hops = 0
        for index, load, many in zip(send.pairs, loads, packets, strict=True):
            way = self._fabric.way(send.nic, index)
            hops += many * len(way.ends)
            self._fabric.count(way, load)
            self.used.update(link for path in way.there for link in path.links)
            for bits, paths, kind in (
                (load.wire_bytes * 8, way.there, PAUSING),
                (load.ack_bytes * 8, way.back, LIGHT),
            ):
                found += [
                    (part, path.links, kind, way.pair)
                    for part, path in zip(parted(bits, paths), paths, strict=True)
                ]
        return tuple(found), hops

    def _cleared(self, receive: Side, one: Load, count: int) -> OnLinks:
        """What so many clear-to-sends put on links, where it may change; it is counted on them."""
        control = self._fabric.way(receive.nic, receive.control)
        self._fabric.count(control, Load().plus(one, count))
        if control.pair < 0:
            return ()
        each = parted(one.wire_bytes * count * 8, control.there)
        return tuple(
            (part, path.links, LIGHT, control.pair | CONTROL)
            for part, path in zip(each, control.there, strict=True)
        )

    def _inside(self, send: Side, slices: Slices, slots: int, copy_ps: int, protocol: int) -> Connection:
        """A connection over NVLink."""
        topology = self._fabric.topology
        leaving, arriving = topology.nvlink_end(send.nic), topology.nvlink_end(send.peer_nic)
        assert leaving is not None and arriving is not None, send
        back = topology.ports(arriving.peer)[arriving.peer_port]
        links = directed(topology, [(send.nic, leaving), (arriving.peer, back)])
        bits = slices.inside_bits
        pair = self._fabric.inside[send.nic][send.pairs[0]]
        shares = pair.leaving, pair.arriving
        for link, share in zip(links, shares, strict=True):
            self._inside_bytes(link, slices.shared_bytes(share or int(SHARE)))
        if shares == (0, 0):
            loads: OnLinks = ((bits, links, QUIET, -1),)
        else:
            taken = self._fabric.nvlink_shares(shares)
            loads = tuple(
                (bits * share >> 16, (link,), QUIET, -1) for link, share in zip(links, taken, strict=True)
            )
        way_ps = host_ps(topology, send.nic, Delays(0, 0, 0, cuts_through=False))
        way_ps += host_ps(topology, send.peer_nic, Delays(0, 0, 0, cuts_through=False))
        way_ps += leaving.delay_ps + arriving.delay_ps
        line = min(leaving.rate_bps, arriving.rate_bps) // 1000
        flag_ps = serialisation_ps(int(MESSAGE_BYTES), leaving.rate_bps)
        block, block_kbps = (-1, -1), 0
        rate_bps = self.scenario.at(topology, send.nic).gpu.channel_rate_bps
        if pair.block >= 0 and rate_bps < leaving.rate_bps:
            block = send.nic, pair.block
            block_kbps = written_bps(rate_bps, protocol) // 1000
        return Connection(
            bits,
            loads,
            1,
            line,
            slices.largest_bytes * 8,
            way_ps,
            copy_ps,
            way_ps + flag_ps if send.control >= 0 else 0,
            slots,
            hops=2 * slices.count,
            shares=shares,
            block=block,
            block_kbps=block_kbps,
        )

    def _inside_bytes(self, link: int, sent_bytes: int) -> None:
        """Count what an NVLink carries."""
        self._fabric.payload_bytes[link] += sent_bytes

    def copy_ps(self, size_bytes: int, protocol: int) -> int:
        """Time of a GPU's copy, from when it is asked until it answers."""
        if protocol == LL:
            return 0
        gpu = self.scenario.gpu
        latency_ps = gpu.lines_latency_ps if protocol == LL128 else gpu.copy_latency_ps
        return self._asked_ps() + latency_ps + serialisation_ps(size_bytes, gpu.copy_rate_bps)

    def _asked_ps(self) -> int:
        """The two messages of a copy."""
        topology = self._fabric.topology
        end = topology.host_end(topology.gpus[0])
        return 2 * (serialisation_ps(int(MESSAGE_BYTES), end.rate_bps) + end.delay_ps)

    def _fixed_ps(self, side: Side, way: Way, largest_bytes: int, mtu_bytes: int) -> int:
        several = largest_bytes > mtu_bytes
        payload_bytes = min(largest_bytes, mtu_bytes)
        key = (way.there, payload_bytes, several)
        found = self._fixed.get(key)
        if found is None:
            topology = self._fabric.topology
            packet = self._fabric.packet_bytes(payload_bytes)
            found = crossing_ps(topology, way.ends, self._delays, packet)
            found += host_ps(topology, side.nic, self._delays) + host_ps(
                topology, side.peer_nic, self._delays
            )
            found += self._fabric.reported_ps(way.ends) if several else 0
            self._fixed[key] = found
        return found

    def _clear_ps(self, side: Side) -> int:
        key = (side.nic, side.peer_nic)
        found = self._clear.get(key)
        if found is None:
            found = self._unloaded.ps(side.nic, side.peer_nic)
            self._clear[key] = found
        return found
