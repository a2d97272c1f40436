"""Public names of PyTorch in a recording: recorded, without effect, or refused by name; nothing else."""

import json
from collections import Counter
from pathlib import Path

import pytest

from emu.doors.pytorch.kernels import GPUS
from emu.doors.pytorch.record import Call, Kernel
from emu.doors.pytorch.torchrun import Recording, ScriptError
from tests.pytorch.test_torchrun import recorded

pytest.importorskip(
    "torch", reason="torch is not installed: `make setup-torch` installs it", exc_type=ImportError
)
CALLS = Path(__file__).with_name("everyday_calls.txt")
"""Each line is a call, or a few, of a script of eight ranks; `m` is a linear layer, `x` its input."""
WALK = f"""
import inspect, json, os, re, sys, traceback, types, warnings
import torch, torch.nn as nn, torch.distributed as dist
from emu.doors.pytorch.player import everyday
from emu.doors.pytorch.record import NotRecordedError
warnings.simplefilter("ignore")
PLACE = os.path.dirname(os.path.abspath(__file__))
dist.init_process_group("nccl")
r = dist.get_rank()
x = torch.randn(64, 64, device="cuda", requires_grad=True)
m = nn.Linear(64, 64).cuda()
lines = [one.replace("PLACE", PLACE) for one in open({str(CALLS)!r}).read().splitlines()]
words = set(re.findall(r"\\w+", "\\n".join(lines))) | {{"recv_object_list"}}  # the test of pipelines calls it
"""
TRIED = """
for line in lines:
    try:
        exec(line, globals())
    except Exception as error:
        print(json.dumps(["failed", line, f"{type(error).__name__}: {error}"]))
"""
COUNTED = """
import torch.distributed.checkpoint, torch.utils.data
modules = [torch.cuda, torch.cuda.nvtx, torch.cuda.nccl, torch.cuda.comm, torch.accelerator, dist]
modules += [torch.utils.data, torch.distributed.checkpoint, torch.profiler]
modules += [torch.autograd.graph, torch.optim]
nothing = (everyday.Nothing, everyday._nothing)
for module in modules:
    names = getattr(module, "__all__", None) or [one for one in dir(module) if one[0] != "_"]
    for name in names:
        found, kind = getattr(module, name), "recorded"
        if isinstance(found, types.ModuleType):
            continue
        if hasattr(found, "refused"):
            kind = "refused"
            try:
                found()
            except NotRecordedError as error:
                said = str(error)
                assert said.startswith(f"{module.__name__}.{name} is not recorded: "), said
                assert "\\n" not in said
        elif name in everyday.NO_OPS.get(module.__name__, ()) or found in nothing:
            kind = "no-op"
        if kind != "refused" and inspect.isfunction(found) and name not in words:
            print(json.dumps(["not tried", module.__name__, name]))
        original = getattr(found, "stands_for", None)
        if original is not None and inspect.signature(original) != inspect.signature(found):
            print(json.dumps(["signature", module.__name__, name]))
        print(json.dumps([kind, module.__name__, name]))
"""


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> list[list[str]]:
    script = tmp_path_factory.mktemp("names") / "train.py"
    step = "optimizer = torch.optim.SGD(m.parameters(), 0.1)\nm(x).sum().backward()\noptimizer.step()\n"
    script.write_text(WALK + COUNTED + TRIED + step)
    said: list[list[str]] = []

    def shown(line: str, is_error: bool) -> None:
        if line.startswith('["') and not is_error:
            said.append(json.loads(line))

    Recording([str(script)], 8, 8, GPUS["h100"], steps=1000, shown=shown).play(0)
    return said


def test_everyday_calls_do_not_end_a_recording(lines: list[list[str]]) -> None:
    assert [one[1:] for one in lines if one[0] == "failed"] == []


def test_every_public_name_is_recorded_without_effect_or_refused_by_name(lines: list[list[str]]) -> None:
    assert [one[1:] for one in lines if one[0] in ("not tried", "signature")] == []
    counts: dict[str, Counter[str]] = {}
    for kind, module, _ in (one for one in lines if one[0] in ("recorded", "no-op", "refused")):
        counts.setdefault(module, Counter())[kind] += 1
    for module, found in counts.items():
        kinds = " ".join(f"{found[kind]:>4} {kind}" for kind in ("recorded", "no-op", "refused"))
        print(f"{module:<30} {kinds}")  # noqa: T201  with -s, the counts of a report
    assert sum(counts["torch.cuda"].values()) > 100
    assert counts["torch.cuda"]["refused"] < 10
    assert counts["torch.cuda.nccl"] == {"refused": 5}


def test_a_refused_call_is_one_line_with_the_scripts_own(tmp_path: Path) -> None:
    text = "import torch\n\nalone = torch.cuda.nccl\nalone.all_reduce([torch.ones(1)])\n"
    says = r"train\.py:4: rank 0 cannot .*: torch\.cuda\.nccl\.all_reduce is not recorded: it sends"
    with pytest.raises(ScriptError, match=says):
        recorded(tmp_path, text)


GRAPH = """
import torch, torch.distributed as dist
dist.init_process_group("nccl")
w = torch.nn.Parameter(torch.randn(64, 64, device="cuda"))
optimizer, begin = torch.optim.SGD([w], 0.1), torch.nn.Identity()
x = torch.randn(64, 64, device="cuda")
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    y = x @ x
    dist.all_reduce(y)
for replays in (0, 1, 3):
    begin(x)
    for _ in range(replays):
        graph.replay()
    w.grad = torch.zeros_like(w)
    optimizer.step()
"""


def test_a_graph_runs_at_each_replay_and_not_when_it_is_captured(tmp_path: Path) -> None:
    steps = list(recorded(tmp_path, GRAPH).steps())
    products = [sum(isinstance(one, Kernel) and one.op == "mm" for one in step) for step in steps]
    calls = [sum(isinstance(one, Call) for one in step) for step in steps]
    assert (products, calls) == ([0, 1, 3], [0, 1, 3])


OFFLOADED = """
import torch
m = torch.nn.Linear(64, 64, bias=False).cuda()
optimizer = torch.optim.SGD(m.parameters(), 0.1)
for _ in range(3):
    with torch.autograd.graph.save_on_cpu(pin_memory=True):
        y = m(torch.randn(32, 64, device="cuda")).square().sum()
    y.backward()
    optimizer.step()
"""


def test_what_is_saved_on_the_host_is_copied_there_and_back(tmp_path: Path) -> None:
    """The input, the weight is a leaf and is copied as well, and the square's argument."""
    ops = [one.op for one in list(recorded(tmp_path, OFFLOADED).steps())[-1] if isinstance(one, Kernel)]
    there, back = ops.count("memcpy_device_to_host"), ops.count("memcpy_host_to_device")
    assert there == back == 2
    assert ops.count("mm") == 2  # forward, and the gradient of the weight: nothing is lost on the host
