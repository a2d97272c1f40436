"""What messages put on links, and how long the smallest part of one is under way.

Bytes are exact: a message is as many packets as a queue pair would make of it, and every packet has its
headers, preamble and gap. Acknowledgements are counted as one for every `ack_every` packets (two with TCP)
and one for the last of a message; a NIC that is busy may send fewer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from actors.fabric.model import Attachment, Role, Topology
from actors.fabric.paths import Delays
from actors.kernel.units import serialisation_ps
from actors.nic.queue_pair.packets import ACK_WIRE_BYTES
from actors.wire.frame import (
    ACKNOWLEDGE,
    HEAD_WIRE_BYTES,
    READ_REQUEST,
    READ_RESPONSE_FIRST,
    READ_RESPONSE_LAST,
    READ_RESPONSE_MIDDLE,
    READ_RESPONSE_ONLY,
    WRITE_FIRST,
    WRITE_LAST,
    WRITE_LAST_IMM,
    WRITE_MIDDLE,
    WRITE_ONLY,
    WRITE_ONLY_IMM,
    pathed_size,
    wire_size,
)
from actors.wire.message import MESSAGE_BYTES

Ends = Sequence[tuple[int, Attachment]]
"""The sending end of every link of a path, each with its device."""


class Load(NamedTuple):
    """What messages put on every link of their path, and their acknowledgements on every link back."""

    payload_bytes: int = 0
    wire_bytes: int = 0
    ack_bytes: int = 0

    def plus(self, other: Load, times: int = 1) -> Load:
        """With another, so many times."""
        return Load(
            self.payload_bytes + times * other.payload_bytes,
            self.wire_bytes + times * other.wire_bytes,
            self.ack_bytes + times * other.ack_bytes,
        )


@lru_cache(maxsize=4096)
def read_load(size_bytes: int, mtu_bytes: int) -> Load:
    """The packets of one READ: its responses, and the request in the place of acknowledgements."""
    packets = max(-(-size_bytes // mtu_bytes), 1)
    last_bytes = size_bytes - (packets - 1) * mtu_bytes
    if packets == 1:
        wire_bytes = int(wire_size(int(READ_RESPONSE_ONLY), last_bytes))
    else:
        wire_bytes = int(wire_size(int(READ_RESPONSE_FIRST), mtu_bytes))
        wire_bytes += (packets - 2) * int(wire_size(int(READ_RESPONSE_MIDDLE), mtu_bytes))
        wire_bytes += int(wire_size(int(READ_RESPONSE_LAST), last_bytes))
    return Load(size_bytes, wire_bytes, int(wire_size(int(READ_REQUEST), 0)))


@lru_cache(maxsize=4096)
def message_load(
    size_bytes: int, mtu_bytes: int, ack_every: int, *, immediate: bool, send: bool, pathed: bool = False
) -> Load:
    """The packets of one SEND or WRITE; `pathed`: of a transport with paths."""
    size_of = pathed_size if pathed else wire_size
    packets = max(-(-size_bytes // mtu_bytes), 1)
    less = int(WRITE_FIRST) if send else 0
    """Opcodes of SEND begin at 0, in the same order."""
    last_bytes = size_bytes - (packets - 1) * mtu_bytes
    if packets == 1:
        only = int(WRITE_ONLY_IMM if immediate else WRITE_ONLY)
        wire_bytes = int(size_of(only - less, last_bytes))
    else:
        last = int(WRITE_LAST_IMM if immediate else WRITE_LAST)
        wire_bytes = int(size_of(int(WRITE_FIRST) - less, mtu_bytes))
        wire_bytes += (packets - 2) * int(size_of(int(WRITE_MIDDLE) - less, mtu_bytes))
        wire_bytes += int(size_of(last - less, last_bytes))
    acks = packets // ack_every + (1 if packets % ack_every else 0)
    return Load(size_bytes, wire_bytes, acks * answer_bytes(pathed=pathed))


def answer_bytes(*, pathed: bool) -> int:
    """An acknowledgement on the wire."""
    return int(pathed_size(int(ACKNOWLEDGE), 0) if pathed else ACK_WIRE_BYTES)


def host_ps(topology: Topology, nic: int, delays: Delays) -> int:
    """A message between a host and its NIC or GPU, and the proxy's part in it."""
    end = topology.host_end(nic)
    return delays.at(end.peer).proxy_ps + serialisation_ps(int(MESSAGE_BYTES), end.rate_bps) + end.delay_ps


def crossing_ps(topology: Topology, ends: Ends, delays: Delays, packet_bytes: int) -> int:
    """What a message takes from NIC to NIC beside the time that its bytes take on the slowest link.

    `packet_bytes` is its largest packet on the wire, which every other link passes on whole.
    """
    total = 0
    longest = 0
    for _, end in ends:
        to_switch = topology.nodes[end.peer].role is Role.SWITCH
        own = delays.at(end.peer)
        on_wire = int(HEAD_WIRE_BYTES) if own.cuts_through and to_switch else packet_bytes
        takes_ps = serialisation_ps(on_wire, end.rate_bps)
        longest = max(longest, takes_ps)
        total += takes_ps + end.delay_ps + (own.switch_ps if to_switch else own.nic_ps)
    return total - longest


def ahead(
    topology: Topology, ends: Ends, delays: Delays, packet_bytes: int, credit_ps: Mapping[int, int]
) -> tuple[list[int], list[int]]:
    """By link: what of a packet must be there before it goes on, and what follows the link; of modular
    switches without the credit, which is gone through.
    """
    heads: list[int] = []
    after: list[int] = []
    for _, end in ends:
        own = delays.at(end.peer)
        to_switch = topology.nodes[end.peer].role is Role.SWITCH
        on_wire = int(HEAD_WIRE_BYTES) if own.cuts_through and to_switch else packet_bytes
        heads.append(serialisation_ps(on_wire, end.rate_bps))
        switch_ps = own.switch_ps - 2 * credit_ps.get(end.peer, 0)
        after.append(end.delay_ps + (switch_ps if to_switch else own.nic_ps))
    return heads, after


def directed(topology: Topology, ends: Iterable[tuple[int, Attachment]]) -> tuple[int, ...]:
    """Links with their direction: twice the number of the link, and one more from its end `b`."""
    links = topology.links
    return tuple(2 * end.link + (links[end.link].a != node) for node, end in ends)


def capacities_kbps(topology: Topology) -> list[int]:
    """The rate of every directed link."""
    return [link.rate_bps // 1000 for link in topology.links for _ in (0, 1)]
