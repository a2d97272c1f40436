"""Is a class of the user's own that does not fit refused by key, class and hook, at every seam alike?

And does one that calls `sys.exit`, when it is imported, constructed or called, end the command with status 4
and one line? Classes are written to a file each; commands run in this process.
"""

from __future__ import annotations

import gc
import inspect
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest

import emu
from emu.cli.main import main
from emu.scenario.plugins import OneOfOrPlugin

ROOT = Path(__file__).parents[2]
GRAPH = "actors.ncclx.graph.Algorithm"


class Seam(NamedTuple):
    """A place for a class of the user's own."""

    base: str
    key: str
    hook: str
    """The one that the run below calls."""
    wrong: str
    """A value of another type than the hook returns."""
    returns: str
    """What it should be."""
    more: Mapping[str, Any] = MappingProxyType({})
    """Keys with which the hook is called."""
    body: str = ""
    """What else the class needs."""


LOSSY = {"switch.pfc.enabled": False}
INCAST = {"jobs[0].workload": {"kind": "incast", "size": "64KiB", "fan_in": 3}}
TRANSPORT = """
    def waits_at(self, pair, port):
        return pair.has_packets()

    def next_packet(self, nic, pair, port, now):
        frame = pair.next_frame()
        pair.high_psn = pair.next_psn
        return frame

    def arrived(self, nic, pair, frame, port, now): ...
"""
SETS = "    def __init__(self, *args):\n        super().__init__(*args)\n        "
TWO = "    def drops(self, queued_bytes, wire_bytes, now):\n        return False\n"
SEAMS = {
    "routing": Seam(
        "actors.switch.routing.policy.RoutingPolicy", "routing.kind", "choose", "'left'", "a whole number"
    ),
    "congestion control": Seam(
        "actors.nic.congestion.control.CongestionControl",
        "transport.congestion_control.kind",
        "entropy",
        "None",
        "a whole number",
        body=SETS + "self.picks_entropy = True\n",
    ),
    "loss recovery": Seam(
        "actors.nic.loss_recovery.GoBackN",
        "transport.recovery.kind",
        "acknowledgement",
        "7",
        "a frame or None",
        body=SETS + "self.self_clocked = True\n",
    ),
    "transport": Seam(
        "actors.nic.transport.Transport",
        "transport.kind",
        "next_packet",
        "7",
        "a frame or None",
        body=TRANSPORT,
    ),
    "transport's rounds": Seam(
        "actors.nic.transport.Transport", "transport.kind", "waits_at", "1", "True or False", body=TRANSPORT
    ),
    "arbiter": Seam(
        "actors.nic.arbiter.Arbiter", "nic.arbiter.kind", "choose_pair", "None", "a queue pair of the ring"
    ),
    "admission": Seam(
        "actors.switch.buffer.Admission",
        "switch.buffer.admission.kind",
        "threshold_bytes",
        "1e6",
        "a whole number",
        LOSSY,
    ),
    "AQM": Seam(
        "actors.switch.ecn.Aqm",
        "switch.ecn.kind",
        "marks",
        "0",
        "True or False",
        INCAST | {"switch.ecn.enabled": True, "transport.congestion_control.kind": "dcqcn"},
        TWO,
    ),
    "scheduler": Seam(
        "actors.port.scheduling.Scheduler",
        "switch.scheduling.kind",
        "choose_class",
        "'3'",
        "a whole number",
        body="    def on_sent(self, priority, wire_bytes, now): ...\n",
    ),
    "algorithm": Seam(GRAPH, "jobs[0].workload.algorithm", "steps", "7", "a list of Step"),
    "placement": Seam(
        "emu.doors.weeks.server_placement.ServerPlacement",
        "placement.kind",
        "servers",
        "7",
        "a list of numbers of servers",
    ),
    "rank order": Seam(
        "emu.doors.weeks.rank_order.RankOrder",
        "rank_order.kind",
        "order",
        "7",
        "a list of numbers of servers",
    ),
}
SCENARIO: dict[str, Any] = {
    "name": "own",
    "topology": {"kind": "ai_zone", "racks": 2, "hosts_per_rack": 2, "gpus_per_host": 1, "spines": 2},
    "jobs": [{"name": "a", "workload": {"kind": "permutation", "size": "8KiB", "racks": "distinct"}}],
}
MIX: dict[str, Any] = {
    "name": "mix",
    "lasts": "1h",
    "topology": {"kind": "star", "hosts": 4, "gpus_per_host": 1},
    "jobs": [{"name": "a", "at": "0s", "gpus": 2, "lasts": "1min"}],
    "traffic": {"kind": "collective", "op": "all_reduce", "sizes": ["1MiB"]},
}
CALL = {"kind": "collective", "op": "all_reduce", "algorithm": "own:Own", "sizes": ["1KiB"]}
Command = Callable[[str, str], list[str]]


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Command]:
    """The command that runs a class at a seam, where the class is `own:Own` with this body."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    sys.modules.pop("own", None)

    def write(seam: str, source: str) -> list[str]:
        (tmp_path / "own.py").write_text(source, encoding="utf-8")
        one = SEAMS[seam]
        if seam in ("placement", "rank order"):
            section = one.key.partition(".")[0]
            (tmp_path / "mix.yaml").write_text(json.dumps(MIX | {section: {"kind": "own:Own"}}), "utf-8")
            return ["schedule", "mix.yaml"]
        given = SCENARIO
        changes = {**one.more, one.key: "own:Own"}
        if seam == "algorithm":
            given, changes = SCENARIO | {"jobs": [{"name": "a", "workload": CALL}]}, {}
        (tmp_path / "own.yaml").write_text(json.dumps(given), "utf-8")
        sets = [f"--set={key}={json.dumps(value)}" for key, value in changes.items()]
        return ["run", "own.yaml", "--local", *sets]

    yield write
    sys.modules.pop("own", None)


def arguments(seam: str, hook: str) -> str:
    """What a hook takes, as its base has it."""
    module, _, name = SEAMS[seam].base.rpartition(".")
    names = list(
        inspect.signature(getattr(getattr(__import__(module, fromlist=[name]), name), hook)).parameters
    )
    return ", ".join(["self", *[one for one in names if one != "self"]])


def own(seam: str, *, hook: str = "", init: str = "", head: str = "") -> str:
    """A class for a seam whose hook and constructor do this; each a line."""
    one = SEAMS[seam]
    module, _, name = one.base.rpartition(".")
    lines = [f"import sys\nfrom {module} import {name}\n{head}\n\n\nclass Own({name}):"]
    if init:
        lines.append(f"    def __init__(self, *args):\n        {init}\n")
    body = (
        one.body if not init else one.body.replace("    def __init__(self, *args):", "    def unused(self):")
    )
    lines.append(body)
    if seam == "routing" and not hook:
        hook = "return 0"
    if hook:
        lines.append(f"    def {one.hook}({arguments(seam, one.hook)}):\n        {hook}\n")
    return "\n".join(lines) + "    pass\n"


def said(capsys: pytest.CaptureFixture[str]) -> str:
    """The one line that the command said of it."""
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("emu: ")]
    assert len(lines) == 1, lines
    return lines[0]


@pytest.mark.parametrize("seam", SEAMS)
def test_a_hook_that_returns_another_type_is_named_with_key_and_class(
    seam: str, command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    one = SEAMS[seam]
    status = main(command(seam, own(seam, hook=f"return {one.wrong}")))
    line = said(capsys)
    assert status == (2 if seam == "algorithm" else 4)
    assert one.key in line
    assert "Own" in line
    assert f"`{one.hook}`" in line
    assert line.count(f"not {one.returns}") == 1


@pytest.mark.parametrize("seam", SEAMS)
def test_a_hook_that_takes_other_arguments_is_refused(
    seam: str, command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    one = SEAMS[seam]
    source = own(seam) + f"    def {one.hook}(self, far, too, many, of, them, are, here): ...\n"
    assert main(command(seam, source)) == 2
    line = said(capsys)
    assert f"'own:Own' does not load: its `{one.hook}` takes other arguments; accepted: {one.hook}(" in line
    assert one.key in line


@pytest.mark.parametrize("seam", SEAMS)
def test_a_hook_that_is_a_coroutine_is_refused(
    seam: str, command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    one = SEAMS[seam]
    source = own(seam, hook="return 0").replace(f"    def {one.hook}(", f"    async def {one.hook}(")
    assert main(command(seam, source)) == 2
    assert f"'own:Own' does not load: its `{one.hook}` is a coroutine; accepted: a plain" in said(capsys)


@pytest.mark.parametrize("seam", SEAMS)
def test_no_class_and_a_class_of_something_else_are_refused(
    seam: str, command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    one = SEAMS[seam]
    for source in ("Own = 7\n", "class Own:\n    pass\n"):
        sys.modules.pop("own", None)
        assert main(command(seam, source)) == 2
        line = said(capsys)
        assert "'own:Own' does not load: " in line
        assert one.key in line


@pytest.mark.parametrize("seam", [seam for seam in SEAMS if SEAMS[seam].base.startswith("actors.")][:-1])
def test_a_constructor_that_leaves_out_that_of_its_base_is_named(
    seam: str, command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    hook = "return 0" if not SEAMS[seam].body else ""
    assert main(command(seam, own(seam, init="self.mine = 1", hook=hook))) == 2
    line = said(capsys)
    assert "its __init__ does not call super().__init__(), which sets `" in line
    assert SEAMS[seam].key in line


@pytest.mark.parametrize("seam", SEAMS)
@pytest.mark.parametrize("where", ["import", "constructor", "hook"])
def test_sys_exit_ends_the_command_with_status_4_and_a_line(
    where: str, seam: str, command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    leaves = "sys.exit(0)"
    source = {
        "import": own(seam, head=leaves),
        "constructor": own(seam, init=leaves, hook="return 0" if not SEAMS[seam].body else ""),
        "hook": own(seam, hook=leaves),
    }[where]
    assert main(command(seam, source)) == 4
    line = said(capsys)
    assert "own" in line
    assert "sys.exit(0)" in line or "SystemExit: 0" in line


@pytest.mark.parametrize("seam", ["routing", "transport"])
def test_whoever_calls_the_command_sees_status_4_of_sys_exit(
    seam: str, tmp_path: Path, command: Command
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "emu.cli.main", *command(seam, own(seam, hook="sys.exit('bye')"))],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{tmp_path}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 4
    (line,) = done.stderr.splitlines()
    assert line.startswith(
        f"emu: {SEAMS[seam].key}: own:Own: its `{SEAMS[seam].hook}` called sys.exit('bye') ("
    )


def test_a_hook_that_returns_something_though_its_base_does_not_is_named(
    command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    source = own("transport").replace("port, now): ...", "port, now):\n        return 5")
    status = main(command("transport", source))
    line = said(capsys)
    if emu.is_compiled():
        assert status == 4
        assert "transport.kind: own:Own: its `arrived` returned what it may not" in line


def test_every_seam_has_its_class_here() -> None:
    seams = {one.parent for one in gc.get_objects() if type(one) is OneOfOrPlugin}
    here = {one.base for one in SEAMS.values()}
    bases = {f"{parent.__module__}.{parent.__qualname__}" for parent in seams}
    assert bases - here == {"actors.nic.loss_recovery.Recovery"}  # of which GoBackN here has the defaults
