"""One run of a bench case, a process of its own: `python -m emu.cli.bench.one_run NAME WORKERS [MORE]`.

MORE is `snapshots` or `scrapes`. 0 workers is `--local` in one part. The last line of standard output is a
`Measured` as JSON, or of a case of posts a `Posted`. Nobody looks at the run while it goes on: no metrics, no
progress, no run directory; with `scrapes` another process does, at the metrics page.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

import emu
from emu.base.errors import EmuError, RuntimeFailure
from emu.cli.bench.cases import EVERY, Measured
from emu.cli.bench.posts import POSTING, Posted, measure_posts
from emu.engine.outcome import Ending, Observer, Outcome, RunOptions, WorkerRecord
from emu.launch import run_scenario
from emu.scenario.load import load_mapping
from emu.scenario.resolve import build_topology

SNAPSHOTS: Final = "snapshots"
SCRAPES: Final = "scrapes"
LOOK_S: Final = 0.25
"""How often a run looks after its snapshots."""
EVERY_S: Final = 0.5
SCRAPER: Final = """
import sys, time
from urllib.request import urlopen
while True:
    begin = time.monotonic()
    try:
        with urlopen(sys.argv[1], timeout=10) as page:
            print(len(page.read()), flush=True)
    except OSError:
        break
    time.sleep(max(0.0, float(sys.argv[2]) - (time.monotonic() - begin)))
"""


@contextmanager
def scraped(address: str) -> Iterator[Callable[[], int]]:
    """Another process scrapes HOST:PORT every `EVERY_S`; what is yielded ends it, and says how often
    it did."""
    command = [sys.executable, "-c", SCRAPER, f"http://{address}/metrics", str(EVERY_S)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as scraper:  # noqa: S603 - as above

        def end() -> int:
            scraper.kill()
            out, _ = scraper.communicate()
            return out.count("\n")

        try:
            yield end
        finally:
            scraper.kill()


def measure(name: str, workers: int, snapshots: bool = False) -> Measured:
    """Run a case to its end, with snapshots or without. RuntimeFailure if it ends in another way."""
    scenario = load_mapping(EVERY[name].scenario()).scenario
    options = RunOptions(
        local=workers == 0,
        workers=workers or None,
        metrics=False,
        progress_every_s=LOOK_S if snapshots else 3600.0,
        snapshot_every_s=None if snapshots else 0.0,
    )
    outcome = run_scenario(scenario, build_topology(scenario), options).uninterrupted()
    if outcome.ending is not Ending.FINISHED:
        raise RuntimeFailure(f"the run ended as {outcome.ending}: {outcome.message}")
    return measured(outcome)


class _Scraped(Observer):
    """Has another process scrape the first worker's page, as soon as there is one."""

    def __init__(self, until: ExitStack) -> None:
        self._until = until
        self.end: Callable[[], int] = int

    def workers_up(self, workers: tuple[WorkerRecord, ...], discovery_url: str) -> None:
        """Begin."""
        self.end = self._until.enter_context(scraped(workers[0].metrics_address))


def measure_scraped(name: str) -> Measured:
    """Run a case to its end while it is scraped. RuntimeFailure if it ends in another way."""
    scenario = load_mapping(EVERY[name].scenario()).scenario
    options = RunOptions(local=True, metrics=True, progress_every_s=3600.0, snapshot_every_s=0.0)
    with ExitStack() as until:
        observer = _Scraped(until)
        outcome = run_scenario(scenario, build_topology(scenario), options, observer).uninterrupted()
        scrapes = observer.end()
    return measured(outcome)._replace(scrapes=scrapes)


def measured(outcome: Outcome) -> Measured:
    """The figures of a run."""
    return Measured(
        packet_hops=sum(device.frames_received for device in outcome.devices),
        data_packet_hops=sum(device.data_frames_received for device in outcome.devices),
        events=sum(device.executed for device in outcome.devices),
        wall_s=outcome.engine.wall_s,
        cpu_s=outcome.engine.cpu_s,
        build_s=outcome.build_s,
        peak_rss_bytes=outcome.engine.peak_rss_bytes,
        virtual_ps=outcome.virtual_ps,
        digest=outcome.digest,
        compiled=emu.is_compiled(),
        workers=outcome.engine.workers,
        snapshots=outcome.engine.snapshots,
        snapshots_s=outcome.engine.snapshots_s,
    )


def main(arguments: list[str]) -> int:
    """Run one case, print what was measured."""
    name, workers, *more = arguments
    found: Measured | Posted
    try:
        if name in POSTING:
            found = measure_posts(POSTING[name])
        elif more == [SCRAPES]:
            found = measure_scraped(name)
        else:
            found = measure(name, int(workers), more == [SNAPSHOTS])
    except EmuError as error:
        print(error, file=sys.stderr)
        return error.exit_status
    print(json.dumps(found._asdict()))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
