"""Small networks that are hard on the window protocol: ties everywhere, bursts, gaps of seconds, long loops.

A toy device answers what arrives by drawing from its own stream: whom to tell, when, with a frame or a
message, or to sleep first. Times are multiples of 100 ns, so that events of many devices coincide. Device 0
keeps count of what has died out, and ends the run.
"""

from collections.abc import Callable
from dataclasses import dataclass

from actors.kernel.block import Outbox
from actors.kernel.device import Device, Plain
from actors.kernel.event import ARRIVAL, JOB, MESSAGE, NEVER_PS, RETRANSMIT, WATCHDOG, Message, pack_key
from actors.kernel.kernel import Kernel
from actors.kernel.mixing import Stream
from actors.kernel.queue import EventQueue
from actors.wire.batch import BatchReader
from actors.wire.frame import WRITE_MIDDLE, Frame, wire_size
from actors.wire.message import COPIED, REPORT
from emu.counts.digest import run_digest
from emu.devices.devices import Blocks
from emu.devices.lookahead import Crossing, close_lookaheads, neighbours_of
from emu.engine.in_process import InProcess
from emu.engine.outcome import Ending
from emu.engine.sync.logical_process import LogicalProcess, records_of
from emu.engine.sync.partition import Partition
from emu.engine.sync.sync_points import SyncGrid, SyncPoint
from emu.engine.sync.window import WindowMachine

TICK_PS = 100_000
STOP_DELAY_PS = 5_000_000
MANAGEMENT_PORT = 2047


@dataclass(frozen=True)
class ToyNetwork:
    """Which device is wired to which, with what delay: `links` are (a, b, delay_ps), both ways."""

    devices: int
    links: tuple[tuple[int, int, int], ...]
    seed: int
    lives: int = 40
    """How many events each device starts before it falls silent."""
    silent: bool = False
    """Nobody reports, so the run never ends by itself."""
    upkeep: bool = False
    """Devices keep a watchdog going for ever."""


def random_network(seed: int) -> ToyNetwork:
    """A connected network of 2 to 9 devices besides device 0."""
    stream = Stream(seed, 0, 99)
    devices = 3 + stream.below(8)
    links = [
        (stream.below(at) if at > 1 else 0, at, (1 + stream.below(9)) * TICK_PS) for at in range(1, devices)
    ]
    for _ in range(stream.below(8)):
        a, b = stream.below(devices), stream.below(devices)
        if a != b and all({a, b} != {x, y} for x, y, _ in links):
            links.append((a, b, (1 + stream.below(40)) * TICK_PS))
    return ToyNetwork(devices, tuple(links), seed)


class Toy(Device):
    """Draws what it does next from its own stream, for a limited number of lives."""

    def __init__(self, number: int, queue: EventQueue, network: ToyNetwork) -> None:
        super().__init__(number, queue)
        self.network = network
        self.stream = Stream(network.seed, number, 1)
        self.fabric: list[tuple[int, int, int, Outbox | None]] = []
        """Peer, its port, delay, and the outbox towards it."""
        self.last_ps: list[int] = []
        self.lives = network.lives
        self.heard = 0
        self.reports = 0
        self.unique = 0
        self.report: tuple[Outbox | None] | None = None

    def start(self) -> None:
        if self.number:
            self.push_timer(self.stream.below(5) * TICK_PS, JOB, 0, 0)
            self.push_timer(3_000_000_000_000, JOB, 0, 1)
            if self.network.upkeep:
                self.push_timer(100_000_000_000, WATCHDOG, 0, 0)

    def on_frame(self, frame: Frame, port: int) -> None:
        self.mix_arrival(port, frame)
        self.heard += frame.psn
        self.progress += int(frame.payload_bytes)
        self.act()

    def on_message(self, message: Message, port: int, subject: int) -> None:
        if message.op == REPORT:
            self.reports += 1
            if self.reports == self.network.devices - 1:
                self.queue.stop_ps = self.queue.now_ps + STOP_DELAY_PS
            return
        self.heard += message.a
        self.progress += 1
        self.act()

    def on_timer(self, kind: int, port: int, subject: int) -> bool:
        if kind == WATCHDOG:
            self.push_timer(self.queue.now_ps + 100_000_000_000, WATCHDOG, 0, 0)
            return False
        if kind == JOB and subject == 1 and self.lives:
            self.push_timer(self.queue.now_ps + 700_000_000_000, JOB, 0, 1)
        self.act()
        return True

    def act(self) -> None:
        if not self.number:
            return
        for _ in range(1 + self.stream.below(2)):
            if self.lives == 0:
                return
            self.lives -= 1
            if self.lives == 0 and not self.network.silent:
                self.send_report()
            else:
                self.send()

    def send(self) -> None:
        now = self.queue.now_ps
        draw = self.stream.below(10)
        if draw == 0:
            self.unique += 1
            self.push_timer(now + (1 + self.stream.below(50_000)) * TICK_PS, RETRANSMIT, 0, self.unique)
            return
        at = self.stream.below(len(self.fabric))
        peer, port, delay_ps, outbox = self.fabric[at]
        time_ps = max(now + delay_ps + self.stream.below(3) * TICK_PS, self.last_ps[at] + TICK_PS)
        self.last_ps[at] = time_ps
        if draw < 6:
            payload = self.stream.below(4097)
            frame = Frame(
                WRITE_MIDDLE,
                3,
                int(self.number),
                peer,
                7,
                9,
                self.lives,
                int(payload),
                wire_size(WRITE_MIDDLE, payload),
            )
            frame.time_ps, frame.key, frame.sent_ps = time_ps, pack_key(peer, ARRIVAL, port, 0), now
            self.queue.push(frame) if outbox is None else outbox.add_frame(frame)
        else:
            message = Message(COPIED, self.lives, 0, 0, 0, 0, 0)
            message.time_ps, message.key = time_ps, pack_key(peer, MESSAGE, port, self.number)
            self.queue.push(message) if outbox is None else outbox.add_message(message)

    def send_report(self) -> None:
        assert self.report is not None
        (outbox,) = self.report
        message = Message(REPORT, self.number, 0, 0, 0, 0, 0)
        message.time_ps = self.queue.now_ps + STOP_DELAY_PS
        message.key = pack_key(0, MESSAGE, MANAGEMENT_PORT, self.number)
        self.queue.push(message) if outbox is None else outbox.add_message(message)

    def end_states(self) -> list[int]:
        return [self.heard, self.lives, self.stream.counter]

    def counters(self) -> list[int]:
        return [self.heard]

    def save(self) -> list[Plain]:
        return [
            super().save(),
            self.lives,
            self.heard,
            self.reports,
            self.unique,
            self.stream.counter,
            *self.last_ps,
        ]

    def load(self, state: list[Plain]) -> None:
        assert isinstance(state[0], list)
        super().load(state[0])
        values = [value for value in state[1:] if isinstance(value, int)]
        self.lives, self.heard, self.reports, self.unique, self.stream.counter = values[:5]
        self.last_ps = values[5:]


def part_of(network: ToyNetwork, parts: int, seed: int) -> list[int]:
    """Which part hosts each device; every part hosts one at least."""
    stream = Stream(seed, parts, 5)
    assigned = [stream.below(parts) for _ in range(network.devices)]
    for part in range(parts):
        assigned[(part * 7 + seed) % network.devices if parts == 1 else part] = part
    return assigned


def crossings_of(network: ToyNetwork, home: list[int]) -> list[Crossing]:
    """The links between parts; the end of the run and reports take the management delay."""
    ends = [(a, b, delay) for x, y, delay in network.links for a, b in ((x, y), (y, x))]
    ends += [(0, at, STOP_DELAY_PS) for at in range(1, network.devices)]
    ends += [(at, 0, STOP_DELAY_PS) for at in range(1, network.devices)]
    return [Crossing(home[a], home[b], delay) for a, b, delay in ends if home[a] != home[b]]


def blocks_of(network: ToyNetwork, home: list[int], part: int, blocks: int, seed: int) -> Blocks:
    """A drawn cut of a part's devices into blocks, not all of which need have one."""
    stream = Stream(seed, blocks, 6)
    block_of = [stream.below(blocks) if at == part else -1 for at in home]
    lookahead_ps = [NEVER_PS] * blocks
    for one in crossings_of(network, block_of):
        if one.sender >= 0 and one.receiver >= 0:
            lookahead_ps[one.sender] = min(lookahead_ps[one.sender], one.least_ps)
    if block_of[0] >= 0:
        lookahead_ps[block_of[0]] = min(lookahead_ps[block_of[0]], STOP_DELAY_PS)
    return Blocks(tuple(block_of), tuple(lookahead_ps))


def build_part(network: ToyNetwork, home: list[int], part: int, blocks: Blocks | None = None) -> Partition:
    """One part, built on its own."""
    parts = max(home) + 1
    if blocks is None:
        blocks = Blocks(tuple(0 if at == part else -1 for at in home), (NEVER_PS,))
    outboxes: list[Outbox | None] = [None if other == part else Outbox() for other in range(parts)]
    kernel = Kernel(network.devices, len(blocks.lookahead_ps), blocks.slots)
    for block, lookahead_ps in zip(kernel.blocks, blocks.lookahead_ps, strict=True):
        block.lookahead_ps = lookahead_ps

    def outbox_for(peer: int, number: int) -> Outbox | None:
        if home[peer] != part:
            return outboxes[home[peer]]
        same = blocks.block_of[peer] == blocks.block_of[number]
        return None if same else kernel.blocks[blocks.block_of[peer]].inbox

    ports = [-1] * network.devices
    fabric: list[list[tuple[int, int, int]]] = [[] for _ in range(network.devices)]
    for a, b, delay in network.links:
        fabric[a].append((b, len(fabric[b]), delay))
        fabric[b].append((a, len(fabric[a]) - 1, delay))
    for number in range(network.devices):
        if home[number] != part:
            continue
        toy = Toy(number, kernel.blocks[blocks.block_of[number]].queue, network)
        toy.fabric = [(peer, port, delay, outbox_for(peer, number)) for peer, port, delay in fabric[number]]
        toy.last_ps = [0] * len(toy.fabric)
        toy.report = (outbox_for(0, number),)
        ports[number] = len(fabric[number])
        kernel.add(toy, blocks.block_of[number])
    return Partition(part, kernel, outboxes, BatchReader(ports, MANAGEMENT_PORT, 4096))


class ToyRun:
    """A network spread over parts in this process."""

    def __init__(
        self,
        network: ToyNetwork,
        parts: int,
        seed: int,
        grid: SyncGrid | None = None,
        slices: int | None = None,
        blocks: int = 1,
    ) -> None:
        home = part_of(network, parts, seed)
        crossings = crossings_of(network, home)
        lookahead = close_lookaheads(parts, crossings)
        self.seed = seed
        self.samples: list[tuple[int, int, tuple[tuple[int, ...], ...]]] = []
        """(time, part, mixes) of every sampling point."""
        self.syncs: list[tuple[int, SyncPoint]] = []
        self.logical_processes: list[LogicalProcess] = []
        for part in range(parts):
            machine = WindowMachine(part, lookahead, neighbours_of(part, crossings), grid or SyncGrid(0, 0))
            cut = blocks_of(network, home, part, blocks, seed)
            partition = build_part(network, home, part, cut)
            self.logical_processes.append(LogicalProcess(partition, machine, self.acting(part, partition)))
            if slices is not None:
                self.logical_processes[-1]._budget = slices

    def acting(self, part: int, partition: Partition) -> Callable[[SyncPoint], None]:
        def act(sync: SyncPoint) -> None:
            self.syncs.append((part, sync))
            if sync.sample:
                self.samples.append(
                    (sync.time_ps, part, tuple(tuple(d.all_mixes()) for d in partition.devices))
                )

        return act

    def start(self) -> None:
        for logical_process in self.logical_processes:
            logical_process.partition.start()

    def run(self) -> Ending | None:
        return self.run_while(lambda: True)

    def run_while(self, between: Callable[[], bool]) -> Ending | None:
        return InProcess(self.logical_processes, self.seed, between).run()

    def digest(self) -> str:
        return run_digest(record for p in self.logical_processes for record in records_of(p.partition))

    @property
    def virtual_ps(self) -> int:
        assert len({p.virtual_ps for p in self.logical_processes}) == 1
        return self.logical_processes[0].virtual_ps


def finished_run(network: ToyNetwork, parts: int, seed: int, grid: SyncGrid | None = None) -> ToyRun:
    """A run that went to its end."""
    run = ToyRun(network, parts, seed, grid)
    run.start()
    assert run.run() is Ending.FINISHED
    assert run.virtual_ps < NEVER_PS
    return run
