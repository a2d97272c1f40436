"""A body that arrives over TCP is the one its peer sent next, or the connection is given up."""

from collections.abc import Callable
from hashlib import blake2b

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from emu.base.errors import ProtocolError
from emu.cluster.workers.exchange import MAC_BYTES, Seal, framed
from emu.cluster.workers.peers import Handshake, RunIdentity, StreamExchange
from tests.engine.patience import PATIENCE_S

KEY = bytes(range(32))
BODIES = st.lists(st.binary(max_size=200), min_size=1, max_size=6)


def handshakes(run: str = "run", secret: bytes = b"s" * 32) -> tuple[Handshake, Handshake]:
    """Both sides of a connection that have each other's hello."""
    connector = Handshake(RunIdentity(run, secret, 2), 1, connects=True)
    listener = Handshake(RunIdentity(run, secret, 2), 0, connects=False)
    connector.take_hello(listener.hello)
    listener.take_hello(connector.hello)
    return connector, listener


@given(BODIES)
def test_bodies_come_out_as_they_went_in_on_both_ways(bodies: list[bytes]) -> None:
    connector, listener = handshakes()
    (ours_out, ours_in), (theirs_out, theirs_in) = connector.seals(), listener.seals()
    for body in bodies:
        assert theirs_in.open(ours_out.close(body)) == body
        assert ours_in.open(theirs_out.close(body[::-1])) == body[::-1]


@given(BODIES, st.data())
def test_a_stream_with_any_byte_changed_is_refused_at_that_body(
    bodies: list[bytes], data: st.DataObject
) -> None:
    sender, receiver = Seal(KEY), Seal(KEY)
    sealed = [sender.close(body) for body in bodies]
    wrong = data.draw(st.integers(0, len(bodies) - 1))
    at = data.draw(st.integers(0, len(sealed[wrong]) - 1))
    broken = bytearray(sealed[wrong])
    broken[at] ^= 1 << data.draw(st.integers(0, 7))
    for number in range(wrong):
        assert receiver.open(sealed[number]) == bodies[number]
    with pytest.raises(ProtocolError, match=f"frame {wrong} was changed, repeated or left out"):
        receiver.open(bytes(broken))


@pytest.mark.parametrize(
    "meddle",
    [
        lambda sealed: [sealed[0], sealed[0]],
        lambda sealed: [sealed[1]],
        lambda sealed: [sealed[1], sealed[0]],
        lambda sealed: [sealed[0][:-1]],
        lambda sealed: [sealed[0] + b"\0"],
        lambda sealed: [b""],
        lambda sealed: [sealed[0][:MAC_BYTES]],
    ],
    ids=["repeated", "left out", "swapped", "cut short", "made longer", "empty", "no body"],
)
def test_a_body_that_is_not_the_next_one_is_refused(meddle: Callable[[list[bytes]], list[bytes]]) -> None:
    sender, receiver = Seal(KEY), Seal(KEY)
    sealed = [sender.close(body) for body in (b"one", b"two")]
    *before, last = meddle(sealed)
    if before and before[0] == sealed[0]:
        assert receiver.open(before.pop()) == b"one"
    elif before:
        last = before[0]
    with pytest.raises(ProtocolError):
        receiver.open(last)


def test_the_seal_is_keyed_blake2b_over_number_and_body() -> None:
    seal = Seal(KEY)
    for number, body in enumerate((b"one", b"two")):
        expected = blake2b(number.to_bytes(8, "little") + body, digest_size=16, key=KEY).digest()
        assert seal.close(body) == expected + body


def test_what_was_sent_elsewhere_is_worth_nothing() -> None:
    connector, listener = handshakes()
    sealed = connector.seals()[0].close(b"body")
    assert listener.seals()[1].open(sealed) == b"body"
    with pytest.raises(ProtocolError):
        connector.seals()[1].open(sealed)  # sent back
    for other in (handshakes(), handshakes(run="another"), handshakes(secret=b"t" * 32)):
        with pytest.raises(ProtocolError):
            other[1].seals()[1].open(sealed)


def test_a_frame_slipped_into_a_tcp_stream_ends_the_exchange_by_name() -> None:
    async def test() -> None:
        async with trio.open_nursery() as nursery:
            listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
            left = await trio.open_tcp_stream("127.0.0.1", listeners[0].socket.getsockname()[1])
            right = await listeners[0].accept()
            token = trio.lowlevel.current_trio_token()
            connector, listener = handshakes()
            one = StreamExchange({0: left}, token, nursery.start_soon, {0: connector.seals()})
            other = StreamExchange({1: right}, token, nursery.start_soon, {1: listener.seals()})

            def talk() -> list[tuple[int, bytes]]:
                one.send(0, b"a body")
                one.flush(PATIENCE_S)
                return other.receive(PATIENCE_S)

            assert await trio.to_thread.run_sync(talk) == [(1, b"a body")]
            await left.send_all(framed(Seal(b"guess").close(b"a stranger's")))
            with pytest.raises(ProtocolError, match="from worker 1: frame 1 was changed"):
                await trio.to_thread.run_sync(other.receive, PATIENCE_S)
            left.socket.close()
            right.socket.close()
            await listeners[0].aclose()
            nursery.cancel_scope.cancel()

    trio.run(test)
