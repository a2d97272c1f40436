"""Does `emu schedule` say who waits and who sits where, and what does that do to AllGather?"""

import csv
import json
from pathlib import Path

import pytest

from emu.api import load, run
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
    "traffic": {"op": "all_gather", "sizes": ["4MiB"]},
}


ORDER_SAID = (
    "emu: --set rank_order.kind=emu.doors.weeks.rank_order:RankOrder: rank_order.kind: "
    "'emu.doors.weeks.rank_order:RankOrder' does not load: it does not say what its `order` does; "
    "accepted: a subclass of emu.doors.weeks.rank_order.RankOrder with order"
)


def written(directory: Path) -> str:
    path = directory / "mix.yaml"
    path.write_text(json.dumps(MIX), encoding="utf-8")
    return str(path)


def test_jobs_across_an_oversubscribed_core_get_what_its_links_give(tmp_path: Path) -> None:
    busbw: dict[str, float] = {}
    rings = {"ncclx.tuner": {"model": "hops", "among": ["ring"]}, "host.nic_link_delay": "auto"}
    for kind in ("min_cut", "scattered"):
        scenario = tmp_path / f"{kind}.yaml"
        chosen = ["--set", f"placement.kind={kind}", "--at", "1h", "--write", str(scenario)]
        assert main(["schedule", written(tmp_path), *chosen]) == 0
        result = run(scenario, overrides=rings, diagnose=False)
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
        (["--at", "1h"], "--at and --write go together"),
        (["--at", "9h", "--write", "{out}"], "--at 9h is past the end; accepted: 0s to 28799999ms"),
        (["--at", "soon", "--write", "{out}"], "--at: 'soon' is not a time; accepted: a time with"),
        (["--at", "7h", "--write", "{out}"], "no job of two GPUs or more runs at 7h"),
        (
            ["--set", "jobs[0].gpus=3"],
            "emu: --set jobs[0].gpus=3: jobs[0].gpus: 3 GPUs are no whole servers of 2",
        ),
        (
            ["--set", "expect=[{value: waits, equals: 0}]"],
            "emu: --set expect=[{value: waits, equals: 0}]: expect[0].value: there is no 'waits'",
        ),
        (["--set", "rank_order.kind=emu.doors.weeks.rank_order:RankOrder"], ORDER_SAID),
    ],
)
def test_what_cannot_be_is_refused_in_a_line(
    arguments: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    filled = [one.replace("{out}", str(tmp_path / "running.yaml")) for one in arguments]
    assert main(["schedule", written(tmp_path), *filled]) == 2
    assert said in capsys.readouterr().err


def crossings(place: list[int], servers_of_a_pod: int) -> int:
    """How often a ring over these servers goes from one pod to another."""
    pods = [server // servers_of_a_pod for server in place]
    return sum(one != other for one, other in zip(pods, [*pods[1:], pods[0]], strict=True))


def test_a_ring_in_the_order_of_the_fabric_leaves_each_pod_once_and_gains_by_that(tmp_path: Path) -> None:
    flow = {
        "fidelity": "flow",
        "switch.deep_buffer.where": "none",
        "ncclx.tuner": {"model": "hops", "among": ["ring"]},
    }
    busbw: dict[str, float] = {}
    left: dict[str, int] = {}
    for order in ("random", "topology"):
        scenario = tmp_path / f"{order}.yaml"
        chosen = ["--set", "placement.kind=random", "--set", f"rank_order.kind={order}"]
        chosen += ["--set", "traffic.sizes=[64MiB]", "--at", "1h", "--write", str(scenario)]
        assert main(["schedule", written(tmp_path), *chosen]) == 0
        result = run(scenario, overrides=flow, diagnose=False)
        ranks = load(scenario).scenario.jobs[0].ranks
        assert isinstance(ranks, tuple)
        left[order] = crossings([gpu // 2 for gpu in ranks[::2]], 8)
        busbw[order] = result.summary.plain()["jobs"]["left"]["collectives"][0]["busbw"]
    assert left["topology"] == 2
    assert left["random"] > 2
    assert busbw["topology"] > 1.3 * busbw["random"]


@pytest.mark.parametrize(
    ("topology", "segments"),
    [("{kind: hpn, segments_per_pod: 2}", 1.0), ("{kind: dcn_plus, pods: 4}", (1024 * 8 + 256 * 2) / 1280)],
)
def test_a_segment_of_hpn_holds_jobs_that_are_spread_over_segments_of_dcn_plus(
    topology: str, segments: float, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    jobs = "[{name: large, gpus: 1024, lasts: 1d}, {name: small, gpus: 256, lasts: 1d}]"
    mix = tmp_path / "mix.yaml"
    mix.write_text(f"name: two\nlasts: 2d\ntopology: {topology}\njobs: {jobs}\n", "utf-8")
    assert main(["schedule", str(mix), "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["gpus"] == 2048
    assert summary["spans"]["segment"]["mean"] == pytest.approx(segments)
