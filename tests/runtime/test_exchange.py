"""Bodies cross sockets whole, in order, both ways at once; what is no frame ends the connection by name."""

import socket
import struct
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu.errors import ProtocolError
from emu.runtime.workers.exchange import (
    LENGTH,
    MOST_BODY_BYTES,
    QUIET_BYTES,
    PeerGone,
    SocketExchange,
    Unframer,
    framed,
)
from tests.runtime.patience import PATIENCE_S

LARGE = 3_000_000
"""More than the buffers of a socket hold."""


def pair() -> tuple[SocketExchange, socket.socket]:
    """An exchange whose only peer, 1, is a plain socket."""
    mine, theirs = socket.socketpair()
    return SocketExchange({1: mine}), theirs


@given(st.lists(st.binary(min_size=1, max_size=50), max_size=8), st.data())
def test_stream_is_cut_into_bodies_wherever_it_was_split(bodies: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(framed(body) for body in bodies)
    unframer, found = Unframer(), []
    while stream:
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
    with pytest.raises(ProtocolError):
        exchange.receive(PATIENCE_S)
    exchange.close()
    theirs.close()


def test_two_workers_with_full_buffers_never_wait_for_each_other() -> None:
    left, right = socket.socketpair()
    ends = (SocketExchange({1: left}), SocketExchange({0: right}))
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


def test_last_words_of_a_peer_that_closed_are_read_before_its_end_is_told() -> None:
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
