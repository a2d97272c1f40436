"""Does each policy choose as it says, keep its state, and give one answer however it runs?"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from actors.kernel.device import Plain
from actors.kernel.mixing import Stream
from actors.switch.switch import Switch
from actors.wire.frame import WRITE_MIDDLE, Frame, wire_size
from emu.base.errors import ScenarioError
from emu.scenario.dump import to_yaml
from emu.scenario.load import load_text
from tests.fabric.rig import Fabric
from tests.fabric.sections import scenario, zone

ROOT = Path(__file__).parents[2]
SPINES = 4
DOWN = 4
"""Hosts of a rack: the leaf's first ports."""


def fabric(routing: dict[str, Any], **zone_more: Any) -> Fabric:
    return Fabric(scenario(zone(2, DOWN, SPINES, **zone_more), routing=routing))


def leaf(one: Fabric) -> Switch:
    return one.switch("rtsw-0")


def frame(one: Fabric, dst: int, qpn: int = 77, udp_source: int = 50_000, psn: int = 0) -> Frame:
    """A full frame from NIC 0 to another NIC."""
    topology = one.topology
    src_address, dst_address = (topology.address_of(topology.nics[nic]) for nic in (0, dst))
    return Frame(
        WRITE_MIDDLE, 3, src_address, dst_address, udp_source, qpn, psn, 4096, wire_size(WRITE_MIDDLE, 4096)
    )


def uplinks(switch: Switch) -> list[int]:
    """Frames sent on each uplink of a leaf so far."""
    return [int(port.sent_frames) for port in list(switch.ports)[DOWN:]]


def send(one: Fabric, frames: list[Frame], every_ps: int = 100_000_000, port: int = 0) -> list[int]:
    """Let frames arrive at NIC 0's leaf, far apart, by its port or another; the uplink that each took."""
    taken = []
    switch = leaf(one)
    for given in frames:
        at_ps = int(one.queue.now_ps) + every_ps
        given.time_ps = at_ps
        given.key = (switch.number << 44) | (3 << 39) | (port << 28)
        before = uplinks(switch)
        one.queue.push(given)
        one.run(at_ps + 1)
        after = uplinks(switch)
        changed = [at for at, (x, y) in enumerate(zip(before, after, strict=True)) if x != y]
        taken += changed or [-1]
    return taken


def test_pinning_follows_the_slice_of_the_destination_whatever_the_flow() -> None:
    one = fabric({"kind": "path_pinning"})
    stream = Stream(3, 0, 0)
    for destination in range(DOWN, 2 * DOWN):
        flows = [frame(one, destination, stream.below(1 << 24), 49152 + turn) for turn in range(8)]
        assert send(one, flows) == [destination - DOWN] * 8


def test_a_pinned_flow_keeps_its_path_while_another_is_down_and_hashes_while_its_own_is() -> None:
    one = fabric({"kind": "path_pinning", "convergence": "1us"})
    one.set_link("rtsw-0:ctsw-1", 1_000_000, up=False)
    one.run(3_000_000)
    assert send(one, [frame(one, DOWN + 2)] * 1) == [2]
    moved = send(one, [frame(one, DOWN + 1, qpn=turn) for turn in range(60)])
    assert sorted(set(moved)) == [0, 2, 3]
    one.set_link("rtsw-0:ctsw-1", int(one.queue.now_ps) + 1_000_000, up=True)
    assert send(one, [frame(one, DOWN + 1)]) == [1]


def test_round_robin_takes_every_member_in_turn() -> None:
    one = fabric({"kind": "spray", "allow_reordering": True})
    taken = send(one, [frame(one, DOWN, psn=turn) for turn in range(12)])
    assert taken == [(taken[0] + turn) % SPINES for turn in range(12)]


def test_random_spray_is_fair_and_repeats_with_the_seed() -> None:
    one, again = (fabric({"kind": "spray", "order": "random", "allow_reordering": True}) for _ in range(2))
    taken = send(one, [frame(one, DOWN, psn=turn) for turn in range(400)])
    assert taken == send(again, [frame(again, DOWN, psn=turn) for turn in range(400)])
    # Six standard deviations of a fair draw: 100 +- 52.
    assert all(48 <= taken.count(member) <= 152 for member in range(SPINES))


def test_a_flowlet_stays_and_a_gap_ends_it() -> None:
    one = fabric({"kind": "flowlet", "gap": "10us"})
    together = send(one, [frame(one, DOWN, psn=turn) for turn in range(40)], every_ps=9_999_999)
    assert len(set(together)) == 1
    apart = send(one, [frame(one, DOWN, psn=turn) for turn in range(40)], every_ps=10_000_000)
    assert len(set(apart)) == SPINES


def test_adaptive_takes_what_would_send_first() -> None:
    exact = {"granularity": "packet", "grade": "1B"}
    one = fabric({"kind": "adaptive", "allow_reordering": True, **exact})
    # Four at once fill four uplinks; a fifth at half rate would wait for the first of them.
    taken = send(one, [frame(one, DOWN, psn=turn) for turn in range(8)], every_ps=10_000)
    assert sorted(taken[:4]) == [0, 1, 2, 3]
    assert [port.queues[3].queued_bytes for port in list(leaf(one).ports)[DOWN:]] == [4178] * 4


@pytest.mark.parametrize(
    "routing",
    [
        {"kind": "adaptive", "granularity": "packet"},
        {"kind": "adaptive", "gap": "1us"},
        {"kind": "flowlet", "gap": "1us"},
        {"kind": "spray"},
        {"kind": "spray", "order": "random"},
    ],
)
def test_whoever_chooses_passes_over_its_own_links_that_are_down_at_once(routing: dict[str, Any]) -> None:
    reordering = {} if routing["kind"] == "flowlet" else {"allow_reordering": True}
    one = fabric(routing | reordering)
    one.set_link("rtsw-0:ctsw-1", 1_000_000, up=False, converge=False)
    one.run(2_000_000)
    taken = send(one, [frame(one, DOWN, psn=turn) for turn in range(40)])
    assert set(taken) == {0, 2, 3}


@pytest.mark.parametrize("routing", [{"kind": "flowlet"}, {"kind": "adaptive", "granularity": "flowlet"}])
def test_a_flowlet_leaves_a_link_that_goes_down_with_its_next_packet(routing: dict[str, Any]) -> None:
    one = fabric(routing | {"gap": "1s"})
    (first,) = send(one, [frame(one, DOWN)])
    one.set_link(f"rtsw-0:ctsw-{first}", int(one.queue.now_ps) + 1, up=False, converge=False)
    one.run(int(one.queue.now_ps) + 2)
    (then,) = {*send(one, [frame(one, DOWN, psn=turn) for turn in range(1, 9)])}
    assert then not in (first, -1)


def test_flowlets_among_equals_take_turns() -> None:
    one = fabric({"kind": "adaptive", "gap": "1us", "allow_reordering": True})
    taken = send(one, [frame(one, DOWN, psn=turn) for turn in range(8)])
    assert sorted(taken[:4]) == sorted(taken[4:]) == [0, 1, 2, 3]


def test_packets_draw_among_members_of_a_grade_and_leave_one_that_is_fuller() -> None:
    packets = {"granularity": "packet", "allow_reordering": True}
    one = fabric({"kind": "adaptive", **packets})
    taken = send(one, [frame(one, DOWN, psn=turn) for turn in range(400)])
    for member in range(4):  # a quarter each, within six standard deviations
        assert abs(taken.count(member) - 100) < 6 * (400 * 3 / 16) ** 0.5
    # 40 frames at once: nobody is a grade of 8 frames and one on the wire ahead of the emptiest.
    one = fabric({"kind": "adaptive", **packets, "grade": f"{8 * 4178}B"})
    send(one, [frame(one, DOWN, psn=turn) for turn in range(40)], every_ps=1)
    waiting = [port.queues[3].queued_bytes // 4178 for port in list(leaf(one).ports)[DOWN:]]
    assert max(waiting) - min(waiting) <= 8 + 1


def test_weights_hold_in_every_hash() -> None:
    one = fabric({"kind": "ecmp", "link_weights": [{"link": "rtsw-0:ctsw-2", "weight": 5}]})
    taken = send(one, [frame(one, DOWN, udp_source=49152 + turn) for turn in range(800)])
    # Shares 1, 1, 5, 1 of 8; six standard deviations.
    for member, share in enumerate((1, 1, 5, 1)):
        spread = 6 * (800 * share / 8 * (1 - share / 8)) ** 0.5
        assert abs(taken.count(member) - 100 * share) < spread


def test_a_hash_over_the_port_of_entry_gives_one_flow_a_path_for_each_port() -> None:
    one = fabric({"kind": "ecmp", "hash": "xor_fold", "fields": ["ingress_port"]})
    taken = [send(one, [frame(one, DOWN)], port=port)[0] for port in range(DOWN)]
    # XOR folding of two bytes is the number itself, and the seed: each port another of four.
    assert sorted(taken) == list(range(SPINES))


def test_a_hash_over_the_dscp_gives_classes_paths_of_their_own() -> None:
    one = fabric({"kind": "ecmp", "hash": "crc16", "fields": ["dscp"]})
    flows = [frame(one, DOWN) for _ in range(SPINES)]
    for dscp, flow in enumerate(flows):
        flow.dscp = dscp
    # The CRC of a byte below 4 is that many times 0x1021, plus the seed's: each another of four.
    assert sorted(send(one, flows)) == list(range(SPINES))


def test_a_snapshot_is_taken_on_by_a_fabric_that_hashes_otherwise() -> None:
    hashes: tuple[dict[str, Any], ...] = ({}, {"hash": "crc32"}, {"fields": ["dst", "ingress_port"]})
    for before in hashes:
        for after in hashes:
            one, other = (fabric({"kind": "e_ecmp", **knobs}) for knobs in (before, after))
            first = send(one, [frame(one, DOWN)])
            other.load(one.save())
            assert uplinks(leaf(other)).count(1) == 1
            assert uplinks(leaf(other))[first[0]] == 1
            # Its own hash from then on: what a fabric does that had it from the start.
            afresh = fabric({"kind": "e_ecmp", **after})
            flows = [[frame(made, DOWN, qpn=turn) for turn in range(8)] for made in (other, afresh)]
            assert send(other, flows[0]) == send(afresh, flows[1])


def test_capacity_weighs_unequal_links() -> None:
    nodes = [{"name": f"host-{n}", "role": "host"} for n in "ab"]
    nodes += [{"name": f"nic-{n}", "role": "nic", "host": f"host-{n}"} for n in "ab"]
    nodes += [{"name": n, "role": "switch"} for n in ("left", "right", "up", "down")]
    links = [("nic-a", "left", "400G"), ("nic-b", "right", "400G"), ("left", "up", "400G")]
    links += [("left", "down", "100G"), ("up", "right", "400G"), ("down", "right", "400G")]
    topology = {
        "kind": "graph",
        "nodes": nodes,
        "links": [{"a": a, "b": b, "rate": rate, "delay": "500ns"} for a, b, rate in links],
    }
    one = Fabric(scenario(topology, routing={"weights": "capacity"}))
    group = one.switch("left")._groups[1]
    assert list(group.ports) == [1, 1, 1, 1, 2]


@pytest.mark.parametrize(
    "routing",
    [
        {"kind": "spray", "allow_reordering": True},
        {"kind": "spray", "order": "random", "allow_reordering": True},
        {"kind": "flowlet", "gap": "1us"},
        {"kind": "adaptive", "granularity": "packet", "allow_reordering": True},
        {"kind": "adaptive", "gap": "1us"},
        {"hash": "crc32", "bit_offset": [3]},
        {"kind": "traffic_engineering"},
    ],
)
def test_a_policy_goes_on_from_a_snapshot_as_if_nothing_had_been(routing: dict[str, Any]) -> None:
    one, other = fabric(routing), fabric(routing)
    send(one, [frame(one, DOWN, psn=turn) for turn in range(37)])
    state: list[Plain] = leaf(one).save()
    leaf(other).load(state)
    other.queue.now_ps = one.queue.now_ps
    for count in range(20):
        mine, theirs = (send(each, [frame(each, DOWN, psn=count)]) for each in (one, other))
        assert mine == theirs


@pytest.fixture
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The worked example of the page, as a module that can be imported."""
    page = (ROOT / "docs/routing.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (tmp_path / "halves.py").write_text(code, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    yield "halves:Halves"
    sys.modules.pop("halves", None)


def test_the_example_of_the_page_routes(example: str) -> None:
    one = fabric({"kind": example, "swapped": True})
    taken = send(one, [frame(one, DOWN, qpn=2 * turn, udp_source=50_000 + turn) for turn in range(50)])
    assert sorted(set(taken)) == [2, 3]
    taken = send(one, [frame(one, DOWN, qpn=2 * turn + 1, udp_source=50_000 + turn) for turn in range(50)])
    assert sorted(set(taken)) == [0, 1]


def test_its_knobs_are_checked_and_written_like_all_others(example: str) -> None:
    text = (ROOT / "scenarios/start/permutation.yaml").read_text(encoding="utf-8")
    with_policy = text.replace("{kind: ecmp}", f"{{kind: '{example}', swapped: true, seed: equal}}")
    loaded = load_text(with_policy).scenario
    assert load_text(to_yaml(loaded)).scenario == loaded
    assert "swapped: true" in to_yaml(loaded)
    with pytest.raises(ScenarioError, match=r"routing.swaped: unknown key; did you mean 'swapped'\?"):
        load_text(with_policy.replace("swapped", "swaped"))
    with pytest.raises(ScenarioError, match=r"routing.swapped: 3 is not true or false"):
        load_text(with_policy.replace("swapped: true", "swapped: 3"))
