"""Does the library take on the real fabric the time that one works out by hand?

Links of 400G and 500 ns (20 ps per byte), NICs and switches of latency 0, host links of 1 ns that a message
occupies for 1 ns (2 ns in all), copies of 1 ps. On the wire: a packet of 4,096 B in the middle of a message
is 4,178 B, a CTS (WRITE_ONLY_IMM of 64 B) 166 B, an ACK 86 B.
"""

from typing import Any

import pytest

import emu
from actors.control.controller import Controller
from emu.devices.devices import build_kernel
from emu.devices.drawing import draw
from emu.scenario.schema import Scenario
from tests.ncclx.toy import US, collective
from tests.scenario.plain import plain

ZERO_COST: dict[str, Any] = {
    "switch": {"latency": "0ns"},
    "nic": {"latency": "0ns"},
    "host": {"link_delay": "1ns", "link_rate": "512G"},
    "gpu": {"copy_rate": "1000000T"},
}


def took_ps(job: dict[str, Any], racks: int, hosts_per_rack: int, spines: int, **sections: Any) -> int:
    """How long the one operation of a job takes."""
    topology = {"kind": "ai_zone", "racks": racks, "hosts_per_rack": hosts_per_rack, "spines": spines}
    given: dict[str, Any] = plain(
        {
            "name": "fabric",
            "topology": {**topology, "gpus_per_host": 1},
            "jobs": (job,),
            **ZERO_COST,
        }
    )
    blueprint = draw(Scenario.model_validate(plain({**given, **sections})))
    kernel, _ = build_kernel(blueprint, [0] * len(blueprint.topology.nodes), 0)
    kernel.start()
    while kernel.run(1 << 61, 1 << 20) == 1 << 20:
        pass
    controller = kernel.device(blueprint.topology.controller)
    assert isinstance(controller, Controller)
    ((_, _, start_ps, end_ps, status),) = controller.operations
    assert status == 0
    return end_ps - start_ps


def test_one_packet_each_way_between_two_ranks_to_the_ps() -> None:
    # CTS: doorbell 2,000; 4 hops of 166 B at 20 ps and 4 x 500 ns, 2,013,280; completion 2,000.
    # WRITE_ONLY_IMM of 4,096 B: doorbell 2,000; 4 hops of 4,198 B, 2,335,840; completion 2,000.
    # Copy out: there 2,000, copy 1, back 2,000.
    assert took_ps(collective("all_gather", "8KiB"), 2, 1, 1) == 2_017_280 + 2_339_840 + 4_001


def test_a_reduction_on_the_way_to_the_ps() -> None:
    # As above, and once more WRITE and copy. Two CTS leave 3,320 apart. The second arrives at the NIC that
    # much after the first, and its ACK occupies the port for 1,720; the WRITE that the first allowed is there
    # 4,000 after the first, so it waits 3,320 + 1,720 - 4,000 = 1,040.
    once = 2_339_840 + 4_001
    assert took_ps(collective("all_reduce", "8KiB"), 2, 1, 1) == 2_017_280 + 1_040 + 2 * once


def test_a_ring_between_racks_costs_one_slice_and_four_hops_a_step() -> None:
    # 14 steps: 64 packets of a 256 KiB slice, 267,412 B at 20 ps; three more hops of a packet; 4 x 500 ns.
    # One CTS first. ACKs between the packets and host messages are the rest: 64 x 86 B are 2 %.
    floor = 14 * (5_348_240 + 3 * 83_560 + 2 * US) + 2_013_280
    assert floor <= took_ps(collective("all_reduce", "2MiB"), 8, 1, 2) <= floor * 103 // 100


@pytest.mark.skipif(not emu.is_compiled(), reason="six million events take a minute interpreted")
@pytest.mark.parametrize(("racks", "least_us", "most_us"), [(8, 972, 984), (16, 1280, 1296)])
def test_flat_rings_of_16_mib_agree_with_independent_simulators(
    racks: int, least_us: int, most_us: int
) -> None:
    # Their figures are those of steps that begin when the one before is acknowledged (on average 1.13 us
    # after delivery); the library begins a step on delivery, and pays four messages of 250 ns on host links.
    job = collective("all_reduce", "16MiB")
    took = took_ps(job, racks, 8, 8, host={"link_delay": "250ns", "link_rate": "512G"})
    assert least_us * US * 97 // 100 <= took <= most_us * US * 103 // 100
