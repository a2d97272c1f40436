"""What the tests of the benchmarking drafts share: a site, runs on it within a time, and KPIs read off.

A bench runs with a seed and keeps the digest of each run. A run that would take longer than the site allows
is refused before it begins, by the estimate of `emu estimate`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import mean, pstdev
from typing import Final, Literal, NamedTuple

import emu
from actors.fabric.model import FABRIC
from actors.kernel.counters import Metric
from emu.api import Prepared, Result, prepare, run_prepared
from emu.base.errors import RuntimeFailure
from emu.base.shipped import scenario_named
from emu.base.spelling import listed
from emu.base.units import about_size, shown_time
from emu.devices.pricing.estimate import about_wall, estimate
from emu.doors.accept.answers import Check
from emu.engine.outcome import RunOptions
from emu.results.summary import Kpis, Summary
from emu.scenario.load import load, load_mapping
from emu.scenario.set_options import override_with

Scale = Literal["small", "draft"]
FABRICS: Final[dict[tuple[str, Scale], dict[str, object]]] = {
    ("A", "small"): {"kind": "ai_zone", "racks": 4, "hosts_per_rack": 4, "gpus_per_host": 1, "spines": 4},
    ("A", "draft"): {"kind": "ai_zone", "racks": 8, "hosts_per_rack": 2, "gpus_per_host": 8, "spines": 16},
    ("B", "small"): {"kind": "fat_tree", "k": 4},
    ("B", "draft"): {"kind": "fat_tree", "k": 8},
    ("C", "small"): {
        "kind": "megascale",
        "pods": 1,
        "blocks_per_pod": 1,
        "hosts_per_block": 4,
        "gpus_per_host": 4,
        "aggs_per_pod": 4,
        "link": "400G",
    },
    ("C", "draft"): {
        "kind": "megascale",
        "pods": 1,
        "blocks_per_pod": 1,
        "hosts_per_block": 16,
        "gpus_per_host": 8,
        "aggs_per_pod": 8,
        "link": "400G",
    },
}
"""A: two-tier Clos. B: three tiers. C: rails. All NICs have 400G, so that two of a scale compare."""
TOPOLOGIES: Final = {"A": "two-tier Clos", "B": "three-tier Clos", "C": "rails"}
FLOW_BYTES: Final[dict[Scale, int]] = {"small": 2 << 20, "draft": 16 << 20}
CALL_BYTES: Final[dict[Scale, int]] = {"small": 8 << 20, "draft": 256 << 20}
TRIALS: Final[dict[Scale, int]] = {"small": 3, "draft": 5}
"""Seeds of a test in which something is drawn."""


class Site(NamedTuple):
    """What is tested: a topology of the draft or a file, how large tests are, how long a run may take."""

    topology: str
    """A letter; empty with a file."""
    file: str
    scale: Scale
    longest_s: float = 600.0

    @property
    def flow_bytes(self) -> int:
        """Bytes of a flow."""
        return FLOW_BYTES[self.scale]

    @property
    def call_bytes(self) -> int:
        """Bytes of a collective."""
        return CALL_BYTES[self.scale]


@dataclass
class Bench:
    """Runs on a site with one seed."""

    site: Site
    seed: int = 1
    digests: list[str] = field(default_factory=list)
    """Of the runs so far, the first twelve signs of each."""

    def prepared(
        self,
        jobs: Sequence[object] = (),
        faults: Sequence[object] = (),
        changes: Mapping[str, object] | None = None,
    ) -> Prepared:
        """A scenario of these jobs on the site's fabric."""
        given = {
            "jobs": list(jobs) or [job("x", permutation(4096))],
            "faults": list(faults),
            "expect": [],
            "run.sample_every": "10s",
            "seed": self.seed,
            **(changes or {}),
        }
        overrides = [override_with(key, value, "emu accept") for key, value in given.items()]
        if self.site.file:
            path, variant = scenario_named(self.site.file)
            return prepare(load(path, overrides, variant))
        fabric = FABRICS[self.site.topology, self.site.scale]
        return prepare(load_mapping({"name": "bmwg", "topology": fabric}, overrides=overrides))

    def run(
        self,
        jobs: Sequence[object],
        faults: Sequence[object] = (),
        changes: Mapping[str, object] | None = None,
    ) -> tuple[Prepared, Result]:
        """Run them. Raises RuntimeFailure where that would take too long."""
        prepared = self.prepared(jobs, faults, changes)
        cost = estimate(prepared.scenario, prepared.topology, prepared.plan, compiled=emu.is_compiled())
        if cost.wall_s > self.site.longest_s and not cost.least:
            raise RuntimeFailure(
                f"a run of {cost.hops:,} packet-hops takes about {about_wall(cost.wall_s)}, longer than"
                f" --longest {about_wall(self.site.longest_s)}"
            )
        result = run_prepared(prepared, RunOptions(local=True, metrics=False), diagnose=False)
        self.digests.append(result.summary.digest[:12])
        return prepared, result

    def ranks(self) -> int:
        """GPUs of the site."""
        return len(self.prepared().topology.gpus)

    def fans(self, *wanted: int) -> list[int]:
        """These numbers of senders, as far as the fabric has so many beside a receiver, each once."""
        return sorted({min(one, self.ranks() - 1) for one in wanted})


def job(name: str, workload: Mapping[str, object], **more: object) -> dict[str, object]:
    """A job of a scenario."""
    return {"name": name, "workload": dict(workload), **more}


def collective(op: str, size_bytes: int, iterations: int = 1) -> dict[str, object]:
    """A benchmark of one size with one warm-up."""
    return {
        "kind": "collective",
        "op": op,
        "sizes": [f"{size_bytes}B"],
        "iterations": iterations,
        "warmup": 1,
    }


def permutation(size_bytes: int, queue_pairs: int = 1) -> dict[str, object]:
    """Every rank sends to one other."""
    return {"kind": "permutation", "size": f"{size_bytes}B", "qps": queue_pairs}


def incast(fan_in: int, size_bytes: int) -> dict[str, object]:
    """So many senders to one."""
    return {"kind": "incast", "fan_in": fan_in, "size": f"{size_bytes}B"}


def pairs(flows: Sequence[tuple[int, int]], size_bytes: int, queue_pairs: int = 1) -> dict[str, object]:
    """Flows between these ranks."""
    listed_flows = [{"src": source, "dst": to, "size": f"{size_bytes}B"} for source, to in flows]
    return {"kind": "flows", "qps": queue_pairs, "flows": listed_flows}


# ---- what is read off


def counter(result: Result, metric: Metric) -> int:
    """The sum of a counter over all devices."""
    return sum(
        value
        for record in result.outcome.devices
        for series, value in zip(record.series, record.counters, strict=True)
        if series.metric == metric
    )


def nic_bps(prepared: Prepared) -> int:
    """What all NICs together send."""
    topology = prepared.topology
    return sum(end.rate_bps for nic in topology.nics for end in topology.ports(nic) if end.kind == FABRIC)


def line_bps(prepared: Prepared) -> float:
    """What a NIC sends, in the mean."""
    return nic_bps(prepared) / len(prepared.topology.nics)


def took_ps(summary: Summary, name: str) -> int:
    """The time of a job; 0 of one that did not end."""
    one = summary.jobs[name]
    return 0 if one.start_ps is None or one.end_ps is None else one.end_ps - one.start_ps


def kpis(summary: Summary, name: str) -> Kpis:
    """The figures of a job; without any where it did not end well."""
    return summary.jobs[name].kpis or Kpis()


def spread(values: Sequence[float]) -> float:
    """Coefficient of variation."""
    return pstdev(values) / mean(values) if values and mean(values) else 0.0


# ---- checks


def shown(kind: str, value: float) -> str:
    """A number of this kind for reading."""
    if kind == "share":
        return f"{round(100 * value, 1) + 0.0:.1f} %"
    if kind == "ppm":
        return f"{1e6 * value:.0f} ppm"
    if kind == "time":
        return shown_time(round(value))
    if kind == "rate":
        return f"{value / 8e9:.2f} GB/s"
    if kind == "size":
        return about_size(round(value))
    return f"{value:,.0f}" if kind == "count" else f"{value:.3f}"


def figure(
    kind: str, what: str, value: float | None, asked: str = "", holds: bool | None = None
) -> list[Check]:
    """A KPI, unless there is none."""
    return [] if value is None else [Check(what, shown(kind, value), asked, holds, float(value), kind)]


def ended(*results: Result) -> Check:
    """Whether all jobs ended well."""
    lost = [name for one in results for name, done in one.summary.jobs.items() if done.status != "success"]
    return Check("jobs that did not end well", listed(lost) or "none", "none", not lost)


def dropped(summary: Summary) -> int:
    """Frames dropped for whatever reason."""
    return 0 if summary.fabric.drops is None else summary.fabric.drops.total


def congestion(summary: Summary, of: str = "") -> list[Check]:
    """Marks, XOFF frames and drops."""
    fabric = summary.fabric
    return [
        *figure("count", f"frames marked{of}", fabric.queue_marked_frames),
        *figure("count", f"XOFF frames{of}", fabric.pfc_transmit_xoff_frames),
        *figure("count", f"frames lost{of}", dropped(summary)),
    ]
