"""Output of `emu perf`: nccl-tests' text to the letter, and its JSON.

The text has its header, its columns (out of place and in place), and its footer with "Avg bus bandwidth";
the JSON has its keys in its order, booleans as the words it writes. So tools that read either read ours. A
row is the mean over the timed iterations of a size; `algbw` and `busbw` are GB/s, powers of ten.

Where the emulator differs, and says so in the text: in-place is the same operation as out-of-place, since
the fabric cannot tell them apart, and is not run twice. `#wrong` is N/A (null) where packets carry sizes
only. Pids are 0. A terminal narrower than `WIDE` gets the columns of out-of-place alone, in eighty columns.

Source: nccl-tests 2.17, `src/util.cu` (JSON version 2).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from actors.ncclx.operations import REDUCING
from emu.measure.summary.jobs_and_bandwidth import bus_factor
from emu.workload.perf_scan import ROOTED, ScanSize

JSON_VERSION: Final = 2
NCCL_VERSION: Final = 23000
"""Of the library that is modelled: 2.30.0."""
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
    """Of the emulator."""


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
