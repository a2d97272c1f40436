"""`emu bench`: the speed of the engine on this machine.

Every run is a process of its own, so that memory and the state of the collector are its own too; before each,
the fixed loop is timed here. With `--workers N`, runs with one worker and with N take turns, and what counts
is wall time.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from statistics import median
from textwrap import fill, indent
from typing import Any, Final

import click

import emu
from actors.kernel.device import Series, tally_of
from emu.base.errors import RuntimeFailure, UsageError
from emu.base.units import about_size
from emu.cli.bench.cases import CASES, EVERY, LONG, Case, Measured, loop_rounds_per_s
from emu.cli.bench.posts import POSTING, PostCase, Posted
from emu.cli.bench.whole import WHOLE, Waited, WholeCase, wait_for
from emu.counts.exposition import Exposition
from emu.devices.drawing import blueprint_of
from emu.engine.blueprint import spread
from emu.scenario.load import load_mapping
from emu.scenario.resolve import build_topology

REPEATS: Final = 3
PAIRS: Final = 5
LIMIT_S: Final = 3600

SINGLE: Final = (
    ("case", 16),
    ("M hops", 8),
    ("M hops/CPU s", 13),
    ("data", 7),
    ("events", 7),
    ("wall s", 8),
    ("memory", 9),
    ("hops/loop", 10),
)
PAIR: Final = (("case", 16), ("1 worker s", 11), ("N workers s", 12), ("speed-up", 9))
SCRAPE: Final = (
    ("case", 20),
    ("10k series ms", 13),
    ("CPU s", 7),
    ("scraped s", 9),
    ("scrapes", 7),
    ("ms each", 8),
    ("cost", 7),
)
SNAPSHOT: Final = (("case", 16), ("wall s", 8), ("snapshots", 9), ("ms each", 8), ("of wall", 8))
WHOLE_COMMAND: Final = (
    ("case", 16),
    ("CPU s", 8),
    ("of engine", 9),
    ("wall s", 8),
    ("memory", 9),
)
POSTS: Final = (
    ("case", 16),
    ("posts", 7),
    ("outstanding", 11),
    ("CPU us each", 11),
    ("wall s", 8),
    ("memory", 9),
)


CASES_LISTED: Final = "\b\nCases:\n" + indent(
    fill(", ".join([*EVERY, *POSTING, *WHOLE]), 76, break_on_hyphens=False, break_long_words=False), "  "
)


SERIES: Final = 10_000
"""Series of the page whose rendering is timed with `--scrapes`."""
RENDERINGS: Final = 25


@click.command(epilog=CASES_LISTED)
@click.option(
    "--case",
    "names",
    multiple=True,
    type=click.Choice([*EVERY, *POSTING, *WHOLE]),
    metavar="CASE",
    help="Only this; repeatable. Those with-..., all-to-all-512 and permutation-64-long run only by name; "
    "--scrapes takes the last by default, --posts those of open-..., --whole tiny to idle-24576.",
)
@click.option("--repeat", type=click.IntRange(1, 100), help=f"Runs of each case [{REPEATS}; pairs {PAIRS}].")
@click.option("--workers", type=click.IntRange(2, 64), help="Compare 1 worker with N, in alternating pairs.")
@click.option("--snapshots", is_flag=True, help="Show what snapshots cost, taken as a run takes them.")
@click.option(
    "--scrapes", is_flag=True, help="Show what scraping twice a second costs, in alternating pairs."
)
@click.option("--posts", is_flag=True, help="Show what a post to an open run and its completion cost.")
@click.option("--whole", is_flag=True, help="Show what whole commands cost, start and results included.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON at the end, and nothing else.")
def command(
    names: tuple[str, ...],
    repeat: int | None,
    workers: int | None,
    snapshots: bool,
    scrapes: bool,
    posts: bool,
    whole: bool,
    as_json: bool,
) -> None:
    """Measure packet-hops per CPU second on fixed cases; print medians.

    One hop is one packet of any kind but PFC received by a device over a fabric link; `data` counts those
    with payload alone, `events` what devices did, over NVLink and in copies, too. The last column divides by
    rounds per CPU second of a fixed Python loop timed in turn, for comparisons between machines and days.
    """
    if snapshots + scrapes + posts + whole + (workers is not None) > 1:
        raise UsageError(
            "--snapshots, --scrapes, --posts, --whole and --workers are questions of their own; ask one"
        )
    fitting = POSTING if posts else WHOLE if whole else EVERY
    for name in names:
        if name not in fitting:
            option = "--posts" if name in POSTING else "--whole" if name in WHOLE else ""
            accepted = ", ".join(fitting) if posts or whole else f"the others, or {option} --case {name}"
            raise UsageError(f"--case {name}: accepted: {accepted}")
    columns: Sequence[tuple[str, int]] = SINGLE if workers is None else PAIR
    if snapshots or scrapes or posts or whole:
        columns = SNAPSHOT if snapshots else SCRAPE if scrapes else POSTS if posts else WHOLE_COMMAND
    reported: list[dict[str, Any]] = []
    if not as_json:
        click.echo(f"packet path: {emu.compiled_state()}; medians")
        click.echo(_row([name for name, _ in columns], columns))
    usual = {LONG.name} if scrapes else fitting if posts or whole else CASES
    for case in [one for one in fitting.values() if one.name in (names or usual)]:
        if isinstance(case, WholeCase):
            result, cells = _whole(case, repeat or REPEATS)
        elif isinstance(case, PostCase):
            result, cells = _posts(case, repeat or REPEATS)
        elif snapshots:
            result, cells = _snapshots(case, repeat or REPEATS)
        elif scrapes:
            result, cells = _scrapes(case, repeat or PAIRS)
        elif workers is None:
            result, cells = _single(case, repeat or REPEATS)
        else:
            result, cells = _pairs(case, repeat or PAIRS, workers)
        if not as_json:
            click.echo(_row(cells, columns))
        reported.append(result)
    if as_json:
        click.echo(json.dumps(reported, indent=2))


def _row(cells: Sequence[str], columns: Sequence[tuple[str, int]]) -> str:
    first, *others = [
        cell.ljust(width) if at == 0 else cell.rjust(width)
        for at, (cell, (_, width)) in enumerate(zip(cells, columns, strict=True))
    ]
    return " ".join([first, *others])


def run_once(case: Case, workers: int, *more: str) -> Measured:
    """One run in a process of its own; 0 workers is `--local`. RuntimeFailure if it fails."""
    return Measured(**_printed(case.name, str(workers), *more))


def _printed(name: str, *more: str) -> dict[str, Any]:
    """What the process of one run of a case printed. RuntimeFailure if it fails."""
    command_line = [sys.executable, "-m", "emu.cli.bench.one_run", name, *more]
    done = subprocess.run(  # noqa: S603 - this interpreter, a module of this package, a name of the table
        command_line, capture_output=True, text=True, check=False, timeout=LIMIT_S
    )
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines()
        raise RuntimeFailure(f"bench {name}: {lines[-1] if lines else f'status {done.returncode}'}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def _single(case: Case, repeat: int) -> tuple[dict[str, Any], list[str]]:
    """Run one case `repeat` times, the loop before each; the medians, and their row."""
    runs: list[Measured] = []
    loops: list[float] = []
    for _ in range(repeat):
        loops.append(loop_rounds_per_s())
        runs.append(run_once(case, 0))
    rate = median(run.hops_per_cpu_s for run in runs)
    data_rate = median(run.data_hops_per_cpu_s for run in runs)
    event_rate = median(run.events_per_cpu_s for run in runs)
    wall_s = median(run.wall_s for run in runs)
    peak_bytes = max(run.peak_rss_bytes for run in runs)
    ratio = median(run.hops_per_cpu_s / loop for run, loop in zip(runs, loops, strict=True))
    reported: dict[str, Any] = {
        "case": case.name,
        "title": case.title,
        "compiled": runs[0].compiled,
        "repeats": repeat,
        "packet_hops": runs[0].packet_hops,
        "data_packet_hops": runs[0].data_packet_hops,
        "hops_per_cpu_s": rate,
        "data_hops_per_cpu_s": data_rate,
        "events": runs[0].events,
        "events_per_cpu_s": event_rate,
        "hops_per_cpu_s_runs": [run.hops_per_cpu_s for run in runs],
        "wall_s": wall_s,
        "cpu_s": median(run.cpu_s for run in runs),
        "build_s": median(run.build_s for run in runs),
        "peak_rss_bytes": peak_bytes,
        "loop_rounds_per_s": median(loops),
        "hops_per_loop_round": ratio,
        "virtual_ps": runs[0].virtual_ps,
        "digest": only_digest(case, runs),
    }
    cells = [f"{runs[0].packet_hops / 1e6:.2f}", f"{rate / 1e6:.3f}", f"{data_rate / 1e6:.3f}"]
    cells.append(f"{event_rate / 1e6:.3f}")
    return reported, [case.name, *cells, f"{wall_s:.2f}", about_size(peak_bytes), f"{ratio:.3f}"]


def _pairs(case: Case, repeat: int, workers: int) -> tuple[dict[str, Any], list[str]]:
    """Run one case with one worker and with `workers` in turn; the medians, and their row."""
    pairs = [(run_once(case, 1), run_once(case, workers)) for _ in range(repeat)]
    wall_one_s = median(one.wall_s for one, _ in pairs)
    wall_many_s = median(many.wall_s for _, many in pairs)
    speedups = [one.wall_s / many.wall_s for one, many in pairs]
    reported: dict[str, Any] = {
        "case": case.name,
        "title": case.title,
        "compiled": pairs[0][0].compiled,
        "pairs": repeat,
        "workers": workers,
        "wall_one_s": wall_one_s,
        "wall_many_s": wall_many_s,
        "speedup": median(speedups),
        "speedups": speedups,
        "digest": only_digest(case, [run for pair in pairs for run in pair]),
    }
    return reported, [case.name, f"{wall_one_s:.2f}", f"{wall_many_s:.2f}", f"{median(speedups):.2f}"]


def _posts(case: PostCase, repeat: int) -> tuple[dict[str, Any], list[str]]:
    """Run one case of posts `repeat` times; the medians, and their row."""
    runs = [Posted(**_printed(case.name, "0")) for _ in range(repeat)]
    each_s = median(run.cpu_s / run.posts for run in runs)
    wall_s = median(run.wall_s for run in runs)
    peak_bytes = max(run.peak_rss_bytes for run in runs)
    reported: dict[str, Any] = {
        "case": case.name,
        "title": case.title,
        "compiled": runs[0].compiled,
        "repeats": repeat,
        "posts": case.posts,
        "outstanding": case.outstanding,
        "post_cpu_s": each_s,
        "wall_s": wall_s,
        "peak_rss_bytes": peak_bytes,
        "virtual_ps": runs[0].virtual_ps,
        "digest": only_digest(case, runs),
    }
    cells = [str(case.posts), str(case.outstanding), f"{each_s * 1e6:.1f}", f"{wall_s:.2f}"]
    return reported, [case.name, *cells, about_size(peak_bytes)]


def _whole(case: WholeCase, repeat: int) -> tuple[dict[str, Any], list[str]]:
    """Run one command `repeat` times; the medians, and their row."""
    runs = [wait_for(case) for _ in range(repeat)]
    cpu_s = median(run.cpu_s for run in runs)
    engine_s = median(run.engine_cpu_s for run in runs)
    wall_s = median(run.wall_s for run in runs)
    peak_bytes = max(run.peak_rss_bytes for run in runs)
    reported: dict[str, Any] = {
        "case": case.name,
        "title": case.title,
        "repeats": repeat,
        "cpu_s": cpu_s,
        "cpu_s_runs": [run.cpu_s for run in runs],
        "engine_cpu_s": engine_s,
        "wall_s": wall_s,
        "packet_hops": runs[0].packet_hops,
        "peak_rss_bytes": peak_bytes,
        "digest": only_digest(case, runs),
    }
    return reported, [case.name, f"{cpu_s:.2f}", f"{engine_s:.2f}", f"{wall_s:.2f}", about_size(peak_bytes)]


def _snapshots(case: Case, repeat: int) -> tuple[dict[str, Any], list[str]]:
    """Run one case with snapshots `repeat` times; the medians, and their row."""
    runs = [run_once(case, 0, "snapshots") for _ in range(repeat)]
    wall_s = median(run.wall_s for run in runs)
    each_s = median(run.snapshots_s / max(run.snapshots, 1) for run in runs)
    share = median(run.snapshots_s / run.wall_s for run in runs)
    reported: dict[str, Any] = {
        "case": case.name,
        "title": case.title,
        "compiled": runs[0].compiled,
        "repeats": repeat,
        "wall_s": wall_s,
        "snapshots": [run.snapshots for run in runs],
        "snapshot_s": each_s,
        "share": share,
        "digest": only_digest(case, runs),
    }
    taken = f"{median(run.snapshots for run in runs):g}"
    return reported, [case.name, f"{wall_s:.2f}", taken, f"{each_s * 1000:.1f}", f"{share:.1%}"]


def _scrapes(case: Case, repeat: int) -> tuple[dict[str, Any], list[str]]:
    """Run one case alone and scraped in turn; what that costs, what a page costs, and their row.

    `cost` is of CPU seconds, and scrapes come by wall time: on a machine that is busy with something else a
    run is scraped more often for each of its CPU seconds. What one scrape costs (`ms each`) does not depend
    on that.
    """
    pairs = [(run_once(case, 0), run_once(case, 0, "scrapes")) for _ in range(repeat)]
    page_s = rendering_s()
    cost = median(other.cpu_s / one.cpu_s for one, other in pairs) - 1
    each_s = median((other.cpu_s - one.cpu_s) / max(other.scrapes, 1) for one, other in pairs)
    reported: dict[str, Any] = {
        "case": case.name,
        "title": case.title,
        "compiled": pairs[0][0].compiled,
        "pairs": repeat,
        "rendering_s": page_s,
        "cpu_s": median(one.cpu_s for one, _ in pairs),
        "scraped_cpu_s": median(other.cpu_s for _, other in pairs),
        "scrapes": [other.scrapes for _, other in pairs],
        "scrape_cpu_s": each_s,
        "cost": cost,
        "digest": only_digest(case, [run for pair in pairs for run in pair]),
    }
    cells = [f"{page_s * 1000:.1f}", f"{reported['cpu_s']:.2f}", f"{reported['scraped_cpu_s']:.2f}"]
    return reported, [
        case.name,
        *cells,
        f"{median(reported['scrapes']):g}",
        f"{each_s * 1000:.1f}",
        f"{cost:.1%}",
    ]


def only_digest(case: Case | PostCase | WholeCase, runs: Sequence[Measured | Posted | Waited]) -> str:
    """The digest that all runs of a case have. RuntimeFailure if they do not have one."""
    digests = list(dict.fromkeys(run.digest for run in runs))
    if len(digests) != 1:
        raise RuntimeFailure(f"bench {case.name}: runs of one scenario gave {len(digests)} different digests")
    return digests[0]


def rendering_s() -> float:
    """How long a page of `SERIES` series of a real fabric takes, in the median."""
    scenario = load_mapping(CASES["permutation-64"].scenario()).scenario
    topology = build_topology(scenario)
    partition = spread(blueprint_of(scenario, topology), 1).partition(0)
    devices: list[tuple[str, list[Series]]] = []
    left = SERIES
    for device in partition.devices:
        series = list(device.series())[:left]
        left -= len(series)
        devices.append((topology.nodes[device.number].name, series))
    assert left == 0, left
    page = Exposition(devices)
    times_s: list[float] = []
    for at in range(RENDERINGS):
        tally = tally_of([1_234_567 + place + at for place in range(len(series))] for _, series in devices)
        begin_s = time.perf_counter()
        text = page.render(tally)
        times_s.append(time.perf_counter() - begin_s)
        assert text.count(b"\n") >= SERIES, text.count(b"\n")
    return median(times_s)
