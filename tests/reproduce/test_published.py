"""Do the published figures that packets reach come out, and is every one that does not told with a reason?

The runs are those of `emu reproduce`; what may be outside its band is written here, figure by figure.
"""

import csv
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import emu
from emu import api
from emu.cli.main import main
from emu.doors.reproduce import published
from emu.doors.reproduce.published import BUILT, FITTED, PREDICTED, ROWS, Figure, Row
from emu.doors.reproduce.reproduced import (
    COLUMNS,
    ComparedFigure,
    Reproduced,
    closing,
    counts,
    draw,
    reproduce,
    table,
)
from emu.many_runs import Machines

needs_speed = pytest.mark.skipif(
    not emu.is_compiled(), reason="five million packet-hops take minutes interpreted"
)

OUTSIDE = {
    "P1": {
        *(f"128 MB, {policy}" for policy in ("QP=1", "4 split", "4 in turn", "16 in turn")),
        *("2 GB, 4 split", "2 GB, 16 split", "pairs in the paper's order", "in turn over split"),
    },
    "P2": {"128 MB, untuned/library", "all_to_all 1 GB, lead"},
    "P5": {"gain at the best size"},
    "P7 (512 to 1,024)": {f"Megatron-LM, {gpus} GPUs" for gpus in (512, 768, 1024)},
    "P9": {
        f"{row.what}, batch {row.batch}"
        for row in published.ABLATION
        if row.what not in {"PP overlap", "misc", "LAMB"}
    }
    | {"rows that gain", "gains in order of size"},
    "P8": {
        f"{gpus} GPUs, {name}"
        for gpus in ("3,072", "6,144", "8,192", "12,288")
        for name in ("Megatron-LM", "MegaScale")
    }
    - {"3,072 GPUs, MegaScale"},
    "P11": {"8,192 GPUs", "16,384 GPUs"},
    "P14": {"both: worst job"},
    "P14 (24,576 GPUs)": {"both: worst job", "both: best job"},
    "P19 (128)": {"128 over 8 GPUs"},
    "P14 (512 GPUs)": {"RoCE, both: worst job"},
}
"""Figures of which the page says why they are."""


def outside(rows: list[Reproduced]) -> dict[str, set[str]]:
    found = {
        row.name: {one.figure.what for one in figures if one.verdict == "outside"} for row, figures, _ in rows
    }
    return {name: those for name, those in found.items() if those}


@pytest.fixture(scope="module")
def quick() -> list[Reproduced]:
    return reproduce([row for row in published.ROWS if not row.long], Machines(1), None)


@needs_speed
def test_quick_rows_are_in_their_bands_but_for_figures_that_say_why(quick: list[Reproduced]) -> None:
    assert outside(quick) == {}
    of_quick = {row.name for row, _, _ in quick}
    assert of_quick >= {"P3", "P4", "P6", "P12", "P13", "P15", "P16", "P17", "P18", "P19", "P21", "X1", "X2"}


@needs_speed
@pytest.mark.soak
@pytest.mark.timeout(3000)
def test_long_rows_are_in_their_bands_but_for_figures_that_say_why() -> None:
    rows = reproduce([row for row in published.ROWS if row.long], Machines(2), None)
    assert outside(rows) == OUTSIDE
    # the last row of the ablation, by flow level, is MegaScale's step, packets and all
    ours = {(row.name, one.figure.what): one.ours for row, figures, _ in rows for one in figures}
    assert ours["P9", "LAMB, batch 768"] == pytest.approx(ours["P7", "MegaScale's MFU"], rel=0.01)


@needs_speed
def test_a_table_fits_its_columns(quick: list[Reproduced]) -> None:
    lines = table(quick)
    assert max(map(len, lines)) <= COLUMNS
    text = "\n".join(lines)
    assert all(f"\n{row} " in f"\n{text}" for row in ("P3", "X2"))
    assert text.count("why: ") == len(quick)


def test_every_row_has_a_reason_and_a_name_of_its_own() -> None:
    reasons = [(row.name, row.reason) for row in published.ROWS]
    assert all(reason for _, reason in reasons)
    names = [name for name, _ in reasons]
    assert len(set(names)) == len(names)
    # a row in two parts has the second's in brackets
    assert {name.partition(" ")[0] for name in names} == {
        *(f"P{number}" for number in range(1, 22)),
        "X1",
        "X2",
    }


@needs_speed
def test_a_curve_is_drawn_with_the_published_one_beside_it(tmp_path: Path) -> None:
    """Of runs of 32 GPUs and small sizes: the lines, not the figures."""
    pytest.importorskip("matplotlib", reason="matplotlib is not installed (the extra `plot`)")
    (row,) = (row for row in published.ROWS if row.name == "P1")
    small = {"topology.racks": "2", "jobs[0].workload.sizes": "[64KiB, 128KiB, 256KiB, 512KiB]"}
    answers = {
        case: api.run(case.scenario, overrides={**dict(case.overrides), **small}, local=True).summary
        for case in row.cases
    }
    assert draw([Reproduced(row, (), answers)], tmp_path) == [tmp_path / "P1.svg"]
    with (tmp_path / "P1.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    of_split = [float(row["% of the best"]) for row in rows if row["line"] == "16 split, published"]
    assert of_split == [20, 22, 42, 70]


@pytest.mark.parametrize(
    ("ours", "verdict"), [(6.9, "outside"), (7, "in band"), (15, "in band"), (15.1, "outside")]
)
def test_a_band_includes_its_ends(ours: float, verdict: str) -> None:
    assert ComparedFigure(Figure("ratio", 10.75, "x", lambda _: ours, 7, 15), ours).verdict == verdict


def test_shares_differ_by_points_and_other_figures_by_percent() -> None:
    assert ComparedFigure(Figure("share", 50, "%", lambda _: 0), 40).difference == -10
    assert ComparedFigure(Figure("time", 50, "us", lambda _: 0), 40).difference == pytest.approx(-20)
    assert ComparedFigure(Figure("said", None, "us", lambda _: 0), 40).difference is None


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, Any]:
    status = main(["reproduce", *words, "--json", "--quiet"])
    return status, json.loads(capsys.readouterr().out)


@needs_speed
def test_a_row_by_its_name_is_printed_as_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    status, found = printed(capsys, "P16")
    assert status == 0
    (row,) = found["rows"]
    assert row["name"] == "P16"
    assert [one["verdict"] for one in row["figures"]] == ["in band", "shown", "in band"]


def test_a_row_that_is_not_there_is_refused_with_those_that_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "Q"]) == 2
    assert "P1, P2" in capsys.readouterr().err


NO_PREDICTIONS = {
    "P3": 1,  # the round trip that sets the credit delay
    "P6": 1,  # what leaves port 0 arrives at port 0
    "P10": 2,  # an operation of the store, and its lanes
    "P12": 2,  # causes strike at the rates of the table
    "P13": 2,  # bytes over the rate of the disks
    "P13 (whole)": 1,
    "P16": 3,  # what go-back-0 and go-back-N are
    "P17": 4,  # times that the scenario states, and the paper's restarts
    "P18": 4,  # three unknowns of host, NIC and switch
}
"""Figures that are fitted, or come out by construction, by row."""


def test_figures_that_set_a_constant_or_follow_from_the_scenario_are_no_predictions() -> None:
    marked = {row.name: sum(one.basis != PREDICTED for one in row.figures) for row in ROWS}
    assert {name: many for name, many in marked.items() if many} == NO_PREDICTIONS


def test_each_basis_is_counted_apart_and_named_under_its_row() -> None:
    figures = (
        Figure("a", 1, "x", lambda _: 1.0, 1, 1),
        Figure("b", 1, "x", lambda _: 2.0, 1, 1),
        Figure("c", 1, "x", lambda _: 1.0, 1, 1, basis=FITTED),
        Figure("d", 1, "x", lambda _: 1.0, basis=BUILT),
    )
    row = Row("P0", "four figures", "nobody", (), figures, "not known")
    done = reproduce([row], Machines(1), None)
    assert {basis: dict(many) for basis, many in counts(done).items()} == {
        "predicted": {"in band": 1, "outside": 1},
        "fitted": {"in band": 1},
        "by construction": {"shown": 1},
    }
    assert closing(done) == [
        "predicted: 2 figures, 1 in band, 1 outside",
        "fitted: 1 figure, 1 in band",
        "by construction: 1 figure, 1 shown",
    ]
    assert "  fitted: c" in table(done)
    assert "  by construction: d" in table(done)


def test_the_page_counts_the_rows_and_figures_that_there_are() -> None:
    text = " ".join((Path(__file__).parents[2] / "docs/reproduce.md").read_text("utf-8").split())
    bare = [row for row in ROWS if all(one.least is None is one.most for one in row.figures)]
    within = len(ROWS) - len(OUTSIDE) - len(bare)
    assert (
        f"Of the {len(ROWS)} rows below, {within} have every figure in its band, {len(OUTSIDE)} have" in text
    )
    quick = [row for row in ROWS if not row.long]
    of_basis = Counter(one.basis for row in quick for one in row.figures)
    said = f"{of_basis[PREDICTED]} are predicted, {of_basis[FITTED]} fitted and {of_basis[BUILT]} by"
    assert f"runs {len(quick)} of these rows: of their {of_basis.total()} figures {said} construction" in text


def test_credits_with_default_switches_and_cables_miss_infiniband_by_what_the_page_says() -> None:
    """64 B from CPU to CPU; published 2.8 and 3.7 us (DeepSeek, arXiv 2505.09343)."""
    changes: dict[str, Any] = {
        "link.flow_control": "credits",
        "switch.latency": "300ns",
        "link.delay": "500ns",
        "expect": [],
    }
    found = api.run("small_messages", overrides=changes, local=True, diagnose=False).summary
    seen = [published._seen_us(found, job) for job in ("leaf", "across")]
    assert seen == pytest.approx([3.41, 5.01], abs=0.005)
    text = (Path(__file__).parents[2] / "docs/reproduce.md").read_text("utf-8")
    more = [round(100 * (one / other - 1)) for one, other in zip(seen, (2.8, 3.7), strict=True)]
    assert f"InfiniBand takes 3.41 and 5.01 us, {more[0]} and {more[1]} % more" in text
