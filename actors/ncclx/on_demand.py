"""Communicators and connections on demand: what an open job makes while time goes on.

A communicator has for each way of doing a call (the ring; else an algorithm, and its root) a group with
connections of its own, made when the first such call is posted. Its calls are done one after another, in the
order in which each rank posts them, whatever their groups.

Numbers. What is there from the beginning has numbers by its place at the NIC. What is made on demand has a
*key*: a hash of what it is for (the communicator's name and GPUs, the group, how many of its connections are
before it, which end). The queue pair's number, its UDP source port and its first PSN are drawn from the seed
by that key, so they depend on who talks to whom and not on what else was posted. A queue pair number whose
low bits are taken at the NIC is drawn again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Final

from actors.fabric.model import Topology
from actors.kernel.mixing import Stream
from actors.ncclx.operations import Operation
from actors.ncclx.schedule import Schedule
from actors.ncclx.settings import Settings
from actors.ncclx.transport.wiring import ConnectionBook, NvlinkPlan, SourcePort
from actors.nic.queue_pair.numbers import QPN_PURPOSE, first_psn, slots_for
from actors.nic.queue_pair.pair_columns import QpPlan

KEY_BITS: Final = 40
_NUMBERS: Final = 1 << 24
"""Queue pair numbers, 24 bits (volume 1, section 9.2)."""

Made = tuple[QpPlan, tuple[int, int]]
"""A queue pair, and the first PSNs of both ways, its own first."""


def key_of(*parts: object) -> int:
    """A number for what something is for."""
    text = "\n".join(map(str, parts)).encode()
    return int.from_bytes(hashlib.sha256(text).digest()[:8], "little") % (1 << KEY_BITS)


class OpenSchedule(Schedule):
    """The calls of one group so far. An end has as many slots as a call of any protocol uses."""

    def __init__(
        self, settings: Settings, operations: Sequence[Operation], nodes: Sequence[int], channels: int
    ) -> None:
        super().__init__(settings, operations, nodes, channels)
        self._grown = list(operations)
        self.operations = self._grown

    def grow(self, operation: Operation) -> None:
        """Take one more call in."""
        self._grown.append(operation)

    def slots(self) -> int:
        return max(cut.slots for cut in self.cuts)


class OpenBook(ConnectionBook):
    """Connections made on demand, behind those of a plan."""

    def __init__(
        self, pairs: Mapping[int, Sequence[QpPlan]], inside: Mapping[int, Sequence[NvlinkPlan]]
    ) -> None:
        super().__init__()
        self._nvlink = {gpu: list(ends) for gpu, ends in inside.items()}
        self._blocks = {
            gpu: {end.block: end.block for end in ends if end.block >= 0} for gpu, ends in inside.items()
        }
        for nic, ends in pairs.items():
            for end in ends:
                self._of(nic).skip(end.remote_nic, end.remote_index)
        self._known = {nic: len(ends) for nic, ends in pairs.items()}
        """How many of a NIC's queue pairs have numbers."""
        self._known_inside = {gpu: len(ends) for gpu, ends in inside.items()}
        self._keys: dict[tuple[int, int], int] = {}
        """By NIC and index."""
        self._numbers = {nic: [end.qpn for end in ends] for nic, ends in pairs.items()}
        """Queue pair numbers of each NIC by index."""
        self._slots = {nic: slots_for(len(ends)) for nic, ends in pairs.items()}
        self._taken = {nic: {qpn % self._slots[nic] for qpn in qpns} for nic, qpns in self._numbers.items()}
        """Low bits of those."""
        self._purpose: tuple[object, ...] = ()
        self._count = 0

    def begin(self, *purpose: object) -> None:
        """Connections that are noted from now on are for this."""
        self._purpose = purpose
        self._count = 0

    def _connected(self, nic: int, peer: int, made: tuple[range, range]) -> None:
        for index, peer_index in zip(*made, strict=True):
            self._keys[nic, index] = key_of(*self._purpose, self._count, "from")
            self._keys[peer, peer_index] = key_of(*self._purpose, self._count, "to")
            self._count += 1

    def slots(self, nic: int) -> int:
        """The size of a NIC's table of queue pairs."""
        return self._slots[nic]

    def made(
        self, seed: int, topology: Topology, source_port: SourcePort
    ) -> tuple[dict[int, list[Made]], dict[int, list[NvlinkPlan]]]:
        """Queue pairs by NIC, and pairs by GPU, that were noted since the last call."""
        new = [
            (nic, index)
            for nic, ends in self._ends.items()
            for index in range(self._known.get(nic, 0), len(ends))
        ]
        for nic, index in new:
            self._number(seed, nic, self._keys[nic, index])
        pairs: dict[int, list[Made]] = {}
        for nic, index in new:
            end = self._ends[nic].end(index)
            peer, peer_index = end.remote_nic, end.remote_index
            qpn, remote_qpn = self._numbers[nic][index], self._numbers[peer][peer_index]
            key, peer_key = self._keys[nic, index], self._keys[peer, peer_index]
            plan = QpPlan(
                nic=nic,
                index=index,
                qpn=qpn,
                remote_nic=peer,
                remote_index=peer_index,
                remote_qpn=remote_qpn,
                remote_address=topology.address_of(peer),
                udp_source=source_port(nic, key, end.turn, peer, remote_qpn, end.priority, end.sends),
                priority=end.priority,
                log_deliveries=end.log_deliveries,
                job=end.job,
                turn=end.turn,
                sends=end.sends and not end.flags,
            )
            psns = first_psn(seed, nic, key), first_psn(seed, peer, peer_key)
            pairs.setdefault(nic, []).append((plan, psns))
            self._known[nic] = index + 1
        inside: dict[int, list[NvlinkPlan]] = {}
        for gpu, pairs_inside in self._nvlink.items():
            known = self._known_inside.get(gpu, 0)
            if len(pairs_inside) > known:
                inside[gpu] = pairs_inside[known:]
                self._known_inside[gpu] = len(pairs_inside)
        return pairs, inside

    def _number(self, seed: int, nic: int, key: int) -> None:
        """Draw the number of a NIC's next queue pair."""
        numbers = self._numbers.setdefault(nic, [])
        slots = self._slots.setdefault(nic, slots_for(0))
        if 2 * (len(numbers) + 1) > slots:  # so that few draws are in vain
            slots = self._slots[nic] = 2 * slots
            self._taken[nic] = {qpn % slots for qpn in numbers}
        taken = self._taken.setdefault(nic, set())
        stream = Stream(seed, nic, QPN_PURPOSE)
        stream.counter = key
        qpn = stream.below(_NUMBERS)
        while qpn % slots in taken:
            qpn = stream.below(_NUMBERS)
        taken.add(qpn % slots)
        numbers.append(qpn)
