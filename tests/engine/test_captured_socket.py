"""What two workers say to each other is msgpack: who captures their socket reads it with `msgpack.unpackb`
and the layout of the page (`docs/security.md`), and nothing of ours."""

import socket
import struct
from threading import Thread

import msgpack  # type: ignore[import-untyped]  # it ships no types

from emu.cluster.workers.exchange import SocketExchange
from emu.cluster.workers.simulation import Simulation
from emu.engine.outcome import Ending, Report
from emu.engine.sync.logical_process import LogicalProcess
from tests.engine.spread_runs import plan_of

TWO_HOSTS = {
    "topology": {
        "kind": "ai_zone",
        "racks": 2,
        "hosts_per_rack": 1,
        "gpus_per_host": 1,
        "spines": 1,
        "uplinks_per_leaf_spine": 1,
    },
    "jobs[0].workload.size": "64KiB",
    "jobs[0].workload.message": "auto",
    "transport.ack_every": 1,
}


def relayed(one: socket.socket, other: socket.socket, captured: bytearray) -> None:
    """Pass on what comes from one to the other, and keep a copy, as a capture does."""
    while data := one.recv(65536):
        captured += data
        other.sendall(data)
    other.shutdown(socket.SHUT_WR)


def captured_run() -> list[bytes]:
    """The bytes from worker 0 to worker 1, and back."""
    ends = [socket.socketpair(), socket.socketpair()]
    captured = [bytearray(), bytearray()]
    relays = [
        Thread(target=relayed, args=(ends[0][1], ends[1][1], captured[0])),
        Thread(target=relayed, args=(ends[1][1], ends[0][1], captured[1])),
    ]
    plan = plan_of("permutation", 2, TWO_HOSTS)
    reports: dict[int, Report] = {}

    def work(at: int) -> None:
        logical_process = LogicalProcess(plan.partition(at), plan.machine(at), lambda _: None)
        logical_process.partition.start()
        exchange = SocketExchange({1 - at: ends[at][0]})
        reports[at] = Simulation(logical_process, exchange, lambda: None).run()
        exchange.close()

    workers = [Thread(target=work, args=(at,)) for at in range(2)]
    for thread in (*relays, *workers):
        thread.start()
    for thread in (*workers, *relays):
        thread.join(60)
    for _, relay in ends:
        relay.close()
    assert {report.ending for report in reports.values()} == {Ending.FINISHED}, reports
    return [bytes(one) for one in captured]


def packets_in(stream: bytes) -> list[tuple[int, int, int]]:
    """QP, PSN and opcode of every packet in a captured stream."""
    found = []
    while stream:
        (length,) = struct.unpack_from("<I", stream)
        record = msgpack.unpackb(stream[4 : 4 + length])
        stream = stream[4 + length :]
        if record["kind"] != "batch":
            continue
        count = len(record["numbers"]) // 8
        numbers = struct.unpack(f"<{2 * count}I", record["numbers"])
        headers = struct.unpack("<" + "iBBBB" * count, record["headers"])
        found += list(zip(numbers[::2], numbers[1::2], headers[1::5], strict=True))
    return found


def test_captured_socket_tells_qp_psn_and_opcode_of_every_packet() -> None:
    packets = 64 * 1024 // 4096
    for stream in captured_run():
        data = [one for one in packets_in(stream) if one[2] != 0x11]
        answers = [one for one in packets_in(stream) if one[2] == 0x11]
        assert len({qpn for qpn, _, _ in data}) == 1, "both send one message on one queue pair"
        first = data[0][1]
        assert [psn for _, psn, _ in data] == [(first + at) % 2**24 for at in range(packets)]
        assert [opcode for _, _, opcode in data] == [0x06, *[0x07] * (packets - 2), 0x08], (
            "RDMA WRITE first, middle and last (InfiniBand volume 1, table 38)"
        )
        assert len(answers) == packets, "each packet of the other is acknowledged"
        assert len({psn for _, psn, _ in answers}) == packets
