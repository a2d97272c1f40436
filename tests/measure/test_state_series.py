"""The state that a scrape shows is what devices are in, under bounded labels."""

from actors.runtime.changes import Changes
from actors.runtime.local import InProcess
from actors.runtime.participant import Participant
from actors.runtime.plan import RunPlan, blueprint_of, spread
from actors.runtime.state_reading import Rows, StateReading, ranges
from emu import api
from emu.measure.exposition import state_text
from emu.measure.state_metrics import size_range
from tests.measure.test_exposition import check_format

US = 10**6


def plan() -> RunPlan:
    overrides = {
        "faults": [{"at": "20us", "kind": "link_down", "target": "rtsw-0:ctsw-0", "for": "30us"}],
        "transport.timeout": 4,
    }
    prepared = api.prepare("scenarios/tiny_all_reduce.yaml", overrides)
    return spread(blueprint_of(prepared.scenario, prepared.topology), 1)


def states(*times_ps: int) -> list[Rows]:
    """What a scrape would show at these times."""
    made = plan()
    partition = made.partition(0)
    machine = made.machine(0)
    changes = Changes(made, 0, partition, machine, live=False)
    reading = StateReading(made, partition.devices, changes.faults)
    participant = Participant(partition, machine, changes.act)
    partition.start()
    run = InProcess([participant], 1, lambda: True)
    found = []
    for at_ps in times_ps:
        run.advance(at_ps)
        found.append(reading.rows(at_ps))
    return found


def test_a_port_is_down_while_its_link_is_and_the_fault_is_active_then() -> None:
    before, during, after = states(19 * US, 30 * US, 60 * US)
    assert [sum(value for _, value in one["port_up"]) for one in (before, during, after)] == [16, 14, 16]
    assert [one["faults"] for one in (before, during, after)] == [[((), 0)], [((), 1)], [((), 1)]]
    assert [one["faults_active"] for one in (before, during, after)] == [[((), 0)], [((), 1)], [((), 0)]]
    down = [labels for labels, value in during["port_up"] if not value]
    peers = {labels[:2]: labels[2:] for labels, _ in during["port_info"]}
    assert [peers[place] for place in down] == [("ctsw-0", "up"), ("rtsw-0", "down")]


def test_collectives_have_the_labels_of_nccl_inspector_and_the_numbers_of_the_summary() -> None:
    (end,) = states(10**12)
    result = api.run(
        "scenarios/tiny_all_reduce.yaml",
        overrides={
            "faults": [{"at": "20us", "kind": "link_down", "target": "rtsw-0:ctsw-0", "for": "30us"}],
            "transport.timeout": 4,
        },
        local=True,
    )
    last = result.summary.jobs["ring"].collectives[-1]
    assert last.end_ps is not None
    assert last.start_ps is not None
    assert last.busbw is not None
    labels = ("ring", "2", "4", "AllReduce", "256-512KB", "RING_SIMPLE")
    done = len(plan().blueprint.plan.jobs[0].operations)
    assert end["collectives"] == [(labels, done)]
    assert end["collective_exec_time_ps"] == [(labels, last.end_ps - last.start_ps)]
    assert end["collective_bus_bandwidth_bytes"] == [(labels, last.busbw // 8)]
    assert end["job_operations"] == [(("ring",), done)]
    assert (end["job_running"], end["job_failed"]) == ([(("ring",), 0)], [(("ring",), 0)])


def test_sizes_are_ranges_of_powers_of_two() -> None:
    assert [size_range(size) for size in (1, 1023, 1024, 1_500_000, 2**33, 0)] == [
        "1-2B",
        "512-1024B",
        "1-2KB",
        "1-2MB",
        "8-16GB",
        "1-2B",
    ]


def test_state_is_rendered_as_prometheus_reads_it() -> None:
    text = state_text({"port_up": [(("a", "0"), 1)], "faults": [((), 2)], "unheard_of": [((), 1)]}, {})
    assert 'emu_port_up{device="a",port="0"} 1\n' in text
    assert "emu_faults_total 2\n" in text
    assert "unheard_of" not in text
    (rows,) = states(30 * US)
    assert len(check_format(state_text(rows, {}))) > 30


def state_at_end(scenario: str, **overrides: object) -> tuple[Rows, RunPlan]:
    prepared = api.prepare(scenario, overrides)
    made = spread(blueprint_of(prepared.scenario, prepared.topology), 1)
    partition, machine = made.partition(0), made.machine(0)
    reading = StateReading(made, partition.devices, lambda: ())
    partition.start()
    InProcess([Participant(partition, machine, lambda _: None)], 1, lambda: True).run()
    return reading.rows(partition.now_ps()), made


def test_the_last_step_of_training_has_the_time_and_mfu_of_the_summary() -> None:
    training = api.run("scenarios/training_step.yaml", local=True).summary.jobs["train"].training
    assert training is not None
    assert training.mfu is not None
    rows, _ = state_at_end("scenarios/training_step.yaml")
    assert rows["job_step_time_ps"] == [(("train",), training.step_ps)]
    ((labels, mfu_ppm),) = rows["job_mfu_ppm"]
    assert labels == ("train",)
    assert abs(mfu_ppm - training.mfu * 10**6) <= 1
    assert f'emu_job_mfu_ratio{{job="train"}} 0.{mfu_ppm:06d}\n' in state_text(rows, {})


def test_every_member_of_every_group_has_its_load() -> None:
    rows, made = state_at_end("scenarios/tiny_all_reduce.yaml")
    topology = made.topology
    result = api.run("scenarios/tiny_all_reduce.yaml", local=True)
    members = {(device, peer): value for (device, _, _, peer, _), value in rows["group_member_bytes"]}
    for row in result.summary.fabric.uplinks:
        for peer, load in zip(row.towards, row.loads, strict=True):
            assert members[row.switch, peer] == load
    groups = {(device, group) for (device, group, *_), _ in rows["group_member_bytes"]}
    assert groups == {(topology.nodes[leaf].name, "2-3") for leaf in topology.switches[:2]}


def test_ranges_are_short() -> None:
    assert [ranges(one) for one in ([], [3], [0, 1, 2, 5], [1, 3, 4])] == ["", "3", "0-2,5", "1,3-4"]
