"""Does a ring leave its servers by another NIC on every channel, and do the right bytes go round it?"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from actors.ncclx.graph import ring_order
from emu import api
from emu.results.summary import Collective
from tests.scenario.plain import plain

FOUR_BY_FOUR = (0,) * 4 + (1,) * 4 + (2,) * 4 + (3,) * 4


def crossings(nodes: tuple[int, ...], channels: int, channel: int) -> list[tuple[int, int]]:
    """(place in its server of the GPU that the ring leaves by, of the one that it comes in by)."""
    order = ring_order(nodes, channels, channel)
    local = [rank - nodes.index(nodes[rank]) for rank in range(len(nodes))]
    return [
        (local[one], local[other])
        for one, other in pairwise([*order, order[0]])
        if nodes[one] != nodes[other]
    ]


def test_channels_come_in_pairs_that_are_the_other_way_round_on_every_other_server() -> None:
    orders = [ring_order(FOUR_BY_FOUR[:8], 4, channel) for channel in range(4)]
    assert orders == [
        (0, 1, 2, 3, 7, 6, 5, 4),
        (3, 2, 1, 0, 4, 5, 6, 7),
        (2, 3, 0, 1, 5, 4, 7, 6),
        (1, 0, 3, 2, 6, 7, 4, 5),
    ]


def test_an_odd_number_of_channels_begins_one_gpu_further_on_each() -> None:
    orders = [ring_order(FOUR_BY_FOUR[:8], 3, channel) for channel in range(3)]
    assert orders == [(0, 1, 2, 3, 4, 5, 6, 7), (1, 2, 3, 0, 5, 6, 7, 4), (2, 3, 0, 1, 6, 7, 4, 5)]


@pytest.mark.parametrize("gpus", [2, 3, 4, 8])
@pytest.mark.parametrize("servers", [2, 4, 6])
def test_with_as_many_channels_as_gpus_every_nic_is_left_by_and_come_in_by_once(
    gpus: int, servers: int
) -> None:
    nodes = tuple(server for server in range(servers) for _ in range(gpus))
    channels = gpus if gpus % 2 == 0 else 2 * gpus
    ways = [crossings(nodes, channels, channel) for channel in range(channels)]
    for server in range(servers):
        left = sorted(way[server][0] for way in ways)
        come_in = sorted(way[server - 1][1] for way in ways)
        assert left == come_in == sorted([*range(gpus)] * (channels // gpus))
    assert all(one == other for way in ways for one, other in way), "a ring changes rails"


def test_a_second_nic_of_the_gpus_has_its_turn() -> None:
    # Channel c takes NIC c modulo 2 of a GPU: eight channels leave server 0 by four GPUs' two NICs each.
    left = [(crossings(FOUR_BY_FOUR, 8, channel)[0][0], channel % 2) for channel in range(8)]
    assert sorted(left) == [(gpu, nic) for gpu in range(4) for nic in range(2)]


@pytest.mark.parametrize(
    ("nodes", "channels"),
    [(FOUR_BY_FOUR, 1), ((0, 0, 0, 0), 4), ((0, 1, 2, 3) * 2, 4)],
    ids=["one channel", "one server", "from server to server at every step"],
)
def test_an_order_with_nothing_to_gain_stays_as_it_is(nodes: tuple[int, ...], channels: int) -> None:
    assert {ring_order(nodes, channels, channel) for channel in range(channels)} == {tuple(range(len(nodes)))}


def row_of(op: str, size: str, channels: int, workload: dict[str, Any], **ncclx: Any) -> Collective:
    """Three servers of three GPUs: what turns is odd, and the ring closes between two even servers."""
    scenario = plain(
        {
            "name": "turned",
            "payload": "real",
            "topology": {"kind": "ai_zone", "racks": 3, "hosts_per_rack": 1, "gpus_per_host": 3, "spines": 3},
            "ncclx": {"channels": channels, "buffsize": "8KiB"} | ncclx,
            "jobs": [
                {"name": "bench", "workload": {"kind": "collective", "op": op, "sizes": [size], **workload}}
            ],
        }
    )
    result = api.run(api.load(scenario), local=True)
    return result.summary.jobs["bench"].collectives[0]


@pytest.mark.parametrize("channels", [2, 3])
@pytest.mark.parametrize("op", ["all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce"])
def test_every_channel_s_ring_brings_the_right_bytes(op: str, channels: int) -> None:
    # 9,000 B over nine ranks and channels: shares, slices and (all_gather) blocks that do not come out even.
    size = {"all_gather": "9004B", "reduce_scatter": "9000B"}.get(op, "9008B")
    workload = {"algorithm": "ring"} | ({"root": 4} if op in ("broadcast", "reduce") else {})
    row = row_of(op, size, channels, workload)
    assert (row.status, row.wrong) == ("success", 0)


def test_a_split_communicator_has_rings_of_its_own() -> None:
    row = row_of("all_gather", "6KiB", 2, {"algorithm": "ring", "split": [0, 0, 0, 0, 0, 1, 1, 1, 1]})
    assert (row.status, row.wrong) == ("success", 0)


def carried(order: str) -> tuple[dict[str, int], int]:
    """Payload that each NIC of the first of two servers sends, and what crosses the spines of a fabric whose
    leaves are rails. A ring on two channels, in two servers of four GPUs.
    """
    shape = {"segments_per_pod": 1, "hosts_per_segment": 2, "gpus_per_host": 4, "nic_ports": 1, "planes": 1}
    given = {
        "name": "rails",
        "topology": {"kind": "hpn", **shape, "aggs_per_plane": 2},
        "ncclx": {"channels": 2, "ring_order": order, "protocol": "simple", "admission": "none"},
        "jobs": [
            {
                "name": "bench",
                "workload": {
                    "kind": "collective",
                    "op": "all_gather",
                    "algorithm": "ring",
                    "sizes": ["8MiB"],
                },
            }
        ],
    }
    links = api.run(given, local=True, diagnose=False).summary.fabric.links
    sent = {one.source: one.data_bytes for one in links if one.source.startswith("nic-0-") and one.data_bytes}
    return sent, sum(one.data_bytes for one in links if one.destination.startswith("agg-"))


def test_nccl_cross_nic_0_1_and_2_are_three_behaviours() -> None:
    """Each channel brings 7 of 8 blocks of half of 8 MiB out of a server, and as much out of the other.

    2: a ring leaves by rail 3 and comes back by rail 0, its pair the other way round. 1: the rings leave by
    rails 3 and 0 and come in by 0 and 1: all crosses the spines. 0: they leave and come in by 0 and by 1.
    """
    each = 7 * 2**19
    assert carried("by_channel") == ({"nic-0-0": each, "nic-0-3": each}, 0)
    assert carried("crossing") == ({"nic-0-3": each, "nic-0-0": each}, 4 * each)
    assert carried("one_rail") == ({"nic-0-0": each, "nic-0-1": each}, 0)
