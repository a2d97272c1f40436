"""The queue pairs of each NIC, and their numbers.

Connections are noted in the order in which the plan walks the scenario; a queue pair's *index* is its place
at its NIC. Queue pair numbers and UDP source ports are drawn per NIC from the seed once all are known, so
every worker computes those of every NIC, whichever it hosts. With `per_pair` all queue pairs from one NIC
to another share a UDP source port, as they do where a driver derives it from addresses alone.

Connections over NVLink are noted by the same book, by index at each GPU.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from actors.fabric.model import Topology
from actors.nic.queue_pair.numbers import assign_qpns, assign_udp_source


@dataclass(frozen=True, slots=True)
class QpPlan:
    """One end of a reliable connection: a queue pair of `nic`, and what it knows of the other end."""

    nic: int
    index: int
    qpn: int
    remote_nic: int
    remote_index: int
    remote_qpn: int
    remote_address: int
    udp_source: int
    priority: int
    log_deliveries: bool
    """Whether the NIC notes when each message was delivered here."""
    job: int


class _End(NamedTuple):
    """A queue pair before it has numbers."""

    remote_nic: int
    remote_index: int
    priority: int
    log_deliveries: bool
    job: int


@dataclass(frozen=True, slots=True)
class NvlinkPlan:
    """One end of a connection over NVLink: a pair of a GPU, and the pair of the other GPU."""

    peer: int
    index: int
    flags: bool
    """Whether it carries clear-to-sends."""


class ConnectionBook:
    """Connections in the making."""

    def __init__(self) -> None:
        self._ends: dict[int, list[_End]] = {}
        self._nvlink: dict[int, list[NvlinkPlan]] = {}

    def connect_inside(self, gpu: int, peer: int, *, flags: bool = False) -> tuple[int, int]:
        """Note a connection over NVLink; returns its index at `gpu` and at `peer`."""
        assert gpu != peer, f"GPU {gpu} cannot connect to itself"
        ends, peer_ends = self._nvlink.setdefault(gpu, []), self._nvlink.setdefault(peer, [])
        index, peer_index = len(ends), len(peer_ends)
        ends.append(NvlinkPlan(peer, peer_index, flags))
        peer_ends.append(NvlinkPlan(gpu, index, flags))
        return index, peer_index

    def inside(self) -> dict[int, tuple[NvlinkPlan, ...]]:
        """The pairs of GPUs by index; only of those that have any."""
        return {gpu: tuple(ends) for gpu, ends in self._nvlink.items()}

    def connect(
        self, nic: int, peer: int, priority: int, job: int, *, log_deliveries: bool = False
    ) -> tuple[int, int]:
        """Note a connection; returns its index at `nic` and at `peer`, which logs deliveries if asked to."""
        assert nic != peer, f"NIC {nic} cannot connect to itself"
        ends = self._ends.setdefault(nic, [])
        peer_ends = self._ends.setdefault(peer, [])
        index, peer_index = len(ends), len(peer_ends)
        ends.append(_End(peer, peer_index, priority, log_deliveries=False, job=job))
        peer_ends.append(_End(nic, index, priority, log_deliveries, job))
        return index, peer_index

    def numbered(self, seed: int, topology: Topology, *, udp_per_pair: bool) -> dict[int, tuple[QpPlan, ...]]:
        """The queue pairs of every NIC of the fabric by index; a NIC that nobody uses has none."""
        numbers = {nic: assign_qpns(seed, nic, len(ends)) for nic, ends in self._ends.items()}
        plan: dict[int, tuple[QpPlan, ...]] = dict.fromkeys(topology.nics, ())
        for nic, ends in self._ends.items():
            plan[nic] = tuple(
                QpPlan(
                    nic=nic,
                    index=index,
                    qpn=numbers[nic][index],
                    remote_nic=end.remote_nic,
                    remote_index=end.remote_index,
                    remote_qpn=numbers[end.remote_nic][end.remote_index],
                    remote_address=topology.address_of(end.remote_nic),
                    udp_source=assign_udp_source(seed, nic, end.remote_nic if udp_per_pair else index),
                    priority=end.priority,
                    log_deliveries=end.log_deliveries,
                    job=end.job,
                )
                for index, end in enumerate(ends)
            )
        return plan


def share_domain(topology: Topology, gpu: int, peer: int) -> bool:
    """Whether two GPUs are in one NVSwitch domain."""
    if topology.nodes[gpu].host != topology.nodes[peer].host:
        return False
    return topology.nvlink_end(gpu) is not None and topology.nvlink_end(peer) is not None


def connect_inside(
    book: ConnectionBook, gpu: int, peer: int, admitted: bool
) -> tuple[tuple[int, int], tuple[int, int]]:
    """Connect two GPUs over NVLink: pairs for data, and for clear-to-sends if slices wait for them, else -1;
    of each the index at `gpu` and at `peer`.
    """
    data = book.connect_inside(gpu, peer)
    return data, book.connect_inside(gpu, peer, flags=True) if admitted else (-1, -1)


def rails_between(topology: Topology, gpu: int, peer: int) -> list[tuple[int, int]]:
    """NIC i of the GPU's host and NIC i of its peer's, for as many as both have; none within one host."""
    host, other = topology.host_of(gpu), topology.host_of(peer)
    if host == other:
        return []
    mine = [nic for nic in topology.nics if topology.host_of(nic) == host]
    theirs = [nic for nic in topology.nics if topology.host_of(nic) == other]
    return list(zip(mine, theirs, strict=False))
