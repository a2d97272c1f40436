"""A graph of the user's own is proved once, and again as soon as anything of it is another."""

import copy
from pathlib import Path
from typing import Any

import pytest

from actors.ncclx.algorithms.given import Given
from actors.ncclx.checking import check
from actors.ncclx.graph import Call, Step
from emu import api
from emu.base.errors import ScenarioError

RANKS = 4


def ring() -> dict[str, Any]:
    """An all_gather after a reduce_scatter, around a ring: each of n chunks goes past everybody twice."""
    steps: list[list[dict[str, Any]]] = []
    for rank in range(RANKS):
        before, behind = (rank - 1) % RANKS, (rank + 1) % RANKS
        own: list[dict[str, Any]] = [{"send": [behind], "chunks": [rank]}]
        for at in range(1, 2 * RANKS - 1):
            step: dict[str, Any] = {"receive": before, "chunks": [(rank - at) % RANKS], "reduce": at < RANKS}
            own.append(step | ({"send": [behind]} if at < 2 * RANKS - 2 else {}))
        steps.append(own)
    return {"chunks": RANKS, "steps": steps}


def scenario(graph: dict[str, Any], sizes: list[str]) -> dict[str, Any]:
    workload = {
        "kind": "collective",
        "op": "all_reduce",
        "algorithm": "graph",
        "graph": graph,
        "sizes": sizes,
    }
    fabric = {"kind": "ai_zone", "racks": 2, "hosts_per_rack": 2, "gpus_per_host": 1, "spines": 1}
    return {
        "name": "own",
        "topology": fabric,
        "jobs": [{"name": "job", "workload": workload | {"graph": graph}}],
    }


@pytest.fixture
def proved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The size of every call that is proved from here on, with an empty cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    found: list[int] = []

    def noted(calls: Any, graphs: Any, slice_bytes: int, slots: int) -> None:
        found.append(calls[0].size_bytes)
        check(calls, graphs, slice_bytes, slots)

    monkeypatch.setattr("actors.ncclx.schedule.check", noted)
    return found


def test_a_graph_is_proved_once_for_each_size(proved: list[int]) -> None:
    api.prepare(scenario(ring(), ["64KiB", "1MiB"]))
    assert proved == [1 << 16, 1 << 20]
    api.prepare(scenario(ring(), ["64KiB", "1MiB", "2MiB"]))
    assert proved == [1 << 16, 1 << 20, 1 << 21]


def test_a_graph_that_was_proved_is_not_drawn_again_for_its_sizes(
    proved: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[int] = []

    def noted(own: Given, call: Call, rank: int) -> list[Step]:
        drawn.append(call.size_bytes)
        return steps(own, call, rank)

    steps = Given.steps
    monkeypatch.setattr(Given, "steps", noted)
    api.prepare(scenario(ring(), ["64KiB", "1MiB"]))
    assert {1 << 16, 1 << 20} <= {*drawn}
    drawn.clear()
    api.prepare(scenario(ring(), ["64KiB", "1MiB"]))
    assert not {1 << 16, 1 << 20} & {*drawn}  # connections are drawn of a call of any size
    assert len(proved) == 2


def test_whatever_changes_is_proved_again_and_a_wrong_graph_is_never_remembered(proved: list[int]) -> None:
    api.prepare(scenario(ring(), ["64KiB"]))
    wrong = copy.deepcopy(ring())
    wrong["steps"][2][3]["reduce"] = False
    for _ in range(2):
        with pytest.raises(ScenarioError, match="is no all_reduce of 65536 B"):
            api.prepare(scenario(wrong, ["64KiB"]))
    assert len(proved) == 3
    api.prepare(scenario(ring(), ["64KiB"]) | {"ncclx": {"channels": 2}})
    assert len(proved) == 4


def test_a_place_that_cannot_be_written_keeps_no_proof(
    proved: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    for _ in range(2):
        api.prepare(scenario(ring(), ["64KiB"]))
    assert len(proved) == 2


def test_a_proof_changes_no_answer(proved: list[int]) -> None:
    digests = [api.run(scenario(ring(), ["64KiB"]), local=True).outcome.digest for _ in range(2)]
    assert digests[0] == digests[1] != ""
    assert len(proved) == 1
