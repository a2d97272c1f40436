"""The tables of nccl-tests: of the collectives of a run, and of `emu perf`, whose JSON is here too.

One row for each size of a job, when its last timed iteration is done, with the mean time of those iterations
(warm-up left out), as nccl-tests prints it. `count` is in elements: of the whole buffer for all_reduce,
broadcast, reduce and sendrecv, of one rank's share for the others. GB/s are powers of ten. `#wrong` is N/A
where packets carry sizes only. Where they carry bytes, it is known when the run is over: rows wait until
then.

Source: nccl-tests, src/common.cu.

Output of `emu perf`. The text has its header, its columns (out of place and in place), and its footer with
"Avg bus bandwidth"; the JSON has its keys in its order, booleans as the words it writes. So tools that read
either read ours. A row is the mean over the timed iterations of a size; `algbw` and `busbw` are GB/s, powers
of ten.

Where the emulator differs, and says so in the text: in-place is the same operation as out-of-place, since
the fabric cannot tell them apart, and is not run twice. `#wrong` is N/A (null) where packets carry sizes
only. Pids are 0. A terminal narrower than `WIDE` gets the columns of out-of-place alone, in eighty columns.

Source: nccl-tests 2.17, `src/util.cu` (JSON version 2).
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from actors.ncclx.operations import REDUCING
from actors.wire.message import STATUS_SUCCESS
from emu.base.units import TIME_PS
from emu.counts.collected import JobPlan
from emu.results.busbw import bandwidth_bps, bus_factor
from emu.results.metrics import collective_name
from emu.results.planned_rows import CollectivePlan
from emu.results.summary import Job
from emu.summary.jobs import status_name
from emu.workload.perf_scan import ROOTED, ScanSize

TYPES: Final = {"fp32": ("float", 4), "bf16": ("bfloat16", 2), "int32": ("int32", 4)}
"""NCCL's name of a type, and the size of an element."""
WIDTHS: Final = (11, 11, 8, 6, 4, 11, 7, 7, 6)
"""Eighty columns in all, with a space between."""
COLUMNS: Final = ("size", "count", "type", "redop", "root", "time", "algbw", "busbw", "#wrong")
UNITS: Final = ("(B)", "(elements)", "", "", "", "(us)", "(GB/s)", "(GB/s)", "")
REDUCES: Final = ("all_reduce", "reduce_scatter", "reduce", "barrier")
WHOLE: Final = ("all_reduce", "broadcast", "reduce", "sendrecv", "barrier")
"""What counts the whole buffer, and not one rank's share of it."""


def _aligned(cells: Sequence[str]) -> str:
    padded = [cell.rjust(width) for cell, width in zip(cells, WIDTHS, strict=True)]
    return " ".join(padded).rstrip()


def gigabytes_per_s(rate_bps: int | None) -> str:
    """A rate in GB/s with two decimals, or N/A."""
    return "N/A" if rate_bps is None else f"{rate_bps / 8e9:.2f}"


def header(job: str, plan: CollectivePlan) -> list[str]:
    """The lines above the rows of a job."""
    return [
        f"# {job}: {plan.op} ({plan.algorithm}), {plan.ranks} ranks",
        "#" + _aligned(COLUMNS)[1:],
        "#" + _aligned(UNITS)[1:],
    ]


def row(plan: CollectivePlan, times_ps: Sequence[int], wrong: int | None = None) -> str:
    """The row of one size, from the times of its iterations; `wrong` is None where nothing was compared."""
    name, element_bytes = TYPES[plan.dtype]
    shared = plan.size_bytes // (1 if plan.op in WHOLE else plan.ranks)
    mean_ps = sum(times_ps) // len(times_ps)
    factor = bus_factor(plan.op, plan.ranks)
    return _aligned(
        (
            str(plan.size_bytes),
            str(shared // element_bytes),
            name,
            plan.redop if plan.op in REDUCES else "none",
            "-1",
            f"{mean_ps / TIME_PS['us']:.2f}",
            gigabytes_per_s(bandwidth_bps(plan.size_bytes, mean_ps)),
            gigabytes_per_s(bandwidth_bps(plan.size_bytes, mean_ps, factor)),
            "N/A" if wrong is None else str(wrong),
        )
    )


class _Group(NamedTuple):
    """The iterations of one size of one job."""

    job: JobPlan
    plan: CollectivePlan
    waiting: set[int]
    times_ps: list[int]


class NcclTable:
    """Turns the controller's rows into lines, as operations finish."""

    def __init__(self, jobs: Sequence[JobPlan]) -> None:
        self._jobs = jobs
        self.wrong: dict[tuple[int, int], int] | None = None
        """By job and operation, elements that came out wrong; None while that is not known."""
        self._groups: dict[tuple[int, int], _Group] = {}
        self._seen: set[tuple[int, int]] = set()
        self._headed = -1
        for job in jobs:
            by_size: dict[tuple[str, str, int], _Group] = {}
            for plan in job.collectives:
                if plan.warmup:
                    continue
                kind = (plan.op, plan.algorithm, plan.size_bytes)
                group = by_size.setdefault(kind, _Group(job, plan, set(), []))
                group.waiting.add(plan.operation)
                self._groups[job.job, plan.operation] = group

    def learn(self, jobs: Mapping[str, Job]) -> None:
        """The run is over: what came out wrong is known."""
        self.wrong = {}
        for plan in self._jobs:
            listed = [one for one in plan.collectives if not one.warmup]
            rows = jobs[plan.name].collectives if listed else []
            for one, done in zip(listed, rows, strict=True):
                if done.wrong is not None:
                    self.wrong[plan.job, one.operation] = done.wrong

    def take(self, operations: Iterable[Sequence[int]]) -> list[str]:
        """The lines that these rows complete; rows that were taken before are passed over."""
        lines: list[str] = []
        for job, operation, start_ps, end_ps, status in operations:
            group = self._groups.get((job, operation))
            if group is None or (job, operation) in self._seen:
                continue
            if group.plan.checked and self.wrong is None:
                continue
            self._seen.add((job, operation))
            group.waiting.discard(operation)
            group.times_ps.append(end_ps - start_ps)
            if group.waiting and status == STATUS_SUCCESS:
                continue
            if self._headed != job:
                lines += header(group.job.name, group.plan)
                self._headed = job
            if status == STATUS_SUCCESS:
                lines.append(row(group.plan, group.times_ps, self._wrong_of(group)))
            else:
                lines.append(f"{group.plan.size_bytes:>12} failed: {status_name(status)}")
        return lines

    def _wrong_of(self, group: _Group) -> int | None:
        """What came out wrong over all iterations of a size; None if nothing was compared."""
        if self.wrong is None:
            return None
        found = [
            self.wrong[key] for key, other in self._groups.items() if other is group and key in self.wrong
        ]
        return sum(found) if found else None


JSON_VERSION: Final = 2
NCCL_VERSION: Final = 23000
"""Version of the library that is modelled: 2.30.0."""
WIDE: Final = 118
"""Columns of a row with both halves."""
DEVICE: Final = "emulated"
_PS_PER_US: Final = 10**6


class PerfConfig(NamedTuple):
    """What the command line asked for, by nccl-tests' names."""

    test: str
    operation: str
    ranks: int
    threads: int
    gpus: int
    least_bytes: int
    most_bytes: int
    step_bytes: int
    factor: int
    warmup: int
    iterations: int
    check: int
    type_name: str
    reduction: str
    root: int
    version: str
    """Version of the emulator."""


class PerfDevice(NamedTuple):
    """One rank's line."""

    rank: int
    host: str
    device: int


class PerfRow(NamedTuple):
    """One size. `time_ps` is the mean; `wrong` is None where results are not looked at."""

    size: ScanSize
    time_ps: int
    iterations: int
    wrong: int | None = None


def fixed(value: float, width: int) -> str:
    """A number in at most `width` places: two decimals, fewer as it grows (nccl-tests' getFloatStr)."""
    power = 0
    while value >= 10**power:
        power += 1
    if power < width - 2:
        return f"{value:{width}.2f}"
    if power < width - 1:
        return f"{value:{width}.1f}"
    if power < width + 1:
        return f"{value:{width}.0f}"
    return f"{value:{width}.1e}" if width >= 7 else f"{value:{width}.0e}"


def heading(config: PerfConfig, devices: Iterable[PerfDevice], *, narrow: bool = False) -> list[str]:
    """The lines above the rows."""
    step = config.factor if config.factor > 1 else config.step_bytes
    kind = "factor" if config.factor > 1 else "bytes"
    names = ("size", "count", "type", "redop", "root")
    rates = ("time", "algbw", "busbw", "#wrong")
    units = ("(us)", "(GB/s)", "(GB/s)", "")
    blank = "# {:>10}  {:>12}  {:>8}  {:>6}  {:>6}".format("", "", "", "", "")
    halves = [f"{blank}           out-of-place                       in-place          "]
    return [
        f"# nccl-tests version emu-{config.version} nccl-headers={NCCL_VERSION} nccl-library={NCCL_VERSION}",
        f"# Collective test starting: {config.test}_perf",
        (
            f"# nThread {config.threads} nGpus {config.gpus} minBytes {config.least_bytes} maxBytes"
            f" {config.most_bytes} step: {step}({kind}) warmup iters: {config.warmup}"
            f" iters: {config.iterations} agg iters: 1 validation: {config.check} graph: 0 unalign: 0"
        ),
        "#",
        "# Using devices",
        *(
            f"#  Rank {one.rank:2d} Group  0 Pid {0:6d} on {one.host:>10} device {one.device:2d}"
            f" [{_address(one)}] {DEVICE}"
            for one in devices
        ),
        "#",
        *(halves if not narrow else []),
        _columns(names, rates, narrow),
        _columns(("(B)", "(elements)", "", "", ""), units, narrow),
    ]


def _address(device: PerfDevice) -> str:
    return f"0000:{device.device:02x}:00"


def _columns(names: Sequence[str], rates: Sequence[str], narrow: bool) -> str:
    half = "  {:>7}  {:>6}  {:>6}  {:>6}".format(*rates)
    if narrow:
        return "# {:>10} {:>10} {:>8} {:>5} {:>4}".format(*names) + half
    left = "# {:>10}  {:>12}  {:>8}  {:>6}  {:>6}".format(*names)
    return f"{left}{half}{half} "


def figures(config: PerfConfig, row: PerfRow) -> tuple[float, float, float]:
    """Time in us, algbw and busbw in GB/s."""
    if row.time_ps <= 0:
        return 0.0, 0.0, 0.0
    algbw = row.size.size_bytes * 1000 / row.time_ps
    return row.time_ps / _PS_PER_US, algbw, algbw * float(bus_factor(config.operation, config.ranks))


def _names(config: PerfConfig) -> tuple[str, int]:
    reduction = config.reduction if config.operation in REDUCING else "none"
    return reduction, config.root if config.operation in ROOTED else -1


def line(config: PerfConfig, row: PerfRow, *, narrow: bool = False) -> str:
    """A row as text."""
    time_us, algbw, busbw = figures(config, row)
    reduction, root = _names(config)
    wrong = "    N/A" if row.wrong is None else f"  {row.wrong:6g}"
    half = f"  {fixed(time_us, 7):>7}  {fixed(algbw, 6):>6}  {fixed(busbw, 6):>6}{wrong}"
    size = row.size
    if narrow:
        names = f"{config.type_name:>8} {reduction:>5} {root:4d}"
        return f"{size.size_bytes:12d} {size.elements:10d} {names}{half}"
    left = f"{size.size_bytes:12d}  {size.elements:12d}  {config.type_name:>8}  {reduction:>6}  {root:6d}"
    return f"{left}{half}{half}"


NCCL_ALGORITHMS: Final = {
    "ring": "RING",
    "double_binary_tree": "TREE",
    "nvls": "NVLS",
    "nvls_tree": "NVLS_TREE",
    "pat": "PAT",
}
"""As NCCL writes them."""


def choice_line(plan: CollectivePlan) -> str:
    """How a size is done, as NCCL_DEBUG=INFO with NCCL_DEBUG_SUBSYS=TUNING tells it. What NCCL makes of sends
    and receives has no such line there.
    """
    name = NCCL_ALGORITHMS.get(plan.algorithm, plan.algorithm)
    done = f"Algo {name} proto {plan.protocol.upper()} channel{{Lo..Hi}}={{0..{plan.channels - 1}}}"
    return f"# {collective_name(plan.op)}: {plan.size_bytes} Bytes -> {done}"


def average_busbw(config: PerfConfig, rows: Sequence[PerfRow]) -> float:
    """Mean busbw over the rows in GB/s; 0 if there are none."""
    return sum(figures(config, row)[2] for row in rows) / len(rows) if rows else 0.0


def wrong_rows(rows: Iterable[PerfRow]) -> int:
    """Rows with elements that came out wrong."""
    return sum(bool(row.wrong) for row in rows)


def footer(config: PerfConfig, rows: Sequence[PerfRow]) -> list[str]:
    """The lines below the rows."""
    wrong = wrong_rows(rows)
    return [
        f"# {'Out of bounds values':<20} : {wrong} {'FAILED' if wrong else 'OK'}",
        f"# {'Avg bus bandwidth':<20} : {average_busbw(config, rows):g} ",
        "#",
        f"# Collective test concluded: {config.test}_perf",
        "# in-place is the same operation here: the fabric cannot tell them apart, so it is run once",
    ]


def json_value(
    config: PerfConfig,
    devices: Iterable[PerfDevice],
    rows: Sequence[PerfRow],
    arguments: Sequence[str],
    environment: Sequence[str],
    times: tuple[str, str],
    errors: Sequence[str],
) -> dict[str, Any]:
    """What `-J` writes. `times` are the start and end as `%Y-%m-%d %H:%M:%S`."""
    step = {"step_factor": config.factor} if config.factor > 1 else {"step_bytes": config.step_bytes}
    wrong = wrong_rows(rows)
    return {
        "version": JSON_VERSION,
        "start_time": times[0],
        "args": list(arguments),
        "env": list(environment),
        "nccl_version": NCCL_VERSION,
        "config": {
            "nthreads": config.threads,
            "ngpus": config.gpus,
            "minimum_bytes": config.least_bytes,
            "maximum_bytes": config.most_bytes,
            **step,
            "warmup_iters": config.warmup,
            "iterations": config.iterations,
            "aggregated_iterations": 1,
            "validation": config.check,
            "graph": 0,
            "blocking_collectives": "false",
            "per_iter_timing": "false",
            "parallel_init": "false",
            "devices": [
                {
                    "rank": one.rank,
                    "group": 0,
                    "pid": 0,
                    "hostname": one.host,
                    "device": one.device,
                    "device_hex": _address(one),
                    "device_info": DEVICE,
                }
                for one in devices
            ],
        },
        "results": [_json_row(config, row) for row in rows],
        "out_of_bounds": {"count": wrong, "okay": "false" if wrong else "true"},
        "average_bus_bandwidth": {"bandwidth": round(average_busbw(config, rows), 6), "okay": "unchecked"},
        "errors": list(errors),
        "end_time": times[1],
    }


def _json_row(config: PerfConfig, row: PerfRow) -> dict[str, Any]:
    time_us, algbw, busbw = figures(config, row)
    reduction, root = _names(config)
    half = {
        "time": round(time_us, 6),
        "alg_bw": round(algbw, 6),
        "bus_bw": round(busbw, 6),
        "nwrong": None if row.wrong is None else float(row.wrong),
    }
    return {
        "size": row.size.size_bytes,
        "count": row.size.elements,
        "type": config.type_name,
        "redop": reduction,
        "root": f"{root:6d}",
        "out_of_place": half,
        "in_place": dict(half),
        "actual_iterations": row.iterations,
        "experiment_name": "",
    }
