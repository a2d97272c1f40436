"""Do transfers use the channels and NICs that a collective would, and is one watched until it is received?"""

from typing import Any

import pytest

from emu import api
from emu.scenario.load import load_mapping
from emu.workload.composing import Program
from tests.ncclx.toy import US, Toy
from tests.scenario.plain import plain

STAR = {"kind": "star", "hosts": 2, "link": "400G"}
QUICK = {"host": {"link_delay": "1ns", "link_rate": "512T"}, "gpu": {"copy_rate": "1000000T"}}
LINE_BPS = 400 * 10**9


def two_servers(nics: int) -> dict[str, Any]:
    """Two servers of one GPU and so many NICs, on one switch."""
    nodes: list[dict[str, Any]] = []
    links: list[dict[str, Any]] = []
    for server in range(2):
        nodes.append({"name": f"host-{server}", "role": "host"})
        nodes.append({"name": f"gpu-{server}", "role": "gpu", "host": f"host-{server}"})
        for rail in range(nics):
            nodes.append({"name": f"nic-{server}-{rail}", "role": "nic", "host": f"host-{server}"})
            links.append({"a": f"nic-{server}-{rail}", "b": "switch", "rate": "400G", "delay": "0.5us"})
    nodes.append({"name": "switch", "role": "switch"})
    return {"kind": "graph", "nodes": nodes, "links": links}


def program_of(ranks: int = 2) -> Program:
    program = Program(ranks=ranks)
    program.main.send("64MiB", 1, ranks=[0])
    program.main.recv("64MiB", 0, ranks=[1])
    return program


@pytest.mark.parametrize("nics", [1, 4])
def test_a_transfer_is_cut_over_channels_and_so_over_the_nics_of_a_gpu(nics: int) -> None:
    given = {**QUICK, "ncclx": {"channels": 4}}
    toy = Toy(load_mapping(plain(program_of().scenario(two_servers(nics), **given))).scenario).run()
    received = next(program for program in toy.ranks() if program.rank == 1)
    (call,) = received.results.calls
    # 64 MiB over the NICs' lines, and what the first slice waits for its clear-to-send: 2 us of delay.
    line_ps = (64 << 20) * 8 * 10**12 // (nics * LINE_BPS)
    assert line_ps < call[5] - call[4] < line_ps * 103 // 100 + 4 * US
    posted = [sum(size for _, size, _ in toy.nic(nic).posted) for nic in toy.topology.nics][:nics]
    assert all(abs(size - (64 << 20) // nics) < 4096 for size in posted), posted


def hung(program: Program) -> list[str]:
    """What is said of the ranks of a program that hangs, within a watchdog of 1 ms."""
    given = {"ncclx": {"watchdog": "1ms"}, "run": {"stall_after": "500ms"}}
    result = api.run(plain(program.scenario(STAR, **given)), local=True)
    job = result.summary.jobs["program"]
    assert result.exit_status == 3
    assert job.status == "timed_out"
    # Calls begin within 50 us.
    assert all(1_000 * US <= failure.at_ps < 1_050 * US for failure in job.failures), job.failures
    return job.suspects


def test_a_small_send_that_nobody_receives_is_watched_until_it_is_received() -> None:
    program = Program(ranks=2)
    program.main.send("4KiB", 1, ranks=[0])
    assert hung(program)[0] == "rank 1 never joined recv (operation 0 of world, rank 0 to rank 1)"


def test_the_first_of_two_sends_that_nobody_receives_is_the_one_that_failed() -> None:
    program = Program(ranks=2)
    program.main.send("4KiB", 1, ranks=[0])
    program.main.send("4KiB", 1, ranks=[0])
    program.main.recv("4KiB", 0, ranks=[1])
    program.main.compute("100us", ranks=[0])
    given = {"ncclx": {"watchdog": "1ms"}, "run": {"stall_after": "500ms"}}
    job = api.run(plain(program.scenario(STAR, **given)), local=True).summary.jobs["program"]
    assert [(one.rank, one.operation, one.waits_for) for one in job.failures] == [(0, 1, "clear_to_send")]


def test_two_roots_of_a_broadcast_are_reported() -> None:
    program = Program(ranks=2)
    program.main.rooted("broadcast", "4KiB", algorithm="direct", root=0, ranks=[0])
    program.main.rooted("broadcast", "4KiB", algorithm="direct", root=1, ranks=[1])
    said = hung(program)
    assert said[0] == (
        "rank 1 called broadcast (operation 0 of world) with 4096 B and root 1, rank 0 with 4096 B and root 0"
    )


def test_both_ranks_sending_first_is_reported_with_who_sends_to_whom() -> None:
    program = Program(ranks=2)
    for rank in (0, 1):
        program.main.send("64MiB", 1 - rank, ranks=[rank])
        program.main.recv("64MiB", 1 - rank, ranks=[rank])
    said = hung(program)
    first = "send (operation 0 of world, rank 0 to rank 1)"
    other = "send (operation 0 of world, rank 1 to rank 0)"
    assert f"rank 1 is in {other} while others wait for it in {first}" in said
    assert f"rank 0 is in {first} while others wait for it in {other}" in said


def test_another_type_or_reduction_is_reported() -> None:
    program = Program(ranks=2)
    program.main.all_reduce("64KiB", dtype="bf16", ranks=[1])
    program.main.all_reduce("64KiB", redop="max", ranks=[0])
    program.main.all_reduce("64KiB", ranks=[0])
    said = hung(program)
    assert (
        "rank 1 called all_reduce (operation 0 of world) with 65536 B and bf16 and sum, "
        "rank 0 with 65536 B and fp32 and max"
    ) in said
