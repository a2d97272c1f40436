"""`emu topo --placement N --nodes CPUS` says on which node each worker would live."""

import json

import pytest

from emu.cli.main import main
from tests.scenarios_run.small import ROOT

QUICKSTART = str(ROOT / "scenarios/start/quickstart.yaml")


def test_workers_fill_the_nodes_in_order_and_few_links_run_between_nodes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["topo", QUICKSTART, "--placement", "4", "--nodes", "2,2", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert [worker["node"] for worker in shown["workers"]] == [0, 0, 1, 1]
    assert 0 < shown["cut_between_nodes"] < shown["cut_links"]
    assert main(["topo", QUICKSTART, "--placement", "4", "--nodes", "2,2"]) == 0
    text = capsys.readouterr().out
    assert f"{shown['cut_between_nodes']:,} of them between nodes\n" in text


@pytest.mark.parametrize("nodes", ["", "0", "4,", "4,x", "4,-1"])
def test_nodes_that_are_no_list_of_cpus_are_refused(nodes: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["topo", QUICKSTART, "--placement", "2", "--nodes", nodes]) == 2
    assert "accepted: one number a node" in capsys.readouterr().err


def test_nodes_need_workers(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["topo", QUICKSTART, "--nodes", "2,2"]) == 2
    assert "--placement" in capsys.readouterr().err
