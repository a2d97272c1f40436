"""`emu cross`: run a scenario at packet level and at flow level, and print where they differ."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence

import click

from emu.api import prepare, run_prepared
from emu.base.units import about_time, aligned
from emu.engine.outcome import RunOptions
from emu.flow.cross import Difference, differences
from emu.flow.queue_pair_paths import is_spread
from emu.results.summary import Summary
from emu.terminal.columns import say
from emu.terminal.run_options import placed, session_of
from emu.terminal.scenario_options import NO_EXPECT, load_scenario, overriding
from emu.terminal.terminal import RunLeft

BEYOND_STATUS = 1


@click.command()
@click.argument("scenario")
@overriding
@placed
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    scenario: str,
    assignments: tuple[str, ...],
    seed: str | None,
    variant: str,
    where: RunOptions,
    as_json: bool,
) -> int:
    """Run SCENARIO at packet level and at flow level, and print every difference.

    Where flow level doubts its own answer, its reason is printed. `expect` is not judged. Exit status 0 if
    all are within the bounds of docs/flow_level.md, 1 if one is not, 2 if flow level cannot answer the
    scenario; else that of a run that failed. CPU time is that of the whole process, from the scenario to the
    summary, for both levels alike.
    """
    options = where._replace(metrics=False)
    summaries: list[Summary] = []
    took_s: list[float] = []
    by_load = False
    with session_of(where):
        for level in ("flow", "packet"):
            changes = [*assignments, NO_EXPECT, f"fidelity={level}"]
            begun_s = time.process_time()
            prepared = prepare(load_scenario(scenario, changes, seed, variant))
            chosen = is_spread(prepared.scenario.routing) or not prepared.scenario.transport.is_rc
            by_load = chosen or bool(prepared.scenario.faults)
            with RunLeft(prepared.jobs) as left:
                result = run_prepared(prepared, options, left, diagnose=False)
            if result.exit_status:
                click.echo(f"emu: {level} level: {result.verdict}", err=True)
                return result.exit_status
            summaries.append(result.summary)
            took_s.append(time.process_time() - begun_s)
            if level == "packet" and not options.local:
                took_s[-1] += result.summary.engine.cpu_s  # of the workers, from when they are built
    flow, packet = summaries
    cpu_s = {"packet": took_s[1], "flow": took_s[0]}
    found = differences(packet, flow, by_load=by_load)
    if as_json:
        rows = [{**one._asdict(), "difference": one.part, "holds": one.holds} for one in found]
        answer = {"differences": rows, "cpu_s": cpu_s, "doubts": flow.engine.doubts}
        click.echo(json.dumps(answer, indent=2))
    else:
        say("\n".join(_lines(found, cpu_s, flow.engine.doubts)))
    return 0 if all(one.holds for one in found) else BEYOND_STATUS


def _lines(found: Sequence[Difference], cpu_s: Mapping[str, float], doubts: Sequence[str]) -> list[str]:
    rows = [("", "packet", "flow", "difference", "bound", "")]
    for one in found:
        in_bytes = one.what.startswith(("payload", "bytes"))
        a, b = (f"{value:,} B" if in_bytes else about_time(value) for value in (one.packet, one.flow))
        verdict = "" if one.holds else "beyond"
        rows.append((one.what, a, b, f"{one.part:+.2%}", f"{one.bound:.0%}", verdict))
    payload = "payload of every link is the same"
    if any(one.what.startswith("payload") for one in found):
        payload = "payload of links differs"
    times = ", ".join(f"{level} level {took_s:.2f} s of CPU" for level, took_s in cpu_s.items())
    doubted = [f"doubtful at flow level: {one}" for one in doubts]
    return [*aligned(rows), "", payload, *doubted, f"{times}, from the scenario to the summary"]
