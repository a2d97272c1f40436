"""Bodies move over trio's streams on behalf of another thread, and a peer that floods is cut off."""

import pytest
import trio
import trio.testing

from emu.base.errors import EmuError, ProtocolError
from emu.cluster.workers import peers as peers_module
from emu.cluster.workers.exchange import LENGTH, framed
from emu.cluster.workers.peers import StreamExchange
from tests.engine.patience import PATIENCE_S
from tests.engine.under_trio import run


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
                    bodies = [body for _, body in end.receive(PATIENCE_S)]
                assert bodies == [large]
            one.flush(PATIENCE_S)

        await trio.to_thread.run_sync(talk)
        await left.send_all(LENGTH.pack(0))
        with pytest.raises(ProtocolError, match="from worker 0: a frame of 0 bytes"):
            await trio.to_thread.run_sync(other.receive, PATIENCE_S)
        await left.send_all(framed(b"more"))
        left.socket.close()
        with pytest.raises(EmuError):
            await trio.to_thread.run_sync(lambda: [one.receive(PATIENCE_S) for _ in range(3)])
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
                flooded.receive(PATIENCE_S)

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
