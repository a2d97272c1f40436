"""Are figures drawn of what the run's tables say, and is their data beside them?"""

import csv
import re
import shlex
from itertools import product
from pathlib import Path

import pytest

from emu.cli.commands.look.plot import EXAMPLES
from emu.cli.main import main
from tests.reports.test_recording import PAIR, recorded

pytest.importorskip("matplotlib", reason="matplotlib is not installed (the extra `plot`)")

SWEEP = """\
switch.buffer.alpha,routing.kind,seed,drops.total,exit_status,digest,message
0.25,ecmp,1,4,0,,
0.25,ecmp,2,8,0,,
1,ecmp,1,2,0,,
1,ecmp,2,2,0,,
0.25,spray,1,1,0,,
0.25,spray,2,1,0,,
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recorded(PAIR, tmp_path_factory.mktemp("plot") / "run").path


def drawn(*words: str) -> list[dict[str, str]]:
    """The data beside the figure; it is written as SVG with text that can be searched."""
    assert main(["plot", *words]) == 0
    picture = Path(words[-1])
    assert picture.read_text("utf-8").count("<text") > 4
    with picture.with_suffix(".csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_the_rate_over_time_of_a_port_of_400g_is_fifty_gigabytes_a_second(run: Path, tmp_path: Path) -> None:
    words = ("time", str(run), "--series", "port_transmit_bytes", "--device", "ctsw-0")
    rows = drawn(*words, "--out", str(tmp_path / "rate.svg"))
    rates = [float(row["port_transmit_bytes per second"]) for row in rows]
    # ctsw-0 sends the flows' bytes to one leaf and ACKs of 64 B for each 4 KiB to the other.
    assert 50e9 < max(rates) < 50e9 * 1.03


def test_a_distribution_of_completion_times_ends_at_one(run: Path, tmp_path: Path) -> None:
    rows = drawn("flows", str(run), "--out", str(tmp_path / "flows.svg"))
    assert [float(row["share of flows"]) for row in rows] == [0.5, 1.0]


def test_slowdown_by_size_is_that_of_the_flows(run: Path, tmp_path: Path) -> None:
    rows = drawn("slowdown", str(run), "--out", str(tmp_path / "slowdown.svg"))
    assert [row["line"].partition(", ")[2] for row in rows] == ["median", "99th percentile"]
    assert [float(row["size (bytes)"]) for row in rows] == [2**22, 2**22]
    with (run / "flows.csv").open(encoding="utf-8", newline="") as file:
        flows = list(csv.DictReader(file))
    took_ps = sorted(int(flow["delivered_ps"]) - int(flow["start_ps"]) for flow in flows)
    ideal_ps = int(flows[0]["ideal_ps"])  # The same way for both.
    assert [float(row["slowdown"]) for row in rows] == pytest.approx([one / ideal_ps for one in took_ps])
    assert took_ps[0] / ideal_ps > 1.5  # They share a link.


def test_a_sweep_is_drawn_as_means_and_a_band_over_its_seeds(tmp_path: Path) -> None:
    (tmp_path / "sweep.csv").write_text(SWEEP, encoding="utf-8")
    axes = ("--x", "switch.buffer.alpha", "--y", "drops.total", "--by", "routing.kind")
    rows = drawn("sweep", str(tmp_path), *axes, "--out", str(tmp_path / "drops.svg"))
    assert [(row["line"], *map(float, list(row.values())[1:])) for row in rows] == [
        ("ecmp", 0.25, 6.0, 4.0, 8.0),
        ("ecmp", 1.0, 2.0, 2.0, 2.0),
        ("spray", 0.25, 1.0, 1.0, 1.0),
    ]


AXES = ("switch.buffer.alpha", "routing.kind", "transport.mtu")


@pytest.mark.parametrize("by", [None, "routing.kind", "transport.mtu"])
@pytest.mark.parametrize("x", AXES)
def test_axes_that_are_not_named_are_lines_of_their_own(tmp_path: Path, x: str, by: str | None) -> None:
    """All values differ, so none may be the median of two; an axis that goes with x alone is no line."""
    if by == x:
        by = None
    points = list(product(("0.25", "1"), ("ecmp", "spray"), ("1KiB", "4KiB")))
    lines = [f"{','.join(one)},n{one[AXES.index(x)]},1,{10 + at}" for at, one in enumerate(points)]
    (tmp_path / "sweep.csv").write_text("\n".join([f"{','.join(AXES)},with_x,seed,y", *lines]), "utf-8")
    words = ("sweep", str(tmp_path), "--x", x, "--y", "y", *(("--by", by) if by else ()))
    rows = drawn(*words, "--out", str(tmp_path / "y.svg"))
    assert sorted(float(row["y"]) for row in rows) == [10.0 + at for at in range(8)]
    assert len({row["line"] for row in rows}) == 4
    assert not any(row["low"] for row in rows)
    assert not any("with_x" in row["line"] for row in rows)


def test_more_lines_than_can_be_kept_apart_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cells = "".join(f"{at % 2},{at // 2},1,{at}\n" for at in range(42))
    (tmp_path / "sweep.csv").write_text(f"x,other,seed,y\n{cells}", "utf-8")
    assert main(["plot", "sweep", str(tmp_path), "--x", "x", "--y", "y", "--out", "a.svg"]) == 2
    assert "21 combinations of other are lines; accepted: a sweep with at most 20" in capsys.readouterr().err


def test_categories_of_a_sweep_are_named_on_the_axis_and_a_figure_has_its_unit(tmp_path: Path) -> None:
    table = "routing.kind,seed,jobs.a.end_ps\necmp,1,2000000\necmp,2,4000000\nspray,1,1000000\n"
    (tmp_path / "sweep.csv").write_text(table, encoding="utf-8")
    picture = tmp_path / "end.svg"
    axes = ("--x", "routing.kind", "--y", "jobs.a.end_ps")
    rows = drawn("sweep", str(tmp_path), *axes, "--out", str(picture))
    assert [list(row.values())[1:] for row in rows] == [
        ["0.0", "3.0", "2.0", "4.0"],
        ["1.0", "1.0", "1.0", "1.0"],
    ]
    words = re.findall(r"<text[^>]*>([^<]*)</text>", picture.read_text("utf-8"))
    assert {"ecmp", "spray", "jobs.a.end (us)"} <= set(words)
    assert "0.25" not in words


def test_the_examples_of_the_help_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    quick = ("--local", "--quiet", "--no-expect")
    small = ("--set", "jobs[0].workload.size=64KiB")
    assert main(["run", "tiny_all_reduce", *quick, "--out", "runs/quickstart-1"]) == 0
    assert main(["run", "incast", *quick, *small, "--out", "runs/incast-1"]) == 0
    axis = ("--set", "switch.buffer.alpha=1/8,1", "--show", "fabric.pfc_paused_ps")
    assert main(["sweep", "incast", "--local", "--no-expect", *small, *axis, "--out", "sweeps/alpha"]) == 0
    lines = EXAMPLES.replace("\\\n", " ").splitlines()
    examples = [shlex.split(line)[1:] for line in lines if line.strip().startswith("emu ")]
    assert len(examples) == 3
    for words in examples:
        assert main(words) == 0, words
    pictures = {"busbw.svg", "queue.png", "alpha.pdf"}
    data = {f"{Path(name).stem}.csv" for name in pictures}
    assert {path.name for path in tmp_path.glob("*.*")} == pictures | data


def test_the_same_figure_is_the_same_file(run: Path, tmp_path: Path) -> None:
    for name in ("one.svg", "two.svg"):
        drawn("flows", str(run), "--out", str(tmp_path / name))
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["busbw", "RUN", "--out", "a.svg"], "nothing to draw; accepted: a run with a finished collective"),
        (["flows", "RUN", "--out", "a.gif"], "accepted: a name that ends in .svg, .png, .pdf"),
        (["time", "RUN", "--series", "queue_byte", "--out", "a.svg"], "did you mean 'queue_bytes'?"),
        (
            ["time", "RUN", "--series", "nosuch", "--out", "a.svg"],
            "no such counter; accepted: port_",
        ),
        (
            ["sweep", "TABLE", "--x", "alpha", "--y", "drops.total", "--out", "a.svg"],
            "--x alpha: no column of",
        ),
    ],
)
def test_what_cannot_be_drawn_is_one_line(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], line: str
) -> None:
    (tmp_path / "sweep.csv").write_text(SWEEP, encoding="utf-8")
    places = {"RUN": str(run), "TABLE": str(tmp_path)}
    assert main(["plot", *(places.get(word, word) for word in words)]) == 2
    err = capsys.readouterr().err
    assert line in err
    assert err.count("\n") == 1
