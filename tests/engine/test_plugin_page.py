"""Does each plug-in of the page have the effect that a closed form says, and is its state in a snapshot?"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from actors.kernel.knobs import Knob, Knobs
from actors.switch.ecn import Aqm, EgressQueue
from actors.wire.frame import ECN_CAPABLE, ECN_CONGESTED
from emu import api
from emu.base.errors import ScenarioError
from tests.engine.test_own_classes import FLOWS
from tests.fabric.rig import Fabric
from tests.fabric.sections import graph, scenario, star
from tests.switch.frames import FULL_PS, frame_arrives, pause_arrives

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
    patient = completed_ps(lossy({"kind": own("Patient"), "wait": f"{wait}us"}))
    assert patient - usual == wait * US


def test_a_scheme_and_its_timer_are_in_a_snapshot(own: Callable[[str], str]) -> None:
    name = own("Patient")
    fabrics = [lossy({"kind": name, "wait": "5us"}) for _ in range(2)]
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


# ---- active queue management

FRAMES = 10


def with_aqm(nics: int, aqm: dict[str, Any], **switch: Any) -> Fabric:
    return Fabric(scenario(star(nics), switch={"ecn": {"enabled": True, **aqm}, **switch}))


def sojourn(name: str, target_ps: int) -> dict[str, Any]:
    return {"kind": name, "target": f"{target_ps}ps"}


@pytest.mark.parametrize("frames", [0, 3, 8, 9])
def test_an_aqm_marks_what_waited_longer_than_its_target(own: Callable[[str], str], frames: int) -> None:
    fabric = with_aqm(3, sojourn(own("Sojourn"), frames * FULL_PS))
    arrived = [frame_arrives(fabric, turn, turn % 2, 2) for turn in range(FRAMES)]
    for frame in arrived:
        frame.ecn = ECN_CAPABLE
    fabric.run()
    marks = [frame.ecn == ECN_CONGESTED for frame in sorted(arrived, key=lambda frame: frame.sent_ps)]
    assert marks == [place > frames for place in range(FRAMES)]
    assert fabric.total("queue_marked_frames") == FRAMES - 1 - frames


@pytest.mark.parametrize("short", [0, 1])
def test_on_a_modular_switch_a_frame_waits_for_its_credit(own: Callable[[str], str], short: int) -> None:
    deep = {"where": "all", "credit_delay": "1us"}
    fabric = with_aqm(3, sojourn(own("Sojourn"), 2 * US - short), deep_buffer=deep)
    frame_arrives(fabric, 0, 0, 2).ecn = ECN_CAPABLE
    fabric.run()
    assert fabric.total("queue_marked_frames") == short


def test_what_an_aqm_keeps_is_in_a_snapshot(own: Callable[[str], str]) -> None:
    aqm = sojourn(own("Sojourn"), 4 * FULL_PS)
    begun, second = with_aqm(3, aqm), with_aqm(3, aqm)
    for turn in range(FRAMES):
        frame_arrives(begun, turn, turn % 2, 2).ecn = ECN_CAPABLE
    begun.run(6 * FULL_PS)
    queue = begun.switches[0].ports[2].aqms[3]
    assert (queue.marked, queue.save()) == (1, [5 * FULL_PS - 5])
    second.load(begun.save())
    begun.run()
    second.run()
    assert begun.digest() == second.digest()
    assert second.switches[0].ports[2].aqms[3].save() == [9 * FULL_PS - 9]


class Slope(Aqm):
    """Drops with a probability that rises with the queue, from 0 to 1."""

    knobs = (Knob("full", "bytes", "1MB", "1B", doc="From here on everything is dropped."),)

    def __init__(self, queue: EgressQueue, knobs: Knobs) -> None:
        super().__init__(queue, knobs)
        self.full_bytes = knobs.full_bytes
        self.drops_frames = True

    def drops(self, queued_bytes: int, wire_bytes: int, now: int) -> bool:
        return bool(self.stream.below(self.full_bytes) < queued_bytes)


LOSSY = 0
ROUNDS = 3000


@pytest.mark.parametrize("deep", [False, True])
def test_an_aqm_that_drops_holds_the_queue_where_it_drops_what_is_too_much(deep: bool) -> None:
    """Two senders at full rate into one port: half is too much, and half of `full` is where half is dropped.

    In a modular switch each of the two has a queue of its own, of so much.
    """
    full_bytes = 200 * 4194
    modular: dict[str, Any] = {"where": "all", "credit_delay": "100ns"}
    more = {"deep_buffer": modular} if deep else {}
    aqm = {"kind": f"{__name__}:Slope", "full": f"{full_bytes}B", "priorities": [LOSSY]}
    fabric = with_aqm(3, aqm, **more)
    out = fabric.switches[0].ports[2]
    waiting = []
    for turn in range(ROUNDS):
        for port in range(2):
            frame_arrives(fabric, turn * FULL_PS + port, port, 2, LOSSY)
        fabric.run((turn + 1) * FULL_PS)
        if turn > ROUNDS // 5:
            waiting.append(sum(out.voq_bytes if deep else [one.queued_bytes for one in out.queues]))
    fabric.run()
    # The spread of the queue is 5 frames and it forgets in 100 rounds: 5 % is five standard errors.
    assert sum(waiting) / len(waiting) == pytest.approx((1 + deep) * full_bytes / 2, rel=0.05)
    dropped = fabric.total("port_dropped_frames", "aqm")
    assert dropped == pytest.approx(ROUNDS, rel=0.08)


def test_an_aqm_drops_nothing_of_a_lossless_class() -> None:
    fabric = with_aqm(3, {"kind": f"{__name__}:Slope", "full": "1B", "priorities": [LOSSY, 3]})
    for turn in range(FRAMES):
        frame_arrives(fabric, turn, turn % 2, 2, priority=3)
    fabric.run()
    assert fabric.total("port_dropped_frames", "aqm") == 0
    assert fabric.total("port_transmit_frames") == FRAMES


# ---- buffer admission

FRAME_BYTES = 4174
"""A full frame without preamble and gap."""


def capped(name: str, frames: int, deep: bool = False) -> Fabric:
    """Three NICs at a switch that holds so many full frames of each ingress port."""
    cap = {"reserve": 0, "admission": {"kind": name, "cap": f"{frames * FRAME_BYTES}B"}}
    modular = {"where": "all"} if deep else {}
    return Fabric(scenario(star(3), switch={"buffer": cap, "deep_buffer": modular}))


def incast(fabric: Fabric, rounds: int) -> None:
    """Frames at full rate from two ports for a third, the first at time 0."""
    for turn in range(rounds):
        for port in range(2):
            frame_arrives(fabric, turn * FULL_PS + port + (turn > 0), port, 2, LOSSY)


@pytest.mark.parametrize("room", [1, 7, 20])
def test_what_a_cap_on_each_port_drops_of_an_incast(own: Callable[[str], str], room: int) -> None:
    fabric = capped(own("PortCap"), room)
    incast(fabric, 100)
    fabric.run()
    assert fabric.total("port_dropped_frames", "no_shared_room") == 100 - 2 * room
    assert fabric.total("ingress_peak_bytes") == 2 * room * FRAME_BYTES


@pytest.mark.parametrize("deep", [False, True])
def test_the_cap_is_that_of_all_groups_of_a_port(own: Callable[[str], str], deep: bool) -> None:
    fabric = capped(own("PortCap"), 5, deep)
    pause_arrives(fabric, 0, 2, stop=0xFF)
    for turn in range(8):
        frame_arrives(fabric, US + turn, 0, 2, turn % 2)  # classes 0 and 1, both lossy
    frame_arrives(fabric, US, 1, 2, LOSSY)
    fabric.run(2 * US)
    assert fabric.total("port_dropped_frames", "no_shared_room") == 8 - 5
    assert fabric.total("ingress_bytes") == (5 + 1) * FRAME_BYTES


@pytest.mark.parametrize("beyond", [0, 1])
def test_a_lossless_group_beyond_its_cap_stops_its_sender(own: Callable[[str], str], beyond: int) -> None:
    fabric = capped(own("PortCap"), 5)
    pause_arrives(fabric, 0, 2, stop=0xFF)
    for turn in range(5 + beyond):
        frame_arrives(fabric, US + turn * FULL_PS, 0, 2, priority=3)
    fabric.run(5 * US)
    assert fabric.total("pfc_transmit_xoff_frames") == beyond
    assert fabric.congestion_drops() == 0


@pytest.mark.parametrize("deep", [False, True])
def test_what_an_admission_policy_keeps_is_in_a_snapshot(own: Callable[[str], str], deep: bool) -> None:
    name = own("PortCap")
    begun, second = capped(name, 5, deep), capped(name, 5, deep)
    incast(begun, 40)
    begun.run(20 * FULL_PS)
    second.load(begun.save())
    begun.run()
    second.run()
    assert begun.total("port_dropped_frames", "no_shared_room") > 0
    assert begun.digest() == second.digest()


# ---- refusals


@pytest.mark.parametrize(
    ("key", "name", "more", "said"),
    [
        (
            "transport.recovery",
            "Patient",
            {"wait": "soon"},
            ".recovery.wait: 'soon' is not a time; accepted: ",
        ),
        ("switch.buffer.admission", "PortCap", {"cap": 0}, ".admission.cap: "),
        ("switch.ecn", "Sojourn", {"priorities": [8]}, ".ecn.priorities[0]: 8 is not a priority"),
        ("switch.ecn", "Sojourn", {"profiles": []}, ".ecn.profiles: unknown key; "),
        ("transport.recovery", "Patient", {"wiat": 0}, ".recovery.wiat: unknown key; did you mean 'wait'?"),
    ],
)
def test_a_bad_knob_is_refused_in_one_line(
    own: Callable[[str], str], key: str, name: str, more: dict[str, Any], said: str
) -> None:
    with pytest.raises(ScenarioError) as caught:
        api.prepare(FLOWS, {key: {"kind": own(name), **more}})
    (line,) = str(caught.value).splitlines()
    assert said in line


def test_a_drift_of_thresholds_is_refused_where_the_aqm_has_none(own: Callable[[str], str]) -> None:
    drift = {"at": "1us", "kind": "ecn_drift", "target": "rtsw-0", "kmin": "1KB", "kmax": "2KB"}
    with pytest.raises(ScenarioError) as caught:
        api.prepare({**FLOWS, "faults": [drift]}, {"switch.ecn": {"kind": own("Sojourn"), "enabled": True}})
    (line,) = str(caught.value).splitlines()
    assert "faults[0].kind: its thresholds are those of RED; accepted: switch.ecn.kind: red" in line


def test_admission_is_refused_where_links_have_credits(own: Callable[[str], str]) -> None:
    with pytest.raises(ScenarioError) as caught:
        api.prepare(
            {**FLOWS, "link": {"flow_control": "credits"}},
            {"switch.buffer.admission.kind": own("PortCap")},
        )
    (line,) = str(caught.value).splitlines()
    assert "switch.buffer.admission.kind: links have credits, and so everything is admitted" in line
