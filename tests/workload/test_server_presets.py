"""Where do things sit in a server, and what do a job's steps and its checkpoint take from each other there?

A link of PCIe Gen5 carries 504G, of Gen4 252G. Of 400G of a NIC 4,096 of 4,178 B are payload.
"""

from fractions import Fraction
from typing import Any

import pytest

from actors.nic.memory_path import Fetch
from emu import api
from emu.base.errors import ScenarioError
from emu.scenario.load import load_mapping
from emu.scenario.resolve import build_topology
from emu.scenario.sections.host import HostSection
from emu.topology.server_presets import SERVER_PRESETS, copy_rates_bps
from tests.workload.test_checkpoint import checkpointing

GEN4_BPS, GEN5_BPS = 252 * 10**9, 504 * 10**9
NIC_PAYLOAD_BPS = Fraction(400 * 10**9 * 4096, 4178)
FAST = {"servers": 4, "link": "100G", "disk": "100G"}
SIZE = 1_000_000
JOB: dict[str, Any] = {"name": "one", "workload": {"kind": "permutation", "size": "4KiB"}}


@pytest.mark.parametrize(
    ("name", "cpus", "frontend_nics", "nvme", "link_bps"),
    [
        ("zionex", 4, 4, 0, GEN4_BPS),
        ("grand_teton", 2, 1, 16, GEN5_BPS),
        ("hpn", 2, 1, 0, GEN5_BPS),
    ],
)
def test_a_build_has_its_gpus_nics_and_drives_on_four_pcie_switches(
    name: str, cpus: int, frontend_nics: int, nvme: int, link_bps: int
) -> None:
    preset = SERVER_PRESETS[name]
    assert (preset.cpus, preset.frontend_nics, preset.link_bps) == (cpus, frontend_nics, link_bps)
    assert [one.gpus for one in preset.switches] == [(0, 1), (2, 3), (4, 5), (6, 7)]
    assert [one.nics for one in preset.switches] == [one.gpus for one in preset.switches]
    assert sum(one.nvme for one in preset.switches) == nvme
    nics = sum(len(one.nics) for one in preset.switches) + frontend_nics
    assert nics == {"zionex": 12, "grand_teton": 9, "hpn": 9}[name]


def test_the_key_takes_every_build_and_none() -> None:
    for name in (*SERVER_PRESETS, "none"):
        assert HostSection.model_validate({"node": name}).node == name


@pytest.mark.parametrize(
    ("copying", "rates"), [([0], [2]), ([0, 1], [2, 2]), ([0, 2], [2, 2]), ([1, 4, 5], [2, 2, 2])]
)
def test_a_copy_gets_half_of_its_gpus_link_and_of_the_switchs(copying: list[int], rates: list[int]) -> None:
    topology = build_topology(load_mapping(eight_gpus("hpn")).scenario)
    gpus = [topology.gpus[one] for one in copying]
    assert copy_rates_bps("hpn", 1, topology, gpus) == [GEN5_BPS // part for part in rates]
    assert copy_rates_bps("none", 1, topology, gpus) == [1] * len(gpus)


def eight_gpus(build: str) -> dict[str, Any]:
    """Two servers of eight GPUs."""
    fabric = {"kind": "hpn", "pods": 1, "segments_per_pod": 1, "hosts_per_segment": 2}
    return {"name": "servers", "topology": fabric, "host": {"node": build}, "jobs": [JOB]}


@pytest.mark.parametrize(("build", "link_bps"), [("zionex", GEN4_BPS), ("grand_teton", GEN5_BPS)])
def test_a_save_waits_for_the_link_that_two_gpus_share(build: str, link_bps: int) -> None:
    ends = []
    for node in (build, "none"):
        given = checkpointing({"storage": FAST}, {"size": f"{SIZE}B"}, host={"node": node})
        given["topology"]["gpus_per_host"] = 2
        given["jobs"][0]["ranks"] = [0, 1]
        ends.append(api.run(given, local=True, diagnose=False).summary.jobs["save"].end_ps or 0)
    # 2 x 1 MB over the switch's link, instead of 1 MB over each GPU's own of 512G.
    assert ends[0] - ends[1] == -(-2 * SIZE * 8 * 10**12 // link_bps) - SIZE * 8 * 10**12 // (512 * 10**9)


def test_a_nic_sends_no_faster_than_the_pcie_of_its_build() -> None:
    given = eight_gpus("zionex") | {"topology": {"kind": "star", "hosts": 2}}
    given["jobs"] = [
        {"name": "send", "workload": {"kind": "flows", "flows": [{"src": 0, "dst": 1, "size": "4MB"}]}}
    ]
    job = api.run(given, local=True, diagnose=False).summary.jobs["send"]
    assert job.end_ps == pytest.approx(4e6 * 8 / GEN4_BPS * 1e12, rel=0.05)


def step_ps(**overrides: Any) -> int:
    """How long the training step of the scenario takes."""
    changes = {key.replace("__", "."): value for key, value in overrides.items()}
    summary = api.run("checkpoint_pcie", overrides=changes, local=True, diagnose=False).summary
    training = summary.jobs["train"].training
    assert training is not None
    return training.step_ps or 0


def test_a_step_is_slower_by_what_the_copy_takes_of_its_nics_and_not_at_all_elsewhere() -> None:
    alone_ps = step_ps(**{"jobs[1]__enabled": False})
    copies_ps = 2 * SIZE * 8 * 10**12 // GEN5_BPS
    longer_ps = copies_ps * (1 - GEN5_BPS / 2 / NIC_PAYLOAD_BPS)
    assert step_ps() - alone_ps == pytest.approx(float(longer_ps), rel=0.01)
    assert step_ps(**{"jobs[1]__ranks": [2, 3, 6, 7]}) == alone_ps


def test_what_a_copy_leaves_of_the_link_is_the_nics_and_half_of_it_at_least() -> None:
    fetch = Fetch(GEN5_BPS, None, GEN5_BPS)
    assert fetch.take(4096, 0, 0) == -(-4096 * 8 * 10**12 // GEN5_BPS)
    rates = []
    for more_bps in (100 * 10**9, 300 * 10**9, -100 * 10**9, -300 * 10**9):
        fetch.share(more_bps)
        rates.append(int(fetch.rate_bps))
    assert rates == [404 * 10**9, 252 * 10**9, 252 * 10**9, GEN5_BPS]
    fetch.share(200 * 10**9)
    saved = Fetch(GEN5_BPS, None, GEN5_BPS)
    saved.load(fetch.save())
    assert saved.take(4096, 10**9, 0) == 10**9 + -(-4096 * 8 * 10**12 // (304 * 10**9))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (
            {"topology": {"kind": "llama3", "pods": 1, "racks_per_pod": 2, "gpus_per_host": 16}},
            "host-0 has 16 GPUs with 16 NICs of their own; accepted: up to 8 GPUs with a NIC each, or none",
        ),
        (
            {"overrides": [{"devices": "host-0", "host": {"node": "zionex"}}]},
            "host.node is one for the whole fabric",
        ),
        ({"fidelity": "flow"}, "host.node: flow level does not have this"),
    ],
)
def test_what_no_server_of_the_build_is_like_is_refused(change: dict[str, Any], reason: str) -> None:
    with pytest.raises(ScenarioError, match=reason):
        api.run(eight_gpus("hpn") | change, local=True, diagnose=False)
