"""Does a proxy's round last as long as its connections need, and take all that is ready?"""

from actors.host.host import Host, ProxyCosts
from actors.kernel.event import Message
from actors.kernel.kernel import Kernel
from actors.wire.message import COMPLETED_RECEIVE, COMPLETION, POST
from tests.host.test_host import NIC, NIC_PORT, Listener, Recorder, arrive, completion, fabric

NS = 1_000
COST_PS, POLL_PS, BATCHED_PS = 100 * NS, 10 * NS, 20 * NS


class Polled(Recorder):
    """A program whose calls use some connections."""

    connections = 8
    sees = False

    def polled(self) -> int:
        return self.connections

    def sees_data(self, context: int) -> bool:
        return self.sees


def rounds(program: Polled) -> tuple[Kernel, Host, dict[int, Listener]]:
    """A host whose proxies go round."""
    kernel, host, listeners = fabric(COST_PS, program)
    host.proxy = ProxyCosts(COST_PS, POLL_PS, BATCHED_PS)
    for pair in range(8):
        host.bind(NIC_PORT, pair, 0, pair)
    return kernel, host, listeners


def test_what_comes_to_an_idle_proxy_waits_for_half_of_a_round() -> None:
    program = Polled(0, 0)
    kernel, _, _ = rounds(program)
    arrive(kernel, 0, NIC_PORT, completion(1))
    kernel.run(1 << 61, 1)
    kernel.run(1 << 61, 1)
    assert program.reported == [(40 * NS + COST_PS, "completion", 1)]


def test_a_round_takes_all_that_was_ready_when_it_began_and_what_comes_meanwhile_waits_for_the_next() -> None:
    program = Polled(0, 0)
    kernel, _, listeners = rounds(program)
    for pair in range(3):
        arrive(kernel, pair, NIC_PORT, completion(pair), pair)
    kernel.run(1 << 61, 100)
    first = 40 * NS + COST_PS
    # The round begins with the first three; posts that they ask for come up in it, and wait for the next one.
    assert program.reported == [
        (first, "completion", 0),
        (first + BATCHED_PS, "completion", 1),
        (first + 2 * BATCHED_PS, "completion", 2),
    ]
    second = first + 2 * BATCHED_PS + 8 * POLL_PS + COST_PS
    way_ps = 2_000
    assert [(at, op) for at, op, _ in listeners[NIC].heard] == [
        (second + way_ps, POST),
        (second + BATCHED_PS + way_ps, POST),
        (second + 2 * BATCHED_PS + way_ps, POST),
    ]


def test_more_connections_make_a_longer_round() -> None:
    times = []
    for connections in (0, 8, 64):
        program = Polled(0, 0)
        program.connections = connections
        kernel, _, _ = rounds(program)
        arrive(kernel, 0, NIC_PORT, completion(1))
        kernel.run(1 << 61, 100)
        times.append(program.reported[0][0])
    assert times == [COST_PS, COST_PS + 40 * NS, COST_PS + 320 * NS]


def test_data_with_flags_of_its_own_does_not_wait_for_the_proxy() -> None:
    program = Polled(0, 0)
    program.sees = True
    kernel, _, _ = rounds(program)
    arrive(kernel, 0, NIC_PORT, Message(COMPLETION, 1, 0, 0, COMPLETED_RECEIVE, 0, 0))
    kernel.run(1 << 61, 1)
    assert program.reported == [(0, "completion", 1)]
