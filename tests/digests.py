"""Name and digest of every shipped scenario and every bench case, small and whole.

    python -m tests.digests                       the small list, in one part
    python -m tests.digests whole                 the whole one: minutes
    python -m tests.digests small --against FILE  compare with what an earlier call printed

A move or a refactoring changes no line. A commit that changes what the model does names in its message the
scenarios that differ. The small list runs the first `small.BRIEF_PS` of each scenario, and of a bench case.
"""

import argparse
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Final

from emu import api
from emu.base.cores import usable_cores
from emu.cli.bench.cases import EVERY
from emu.scenario.load import load_mapping
from tests.scenarios_run import small

KINDS: Final = ("small", "whole")
BENCH: Final = "bench:"
BRIEF_BENCH_PS: Final = 20_000_000
"""How much of a bench case belongs to the small list: its hosts all send by then."""


def names() -> list[str]:
    """What there is to run: scenarios by name, then bench cases."""
    return [*small.SCENARIOS, *(BENCH + name for name in EVERY)]


def digest(kind: str, name: str) -> str:
    """The digest of one run in this process, in one part."""
    if name.startswith(BENCH):
        mapping = EVERY[name.removeprefix(BENCH)].scenario()
        if kind == "small":
            mapping.setdefault("run", {})["max_time"] = f"{BRIEF_BENCH_PS}ps"
        return api.run(load_mapping(mapping), local=True, diagnose=False).summary.digest
    if kind == "small":
        return small.digest_of(name)
    return api.run(api.load(name), local=True, diagnose=False).summary.digest


def lines(kind: str, only: list[str]) -> Iterator[str]:
    """A line for each run, in the order of `names`, on as many cores as there are."""
    wanted = [name for name in names() if not only or name in only]
    with ProcessPoolExecutor(usable_cores()) as pool:
        for name, found in zip(wanted, pool.map(digest, [kind] * len(wanted), wanted), strict=True):
            yield f"{kind} {name} {found}"


def main() -> int:
    """Print the list, or what differs from an earlier one; 1 if anything does."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("kind", nargs="?", choices=KINDS, default="small")
    parser.add_argument("--only", nargs="*", default=[], metavar="NAME", help="these runs alone")
    parser.add_argument("--against", type=Path, metavar="FILE", help="print only what differs from this list")
    asked = parser.parse_args()
    before = None
    if asked.against:
        rows = (line.rpartition(" ") for line in asked.against.read_text("utf-8").splitlines())
        before = {what: found for what, _, found in rows if not asked.only or what.split()[1] in asked.only}
    differ = 0
    for line in lines(asked.kind, asked.only):
        what, _, found = line.rpartition(" ")
        if before is None:
            print(line, flush=True)
        elif (was := before.pop(what, "not in it")) != found:
            differ += 1
            print(f"{line} was {was}", flush=True)
    for what in before or ():
        differ += 1
        print(f"{what} is gone", flush=True)
    if before is not None:
        print(f"{differ} differ", file=sys.stderr)
    return min(differ, 1)


if __name__ == "__main__":
    sys.exit(main())
