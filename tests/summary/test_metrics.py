"""Is there one declaration of every series, and does the documentation say the same?"""

import pickle
import re
from pathlib import Path

import pytest

from actors.kernel.counters import DEVICE_METRICS, PORT, REASON, Kind, Metric, Unit
from actors.kernel.device import Series
from emu.results.metrics import (
    CONGESTION_REASONS,
    DROP_REASONS,
    METRIC_OF,
    METRICS,
    label_text,
    labels_of,
    markdown,
    seconds,
)
from emu.results.summary import Fabric
from emu.run_directory.run_directory import ports_csv
from tests.summary import handmade

ROOT = Path(__file__).parents[2]
MEMBERS = "emu_routing_group_member_payload_bytes_total"


def test_names_and_keys_are_unique() -> None:
    assert len({metric.name for metric in METRICS}) == len(METRICS)
    assert len(METRIC_OF) == len(METRICS)


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.key)
def test_name_follows_the_conventions_of_prometheus(metric: Metric) -> None:
    assert re.fullmatch(r"emu_[a-z][a-z0-9_]*", metric.name)
    assert metric.name.endswith("_total") == (metric.kind is Kind.COUNTER)
    assert not re.search(r"_(ps|ns|us|ms|bits|kb|total_total)(_|$)", metric.name)
    if metric.unit is Unit.BYTES:
        assert re.search(r"_bytes(_total)?$", metric.name)
    if metric.unit is Unit.BYTES_PER_SECOND:
        assert metric.name.endswith("_bytes_per_second")
    if metric.unit is Unit.PS:
        assert "seconds" in metric.name


def test_a_counter_has_one_name_in_ports_csv_and_in_prometheus() -> None:
    in_prometheus = set()
    for metric in METRICS:
        plain = metric.name.removeprefix("emu_").removesuffix("_total")
        if set(PORT) <= set(metric.labels) and metric.name not in ("emu_port_info", MEMBERS):
            reasons = DROP_REASONS if metric.labels == REASON else [""]
            in_prometheus |= {f"{plain}_{reason}".rstrip("_") for reason in reasons}
    header = ports_csv(handmade.fabric(), []).splitlines()[0].split(",")[6:]
    assert {re.sub("_ps$", "_seconds", column) for column in header} == in_prometheus
    assert len(header) > 30


def test_a_sum_over_the_fabric_has_the_name_of_its_counter() -> None:
    """What `expect` calls a number of the summary is what devices count."""
    sums = {"pfc_transmit_xoff_frames", "pfc_transmit_xon_frames", "pfc_paused_ps", "queue_marked_frames"}
    sums |= {name for name in Fabric.model_fields if name.startswith("nic_")} | {"buffer_peak_bytes"}
    assert len(sums) == 10
    assert sums <= set(METRIC_OF)
    assert sums <= set(Fabric.model_fields)


def test_other_processes_get_the_plain_name_of_a_counter() -> None:
    for metric in DEVICE_METRICS:
        sent = pickle.loads(pickle.dumps(metric))
        assert (type(sent), sent) == (str, metric.key)


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.key)
def test_labels_are_bounded(metric: Metric) -> None:
    bounded = {"device", "port", "priority", "reason", "version", "compiled", "scenario", "seed"}
    bounded |= {"peer", "direction", "plane", "job_name", "group", "host", "rule", "outcome"}
    bounded |= {"comm_name", "n_nodes", "nranks", "collective", "message_size", "algo_proto"}
    assert all(label in bounded for label in metric.labels)
    assert metric.help.endswith(".")


def test_time_becomes_seconds_exactly() -> None:
    assert seconds(1_167_760) == "0.000001167760"
    assert seconds(3 * 10**12 + 1) == "3.000000000001"
    assert seconds(0) == "0.000000000000"


def test_congestion_is_kept_apart_from_other_drops() -> None:
    overruns = {"headroom_overrun", "receive_overrun"}
    assert {"no_shared_room", "egress_limit", "aqm"} | overruns == CONGESTION_REASONS
    assert set(DROP_REASONS) == CONGESTION_REASONS | {"link_down", "no_route", "ttl", "corrupt", "watchdog"}


def test_label_values_are_escaped() -> None:
    assert label_text('a"b\\c\nd') == 'a\\"b\\\\c\\nd'


def test_labels_of_a_series_are_those_declared() -> None:
    dropped = METRIC_OF["port_dropped_frames"]
    assert labels_of(dropped, "rtsw-0", Series("port_dropped_frames", 3, -1, "link_down")) == (
        '{device="rtsw-0",port="3",reason="link_down"}'
    )
    with pytest.raises(AssertionError):
        labels_of(dropped, "rtsw-0", Series("port_dropped_frames", 3))


def test_the_page_on_metrics_holds_the_declaration() -> None:
    assert markdown() in (ROOT / "docs/metrics.md").read_text("utf-8")
