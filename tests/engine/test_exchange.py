"""Bodies cross sockets whole, in order, both ways at once; what is no frame ends the connection by name."""

import socket
import struct
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu.base.errors import ProtocolError
from emu.cluster.workers.exchange import (
    LENGTH,
    MOST_BODY_BYTES,
    QUIET_BYTES,
    PeerGone,
    Seal,
    SocketExchange,
    Unframer,
    framed,
)
from tests.engine.patience import PATIENCE_S

LARGE = 3_000_000
"""More than the buffers of a socket hold."""


def pair() -> tuple[SocketExchange, socket.socket]:
    """An exchange whose only peer, 1, is a plain socket."""
    mine, theirs = socket.socketpair()
    return SocketExchange({1: mine}), theirs


def tcp_pair() -> tuple[socket.socket, socket.socket]:
    """Two ends of a TCP connection over loopback."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        mine = socket.create_connection(listener.getsockname())
        theirs, _ = listener.accept()
    return mine, theirs


def seals(connects: bool) -> tuple[Seal, Seal]:
    """What one end of a TCP connection closes and opens bodies with."""
    keys = (b"from the connector", b"from the listener")
    ours, theirs = keys if connects else keys[::-1]
    return Seal(ours), Seal(theirs)


def ends_of(kind: str) -> tuple[SocketExchange, SocketExchange]:
    """Workers 0 and 1, connected."""
    if kind == "unix":
        left, right = socket.socketpair()
        return SocketExchange({1: left}), SocketExchange({0: right})
    left, right = tcp_pair()
    return SocketExchange({1: left}, seals={1: seals(True)}), SocketExchange(
        {0: right}, seals={0: seals(False)}
    )


def sealed_pair() -> tuple[SocketExchange, socket.socket, Seal]:
    """An exchange whose only peer, 1, is a plain TCP socket, and the seal that it expects."""
    mine, theirs = tcp_pair()
    return SocketExchange({1: mine}, seals={1: seals(True)}), theirs, seals(False)[0]


@given(st.lists(st.binary(min_size=1, max_size=50), max_size=8), st.data())
def test_stream_is_cut_into_bodies_wherever_it_was_split(bodies: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(framed(body) for body in bodies)
    unframer, found = Unframer(), []
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        found += unframer.feed(stream[:size])
        stream = stream[size:]
    assert found == bodies


@given(st.lists(st.binary(min_size=1, max_size=50), max_size=8), st.data())
def test_rest_of_a_frame_is_put_where_it_belongs(bodies: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(framed(body) for body in bodies)
    unframer, found = Unframer(), []
    while stream:
        if unframer.lacking:
            with unframer.room(data.draw(st.integers(1, 60))) as room:
                size = data.draw(st.integers(1, len(room)))
                assert len(room) <= unframer.lacking
                room[:size] = stream[:size]
            found += unframer.take(size)
        else:
            size = data.draw(st.integers(1, len(stream)))
            found += unframer.feed(stream[:size])
        stream = stream[size:]
    assert found == bodies


@pytest.mark.parametrize("length", [0, MOST_BODY_BYTES + 1, 2**32 - 1])
def test_length_out_of_bounds_is_refused_before_the_body_is_read(length: int) -> None:
    with pytest.raises(ProtocolError, match=f"a frame of {length} bytes"):
        Unframer().feed(LENGTH.pack(length))
    exchange, theirs = pair()
    theirs.sendall(struct.pack("<I", length) + b"x")
    with pytest.raises(ProtocolError, match=f"from worker 1: a frame of {length} bytes"):
        exchange.receive(PATIENCE_S)
    exchange.close()
    theirs.close()


@pytest.mark.parametrize("kind", ["unix", "tcp"])
def test_two_workers_with_full_buffers_never_wait_for_each_other(kind: str) -> None:
    ends = ends_of(kind)
    received: list[list[bytes]] = [[], []]

    def work(me: int) -> None:
        for turn in range(4):
            ends[me].send(1 - me, bytes([turn + 1]) * LARGE)
        while len(received[me]) < 4:
            received[me] += [body for _, body in ends[me].receive(PATIENCE_S)]
        ends[me].flush(PATIENCE_S)

    threads = [threading.Thread(target=work, args=(me,), daemon=True) for me in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert not any(thread.is_alive() for thread in threads)
    for bodies in received:
        assert [(len(body), body[0]) for body in bodies] == [(LARGE, turn) for turn in (1, 2, 3, 4)]
    for end in ends:
        end.close()


def test_each_body_says_whose_it_is() -> None:
    mine, theirs = zip(*(socket.socketpair() for _ in range(3)), strict=True)
    exchange = SocketExchange(dict(enumerate(mine, start=1)))
    theirs[2].sendall(framed(b"three"))
    theirs[0].sendall(framed(b"one"))
    assert sorted(exchange.receive(PATIENCE_S)) == [(1, b"one"), (3, b"three")]
    exchange.send(2, b"hello")
    assert theirs[1].recv(100) == framed(b"hello")
    exchange.close()
    for end in theirs:
        end.close()


def test_bodies_of_unix_and_of_sealed_tcp_connections_come_in_one_exchange() -> None:
    near, near_theirs = socket.socketpair()
    far, far_theirs = tcp_pair()
    exchange = SocketExchange({1: near, 2: far}, seals={2: seals(True)})
    far_theirs.sendall(framed(seals(False)[0].close(b"from afar")))
    near_theirs.sendall(framed(b"from here"))
    found: list[tuple[int, bytes]] = []
    while len(found) < 2:
        found += exchange.receive(PATIENCE_S)
    assert sorted(found) == [(1, b"from here"), (2, b"from afar")]
    exchange.close()
    near_theirs.close()
    far_theirs.close()


def test_every_tcp_connection_sends_at_once_and_has_a_seal() -> None:
    mine, theirs = tcp_pair()
    with pytest.raises(AssertionError, match="the connection to worker 1 has no seal"):
        SocketExchange({1: mine})
    mine.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 0)
    exchange = SocketExchange({1: mine}, seals={1: seals(True)})
    assert mine.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0
    assert mine.gettimeout() == 0
    exchange.close()
    theirs.close()


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (framed(b"no seal at all, but as long as one"), "frame 1 was changed, repeated or left out"),
        (framed(b"short"), "frame 1 was changed, repeated or left out"),
        (framed(seals(False)[0].close(b"first")), "frame 1 was changed, repeated or left out"),
        (framed(seals(True)[0].close(b"second")), "frame 1 was changed, repeated or left out"),
        (LENGTH.pack(0), "a frame of 0 bytes"),
        (LENGTH.pack(MOST_BODY_BYTES + 1), f"a frame of {MOST_BODY_BYTES + 1} bytes"),
    ],
    ids=["no seal", "shorter than a seal", "repeated", "sent back", "empty", "too long"],
)
def test_what_a_tcp_peer_did_not_seal_next_ends_the_exchange_with_its_number(
    said: bytes, reason: str
) -> None:
    exchange, theirs, closes = sealed_pair()
    theirs.sendall(framed(closes.close(b"first")))
    assert exchange.receive(PATIENCE_S) == [(1, b"first")]
    theirs.sendall(said)
    with pytest.raises(ProtocolError, match=f"from worker 1: {reason}"):
        exchange.receive(PATIENCE_S)
    exchange.close()
    theirs.close()


def test_tcp_peer_that_resets_its_connection_is_named() -> None:
    exchange, theirs, _ = sealed_pair()
    theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    theirs.close()
    with pytest.raises(PeerGone, match="worker 1 went away: Connection reset by peer"):
        exchange.receive(PATIENCE_S)
    exchange.close()


def test_nothing_to_receive_ends_with_the_timeout() -> None:
    exchange, theirs = pair()
    assert exchange.receive(0.01) == []
    exchange.close()
    theirs.close()


def test_peer_that_goes_away_is_named() -> None:
    exchange, theirs = pair()
    theirs.sendall(framed(b"last words")[:-3])
    theirs.close()
    with pytest.raises(PeerGone, match="worker 1 went away"):
        _ = [exchange.receive(PATIENCE_S) for _ in range(3)]
    exchange.close()


def test_what_is_left_to_send_is_flushed() -> None:
    exchange, theirs = pair()
    exchange.send(1, b"x" * LARGE)
    read: list[int] = []

    def drain() -> None:
        while sum(read) < LARGE + LENGTH.size:
            read.append(len(theirs.recv(1 << 20)))

    thread = threading.Thread(target=drain, daemon=True)
    thread.start()
    exchange.flush(PATIENCE_S)
    thread.join(PATIENCE_S)
    assert sum(read) == LARGE + LENGTH.size
    exchange.close()
    theirs.close()


def test_last_words_of_a_peer_that_closed_are_read_before_its_end_is_reported() -> None:
    """A frame that fills the first read to the byte, behind which the connection has ended already."""
    exchange, theirs = pair()
    words = b"w" * (QUIET_BYTES - LENGTH.size)
    theirs.sendall(framed(words) + framed(b"and why"))
    theirs.close()
    exchange.send(1, b"nobody reads this")
    heard: list[bytes] = []
    while len(heard) < 2:
        heard += [body for _, body in exchange.receive(PATIENCE_S)]
    assert heard == [words, b"and why"]
    with pytest.raises(PeerGone, match="worker 1 went away"):
        exchange.receive(PATIENCE_S)
    exchange.close()


def test_last_words_of_one_peer_outlive_that_another_closed_in_the_same_moment() -> None:
    mine, theirs = zip(*(socket.socketpair() for _ in range(2)), strict=True)
    exchange = SocketExchange(dict(enumerate(mine, start=1)))
    theirs[0].close()
    theirs[1].sendall(framed(b"it is my fault"))
    theirs[1].close()
    assert exchange.receive(PATIENCE_S) == [(2, b"it is my fault")]
    with pytest.raises(PeerGone, match="worker 1 went away"):
        exchange.receive(PATIENCE_S)
    exchange.close()
