"""What differs between versions of torch, or is promised by none, of what recording and live runs share.

Tried: 2.13.0. What is known to differ:

- **Groups in Python.** In 2.13 a class of Python can be a `ProcessGroup`, and not a `Backend`, whose binding
  has no constructor ("No constructor defined!"). A trampoline for `Backend` comes after it, beside that for
  `ProcessGroup` (pytorch pull requests 187479 and 189817, of June and July 2026). So `GroupBase` is a
  `ProcessGroup`, which both have.
- **Names of collectives.** C++ asks a group first for `all_gather_single` and its like, and for the old name
  if there is none (2.13, `torch/csrc/distributed/c10d/PyProcessGroup.hpp`). The new trampoline asks for the
  new names only; Python code that is older calls the old ones. `with_old_names` gives a group both.

Private, and as 2.13 has it: how `init_process_group` and `new_group` make a group
(`torch/distributed/distributed_c10d.py`), and the numbers of autograd's nodes, which rise as forward makes
nodes; a node that adds up gradients (AccumulateGrad) has the largest number of 64 bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import ProcessGroup, Work

from emu.doors.pytorch.player.everyday import OwnStore, like

WorkBase = Work
"""Base of what their calls return."""
OLD_NAMES: Final = {
    "all_gather_single": "_allgather_base",
    "all_gather_single_coalesced": "allgather_into_tensor_coalesced",
    "all_to_all_single": "alltoall_base",
    "reduce_scatter_single": "_reduce_scatter_base",
    "reduce_scatter_single_coalesced": "reduce_scatter_tensor_coalesced",
}
"""Collectives of a group by their names of 2.13, and the names before."""
UNNUMBERED: Final = 2**63
"""Nodes of autograd that forward does not make have numbers from here on."""
GroupT = TypeVar("GroupT", bound=type)


class GroupBase(ProcessGroup):
    """Base of groups that are written in Python; torch names them, and takes them for NCCL's."""

    def __init__(self, rank: int, size: int) -> None:
        super().__init__(rank, size)
        self.given_name = self.given_desc = ""

    def getBackendName(self) -> str:  # noqa: N802  torch's name
        return "nccl"

    def _set_group_name(self, name: str) -> None:
        self.given_name = name

    def _set_group_desc(self, desc: str) -> None:
        self.given_desc = desc

    @property
    def group_name(self) -> str:
        return self.given_name

    @property
    def group_desc(self) -> str:
        return self.given_desc


def with_old_names(group: GroupT) -> GroupT:
    """A class of groups whose collectives have their old names as well."""
    for name, old in OLD_NAMES.items():
        setattr(group, old, getattr(group, name))
    return group


def take_over_groups(
    backend: str,
    make: Callable[[int, int, list[int]], Any],
    rank: int,
    world: int,
    heard: Callable[[str, Sequence[int], str], None] = lambda name, ranks, described: None,
) -> None:
    """Every group of `init_process_group` and `new_group` is one that `make` returns, which takes the rank's
    place, how many there are and which. `heard` is called with the name, ranks and description of each group
    that the script makes, with or without this rank.
    """
    c10d: Any = dist.distributed_c10d

    def made(options: Any, *_: Any) -> Any:
        ranks = [int(one) for one in options.global_ranks_in_group] or list(range(world))
        return make(options.group_rank, options.group_size, ranks)

    dist.Backend.register_backend(backend, made, extended_api=True, devices=["cpu", "cuda"])
    original_init, original_group = c10d.init_process_group, c10d._new_process_group_helper

    def init() -> None:
        original_init(backend=backend, store=OwnStore(), rank=rank, world_size=world)

    def new_group(
        size: int, place: int, ranks: Any, given: Any, store: Any, name: str, *rest: Any, **more: Any
    ) -> Any:
        heard(name, [int(one) for one in ranks or ()], more.get("group_desc") or "")
        more["device_id"] = None
        return original_group(size, place, ranks, c10d.Backend(backend), store, name, *rest, **more)

    mesh: Any = torch.distributed.device_mesh
    c10d.init_process_group = dist.init_process_group = mesh.init_process_group = like(original_init, init)
    c10d._new_process_group_helper = new_group
    c10d.is_nccl_available = dist.is_nccl_available = lambda: True
    c10d.get_backend = dist.get_backend = like(c10d.get_backend, lambda: "nccl")


def node_in_backward() -> int | None:
    """The number of the node of autograd's graph whose backward runs; None: none does."""
    node: Any = torch._C._current_autograd_node()
    return None if node is None else int(node._sequence_nr())


def next_node() -> int:
    """The number that the next node of autograd's graph gets."""
    autograd: Any = torch.autograd
    return int(autograd._get_sequence_nr())
