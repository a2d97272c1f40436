"""Which part of a script a kernel belongs to: names with dots, which nest.

    layers.0.attention              path of the module whose forward runs
    backward.layers.0.attention     backward of what this module's forward computed
    AdamW                           the optimizer that steps

Autograd numbers the nodes of its graph as forward makes them, so the module of a node is the one that ran
when its number was given. Nodes that add up gradients (AccumulateGrad) have no number, and belong to the node
before them. A module that runs in backward is recomputed there, and belongs to backward.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Any, Final

from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from emu.pytorch.torch_versions import UNNUMBERED, next_node, node_in_backward

BACKWARD: Final = "backward"


class ModuleNames:
    """Follows the modules and optimizers of this process, once it is installed."""

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
