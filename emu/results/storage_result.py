"""Result of clients of storage, `jobs.NAME.storage`: what they moved, their requests, and their report."""

from __future__ import annotations

from collections.abc import Sequence

from emu.base.units import about_rate, about_size, about_time, aligned, counted
from emu.results.summary_part import KindResult, Part


class RequestTimes(Part):
    """Requests of one kind that clients of storage made."""

    count: int
    """How many were answered."""
    mean_ps: int
    """From the first time that it was asked to the answer; with FUSE, from its place in the daemon's line."""
    max_ps: int
    """The longest."""
    refused: int
    """How often one found a full queue."""
    elsewhere: int = 0
    """How often one was written to another server, since its own was gone."""


class StorageResult(KindResult):
    """What clients of storage did."""

    clients: int
    """How many are through, done or given up."""
    planned_clients: int
    """How many there are."""
    bytes: int
    """Data that was moved and answered, copies and parity included."""
    planned_bytes: int
    """What was to be moved."""
    throughput_bps: int | None
    """Bytes that were moved, from the job's begin to its end."""
    staged_ps: int | None = None
    """Stage one of a save: from the begin until the last client had its part in host memory. So long a job
    that saves its own state stands still. Null where nothing is copied first."""
    requests: dict[str, RequestTimes]
    """By kind: read, write, and what was asked of metadata servers."""

    def lines(self, job: str) -> list[str]:
        """What was moved, how fast, and a row for each kind of request."""
        rate = f" at {about_rate(self.throughput_bps)}" if self.throughput_bps else ""
        rows: list[Sequence[str]] = [("requests", "answered", "mean", "longest", "refused")]
        rows += [
            (kind, f"{one.count:,}", about_time(one.mean_ps), about_time(one.max_ps), f"{one.refused:,}")
            for kind, one in self.requests.items()
        ]
        moved = f"{counted(self.clients, 'client')} moved {about_size(self.bytes)}{rate}"
        if self.clients < self.planned_clients or self.bytes < self.planned_bytes:
            through = f"{self.clients} of {self.planned_clients} clients are through"
            moved = f"{through}; moved {about_size(self.bytes)} of {about_size(self.planned_bytes)}{rate}"
        lines = [f"# {job}: {moved}"]
        if self.staged_ps is not None:
            lines.append(f"stage one, from GPU to host memory: {about_time(self.staged_ps)}")
        refused = sum(one.refused for one in self.requests.values())
        if refused and self.bytes < self.planned_bytes:
            lines.append(
                f"{refused:,} refusals by full queues of metadata servers: see frontend.metadata.queue, and"
                " retries and backoff of the job"
            )
        elsewhere = sum(one.elsewhere for one in self.requests.values())
        if elsewhere:
            lines.append(f"{counted(elsewhere, 'write')} went to another server, since theirs was gone")
        return [*lines, *aligned(rows)]
