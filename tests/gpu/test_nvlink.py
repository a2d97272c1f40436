"""Do transfers over NVLink take their bytes at the link's rate, take turns, and let flags through?"""

import pytest

from actors.gpu.gpu import CopyCosts, Gpu
from actors.gpu.nvlink import Block, Domain, NvlinkPort, NvSwitch, TransferPair
from actors.kernel.device import Device
from actors.kernel.event import MESSAGE, Message, pack_key
from actors.kernel.kernel import Kernel
from actors.port.link import MessagePort
from actors.wire.fault import HUNG, LOST
from actors.wire.message import (
    COMPLETED_RECEIVE,
    COMPLETED_SEND,
    COMPLETION,
    COPY,
    POST,
    POST_PROTOCOL,
    TRANSFER,
)

HOST, SWITCH = 3, 4
RATE_BPS = 8 * 10**12
"""A byte a ps."""
DELAY_PS = 5_000
HOP_PS = 2_000
"""A message on a host link: 64 B at 512G, and 1 ns."""
DATA, FLAGS = 0, 1


class Listener(Device):
    """Stands where the host would."""

    def __init__(self, kernel: Kernel) -> None:
        super().__init__(HOST, kernel.queue)
        self.heard: list[tuple[int, int, int, int, int]] = []

    def on_message(self, message: Message, port: int, subject: int) -> None:
        if message.op == COMPLETION:
            self.heard.append((self.queue.now_ps, port, message.d, message.b, message.c))

    def received(self) -> list[tuple[int, int, int]]:
        """When, at which GPU, and the immediate."""
        return [(at, port, b) for at, port, d, b, _ in self.heard if d == COMPLETED_RECEIVE]


class Server:
    """Three GPUs of which each has, to each other one, a pair for data and one for flags."""

    def __init__(self, channel_rate_bps: int = 0) -> None:
        self.kernel = Kernel(5)
        queue = self.kernel.queue
        self.gpus = []
        for number in range(3):
            lanes = [MessagePort(queue, 512 * 10**9, 1_000, HOST, number, lane, None) for lane in range(3)]
            gpu = Gpu(number, queue, lanes[0], 24 * 10**12, CopyCosts())
            pairs = [
                TransferPair(other, 2 * (number - (number > other)) + flags, bool(flags), 0)
                for other in range(3)
                if other != number
                for flags in (DATA, FLAGS)
            ]
            link = NvlinkPort(queue, RATE_BPS, DELAY_PS, SWITCH, number, None)
            gpu.domain = Domain(link, lanes[1], lanes[2], pairs, channel_rate_bps)
            self.kernel.add(gpu)
            self.gpus.append(gpu)
        self.listener = Listener(self.kernel)
        self.kernel.add(self.listener)
        ports = [NvlinkPort(queue, RATE_BPS, DELAY_PS, number, 1, None) for number in range(3)]
        self.switch = NvSwitch(SWITCH, queue, ports)
        self.kernel.add(self.switch)

    def post(
        self, at_ps: int, gpu: int, to: int, size: int, immediate: int, kind: int = DATA, protocol: int = 0
    ) -> None:
        pair = 2 * (to - (to > gpu)) + kind
        message = Message(POST, pair, immediate, size, 1 + POST_PROTOCOL * protocol, immediate, 0)
        message.time_ps, message.key = at_ps, pack_key(gpu, MESSAGE, 0, immediate)
        self.kernel.queue.push(message)

    def run(self, budget: int = 1000) -> None:
        self.kernel.run(1 << 61, budget)


def test_a_transfer_takes_its_bytes_over_the_rate_once_and_two_delays() -> None:
    server = Server()
    server.post(1_000, 0, 1, 1_000_000, 7)
    server.run()
    left = 1_000 + 1_000_000
    assert server.listener.heard == [
        (left + HOP_PS, 0, COMPLETED_SEND, 7, 1_000_000),
        (left + 2 * DELAY_PS + HOP_PS, 1, COMPLETED_RECEIVE, 7, 1_000_000),
    ]
    assert server.switch.progress == 1_000_000
    assert server.gpus[0].counters()[:2] == server.switch.counters()[2:4] == [1_000_000, 1]


def test_transfers_of_one_gpu_leave_one_after_the_other() -> None:
    server = Server()
    server.post(0, 0, 1, 1_000_000, 7)
    server.post(0, 0, 2, 500_000, 8)
    server.run()
    last = 2 * DELAY_PS + HOP_PS
    assert server.listener.received() == [(1_000_000 + last, 1, 7), (1_500_000 + last, 2, 8)]


@pytest.mark.parametrize(("protocol", "eighths"), [(0, 8), (1, 5), (2, 7)], ids=["simple", "ll", "ll128"])
def test_a_block_writes_one_transfer_after_another_at_its_rate(protocol: int, eighths: int) -> None:
    """At a quarter of the link; with LL at 5/8 of that, with LL128 at 7/8. What is written has left."""
    server = Server(RATE_BPS // 4)
    server.post(1_000, 0, 1, 1_000_000, 7, protocol=protocol)
    server.post(1_000, 0, 2, 500_000, 8, protocol=protocol)
    server.run()
    last = 1_000 + 2 * DELAY_PS + HOP_PS
    first, second = (-(-size * 32 // eighths) for size in (1_000_000, 500_000))
    assert server.listener.received() == [(first + last, 1, 7), (first + second + last, 2, 8)]
    assert server.gpus[0].counters()[:2] == [1_500_000, 2]


def test_blocks_that_write_more_than_the_link_carries_share_it() -> None:
    server = Server(RATE_BPS // 2)
    domain = server.gpus[0].domain
    assert domain is not None
    for number in range(2):
        domain.pairs[2 * number].block = number
    domain.blocks.append(Block())
    for to in (1, 2):
        for part in range(4):
            server.post(0, 0, to, 1_000_000, 10 * to + part)
    server.run()
    # the first are written at 2 us, the last by the link's rate: 2 us and 7 more
    assert server.listener.received()[-1][0] == 2_000_000 + 7_000_000 + 2 * DELAY_PS + HOP_PS


def test_a_block_of_a_gpu_that_is_lost_writes_nothing_more() -> None:
    server = Server(RATE_BPS // 4)
    server.post(0, 0, 1, 1_000_000, 7)
    server.kernel.run(1_000_000, 1000)
    server.gpus[0].apply_fault(LOST, 0, [])
    server.run()
    assert server.listener.heard == []


def test_transfers_to_one_gpu_share_its_link() -> None:
    server = Server()
    server.post(0, 0, 2, 1_000_000, 7)
    server.post(100_000, 1, 2, 1_000_000, 8)
    server.run()
    last = 2 * DELAY_PS + HOP_PS
    assert server.listener.received() == [(1_000_000 + last, 2, 7), (2_000_000 + last, 2, 8)]


def test_transfers_between_different_gpus_do_not_meet() -> None:
    server = Server()
    for number in range(3):
        server.post(0, number, (number + 1) % 3, 1_000_000, number)
    server.run()
    assert {at for at, _, _ in server.listener.received()} == {1_000_000 + 2 * DELAY_PS + HOP_PS}


def test_a_flag_waits_for_no_transfer_and_gets_no_completion_of_its_own() -> None:
    server = Server()
    server.post(0, 0, 1, 1_000_000, 7)
    server.post(0, 0, 1, 64, 8, FLAGS)
    server.run()
    assert server.listener.received()[0] == (64 + 2 * DELAY_PS + HOP_PS, 1, 8)
    assert [b for _, _, d, b, _ in server.listener.heard if d == COMPLETED_SEND] == [7]


def test_an_empty_transfer_takes_a_message_of_the_link() -> None:
    server = Server()
    server.post(0, 0, 1, 0, 7)
    server.post(0, 0, 1, 0, 8)
    server.run()
    assert server.listener.received()[0] == (64 + 2 * DELAY_PS + HOP_PS, 1, 7)
    assert server.switch.ports[1].free_ps == 128 + DELAY_PS


@pytest.mark.parametrize(("op", "values"), [(LOST, [0, 0, 0]), (HUNG, [0, 0, 0])])
def test_a_gpu_that_is_lost_or_hangs_sends_and_takes_nothing(op: int, values: list[int]) -> None:
    server = Server()
    server.gpus[0].apply_fault(op, 0, values)
    server.post(0, 0, 1, 1_000, 7)
    server.post(0, 1, 0, 1_000, 8)
    server.run()
    assert server.listener.received() == []
    server.gpus[0].apply_fault(op, 0, None)
    server.run()
    assert len(server.listener.received()) == (2 if op == HUNG else 0)


def test_a_saved_domain_goes_on_where_it_was() -> None:
    whole, begun = Server(), Server()
    for server in (whole, begun):
        for number in range(3):
            server.post(0, number, (number + 1) % 3, 1_000_000, number)
            server.post(10, number, (number + 1) % 3, 300_000, number + 3)
    begun.run(6)
    resumed = Server()
    for one, other in zip((*begun.gpus, begun.switch), (*resumed.gpus, resumed.switch), strict=True):
        other.load(one.save())
        assert other.save() == one.save()
    whole.run()
    assert begun.gpus[0].counters()[:2] == [1_300_000, 2]
    resumed.post(1_000, 0, 1, 100_000, 9)
    resumed.run()
    # Behind the 1.3 MB that had left before.
    assert resumed.listener.received() == [(1_400_000 + 2 * DELAY_PS + HOP_PS, 1, 9)]


def test_only_transfers_that_exist_are_let_in_from_another_worker() -> None:
    server = Server()
    gpu, switch = server.gpus[0], server.switch

    def transfer(port: int, pair: int, size: int) -> Message:
        return Message(TRANSFER, port, pair, size, 0, 0, 0)

    assert gpu.admits(transfer(0, 3, 100), 1, 0)
    assert switch.admits(transfer(2, 0, 100), 0, 0)
    assert not gpu.admits(transfer(0, 4, 100), 1, 0)
    assert not gpu.admits(transfer(0, -1, 100), 1, 0)
    assert not gpu.admits(Message(POST, 4, 0, 1, 1, 0, 0), 0, 0)
    assert not switch.admits(transfer(3, 0, 100), 0, 0)
    assert not switch.admits(transfer(0, 0, -1), 0, 0)
    assert not switch.admits(Message(COPY, 0, 0, 0, 0, 0, 0), 0, 0)
