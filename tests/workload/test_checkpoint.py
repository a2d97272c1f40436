"""Does a checkpoint take as long as its bottleneck says, and training no longer for it?

Four hosts of one GPU each save or load 2 MB a rank; a full packet of 4,096 B has 4,178 B on the wire.
"""

from fractions import Fraction
from typing import Any

import pytest

from actors.fabric.model import Role, Topology
from actors.optional.storage_clients import flattened
from emu import api
from emu.base.errors import ScenarioError
from emu.devices.drawing import blueprint_of
from emu.scenario.load import load_mapping
from emu.scenario.resolve import build_topology
from emu.workload.file_operations import Service, checkpoint

SIZE = 2_000_000
WIRE = Fraction(4178, 4096)
TIMES = {"window": "128KiB", "least_timeout": "20ms", "first_timeout": "20ms", "delayed_ack": "500us"}
OVERRIDES = [
    {"devices": ["fnic-*", "rsw-*", "fsw-*"], "switch": {"pfc": {"enabled": False}}},
    {
        "devices": "fnic-*",
        "transport": {"recovery": {"kind": "tcp", **TIMES}, "congestion_control": {"kind": "cubic"}},
    },
]


def checkpointing(frontend: dict[str, Any], workload: Any = (), **more: Any) -> dict[str, Any]:
    """A scenario with one checkpoint."""
    given = {"kind": "checkpoint", "size": f"{SIZE}B", "block": "128KiB", **dict(workload)}
    return {
        "name": "saving",
        "topology": {
            "kind": "llama3",
            "pods": 1,
            "racks_per_pod": 2,
            "hosts_per_rack": 2,
            "gpus_per_host": 1,
            "ctsws_per_pod": 1,
        },
        "frontend": {"enabled": True, "fsws": 1, **frontend},
        "overrides": OVERRIDES,
        "jobs": [{"name": "save", "workload": given}],
        **more,
    }


def placed(given: dict[str, Any]) -> Topology:
    """The fabric of a scenario whose jobs were wired on it."""
    scenario = load_mapping(given).scenario
    topology = build_topology(scenario)
    blueprint_of(scenario, topology)
    return topology


PARTS = ((0, 300), (1, 300), (2, 300), (3, 100))
FAST = {"servers": 4, "link": "100G", "disk": "100G"}


@pytest.mark.parametrize(
    ("frontend", "direction", "rate_bps", "share"),
    [
        ({"storage": {**FAST, "disk": "1G"}}, "save", 4e9, Fraction(1)),
        ({"storage": {**FAST, "disk": "1G"}}, "load", 4e9, Fraction(1)),
        ({"link": "2G", "oversubscription": "1/4", "storage": FAST}, "save", 8e9, WIRE),
        ({"link": "2G", "oversubscription": "1/4", "storage": FAST}, "load", 8e9, WIRE),
        ({"link": "10G", "oversubscription": 8, "storage": FAST}, "save", 5e9, WIRE),
        ({"storage": {**FAST, "servers": 1, "link": "5G"}}, "save", 5e9, WIRE),
    ],
    ids=["disks, save", "disks, load", "client NIC, save", "client NIC, load", "uplink", "one filer"],
)
def test_a_checkpoint_takes_its_bytes_over_the_rate_of_its_bottleneck(
    frontend: dict[str, Any], direction: str, rate_bps: float, share: Fraction
) -> None:
    result = api.run(checkpointing(frontend, {"direction": direction}), local=True, diagnose=False)
    staged_s = SIZE * 8 / 512e9 if direction == "save" else 0.0
    expected_s = staged_s + float(4 * SIZE * 8 * share) / rate_bps
    job = result.summary.jobs["save"]
    assert job.status == "success"
    assert (job.end_ps or 0) / 1e12 == pytest.approx(expected_s, rel=0.05)
    assert job.storage is not None
    reported_ps = job.storage.staged_ps
    assert reported_ps == (pytest.approx(staged_s * 1e12, rel=0.01) if direction == "save" else None)


def test_training_takes_as_long_with_a_checkpoint_beside_it_to_the_picosecond() -> None:
    steps = []
    for enabled in (True, False):
        shorter = {"jobs[0].workload.steps": 2, "jobs[1].workload.size": "200KB", "jobs[1].enabled": enabled}
        summary = api.run("checkpoint", overrides=shorter, local=True, diagnose=False).summary
        training = summary.jobs["train"].training
        assert training is not None
        steps.append((training.step_ps, summary.jobs["train"].end_ps))
        assert (summary.jobs["save"].status == "success") == enabled
    assert steps[0] == steps[1]


def test_the_front_end_shares_no_switch_and_no_link_with_the_back_end() -> None:
    topology = build_topology(load_mapping(checkpointing({"storage": FAST})).scenario)
    plain = build_topology(load_mapping({**checkpointing({}), "frontend": {}, "overrides": []}).scenario)
    front = [node for node in topology.nodes[:-1] if node.network == "frontend"]
    assert [node.name for node in topology.nodes[: len(plain.nodes) - 1]] == [
        node.name for node in plain.nodes[:-1]
    ]
    assert topology.links[: len(plain.links)] == plain.links
    assert sorted({node.role for node in front}) == [Role.HOST, Role.NIC, Role.SWITCH]
    numbers = {node.number for node in front}
    for link in topology.links:
        if link.kind == "fabric":
            assert (link.a in numbers) == (link.b in numbers), link.name
    for gpu in topology.gpus:
        assert all(topology.nodes[nic].network == "backend" for nic in topology.nics_of_gpu(gpu))


@pytest.mark.parametrize(
    ("fabric", "nics"),
    [
        ({"kind": "hpn", "pods": 1, "segments_per_pod": 1, "hosts_per_segment": 2}, 9),
        ({"kind": "megascale", "pods": 1, "blocks_per_pod": 1, "hosts_per_block": 2}, 9),
        ({"kind": "ai_zone", "racks": 2, "hosts_per_rack": 1, "gpus_per_host": 2, "spines": 1}, 3),
        ({"kind": "star", "hosts": 2}, 2),
    ],
    ids=["hpn", "megascale", "ai_zone", "star"],
)
def test_every_fabric_can_have_a_front_end_that_reaches_storage(fabric: dict[str, Any], nics: int) -> None:
    job = {"name": "save", "ranks": 2, "workload": {"kind": "checkpoint", "size": "1MB"}}
    topology = placed(checkpointing({"storage": FAST}) | {"topology": fabric, "jobs": [job]})
    servers = [topology.server(host) for host in range(2)]
    for server in servers:  # the ninth NIC of a server of HPN
        found = [topology.nodes[one] for one in server if topology.nodes[one].role is Role.NIC]
        assert len(found) == nics
        assert found[-1].network == "frontend"


def test_chunks_are_dealt_over_the_servers_and_none_is_lost() -> None:
    service = Service("plain", servers=4, metadata=0, block_bytes=300).placed([range(3)], 1_000)
    for save in (True, False):
        scripts = tuple(checkpoint(service, rank, 1_000, 7, save=save) for rank in range(3))
        asked = flattened(scripts)
        for rank in range(3):
            moved = [(one.server, one.up_bytes or one.down_bytes) for one in asked[4 * rank : 4 * rank + 4]]
            assert moved == [(service.places[rank, block][0], size) for block, size in PARTS]
        assert {one.up_bytes > 0 for one in asked} == {save}
        assert sum(one.up_bytes + one.down_bytes for one in asked) == 3_000
        assert {phase.earliest_ps for script in scripts for phase in script} == {7}


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"frontend": {}}, "there is no storage for checkpoint"),
        ({"frontend": {"storage": {"servers": 2}}}, "storage stands on the front-end network"),
        ({"host": {"memory": "1MB"}}, "1 ranks of host-0 have .* more than its memory"),
        (
            {"jobs": [{"name": "save", "workload": {"kind": "checkpoint", "size": "30TiB"}}]},
            "1 ranks of host-0 have .* more than its memory",
        ),
    ],
)
def test_a_checkpoint_that_has_no_place_is_refused(changed: dict[str, Any], said: str) -> None:
    given = checkpointing({"storage": FAST}) | {"overrides": []} | changed
    with pytest.raises(ScenarioError, match=said):
        placed(given)
