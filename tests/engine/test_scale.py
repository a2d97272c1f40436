"""What a large fabric costs is counted, not timed: 1,024 GPUs in 64 racks under 16 spines.

The switches number 80. Whatever grew with pairs of GPUs would have a million entries here.
"""

import pytest

from actors.fabric.routes import routes
from actors.switch.switch import Switch
from emu.api import prepare
from emu.api import run as run_scenario
from emu.devices.drawing import blueprint_of
from emu.engine.blueprint import RunPlan, spread

RACKS, SPINES, GPUS = 64, 16, 1024


@pytest.fixture(scope="module")
def plan() -> RunPlan:
    scenario = {
        "name": "pod",
        "topology": {"kind": "llama3", "pods": 1, "racks_per_pod": RACKS},
        "jobs": [
            {
                "name": "one",
                "workload": {
                    "kind": "flows",
                    "flows": [{"src": 0, "dst": GPUS - 1, "size": "64KiB"}],
                },
            }
        ],
    }
    prepared = prepare(scenario)
    assert len(prepared.topology.gpus) == GPUS
    return spread(blueprint_of(prepared.scenario, prepared.topology), 2)


def test_worker_reads_off_the_groups_of_its_own_switches_only(plan: RunPlan) -> None:
    partition = plan.partition(0)
    mine = [device.number for device in partition.devices if isinstance(device, Switch)]
    assert 0 < len(mine) < len(plan.topology.switches) == RACKS + SPINES
    switches, distinct = routes(plan.topology).held()
    assert switches == len(mine)
    # A leaf has one group upwards and none for its own rack; a spine has one for each rack.
    leaves = sum(plan.topology.nodes[switch].tier == 1 for switch in mine)
    assert distinct == 2 * leaves + RACKS * (len(mine) - leaves)


def test_switch_has_an_entry_for_each_rack_and_an_object_for_each_distinct_group(plan: RunPlan) -> None:
    partition = plan.partition(0)
    switches = [device for device in partition.devices if isinstance(device, Switch)]
    for switch in switches:
        groups = switch.routes.groups(switch.number, [])
        leaf = plan.topology.nodes[switch.number].tier == 1
        assert len(groups) == RACKS
        assert len({id(group) for group in groups}) == (2 if leaf else RACKS)
        assert sum(group.count for group in groups if group.by_address) == (GPUS // RACKS if leaf else 0)


def test_nothing_is_built_for_pairs_that_do_not_talk(plan: RunPlan) -> None:
    pairs = plan.blueprint.plan.pairs
    assert sum(len(of_nic) for of_nic in pairs.values()) == 2
    partition = plan.partition(0)
    partition.start()
    assert len(list(partition.kernel.pending())) <= 2


def test_idle_devices_execute_nothing() -> None:
    flow = {"kind": "flows", "flows": [{"src": 0, "dst": 127, "size": "64KiB"}]}
    topology = {"kind": "llama3", "pods": 1, "racks_per_pod": 8}
    result = run_scenario(
        {"name": "pod", "topology": topology, "jobs": [{"name": "one", "workload": flow}]}, local=True
    )
    busy = [record.number for record in result.outcome.devices if record.executed]
    # Two hosts, two NICs, two leaves, one spine, the controller, and whom the jobs' end is told.
    assert len(result.outcome.devices) == 16 * 18 + 8 + 16 + 1
    assert len(busy) <= 8
