"""Play one rank of a script, without GPU and without peers, and write what it did.

    python -m emu.doors.pytorch.player.play --rank 0 --world 64 --out rank0.json --gpu FACTS -- script.py
    ARGUMENTS

The script runs unmodified, in this process. `emu torchrun` starts one such process for each distinct role.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os
import runpy
import shutil
import sys
import traceback
from bisect import bisect_right
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from emu.doors.pytorch.player import fake_reducer, pretended_cuda
from emu.doors.pytorch.player.kernel_log import KernelLog
from emu.doors.pytorch.player.mail import Mail
from emu.doors.pytorch.player.recorded_groups import Groups
from emu.doors.pytorch.player.tape import EnoughError, Tape, local
from emu.doors.pytorch.player.torch_versions import UNNUMBERED, next_node, node_in_backward
from emu.doors.pytorch.player_process import watch_parent
from emu.doors.pytorch.record import NotRecordedError, Record, Step

BACKWARD: Final = "backward"
NEEDS_A_GPU = (
    "libcuda",
    "NVIDIA driver",
    "active drivers",
    "not compiled with CUDA",
    "not linked with support",
)
"""What Triton and PyTorch say where a kernel is to run and there is no GPU."""
ADVICE: Final = (
    "please report a bug",
    "Please report a bug",
    "This is almost definitely a bug",
    "To fix this",
    "Exception raised from",
)
"""Where what PyTorch says of an error ends, and what it advises begins."""
LONGEST_REASON: Final = 600
LIBRARIES: Final = (Path(torch.__file__).resolve().parent, Path(__file__).resolve().parents[2])
"""torch and emu: the call that ended a recording is in neither."""
STANDARD: Final = Path(os.__file__).resolve().parent


class ModuleNames:
    """Follows which part of the script runs, once it is installed: names with dots, which nest.

        layers.0.attention              path of the module whose forward runs
        backward.layers.0.attention     backward of what this module's forward computed
        AdamW                           the optimizer that steps

    Autograd numbers the nodes of its graph as forward makes them, so the module of a node is the one that ran
    when its number was given. Nodes that add up gradients (AccumulateGrad) have no number, and belong to the
    node before them. A module that runs in backward is recomputed there, and belongs to backward.
    """

    def __init__(self) -> None:
        self._now = ""
        self._paths: dict[int, str] = {}
        """By id of a module; a path is known from its root, the outermost module that is called."""
        self._from: list[int] = [0]
        """Numbers of autograd's nodes, rising, at which the module changed to that of `_names`."""
        self._names: list[str] = [""]
        self._last = ""
        """The module of the last node of backward that has a number."""

    def install(self) -> None:
        """Follow every module and every optimizer from now on."""
        every: Any = nn.Module
        call = every.__call__

        def forward(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
            before = self._now
            self._enter(self._path(module))
            try:
                return call(module, *args, **kwargs)
            finally:
                self._enter(before)

        every.__call__ = forward
        register_optimizer_step_pre_hook(lambda optimizer, *_: self._enter(type(optimizer).__name__))
        register_optimizer_step_post_hook(lambda *_: self._enter(""))

    def now(self) -> str:
        """What a kernel belongs to that is launched now; empty: to nothing that has a name."""
        number = node_in_backward()
        if number is None:
            return self._now
        if number < UNNUMBERED:
            self._last = self._names[bisect_right(self._from, number) - 1]
        return ".".join(filter(None, (BACKWARD, self._now or self._last)))

    def _enter(self, name: str) -> None:
        self._now = name
        number = next_node()
        if self._from[-1] == number:
            self._names[-1] = name
        else:
            self._from.append(number)
            self._names.append(name)

    def _path(self, module: nn.Module) -> str:
        if id(module) not in self._paths:
            for path, child in module.named_modules():
                self._paths[id(child)] = path or type(module).__name__
        return self._paths[id(module)]


def watch_steps(tape: Tape, groups: Groups) -> Callable[[], None]:
    """A step ends where an optimizer's step does; backward ends where C++ waits for what was reduced.

    Of several optimizers that step one after another, without a forward between, the last ends the step. The
    function returned ends the last step, where the script does.
    """
    seen: set[int] = set()
    """Parameters; torchtitan's optimizers are one optimizer of all of them and one of each part."""
    pending = [False]

    def begins(*_: Any) -> None:
        if pending[0]:
            pending[0] = False
            tape.step_done()

    def stepped(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        for group in optimizer.param_groups:
            new = [one for one in group["params"] if id(one) not in seen]
            seen.update(id(one) for one in new)
            tape.record.parameters += sum(local(one).numel() for one in new)
            tape.record.model_parameters += sum(one.numel() for one in new)
        pending[0] = True

    register_optimizer_step_post_hook(stepped)
    run = torch.autograd.backward

    def backward(*args: Any, **kwargs: Any) -> None:
        run(*args, **kwargs)
        groups.backward_ends()

    torch.autograd.backward = backward
    groups.step_begins = begins
    nn.modules.module.register_module_forward_pre_hook(begins)
    return begins


def play(arguments: argparse.Namespace, record: Record) -> None:
    """Run the script until as many steps are recorded as were asked for, or until it ends."""
    tape = Tape(
        record, arguments.steps, FakeTensorMode(allow_non_fake_inputs=True) if arguments.fake else None
    )
    groups = Groups(tape, Mail(arguments.mail, record.rank))
    log = KernelLog(tape, groups.call_by_name)
    pretended_cuda.install(
        tape, pretended_cuda.Properties(**json.loads(arguments.gpu)), arguments.gpus_per_host
    )
    groups.install()
    names = ModuleNames()
    names.install()
    tape.part = names.now
    last_step = watch_steps(tape, groups)
    sys.argv = list(arguments.script)
    sys.path.insert(
        0, str(Path.cwd()) if arguments.module else str(Path(arguments.script[0]).resolve().parent)
    )
    if arguments.fake:
        fake_reducer.install()
    on_gpu = pretended_cuda.OnTheGpu(tape, log)
    pretended_cuda.follow_backward(on_gpu)
    with contextlib.suppress(EnoughError), on_gpu, log:
        run: Any = runpy.run_module if arguments.module else runpy.run_path
        run(arguments.script[0], run_name="__main__", **({"alter_sys": True} if arguments.module else {}))
        last_step()
    tape.end()


def main() -> int:
    """Play a rank; the exit status."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--world", type=int, required=True)
    parser.add_argument("--gpus-per-host", type=int, default=8)
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--gpu", required=True)
    parser.add_argument("--fake", action="store_true")
    parser.add_argument("--module", action="store_true")
    parser.add_argument("--mail", type=Path, help="folder of the objects that ranks send")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--parent", type=int, help="socket to the command that began this process")
    parser.add_argument("script", nargs=argparse.REMAINDER)
    arguments = parser.parse_args()
    if arguments.script[:1] == ["--"]:
        del arguments.script[0]
    os.environ.update(
        RANK=str(arguments.rank),
        WORLD_SIZE=str(arguments.world),
        LOCAL_RANK=str(arguments.rank % arguments.gpus_per_host),
        LOCAL_WORLD_SIZE=str(min(arguments.gpus_per_host, arguments.world)),
        GROUP_RANK=str(arguments.rank // arguments.gpus_per_host),
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT="29500",
        TORCHELASTIC_RUN_ID="emu",
    )
    record = Record(arguments.rank, arguments.world, arguments.script[0], torch.__version__)
    if arguments.parent is not None:
        watch_parent(
            arguments.parent,
            lambda: (sum(isinstance(one, Step) for one in record.operations[:]), len(record.operations)),
            lambda: _remove(arguments),
        )
    try:
        play(arguments, record)
    except SystemExit as end:
        if end.code:
            status = end.code if isinstance(end.code, int) else 1
            if status is not end.code:
                sys.stderr.write(f"{end.code}\n")  # as Python does
            return _failed(arguments, f"the script ended with status {status}", ended=True)
    except BaseException as error:  # noqa: BLE001  whatever a script raises is reported with its line
        return _failed(arguments, _reason(error), error)
    record.write(arguments.out)
    return 0


def _file(arguments: argparse.Namespace) -> str:
    """The file of the script, also of one that is named as a module."""
    name = str(arguments.script[0])
    found = importlib.util.find_spec(name) if arguments.module else None
    return name if found is None or found.origin is None else found.origin


def _passed_over(path: Path) -> Sequence[Path]:
    """Folders whose calls are not the script's own: those of torch, of emu and of Python itself."""
    return LIBRARIES if "site-packages" in path.parts else (*LIBRARIES, STANDARD)


def _remove(arguments: argparse.Namespace) -> None:
    """Remove the folders that the command made for this process, and cannot remove any more."""
    for folder in (arguments.out.parent, arguments.mail):
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)


def _reason(error: BaseException) -> str:
    """What an error says; of one that PyTorch takes for a bug of its own, the part that names the cause."""
    text = f"{type(error).__name__}: {error}"
    for advice in ADVICE:
        text = text.partition(advice)[0]
    text = " ".join(text.split())
    return text if len(text) <= LONGEST_REASON else f"{text[:LONGEST_REASON]} ..."


def _failed(
    arguments: argparse.Namespace, reason: str, error: BaseException | None = None, *, ended: bool = False
) -> int:
    """Write where the script was, as one line of JSON; to stderr the traceback from the script on.

    A refusal needs no traceback: it names the call and the line.
    """
    script, line, inner = Path(_file(arguments)).resolve(), 0, ""
    if error is not None:
        frames = traceback.extract_tb(error.__traceback__)
        for frame in frames:
            path = Path(frame.filename).resolve()
            if path == script:
                line, inner = frame.lineno or 0, ""
            elif path.is_file() and not any(path.is_relative_to(one) for one in _passed_over(path)):
                inner = f"{'/'.join(path.parts[-3:])}:{frame.lineno}"
        if not isinstance(error, NotRecordedError):
            begin = next((at for at, one in enumerate(frames) if Path(one.filename).resolve() == script), 0)
            sys.stderr.write("Traceback (most recent call last):\n")
            sys.stderr.write("".join(traceback.format_list(frames[begin:])))
            sys.stderr.write("".join(traceback.format_exception_only(error)))
    if any(words in reason for words in NEEDS_A_GPU):
        reason = f"a kernel of the script's own needs a GPU ({reason})"
    text = f"{reason} (at {inner})" if inner else reason
    arguments.out.write_text(json.dumps({"failed": text, "line": line, "ended": ended}), encoding="utf-8")
    return 1


if __name__ == "__main__":
    sys.exit(main())
