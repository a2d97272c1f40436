"""Are the cores counted that this process may use, and not those of the machine?"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from emu.base.cores import usable_cores

AFFINE = len(os.sched_getaffinity(0))


def group(root: Path, place: str, **files: str) -> Path:
    """A control group with these files, as Linux writes them."""
    (root / place).mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (root / place / name.replace("__", ".")).write_text(text)
    return root


def belongs(tmp_path: Path, text: str) -> Path:
    own = tmp_path / "own"
    own.write_text(text)
    return own


def test_a_process_bound_to_one_core_has_one() -> None:
    code = "import os; os.sched_setaffinity(0, [min(os.sched_getaffinity(0))]);"
    code += "from emu.base.cores import usable_cores; print(usable_cores())"
    ended = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert ended.stdout == "1\n"


@pytest.mark.parametrize(
    ("written", "cores"),
    [
        ("max 100000\n", AFFINE),
        ("100000 100000\n", 1),
        ("50000 100000\n", 1),
        (f"{AFFINE * 100000 - 1} 100000\n", max(AFFINE - 1, 1)),
        (f"{AFFINE * 20000} 20000\n", AFFINE),
        ("6400000 100000\n", min(AFFINE, 64)),
        ("not a quota\n", AFFINE),
        ("", AFFINE),
    ],
)
def test_a_quota_counts_in_whole_cores_and_at_least_one(tmp_path: Path, written: str, cores: int) -> None:
    groups = group(tmp_path, "", cpu__max=written)
    assert usable_cores(groups, belongs(tmp_path, "0::/\n")) == cores


def test_the_quota_of_a_group_above_bounds_the_group_below(tmp_path: Path) -> None:
    groups = group(tmp_path, "pods/one", cpu__max="max 100000\n")
    group(groups, "pods", cpu__max="100000 100000\n")
    assert usable_cores(groups, belongs(tmp_path, "0::/pods/one\n")) == 1


def test_the_first_version_of_control_groups_has_its_own_files(tmp_path: Path) -> None:
    own = belongs(tmp_path, "5:memory:/docker/a\n4:cpu,cpuacct:/docker/a\n1:name=systemd:/docker/a\n")
    files = {"cpu__cfs_quota_us": "150000\n", "cpu__cfs_period_us": "100000\n"}
    assert usable_cores(group(tmp_path, "cpu,cpuacct/docker/a", **files), own) == 1
    assert usable_cores(group(tmp_path / "at_its_root", "cpu", **files), own) == 1
    files["cpu__cfs_quota_us"] = "-1\n"
    assert usable_cores(group(tmp_path / "without", "cpu", **files), own) == AFFINE
