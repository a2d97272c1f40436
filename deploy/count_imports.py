"""Count the files of a folder that `emu import` reads as traces or dumps of PyTorch (docs/foreign.md).

    python deploy/count_imports.py HolisticTraceAnalysis/tests/data

Each file alone. A line for each: `loads` with its ranks and calls, or the reason why not; the sums last.
"""

import sys
from collections import Counter
from pathlib import Path

from emu.base.errors import ScenarioError
from emu.base.units import counted
from emu.doors.pytorch.traces import job_of, knows


def verdict(path: Path) -> tuple[str, str]:
    """Whether a file loads, and what is in it or why it does not."""
    if not knows(path):
        return "unknown", "no trace of the profiler and no dump of the flight recorder"
    try:
        job = job_of([path])
    except ScenarioError as error:
        return "refused", error.problems[0].reason
    return "loads", f"{counted(job.text.count('do: '), 'operation')}, {counted(job.ranks, 'rank')}"


def main() -> int:
    """Print a line for each file."""
    if len(sys.argv) != 2 or not Path(sys.argv[1]).is_dir():
        print(__doc__)
        return 2
    folder, counts = Path(sys.argv[1]), Counter[str]()
    for path in sorted(one for one in folder.rglob("*") if one.is_file()):
        found, why = verdict(path)
        counts[found] += 1
        print(f"{found:<8} {path.relative_to(folder)}: {why}")
    print(", ".join(f"{found}: {count}" for found, count in counts.most_common()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
