"""Does each plug-in of the page have the effect that a closed form says, and is its state in a snapshot?"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from emu import api
from emu.errors import ScenarioError
from tests.fabric.rig import Fabric
from tests.fabric.sections import graph, scenario
from tests.runtime.test_own_classes import FLOWS

ROOT = Path(__file__).parents[2]
US = 1_000_000
MTU = 4096


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], str]]:
    """`module:Class` of a class of the page, in a module that can be imported from now on."""
    placed: list[str] = []
    page = (ROOT / "docs/plugins.md").read_text(encoding="utf-8")
    pieces = re.findall(r"```python\n(.*?)```", page, re.DOTALL)

    def write(name: str) -> str:
        (code,) = [piece for piece in pieces if f"class {name}(" in piece]
        module = f"own_{name.lower()}"
        (tmp_path / f"{module}.py").write_text(code, encoding="utf-8")
        placed.append(module)
        return f"{module}:{name}"

    monkeypatch.syspath_prepend(tmp_path)
    yield write
    for module in placed:
        sys.modules.pop(module, None)


# ---- loss recovery

PACKETS = 8


def lossy(recovery: dict[str, Any]) -> Fabric:
    """Eight packets over one wire of 400G and 500 ns; the seventh, and it alone, is lost."""
    one = scenario(graph([("nic-0", "nic-1")]), transport={"recovery": recovery})
    fabric = Fabric(one, [(0, 1)])
    passed = [0]

    def seventh(_: object) -> bool:
        passed[0] += 1
        return passed[0] == PACKETS - 1

    fabric.tap("nic-0", 0, seventh)
    fabric.post(0, 0, PACKETS * MTU)
    return fabric


def completed_ps(fabric: Fabric) -> int:
    fabric.run()
    assert fabric.broken(at_rest=True) == []
    ((completion),) = fabric.completions(0)
    return completion.time_ps


@pytest.mark.parametrize("wait", [1, 3, 100])
def test_go_back_n_that_waits_completes_so_much_later(own: Callable[[str], str], wait: int) -> None:
    usual = completed_ps(lossy({"kind": "go_back_n"}))
    patient = completed_ps(lossy({"scheme": own("Patient"), "wait": f"{wait}us"}))
    assert patient - usual == wait * US


def test_a_scheme_and_its_timer_are_in_a_snapshot(own: Callable[[str], str]) -> None:
    name = own("Patient")
    fabrics = [lossy({"scheme": name, "wait": "5us"}) for _ in range(2)]
    begun, second = fabrics
    begun.run(4 * US)  # the NAK has come, and the wait is not over
    assert begun.nics[0].recovery.save() == [1]
    second.load(begun.save())
    assert second.nics[0].recovery.save() == [1]
    # The tap of the second has seen nothing; its seventh frame is never sent.
    begun.run()
    second.run()
    assert begun.digest() == second.digest()
    assert second.total("nic_retransmitted_frames") == 2


@pytest.mark.parametrize(
    ("key", "name", "more", "said"),
    [
        (
            "transport.recovery",
            "Patient",
            {"wait": "soon"},
            ".recovery.wait: 'soon' is not a time; accepted: ",
        ),
        ("transport.recovery", "Patient", {"wiat": 0}, ".recovery.wiat: unknown key; did you mean 'wait'?"),
    ],
)
def test_a_bad_knob_is_refused_in_one_line(
    own: Callable[[str], str], key: str, name: str, more: dict[str, Any], said: str
) -> None:
    with pytest.raises(ScenarioError) as caught:
        api.prepare(FLOWS, {key: {"scheme": own(name), **more}})
    (line,) = str(caught.value).splitlines()
    assert said in line
