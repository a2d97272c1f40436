"""What one rank of a script did to its GPU: the record that `play` writes and `translate` reads.

A record is JSON: facts about the run, the groups that were made, and the operations in the order in which
the host issued them. Streams are numbers (0 is the stream that computes, as CUDA's default stream); events
are numbers. Nothing here imports torch.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

FORMAT: Final = 1
DEFAULT_STREAM: Final = 0


class NotRecordedError(NotImplementedError):
    """A call of the script changes what is computed or sent, and is not modelled."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """One kernel, or the kernels of one aten operation, on a stream."""

    stream: int
    op: str
    """aten's name without overload: `mm`, `_foreach_add_`, `native_layer_norm`."""
    dtype: str
    """Type of its first floating tensor: `bfloat16`, `float32`."""
    shapes: tuple[tuple[int, ...], ...]
    """Shapes of its tensor arguments, in order; lists of tensors are flattened."""
    flops: int
    bytes: int
    """Read and written, each tensor once."""
    module: str = ""
    """What it belongs to, as `player.play.ModuleNames` says; empty: to no module and no optimizer."""
    us: float | None = None
    """Measured in this place; None: `KernelTimes` says it."""
    kind: Literal["kernel"] = "kernel"


@dataclass(frozen=True, slots=True)
class Call:
    """A collective, a send or a receive."""

    stream: int
    op: str
    """As nccl-tests has it: `all_reduce`, `broadcast`, `send`."""
    group: str
    bytes: int
    """Size of the whole buffer, as in a benchmark; of a send or receive, of the message."""
    dtype: str
    number: int
    """Counts the calls of this rank; `Wait` and `record` name it."""
    peer: int = -1
    """Rank of the world: the root of a rooted collective, the other end of a send or receive."""
    counts: tuple[int, ...] = ()
    """Bytes for each place of the group, of an all_to_all whose parts differ."""
    module: str = ""
    batch: int = 0
    """Calls of one batch begin together (`batch_isend_irecv`); 0: of none."""
    kind: Literal["call"] = "call"


@dataclass(frozen=True, slots=True)
class Mark:
    """An event is recorded on a stream."""

    stream: int
    event: int
    kind: Literal["mark"] = "mark"


@dataclass(frozen=True, slots=True)
class Wait:
    """A stream waits for an event; stream -1 is the host, which issues nothing until then."""

    stream: int
    event: int
    kind: Literal["wait"] = "wait"


@dataclass(frozen=True, slots=True)
class Step:
    """The optimizer has finished its step: what follows belongs to the next one."""

    kind: Literal["step"] = "step"


Operation: TypeAlias = Kernel | Call | Mark | Wait | Step
HOST: Final = -1
_KINDS: Final = {"kernel": Kernel, "call": Call, "mark": Mark, "wait": Wait, "step": Step}


@dataclass(slots=True)
class Record:
    """One rank of a script."""

    rank: int
    world: int
    script: str
    torch: str
    operations: list[Operation] = field(default_factory=list)
    groups: dict[str, list[int]] = field(default_factory=dict)
    """Name of each group that the script made, with or without this rank: its members by place, as ranks of
    the world."""
    descriptions: dict[str, str] = field(default_factory=dict)
    """What the script or torch calls a group: `mesh_dp`, `default_pg`."""
    parameters: int = 0
    """Elements of all parameters that optimizers hold, of this rank."""
    model_parameters: int = 0
    """The same of the whole tensors, of which this rank may hold a shard."""
    peak_bytes: int = 0
    """Most that tensors on the GPU held at once, by this rank."""
    notes: list[str] = field(default_factory=list)
    """What the player could not do as a GPU does, one line each."""

    def steps(self) -> Iterator[Sequence[Operation]]:
        """The operations of each whole step; the first includes what came before it."""
        begin = 0
        for at, operation in enumerate(self.operations):
            if isinstance(operation, Step):
                yield self.operations[begin:at]
                begin = at + 1

    def write(self, path: Path) -> None:
        """Write it as JSON."""
        facts = {
            "format": FORMAT,
            "rank": self.rank,
            "world": self.world,
            "script": self.script,
            "torch": self.torch,
            "groups": self.groups,
            "descriptions": self.descriptions,
            "parameters": self.parameters,
            "model_parameters": self.model_parameters,
            "peak_bytes": self.peak_bytes,
            "notes": self.notes,
            "operations": [asdict(operation) for operation in self.operations],
        }
        path.write_text(json.dumps(facts, separators=(",", ":")), encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> Record:
        """Read it back."""
        facts = json.loads(path.read_text("utf-8"))
        assert facts.pop("format") == FORMAT, path
        operations = [_operation(one) for one in facts.pop("operations")]
        return cls(operations=operations, **facts)


def _operation(facts: dict[str, Any]) -> Operation:
    kind = _KINDS[str(facts["kind"])]
    shapes = facts.get("shapes")
    if shapes is not None:
        facts["shapes"] = tuple(tuple(shape) for shape in shapes)
    if "counts" in facts:
        facts["counts"] = tuple(facts["counts"])
    operation: Operation = kind(**facts)
    return operation
