"""Does every program that is accepted run to an end, and is its end summarised, however wrong it is?"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from emu import api
from emu.base.errors import ScenarioError
from emu.cli.main import main
from emu.workload.composing import Program
from tests.conftest import SOAK
from tests.scenario.plain import plain

RANKS = 4
FABRIC = {"kind": "ai_zone", "racks": 2, "hosts_per_rack": 1, "gpus_per_host": 2, "spines": 1}
SIZES = ("4B", "1KiB", "4KiB", "24KiB", "64KiB")
COLLECTIVES = {
    "all_reduce": ("default", "double_binary_tree", "direct", "auto"),
    "all_gather": ("default", "bruck"),
    "reduce_scatter": ("default", "halving_doubling"),
    "all_to_all": ("default",),
    "broadcast": ("default", "double_binary_tree"),
    "reduce": ("default",),
    "gather": ("default",),
    "scatter": ("default",),
    "barrier": ("default",),
}


def operations(draw: random.Random) -> list[dict[str, Any]]:
    """A list that may be right or wrong: ranks that call other sizes, roots or types, or nothing."""
    found: list[dict[str, Any]] = []
    for _ in range(draw.randint(1, 5)):
        what = draw.choice(("compute", "event", "transfer", *COLLECTIVES))
        if what == "compute":
            found.append({"do": "compute", "time": draw.choice(("1ps", "3us"))})
        elif what == "event":
            found += [{"do": "record", "event": "e"}, {"do": "wait", "event": "e"}]
        elif what == "transfer":
            one, other = draw.sample(range(RANKS), 2)
            sizes = draw.choices(SIZES, k=2) if draw.random() < 0.5 else [draw.choice(SIZES)] * 2
            more = {"group": "g"} if draw.random() < 0.5 else {}
            found.append({"do": "send", "peer": other, "ranks": [one], "size": sizes[0], **more})
            found.append({"do": "recv", "peer": one, "ranks": [other], "size": sizes[1], **more})
        else:
            call: dict[str, Any] = {"do": what, "algorithm": draw.choice(COLLECTIVES[what])}
            if draw.random() < 0.25:
                call["group"] = "g"
            if what != "barrier":
                call |= {"size": draw.choice(SIZES), "dtype": draw.choice(("fp32", "bf16"))}
            if draw.random() < 0.5:
                found.append(call)
                continue
            other_call = dict(call)
            if what != "barrier":
                other_call["size"] = draw.choice(SIZES)
            if what in ("broadcast", "reduce", "gather", "scatter"):
                other_call["root"] = draw.randrange(RANKS)
            cut = draw.randint(1, RANKS - 1)
            found.append(call | {"ranks": list(range(cut))})
            found.append(other_call | {"ranks": list(range(cut, RANKS))})
    for step in found:
        if step["do"] != "record" and step["do"] != "wait":
            step["stream"] = draw.choice(("main", "main", "side"))
    return found


def scenario(seed: int) -> dict[str, Any]:
    draw = random.Random(seed)
    return plain(
        {
            "name": f"drawn_{seed}",
            "payload": draw.choice(("real", "sizes")),
            "topology": FABRIC,
            "host": {"nvlink": {"enabled": draw.random() < 0.5}},
            "ncclx": {
                "watchdog": draw.choice(("auto", "200us")),
                "zero_copy": draw.random() < 0.3,
                "channels": draw.choice((1, 2)),
                "sms_per_channel": draw.choice((0, 1)),
            },
            "run": {"stall_after": "1ms"},
            "transport": {"timeout": 4, "retry_count": 1},
            "jobs": [
                {
                    "name": "a",
                    "workload": {
                        "kind": "program",
                        "communicators": [{"name": "world", "in_flight": draw.choice((1, 2))}],
                        "operations": operations(draw),
                        "steps": draw.choice((1, 2)),
                    },
                }
            ],
        }
    )


@pytest.mark.parametrize("first", range(0, 400 if SOAK else 60, 20))
def test_any_accepted_program_runs_and_is_summarised(
    first: int, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    ran = 0
    for seed in range(first, first + 20):
        given = scenario(seed)
        try:
            api.prepare(given)
        except ScenarioError:
            continue
        path = tmp_path / f"{seed}.yaml"
        path.write_text(json.dumps(given))
        status = main(["run", str(path), "--local", "--out", str(tmp_path / str(seed))])
        said = capfd.readouterr()
        assert status in (0, 1, 3), f"seed {seed}: {said.err}"
        assert "Traceback" not in said.err, f"seed {seed}: {said.err}"
        summary = json.loads((tmp_path / str(seed) / "summary.json").read_text())
        job = summary["jobs"]["a"]
        if job["status"] == "success":
            wrong = sum(one["wrong"] or 0 for one in job["collectives"])
            assert (status == 1) == (wrong > 0), f"seed {seed}"
            assert all(bool(one["wrong"]) == bool(one["wrong_ranks"]) for one in job["collectives"])
        ran += 1
    assert ran >= 10


def test_a_step_that_takes_no_time_is_a_result(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    program = Program(ranks=2)
    program.main.record()
    path = tmp_path / "nothing.yaml"
    path.write_text(json.dumps(plain(program.scenario({"kind": "star", "hosts": 2}))))
    assert main(["run", str(path), "--local", "--out", str(tmp_path / "run")]) == 0
    assert "step 0ps (mean of 1)\n" in capfd.readouterr().out


@pytest.mark.parametrize("zero_copy", [False, True])
def test_ranks_of_another_size_have_wrong_elements_and_are_named(
    zero_copy: bool, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Of 16 KiB that rank 1 expects from rank 0 it gets 4 KiB, and 3,072 of its 4,096 elements are wrong."""
    program = Program(ranks=3)
    program.main.send("4KiB", 1, ranks=[0])
    program.main.recv("16KiB", 0, ranks=[1])
    given = plain(
        program.scenario({"kind": "star", "hosts": 3}, payload="real", ncclx={"zero_copy": zero_copy})
    )
    path = tmp_path / "short.yaml"
    path.write_text(json.dumps(given))
    assert main(["run", str(path), "--local", "--out", str(tmp_path / "run")]) == 1
    assert "job program: 3072 elements came out wrong, at rank 1" in capfd.readouterr().err


@pytest.mark.parametrize("jobs", [255, 256])
def test_more_ranks_on_a_server_than_it_can_tell_apart_are_refused(jobs: int) -> None:
    """Of the 2,048 places of a host the last is that of posts from outside (open jobs)."""
    workload = {"kind": "program", "operations": [{"do": "compute", "time": "1us"}]}
    given = plain(
        {
            "name": "crowded",
            "topology": FABRIC | {"racks": 1, "gpus_per_host": 8},
            "jobs": [{"name": f"j{at}", "workload": workload} for at in range(jobs)],
        }
    )
    if jobs == 255:
        api.prepare(given)
        assert not SOAK or api.run(given, local=True).passed
        return
    with pytest.raises(ScenarioError) as caught:
        api.prepare(given)
    (problem,) = caught.value.problems
    assert problem.key == "jobs"
    assert problem.reason == "server host-0 has 2048 ranks of jobs"
    assert problem.accepted == "at most 2047 ranks a server, over all jobs"
