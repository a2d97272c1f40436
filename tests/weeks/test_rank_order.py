"""Do ranks that send each other most sit nearest, and does that give them what the links near by have?"""

from collections.abc import Callable, Sequence
from itertools import combinations, permutations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu.api import run
from emu.base.errors import RuntimeFailure, ScenarioError
from emu.cli.main import main
from emu.doors.weeks.rank_order import RankOrder, Traffic, cut, traffic_of
from emu.doors.weeks.server_placement import FreeServers
from tests.weeks.test_job_queue import course_of, listed

MIB = 1 << 20
PAIRS = """\
name: pairs
lasts: 8h
topology: {kind: llama3, pods: 2, racks_per_pod: 2, hosts_per_rack: 2, gpus_per_host: 2,
  ctsws_per_pod: 1, atsws: 1}
jobs:
  - name: pairs
    gpus: 16
    lasts: 6h
    traffic:
      {op: all_gather, algorithm: ring, sizes: [16MiB],
      split: [0, 0, 1, 1, 2, 2, 3, 3, 0, 0, 1, 1, 2, 2, 3, 3]}
"""
"""A communicator of the first and the fifth server of the job, of the second and the sixth, and so on."""


def test_pairs_brought_together_get_seven_times_what_the_core_gives_them(
    tmp_path: Path,
) -> None:
    mix = tmp_path / "mix.yaml"
    mix.write_text(PAIRS, "utf-8")
    busbw: dict[str, float] = {}
    for order in ("topology", "traffic"):
        written = tmp_path / f"{order}.yaml"
        chosen = ["--set", f"rank_order.kind={order}", "--at", "1h", "--write", str(written)]
        assert main(["schedule", str(mix), *chosen]) == 0
        chosen_ones = {"ncclx.channels": 2, "gpu.channel_rate": "2966.4G"}  # NICs alone count
        summary = run(written, overrides=chosen_ones, local=True, diagnose=False).summary
        busbw[order] = summary.jobs["pairs"].collectives[0].busbw or 0
        core = [link.data_bytes for link in summary.fabric.links if link.source.startswith("atsw-")]
        assert any(core) == (order == "topology"), "whether anything crosses the core"
    # along the fabric each pair is in two pods, whose links to the core carry a seventh of their NICs
    assert busbw["traffic"] / busbw["topology"] == pytest.approx(7, rel=0.03)


def test_a_ring_sends_twice_its_size_less_a_chunk_to_the_next_slot_and_nothing_to_others() -> None:
    work = {"kind": "collective", "op": "all_reduce", "algorithm": "ring", "sizes": ["64MiB"]}
    assert traffic_of(4, 1, work) == {
        slot: {(slot - 1) % 4: 96 * MIB, (slot + 1) % 4: 96 * MIB} for slot in range(4)
    }
    assert traffic_of(8, 8, work) == {0: {}}, "what stays in a server"


def test_tensor_parallelism_stays_in_a_server_and_stages_send_activations_to_the_next() -> None:
    work = {
        "kind": "training",
        "model": "llama3-8b",
        "layers": 4,
        "scale": "1/64",
        "tp": 2,
        "pp": 4,
        "data": "none",
    }
    found = traffic_of(8, 2, work)
    assert {slot: list(others) for slot, others in found.items()} == {0: [1], 1: [0, 2], 2: [1, 3], 3: [2]}
    # 8,192 tokens x 4,096 x 2 B forward and as much backward, at a sixty-fourth; each rank of two has a half
    assert found[1][2] == pytest.approx(2 * 8192 * 4096 * 2 / 64, rel=0.001)


def ring(count: int) -> Traffic:
    return {slot: {(slot + 1) % count: 5, (slot - 1) % count: 5} for slot in range(count)}


def grid(rows: int, columns: int, down: int, along: int) -> Traffic:
    """Slots row by row: rings of `down` through the columns, lines of `along` through the rows."""
    found: dict[int, dict[int, int]] = {slot: {} for slot in range(rows * columns)}
    for slot, below in ((slot, (slot + columns) % len(found)) for slot in found):
        found[slot][below] = found[below][slot] = down
    for slot in (slot for slot in found if (slot + 1) % columns):
        found[slot][slot + 1] = found[slot + 1][slot] = along
    return found


def between(parts: Sequence[Sequence[int]], traffic: Traffic) -> int:
    return sum(traffic[a].get(b, 0) for one, other in combinations(parts, 2) for a in one for b in other)


@pytest.mark.parametrize("sizes", [(3, 3), (4, 2), (2, 2, 2)])
@pytest.mark.parametrize(
    "traffic",
    [
        ring(6),
        grid(2, 3, 9, 1),
        grid(3, 2, 9, 1),
        grid(2, 3, 1, 9),
        {slot: {(slot + 3) % 6: 7} for slot in range(6)},
        {slot: {other: 1 for other in range(6) if other != slot} for slot in range(6)},
    ],
    ids=["ring", "wide grid", "high grid", "lines", "pairs", "all"],
)
def test_a_cut_leaves_as_little_between_parts_as_any(traffic: Traffic, sizes: tuple[int, ...]) -> None:
    def parted(order: Sequence[int]) -> list[Sequence[int]]:
        ends = [sum(sizes[: at + 1]) for at in range(len(sizes))]
        return [order[end - size : end] for size, end in zip(sizes, ends, strict=True)]

    found = cut(range(6), sizes, traffic)
    assert sorted(slot for part in found for slot in part) == list(range(6))
    assert [len(part) for part in found] == list(sizes)
    assert between(found, traffic) == min(between(parted(order), traffic) for order in permutations(range(6)))


@given(st.data())
def test_a_cut_holds_every_slot_once_whatever_the_traffic(data: st.DataObject) -> None:
    count = data.draw(st.integers(2, 9))
    slots = st.integers(0, count - 1)
    found: dict[int, dict[int, int]] = {slot: {} for slot in range(count)}
    for a, b, moved in data.draw(st.lists(st.tuples(slots, slots, st.integers(1, 9)))):
        if a != b:
            found[a][b] = found[b][a] = moved
    first = data.draw(st.integers(1, count - 1))
    parts = cut(range(count), [first, count - first], found)
    assert sorted(slot for part in parts for slot in part) == list(range(count))
    assert len(parts[0]) == first


class Backwards(RankOrder):
    """The last server first."""

    def order(self, free: FreeServers, servers: Sequence[int], traffic: Callable[[], Traffic]) -> list[int]:
        """Turned round."""
        return list(reversed(servers))


class Forgetful(RankOrder):
    """One server too few."""

    def order(
        self, free: FreeServers, servers: Sequence[int], traffic: Callable[[], Traffic]
    ) -> Sequence[int]:
        """All but the last."""
        return servers[:-1]


def test_an_order_of_ones_own_is_a_class_in_a_file() -> None:
    _, course, _ = course_of(lasts="8h", rank_order={"kind": f"{__name__}:Backwards"}, jobs=listed((0, 4, 1)))
    assert [server for server, _ in course.jobs[0].place] == [1, 0]
    with pytest.raises(RuntimeFailure, match="rank order Forgetful was given 2 servers and gave others"):
        course_of(lasts="8h", rank_order={"kind": f"{__name__}:Forgetful"}, jobs=listed((0, 4, 1)))


@pytest.mark.parametrize(
    ("traffic", "said"),
    [
        ({"kind": "training", "model": "llama3-8b", "tp": 8}, r"jobs\[0\].traffic: tp 8 x .*the job has 4"),
        ({"op": "all_gather", "sizes": ("1MiB",), "split": (0, 1)}, "2 colours for 4 GPUs"),
    ],
)
def test_traffic_that_a_job_is_too_small_or_large_for_is_refused(
    traffic: dict[str, object], said: str
) -> None:
    with pytest.raises(ScenarioError, match=said):
        course_of(lasts="8h", jobs=({"name": "one", "gpus": 4, "lasts": "1h", "traffic": traffic},))
