"""Process groups without peers: each call is written down, and its result is what this rank can know.

A call of `torch.distributed` with `async_op=False` runs on the current stream, as in NCCL's process group
since torch 2.7; one with `async_op=True` runs on a stream of its group, behind what the current stream has
so far, and `Work.wait()` makes the current stream wait for it. DistributedDataParallel takes the future of
a call and waits for it in C++ where backward ends; the player writes that wait there.

Results: a reduction leaves this rank's part, a gather repeats it. So a loss that is averaged is this rank's
loss.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from emu.doors.pytorch.player.everyday import like
from emu.doors.pytorch.player.mail import Mail
from emu.doors.pytorch.player.tape import Tape, dtype_name, size_of
from emu.doors.pytorch.player.torch_versions import GroupBase, WorkBase, take_over_groups, with_old_names
from emu.doors.pytorch.record import NotRecordedError

BACKEND = "emu"


class Done(WorkBase):
    """A call that was written down."""

    def __init__(self, groups: Groups, event: int | None, result: Any) -> None:
        super().__init__()
        self._groups, self._event, self._result = groups, event, result

    def wait(self, timeout: Any = None) -> bool:
        if self._event is not None:
            self._groups.tape.wait(self._groups.tape.stream, self._event)
        return True

    def synchronize(self) -> None:
        self.wait()

    def block_current_stream(self) -> None:
        self.wait()

    def is_completed(self) -> bool:
        return True

    def is_success(self) -> bool:
        return True

    def result(self) -> Any:
        return self._result

    def get_future(self) -> Any:
        future: Any = torch.futures.Future()
        future.set_result(self._result)
        if self._event is not None:
            self._groups.awaited_in_backward.append(self._event)
        return future


@with_old_names
class Group(GroupBase):
    """One group; named by torch."""

    def __init__(self, groups: Groups, rank: int, size: int, ranks: list[int]) -> None:
        super().__init__(rank, size)
        self._groups, self._place, self._size, self._ranks = groups, rank, size, ranks
        self.own_stream: int | None = None

    def _set_group_name(self, name: str) -> None:
        super()._set_group_name(name)
        self._groups.made(name, self._ranks, self)

    def _set_group_desc(self, desc: str) -> None:
        super()._set_group_desc(desc)
        self._groups.tape.record.descriptions[self.given_name] = desc

    def _log(
        self,
        op: str,
        tensors: Any,
        result: Any,
        opts: Any = None,
        *,
        peer: int = -1,
        counts: tuple[int, ...] = (),
    ) -> Done:
        sized = tensors if isinstance(tensors, list) else [tensors]
        size = max(sum(size_of(one) for one in sized), 1)
        wait = not getattr(opts, "asyncOp", True)
        event = self._groups.call(
            op,
            self,
            size,
            dtype_name(sized[0].dtype) if sized else "float32",
            peer=peer,
            counts=counts,
            blocking=wait,
        )
        for one in result if isinstance(result, list) else [result]:
            if isinstance(one, Tensor):
                self._groups.tape.put_on_gpu(one)
        return Done(self._groups, event, result)

    def _world(self, place: int) -> int:
        return self._ranks[place]

    def allreduce(self, tensors: Any, opts: Any = None) -> Done:
        return self._log("all_reduce", tensors, tensors, opts)

    def allreduce_coalesced(self, tensors: Any, opts: Any = None) -> Done:
        return self._log("all_reduce", tensors, tensors, opts)

    def reduce(self, tensors: Any, opts: Any = None) -> Done:
        return self._log("reduce", tensors, tensors, opts, peer=self._world(opts.rootRank))

    def broadcast(self, tensors: Any, opts: Any = None) -> Done:
        return self._log("broadcast", tensors, tensors, opts, peer=self._world(opts.rootRank if opts else 0))

    def allgather(self, outputs: Any, inputs: Any, opts: Any = None) -> Done:
        with self._groups.tape.silence(), torch.no_grad():
            for gathered, one in zip(outputs, inputs, strict=True):
                for part in gathered:
                    part.copy_(one)
        return self._log("all_gather", outputs[0], outputs, opts)

    def all_gather_single(self, output: Tensor, one: Tensor, opts: Any = None) -> Done:
        with self._groups.tape.silence(), torch.no_grad():
            output.view(self._size, -1).copy_(one.reshape(1, -1).expand(self._size, -1))
        return self._log("all_gather", output, output, opts)

    def all_gather_single_coalesced(self, outputs: Any, inputs: Any, opts: Any = None) -> Done:
        with self._groups.tape.silence(), torch.no_grad():
            for output, one in zip(outputs, inputs, strict=True):
                output.view(self._size, -1).copy_(one.reshape(1, -1).expand(self._size, -1))
        return self._log("all_gather", outputs, outputs, opts)

    def reduce_scatter(self, outputs: Any, inputs: Any, opts: Any = None) -> Done:
        with self._groups.tape.silence(), torch.no_grad():
            for output, parts in zip(outputs, inputs, strict=True):
                output.copy_(parts[self._place])
        return self._log("reduce_scatter", inputs[0], outputs, opts)

    def reduce_scatter_single(self, output: Tensor, one: Tensor, opts: Any = None) -> Done:
        with self._groups.tape.silence(), torch.no_grad():
            output.copy_(one.reshape(self._size, -1)[self._place].view_as(output))
        return self._log("reduce_scatter", one, output, opts)

    def reduce_scatter_single_coalesced(self, outputs: Any, inputs: Any, opts: Any = None) -> Done:
        with self._groups.tape.silence(), torch.no_grad():
            for output, one in zip(outputs, inputs, strict=True):
                output.copy_(one.reshape(self._size, -1)[self._place].view_as(output))
        return self._log("reduce_scatter", inputs, outputs, opts)

    def all_to_all_single(
        self, output: Tensor, one: Tensor, out_sizes: Any, in_sizes: Any, opts: Any = None
    ) -> Done:
        with self._groups.tape.silence(), torch.no_grad():
            count = min(output.numel(), one.numel())
            output.reshape(-1)[:count].copy_(one.reshape(-1)[:count])
        row = size_of(one) // max(one.shape[0], 1) if one.dim() else size_of(one)
        counts = tuple(row * int(n) for n in in_sizes) if in_sizes else ()
        return self._log("all_to_all", one, output, opts, counts=counts)

    def alltoall(self, outputs: Any, inputs: Any, opts: Any = None) -> Done:
        with self._groups.tape.silence(), torch.no_grad():
            for output, one in zip(outputs, inputs, strict=True):
                if output.shape == one.shape:
                    output.copy_(one)
        return self._log("all_to_all", inputs, outputs, opts, counts=tuple(size_of(one) for one in inputs))

    def gather(self, outputs: Any, inputs: Any, opts: Any = None) -> Done:
        with self._groups.tape.silence(), torch.no_grad():
            for gathered, one in zip(outputs, inputs, strict=False):
                for part in gathered:
                    part.copy_(one)
        return self._log("gather", inputs * self._size, outputs, opts, peer=self._world(opts.rootRank))

    def scatter(self, outputs: Any, inputs: Any, opts: Any = None) -> Done:
        with self._groups.tape.silence(), torch.no_grad():
            for output, parts in zip(outputs, inputs, strict=False):
                output.copy_(parts[self._place])
        return self._log("scatter", outputs * self._size, outputs, opts, peer=self._world(opts.rootRank))

    def barrier(self, opts: Any = None) -> Done:
        done = self._log("barrier", torch.zeros(1), [], opts)
        self._groups.tape.host_waits(self.own_stream)
        return done

    monitored_barrier = barrier

    def send(self, tensors: Any, peer: int, tag: int = 0) -> Done:
        return self._log("send", tensors, tensors, peer=self._world(peer))

    def recv(self, tensors: Any, peer: int, tag: int = 0) -> Done:
        return self._log("recv", tensors, tensors, peer=self._world(peer))

    def recv_anysource(self, tensors: Any, tag: int = 0) -> Done:
        raise NotRecordedError("a receive from any rank cannot be recorded: name the sender")

    def _start_coalescing(self, device: Any = None) -> None:
        """Calls between here and `_end_coalescing` begin together; they are written down one by one."""

    def _end_coalescing(self, device: Any = None) -> Done:
        return Done(self._groups, self._groups.last_event, [])

    def _get_sequence_number_for_group(self) -> int:
        return self._groups.tape.calls

    def _set_sequence_number_for_group(self) -> None:
        """Numbers are the tape's."""

    def shutdown(self) -> None:
        """Nothing is open."""

    def abort(self) -> None:
        """Do nothing: nothing is open."""


class Groups:
    """All groups of the played rank."""

    def __init__(self, tape: Tape, mail: Mail) -> None:
        self.tape, self.mail = tape, mail
        self._batch = self._begun = self._batches = 0
        """The batch that is open (0: none), the one of the last call, and how many there were."""
        self.awaited_in_backward: list[int] = []
        """Events of calls whose future C++ holds: what DistributedDataParallel waits for as backward ends."""
        self.last_event: int | None = None
        self.step_begins: Callable[[], None] = lambda: None
        """Called before a send or a receive: after an optimizer's step, the next step begins with it."""
        self._groups: dict[str, Group] = {}

    def install(self) -> None:
        """Every backend of `init_process_group` and `new_group` is this one from now on."""
        c10d: Any = dist.distributed_c10d
        record = self.tape.record

        def heard(name: str, ranks: Sequence[int], described: str) -> None:
            if ranks:
                record.groups.setdefault(name, list(ranks))
            if described:
                record.descriptions.setdefault(name, described)

        take_over_groups(BACKEND, partial(Group, self), record.rank, record.world, heard)
        batched = like(c10d.batch_isend_irecv, self._batched)
        c10d.batch_isend_irecv = dist.batch_isend_irecv = batched
        objects = ("send_object_list", "recv_object_list", "broadcast_object_list", "scatter_object_list")
        for name in objects:
            setattr(dist, name, like(getattr(c10d, name), getattr(self, f"_{name}")))
            setattr(c10d, name, getattr(dist, name))

    def made(self, name: str, ranks: list[int], group: Group) -> None:
        self.tape.record.groups[name] = ranks
        self._groups[name] = group

    # ------------------------------------------------------------------------------------- batches

    def _batched(self, p2p_op_list: Any) -> list[Done]:
        """Sends and receives that begin together, as NCCL's process group runs them."""
        operations = p2p_op_list
        if not operations:
            return []
        self._batches += 1
        self._batch = self._batches
        try:
            for one in operations:
                one.op(one.tensor, group=one.group, tag=one.tag, **_peer(one))
        finally:
            self._batch = 0
        group = operations[0].group or dist.group.WORLD
        self.last_event = self.tape.mark(self._stream_of(group))
        return [Done(self, self.last_event, [one.tensor for one in operations])]

    # ------------------------------------------------------------------------------------- objects

    def _send_object_list(self, object_list: Any, dst: Any, group: Any, group_dst: Any) -> None:
        found = group or dist.group.WORLD
        self.mail.send("sent", found.group_name, _global(found, dst, group_dst), list(object_list))

    def _recv_object_list(self, object_list: Any, src: Any, group: Any, group_src: Any) -> int:
        found = group or dist.group.WORLD
        if src is None and group_src is None:
            raise NotRecordedError("objects from any rank cannot be recorded: name the sender")
        sender = _global(found, src, group_src)
        object_list[:] = self.mail.receive("sent", found.group_name, sender, self.tape.record.rank)
        return sender

    def _broadcast_object_list(self, object_list: Any, src: Any, group: Any, group_src: Any) -> None:
        found = group or dist.group.WORLD
        sender = _global(found, src, group_src)
        if sender == self.tape.record.rank:
            self.mail.send("broadcast", found.group_name, -1, list(object_list))
        else:
            object_list[:] = self.mail.receive("broadcast", found.group_name, sender, -1)

    def _scatter_object_list(
        self,
        scatter_object_output_list: Any,
        scatter_object_input_list: Any,
        src: Any,
        group: Any,
        group_src: Any,
    ) -> None:
        found = group or dist.group.WORLD
        sender = _global(found, src, group_src)
        if sender == self.tape.record.rank:
            self.mail.send("scattered", found.group_name, -1, list(scatter_object_input_list))
            parts = scatter_object_input_list
        else:
            parts = self.mail.receive("scattered", found.group_name, sender, -1)
        scatter_object_output_list[0] = parts[found.rank()]

    def call_by_name(self, op: str, name: str, size: int, dtype: str, counts: tuple[int, ...] = ()) -> int:
        """An asynchronous call of a functional collective; the event of its end."""
        event = self.call(op, self._groups[name], max(size, 1), dtype, blocking=False, counts=counts)
        assert event is not None
        return event

    def call(
        self,
        op: str,
        group: Group,
        size: int,
        dtype: str,
        *,
        blocking: bool,
        peer: int = -1,
        counts: tuple[int, ...] = (),
    ) -> int | None:
        """Write a call down; the event of its end, or None for one on the current stream."""
        if op in ("send", "recv"):
            self.step_begins()
        tape, name = self.tape, group.group_name
        if blocking:
            tape.call(op, name, size, dtype, stream=tape.stream, peer=peer, counts=counts)
            return None
        stream = self._stream_of(group)
        if not self._batch or self._batch != self._begun:
            tape.wait(stream, tape.mark(tape.stream))
        self._begun = self._batch
        tape.call(op, name, size, dtype, stream=stream, peer=peer, counts=counts, batch=self._batch)
        if self._batch:
            return None
        self.last_event = tape.mark(stream)
        return self.last_event

    def _stream_of(self, group: Group) -> int:
        if group.own_stream is None:
            group.own_stream = self.tape.new_stream()
        return group.own_stream

    def backward_ends(self) -> None:
        """What C++ waits for as backward ends."""
        for event in self.awaited_in_backward:
            self.tape.wait(self.tape.stream, event)
        self.awaited_in_backward.clear()


def _peer(operation: Any) -> dict[str, int]:
    """The other end of one of a batch, as `isend` and `irecv` take it."""
    return {"group_dst" if operation.op is dist.isend else "group_src": operation.group_peer}


def _global(group: Any, rank: int | None, place: int | None) -> int:
    """A rank of the world, named so or by its place in a group."""
    return int(group._world(place) if place is not None else rank or 0)
