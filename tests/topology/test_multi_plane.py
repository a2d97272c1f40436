"""Has a fabric of several planes the published arithmetic, k times the rate, and 1/k less without one?"""

from typing import Any

import pytest

from actors.fabric.model import TopologyError
from emu.api import Result, run
from emu.cli.topo_views import room_of_planes
from emu.scenario.load import load_mapping
from emu.scenario.spans import plane_names, port_labels
from emu.summary.summary_report import closing_lines
from emu.topology.fabric_blocks import planes
from emu.topology.generators.multi_plane import room
from emu.topology.outline import describe
from tests.topology.fabrics import fabric_of, path_set

POST_PS = 100_000
"""What a host needs to post one work request more (`host.post_overhead`)."""
PAIR = {"kind": "multi_plane", "hosts": 2, "gpus_per_host": 1, "link": "100G"}


@pytest.mark.parametrize(
    ("tiers", "radix", "ports", "switches"),
    [
        (2, 512, 131_072, 512 + 256),  # MRC, section 2: 131,072 NICs in two tiers
        (2, 64, 2_048, 96),  # MPFT's table: FT2 has 2,048 endpoints and 96 switches
        (3, 64, 65_536, 5_120),  # FT3 has 65,536 and 5,120
    ],
)
def test_a_plane_has_room_for_as_many_nics_as_published(
    tiers: int, radix: int, ports: int, switches: int
) -> None:
    full = room(tiers, radix)
    assert (full.ports, sum(full.switches)) == (ports, switches)


def test_mpft_as_it_comes_is_16384_gpus_on_768_switches() -> None:
    fabric = fabric_of(kind="multi_plane")
    assert (len(fabric.gpus), len(fabric.switches)) == (16_384, 768)
    assert describe(fabric).most_switches == 3
    of_switch = planes(fabric)
    for place, nic in enumerate(fabric.nics[:8]):
        assert of_switch[fabric.ports(nic)[0].peer] == place


def test_a_port_says_which_plane_it_is_on_where_there_are_several() -> None:
    fabric = fabric_of(kind="multi_plane", tiers=2, radix=4, planes=4, nic_ports=4, gpus_per_host=1, hosts=4)
    names = plane_names(fabric)
    of_nic = [port_labels(fabric, fabric.nics[0], port, names) for port in range(4)]
    assert [labels[-1] for labels in of_nic] == ["0", "1", "2", "3"]
    for switch in fabric.switches:
        (plane,) = {labels[-1] for port in range(2) if (labels := port_labels(fabric, switch, port, names))}
        assert plane == str(planes(fabric)[switch])
    alone = fabric_of(kind="star", hosts=2)
    assert plane_names(alone) == {}


def test_topo_says_how_large_the_fabrics_of_mrc_may_be_and_what_a_lost_link_takes() -> None:
    topology = PAIR | {"nic_ports": 8, "radix": 512}
    lines = room_of_planes(load_mapping({"name": "x", "topology": topology, "jobs": JOBS}).scenario)
    assert "131,072 NICs in 131,072 servers, 6,144 switches" in lines[0]
    assert lines[1] == (
        "a lost link above a ToR takes 0.4 % of its uplinks, a lost ToR 12.5 % of the ports of each server"
        " below it"
    )


@pytest.mark.parametrize(("tiers", "paths"), [(2, 2), (3, 4)])
def test_a_port_reaches_the_same_plane_of_every_server_by_every_switch_of_it(tiers: int, paths: int) -> None:
    fabric = fabric_of(
        kind="multi_plane", tiers=tiers, radix=4, planes=4, nic_ports=2, gpus_per_host=2, hosts=tiers * 2
    )
    found = path_set(fabric, fabric.nics[0], fabric.nics[-2])
    assert len(found) == 2 * paths  # of NIC 0, which is on planes 0 and 1
    for path in found:
        ends = [fabric.links[path[0]].b, fabric.links[path[-1]].b]
        assert planes(fabric)[ends[0]] == planes(fabric)[ends[1]] < 2


@pytest.mark.parametrize(
    ("section", "said"),
    [
        (
            {"planes": 3, "nic_ports": 8},
            "planes: 3 planes do not divide the 64 ports of a server (gpus_per_host: 8 NICs of nic_ports: 8)",
        ),
        ({"planes": 8, "nic_ports": 3}, "planes: 8 planes do not divide the 24 ports of a server"),
        ({"radix": 7}, "radix: 7 ports are not half down and half up"),
        (
            {"radix": 2, "nic_ports": 8},
            "radix: a server has 8 ports on a plane, and a ToR of 2 ports takes 1",
        ),
        ({"hosts": 2049}, "hosts: 2049 are too many: 2 tiers of 64-port switches have room for 2048 servers"),
        ({"kind": "hpn", "planes": 3, "nic_ports": 4}, "planes: 3 planes do not divide the 4 ports of a NIC"),
        ({"kind": "hpn", "planes": 4}, "planes: plane 2 has no path: NICs of 2 ports reach planes 0 to 1"),
    ],
    ids=str,
)
def test_planes_that_cannot_be_are_refused_by_key(section: dict[str, Any], said: str) -> None:
    with pytest.raises(TopologyError) as error:
        fabric_of(**{"kind": "multi_plane"} | section)
    assert said in str(error.value)


JOBS = [{"name": "a", "workload": {"kind": "permutation", "size": "1MiB"}}]


def of_flow(ports: int, qps: int, size: str, **sections: Any) -> Result:
    """One flow between two servers with so many planes, and ports of their NICs."""
    work = {"kind": "flows", "qps": qps, "flows": [{"src": 0, "dst": 1, "size": size}]}
    fabric = PAIR | {"planes": ports, "nic_ports": ports, "radix": 4}
    given = {"name": "planes", "topology": fabric, "jobs": [{"name": "f", "workload": work}], **sections}
    return run(given, local=True, diagnose=False)


def test_k_planes_carry_k_times_as_much_in_the_same_time() -> None:
    """All but the posts, which a host makes one after the other, is as long to the picosecond."""
    took = []
    for ports in (1, 2, 4, 8):
        result = of_flow(ports, ports, f"{ports * 256}KiB")
        sent_ps = result.summary.jobs["f"].flows[0].delivered_ps
        assert sent_ps is not None
        took.append(sent_ps - (ports - 1) * POST_PS)
        assert [plane.up_bytes for plane in result.summary.fabric.planes] == [2**18] * (ports > 1) * ports
    assert took == [took[0]] * 4


def test_one_queue_pair_is_carried_by_one_plane_and_rows_and_a_line_say_so() -> None:
    """DeepEP's case: only plane 0 carried traffic until queue pairs were chosen over all."""
    result = of_flow(4, 1, "64KiB")
    lines = closing_lines(result.summary)
    assert [(one.plane, one.up_bytes, one.down_bytes) for one in result.summary.fabric.planes] == [
        (0, 65_536, 65_536),
        (1, 0, 0),
        (2, 0, 0),
        (3, 0, 0),
    ]
    assert any("1 queue pair for data and 4 ports" in line for line in lines)
    assert [line.split()[:2] for line in lines if line.startswith("  plane ")] == [
        ["plane", str(one)] for one in range(4)
    ]


@pytest.mark.parametrize("ports", [2, 4])
def test_a_lost_plane_costs_one_kth_of_the_rate(ports: int) -> None:
    sections = {
        "run": {"span": {"at": "40us", "for": "40us"}},
        "routing": {"convergence": "1us"},
    }
    whole = of_flow(ports, 2 * ports, f"{ports}MiB", **sections).summary.fabric.span
    lost = of_flow(
        ports,
        2 * ports,
        f"{ports}MiB",
        **sections,
        faults=[{"kind": "switch_crash", "at": "15us", "target": "tor-1-0"}],
    ).summary.fabric.span
    assert whole is not None
    assert lost is not None
    assert lost.delivered_bps / whole.delivered_bps == pytest.approx(1 - 1 / ports, abs=0.005)


WORK = {
    "all_to_all": {"kind": "collective", "op": "all_to_all", "sizes": ["1MiB"]},
    "step": {
        "kind": "training",
        "model": "own",
        "own": {"layers": 2, "hidden": 128, "heads": 4, "kv_heads": 4, "ffn": 256, "sequence": 256},
        "dp": 8,
    },
}


@pytest.mark.parametrize("work", WORK)
def test_planes_by_nic_are_as_fast_as_rails_that_meet_in_the_spines(work: str) -> None:
    """DeepSeek measured no difference (19.926 and 19.946 s a step). Sprayed, no luck of hashes is in it."""
    rails = {
        "kind": "hpn",
        "nic_ports": 1,
        "segments_per_pod": 2,
        "hosts_per_segment": 2,
        "aggs_per_plane": 2,
        "tor_oversubscription": 1,
        "link": "400G",
    }
    took = []
    for fabric in ({"kind": "multi_plane", "planes": 2, "radix": 4, "hosts": 4}, rails):
        given = {
            "name": "mpft",
            "topology": fabric | {"gpus_per_host": 2},
            "routing": {"kind": "spray"},
            "transport": {"recovery": {"kind": "go_back_n", "placement": "out_of_order"}},
            "jobs": [{"name": "x", "workload": WORK[work]}],
        }
        job = run(given, local=True, diagnose=False).summary.jobs["x"]
        assert job.end_ps is not None
        took.append(job.end_ps - (job.start_ps or 0))
    assert took[0] == pytest.approx(took[1], rel=0.001)
