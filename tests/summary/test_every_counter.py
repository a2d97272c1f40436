"""Does every declared counter count, under its own name, from the device to Prometheus and the summary?"""

import ast
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import pytest

from actors.control.controller import Controller
from actors.fabric.model import Role
from actors.gpu.gpu import Gpu
from actors.gpu.nvlink import NvSwitch
from actors.host.host import Host
from actors.kernel.counters import (
    BUFFER_PEAK_BYTES,
    DEVICE,
    DEVICE_METRICS,
    NIC_UNKNOWN_QPN,
    PRIORITY,
    REASON,
    TE_INSTALLS,
    TE_ROUNDS,
    TE_UNPLACED_DEMANDS,
    Metric,
)
from actors.kernel.device import Device, Series, tally_of
from actors.nic.nic import Nic
from actors.nic.transport import LaneNic
from actors.switch.switch import Switch
from emu import api
from emu.api import Result
from emu.counts.exposition import Exposition
from emu.engine.blueprint import spread
from emu.results.summary import Fabric
from emu.run_directory.samples import SampleReader
from emu.scenario.resolve import build_topology
from tests.summary.test_exposition import check_format

ROOT = Path(__file__).parents[2]
DECLARATION = ROOT / "actors/kernel/counters.py"

# ---- in runs

RUNS: Final[tuple[tuple[str, dict[str, Any]], ...]] = (
    ("tiny_flap", {}),
    (
        "tiny_all_reduce",
        {
            "ncclx.outstanding": {"connection": "64KiB"},
            "faults": [{"kind": "gpu_hung", "at": "5us", "for": "100us", "target": "gpu-1-0"}],
        },
    ),
    ("two_flows", {}),
    ("two_flows", {"link.flow_control": "credits"}),
    (
        "spray",
        {
            "routing": {"kind": "spray", "order": "random", "allow_reordering": True},
            "transport.recovery": {"kind": "go_back_n"},
        },
    ),
    ("cut_through", {}),
    ("dscp_map_wrong", {}),
    ("dcqcn", {}),
    ("headroom_pool", {}),
    ("ring_deadlock", {}),
    ("voq_victim", {}),
    ("story_pause_storm", {}),
    ("adaptive_retransmission", {}),
    ("capture", {}),
    ("slow_pcie", {"nic.context_cache": {"entries": 1}}),
    ("rnr", {}),
    ("traffic_engineering", {"control.management_delay": "100us", "faults[0].at": "750us"}),
    ("traffic_engineering", {"routing.entries": 2}),
    ("connect_on_demand", {}),
    ("sm_jobs", {}),
    ("sm_priority", {}),
    ("zero_copy", {}),
    (
        "qp_policies",
        {
            "ncclx.qp_policy": "dqplb",
            "ncclx.qps_per_connection": 1,
            "ncclx.dqplb": {"most_outstanding": 1, "segment": "16KiB"},
            "jobs[0].workload.sizes": ["128KiB"],
        },
    ),
    ("dual_tor_least_loaded", {"jobs[0].workload.sizes": ["1MiB"]}),
    ("program_priority", {}),
    ("multipath_loss", {"jobs[0].workload.flows[0].size": "8MiB"}),
    ("fabric_roce", {}),
)
"""Small scenarios in which, taken together, everything happens that a device counts."""

ELSEWHERE: Final = {NIC_UNKNOWN_QPN: "nic/test_states.py"}
"""No scenario sends a packet to a queue pair that is not there; the test beside it does."""

OWNERS: Final[Mapping[str, set[Role]]] = {
    "nic": {Role.NIC},
    "host": {Role.HOST},
    "gpu": {Role.GPU},
    "nvlink": {Role.GPU, Role.NVSWITCH},
    "te": {Role.SWITCH, Role.CONTROLLER},
    "port": {Role.SWITCH, Role.NIC},
    "pfc": {Role.SWITCH, Role.NIC},
    "credit": {Role.SWITCH, Role.NIC},
}
"""Whose a counter is, by its first word; every other is a switch's."""


def owners(metric: Metric) -> set[Role]:
    return OWNERS.get(metric.split("_", 1)[0], {Role.SWITCH})


Row = tuple[Role, str, list[Series], list[int]]
"""Of a device: role, name, what it counts, and the values of that at some time."""


@cache
def runs() -> list[tuple[Result, list[Row]]]:
    """Of each run its result, and all devices at every tenth sample and at the end."""
    found = []
    for name, changes in RUNS:
        loaded = api.load(name, {"expect": [], **changes})
        nodes = build_topology(loaded.scenario).nodes
        with TemporaryDirectory() as path:
            result = api.run(loaded, local=True, diagnose=False, out=Path(path) / "run")
            reader = SampleReader(Path(path) / "run/samples.jsonl")
            samples = [sample for at, sample in enumerate(reader) if at % 10 == 0]
            at_times = [
                (number, reader.series[number], values)
                for sample in samples
                for number, values in sample.counters.items()
            ]
        at_end = [(one.number, one.series, one.counters) for one in result.outcome.devices]
        found.append(
            (
                result,
                [
                    (nodes[number].role, nodes[number].name, list(series), list(values))
                    for number, series, values in at_times + at_end
                ],
            )
        )
    return found


def test_every_counter_is_incremented_by_a_device_of_its_own_kind() -> None:
    counted: dict[str, set[Role]] = {}
    for _, rows in runs():
        for role, _, series, values in rows:
            for one, value in zip(series, values, strict=True):
                metric = counters_by_key()[one.metric]
                assert role in owners(metric), (role, metric)
                assert (one.port >= 0) == (metric.labels != DEVICE), one
                assert (one.priority >= 0) == (metric.labels == PRIORITY), one
                assert bool(one.reason) == (metric.labels == REASON), one
                if value != metric.start:
                    counted.setdefault(metric.key, set()).add(role)
    assert [one.key for one in DEVICE_METRICS if one.key not in counted] == [one.key for one in ELSEWHERE]
    assert all(one.key in (ROOT / "tests" / file).read_text("utf-8") for one, file in ELSEWHERE.items())


@cache
def counters_by_key() -> dict[str, Metric]:
    return {one.key: one for one in DEVICE_METRICS}


def test_every_counter_is_exported_under_its_name_with_its_help() -> None:
    families: dict[str, str] = {}
    for _, rows in runs():
        last = {name: (series, values) for _, name, series, values in rows}
        page = Exposition([(name, series) for name, (series, _) in last.items()])
        text = page.render(tally_of([values for _, values in last.values()])).decode()
        families |= dict(re.findall("^# HELP (\\S+) (.+)$", text, re.MULTILINE))
        shown = check_format(text)
        for name, (series, values) in last.items():
            for one, value in zip(series, values, strict=True):
                metric = counters_by_key()[one.metric]
                if metric.labels == DEVICE and not metric.endswith("_ps"):
                    assert shown[f'{metric.name}{{device="{name}"}}'] == str(value)
    assert families == {one.name: one.help for one in DEVICE_METRICS}


def test_the_summary_reads_the_sum_of_every_counter_that_it_has_a_field_for() -> None:
    fields = [one for one in DEVICE_METRICS if one.key in Fabric.model_fields]
    assert len(fields) >= 8
    risen = set()
    for result, rows in runs():
        last = {name: (series, values) for _, name, series, values in rows}
        sums: dict[str, list[int]] = {one.key: [0] for one in DEVICE_METRICS}
        for series, values in last.values():
            for one, value in zip(series, values, strict=True):
                sums[one.metric].append(value)
        fabric = result.summary.fabric
        for metric in fields:
            added = max if metric == BUFFER_PEAK_BYTES else sum
            assert getattr(fabric, metric.key) == added(sums[metric]), metric
            risen |= {metric.key} if added(sums[metric]) else set()
        assert fabric.drops is not None
        assert fabric.drops.total == sum(sums["port_dropped_frames"])
        engineering = fabric.engineering
        if engineering is not None:
            counted = (sum(sums[one]) for one in (TE_ROUNDS, TE_INSTALLS, TE_UNPLACED_DEMANDS))
            assert (engineering.rounds, engineering.installs, engineering.unplaced) == tuple(counted)
    assert risen == {one.key for one in fields}


# ---- by their places in the devices

SWITCH: Final = {
    "buffer_used_bytes": "buffer.held_bytes",
    "buffer_peak_bytes": "buffer.peak_bytes",
    "headroom_pool_peak_bytes": "buffer.headroom_pool_peak_bytes",
    "qos_moved_frames": "classes.moved",
    "cut_through_frames": "cut_frames",
    "te_entries": "router.used",
    "te_matched_frames": "router.matched",
    "te_entries_withdrawn": "router.withdrawn",
    "te_entries_refused": "router.refused",
    "port_transmit_frames": "ports.1.sent_frames",
    "port_transmit_bytes": "ports.1.sent_bytes",
    "port_transmit_payload_bytes": "ports.1.sent_data_bytes",
    "port_receive_frames": "ports.1.received_frames",
    "port_receive_bytes": "ports.1.received_bytes",
    "port_dropped_frames link_down": "ports.1.lost_link_down",
    "port_dropped_frames corrupt": "ports.1.corrupted",
    "port_link_downed": "ports.1.downs",
    "pfc_transmit_xoff_frames": "ports.1.pfc.sent.3",
    "pfc_transmit_xon_frames": "ports.1.pfc.resumed.3",
    "pfc_receive_xoff_frames": "ports.1.pfc.received.3",
    "pfc_receive_xon_frames": "ports.1.pfc.received_resumes.3",
    "pfc_transmit_transitions": "ports.1.pfc.stops.3",
    "pfc_receive_transitions": "ports.1.pfc.pauses.3",
    "pfc_transmit_paused_ps": "ports.1.pfc.signalled_ps.3",
    "pfc_paused_ps": "ports.1.pfc.paused_ps.3",
    "pfc_watchdog_storms": "watches.1.storms.3",
    "queue_marked_frames": "ports.1.aqms.3.marked",
    "queue_bytes": "ports.1.queues.3.queued_bytes",
    "queue_peak_bytes": "ports.1.queues.3.peak_bytes",
    "ingress_bytes": "buffer.groups.11.held_bytes",
    "ingress_peak_bytes": "buffer.groups.11.peak_bytes",
    "headroom_peak_bytes": "buffer.groups.11.headroom_peak_bytes",
}
"""Where a switch keeps a counter: of port 1 and priority 3, where it has several of them."""
CREDITS: Final = {
    "credit_transmit_updates": "ports.1.credits.updates.3",
    "port_transmit_wait_ps": "ports.1.credits.waited_ps.3",
    "credit_peak_blocks": "ports.1.credits.peak_blocks.3",
}
DEEP: Final = {
    "credit_grants": "granters.1.grants",
    "voq_bytes": "ports.1.voq_bytes.3",
    "voq_peak_bytes": "voq_peak_bytes.1",
}
NIC: Final = {
    **{one.key: one.field for one in DEVICE_METRICS if one.field},
    "nic_retransmitted_frames": "_ports.0.retransmitted",
    "nic_pcie_wait_ps": "_ports.0.fetch.wait_ps",
    "nic_context_misses": "_ports.0.fetch.contexts.misses",
    "nic_receive_buffer_bytes": "receive.groups.11.held_bytes",
    "nic_receive_buffer_peak_bytes": "receive.groups.11.peak_bytes",
}
PATHS: Final = {
    "nic_np_ecn_marked_roce_packets": "np_ecn_marked_roce_packets",
    "nic_paths_failed": "transport.failed",
    "nic_paths_restored": "transport.restored",
    "nic_path_probes": "transport.probes",
}
HOST: Final = {
    "host_compute_ps": "programs.0.share.computed_ps",
    "host_compute_work_ps": "programs.0.share.computed_work_ps",
    "host_cts_received": "programs.0.ends.waits.count",
    "host_cts_wait_ps": "programs.0.ends.waits.total_ps",
    "host_cts_wait_peak_ps": "programs.0.ends.waits.most_ps",
    "host_held_slices": "programs.0.ends.totals.held",
    "host_deferred_segments": "programs.0.ends.totals.deferred",
    "host_direct_slices": "programs.0.ends.totals.direct",
    "host_diverted_slices": "programs.0.ends.totals.diverted",
    "host_slower_compute_ps": "programs.0.share.slower_ps",
    "host_sm_wait_ps": "programs.0.share.waited_ps",
    "host_overtaken_calls": "programs.0.share.overtaken",
    "host_made_queue_pairs": "programs.0.calling.connecting.made",
    "host_connect_wait_ps": "programs.0.calling.connecting.waited_ps",
}
GPU: Final = {
    "gpu_overtaken_copies": "overtaken",
    "gpu_copies": "copies",
    "gpu_copied_bytes": "progress",
    "gpu_copy_ps": "copy_ps",
    "gpu_unresponsive_ps": "unresponsive_ps",
    "nvlink_transmit_bytes": "domain.link.sent_bytes",
    "nvlink_transfers": "domain.link.sent_transfers",
}
NVSWITCH: Final = {
    "nvlink_transmit_bytes": "ports.1.sent_bytes",
    "nvlink_transfers": "ports.1.sent_transfers",
}
CONTROLLER: Final = {
    "te_rounds": "engineer.rounds",
    "te_installs": "engineer.installs",
    "te_unplaced_demands": "engineer.unplaced",
}

DEVICES: Final[tuple[tuple[type[Device], str, dict[str, Any], Mapping[str, str]], ...]] = (
    (
        Switch,
        "traffic_engineering",
        {
            "nic.dscp": {3: 26},
            "switch.forwarding": "cut_through",
            "switch.ecn.enabled": True,
            "switch.pfc.watchdog.enabled": True,
            "switch.buffer.headroom_pool": "1MB",
        },
        SWITCH,
    ),
    (Controller, "traffic_engineering", {}, CONTROLLER),
    (Switch, "two_flows", {"link.flow_control": "credits"}, CREDITS),
    (Switch, "two_flows", {"switch.deep_buffer": {"where": "all"}}, DEEP),
    (
        Nic,
        "dual_tor_planes",
        {
            "nic.corrupt_every": 1000,
            "nic.context_cache.entries": 1,
            "nic.receive.enabled": True,
            "host.pcie.enabled": True,
            "transport.adaptive_retransmission.enabled": True,
            "transport.receive_queue.depth": 64,
            "transport.congestion_control": {"kind": "dcqcn"},
        },
        NIC,
    ),
    (LaneNic, "multipath_loss", {}, PATHS),
    (Host, "sm_priority", {"ncclx.connect": {"when": "first_use"}, "ncclx.qp_policy": "least_loaded"}, HOST),
    (Gpu, "sm_priority", {"topology.gpus_per_host": 2}, GPU),
    (NvSwitch, "fabric_roce", {}, NVSWITCH),
)
"""A device of each class, in a scenario that has it count all that it can, and where it keeps that."""


def put(device: Device, place: str, value: int) -> None:
    """Set what stands at a place: attributes and positions in a row, with dots between them."""
    *path, last = place.split(".")
    at: Any = device
    for step in path:
        at = at[int(step)] if step.isdigit() else getattr(at, step)
    if last.isdigit():
        at[int(last)] = value
    else:
        setattr(at, last, value)


@pytest.mark.parametrize(
    ("kind", "name", "changes", "places"),
    DEVICES,
    ids=[f"{kind.__name__}-{name}" for kind, name, _, _ in DEVICES],
)
def test_a_device_hands_out_each_of_its_counters_under_its_own_name(
    kind: type[Device], name: str, changes: dict[str, Any], places: Mapping[str, str]
) -> None:
    """Each place is given a number of its own, and the numbers stand where the names say."""
    prepared = api.prepare(name, {"expect": [], "faults": [], **changes})
    devices = spread(prepared.blueprint, 1).partition(0).devices
    device = next(one for one in devices if isinstance(one, kind))
    for number, place in enumerate(places.values(), 1000):
        put(device, place, number)
    counted: dict[str, int] = {}
    for one, value in zip(device.series(), device.counters(), strict=True):
        own = f"{one.metric} {one.reason}".rstrip()
        if value >= 1000:
            assert own not in counted, own
            counted[own] = value
    assert counted == {own: number for number, own in enumerate(places, 1000)}


def test_these_devices_have_every_counter() -> None:
    named = {own.split(" ")[0] for _, _, _, places in DEVICES for own in places}
    assert set(counters_by_key()) - named == {"port_up"}, "a port is up or not"


# ---- in the code


def literals(source: str) -> Iterator[tuple[int, str]]:
    """Texts of a module that are no docstring, by line."""
    tree = ast.parse(source)
    stated = {id(one.value) for one in ast.walk(tree) if isinstance(one, ast.Expr)}
    for one in ast.walk(tree):
        if isinstance(one, ast.Constant) and isinstance(one.value, str) and id(one) not in stated:
            yield one.lineno, one.value


def test_no_module_but_the_declaration_has_the_name_of_a_counter_in_quotes() -> None:
    names = {one.key for one in DEVICE_METRICS} | {one.name for one in DEVICE_METRICS}
    modules = [*(ROOT / "actors").rglob("*.py"), *(ROOT / "emu").rglob("*.py")]
    assert len(modules) > 300
    sources = {path: path.read_text("utf-8") for path in sorted(modules) if path != DECLARATION}
    found = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path, source in sources.items()
        if not names.isdisjoint(re.findall(r"\w+", source))  # few have any, and to parse all takes seconds
        for line, text in literals(source)
        if not text.startswith("\b\nExample")  # what people type, below --help
        for name in sorted(names.intersection(re.findall(r"\w+", text)))
    ]
    assert found == []
