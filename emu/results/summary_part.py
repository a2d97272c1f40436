"""The base of all parts of `summary.json`, and of what a kind of workload adds to the results of its job."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import BaseModel, ConfigDict


class Part(BaseModel):
    """Base of the parts: frozen, nothing unknown."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        populate_by_name=True,
        allow_inf_nan=False,
        ser_json_inf_nan="null",
        defer_build=True,
    )


class KindResult(Part):
    """What a kind of workload adds to the results of its job: a field of `emu.results.summary.Job`."""

    def lines(self, job: str) -> list[str]:
        """The result of a job of this name as lines of the report."""
        raise NotImplementedError


def every_part(base: type[Part] = Part) -> Iterator[type[Part]]:
    """All parts that are declared below a base."""
    for one in base.__subclasses__():
        yield one
        yield from every_part(one)
