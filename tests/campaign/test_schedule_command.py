"""Does `emu schedule` say who waits and who sits where, and what does that do to AllGather?"""

import csv
import json
from pathlib import Path

import pytest

from emu.api import run
from emu.cli.main import main

MIX = {
    "name": "two_jobs",
    "lasts": "8h",
    "topology": {
        "kind": "llama3",
        "pods": 2,
        "racks_per_pod": 4,
        "gpus_per_host": 2,
        "ctsws_per_pod": 4,
        "atsws": 2,
    },
    "jobs": [{"name": name, "gpus": 16, "lasts": "6h"} for name in ("left", "right")],
    "traffic": {"size": "4MiB"},
}


def written(directory: Path) -> str:
    path = directory / "mix.yaml"
    path.write_text(json.dumps(MIX), encoding="utf-8")
    return str(path)


def test_jobs_across_an_oversubscribed_core_get_what_its_links_give(tmp_path: Path) -> None:
    busbw: dict[str, float] = {}
    for kind in ("min_cut", "scattered"):
        moment = tmp_path / f"{kind}.yaml"
        chosen = ["--set", f"placement.kind={kind}", "--moment", "1h", "--write", str(moment)]
        assert main(["schedule", written(tmp_path), *chosen]) == 0
        result = run(moment, overrides={"ncclx.tuner": {"model": "hops", "among": ["ring"]}}, diagnose=False)
        busbw[kind] = result.summary.plain()["jobs"]["left"]["collectives"][0]["busbw"]
    # a pod of 16 NICs at 400G has 16 / 7 of that upwards; scattered, the ring leaves its pod at every rack
    assert 2 < busbw["min_cut"] / busbw["scattered"] < 7


def test_what_is_shown_fits_the_terminal_and_the_tables_agree(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert main(["schedule", "four_pods", "--out", str(out)]) == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80
    summary = json.loads((out / "summary.json").read_text("utf-8"))
    levels = list(csv.DictReader((out / "levels.csv").read_text("utf-8").splitlines()))
    end_ms, begin_ms, busy = 10 * 86_400_000, 86_400_000, 0
    for level, following in zip(levels, [*levels[1:], {"at_ms": str(end_ms)}], strict=True):
        span_ms = int(following["at_ms"]) - max(int(level["at_ms"]), begin_ms)
        busy += max(span_ms, 0) * int(level["busy_gpus"])
    assert busy / (512 * (end_ms - begin_ms)) == pytest.approx(summary["utilisation"], abs=1e-6)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--moment", "1h"], "--moment and --write go together"),
        (["--moment", "9h", "--write", "{out}"], "--moment 9h is past the end; accepted: 0s to 28799999ms"),
        (["--moment", "soon", "--write", "{out}"], "--moment: 'soon' is not a time; accepted: a time with"),
        (["--moment", "7h", "--write", "{out}"], "no job of two GPUs or more runs at 7h"),
        (["--set", "jobs[0].gpus=3"], "jobs[0].gpus: 3 GPUs are no whole servers of 2"),
    ],
)
def test_what_cannot_be_is_refused_in_a_line(
    arguments: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    filled = [one.format(out=tmp_path / "moment.yaml") for one in arguments]
    assert main(["schedule", written(tmp_path), *filled]) == 2
    assert said in capsys.readouterr().err
