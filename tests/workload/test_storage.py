"""Do clients of storage take as long as the busiest of disks, metadata, daemon and network says?

Four hosts on a star with a front end of 100G; every expectation is bytes over a rate, or requests times what
one takes.
"""

import math
from collections import Counter
from typing import Any

import pytest

from actors.optional.storage_clients import KINDS, ServiceQueue, flattened
from emu import api
from emu.base.errors import ScenarioError
from emu.devices.drawing import blueprint_of
from emu.devices.storage_warnings import storage_warnings
from emu.results.summary import Job
from emu.scenario.load import load_mapping
from emu.scenario.resolve import build_topology
from emu.summary.summary_report import server_lines
from emu.workload.file_operations import BLOCK, FILE, NAME, READ, WRITE, Service, checkpoint, rebuilding
from tests.workload.test_checkpoint import OVERRIDES, placed

MS = 10**9
SIXTEEN_MB_STAGED_PS = 16 * 8 * 10**18 // (512 * 10**9)
SLOW_METADATA = {"servers": 1, "operation": "50us"}


def scenario(
    workload: dict[str, Any], storage: dict[str, Any], metadata: dict[str, Any], **more: Any
) -> dict[str, Any]:
    """One job on storage: a checkpoint unless it says otherwise."""
    usual = {"kind": "checkpoint", "size": "1MB", "block": "100KB"}
    return {
        "name": "stored",
        "topology": {"kind": "star", "hosts": 4},
        "frontend": {
            "enabled": True,
            "storage": {"servers": 4, "link": "100G", "disk": "100G", **storage},
            "metadata": metadata,
        },
        "overrides": OVERRIDES,
        "jobs": [{"name": "save", "workload": usual | workload}],
        **more,
    }


def ran(*given: Any, **more: Any) -> Job:
    """The job, over and done."""
    return api.run(scenario(*given, **more), local=True, diagnose=False).summary.jobs["save"]


def asked(job: Job, kind: str) -> int:
    """How many requests of a kind were answered."""
    assert job.storage is not None
    found = job.storage.requests.get(kind)
    return 0 if found is None else found.count


@pytest.mark.parametrize(
    ("workload", "storage", "metadata", "requests", "expected_ms"),
    [
        # 4 ranks x (name, file, seal; file and block for each of 10 blocks) x 50 us
        ({"protocol": "tectonic", "parallel": 2}, {}, SLOW_METADATA, 92, 4.6),
        # 4 ranks x 50 files x (name, file, block) x 50 us
        (
            {"kind": "reads", "files": 50, "size": "4KB", "protocol": "tectonic"},
            {},
            SLOW_METADATA,
            600,
            30.0,
        ),
        # OPEN, LAYOUTGET, LAYOUTCOMMIT, LAYOUTRETURN, CLOSE of 4 ranks x 1 ms
        ({"protocol": "pnfs"}, {}, {"servers": 1, "operation": "1ms"}, 20, 20.0),
        # one filer: 4 MB at 4 Gbit/s, and OPEN and CLOSE of one rank at 50 us where the others' overlap
        ({"protocol": "nfs"}, {"servers": 1, "disk": "4G"}, {"operation": "50us"}, 8, 8.0),
    ],
    ids=["tectonic, metadata", "small files, metadata", "pnfs, metadata", "nfs, filer"],
)
def test_a_protocol_takes_as_long_as_its_bottleneck(
    workload: dict[str, Any],
    storage: dict[str, Any],
    metadata: dict[str, Any],
    requests: int,
    expected_ms: float,
) -> None:
    job = ran(workload, storage, metadata)
    assert job.status == "success"
    assert sum(asked(job, kind) for kind in KINDS[2:]) == requests
    assert (job.end_ps or 0) / MS == pytest.approx(expected_ms, rel=0.05)


def test_pnfs_moves_data_past_the_filer_that_nfs_moves_all_of_it_through() -> None:
    nfs = ran({"protocol": "nfs"}, {"servers": 1, "disk": "2G"}, {"operation": "10us"})
    pnfs = ran({"protocol": "pnfs"}, {"servers": 4, "disk": "2G"}, {"servers": 1, "operation": "10us"})
    assert (nfs.end_ps or 0) / (pnfs.end_ps or 1) == pytest.approx(4, rel=0.05)


@pytest.mark.parametrize(("stripe", "parity"), [(1, 2), (2, 1)], ids=["three copies", "RS(2, 1)"])
def test_copies_and_parity_take_their_share_of_the_disks(stripe: int, parity: int) -> None:
    job = ran({"size": "600KB", "stripe": stripe, "parity": parity}, {"disk": "2G"}, {})
    assert job.storage is not None
    whole = 2_400_000 * (stripe + parity) // stripe
    assert job.storage.bytes == whole
    assert (job.end_ps or 0) / MS == pytest.approx(whole * 8 / 8e9 * 1e3, rel=0.05)


def test_a_read_of_a_coded_block_takes_its_data_and_no_parity() -> None:
    job = ran({"size": "600KB", "stripe": 2, "parity": 2, "direction": "load"}, {"disk": "2G"}, {})
    assert job.storage is not None
    assert job.storage.bytes == 2_400_000


def test_a_fuse_daemon_takes_its_time_for_each_piece_of_each_request() -> None:
    fuse = {"enabled": True, "operation": "100us", "request": "25KB"}
    job = ran({"fuse": fuse}, {}, {})
    assert (job.end_ps or 0) / MS == pytest.approx(10 * 4 * 0.1, rel=0.05)  # blocks x pieces x 100 us


def test_a_full_queue_refuses_and_clients_ask_again_until_all_is_done() -> None:
    reads = {"kind": "reads", "files": 16, "size": "4KB", "protocol": "tectonic"}
    job = ran(reads | {"backoff": "200us"}, {}, {"servers": 1, "operation": "50us", "queue": 8})
    assert job.status == "success"
    assert job.storage is not None
    assert sum(one.refused for one in job.storage.requests.values()) > 0
    assert asked(job, "read") == 64
    assert (job.end_ps or 0) >= 192 * 50 * 10**6


def test_a_client_that_is_refused_once_too_often_gives_up() -> None:
    reads = {"kind": "reads", "files": 16, "size": "4KB", "protocol": "tectonic", "retries": 0}
    job = ran(reads, {}, {"servers": 1, "operation": "50us", "queue": 8})
    assert job.status == "timed_out"


def test_one_reader_a_node_reads_once_what_one_a_gpu_reads_for_each() -> None:
    fabric = {
        "kind": "llama3",
        "pods": 1,
        "racks_per_pod": 1,
        "hosts_per_rack": 2,
        "gpus_per_host": 4,
        "ctsws_per_pod": 1,
    }
    times, moved = [], []
    for readers in ("gpu", "node"):
        workload = {"kind": "reads", "size": "400KB", "steps": 2, "readers": readers}
        job = ran(workload, {"disk": "1G"}, {}, topology=fabric)
        assert job.storage is not None
        times.append(job.end_ps or 0)
        moved.append(job.storage.bytes)
    assert moved == [6_400_000, 1_600_000]
    assert times[0] / times[1] == pytest.approx(4, rel=0.05)


def test_steps_of_data_loading_keep_their_pace_where_storage_is_faster() -> None:
    job = ran({"kind": "reads", "size": "100KB", "steps": 5, "every": "2ms"}, {}, {})
    assert 8 * MS < (job.end_ps or 0) < 8.2 * MS


@pytest.mark.parametrize(
    ("workload", "expected_ms"),
    [
        # size x (1 + stripe) over 3 survivors: what is read and what is written share the disks
        ({"kind": "repair", "parity": 1, "size": "3MB", "block": "25KB"}, 16.0),
        ({"kind": "repair", "stripe": 2, "parity": 1, "size": "2MB", "block": "40KB"}, 16.0),
        ({"kind": "rebalance", "server": 2, "size": "4MB", "block": "25KB"}, 32.0),
    ],
    ids=["copies", "RS(2, 1)", "an empty server"],
)
def test_background_services_take_as_long_as_disks_read_and_write(
    workload: dict[str, Any], expected_ms: float
) -> None:
    job = ran(workload | {"parallel": 64}, {"disk": "1G"}, {"servers": 2})
    assert (job.end_ps or 0) / MS == pytest.approx(expected_ms, rel=0.05)


@pytest.mark.parametrize("servers", [6, 8, 12])
@pytest.mark.parametrize("kind", ["repair", "save and load"])
def test_disks_take_bytes_over_rate_where_blocks_do_not_divide(kind: str, servers: int) -> None:
    """120 blocks are read and written once each; the fullest disk has at most two of either more than the
    mean, as above. A disk of 1 Gbit/s takes 0.2 ms for a block of 25 KB.
    """
    block = {"size": "3MB", "block": "25KB", "parallel": 64}
    disks = servers
    if kind == "repair":
        jobs = [{"name": "both", "workload": {"kind": "repair", "parity": 1, **block}}]
        disks -= 1  # one is lost
    else:
        both = {"kind": "checkpoint", "size": "750KB", "block": "25KB"}  # of four ranks
        load = {"name": "both", "workload": both | {"direction": "load"}}
        jobs = [{"name": "save", "workload": both}, load]
    given = scenario({}, {"disk": "1G", "servers": servers}, {"servers": 2}, jobs=jobs, fidelity="flow")
    found = api.run(given, local=True, diagnose=False).summary.jobs
    took_ms = max(job.end_ps or 0 for job in found.values()) / MS
    assert 240 / disks * 0.2 <= took_ms <= (240 / disks + 4) * 0.2 * 1.05


def test_repair_reads_and_writes_no_chunk_of_the_lost_server_and_each_survivor_its_part() -> None:
    service = Service("plain", servers=5, metadata=2, block_bytes=200, stripe=2, parity=1)
    asked = flattened(tuple(rebuilding(service, 3, 4_000, 2)))
    assert [sum(one.kind == kind for one in asked) for kind in (WRITE, READ)] == [40, 80]
    servers = [one.server for one in asked]
    assert {server: servers.count(server) for server in set(servers)} == dict.fromkeys((0, 1, 2, 4), 30)


@pytest.mark.parametrize(
    ("servers", "files", "blocks", "chunks"),
    [(7, 16, 8, 1), (11, 16, 8, 1), (13, 16, 8, 3), (97, 64, 5, 2), (750, 1638, 42, 1), (19, 10, 30, 15)],
)
def test_servers_are_drawn_and_the_busiest_has_hardly_more_than_the_mean(
    servers: int, files: int, blocks: int, chunks: int
) -> None:
    """D choices leave the fullest of n bins ln ln n / ln d + O(1) above the mean (Azar et al. 1999); one
    choice, as in the second half, sqrt(2 m ln n / n).
    """
    service = Service("plain", servers, 0, 10, parity=chunks - 1).placed([range(files)], 10 * blocks)
    places = list(service.places.values())
    assert len(places) == files * blocks
    assert all(len(set(one)) == chunks for one in places)
    taken = Counter(server for one in places for server in one)
    mean = files * blocks * chunks / servers
    assert max(taken.values()) <= mean + 2
    assert min(taken.values()) >= mean - 3
    other = service._replace(seed=2).placed([range(files)], 10 * blocks)
    assert sum(one == two for one, two in zip(places, other.places.values(), strict=True)) < len(places) / 2


@pytest.mark.parametrize("servers", [7, 8, 11, 13])
def test_a_save_takes_bytes_over_rate_where_servers_do_not_divide_too(servers: int) -> None:
    """16 hosts save 16 MB each in blocks of 1 MB to disks of 1 Gbit/s: 256 blocks over n servers."""
    given = scenario(
        {"size": "16MB", "block": "1MB"},
        {"servers": servers, "disk": "1G"},
        {},
        topology={"kind": "star", "hosts": 16},
        fidelity="flow",
    )
    summary = api.run(given, local=True, diagnose=False).summary
    took_ms = ((summary.jobs["save"].end_ps or 0) - SIXTEEN_MB_STAGED_PS) / MS
    assert 256 / servers * 8 <= took_ms <= (math.ceil(256 / servers) + 1) * 8 * 1.005
    loads = summary.fabric.servers
    assert sum(one.taken_bytes for one in loads) == pytest.approx(256e6, rel=0.001)
    assert max(one.utilisation for one in loads) > 0.97
    assert any(line.startswith("the limit: disks of store-") for line in server_lines(loads))


@pytest.mark.parametrize("fidelity", ["flow", "packet"])
def test_disks_have_one_budget_for_what_they_take_and_give(fidelity: str) -> None:
    """4 MB over four disks of 2 Gbit/s take 4 ms; saved and loaded at once, 8 MB take 8 ms."""
    given = scenario({"size": "1MB"}, {"disk": "2G"}, {}, fidelity=fidelity)
    load = {"kind": "checkpoint", "size": "1MB", "block": "100KB", "direction": "load"}
    for jobs, expected_ms in (
        (given["jobs"], {"save": 4}),
        ([{"name": "load", "workload": load}], {"load": 4}),
        ([*given["jobs"], {"name": "load", "workload": load}], {"save": 8, "load": 8}),
    ):
        found = api.run(given | {"jobs": jobs}, local=True, diagnose=False).summary.jobs
        for name, expected in expected_ms.items():
            assert (found[name].end_ps or 0) / MS == pytest.approx(expected, rel=0.05), (name, jobs)


WORKLOADS = {
    "save": {"kind": "checkpoint", "size": "1MB", "block": "100KB"},
    "load": {"kind": "checkpoint", "size": "1MB", "block": "100KB", "direction": "load"},
    "reads": {"kind": "reads", "size": "100KB", "steps": 10},
    "repair": {"kind": "repair", "size": "2MB", "block": "10KB", "parity": 1},
    "rebalance": {"kind": "rebalance", "size": "1MB", "block": "10KB"},
}


@pytest.mark.parametrize("fidelity", ["flow", "packet"])
@pytest.mark.parametrize("name", WORKLOADS)
def test_results_tell_what_was_moved_whatever_the_plan(name: str, fidelity: str) -> None:
    """Cut at half of its time a job has moved less than planned, and no more than links carried."""
    jobs = [
        {"name": "save", "workload": WORKLOADS[name]},
        {"name": "off", "enabled": False} | {"workload": WORKLOADS[name]},
    ]
    given = scenario({}, {"disk": "1G"}, {"servers": 1}, jobs=jobs, fidelity=fidelity)
    whole = api.run(given, local=True, diagnose=False).summary
    cut = {"max_time": f"{(whole.jobs['save'].end_ps or 0) // 2}ps"}
    half = api.run(given | {"run": cut}, local=True, diagnose=False).summary
    all_of_it, part = whole.jobs["save"].storage, half.jobs["save"].storage
    assert all_of_it is not None
    assert part is not None
    planned = all_of_it.planned_bytes
    assert all_of_it.bytes == planned == part.planned_bytes
    assert 0 < part.bytes < planned
    assert part.bytes <= sum(one.taken_bytes + one.given_bytes for one in half.fabric.servers)
    off = whole.jobs["off"].storage
    assert off is not None
    assert (off.bytes, off.throughput_bps) == (0, None)
    assert "moved" in part.lines("save")[0]
    assert " of " in part.lines("save")[0]


@pytest.mark.parametrize(
    ("workload", "status", "elsewhere"),
    [
        # 4 clients x 10 blocks x copies, dealt evenly over 5 servers: those of the dead one go elsewhere
        ({"protocol": "pnfs"}, "success", 8),
        ({"parity": 1}, "success", 16),
        ({"direction": "load", "parity": 1}, "timed_out", 0),
    ],
    ids=["pnfs", "two copies", "load"],
)
def test_what_a_dead_server_should_have_taken_is_written_elsewhere(
    workload: dict[str, Any], status: str, elsewhere: int
) -> None:
    job = ran(
        workload | {"timeout": "50ms"},
        {"disk": "1G", "servers": 5},
        {"servers": 1, "operation": "1us"},
        faults=[{"kind": "host_lost", "at": "500us", "target": "store-1"}],
        fidelity="packet",
    )
    assert job.status == status
    assert job.storage is not None
    found = job.storage.requests["write" if elsewhere else "read"]
    assert found.elsewhere == elsewhere
    if status == "success":
        assert job.storage.bytes == job.storage.planned_bytes


def test_flows_over_the_front_end_share_its_nics_and_none_of_the_back_end() -> None:
    flows = {"kind": "incast", "size": "1MB", "fan_in": 3, "network": "frontend"}
    given = scenario(flows, {}, {}) | {"frontend": {"enabled": True, "link": "2G", "storage": {"servers": 1}}}
    given["jobs"][0]["workload"].pop("block")
    summary = api.run(given, local=True, diagnose=False).summary
    assert (summary.jobs["save"].end_ps or 0) / MS == pytest.approx(3 * 8 / 2 * 4178 / 4096, rel=0.05)
    carried = {link.source for link in summary.fabric.links if link.data_bytes}
    assert carried == {"fnic-1", "fnic-2", "fnic-3", "rsw-0"}


def test_names_go_by_directory_and_files_and_blocks_over_all_partitions() -> None:
    service = Service("tectonic", servers=4, metadata=8, block_bytes=1000).placed([range(256)], 8_000)
    scripts = tuple(checkpoint(service, rank, 8_000, 0, save=True) for rank in range(256))
    used = {
        kind: [one.server for one in flattened(scripts) if one.kind == kind] for kind in (NAME, FILE, BLOCK)
    }
    assert len(set(used[NAME])) == 1
    for kind in (FILE, BLOCK):
        assert set(used[kind]) == set(range(4, 12))
    assert max(map(used[BLOCK].count, range(4, 12))) < 1.2 * len(used[BLOCK]) / 8


def test_a_queue_has_room_for_so_many_and_serves_one_after_another() -> None:
    queue = ServiceQueue(10, 3)
    assert [queue.take(now) for now in (0, 0, 0, 0, 9, 10, 10)] == [10, 20, 30, -1, -1, 40, -1]


@pytest.mark.parametrize(
    ("workload", "storage", "metadata", "said"),
    [
        ({"protocol": "nfs"}, {}, {}, "all bytes go through one filer, and there are 4"),
        ({"protocol": "nfs", "parity": 1}, {}, {}, "parity: one filer has all bytes"),
        ({}, {"cache": "4KiB"}, {}, "cache: 4KiB hold no packet of 4178 B"),
        ({"protocol": "pnfs"}, {}, {}, "pnfs asks metadata servers, and there are none"),
        ({"protocol": "tectonic"}, {}, {}, "tectonic asks metadata servers, and there are none"),
        ({"stripe": 4, "parity": 2}, {}, {}, "4 \\+ 2 chunks of a block on 4 storage servers"),
        ({"kind": "reads", "files": 1_000_000, "size": "4KB"}, {}, {}, "about 24000000 requests"),
        ({"kind": "reads"}, {"servers": 0}, {}, "there is no storage for reads"),
        ({"kind": "repair"}, {}, {"servers": 1}, "there is nothing to rebuild from"),
        (
            {"kind": "repair", "parity": 1},
            {},
            {},
            "repair is done beside the metadata servers, and there are none",
        ),
        ({"kind": "rebalance", "server": 4}, {}, {"servers": 1}, "no storage server 4 among 4"),
        ({"kind": "repair", "stripe": 3, "parity": 1}, {}, {"servers": 1}, "takes 5 storage servers"),
        ({"kind": "rebalance", "protocol": "tectonic"}, {}, {"servers": 1}, "opens no files"),
        ({}, {"servers": 0}, {"servers": 2}, "there is no storage that they could know of"),
        ({}, {"disk": "267MB"}, {}, "'MB' is a unit of size; did you mean 'MB/s'.*267MB/s"),
    ],
)
def test_what_storage_has_no_place_for_is_refused(
    workload: dict[str, Any], storage: dict[str, Any], metadata: dict[str, Any], said: str
) -> None:
    with pytest.raises(ScenarioError, match=said):
        placed(scenario(workload, storage, metadata))


def test_a_repair_rebuilds_blocks_as_they_were_saved() -> None:
    save = {"kind": "checkpoint", "size": "1MB", "stripe": 2, "parity": 1}
    repair = {"kind": "repair", "size": "1MB", "parity": 2}
    jobs = [{"name": "save", "workload": save}, {"name": "rebuild", "workload": repair}]
    with pytest.raises(ScenarioError, match=r"no checkpoint saves blocks of 1 \+ 2 chunks.*2 \+ 1"):
        placed(scenario({}, {"servers": 6}, {"servers": 1}, jobs=jobs))


@pytest.mark.parametrize(
    ("queue", "retries", "said"),
    [(64, 10, ""), (63, 10, "many will be refused"), (8, 1, "clients will give up")],
)
def test_queues_that_will_refuse_are_named_before_the_run(queue: int, retries: int, said: str) -> None:
    """4 clients have 16 files under way each at one server, 4 x 16 x 3 requests of 50 us in all."""
    reads = {"kind": "reads", "files": 16, "size": "4KB", "protocol": "tectonic", "retries": retries}
    metadata = {"servers": 1, "operation": "50us", "queue": queue}
    given = load_mapping(scenario(reads, {}, metadata)).scenario
    topology = build_topology(given)
    found = storage_warnings(given, topology, blueprint_of(given, topology).plan)
    if not said:
        assert found == []
        return
    assert said in found[0]
    assert f"meta-0 may have 64 requests of save at once, and queues {queue};" in found[0]
    assert "takes 9.6ms for all" in found[0]
    assert f"retries: {retries}" in found[0]


def test_a_background_service_is_done_by_no_rank() -> None:
    work = {"kind": "rebalance", "size": "1MB"}
    jobs = [{"name": "move", "ranks": [0], "workload": work}]
    with pytest.raises(
        ScenarioError, match="ranks: rebalance is done beside the metadata servers, by no rank"
    ):
        placed(scenario({}, {}, {"servers": 1}, jobs=jobs))
