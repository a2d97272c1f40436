"""The price of being scraped: `emu bench --scrapes`.

Two figures. How long a page of 10,000 series takes to render, from counters that are all used: the median
over many. And the CPU seconds of a run that is scraped twice a second by another process, over those of the
same run without a metrics page, in alternating pairs.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median
from typing import Final

from actors.kernel.device import Series, tally_of
from emu.cli.bench.cases import CASES
from emu.measure.prometheus.exposition import Exposition
from emu.runtime.blueprint import blueprint_of, spread
from emu.scenario.load import load_mapping
from emu.scenario.resolve import build_topology

SERIES: Final = 10_000
RENDERINGS: Final = 25
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
