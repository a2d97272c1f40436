"""Workers prove themselves to each other before anything is decoded; strangers are refused and do no harm."""

import os
import stat
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trio
import trio.testing

from actors.runtime import peers as peers_module
from actors.runtime.exchange import LENGTH, PeerGone, SocketExchange, framed
from actors.runtime.hello import HELLO_BYTES, PROOF_BYTES, Handshake, RunIdentity
from actors.runtime.peers import Address, Peers, StreamExchange
from emu.errors import EmuError, ProtocolError, RuntimeFailure

SECRET = bytes(range(32))
IDENTITY = RunIdentity("run", SECRET, 3)
HOST = "here"


async def listening(
    worker: int, nursery: trio.Nursery, identity: RunIdentity = IDENTITY, tcp: str = ""
) -> tuple[Peers, Address]:
    peers = Peers(identity, worker)
    address = await peers.listen(HOST, tcp)
    nursery.start_soon(peers.serve)
    return peers, address


async def with_peers(test: Callable[[trio.Nursery], Awaitable[None]]) -> None:
    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            await test(nursery)
            nursery.cancel_scope.cancel()


def run(test: Callable[[trio.Nursery], Awaitable[None]]) -> None:
    trio.run(with_peers, test)


def refused(peers: Peers) -> str:
    assert len(peers.refusals) == peers.refused == 1, peers.refusals
    return peers.refusals[0]


@pytest.mark.parametrize("tcp", ["", "127.0.0.1"])
def test_workers_connect_and_every_body_arrives(tcp: str) -> None:
    async def test(nursery: trio.Nursery) -> None:
        ends = [await listening(worker, nursery, tcp=tcp) for worker in range(3)]
        ways = {worker: address.tcp or address.unix for worker, (_, address) in enumerate(ends)}
        async with trio.open_nursery() as connecting:
            for worker, (peers, _) in enumerate(ends):
                others = {peer: way for peer, way in ways.items() if peer != worker}
                connecting.start_soon(peers.connect, others)
        exchanges = [SocketExchange(peers.take_sockets()) for peers, _ in ends]
        exchanges[0].send(2, b"to two")
        exchanges[1].send(2, b"also")
        found: list[tuple[int, bytes]] = []
        while len(found) < 2:
            found += exchanges[2].receive(1.0)
        assert sorted(found) == [(0, b"to two"), (1, b"also")]
        for exchange in exchanges:
            exchange.close()
        for peers, _ in ends:
            await peers.close()

    run(test)


def test_nobody_else_may_enter_the_directory_and_it_goes_away() -> None:
    async def test(nursery: trio.Nursery) -> None:
        peers, address = await listening(0, nursery)
        directory = Path(address.unix).parent
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
        assert directory.stat().st_uid == os.getuid()
        assert len(address.unix) < 108
        await peers.close()
        assert not directory.exists()

    run(test)


def test_peer_with_another_secret_is_refused_on_both_sides() -> None:
    async def test(nursery: trio.Nursery) -> None:
        peers, address = await listening(0, nursery)
        stranger = Peers(RunIdentity("run", bytes(32), 3), 1)
        with pytest.raises(ProtocolError, match="does not know the secret of this run"):
            await stranger.connect({0: address.unix})
        await trio.testing.wait_all_tasks_blocked(0.05)
        assert peers.streams == {}
        await peers.close()

    run(test)


async def say(address: Address, *said: bytes) -> bytes:
    """Connect, say something, and read until the other side closes."""
    stream = await trio.open_unix_socket(address.unix)
    heard = b""
    try:
        for part in said:
            await stream.send_all(part)
        while more := await stream.receive_some():
            heard += bytes(more)
    except trio.BrokenResourceError:
        pass
    await stream.aclose()
    return heard


STRANGERS = {
    "another protocol": (
        b"GET / HTTP/1.1\r\nHost: worker\r\nAccept: everything\r\n\r\n",
        "does not speak this protocol",
    ),
    "worker beyond the last": (b"emu2\x07\x00\x00\x00" + bytes(36), "calls itself worker 7 of 3"),
    "ourselves": (b"emu2\x00\x00\x00\x00" + bytes(36), "calls itself worker 0 of 3"),
    "an earlier incarnation": (
        b"emu2\x01\x00\x00\x00\x01\x00\x00\x00" + bytes(32),
        "worker 1 is of incarnation 1; this run is in its 0",
    ),
    "a guess for a proof": (
        b"emu2\x01\x00\x00\x00" + bytes(36) + bytes(PROOF_BYTES),
        "does not know the secret",
    ),
}


@pytest.mark.parametrize(("said", "reason"), STRANGERS.values(), ids=STRANGERS.keys())
def test_stranger_is_refused_and_the_worker_goes_on(said: bytes, reason: str) -> None:
    async def test(nursery: trio.Nursery) -> None:
        peers, address = await listening(0, nursery)
        heard = await say(address, said)
        assert len(heard) in (0, HELLO_BYTES + PROOF_BYTES)
        assert reason in refused(peers)
        honest = Peers(IDENTITY, 1)
        await honest.connect({0: address.unix})
        await peers.connect({1: "it connects to us"})
        assert sorted(peers.streams) == [1]
        await honest.close()
        await peers.close()

    run(test)


def test_recorded_hello_is_worth_nothing_again() -> None:
    async def test(nursery: trio.Nursery) -> None:
        peers, address = await listening(0, nursery)
        recorded: list[bytes] = []
        honest = Handshake(IDENTITY, 1, connects=True)
        stream = await trio.open_unix_socket(address.unix)
        await stream.send_all(honest.hello)
        answer = bytes(await stream.receive_some(HELLO_BYTES + PROOF_BYTES))
        honest.take_hello(answer[:HELLO_BYTES])
        recorded += [honest.hello, honest.proof()]
        await stream.aclose()
        await trio.testing.wait_all_tasks_blocked(0.02)
        assert len(peers.drain_refusals()) == 1
        await say(address, *recorded)
        (line,) = peers.drain_refusals()
        assert line.startswith(f"process {os.getpid()} of user {os.getuid()}: ")
        assert line.endswith("does not know the secret of this run")
        assert peers.refused == 2
        await peers.close()

    run(test)


def test_proof_cannot_be_reflected() -> None:
    one, other = Handshake(IDENTITY, 0, connects=False), Handshake(IDENTITY, 1, connects=True)
    one.take_hello(other.hello)
    other.take_hello(one.hello)
    with pytest.raises(ProtocolError):
        one.check_proof(one.proof())
    one.check_proof(other.proof())
    other.check_proof(one.proof())
    with pytest.raises(ProtocolError, match="our own hello"):
        other.take_hello(b"emu2\x00\x00\x00\x00" + other.hello[8:])


def test_worker_left_behind_at_a_recovery_is_refused_though_it_knows_the_secret() -> None:
    async def test(nursery: trio.Nursery) -> None:
        recovered = RunIdentity("run", SECRET, 3, incarnation=2)
        peers, address = await listening(0, nursery, recovered)
        stale = Peers(RunIdentity("run", SECRET, 3, incarnation=1), 1)
        with pytest.raises(ProtocolError, match="worker 0 at"):
            await stale.connect({0: address.unix})
        assert "worker 1 is of incarnation 1; this run is in its 2" in refused(peers)
        fresh = Peers(recovered, 1)
        await fresh.connect({0: address.unix})
        await peers.connect({1: "it connects to us"})
        for end in (stale, fresh, peers):
            await end.close()

    run(test)


def test_incarnation_is_in_every_proof() -> None:
    told = Handshake(RunIdentity("run", SECRET, 3, incarnation=1), 1, connects=True)
    listener = Handshake(RunIdentity("run", SECRET, 3, incarnation=2), 0, connects=False)
    claimed = told.hello[:8] + b"\x02\x00\x00\x00" + told.hello[12:]
    listener.take_hello(claimed)
    told.take_hello(listener.hello[:8] + b"\x01\x00\x00\x00" + listener.hello[12:])
    with pytest.raises(ProtocolError, match="does not know the secret"):
        listener.check_proof(told.proof())


def test_secret_is_in_no_text_about_the_run() -> None:
    assert SECRET.hex() not in repr(IDENTITY)
    assert repr(SECRET) not in repr(IDENTITY)


def test_slow_handshake_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers_module, "HANDSHAKE_S", 0.05)

    async def test(nursery: trio.Nursery) -> None:
        peers, address = await listening(0, nursery)
        assert await say(address, b"emu1") == b""
        assert "proved nothing" in refused(peers)
        await peers.close()

    run(test)


def test_flood_of_strangers_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers_module, "STRANGERS", 4)

    async def test(nursery: trio.Nursery) -> None:
        peers, address = await listening(0, nursery)
        streams = [await trio.open_unix_socket(address.unix) for _ in range(4)]
        await trio.testing.wait_all_tasks_blocked(0.02)
        assert await say(address) == b""
        assert "more than 4 connections" in refused(peers)
        for stream in streams:
            await stream.aclose()
        await peers.close()

    run(test)


def test_worker_that_cannot_be_reached_is_named_with_its_address(tmp_path: Path) -> None:
    async def test(nursery: trio.Nursery) -> None:
        del nursery
        nowhere = str(tmp_path / "nothing")
        with pytest.raises(RuntimeFailure, match=r"worker 0 cannot be reached at .*nothing"):
            await Peers(IDENTITY, 1).connect({0: nowhere})

    run(test)


def test_worker_that_never_comes_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers_module, "CONNECT_S", 0.05)

    async def test(nursery: trio.Nursery) -> None:
        peers, _ = await listening(0, nursery)
        with pytest.raises(RuntimeFailure, match="worker 0 has no connection to worker 2 at"):
            await peers.connect({2: "its address"})
        await peers.close()

    run(test)


def test_streams_of_trio_move_bodies_for_another_thread() -> None:
    async def test(nursery: trio.Nursery) -> None:
        left, right = await tcp_pair()
        token = trio.lowlevel.current_trio_token()
        one = StreamExchange({1: left}, token, nursery.start_soon)
        other = StreamExchange({0: right}, token, nursery.start_soon)
        large = b"y" * 3_000_000

        def talk() -> None:
            one.send(1, large)
            other.send(0, large)
            for end in (one, other):
                bodies: list[bytes] = []
                while not bodies:
                    bodies = [body for _, body in end.receive(5.0)]
                assert bodies == [large]
            one.flush(5.0)

        await trio.to_thread.run_sync(talk)
        await left.send_all(LENGTH.pack(0))
        with pytest.raises(ProtocolError, match="from worker 0: a frame of 0 bytes"):
            await trio.to_thread.run_sync(other.receive, 5.0)
        await left.send_all(framed(b"more"))
        left.socket.close()
        with pytest.raises(EmuError):
            await trio.to_thread.run_sync(lambda: [one.receive(1.0) for _ in range(3)])
        right.socket.close()

    run(test)


def test_known_peer_that_floods_is_cut_off() -> None:
    async def test(nursery: trio.Nursery) -> None:
        left, right = await tcp_pair()
        token = trio.lowlevel.current_trio_token()
        flooded = StreamExchange({0: right}, token, nursery.start_soon)
        await left.send_all(framed(b"x") * (peers_module.MOST_WAITING + 1))

        def look() -> None:
            for _ in range(peers_module.MOST_WAITING + 2):
                flooded.receive(5.0)

        await trio.testing.wait_all_tasks_blocked(0.1)
        with pytest.raises(ProtocolError, match="from worker 0: more than 64 frames that were not due"):
            await trio.to_thread.run_sync(look)
        left.socket.close()
        right.socket.close()

    run(test)


async def tcp_pair() -> tuple[trio.SocketStream, trio.SocketStream]:
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = listener.socket.getsockname()[1]
    left = await trio.open_tcp_stream("127.0.0.1", port)
    right = await listener.accept()
    await listener.aclose()
    return left, right


def test_gone_peer_has_its_number() -> None:
    assert str(PeerGone(3, "it closed its connection")) == "worker 3 went away: it closed its connection"
