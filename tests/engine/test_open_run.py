"""An open run answers with what was posted and when, whoever knew of it how early, in however many parts."""

import itertools
import pickle
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from emu import api
from emu.base.errors import StallError, UsageError
from emu.engine.live.open_run import Completion, OpenRun

ROOT = Path(__file__).resolve().parents[2]
FABRIC = {
    "name": "open",
    "topology": {"kind": "ai_zone", "racks": 2, "hosts_per_rack": 1, "gpus_per_host": 2, "spines": 2},
}
NVLINK = {
    "name": "inside",
    "topology": {"kind": "ai_zone", "racks": 1, "hosts_per_rack": 2, "gpus_per_host": 2, "spines": 1},
    "host": {"nvlink": {"enabled": True}},
}
RACK = {
    "name": "rack",
    "topology": {"kind": "ai_zone", "racks": 1, "hosts_per_rack": 4, "gpus_per_host": 1, "spines": 1},
}
OPS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "barrier")

Asked = tuple[str, tuple[Any, ...], dict[str, Any]]


class Script:
    """A program that posts by dice, in answer to what it is told, and writes down what it posted when."""

    def __init__(self, run: OpenRun, seed: int, posts: int) -> None:
        self.run, self.dice, self.left = run, random.Random(seed), posts
        self.asked: list[Asked] = []
        self.reported: list[Completion] = []

    def one(self) -> None:
        dice, now_ps = self.dice, self.run.now_ps
        self.left -= 1
        at_ps = now_ps + dice.choice((0, 0, 1, 250_000, 3_000_000))
        kind = dice.randrange(3)
        if kind == 0:
            src, dst = dice.sample(range(4), 2)
            size, tell = dice.choice((1, 4096, 100_000)), dice.choice(("completed", "delivered", "both"))
            self.ask("post", src, dst, size, at_ps=at_ps, qp=dice.choice(("", "b")), tell=tell)
        elif kind == 1:
            self.ask("compute", dice.randrange(4), dice.choice((1, 7, 2_000_000)), at_ps=at_ps)
        else:
            ranks = sorted(dice.sample(range(4), dice.choice((2, 4))))
            times = [at_ps + dice.choice((0, 5, 400_000)) for _ in ranks]
            op, algorithm = dice.choice(OPS), dice.choice(("auto", "default"))
            each = dice.random() < 0.3
            self.ask(
                "collective", op, dice.choice((8, 30_000)), ranks, at_ps=times, algorithm=algorithm, each=each
            )

    def ask(self, name: str, *args: Any, **keys: Any) -> None:
        self.asked.append((name, args, keys))
        getattr(self.run, name)(*args, **keys)

    def play(self) -> str:
        for _ in range(3):
            self.one()
        while self.run.outstanding:
            self.reported.append(self.run.next())
            if self.left:
                self.one()
        return self.run.close()


def replayed(fabric: dict[str, Any], asked: list[Asked], parts: int = 1) -> tuple[list[Completion], str]:
    """All posts known from the start, in the order of a program that knows the future."""
    run, reported = api.open(fabric, parts=parts), []
    for name, args, keys in asked:
        getattr(run, name)(*args, **keys)
    while run.outstanding:
        reported.append(run.next())
    return reported, run.close()


@pytest.mark.parametrize("fabric", [FABRIC, NVLINK], ids=["fabric", "nvlink"])
@pytest.mark.parametrize("seed", range(3))
def test_the_answer_is_that_of_posts_and_times_in_any_parts_and_known_however_early(
    fabric: dict[str, Any], seed: int
) -> None:
    script = Script(api.open(fabric), seed, 12)
    digest = script.play()
    assert script.reported == sorted(script.reported, key=lambda one: one.at_ps)
    assert all(one.ok for one in script.reported)
    reported, again = replayed(fabric, script.asked)
    assert (reported, again) == (script.reported, digest)
    other = Script(api.open(fabric, parts=2 + seed), seed, 12)
    assert (other.play(), other.reported) == (digest, script.reported)
    later = [(*one[:2], one[2] | {"note": None}) for one in script.asked]
    name, args, keys = later[0]
    moved = (
        keys["at_ps"] + 1 if isinstance(keys["at_ps"], int) else [keys["at_ps"][0] + 1, *keys["at_ps"][1:]]
    )
    assert replayed(fabric, [(name, args, keys | {"at_ps": moved}), *later[1:]])[1] != digest


def test_transfers_of_one_queue_pair_follow_one_another_at_the_rate_of_the_link() -> None:
    run = api.open(RACK)
    size, count = 1 << 20, 4
    for _ in range(count):
        run.post(0, 1, size, at_ps=0, tell="delivered")
    ends = [run.next().at_ps for _ in range(count)]
    # A full packet: 4,096 B, BTH 12, ICRC 4, UDP 8, IPv4 20, Ethernet 18, preamble and gap 20. The first has
    # a RETH of 16 B more, the last an immediate of 4 B.
    packets = size // 4096
    wire_bytes = packets * (4096 + 82) + 16 + 4
    assert {later - sooner for sooner, later in itertools.pairwise(ends)} == {
        wire_bytes * 8 * 10**12 // (400 * 10**9)
    }


def test_a_post_takes_as_long_as_the_flow_of_a_scenario_and_a_collective_as_the_benchmark() -> None:
    flow = {"kind": "flows", "verb": "write_with_imm", "flows": [{"src": 0, "dst": 3, "size": "1MiB"}]}
    listed = api.run({**RACK, "jobs": [{"name": "f", "ranks": "all", "workload": flow}]}, local=True)
    run = api.open(RACK)
    run.post(0, 3, "1MiB", at_ps=7)
    (row,) = listed.summary.jobs["f"].flows
    assert run.next().at_ps - 7 == row.completed_ps
    for op in ("all_reduce", "all_gather", "all_to_all", "broadcast"):
        load = {"kind": "collective", "op": op, "sizes": ["64KiB"], "iterations": 1, "warmup": 0}
        alone = api.run({**RACK, "jobs": [{"name": "b", "workload": load}]}, local=True)
        run = api.open(RACK)
        number = run.collective(op, "64KiB", range(4))
        (bench,) = alone.summary.jobs["b"].collectives
        done = run.next()
        assert bench.start_ps == 0 == done.begun_ps
        assert (done.number, done.at_ps) == (number, bench.end_ps), op


def test_ranks_post_their_parts_by_themselves_and_names_order_what_is_posted_for_one_time() -> None:
    digests = []
    for names in (("a", "b"), ("b", "a")):
        run = api.open(FABRIC)
        run.main.close()
        callers = {name: run.caller(name) for name in names}
        for name in names:
            rank = "ab".index(name)
            assert callers[name].collective("all_reduce", 4096, [0, 1], rank=rank, at_ps=100) == 1
            callers[name].post(rank, rank + 2, 5000, at_ps=100)
        for caller in callers.values():
            caller.promise(10**9)
        done = [one for name in "ab" for one in callers[name].until(10**9)]
        assert sorted((one.number, one.rank) for one in done if one.number == 1) == [(1, 0), (1, 1)]
        digests.append(run.close())
    assert digests[0] == digests[1]


def test_nobody_runs_ahead_of_a_caller_that_has_promised_nothing() -> None:
    run = api.open(FABRIC)
    other = run.caller("other")
    run.post(0, 1, 10)
    with pytest.raises(UsageError, match="caller main waits, and other may still post at 0 ps"):
        run.next()
    other.promise(10**9)
    assert run.next().ok
    with pytest.raises(UsageError, match="in the past; accepted: 1000000000 ps"):
        other.post(0, 1, 10, at_ps=5)


def test_a_fork_goes_on_as_the_run_does_and_as_it_would_have() -> None:
    whole = Script(api.open(FABRIC), 5, 14)
    digest = whole.play()
    half = Script(api.open(FABRIC), 5, 14)
    for _ in range(3):
        half.one()
    for _ in range(5):
        half.reported.append(half.run.next())
        half.one()
    twin = Script(half.run.fork(), 0, half.left)
    twin.dice.setstate(half.dice.getstate())
    for script in (half, twin):
        while script.run.outstanding:
            script.reported.append(script.run.next())
            if script.left:
                script.one()
        assert script.run.close() == digest
    assert (
        half.reported
        == whole.reported
        == half.reported[: len(half.reported) - len(twin.reported)] + twin.reported
    )


GO_ON = """
import pickle, sys
from pathlib import Path
from emu import api
from tests.engine.test_open_run import FABRIC, Script
state, left, parts = pickle.loads(Path(sys.argv[1]).read_bytes())
script = Script(api.open(FABRIC, parts=parts, resume=sys.argv[2]), 0, left)
script.dice.setstate(state)
while script.run.outstanding:
    script.reported.append(script.run.next())
    if script.left:
        script.one()
print(script.run.close())
"""


@pytest.mark.parametrize(("before", "after"), [(1, 1), (1, 3), (2, 1)])
def test_a_run_that_was_saved_goes_on_in_another_process_in_any_parts(
    tmp_path: Path, before: int, after: int
) -> None:
    whole = Script(api.open(FABRIC), 6, 14)
    digest = whole.play()
    half = Script(api.open(FABRIC, parts=before), 6, 14)
    link = {"kind": "degrade", "target": "rtsw-0:nic-0-0", "rate": "100G"}
    for _ in range(3):
        half.one()
    for _ in range(5):
        half.reported.append(half.run.next())
        half.one()
    saved, dice = tmp_path / "run", tmp_path / "dice"
    half.run.save(saved)
    dice.write_bytes(pickle.dumps((half.dice.getstate(), half.left, after)))
    command = [sys.executable, "-c", GO_ON, str(dice), str(saved)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [digest]
    half.run.inject(link)
    half.run.save(saved)
    there = api.open(FABRIC, parts=after, resume=saved)
    for run in (half.run, there):
        while run.outstanding:
            run.next()
    assert half.run.close() == there.close() != digest


def test_what_cannot_be_saved_or_gone_on_from_is_refused(tmp_path: Path) -> None:
    run = api.open(FABRIC)
    run.post(0, 1, 10, note=object())
    with pytest.raises(UsageError, match=r"the note of post 1 is a object; accepted: None, numbers"):
        run.save(tmp_path / "run")
    run.next()
    with pytest.raises(UsageError, match=r"accepted: a writable path"):
        run.save("/proc/nowhere/run")
    run.save(tmp_path / "run")
    with pytest.raises(UsageError, match="is of another scenario; accepted: the one that it was saved of"):
        api.open(RACK, resume=tmp_path / "run")
    (tmp_path / "run").write_bytes((tmp_path / "run").read_bytes()[:-1])
    with pytest.raises(UsageError, match=r"not as it was written .*; accepted: a file that save\(\)"):
        api.open(FABRIC, resume=tmp_path / "run")
    run.caller("other")
    with pytest.raises(
        UsageError, match=r"save\(\): caller other posts too; accepted: a run with caller main"
    ):
        run.save(tmp_path / "run")


@pytest.mark.parametrize("parts", [1, 2])
def test_a_fault_that_is_injected_is_the_fault_of_a_scenario_at_that_time(parts: int) -> None:
    link = {"kind": "degrade", "target": "rtsw-0:nic-0-0", "rate": "100G"}
    run = api.open(RACK, parts=parts)
    run.until(1000)
    assert run.inject(link) == 0
    run.post(0, 1, "256KiB", at_ps=2000)
    injected = run.next()
    reported, digest = replayed(
        {**RACK, "faults": [{**link, "at": "1ns"}]}, [("post", (0, 1, "256KiB"), {"at_ps": 2000})]
    )
    assert injected.at_ps == reported[0].at_ps
    assert run.close() == digest


def test_who_waits_for_whom_is_reported_where_nothing_moves() -> None:
    run = api.open(FABRIC)
    run.collective("all_reduce", 4096, [0, 2], rank=0, algorithm="ring")
    with pytest.raises(
        StallError, match=r"1 posts are outstanding and nothing moves\nhost-0 waits.*a clear-to-send"
    ):
        run.next()


def asked(name: str, *args: Any, **keys: Any) -> Asked:
    return name, args, keys


REFUSED = {
    "rank": (asked("post", 0, 4, 1), r"post\(0, 4, 1\): there is no rank 4; accepted: 0 to 3"),
    "self": (asked("post", 1, 1, 1), "sends to itself"),
    "size": (asked("post", 0, 1, 0), "accepted: 1 B"),
    "words": (asked("post", 0, 1, "4 parsecs"), "unit"),
    "past": (asked("post", 0, 1, 1, at_ps=99), "99 ps is in the past; accepted: 100 ps or later"),
    "ahead": (asked("post", 0, 1, 1, at_ps=10**18), "too far ahead"),
    "number": (asked("post", 0, 1, 1, at_ps="soon"), "a whole number of ps"),
    "tell": (asked("post", 0, 1, 1, tell="both ends"), "accepted: completed, delivered"),
    "time": (asked("compute", 0, -1), "accepted: 1 to"),
    "op": (
        asked("collective", "all_reduction", 1, [0, 1]),
        "no such operation, did you mean|no such operation",
    ),
    "ranks": (asked("collective", "all_reduce", 1, 3), r"ranks=3; accepted: a list of ranks"),
    "group": (asked("collective", "all_reduce", 1, [0, 0]), "at least two ranks, each once"),
    "times": (
        asked("collective", "all_reduce", 1, [0, 1], at_ps=[100]),
        "1 times; accepted: one for each of 2",
    ),
    "member": (asked("collective", "all_reduce", 1, [0, 1], rank=2), "rank 2 is not among them"),
    "root": (asked("collective", "broadcast", 1, [0, 1], root=2), "root=2; accepted: 0 to 1"),
    "rootless": (asked("collective", "all_reduce", 1, [0, 1], root=1), "has no root"),
    "algorithm": (
        asked("collective", "all_reduce", 1, [0, 1], algorithm="bruck"),
        "'bruck' does no all_reduce",
    ),
    "nothing": (asked("next"), "nothing is outstanding"),
    "back": (asked("until", 5), "the run is at 100 ps; accepted: 100 ps or later"),
    "before": (asked("next_before", 99), "the run is at 100 ps; accepted: 100 ps or later"),
    "until": (asked("until", "soon"), r"until\('soon'\): accepted: a whole number of ps"),
    "fault": (asked("inject", {"kind": "link_down", "target": "nobody:nowhere"}), "nobody"),
    "busiest": (
        asked("inject", {"kind": "link_down", "target": "busiest uplink"}),
        "measures no load|busiest",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_posted_is_refused_in_one_line(case: str) -> None:
    (name, args, keys), match = REFUSED[case]
    run = api.open(FABRIC)
    run.until(100)
    with pytest.raises(UsageError, match=match) as refusal:
        getattr(run, name)(*args, **keys)
    assert "\n" not in str(refusal.value)


def test_collectives_that_disagree_and_posts_after_the_end_are_refused() -> None:
    run = api.open(FABRIC)
    run.collective("all_reduce", 4096, [0, 1], rank=0)
    with pytest.raises(
        UsageError, match=r"rank 1 disagrees with call 0 .* accepted: collective\('all_reduce', 4096"
    ):
        run.collective("all_reduce", 8192, [0, 1], rank=1)
    assert run.collective("all_reduce", 4096, [0, 1], rank=1) == 1
    run.close()
    with pytest.raises(UsageError, match="is closed; accepted: before close"):
        run.post(0, 1, 1)


def test_a_post_is_taken_back_before_its_time_and_not_after_and_leaves_nothing() -> None:
    run, without = api.open(FABRIC), api.open(FABRIC)
    late, soon = run.post(0, 1, 10, at_ps=10**9), run.post(0, 1, 10)
    assert run.cancel(late)
    assert not run.cancel(late)
    assert run.next().number == soon
    assert not run.cancel(soon)
    assert not run.outstanding
    numbers = [run.post(0, 2, 100 + at, at_ps=10**9 + at % 3) for at in range(12)]
    assert all(run.cancel(number) for number in numbers[::2])
    without.post(0, 1, 10)
    for at in range(1, 12, 2):
        without.post(0, 2, 100 + at, at_ps=10**9 + at % 3)
    for one in (run, without):
        while one.outstanding:
            one.next()
    assert run.close() == without.close()
