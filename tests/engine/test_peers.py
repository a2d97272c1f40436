"""Workers prove themselves to each other before anything is decoded; strangers are refused and do no harm."""

import os
import resource
import stat
import subprocess
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
import trio
import trio.testing

from emu.base.errors import ProtocolError, RuntimeFailure
from emu.cluster.workers import peers as peers_module
from emu.cluster.workers.exchange import PeerGone, SocketExchange
from emu.cluster.workers.peers import HELLO_BYTES, PROOF_BYTES, Address, Handshake, Peers, RunIdentity
from tests.engine.patience import PATIENCE_S
from tests.engine.under_trio import run

SECRET = bytes(range(32))
IDENTITY = RunIdentity("run", SECRET, 3)
HOST = "here"


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is cut off for being slow, where that is not what is asked."""
    monkeypatch.setattr(peers_module, "HANDSHAKE_S", PATIENCE_S)


async def listening(
    worker: int, nursery: trio.Nursery, identity: RunIdentity = IDENTITY, tcp: str = ""
) -> tuple[Peers, Address]:
    peers = Peers(identity, worker)
    address = await peers.listen(HOST, tcp)
    nursery.start_soon(peers.serve)
    return peers, address


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
        exchanges = [SocketExchange(peers.take_sockets(), seals=peers.seals) for peers, _ in ends]
        assert [sorted(peers.seals) for peers, _ in ends] == (
            [[1, 2], [0, 2], [0, 1]] if tcp else [[], [], []]
        )
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
        assert "worker 1 is of incarnation 1; this run is in its 2" in peers.refusals[0]
        assert len(set(peers.refusals)) <= peers.refused == peers_module.TRIES
        fresh = Peers(recovered, 1)
        await fresh.connect({0: address.unix})
        await peers.connect({1: "it connects to us"})
        for end in (stale, fresh, peers):
            await end.close()

    run(test)


def test_incarnation_is_in_every_proof() -> None:
    reported = Handshake(RunIdentity("run", SECRET, 3, incarnation=1), 1, connects=True)
    listener = Handshake(RunIdentity("run", SECRET, 3, incarnation=2), 0, connects=False)
    claimed = reported.hello[:8] + b"\x02\x00\x00\x00" + reported.hello[12:]
    listener.take_hello(claimed)
    reported.take_hello(listener.hello[:8] + b"\x01\x00\x00\x00" + listener.hello[12:])
    with pytest.raises(ProtocolError, match="does not know the secret"):
        listener.check_proof(reported.proof())


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


def test_flood_of_strangers_is_bounded_and_keeps_no_peer_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers_module, "STRANGERS", 4)

    async def test(nursery: trio.Nursery) -> None:
        peers, address = await listening(0, nursery)
        streams = [await trio.open_unix_socket(address.unix) for _ in range(4)]
        await trio.testing.wait_all_tasks_blocked(0.02)
        assert peers.refused == 0
        honest = Peers(IDENTITY, 1)
        await honest.connect({0: address.unix})
        await peers.connect({1: "it connects to us"})
        assert sorted(peers.streams) == [1]
        assert await streams[0].receive_some() == b"", "who came first and said nothing goes"
        assert "more than 4 connections at one time have proved nothing" in refused(peers)
        with trio.move_on_after(0.05) as open_still:
            await streams[1].receive_some()
        assert open_still.cancelled_caught
        for stream in streams:
            await stream.aclose()
        await honest.close()
        await peers.close()

    run(test)


@pytest.mark.parametrize("silent", [False, True])
@pytest.mark.parametrize("turns", [1, peers_module.TRIES])
def test_peer_that_is_turned_away_or_not_heard_calls_again_some_times(
    turns: int, silent: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers_module, "AGAIN_S", 0.01)
    monkeypatch.setattr(peers_module, "HANDSHAKE_S", 0.1 if silent else PATIENCE_S)

    async def test(nursery: trio.Nursery) -> None:
        (door,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        way = f"127.0.0.1:{door.socket.getsockname()[1]}"
        listener = Peers(IDENTITY, 0)
        listener._listeners.append(door)

        async def turn_away_and_admit() -> None:
            for _ in range(turns):
                stream = await door.accept()
                with suppress(trio.BrokenResourceError):
                    while silent and await stream.receive_some():
                        """Until it is given up."""
                stream.socket.close()
            monkeypatch.setattr(peers_module, "HANDSHAKE_S", PATIENCE_S)
            await listener.serve()

        nursery.start_soon(turn_away_and_admit)
        honest = Peers(IDENTITY, 1)
        if turns < peers_module.TRIES:
            await honest.connect({0: way})
            await listener.connect({1: "it connects to us"})
            assert listener.refused == 0
        else:
            said = "no proof in" if silent else "(a connection ended 44 bytes before|the connection broke)"
            with pytest.raises(ProtocolError, match=f"worker 0 at {way}: {said}"):
                await honest.connect({0: way})
        await honest.close()
        await listener.close()

    run(test)


def test_peer_is_not_believed_to_be_there_until_it_says_welcome() -> None:
    """As when the listener had given up on a connector whose process was stopped before its last word."""

    async def test(nursery: trio.Nursery) -> None:
        (door,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        way = f"127.0.0.1:{door.socket.getsockname()[1]}"
        listener = Peers(IDENTITY, 0)

        async def give_up_once_and_admit() -> None:
            stream = await door.accept()
            handshake = Handshake(IDENTITY, 0, connects=False)
            handshake.take_hello(bytes(await stream.receive_some(HELLO_BYTES)))
            await stream.send_all(handshake.hello + handshake.proof())
            handshake.check_proof(bytes(await stream.receive_some(PROOF_BYTES)))
            stream.socket.close()
            listener._listeners.append(door)
            await listener.serve()

        nursery.start_soon(give_up_once_and_admit)
        honest = Peers(IDENTITY, 1)
        await honest.connect({0: way})
        await listener.connect({1: "it connects to us"})
        assert (sorted(honest.streams), sorted(listener.streams)) == ([0], [1])
        await honest.close()
        await listener.close()

    run(test)


NOBODY = 65534
CALL = f"""
import os, socket, sys
os.setgid({NOBODY})
os.setuid({NOBODY})
socket.socket(socket.AF_UNIX).connect(sys.argv[1])
"""


def let_in(path: Path) -> None:
    """Let everybody reach a socket."""
    path.parent.chmod(0o711)
    path.chmod(0o666)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be another user")
def test_connection_of_another_user_is_refused_even_where_the_directory_lets_them_in() -> None:
    async def test(nursery: trio.Nursery) -> None:
        peers, address = await listening(0, nursery)
        path = Path(address.unix)
        call = partial(trio.run_process, [sys.executable, "-ISc", CALL, address.unix], check=False)
        assert (await call(stderr=subprocess.DEVNULL)).returncode != 0, "0700 keeps them out"
        assert peers.refused == 0
        let_in(path)
        assert (await call()).returncode == 0
        await trio.testing.wait_all_tasks_blocked(0.02)
        line = refused(peers)
        assert line.endswith(f"a connection of user {NOBODY}, who does not own this run")
        assert f" of user {NOBODY}: " in line
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


def test_gone_peer_has_its_number() -> None:
    assert str(PeerGone(3, "it closed its connection")) == "worker 3 went away: it closed its connection"


def test_a_worker_short_of_descriptors_accepts_again_once_it_has_some() -> None:
    async def test(nursery: trio.Nursery) -> None:
        peers, address = await listening(0, nursery)
        stranger = trio.socket.socket(trio.socket.AF_UNIX, trio.socket.SOCK_STREAM)
        next_free = os.dup(0)
        os.close(next_free)
        before = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (next_free, before[1]))
        try:
            await stranger.connect(address.unix)
            await trio.testing.wait_all_tasks_blocked(0.05)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, before)
        await stranger.send(b"GET / HTTP/1.1\r\nHost: worker\r\nAccept: everything\r\n\r\n")
        with suppress(ConnectionError):
            assert await stranger.recv(100) == b""
        assert "does not speak this protocol" in refused(peers)
        stranger.close()
        await peers.close()

    run(test)
