"""`emu doctor --bench`: the price of workers on this machine.

Runs on Ray, small and always the same, in one session. Two pairs of hosts, each below a leaf of its own:

* *quiet*: each pair talks below its leaf, slowly. Nothing crosses between two workers: what two need beyond
  half of what one needs is the price of their windows.
* *crossing*: everyone talks to the other leaf. What is left after half the work and the windows is the price
  of the packets that cross: every data packet and every ACK once.

The price of a worker is that of the first run of two; the others are medians of what follows, one worker and
two in turn, since a worker's first run passes a good part of its time on getting memory and code into its
caches. The windows come last, when Ray has started all of its own: over Unix sockets, as between workers of
one host, and over TCP, as between hosts, but on loopback.

Prices that come out below nothing (two workers on one core, a machine that does other things) are shown as 0.
`docs/scale.md` computes with them.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from emu.base.errors import RuntimeFailure
from emu.cluster.workers.idle_workers import session
from emu.engine.outcome import Ending, Outcome, RunOptions
from emu.launch import run_scenario
from emu.scenario.load import load_mapping
from emu.scenario.resolve import build_topology

FLOW_BYTES: Final = {"quiet": 32 << 20, "crossing": 8 << 20}
MTU_BYTES: Final = 4096
REPEATS: Final = 9
PAIRS: Final = {
    "quiet": ((0, 1), (2, 3)),
    "crossing": ((0, 2), (1, 3), (2, 0), (3, 1)),
}
LINKS: Final = {"quiet": "20G", "crossing": "400G"}
SOCKETS: Final = {"auto": "Unix sockets", "tcp": "TCP"}
"""What moves a window: values of `RunOptions.sockets`, and how they are called."""


class Price(NamedTuple):
    """One figure: what of, and how much of which unit."""

    name: str
    value: float
    unit: str


def scenario_of(name: str) -> dict[str, Any]:
    """The scenario of one kind of run, with the keys of YAML."""
    flows = [{"src": src, "dst": dst, "size": f"{FLOW_BYTES[name]}B"} for src, dst in PAIRS[name]]
    return {
        "name": name,
        "topology": {
            "kind": "ai_zone",
            "racks": 2,
            "hosts_per_rack": 2,
            "gpus_per_host": 1,
            "spines": 2,
            "link": LINKS[name],
        },
        "transport": {"mtu": MTU_BYTES, "ack_every": 1},
        "jobs": [{"name": "flows", "workload": {"kind": "flows", "flows": flows}}],
    }


def prices() -> list[Price]:
    """Measure. RuntimeFailure if a run does not end as it should."""
    begin_s = time.perf_counter()
    with session():
        ray_s = time.perf_counter() - begin_s
        first = _run("quiet", 1)
        cold = _run("quiet", 2)
        busy_one, busy_two = _settled("crossing", ("auto",))
        one, *twos = _settled("quiet", tuple(SOCKETS))
    windows_s = [_beyond_half(one, two) / two.engine.windows for two in twos]
    crossing = 2 * len(PAIRS["crossing"]) * FLOW_BYTES["crossing"] // MTU_BYTES
    packets_s = _beyond_half(busy_one, busy_two) - windows_s[0] * busy_two.engine.windows
    return [
        Price("start of Ray", ray_s, "s"),
        Price("to the first window, 1 worker", ray_s + first.build_s, "s"),
        Price("each further worker", max(cold.build_s - one.build_s, 0.0), "s"),
        *(
            Price(f"a window without packets, 2 workers, {called}", window_s * 1e6, "us")
            for called, window_s in zip(SOCKETS.values(), windows_s, strict=True)
        ),
        Price("a packet that crosses", max(packets_s, 0.0) / crossing * 1e6, "us"),
    ]


def _beyond_half(one: Outcome, two: Outcome) -> float:
    return max(two.engine.wall_s - one.engine.wall_s / 2, 0.0)


def _settled(name: str, sockets: Sequence[str]) -> list[Outcome]:
    """The runs of the median wall time, of one worker and of two, on each kind of socket, that have run
    before."""
    rounds = [[_run(name, 1), *(_run(name, 2, kind) for kind in sockets)] for _ in range(REPEATS)]
    return [
        sorted(runs, key=lambda run: run.engine.wall_s)[REPEATS // 2] for runs in zip(*rounds, strict=True)
    ]


def _run(name: str, workers: int, sockets: str = "auto") -> Outcome:
    scenario = load_mapping(scenario_of(name)).scenario
    options = RunOptions(
        workers=workers, sockets=sockets, metrics=False, progress_every_s=3600.0, snapshot_every_s=0.0
    )
    outcome = run_scenario(scenario, build_topology(scenario), options).uninterrupted()
    if outcome.ending is not Ending.FINISHED:
        raise RuntimeFailure(
            f"the {name} run on {workers} workers ended as {outcome.ending}: {outcome.message}"
        )
    return outcome
