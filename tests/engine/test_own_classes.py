"""Are classes of the user's own loaded as the pages say, and told by name where they do not work?"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import emu
from emu import api
from emu.base.errors import RuntimeFailure, ScenarioError
from emu.scenario.plugins import policy_of
from emu.scenario.sections.routing import POLICIES
from tests.fabric.rig import Fabric
from tests.fabric.sections import scenario, star

ROOT = Path(__file__).parents[2]
US = 1_000_000
Place = Callable[[str, str], None]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    """Write a module that can be imported from now on."""
    placed: list[str] = []

    def write(name: str, text: str) -> None:
        (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
        placed.append(name)

    monkeypatch.syspath_prepend(tmp_path)
    yield write
    for name in placed:
        sys.modules.pop(name, None)


def example(page: str) -> str:
    """The one piece of Python on a page."""
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL)
    return str(code)


def test_the_congestion_control_of_the_page_paces(place: Place) -> None:
    place("half", example("docs/congestion_control.md"))
    control = {"kind": "half:Half"}
    fabric = Fabric(scenario(star(2), transport={"mtu": 1024, "congestion_control": control}), [(0, 1)])
    fabric.post(0, 0, 2**20)
    fabric.run(10 * US)
    before = fabric.total("nic_delivered_bytes")
    fabric.run(30 * US)
    goodput = (fabric.total("nic_delivered_bytes") - before) * 8e12 / (20 * US)
    assert goodput == pytest.approx(200e9 * 1024 / 1106, rel=0.02)


def test_the_arbiter_of_the_page_sends_the_shortest_first(place: Place) -> None:
    place("shortest", example("docs/nic.md"))
    sizes = [300 * 1024, 100 * 1024, 200 * 1024]
    last: dict[str, list[int]] = {}
    for policy in ("round_robin", "shortest:ShortestFirst"):
        one = scenario(star(2), nic={"arbiter": {"kind": policy}}, transport={"mtu": 1024})
        fabric = Fabric(one, [(0, 1)] * 3)
        for connection, size in enumerate(sizes):
            fabric.post(0, connection, size)
        fabric.run()
        last[policy] = [fabric.deliveries(connection)[0].time_ps for connection in range(3)]
    mine = last["shortest:ShortestFirst"]
    assert mine[1] < mine[2] < mine[0]
    # 100 packets of 1,106 B, a few of the first queue pair that were under way, and two links.
    assert mine[1] < 110 * 1_106 * 20 + 2 * 500_000
    assert last["round_robin"][1] > 2 * 100 * 1_106 * 20


FLOWS: dict[str, Any] = {
    "name": "own",
    "topology": {"kind": "ai_zone", "racks": 2, "hosts_per_rack": 2, "gpus_per_host": 1, "spines": 2},
    "jobs": [
        {
            "name": "a",
            "workload": {"kind": "permutation", "size": "8KiB", "racks": "distinct"},
        }
    ],
}
MINE = """
from actors.nic.arbiter import Arbiter
from actors.nic.congestion.control import CongestionControl
from actors.optional.tcp_window import TcpWindow
from actors.nic.loss_recovery import GoBackN
from actors.port.scheduling import Scheduler
from actors.switch.buffer import Admission
from actors.switch.ecn import Aqm
from actors.switch.routing.policy import RoutingPolicy
from emu.base.errors import EmuError


class Stranger:
    def choose(self, frame, group, ingress, now): ...
    def on_send(self, wire_bytes, now): ...
    def on_ack(self, packets, rtt_ps, now, marked): ...
    def on_cnp(self, now): ...
    def threshold_bytes(self, group, now): ...
    def marks(self, queued_bytes, waited_ps, now): ...
    def drops(self, queued_bytes, wire_bytes, now): ...
    def on_gap(self, nic, pair, frame, psn, port, now): ...
    def on_nak(self, nic, pair, frame, now): ...
    def on_timeout(self, nic, pair, now): ...
    def choose_class(self, ready, now): ...
    def choose_pair(self, first, now): ...
    def on_sent(self, priority, wire_bytes, now): ...


class Raises(RoutingPolicy):
    def __init__(self, switch, knobs):
        raise ValueError("of two\\nlines")

    def choose(self, frame, group, ingress, now): ...


class TwoArguments(CongestionControl):
    def __init__(self, line_bps, mtu_bytes): ...


class NoKnobs(Arbiter):
    knobs = EmuError


class Fails(RoutingPolicy):
    def choose(self, frame, group, ingress, now):
        return 1 // 0


class Undecided(RoutingPolicy):
    pass


class NoCut(TcpWindow):
    def avoid(self, acknowledged, rtt_ps, now): ...


class PortNine(RoutingPolicy):
    def choose(self, frame, group, ingress, now):
        return 9


class NoPool(Admission):
    def __init__(self, knobs): ...


class NoQueue(Aqm):
    def __init__(self, knobs): ...


class NoNak(GoBackN):
    on_nak = None


class FailsOnTimeout(GoBackN):
    def on_timeout(self, nic, pair, now):
        return pair.nothing


class WrongClass(Arbiter):
    def choose_class(self, ready, now):
        return 5


class NoClass(Scheduler):
    def choose_class(self, ready, now):
        return 5
"""
POLICY, CONTROL, ARBITER = "routing.kind", "transport.congestion_control.kind", "nic.arbiter.kind"
AQM, ADMISSION = "switch.ecn.kind", "switch.buffer.admission.kind"
SCHEDULER, RECOVERY = "switch.scheduling.kind", "transport.recovery.kind"


@pytest.mark.parametrize(
    ("key", "name", "said"),
    [
        (
            POLICY,
            "Stranger",
            "does not load: it is no subclass of actors.switch.routing.policy.RoutingPolicy",
        ),
        (
            CONTROL,
            "Stranger",
            "does not load: it is no subclass of actors.nic.congestion.control.CongestionControl",
        ),
        (ARBITER, "Stranger", "does not load: it is no subclass of actors.nic.arbiter.Arbiter"),
        (SCHEDULER, "Stranger", "does not load: it is no subclass of actors.port.scheduling.Scheduler"),
        (RECOVERY, "Stranger", "does not load: it is no subclass of actors.nic.loss_recovery.Recovery"),
        (RECOVERY, "NoNak", "does not load: it has no method `on_nak`"),
        (ADMISSION, "Stranger", "does not load: it is no subclass of actors.switch.buffer.Admission"),
        (ADMISSION, "NoPool", "cannot be made: TypeError: "),
        (AQM, "Stranger", "does not load: it is no subclass of actors.switch.ecn.Aqm"),
        (AQM, "NoQueue", "cannot be made: TypeError: "),
        (
            ARBITER,
            "NoKnobs",
            "does not load: `knobs` of NoKnobs is no list of Knob; accepted: a list of ",
        ),
        (
            POLICY,
            "Undecided",
            "does not load: it does not say what its `choose` does; accepted: a ",
        ),
        (CONTROL, "NoCut", "does not load: it does not say what its `cut` does; accepted: a "),
        (POLICY, "Raises", "cannot be made: ValueError: of two lines; accepted: a class whose"),
        (CONTROL, "TwoArguments", "cannot be made: TypeError: "),
    ],
)
def test_a_class_that_does_not_fit_is_refused_by_key(place: Place, key: str, name: str, said: str) -> None:
    place("mine", MINE)
    with pytest.raises(ScenarioError) as caught:
        api.prepare(FLOWS, {key: f"mine:{name}"})
    (line,) = str(caught.value).splitlines()
    assert f"{key}: 'mine:{name}' {said}" in line


@pytest.mark.parametrize(
    ("key", "name", "said"),
    [
        (
            POLICY,
            "Fails",
            [r"routing\.kind: mine:Fails failed: ZeroDivisionError: .*", r"  .*mine\.py:\d+ in choose"],
        ),
        (POLICY, "PortNine", [r"routing policy PortNine chose port 9 of switch \d+, of 4"]),
        (
            RECOVERY,
            "FailsOnTimeout",
            [
                r"transport\.recovery\.kind: mine:FailsOnTimeout failed: AttributeError: .*",
                r"  .*mine\.py:\d+ in on_timeout",
            ],
        ),
        (ARBITER, "WrongClass", [r"WrongClass of NIC \d+ chose class 5, of 0x08 that are ready"]),
    ],
)
def test_a_class_that_fails_in_the_run_is_reported_with_its_place(
    place: Place, key: str, name: str, said: list[str]
) -> None:
    place("mine", MINE)
    with pytest.raises(RuntimeFailure) as caught:
        api.run(FLOWS, overrides={key: f"mine:{name}", "nic.corrupt_every": 2}, local=True)
    lines = str(caught.value).splitlines()
    assert len(lines) == len(said)
    assert all(re.fullmatch(pattern, line) for pattern, line in zip(said, lines, strict=True)), lines
    assert caught.value.exit_status == 4


BASES = {
    POLICY: "actors.switch.routing.policy.RoutingPolicy",
    CONTROL: "actors.nic.congestion.control.CongestionControl",
    ARBITER: "actors.nic.arbiter.Arbiter",
    AQM: "actors.switch.ecn.Aqm",
    ADMISSION: "actors.switch.buffer.Admission",
    SCHEDULER: "actors.port.scheduling.Scheduler",
    RECOVERY: "actors.nic.loss_recovery.GoBackN",
}
NUMBER, FLAG = "a whole number", "True or False"
WRONG: list[tuple[str, str, str, str]] = [
    (POLICY, "choose", "'left'", NUMBER),
    (POLICY, "choose", "None", NUMBER),
    (POLICY, "choose", "2**63", NUMBER),
    (ARBITER, "choose_class", "[3]", NUMBER),
    (ARBITER, "choose_pair", "None", "a queue pair of the ring"),
    (AQM, "marks", "0", FLAG),
    (AQM, "drops", "None", FLAG),
    (ADMISSION, "threshold_bytes", "1e6", NUMBER),
    (SCHEDULER, "choose_class", "'3'", NUMBER),
    (CONTROL, "on_ack", "5", ""),
    (CONTROL, "on_send", "5", ""),
    (ARBITER, "on_sent", "5", ""),
    (RECOVERY, "on_progress", "5", ""),
    (ADMISSION, "on_admit", "5", ""),
]
"""Seam, hook, what it returns, and what is accepted; empty where a hook returns nothing."""


@pytest.mark.parametrize(("key", "hook", "value", "accepted"), WRONG)
def test_a_hook_that_returns_another_type_is_named_with_its_file(
    place: Place, key: str, hook: str, value: str, accepted: str
) -> None:
    module, _, base = BASES[key].rpartition(".")
    others = {"choose": "0", "marks": "False", "drops": "False", "threshold_bytes": "10**7"}
    own = {name: one for name, one in others.items() if name in SEAM_HOOKS.get(key, ()) and name != hook} | {
        hook: value
    }
    methods = "".join(f"    def {name}(self, *args):\n        return {one}\n" for name, one in own.items())
    if key == SCHEDULER:
        methods += "    def on_sent(self, *args): ...\n"
    if key == AQM:
        methods += "    def __init__(self, *args):\n        super().__init__(*args)\n"
        methods += "        self.drops_frames = True\n"
    place("odd", f"from {module} import {base}\n\n\nclass Odd({base}):\n{methods}")
    changes: dict[str, Any] = {key: "odd:Odd", "nic.corrupt_every": 2}
    if key == RECOVERY:  # asked where a window holds packets back
        changes |= {"transport.congestion_control.kind": "hpcc"}
    if key == AQM:  # asked where frames that may be marked wait, or lossy ones
        changes |= {"switch.ecn.enabled": True, "transport.congestion_control.kind": "dcqcn"}
        changes |= {"jobs[0].workload": {"kind": "incast", "size": "64KiB", "fan_in": 3}}
        changes |= {"switch.pfc.enabled": hook != "drops"}
    if not accepted and not emu.is_compiled():
        assert api.run(FLOWS, overrides=changes, local=True).summary.jobs  # nobody looks at it
        return
    with pytest.raises(RuntimeFailure) as caught:
        api.run(FLOWS, overrides=changes, local=True)
    (line,) = str(caught.value).splitlines()
    assert f"odd:Odd: its `{hook}` returned " in line
    assert re.search(r"\(.*odd\.py:\d+\)", line)
    assert not accepted or f", not {accepted} (" in line


SEAM_HOOKS = {POLICY: ("choose",), AQM: ("marks", "drops"), ADMISSION: ("threshold_bytes",)}
"""What each class of a seam has to have."""


BREAKS = """
import emu.api
from actors.nic.arbiter import Arbiter

emu.api.summarise = None


class Breaks(Arbiter):
    pass
"""
"""A module that breaks what runs it."""


def test_an_unexpected_failure_is_one_of_the_runtime_and_keeps_its_traceback(tmp_path: Path) -> None:
    (tmp_path / "breaks.py").write_text(BREAKS, encoding="utf-8")
    own = {**FLOWS, "nic": {"arbiter": {"kind": "breaks:Breaks"}}}
    (tmp_path / "own.yaml").write_text(json.dumps(own), encoding="utf-8")
    reported = subprocess.run(
        [sys.executable, "-m", "emu.cli.main", "run", "own.yaml", "--local"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{tmp_path}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert reported.returncode == 4
    assert reported.stderr.splitlines()[-1].startswith("TypeError: ")


FORGETS = """
from actors.switch.routing.policy import RoutingPolicy

class Turns(RoutingPolicy):
    def __init__(self, switch, knobs):
        super().__init__(switch, knobs)
        self.step = 1
        self.turn = 0

    def choose(self, frame, group, ingress, now):
        self.turn += self.step
        return group.ports[self.turn % group.count]

class Keeps(Turns):
    def save(self):
        return [super().save(), self.turn]

    def load(self, state):
        super().load(state[0])
        self.turn = state[1]

class Stateless(Turns):
    def choose(self, frame, group, ingress, now):
        return group.ports[self.step % group.count]
"""


@pytest.mark.parametrize(("name", "refused"), [("Turns", True), ("Keeps", False), ("Stateless", False)])
def test_state_that_a_snapshot_would_forget_is_refused_by_its_name(
    place: Place, name: str, refused: bool
) -> None:
    place("turns", FORGETS)
    zone = {"kind": "ai_zone", "racks": 2, "hosts_per_rack": 1, "gpus_per_host": 1, "spines": 2}
    one = Fabric(scenario(zone, routing={"kind": f"turns:{name}"}), [(0, 1)])
    (switch,) = [switch for switch in one.switches if switch.number == one.topology.switches[0]]
    switch.save()  # nothing has changed yet
    one.post(0, 0, 2**16)
    one.run(3 * US)
    if refused:
        with pytest.raises(RuntimeFailure, match="turns:Turns cannot be saved: its attribute 'turn' changes"):
            switch.save()
    else:
        switch.save()


def test_a_policy_that_is_built_in_is_made_as_it_is_compiled() -> None:
    keeps_what_overtook = {"recovery": {"placement": "out_of_order"}}
    sections = [
        scenario(star(2), routing={"kind": kind}, transport=keeps_what_overtook).routing
        for kind in POLICIES.table
    ]
    assert len(sections) > 5
    assert [one.kind for one in sections if policy_of(one) is not one.policy] == []
