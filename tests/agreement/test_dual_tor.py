"""Do the two ports of a NIC fill as unevenly, and as evenly, as HPN's authors saw it (SIGCOMM'24, section 4)?

They saw three times as much on one port as on the other where all leaves share the aggregation switches, and
even loads in two planes.
"""

import pytest

import emu
from emu import api
from emu.doors.reproduce.published import uneven_ports


def test_hashes_load_one_port_of_a_nic_three_times_as_much_as_the_other_and_planes_do_not() -> None:
    # Two queue pairs a NIC: hashed, half of the NICs have 2 and 0, half 1 and 1: 1.5 over 0.5.
    assert uneven_ports(api.run("dual_tor_planes", local=True).summary) == pytest.approx(3, abs=1)
    assert uneven_ports(api.run("dual_tor_two_planes", local=True).summary) == pytest.approx(1, rel=0.05)


ALGORITHMS = {"nvls_tree": "4MiB", "double_binary_tree": "8MiB", "ring": "4MiB"}
"""Each with a size at which the network counts."""


def of_the_library(planes: int, algorithm: str, seed: int) -> tuple[int, float]:
    """Bus bandwidth of an all_reduce over two segments of HPN at defaults, and how much more the fuller port
    of a NIC receives than the emptier one, at the NIC where that is most.
    """
    call = {
        "kind": "collective",
        "op": "all_reduce",
        "algorithm": algorithm,
        "sizes": [ALGORITHMS[algorithm]],
    }
    shape = {"segments_per_pod": 2, "hosts_per_segment": 2, "gpus_per_host": 2, "aggs_per_plane": 1}
    given = {
        "name": "two_ports",
        "seed": seed,
        "topology": {"kind": "hpn", "planes": planes, **shape},
        "jobs": [{"name": "train", "workload": call}],
    }
    summary = api.run(given, local=True, diagnose=False).summary
    (row,) = summary.jobs["train"].collectives
    assert row.busbw is not None
    received: dict[str, list[int]] = {}
    for link in summary.fabric.links:
        if link.destination.startswith("nic-"):
            received.setdefault(link.destination, []).append(link.data_bytes)
    assert len(received) == 8
    return row.busbw, max(max(ports) / max(min(ports), 1) for ports in received.values())


@pytest.mark.skipif(not emu.is_compiled(), reason="sixty runs of 300,000 packet-hops")
@pytest.mark.parametrize("seed", range(1, 11))
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_two_planes_are_faster_than_a_joined_fabric_and_both_ports_receive_alike(
    algorithm: str, seed: int
) -> None:
    """HPN's claim, at defaults: the library sends each message over all ports of a NIC, and in two planes
    what leaves a port arrives at the same one. On the joined fabric hashes choose the port.
    """
    (planes_bps, planes_ratio), (joined_bps, joined_ratio) = (
        of_the_library(planes, algorithm, seed) for planes in (2, 1)
    )
    assert planes_ratio < 1.05 < joined_ratio
    assert planes_bps > joined_bps


@pytest.mark.parametrize(("use", "many"), [("merged", [0.5, 0.5]), ("apart", [1, 0]), ("bonded", [1, 0])])
def test_a_message_is_cut_over_the_ports_of_a_merged_nic_alone(use: str, many: list[float]) -> None:
    """One channel between two servers of one NIC with two ports, one queue pair."""
    call = {"kind": "collective", "op": "broadcast", "algorithm": "ring", "sizes": ["1MiB"]}
    given = {
        "name": "one_channel",
        "topology": {"kind": "hpn", "segments_per_pod": 1, "hosts_per_segment": 2, "gpus_per_host": 1},
        "ncclx": {"port_use": use, "channels": 1, "protocol": "simple"},
        "jobs": [{"name": "one", "workload": call}],
    }
    summary = api.run(given, local=True, diagnose=False).summary
    sent = {(link.source, link.destination): link.data_bytes for link in summary.fabric.links}
    for leaves, enters in (("nic-0-0", "nic-1-0"),):
        data = [sent[leaves, f"tor-0-0-{port}"] for port in (0, 1)]
        assert data == [round(share * 2**20) for share in many], data
        assert [sent[f"tor-0-0-{port}", enters] for port in (0, 1)] == data


def test_ports_apart_are_nics_that_channels_take_in_turn() -> None:
    call = {"kind": "collective", "op": "all_reduce", "algorithm": "ring", "sizes": ["4MiB"]}
    given = {
        "name": "apart",
        "topology": {"kind": "hpn", "segments_per_pod": 1, "hosts_per_segment": 2, "gpus_per_host": 2},
        "ncclx": {"port_use": "apart"},
        "jobs": [{"name": "one", "workload": call}],
    }
    summary = api.run(given, local=True, diagnose=False).summary
    ports = [link.data_bytes for link in summary.fabric.links if link.source.startswith("nic-")]
    assert len(ports) == 8, "two ports of two NICs of two servers"
    assert max(ports) < 1.05 * min(ports)
