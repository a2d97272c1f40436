"""Adapters of other programs' interfaces to an open run say what the run itself says."""

import json
from functools import cache
from itertools import pairwise
from math import isqrt
from pathlib import Path

import pytest

from actors.nic.nic import Nic
from emu import api
from emu.base.errors import UsageError
from emu.devices.lookahead import message_lookahead_ps
from emu.doors.open.adapters.astra_network import AstraNetwork
from emu.doors.open.adapters.collective_costs import cost_table, time_ps
from emu.doors.open.adapters.transfer_oracle import TransferOracle
from emu.engine.live.open_engine import LocalEngine
from emu.workload.serving import ServingFacts
from tests.engine.test_open_run import RACK
from tests.workload.chakra_files import ALL_REDUCE, COLLECTIVE, node, trace

RANKS, SIZE, COMPUTE_NS = 4, 1 << 16, 700


def ring_by_astra() -> tuple[int, str]:
    """ASTRA-sim's ring all_reduce: in 2 (n - 1) steps each NPU sends a chunk on, and the next one when it has
    received one and reduced it, which takes a fixed time."""
    run = api.open(RACK)
    network = AstraNetwork(run)

    def step(npu: int, number: int) -> None:
        if number == 2 * (RANKS - 1):
            return
        after, before = (npu + 1) % RANKS, (npu - 1) % RANKS
        network.sim_send(npu, after, SIZE // RANKS, number, lambda: None)
        network.sim_recv(
            npu,
            before,
            SIZE // RANKS,
            number,
            lambda: network.sim_schedule(npu, COMPUTE_NS, lambda: step(npu, number + 1)),
        )

    for npu in range(RANKS):
        step(npu, 0)
    end_ps = network.simulate()
    run.until(end_ps + 1)
    return end_ps, run.close()


def test_a_ring_through_astra_sims_api_is_the_ring_that_is_posted_and_each_link_carries_its_bytes() -> None:
    end_ps, digest = ring_by_astra()
    run = api.open(RACK)
    chunk, posts = SIZE // RANKS, []
    for npu in range(RANKS):
        run.post(npu, (npu + 1) % RANKS, chunk, tell="both", note=0)
    waiting: list[tuple[int, int, int]] = []
    last_ps = 0
    while run.outstanding or waiting:
        waiting.sort()
        done = run.next_before(waiting[0][0]) if waiting else run.next()
        if done is None:
            at_ps, npu, number = waiting.pop(0)
            run.post(npu, (npu + 1) % RANKS, chunk, at_ps, tell="both", note=number)
            posts.append(number)
        elif done.kind == "delivered" and done.note + 1 < 2 * (RANKS - 1):
            waiting.append((done.at_ps + COMPUTE_NS * 1000, done.rank, done.note + 1))
        else:
            last_ps = max(last_ps, done.at_ps)
    assert len(posts) + RANKS == RANKS * 2 * (RANKS - 1)
    assert last_ps <= end_ps <= last_ps + COMPUTE_NS * 1000
    run.until(end_ps + 1)
    assert isinstance(run._engine, LocalEngine)
    arrived = [nic.progress for nic in run._engine.devices if isinstance(nic, Nic)]
    assert arrived == [2 * (RANKS - 1) * chunk] * RANKS
    assert run.close() == digest


AstraCall = tuple[int, str, int, int, int, int]
"""The call whose callback makes it (-1: the start), what it is, NPU, its peer, bytes or ns, tag."""


def recorded() -> list[AstraCall]:
    """The calls of ASTRA-sim's own all_reduce."""
    lines = Path(__file__).with_name("astra_calls.txt").read_text(encoding="ascii").splitlines()
    rows = [line.split() for line in lines if not line.startswith("#")]
    return [(int(one[0]), one[1], int(one[2]), int(one[3]), int(one[4]), int(one[5])) for one in rows]


def foreseen_ps(calls: list[AstraCall], one_ps: int) -> int:
    """When the last timer and receive call back, if each transfer takes so long."""
    sends: dict[tuple[int, int, int], list[int]] = {}
    source: dict[int, int] = {}
    for at, (_, kind, npu, peer, _, tag) in enumerate(calls):
        if kind == "s":
            sends.setdefault((npu, peer, tag), []).append(at)
    for at, (_, kind, npu, peer, _, tag) in enumerate(calls):
        if kind == "r":
            source[at] = sends[peer, npu, tag].pop(0)

    @cache
    def over_ps(at: int) -> int:
        if at < 0:
            return 0
        cause, kind, _, _, amount, _ = calls[at]
        return over_ps(cause) + amount * 1000 if kind == "t" else over_ps(calls[source[at]][0]) + one_ps

    return max(over_ps(at) for at, call in enumerate(calls) if call[1] != "s")


def test_astra_sims_own_all_reduce_ends_carries_its_bytes_and_takes_the_time_of_its_schedule(
    tmp_path: Path,
) -> None:
    calls, after, last_ps = recorded(), dict[int, list[int]](), 0
    for at, call in enumerate(calls):
        after.setdefault(call[0], []).append(at)
    run = api.open(RACK)
    network, left = AstraNetwork(run), set(range(len(calls)))

    def make(at: int) -> None:
        _, kind, npu, peer, amount, tag = calls[at]
        left.remove(at)

        def done() -> None:
            nonlocal last_ps
            last_ps = run.now_ps if kind != "s" else last_ps
            for following in after.get(at, []):
                make(following)

        if kind == "s":
            network.sim_send(npu, peer, amount, tag, done)
        elif kind == "r":
            network.sim_recv(npu, peer, amount, tag, done)
        else:
            network.sim_schedule(npu, amount, done)

    for at in after[-1]:
        make(at)
    network.simulate()
    assert not left
    assert isinstance(run._engine, LocalEngine)
    buffer = 1 << 20
    arrived = [nic.progress for nic in run._engine.devices if isinstance(nic, Nic)]
    assert arrived == [2 * (RANKS - 1) * buffer // RANKS] * RANKS
    alone = api.open(RACK)
    alone.post(0, 1, 65536, tell="delivered")
    one_ps = alone.next().at_ps
    assert last_ps == foreseen_ps(calls, one_ps)
    # Its four pieces follow one another, each in 6 steps that wait for all of 64 KiB: 24 transfers and their
    # delays. The library of a `chakra_trace` moves slices on several channels at once.
    assert 24 * one_ps < last_ps < 24 * one_ps + 24 * 140_000
    node_ = node(1, COLLECTIVE, attributes={"comm_type": ALL_REDUCE, "comm_size": buffer})
    for rank in range(RANKS):
        (tmp_path / f"astra.{rank}.et").write_bytes(trace(node_))
    job = {"name": "c", "workload": {"kind": "chakra_trace", "file": str(tmp_path / "astra")}}
    (row,) = api.run({**RACK, "jobs": [job]}, local=True, diagnose=False).summary.jobs["c"].collectives
    assert row.end_ps is not None
    assert 6 * one_ps < row.end_ps < last_ps / 2


@pytest.mark.parametrize("size", [5_000_000, pytest.param(2_000_000_000, marks=pytest.mark.soak)])
def test_transfers_over_one_link_take_their_bytes_over_its_rate(size: int) -> None:
    # WRITEs of 2 MiB in packets of 4,096 B: BTH 12, ICRC 4, UDP 8, IPv4 20, Ethernet 18, preamble and gap 20
    # on each, an RETH of 16 B on the first of a WRITE, an immediate of 4 B on the last of a transfer.
    writes = -(-size // (1 << 21))
    packets = (writes - 1) * 512 + -(-(size - (writes - 1 << 21)) // 4096)
    one_ps = (size + packets * 82 + writes * 16 + 4) * 8 * 10**12 // (400 * 10**9)
    oracle = TransferOracle(api.open(RACK))
    for key in range(2):
        oracle.begin(key, 0, 3, size, 0)
    (_, first_ps), (_, second_ps) = oracle.all()
    assert second_ps - first_ps == one_ps
    assert one_ps <= first_ps < one_ps + 10**7


def test_transfers_of_two_senders_share_the_link_to_their_receiver() -> None:
    count, size = 4, 1 << 20
    one_ps = ((size // 4096) * (4096 + 82) + 20) * 8 * 10**12 // (400 * 10**9)
    alone = TransferOracle(api.open(RACK))
    alone.begin(0, 0, 3, size, 0)
    ((_, first_ps),) = alone.all()
    oracle = TransferOracle(api.open(RACK))
    for key, source in enumerate((0, 1, 0, 1)):
        oracle.begin(key, source, 3, size, 0)
    there = oracle.until(10**9)
    assert [key for key, _ in there] == sorted(range(count), key=dict(there).__getitem__)
    # Within a packet, since those of both come in turn.
    longest_ps = max(at_ps for _, at_ps in there)
    assert abs(longest_ps - first_ps - (count - 1) * one_ps) <= (4096 + 82) * 20


TRAINING = {
    "name": "train",
    "ranks": [1, 2, 4, 5],
    "workload": {
        "kind": "training",
        "model": "own",
        "own": {"layers": 1, "hidden": 512, "heads": 8, "kv_heads": 8, "ffn": 1024, "sequence": 64},
        "dp": 4,
        "steps": 1,
    },
}
SERVING = {
    "name": "chat",
    "ranks": [0, 3],
    "workload": {
        "kind": "serving",
        "model": "own",
        "own": {"layers": 1, "hidden": 1024, "heads": 8, "kv_heads": 8, "ffn": 1024, "sequence": 256},
        "requests": 6,
        "rate": 200_000,
        "prompt": 256,
        "page": 256,
        "output": 2,
    },
}


@pytest.mark.parametrize("beside", [[], [TRAINING]], ids=["alone", "beside a training job"])
def test_keys_and_values_arrive_when_the_workload_serving_says(beside: list[dict[str, object]]) -> None:
    fabric = {
        "name": "kv",
        "topology": {"kind": "ai_zone", "racks": 2, "hosts_per_rack": 3, "gpus_per_host": 1, "spines": 1},
        "ncclx": {"channels": 1, "protocol": "simple"},
    }
    scenario = {**fabric, "jobs": [SERVING, *beside]}
    reported = api.run(scenario, local=True, diagnose=False).summary.jobs["chat"].flows
    facts = api.prepare(scenario).jobs[0].facts
    assert isinstance(facts, ServingFacts)
    kv = {"name": "kv", "ranks": [0, 3], "workload": {"kind": "open"}}
    oracle = TransferOracle(api.open({**fabric, "jobs": [*beside, kv]}))
    for key, request in enumerate(facts.requests):
        oracle.begin(key, 0, 1, facts.serving.page_bytes(), request.ready_ps, qp=str(key))
    there = dict(oracle.all())
    # `serving` has the last byte at the NIC, the oracle the program that hears of it: 64 B, the delay of the
    # link to the host, and its proxy. Each transfer has an immediate of 4 B, which `serving` has not; among
    # packets of others that may cost one of theirs.
    prepared = api.prepare(scenario)
    link = prepared.topology.host_end(prepared.topology.nics[0])
    proxy_ps = prepared.scenario.host.proxy_cost_ps
    hears_ps = message_lookahead_ps(link.rate_bps, link.delay_ps) + proxy_ps
    slack_ps = (4096 + 82) * 20
    assert len(there) == len(reported) == 6
    for key, flow in enumerate(reported):
        assert flow.delivered_ps is not None
        assert hears_ps <= there[key] - flow.delivered_ps <= hears_ps + (slack_ps if beside else 6 * 80), key


def test_a_table_has_the_benchmarks_times_and_states_its_error_between_them() -> None:
    sizes = [1024, 8192, 65536]
    table = json.loads(json.dumps(cost_table(RACK, ["all_reduce"], sizes, {"all": range(4)})))
    load = {"kind": "collective", "op": "all_reduce", "sizes": ["1024B", "65536B"], "iterations": 1}
    bench = api.run({**RACK, "jobs": [{"name": "b", "workload": load}]}, local=True).summary.jobs["b"]
    assert time_ps(table, "all_reduce", "all", 1024) == bench.collectives[0].end_ps
    (entry,) = table["entries"]
    errors = []
    for low, high in pairwise(sizes):
        run = api.open(RACK)
        run.collective("all_reduce", isqrt(low * high), range(4), at_ps=0)
        measured_ps = run.next().at_ps
        reported_ps = time_ps(table, "all_reduce", "all", isqrt(low * high))
        errors.append(abs(reported_ps - measured_ps) / measured_ps)
    assert entry["error"] == max(errors)
    assert 0 < entry["error"] < 1
    loaded = cost_table(RACK, ["all_reduce"], sizes[2:], {"all": range(4)}, beside=[(0, 1, 1 << 20)])
    assert loaded["entries"][0]["times_ps"][0] > entry["times_ps"][2]
    with pytest.raises(UsageError, match="all_reduce of 10 B: accepted: 1024 to 65536 B"):
        time_ps(table, "all_reduce", "all", 10)
    with pytest.raises(UsageError, match="not in the table; accepted: all_reduce on all"):
        time_ps(table, "all_gather", "all", 2048)
