"""The state that a scrape shows is what devices are in, under bounded labels."""

from pathlib import Path

from emu import api
from emu.cluster.pages.state_series import Rows, StateReading
from emu.counts.exposition import StateText
from emu.devices.drawing import blueprint_of
from emu.engine.blueprint import RunPlan, spread
from emu.engine.in_process import InProcess
from emu.engine.live.changes import Changes
from emu.engine.sync.logical_process import LogicalProcess
from emu.results.metrics import size_range
from emu.run_directory.samples import SampleReader
from emu.summary.series import ranges
from tests.summary.test_exposition import check_format

US = 10**6


def plan() -> RunPlan:
    overrides = {
        "faults": [{"at": "20us", "kind": "link_down", "target": "rtsw-0:ctsw-0", "for": "30us"}],
        "transport.timeout": 4,
    }
    prepared = api.prepare("scenarios/start/tiny_all_reduce.yaml", overrides)
    return spread(blueprint_of(prepared.scenario, prepared.topology), 1)


def states(*times_ps: int) -> list[Rows]:
    """What a scrape would show at these times."""
    made = plan()
    partition = made.partition(0)
    machine = made.machine(0)
    changes = Changes(made, 0, partition, machine, live=False)
    reading = StateReading(made, [partition], changes.faults)
    logical_process = LogicalProcess(partition, machine, changes.act)
    partition.start()
    run = InProcess([logical_process], 1, lambda: True)
    found = []
    for at_ps in times_ps:
        run.advance(at_ps)
        found.append(reading.rows(at_ps))
    return found


def test_a_fault_is_active_until_it_is_over_and_every_port_says_whom_it_is_connected_to() -> None:
    before, during, after = states(19 * US, 30 * US, 60 * US)
    assert [one["faults"] for one in (before, during, after)] == [[((), 0)], [((), 1)], [((), 1)]]
    assert [one["faults_active"] for one in (before, during, after)] == [[((), 0)], [((), 1)], [((), 0)]]
    peers = {labels[:2]: labels[2:] for labels, _ in during["port_info"]}
    assert (len(peers), peers["rtsw-0", "2"], peers["ctsw-0", "0"]) == (
        16,
        ("ctsw-0", "up", ""),
        ("rtsw-0", "down", ""),
    )


def test_a_ports_signal_and_a_queues_depth_are_kept_over_time(tmp_path: Path) -> None:
    result = api.run(
        "scenarios/start/tiny_all_reduce.yaml",
        overrides={
            "faults": [
                {"at": "20us", "kind": "link_down", "target": "rtsw-0:ctsw-0", "for": "30us"},
                {"at": "1us", "kind": "degrade", "target": "rtsw-0:ctsw-1", "rate": "10G", "for": "15us"},
            ],
            "transport.timeout": 4,
            "run.sample_every": "10us",
            "expect": [
                {"series": "emu_port_up", "where": {"device": "ctsw-1"}, "always": {"equals": 1}},
                {"series": "emu_port_up", "where": {"device": "ctsw-0", "port": 0}, "reaches": {"equals": 0}},
                {
                    "series": "emu_port_up",
                    "where": {"device": "ctsw-0"},
                    "always": {"equals": 1},
                    "from": "55us",
                },
            ],
        },
        local=True,
        out=tmp_path / "run",
        diagnose=False,
    )
    assert [one.passed for one in result.summary.expectations] == [True] * 3
    reader = SampleReader(tmp_path / "run" / "samples.jsonl")
    names = api.prepare("scenarios/start/tiny_all_reduce.yaml").topology
    down: dict[int, list[str]] = {}
    deepest: dict[str, int] = {}
    for sample in reader:
        for number, values in sample.counters.items():
            for one, value in zip(reader.series[number], values, strict=True):
                if one.metric == "port_up" and not value:
                    down.setdefault(sample.virtual_ps // US, []).append(names.nodes[number].name)
                elif one.metric == "queue_bytes":
                    name = f"{names.nodes[number].name}/{one.port}"
                    deepest[name] = max(deepest.get(name, 0), value)
    dark = ["rtsw-0", "ctsw-0"]
    assert down == {30: dark, 40: dark}  # nothing happened in the last 10 us, so there is no sample of them
    assert max(deepest, key=lambda name: deepest[name]) == "rtsw-0/3"
    assert deepest["rtsw-0/3"] > 4096


def sampled(run: Path, *metrics: str) -> list[dict[str, dict[int, int]]]:
    """Of each sample: by metric, what every device had, over ports and priorities."""
    reader = SampleReader(run / "samples.jsonl")
    found = []
    for sample in reader:
        then: dict[str, dict[int, int]] = {metric: {} for metric in metrics}
        for number, values in sample.counters.items():
            for one, value in zip(reader.series[number], values, strict=True):
                if one.metric in then:
                    then[one.metric][number] = then[one.metric].get(number, 0) + value
        found.append(then)
    return found


def test_priority_groups_hold_what_the_buffer_holds(tmp_path: Path) -> None:
    overrides = {"run.sample_every": "5us", "run.sample_series": "all", "expect": []}
    api.run(
        "scenarios/start/incast.yaml", overrides=overrides, local=True, out=tmp_path / "run", diagnose=False
    )
    samples = sampled(tmp_path / "run", "ingress_bytes", "buffer_used_bytes")
    assert all(one["ingress_bytes"] == one["buffer_used_bytes"] for one in samples)
    assert max(max(one["ingress_bytes"].values()) for one in samples) > 100_000
    assert set(samples[-1]["ingress_bytes"].values()) == {0}


def test_the_depths_of_virtual_output_queues_and_receive_buffers_are_kept_over_time(tmp_path: Path) -> None:
    overrides = {
        "topology.link": "100G",
        "switch.deep_buffer": {"where": "spines"},
        "run.sample_every": "20us",
        "expect": [],
        "run.sample_series": "all",
    }
    api.run(
        "scenarios/nic/slow_receiver.yaml",
        overrides=overrides,
        local=True,
        out=tmp_path / "run",
        diagnose=False,
    )
    metrics = ("voq_bytes", "voq_peak_bytes", "nic_receive_buffer_bytes", "nic_receive_buffer_peak_bytes")
    samples = sampled(tmp_path / "run", *metrics)
    for depth, peak in (metrics[:2], metrics[2:]):
        assert all(one[depth][number] <= one[peak][number] for one in samples for number in one[depth])
        assert max(max(one[depth].values()) for one in samples) > 20_000
        assert set(samples[-1][depth].values()) == {0}


def test_collectives_have_the_labels_of_nccl_inspector_and_the_numbers_of_the_summary() -> None:
    (end,) = states(10**12)
    result = api.run(
        "scenarios/start/tiny_all_reduce.yaml",
        overrides={
            "faults": [{"at": "20us", "kind": "link_down", "target": "rtsw-0:ctsw-0", "for": "30us"}],
            "transport.timeout": 4,
        },
        local=True,
        diagnose=False,
    )
    last = result.summary.jobs["ring"].collectives[-1]
    assert last.end_ps is not None
    assert last.start_ps is not None
    assert last.busbw is not None
    labels = ("ring", "2", "4", "AllReduce", "256-512KB", "RING_SIMPLE")
    done = len(plan().blueprint.plan.jobs[0].operations)
    assert end["collectives"] == [(labels, done)]
    assert end["collective_exec_time_ps"] == [(labels, last.end_ps - last.start_ps)]
    assert end["collective_bus_bandwidth_bytes_per_second"] == [(labels, last.busbw // 8)]
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
    text = (
        StateText()
        .render({"job_running": [(("a",), 1)], "faults": [((), 2)], "unheard_of": [((), 1)]})
        .decode()
    )
    assert 'emu_job_running{job_name="a"} 1\n' in text
    assert "emu_faults_total 2\n" in text
    assert "unheard_of" not in text
    (rows,) = states(30 * US)
    assert len(check_format(StateText().render(rows).decode())) > 28


def state_at_end(scenario: str, **overrides: object) -> tuple[Rows, RunPlan]:
    prepared = api.prepare(scenario, overrides)
    made = spread(blueprint_of(prepared.scenario, prepared.topology), 1)
    partition, machine = made.partition(0), made.machine(0)
    reading = StateReading(made, [partition], lambda: ())
    partition.start()
    InProcess([LogicalProcess(partition, machine, lambda _: None)], 1, lambda: True).run()
    return reading.rows(partition.now_ps()), made


def test_the_last_step_of_training_has_the_time_and_mfu_of_the_summary() -> None:
    training = (
        api.run("scenarios/workloads/training_step.yaml", local=True, diagnose=False)
        .summary.jobs["train"]
        .training
    )
    assert training is not None
    assert training.mfu is not None
    rows, _ = state_at_end("scenarios/workloads/training_step.yaml")
    assert rows["job_step_time_ps"] == [(("train",), training.step_ps)]
    ((labels, mfu_ppm),) = rows["job_mfu_ppm"]
    assert labels == ("train",)
    assert abs(mfu_ppm - training.mfu * 10**6) <= 1
    assert f'emu_job_mfu_ratio{{job_name="train"}} 0.{mfu_ppm:06d}\n' in StateText().render(rows).decode()


def test_every_member_of_every_group_has_its_load() -> None:
    rows, made = state_at_end("scenarios/start/tiny_all_reduce.yaml")
    topology = made.topology
    result = api.run("scenarios/start/tiny_all_reduce.yaml", local=True, diagnose=False)
    members = {
        (device, peer): value for (device, _, _, peer, _), value in rows["routing_group_member_payload_bytes"]
    }
    for row in result.summary.fabric.uplinks:
        for peer, load in zip(row.towards, row.loads, strict=True):
            assert members[row.switch, peer] == load
    groups = {(device, group) for (device, group, *_), _ in rows["routing_group_member_payload_bytes"]}
    assert groups == {(topology.nodes[leaf].name, "2-3") for leaf in topology.switches[:2]}


def test_ranges_are_short() -> None:
    assert [ranges(one) for one in ([], [3], [0, 1, 2, 5], [1, 3, 4])] == ["", "3", "0-2,5", "1,3-4"]
