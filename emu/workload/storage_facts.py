"""Clients of storage: what they are to move, and what they did, over all hosts."""

from __future__ import annotations

from dataclasses import dataclass

from actors.optional.storage_clients import KINDS
from emu.results.busbw import bandwidth_bps
from emu.results.job_facts import JobFacts, JobRows, Outcome
from emu.results.storage_result import RequestTimes, StorageResult
from emu.results.summary_part import KindResult


@dataclass(frozen=True, slots=True)
class StorageFacts(JobFacts):
    """What the results need to know of a job on storage."""

    clients: int
    """Clients that have requests."""
    stored_bytes: int
    """What clients and storage servers send one another, without requests to metadata servers."""
    staged: bool
    """Whether clients first copy what they save to host memory."""

    def payload_bytes(self) -> int:
        """What clients and storage servers send one another."""
        return self.stored_bytes

    def outcomes(self, rows: JobRows) -> list[Outcome | None]:
        """Every client has to be through."""
        return [*rows.clients, *[None] * (self.clients - len(rows.clients))]

    def results(self, rows: JobRows) -> dict[str, KindResult]:
        """What was moved, how fast, and how long requests took."""
        if not self.clients:
            return {}
        found: dict[str, RequestTimes] = {}
        for kind, name in enumerate(KINDS):
            asked = [row for row in rows.requests if row[0] == kind]
            count = sum(row[1] for row in asked)
            if asked:
                found[name] = RequestTimes(
                    count=count,
                    mean_ps=sum(row[2] for row in asked) // max(count, 1),
                    max_ps=max(row[3] for row in asked),
                    refused=sum(row[4] for row in asked),
                    elsewhere=sum(row[6] for row in asked),
                )
        moved_bytes = sum(row[5] for row in rows.requests)
        whole = len(rows.clients) == self.clients
        took_ps = 0
        if whole:
            took_ps = max(one.end_ps for one in rows.clients) - min(one.start_ps for one in rows.clients)
        result = StorageResult(
            clients=len(rows.clients),
            planned_clients=self.clients,
            bytes=moved_bytes,
            planned_bytes=self.stored_bytes,
            throughput_bps=bandwidth_bps(moved_bytes, took_ps) if took_ps else None,
            staged_ps=rows.staged_ps if self.staged and rows.clients else None,
            requests=found,
        )
        return {"storage": result}
