"""The number of cores that this process may use: those of its cpuset, within its quota of CPU time.

Not as many as the machine has: a cpuset (`taskset`, Docker's `--cpuset-cpus`) names the cores that a process
may run on, and a quota of its control group (Docker's `--cpus`, a limit of Kubernetes) bounds the CPU time
that it gets in each period. A worker beyond these only takes turns with the others.

Sources: sched_setaffinity(2); cgroups(7), and Linux's `Documentation/admin-guide/cgroup-v2.rst` (`cpu.max`)
and `scheduler/sched-bwc.rst` (`cpu.cfs_quota_us`). A quota of a group bounds all groups below it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

CGROUPS: Final = Path("/sys/fs/cgroup")
OWN: Final = Path("/proc/self/cgroup")


def usable_cores(groups: Path = CGROUPS, own: Path = OWN) -> int:
    """At least 1. A quota counts in whole cores, rounded down: workers wait for one another at every window,
    so one that has used up its time holds up all of them.
    """
    affine = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(min([affine, *_quotas(groups, own)]), 1)


def _quotas(groups: Path, own: Path) -> Iterator[int]:
    """Whole cores that each control group allows which this process is in; none where it has no quota."""
    for line in _read(own).splitlines():
        _, controllers, place = [*line.split(":", 2), "", ""][:3]
        if not controllers:
            roots = [groups, groups / "unified"]
        elif "cpu" in controllers.split(","):
            roots = [groups / controllers, groups / "cpu"]
        else:
            continue
        # In a container the place may be that outside of it, and its own group is the root: ask all above.
        above = [Path(place.lstrip("/")), *Path(place.lstrip("/")).parents]
        for root in roots:
            for one in above:
                allowed, period = _bandwidth(root / one)
                if allowed > 0 and period > 0:
                    yield allowed // period


def _bandwidth(group: Path) -> tuple[int, int]:
    """CPU time in a period, and the period, in us; 0 where there is no limit."""
    words = _read(group / "cpu.max").split()
    if len(words) != 2:
        words = [_read(group / name).strip() for name in ("cpu.cfs_quota_us", "cpu.cfs_period_us")]
    allowed, period = (int(word) if word.isascii() and word.isdigit() else 0 for word in words)
    return allowed, period


def _read(path: Path) -> str:
    try:
        return path.read_text("ascii")
    except (OSError, UnicodeDecodeError):
        return ""
