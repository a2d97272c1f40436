"""Where do independent runs go, and which files can travel with them?"""

from pathlib import Path

import pytest

from emu.base.errors import UsageError
from emu.many_runs import Machines, answers, carried


def test_a_file_below_the_working_directory_travels_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "boxes").mkdir()
    (tmp_path / "boxes" / "one.json").write_bytes(b"{}")
    ready = carried("item", ["boxes/one.json", "quickstart"])
    assert (ready.item, ready.files) == ("item", (("boxes/one.json", b"{}"),))
    for name, reason in (
        (str(tmp_path / "boxes" / "one.json"), "does not travel to a cluster"),
        ("../one.json", "does not travel to a cluster"),
        ("boxes/two.json", "No such file or directory"),
    ):
        with pytest.raises(UsageError, match=reason):
            carried("item", [name])


def test_what_belongs_to_a_cluster_needs_its_address_and_the_other_way_round() -> None:
    with pytest.raises(UsageError, match="are for a cluster; say which with --address"):
        Machines(wheel=Path("emu.whl")).checked()
    with pytest.raises(UsageError, match="--jobs is for this machine"):
        Machines(at_once=2, address="auto").checked()
    assert Machines(at_once=2).checked().many == 2


def test_answers_come_in_the_order_of_the_items_and_a_failure_is_raised() -> None:
    assert list(answers(Machines(2), str, [3, 1, 2])) == ["3", "1", "2"]
    with pytest.raises(UsageError, match="no such thing"):
        list(answers(Machines(2), refuses, [1, 2]))


def refuses(_: int) -> None:
    raise UsageError("no such thing")
