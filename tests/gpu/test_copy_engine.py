"""Do copies take turns at the memory, and are their latencies paid beside one another?"""

from actors.gpu.gpu import CopyCosts, Gpu
from actors.kernel.device import Device
from actors.kernel.event import MESSAGE, Message, pack_key
from actors.kernel.kernel import Kernel
from actors.port.link import MessagePort
from actors.wire.message import COPIED, COPY, COPY_PLAIN, COPY_REDUCE

HOST, GPU = 0, 1
DELAY_PS = 1_000
MESSAGE_PS = 1_000
"""64 B at 512G."""


class Listener(Device):
    """Stands where the host would."""

    def __init__(self, number: int, kernel: Kernel) -> None:
        super().__init__(number, kernel.queue)
        self.heard: list[tuple[int, list[int]]] = []

    def on_message(self, message: Message, port: int, subject: int) -> None:
        assert (message.op, port) == (COPIED, 3)
        self.heard.append((self.queue.now_ps, [message.a, message.b, message.c, message.d, message.e]))


def fabric(copy_rate_bps: int = 8 * 10**12, latency_ps: int = 0) -> tuple[Kernel, Listener, Gpu]:
    kernel = Kernel(2)
    listener = Listener(HOST, kernel)
    link = MessagePort(kernel.queue, 512 * 10**9, DELAY_PS, HOST, 3, 0, None)
    gpu = Gpu(GPU, kernel.queue, link, copy_rate_bps, CopyCosts(latency_ps))
    kernel.add(listener)
    kernel.add(gpu)
    return kernel, listener, gpu


def ask(kernel: Kernel, at_ps: int, channel: int, size: int, kind: int = COPY_PLAIN) -> None:
    message = Message(COPY, channel, size, kind, 5, 6, 0)
    message.time_ps = at_ps
    message.key = pack_key(GPU, MESSAGE, 0, channel)
    kernel.queue.push(message)


def test_a_copy_takes_its_bytes_over_the_rate_and_its_latency() -> None:
    kernel, listener, gpu = fabric(latency_ps=700_000)
    ask(kernel, 50_000, 9, 4096, COPY_REDUCE)
    kernel.run(1 << 61, 100)
    # 4,096 B at 1 TB/s are 4,096 ps.
    assert listener.heard == [
        (50_000 + 4_096 + 700_000 + MESSAGE_PS + DELAY_PS, [9, 4096, COPY_REDUCE, 5, 6])
    ]
    assert gpu.progress == 4096


def test_copies_of_all_channels_take_turns_and_their_latencies_overlap() -> None:
    kernel, listener, _ = fabric(latency_ps=700_000)
    ask(kernel, 0, 0, 1_000_000)
    ask(kernel, 0, 1, 500_000)
    ask(kernel, 2_000_000, 2, 0)
    kernel.run(1 << 61, 100)
    fixed = 700_000 + MESSAGE_PS + DELAY_PS
    assert [at for at, _ in listener.heard] == [1_000_000 + fixed, 1_500_000 + fixed, 2_000_000 + fixed]


def test_a_saved_gpu_knows_when_its_memory_is_free() -> None:
    kernel, _, gpu = fabric()
    ask(kernel, 0, 0, 1_000_000)
    kernel.run(1 << 61, 1)
    other, listener, second = fabric()
    second.load(gpu.save())
    assert second.save() == gpu.save()
    ask(other, 500_000, 1, 1_000)
    other.run(1 << 61, 100)
    assert [at for at, _ in listener.heard] == [1_001_000 + MESSAGE_PS + DELAY_PS]
