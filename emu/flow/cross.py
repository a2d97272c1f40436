"""Flow level beside packet level: where two summaries of one scenario differ, and whether by too much.

Bounds. A collective and a training step: 3 %. A flow from its post to its last byte: 5 % where no port was
paused, 10 % where some were. The end of a job on storage: 5 %. Payload of every link: none where hashes alone
choose, 2 % where every packet gets a port of its own, or where faults make some be sent again. All bytes on
links: 1 %.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from emu.results.summary import Flow, Job, Link, Summary

OF_COLLECTIVES: Final = 0.03
OF_FLOWS: Final = 0.05
OF_PAUSED_FLOWS: Final = 0.10
OF_STORAGE: Final = 0.05
OF_LOADED_PAYLOAD: Final = 0.02
OF_WIRE: Final = 0.01


class Difference(NamedTuple):
    """One thing at both levels. Times in ps, payload and wire in bytes."""

    what: str
    packet: int
    flow: int
    bound: float
    """What their ratio may differ from 1."""

    @property
    def part(self) -> float:
        """By how much flow level is above packet level, as a share; of nothing, infinite."""
        if self.packet == self.flow:
            return 0.0
        return self.flow / self.packet - 1 if self.packet else float("inf")

    @property
    def holds(self) -> bool:
        """Whether that is within the bound."""
        return abs(self.part) <= self.bound


def differences(packet: Summary, flow: Summary, *, by_load: bool = False) -> list[Difference]:
    """Differences of everything that both know: jobs in their order, then links. `by_load`: hashes alone do
    not say what each carries.
    """
    paused = bool(packet.fabric.pfc_transmit_xoff_frames)
    found: list[Difference] = []
    for name, job in packet.jobs.items():
        found += _of_job(name, job, flow.jobs[name], OF_PAUSED_FLOWS if paused else OF_FLOWS)
    found += _of_links(packet.fabric.links, flow.fabric.links, OF_LOADED_PAYLOAD if by_load else 0.0)
    return found


def _of_job(name: str, packet: Job, flow: Job, flow_bound: float) -> Iterator[Difference]:
    for one, other in zip(packet.collectives, flow.collectives, strict=True):
        took_ps, other_ps = _took(one.start_ps, one.end_ps), _took(other.start_ps, other.end_ps)
        what = f"{name}: {one.op} {one.bytes} B #{one.iteration}"
        yield Difference(what, took_ps, other_ps, OF_COLLECTIVES)
    for a, b in zip(packet.flows, flow.flows, strict=True):
        yield Difference(f"{name}: flow {a.flow}", _delivery(a), _delivery(b), flow_bound)
    if packet.storage is not None:
        yield Difference(f"{name}: end", packet.end_ps or 0, flow.end_ps or 0, OF_STORAGE)
    if packet.training is not None and flow.training is not None:
        step_ps, other_ps = packet.training.step_ps or 0, flow.training.step_ps or 0
        yield Difference(f"{name}: step", step_ps, other_ps, OF_COLLECTIVES)


def _took(start_ps: int | None, end_ps: int | None) -> int:
    return 0 if start_ps is None or end_ps is None else end_ps - start_ps


def _delivery(flow: Flow) -> int:
    return _took(flow.start_ps, flow.delivered_ps)


def _of_links(packet: Sequence[Link], flow: Sequence[Link], bound: float) -> Iterator[Difference]:
    """Every link whose payload differs, and the wire bytes of all together."""
    sides = [
        {(one.name, one.source, one.destination): one.data_bytes for one in links} for links in (packet, flow)
    ]
    for key in dict.fromkeys((*sides[0], *sides[1])):  # of links that did nothing there is no row
        sent, other_sent = (side.get(key, 0) for side in sides)
        if sent != other_sent:
            yield Difference(f"payload {key[1]} -> {key[2]}", sent, other_sent, bound)
    total, other_total = (sum(link.wire_bytes for link in links) for links in (packet, flow))
    yield Difference("bytes on all links", total, other_total, OF_WIRE)
