"""Does the data path keep its order and its bounds, whatever the knobs, and cost what it should?"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any
from weakref import WeakKeyDictionary

import pytest

from actors.ncclx.algorithms.ring import OPERATION_CODES, RingCursor
from actors.ncclx.rank.rank_program import ScriptProgram
from actors.ncclx.transport.channel import RECEIVES
from actors.ncclx.transport.clear_to_send import CTS_BYTES, ReceiveEnd, SendEnd
from actors.ncclx.transport.wiring import Side
from actors.wire.message import STATUS_RETRY_EXCEEDED
from tests.ncclx.toy import US, Toy, collective, scenario

KNOBS: list[dict[str, Any]] = [
    {},
    {"admission": "none"},
    {"qps_per_connection": 3},
    {"qps_per_connection": 3, "qp_policy": "split"},
    {"qps_per_connection": 4, "qp_policy": "split", "admission": "none", "channels": 2},
    {"channels": 3, "control": "data_class"},
    {"qps_per_connection": 3, "qp_policy": "dqplb", "dqplb": {"segment": "1KiB", "most_outstanding": 2}},
    {"qps_per_connection": 2, "qp_policy": "least_loaded", "outstanding": {"connection": "5000B"}},
    {"steps": 4, "chunk_steps": 4, "slice_steps": 4},
    {"steps": 2, "chunk_steps": 2, "slice_steps": 1, "buffsize": "8KiB"},
]


def check_bounds(toy: Toy) -> None:
    """The invariants at the top of `actors.ncclx.transport.clear_to_send`, and those between the two ends of
    a connection.
    """
    for program in toy.ranks():
        check_ends(program)
    for send, receive in both_ends(toy):
        assert receive.ready <= send.posted
        if send.admitted:
            assert send.posted <= send.granted <= receive.cleared


def both_ends(toy: Toy) -> list[tuple[SendEnd, ReceiveEnd]]:
    """The two ends of each connection: worked out once, because every event asks for them."""
    if toy not in _BOTH_ENDS:
        ranks = toy.ranks()
        sides = toy.plan.wired()[0].sides
        found = _BOTH_ENDS[toy] = []
        for program in ranks:
            for send in program.ends.sends:
                lane = _lanes(sides[program.rank], send.channel, sends=True)[send.place]
                (receive,) = (
                    one
                    for one in ranks[send.peer].ends.receives
                    if (one.channel, one.peer) == (send.channel, program.rank)
                    and _lanes(sides[send.peer], one.channel, sends=False)[one.place] == lane
                )
                found.append((send, receive))
    return _BOTH_ENDS[toy]


_BOTH_ENDS: WeakKeyDictionary[Toy, list[tuple[SendEnd, ReceiveEnd]]] = WeakKeyDictionary()


def _lanes(sides: Sequence[Side], channel: int, *, sends: bool) -> list[int]:
    """Of a rank's ends of one kind on a channel."""
    return [one.lane for one in sides if (one.channel, one.sends) == (channel, sends)]


def check_ends(program: ScriptProgram) -> None:
    for send in program.ends.sends:
        assert send.freed <= send.posted <= send.filled <= send.issued <= send.freed + send.slots
    for receive in program.ends.receives:
        assert receive.recycled <= receive.taken <= receive.ready
        if receive.admitted:
            assert receive.ready <= receive.cleared <= receive.recycled + receive.slots
            assert receive.cleared <= receive.expected


def received_bytes(toy: Toy, op: str, size: int, rank: int, channel: int) -> list[int]:
    """Sizes of the slices that a rank should receive on a channel, by its number."""
    settings = toy.plan.wired()[0].settings
    ranks = len(toy.ranks())
    cursor = RingCursor(ranks, rank, settings.channels, channel, settings.chunk_bytes, settings.slice_bytes)
    cursor.begin(OPERATION_CODES[op], size)
    sizes = []
    while not cursor.done:
        if cursor.flags & RECEIVES:
            sizes.append(int(cursor.size_bytes))
        cursor.advance()
    return sizes


def whole_slices(arrived: dict[int, int]) -> list[int]:
    """Sizes of slices from those of segments, by immediate: bit 31 is set at a slice's end."""
    sizes = [0]
    for immediate in sorted(arrived, key=lambda value: value & 0x7FFFFFFF):
        sizes[-1] += arrived[immediate]
        if immediate >> 31:
            sizes.append(0)
    return sizes[:-1]


@pytest.mark.parametrize("knobs", KNOBS, ids=str)
@pytest.mark.parametrize(
    ("op", "size", "ranks"), [("all_reduce", 50_001, 3), ("all_gather", 7, 4), ("reduce_scatter", 99_999, 5)]
)
def test_buffers_are_never_overrun_and_every_slice_arrives_whole(
    knobs: dict[str, Any], op: str, size: int, ranks: int
) -> None:
    given = {"buffsize": "16KiB", **knobs}
    toy = Toy(scenario([collective(op, f"{size}B", order="strided")], hosts=ranks, ncclx=given))
    toy.run(lambda: check_bounds(toy))
    assert [row[4] for row in toy.controller.operations] == [0]
    for rank in range(ranks):
        for number in range(toy.scenario.ncclx.channels or 0):
            side = toy.side(rank, number, sends=False)
            arrived: dict[int, int] = {}
            for index, immediate, size_bytes, _ in toy.nic(side.nic).arrived:
                if index in side.pairs:
                    arrived[immediate] = arrived.get(immediate, 0) + size_bytes
            expected = received_bytes(toy, op, size, rank, number)
            if knobs.get("qp_policy") == "dqplb":
                assert whole_slices(arrived) == expected
            else:
                assert [arrived[slice_] for slice_ in sorted(arrived)] == expected
    for program in toy.ranks():
        assert not any(group.copied for group in program.calling.groups)
        assert all(send.freed == send.issued for send in program.ends.sends)
        assert all(receive.recycled == receive.ready == receive.expected for receive in program.ends.receives)


@pytest.mark.parametrize("gpus_per_host", [1, 4])
def test_without_nvlink_ranks_of_one_host_go_through_their_nics(gpus_per_host: int) -> None:
    jobs = [collective("all_reduce", "1MiB")]
    host = {"nvlink": {"enabled": False}}
    toy = Toy(scenario(jobs, hosts=8 // gpus_per_host, gpus_per_host=gpus_per_host, host=host)).run()
    data = [
        sum(size for _, _, size, _ in toy.nic(nic).arrived if size != CTS_BYTES) for nic in toy.topology.nics
    ]
    # 14 slices of 128 KiB into every NIC.
    assert data == [14 * 131072] * 8


def test_with_nvlink_only_the_ends_of_a_server_go_through_their_nics() -> None:
    toy = Toy(scenario([collective("all_reduce", "1MiB")], hosts=2, gpus_per_host=4)).run()
    data = [
        sum(size for _, _, size, _ in toy.nic(nic).arrived if size != CTS_BYTES) for nic in toy.topology.nics
    ]
    # 14 slices of 128 KiB from rank 3 to rank 4, and from rank 7 to rank 0.
    assert data == [14 * 131072, 0, 0, 0] * 2
    gpus = [toy.kernel.device(gpu) for gpu in toy.topology.gpus]
    assert [gpu.counters()[0] for gpu in gpus] == [14 * 131072, 14 * 131072, 14 * 131072, 0] * 2


def test_every_step_costs_serialisation_delay_and_a_few_doorbells() -> None:
    # 14 steps of 256 KiB among 8 ranks: (262,144 + 64) B at 400G are 5,244,160 ps, then 1 us; the first
    # WRITE also waits for its CTS: 128 B (the CTS and its headers) are 2,560 ps, then 1 us. Host messages of
    # 1 ns and more make the rest.
    toy = Toy(scenario([collective("all_reduce", "2MiB")], hosts=8)).run()
    floor = 14 * (5_244_160 + US) + 2_560 + US
    assert floor <= toy.operation_ps() <= floor + 14 * 10_000


def test_clear_to_send_is_off_the_path_while_slots_are_free() -> None:
    admitted = Toy(scenario([collective("all_reduce", "2MiB")], hosts=8)).run()
    blind = Toy(scenario([collective("all_reduce", "2MiB")], hosts=8, ncclx={"admission": "none"})).run()
    # One CTS at the beginning, and 64 B + headers among the data of each step.
    assert 0 < admitted.operation_ps() - blind.operation_ps() <= US + 15 * 2_560 + 20_000


@pytest.mark.parametrize("delay_us", [5, 10, 20, 50])
@pytest.mark.parametrize("slots", [1, 2, 4])
def test_one_channel_carries_slots_times_size_per_round_trip(slots: int, delay_us: int) -> None:
    """The window law, where the window is the limit: two ranks, chunks as large as the buffer."""
    size, loops = 65536, 16
    ncclx = {"buffsize": f"{slots * 64}KiB", "steps": slots, "chunk_steps": slots, "slice_steps": 1}
    total = 2 * slots * size * loops
    jobs = [collective("all_gather", f"{total}B")]
    took_ps = Toy(scenario(jobs, hosts=2, ncclx=ncclx), delay_us * US).run().operation_ps()
    # Per loop and slot: 65,600 B at 400G, data one way, CTS (128 B at 400G) one way.
    line_ps, cts_ps, delay_ps = 1_312_000, 2_560, delay_us * US
    period_ps = line_ps + delay_ps + max(cts_ps + delay_ps, (slots - 1) * line_ps)
    expected_ps = (loops - 1) * period_ps + slots * line_ps + delay_ps + cts_ps + delay_ps
    assert abs(took_ps - expected_ps) * 50 <= expected_ps, (took_ps, expected_ps)


def test_round_robin_sends_whole_slices_to_queue_pairs_in_turn() -> None:
    ncclx = {"qps_per_connection": 4}
    toy = Toy(scenario([collective("all_reduce", "4MiB")], hosts=8, ncclx=ncclx)).run()
    side = toy.side(0)
    writes = [(pair, size) for pair, size, _ in toy.nic(side.nic).posted if pair in side.pairs]
    assert writes == [(side.pairs[turn % 4], 524288) for turn in range(14)]


def test_split_cuts_every_slice_over_all_queue_pairs_at_128_bytes() -> None:
    ncclx = {"qps_per_connection": 3, "qp_policy": "split"}
    toy = Toy(scenario([collective("all_reduce", "80000B")], hosts=8, ncclx=ncclx)).run()
    side = toy.side(0)
    writes = [(pair, size) for pair, size, _ in toy.nic(side.nic).posted if pair in side.pairs]
    # 10,000 B / 3 rounded up to 128 B are 3,456; 3,088 are left for the third.
    assert writes == list(zip(side.pairs, (3456, 3456, 3088), strict=True)) * 14


def test_split_pieces_of_a_tiny_slice_may_be_empty() -> None:
    ncclx = {"qps_per_connection": 3, "qp_policy": "split"}
    toy = Toy(scenario([collective("all_reduce", "640B")], hosts=4, ncclx=ncclx)).run()
    side = toy.side(0)
    writes = [size for pair, size, _ in toy.nic(side.nic).posted if pair in side.pairs]
    assert writes == [128, 32, 0] * 6


def test_the_next_operation_begins_two_management_delays_after_the_last_report() -> None:
    jobs = [collective("all_gather", "64KiB", "0.5MiB", iterations=2, warmup=1)]
    toy = Toy(scenario(jobs, control={"management_delay": "30us"})).run()
    rows = toy.controller.operations
    assert [row[:2] for row in rows] == [[0, operation] for operation in range(6)]
    for before, after in pairwise(rows):
        assert 60 * US <= after[2] - before[3] <= 60 * US + 4 * US
    took = [row[3] - row[2] for row in rows]
    assert took[1] == took[2]
    assert took[4] == took[5]


def test_the_next_operation_begins_only_when_the_last_slice_was_acknowledged() -> None:
    jobs = [collective("all_gather", "64KiB", iterations=3)]
    toy = Toy(scenario(jobs, hosts=2, control={"management_delay": "30us"}), delay_ps=50 * US).run()
    rows = toy.controller.operations
    # An operation ends when its last slice is here. Its acknowledgement takes 50 us back to the sender, whose
    # report and the next order take 30 us and 51.2 ns (64 B at 10G) each; what host links add is nanoseconds.
    gaps = [after[2] - before[3] for before, after in pairwise(rows)]
    assert gaps == [pytest.approx(50 * US + 2 * (30 * US + 51_200), abs=10_000)] * 2


def test_a_failed_queue_pair_ends_the_job_with_its_status_and_leaves_the_rest_undone() -> None:
    jobs = [collective("all_reduce", "1MiB", iterations=3)]
    toy = Toy(scenario(jobs))
    side = toy.side(2)
    toy.nic(side.nic).broken.add(side.pairs[0])
    toy.run()
    assert [row[4] for row in toy.controller.operations] == [STATUS_RETRY_EXCEEDED]
    # The report takes 51.2 ns (64 B at 10G) and 100 us to the controller, which stops the run 100 us later.
    assert toy.kernel.queue.stop_ps == toy.controller.operations[0][3] + 51_200 + 200 * US


def test_a_proxy_s_cost_adds_to_every_step() -> None:
    free = Toy(scenario([collective("all_reduce", "2MiB")], hosts=8)).run().operation_ps()
    host = {"link_delay": "1ns", "link_rate": "512T", "proxy_cost": "500ns"}
    paid = Toy(scenario([collective("all_reduce", "2MiB")], hosts=8, host=host)).run().operation_ps()
    # A step waits at least for its completion and its post; at most also for a CTS and two acknowledgements.
    assert 14 * 2 * 500_000 <= paid - free <= 14 * 6 * 500_000


@pytest.mark.parametrize("knobs", KNOBS, ids=str)
def test_a_run_saved_anywhere_ends_as_if_it_had_not_been(knobs: dict[str, Any]) -> None:
    given = {"buffsize": "16KiB", **knobs}
    host = {"link_delay": "1ns", "link_rate": "512T", "proxy_cost": "100ns"}
    one = scenario([collective("all_reduce", "100KiB", iterations=2)], hosts=3, ncclx=given, host=host)
    whole = Toy(one).run()
    first, second = Toy(one), Toy(one)
    first.kernel.start()
    first.kernel.run(1 << 61, whole.kernel.events * 2 // 5)
    for device, other in zip(first.kernel.hosted(), second.kernel.hosted(), strict=True):
        other.load(device.save())
    for event in first.kernel.queue.pending():
        second.kernel.queue.push(event)
    for nic in first.topology.nics:
        second.nic(nic).free_ps = first.nic(nic).free_ps
        second.nic(nic).host.free_ps = first.nic(nic).host.free_ps
    second.kernel.queue.now_ps = first.kernel.queue.now_ps
    second.kernel.run(1 << 61, 10**7)
    assert second.controller.operations == whole.controller.operations
    assert [d.all_mixes() for d in second.kernel.hosted()] == [d.all_mixes() for d in whole.kernel.hosted()]
