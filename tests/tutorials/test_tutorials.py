"""Do the tutorials' commands run as the pages show them, and do runs and pages bear out what is concluded?

What is held are orders and ratios, of the output on the page and of that of the runs alike.
"""

import re
from collections.abc import Callable, Sequence
from functools import cache

import pytest

import emu
from tests.tutorials.pages import PAGES, Shown, commands, executed

pytestmark = pytest.mark.long

UNITS = {
    "us": 1e-6,
    "ms": 1e-3,
    "ps": 1e-12,
    "Gbps": 1e9,
    "GB/s": 8e9,
    "KiB": 2.0**10,
    "MiB": 2.0**20,
    "B": 1.0,
    "": 1.0,
}
FAILING = {
    "tutorial_pod": [],
    "tutorial_step": ["emu compare well slow"],
    "tutorial_control": ["emu validate two_flows"],
    "tutorial_loads": [],
    "tutorial_box": ["emu accept sonic --config-db unmarked.json", "emu accept sonic --config-db lossy.json"],
    "tutorial_buyer": ["emu accept bmwg --tests 9.9"],
    "tutorial_operator": ["emu fit cluster.yaml", "emu fit /dev/null"],
    "ncclx": [],
}
"""Commands that are shown with another exit status than 0: runs that part, a class that is not there."""
LARGE = ("tutorial_loads", "ncclx")
"""Pages whose large blocks run here, compiled."""


def number(cell: str) -> float:
    found = re.fullmatch(r"([0-9.]+)([A-Za-z/]*)", cell)
    assert found is not None, cell
    return float(found[1]) * UNITS[found[2]]


def columns(shown: Shown, *names: str) -> list[list[float]]:
    """Columns of a sweep's table, all of whose runs ended well."""
    rows = shown.rows()
    assert {row["status"] for row in rows} == {"ok"}
    return [[number(row[name]) for row in rows] for name in names]


@cache
def ran(page: str, large: bool = False) -> tuple[str, list[str]]:
    return executed(PAGES[page].read_text(encoding="utf-8"), large)


def reported(page: str, run: bool) -> list[Shown]:
    """The commands of a page with their output: as it stands there, or of runs."""
    large = page in LARGE and emu.is_compiled()
    return commands(ran(page, large)[0] if run else PAGES[page].read_text(encoding="utf-8"))


def sweeps(shown: Sequence[Shown], large: bool = False) -> list[Shown]:
    return [one for one in shown if "emu sweep" in one.command and one.large == large]


def pod(shown: Sequence[Shown]) -> None:
    policies, queue_pairs, broken, thresholds, marks = sweeps(shown)
    ring, busbw, uneven = columns(
        policies, "ring.end_ps", "collectives[-1].busbw", "fabric.worst_max_over_mean"
    )
    assert min(ring[:2]) > 1.7 * max(ring[2:])
    assert max(ring[2:]) < 1.2 * 2**20 * 8 / 200e9
    assert max(busbw[:2]) < min(busbw[2:]) < 1.2 * min(busbw[:2])
    assert min(uneven[:2]) > 1.5 * max(uneven[2:])
    hashed = ring[1]
    ring, pairs, paused = columns(queue_pairs, "ring.end_ps", "pairs.end_ps", "fabric.pfc_paused_ps")
    assert ring == sorted(ring, reverse=True)
    assert paused == sorted(paused, reverse=True)
    assert pairs[1] < pairs[2] < pairs[0]
    ((e_ecmp, pinned, sprayed, adaptive),) = columns(broken, "ring.end_ps")
    assert sprayed < adaptive < pinned == pytest.approx(hashed, rel=0.05)
    assert pinned < e_ecmp
    ring, pairs, paused, peak = columns(
        thresholds, "ring.end_ps", "pairs.end_ps", "fabric.pfc_paused_ps", "fabric.buffer_peak_bytes"
    )
    assert max(ring) < 1.03 * min(ring)
    assert paused[0] > paused[2] > paused[4]
    assert pairs[0] == max(pairs)
    for column in (pairs, paused):
        assert all(
            with_pauses > marked for with_pauses, marked in zip(column[::2], column[1::2], strict=True)
        )
    assert paused[5] == 0
    assert peak[0] < peak[2] < peak[4]
    marked, paused = columns(marks, "fabric.queue_marked_frames", "fabric.pfc_paused_ps")
    assert marked == sorted(marked, reverse=True)
    assert marked[0] > 0 == marked[-1]
    assert paused[0] == 0 < paused[-2] < paused[-1]


def loads(shown: Sequence[Shown]) -> None:
    (ring,) = columns(sweeps(shown)[0], "load.end_ps")
    (others,) = columns(sweeps(shown, large=True)[0], "load.end_ps")
    dense, incast, permutation, all_to_all, experts, rings = (
        slim / wide for wide, slim in zip(others[::2], others[1::2], strict=True)
    )
    assert max(ring[1] / ring[0], incast, experts, dense) < 1.1
    # of 28 parts that leave a GPU's server 24 leave its rack, by 2 links in place of 8 NICs
    assert 1.5 < permutation < all_to_all < 24 * 4 / 28
    assert 2 < all_to_all < rings < 4


def step(shown: Sequence[Shown]) -> None:
    tuned, slow, flap, times = sweeps(shown)
    took, dp, bubble, mfu = columns(
        tuned, "training.step_ps", "exposed.dp", "training.bubble", "training.mfu"
    )
    assert took[2] < 1.8 * took[0]
    assert (dp[2] < dp[0], bubble[2] < bubble[0], mfu[2] > mfu[0] > mfu[1]) == (True, True, True)
    took, computing, tp, dp = columns(
        slow, "training.step_ps", "training.compute", "exposed.tp", "exposed.dp"
    )
    for factor, end in zip((1.1, 1.5, 2), took[1:], strict=True):
        assert end / took[0] - 1 == pytest.approx(3 / 4 * computing[0] * (factor - 1), rel=0.1)
    assert computing == sorted(computing, reverse=True)
    assert (tp, dp) == (sorted(tp), sorted(dp))
    healthy = took[0]
    (took,) = columns(flap, "training.step_ps")
    assert took[0] > 70 * healthy
    assert took[0] > took[2] > took[4]
    assert took[0] - healthy == pytest.approx(4.096e-6 * 2**14, rel=0.01)
    assert set(took[1::2]) == {took[1]}
    assert healthy < took[1] < took[4]
    took, drops = columns(times, "training.step_ps", "drops.total")
    assert took[0] > 2 * took[1] == 2 * healthy
    assert drops[0] > 0 == drops[1]
    printed = "".join(one.output for one in shown)
    shares = re.findall(
        r"computing ([\d.]+)%.*tp ([\d.]+)%, pp ([\d.]+)%, dp ([\d.]+)%, bubble ([\d.]+)%.*other ([\d.]+)%",
        printed,
    )
    assert len(shares) == 3
    assert [sum(map(float, one)) for one in shares] == pytest.approx([100] * 3, abs=0.4)
    assert "diagnosis: gpu-0-1 is behind its peers" in printed
    assert "diagnosis: link nic-0-0:rtsw-0 lost its signal 4 times" in printed


def control(shown: Sequence[Shown]) -> None:
    empty, falling, steps, all_of_them = sweeps(shown)
    assert "steps has no class Steps" in shown[1].output
    names = ("pair.end_ps", "fabric.pfc_paused_ps", "fabric.buffer_peak_bytes", "fabric.queue_marked_frames")
    for column in columns(empty, *names[:3]):
        assert column[0] == column[1] > 0
    assert columns(empty, names[3])[0][0] == 0 < columns(empty, names[3])[0][1]
    took, paused = columns(falling, *names[:2])
    assert took[1] > 2 * took[0]
    assert paused[0] > 0 == paused[1]
    took, peak = columns(steps, "pair.end_ps", "fabric.buffer_peak_bytes")
    assert (took, peak) == (sorted(took, reverse=True), sorted(peak))
    assert peak[3] > 5 * peak[2]
    took, paused, peak, _ = columns(all_of_them, *names)
    none, dcqcn, swift, hpcc, own = range(5)
    assert paused[none] > 0 == max(paused[dcqcn:])
    assert took[none] == pytest.approx(took[swift], rel=0.01)
    assert took[none] < took[own] < took[dcqcn]
    assert peak[hpcc] < peak[dcqcn] < peak[own] < peak[swift] < peak[none]
    figures = [one.output for one in shown if one.command.startswith("python")]
    for figure, least, most in zip(figures, (0, 75), (60, 100), strict=True):
        rows = [list(map(int, row)) for row in re.findall(r"^ *(\d+) +(\d+) +(\d+) ", figure, re.MULTILINE)]
        both = [row for row in rows if 600 <= row[0] <= 2200]
        assert sum(row[1] for row in both) == pytest.approx(sum(row[2] for row in both), rel=0.2)
        alone = [row[2] for row in rows if row[0] > 2500 and row[1] < 5]
        assert least < max(alone) < most


def box(shown: Sequence[Shown]) -> None:
    new, sound, _, failing, _, lossy = (one.output for one in shown)
    assert "written: sonic_config_db.json" in new
    answers = re.findall(r"^  (TC\S+) +(\S+) ", sound, re.MULTILINE)
    assert answers == [("TC1", "pass"), ("TC2.1", "pass"), ("TC7", "pass")]
    assert "33 and 23" in sound
    assert re.search(r"frames marked +0 +above 0 +FAILS", failing)
    assert "WRED_PROFILE (ecn" in failing
    assert "names no lossless queue" in lossy
    assert lossy.count("\n") == 1


def buyer(shown: Sequence[Shown]) -> None:
    clos, rails, both, unknown = (one.output for one in shown)
    for report in (clos, rails):
        answers = re.findall(r"^  (\d\.\d) +(\S+) ", report, re.MULTILINE)
        assert answers == [("4.1", "pass"), ("5.3", "pass")]
    (flat,) = re.findall(r"measured / derived +([\d.]+)", both)
    assert float(flat) == pytest.approx(1.0, rel=0.1)  # LL128's flags
    assert "JCT ratio" in both
    assert "there is no test '9.9'" in unknown
    assert unknown.count("\n") == 1


def operator(shown: Sequence[Shown]) -> None:
    printed = "".join(one.output for one in shown)
    fitted = dict(re.findall(r"^  (\S+) +\S+ +([\d.]+)(?:us|Gbps) ", printed, re.MULTILINE))
    assert float(fitted["ncclx.launch"]) == pytest.approx(6, rel=0.05)
    assert float(fitted["host.pcie.rate"]) == pytest.approx(300, rel=0.05)
    assert shown[-1].output.count("\n") == shown[-2].output.count("\n") == 1


def ports_of_nics(shown: Sequence[Shown]) -> None:
    lost, planes = (one for one in shown if "emu sweep" in one.command)
    (busbw,) = columns(lost, "collectives[0].busbw")
    whole, halved = busbw[::2], busbw[1::2]
    kept = [one / other for one, other in zip(halved, whole, strict=True)]
    assert kept[:2] == pytest.approx([0.5, 0.5], abs=0.05), "a fixed part waits for the NIC with one port"
    assert kept[2] == pytest.approx(15 / 16, rel=0.015)
    (busbw,) = columns(planes, "collectives[0].busbw")
    two, joined = busbw[:6], busbw[6:]
    assert all(one > other for one, other in zip(two[:3], joined[:3], strict=True)), "merged"
    assert all(merged > 1.4 * bonded for merged, bonded in zip(two[:2], two[3:5], strict=True)), "trees"
    assert two[2] == pytest.approx(two[5], rel=0.02), "a ring has one sender for each receiver"


CONCLUSIONS: dict[str, Callable[[Sequence[Shown]], None]] = {
    "tutorial_control": control,
    "tutorial_loads": loads,
    "tutorial_pod": pod,
    "tutorial_step": step,
    "tutorial_box": box,
    "tutorial_buyer": buyer,
    "tutorial_operator": operator,
    "ncclx": ports_of_nics,
}


@pytest.mark.parametrize("run", [False, True], ids=["page", "run"])
@pytest.mark.parametrize("page", CONCLUSIONS)
def test_the_conclusions_of_a_tutorial_hold(page: str, run: bool) -> None:
    CONCLUSIONS[page](reported(page, run))


@pytest.mark.parametrize("page", PAGES)
def test_a_command_fails_only_where_the_page_says_so(page: str) -> None:
    failed = ran(page, page in LARGE and emu.is_compiled())[1]
    assert len(failed) == len(FAILING[page])
    assert all(line.startswith(begin) for line, begin in zip(failed, FAILING[page], strict=True))


@pytest.mark.parametrize(
    "run",
    [
        False,
        pytest.param(
            True,
            marks=[
                pytest.mark.soak,
                pytest.mark.skipif(not emu.is_compiled(), reason="takes minutes interpreted"),
            ],
        ),
    ],
    ids=["page", "run"],
)
def test_the_pod_of_512_gpus_has_the_order_of_its_four_racks(run: bool) -> None:
    shown = commands(ran("tutorial_pod", True)[0]) if run else reported("tutorial_pod", False)
    policies, thresholds = sweeps(shown, large=True)
    ring, uneven = columns(policies, "ring.end_ps", "fabric.worst_max_over_mean")
    small_ring, small_uneven = columns(sweeps(shown)[0], "ring.end_ps", "fabric.worst_max_over_mean")
    assert ring[0] > 1.1 * small_ring[1] > 2 * max(ring[1:])
    assert uneven[0] > small_uneven[1]
    assert ring[1:] == pytest.approx(small_ring[2:], rel=0.02)
    pairs, paused = columns(thresholds, "pairs.end_ps", "fabric.pfc_paused_ps")
    assert pairs[0] == max(pairs)
    assert pairs[3] == min(pairs)
    assert paused[0] > paused[2] > paused[3] == 0
