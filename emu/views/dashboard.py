"""The panels of the Grafana dashboard.

It is made from the declaration of the series, so that none is forgotten and none shown that does not exist:

    python -m emu.views.dashboard > deploy/grafana/emu.json

First come panels that answer what an operator asks first, over the recording rules of `deploy/prometheus`;
then, row by row, every series: a counter as its growth per second of virtual time, a gauge as it is. Every
panel is of the runs and devices that are chosen at the top, and a line across all of them marks where a fault
began. Nothing is written by hand into the file; a test compares it with what this module makes.
"""

from __future__ import annotations

import json
import sys
from typing import Any, Final, NamedTuple

from actors.kernel.counters import (
    BUFFER_USED_BYTES,
    DEVICE_METRICS,
    HOST_COMPUTE_PS,
    HOST_COMPUTE_WORK_PS,
    HOST_CTS_WAIT_PS,
    NIC_LOCAL_ACK_TIMEOUT_ERR,
    NIC_OUT_OF_SEQUENCE,
    NIC_RETRANSMITTED_FRAMES,
    NIC_RP_CNP_HANDLED,
    PFC_TRANSMIT_PAUSED_PS,
    PORT_DROPPED_FRAMES,
    PORT_TRANSMIT_FRAMES,
    PORT_UP,
    Kind,
    Metric,
    Unit,
)
from emu.results.metrics import ENGINE_METRICS, STATE_METRICS

WIDTH: Final = 24
PANEL_WIDTH: Final = 8
PANEL_HEIGHT: Final = 7
CLOCK: Final = "emu_virtual_seconds_total"
MOST_CURVES: Final = 20
"""A fabric has thousands of ports: a panel shows the largest."""

Panel = dict[str, Any]

_SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
"""Source of every panel: what the user chose."""

_RUN: Final = 'run=~"$run"'
_PORT: Final = "{{device}} port {{port}}"


class Question(NamedTuple):
    """What an operator asks, and the panel that answers it."""

    asked: str
    title: str
    expr: str
    unit: str
    legend: str


def _a_virtual_second(counter: str) -> str:
    return f"rate({counter}{{{_RUN}}}[10s]) / on (instance) group_left () (rate({CLOCK}[10s]) > 0)"


def _of_most(expr: str) -> str:
    return f"topk({MOST_CURVES}, {expr})"


QUESTIONS: Final = (
    Question(
        "Does the fabric deliver?",
        "Delivered payload",
        f"sum by (run) (emu:delivered_bits_per_virtual_second{{{_RUN}}})",
        "bps",
        "all NICs of {{run}}",
    ),
    Question(
        "How fast are collectives?",
        "Bus bandwidth of the last collectives",
        f"8 * emu_collective_bus_bandwidth_bytes_per_second{{{_RUN}}}",
        "bps",
        "{{comm_name}} {{collective}} {{message_size}}",
    ),
    Question(
        "Do jobs get on?",
        "Operations of jobs, a virtual second",
        _a_virtual_second("emu_job_operations_total"),
        "short",
        "{{job_name}}",
    ),
    Question(
        "How long does a step take?",
        "Time of the last steps",
        f"emu_job_step_time_seconds{{{_RUN}}}",
        "s",
        "{{job_name}}",
    ),
    Question("Which job failed?", "Jobs that failed", f"emu_job_failed{{{_RUN}}}", "short", "{{job_name}}"),
    Question(
        "Is anything broken on purpose?",
        "Faults that stand",
        f"emu_faults_active{{{_RUN}}}",
        "short",
        "{{run}}",
    ),
    Question(
        "Which links are down?",
        "Ports without a signal, by device",
        f"sum by (device) (1 - {PORT_UP.name}{{{_RUN}}}) > 0 or sum by (run) (1 - {PORT_UP.name}{{{_RUN}}})",
        "short",
        "{{run}}{{device}}",
    ),
    Question(
        "Why are frames lost?",
        "Drops, by reason",
        f"sum by (reason) (increase({PORT_DROPPED_FRAMES.name}{{{_RUN}}}[10s]))",
        "short",
        "{{reason}}",
    ),
    Question(
        "Where are frames lost?",
        "Drops, by device",
        _of_most(f"sum by (device) (increase({PORT_DROPPED_FRAMES.name}{{{_RUN}}}[10s]))"),
        "short",
        "{{device}}",
    ),
    Question(
        "What is sent again?",
        "Retransmitted frames, by NIC",
        _of_most(f"increase({NIC_RETRANSMITTED_FRAMES.name}{{{_RUN}}}[10s])"),
        "short",
        "{{device}}",
    ),
    Question(
        "Who notices losses?",
        "Out of sequence and ACK timeouts, by NIC",
        (
            f"topk({MOST_CURVES}, increase({NIC_OUT_OF_SEQUENCE.name}{{{_RUN}}}[10s]) "
            f"+ increase({NIC_LOCAL_ACK_TIMEOUT_ERR.name}[10s]))"
        ),
        "short",
        "{{device}}",
    ),
    Question(
        "Which links are full?",
        "Busiest ports",
        _of_most(f"emu:port_transmit_bits_per_virtual_second{{{_RUN}}}"),
        "bps",
        _PORT,
    ),
    Question(
        "Are uplinks loaded evenly?",
        "Fullest over mean of each group of equal ports",
        _of_most(
            f"max by (device, group) (emu_routing_group_member_payload_bytes_total{{{_RUN}}})"
            f" / (avg by (device, group) (emu_routing_group_member_payload_bytes_total{{{_RUN}}}) > 0)"
        ),
        "short",
        "{{device}} ports {{group}}",
    ),
    Question(
        "Where do pauses hurt?",
        "Most paused ports",
        _of_most(f"emu:port_paused_fraction{{{_RUN}}}"),
        "percentunit",
        f"{_PORT} priority {{{{priority}}}}",
    ),
    Question(
        "Where do pauses come from?",
        "Ports that pause their peers most",
        _of_most(_a_virtual_second(PFC_TRANSMIT_PAUSED_PS.name)),
        "percentunit",
        f"{_PORT} priority {{{{priority}}}}",
    ),
    Question(
        "Which buffers are full?",
        "Fullest buffers",
        _of_most(f"{BUFFER_USED_BYTES.name}{{{_RUN}}} / emu_buffer_pool_bytes"),
        "percentunit",
        "{{device}}",
    ),
    Question(
        "Where is congestion marked?",
        "Marked frames",
        _of_most(f"emu:marked_fraction{{{_RUN}}}"),
        "percentunit",
        _PORT,
    ),
    Question(
        "Which senders are slowed down?",
        "CNPs that NICs heeded, a virtual second",
        _of_most(_a_virtual_second(NIC_RP_CNP_HANDLED.name)),
        "short",
        "{{device}}",
    ),
    Question(
        "Which GPU computes slowly?",
        "Time computing takes over the time it should",
        _of_most(
            f"rate({HOST_COMPUTE_PS.name}{{{_RUN}}}[10s])"
            f" / (rate({HOST_COMPUTE_WORK_PS.name}{{{_RUN}}}[10s]) > 0)"
        ),
        "short",
        _PORT,
    ),
    Question(
        "Does the library wait for receivers?",
        "Waits for clear-to-sends, seconds a virtual second",
        _of_most(_a_virtual_second(HOST_CTS_WAIT_PS.name)),
        "short",
        "{{device}}",
    ),
    Question(
        "Does the emulation itself get on?",
        "Speed of virtual time",
        f"emu:virtual_seconds_per_second{{{_RUN}}}",
        "s",
        "{{instance}}",
    ),
)
FAULT_BEGAN: Final = f"changes(emu_faults_total{{{_RUN}}}[2s]) > 0"

_ROWS: Final = (
    ("Ports", ("port_",)),
    ("Priority flow control", ("pfc_",)),
    ("Queues and buffers", ("queue_", "ingress_", "headroom_", "buffer_", "qos_", "voq_", "credit_")),
    ("NICs", ("nic_",)),
)
_UNITS: Final = {
    Unit.BYTES: "bytes",
    Unit.PS: "s",
    Unit.FRAMES: "short",
    Unit.COUNT: "short",
    Unit.PPM: "percentunit",
    Unit.BYTES_PER_SECOND: "Bps",
}
_RATES: Final = {
    Unit.BYTES: "Bps",
    Unit.PS: "percentunit",
    Unit.FRAMES: "pps",
    Unit.COUNT: "short",
}
"""Panel units of counters, which are shown as rates by virtual second."""


def dashboard() -> dict[str, Any]:
    """The dashboard, as Grafana imports it."""
    rows: list[tuple[str, list[Panel]]] = [
        (
            "What is going on",
            [
                _panel(one.title, one.expr, one.unit, one.legend) | {"description": one.asked}
                for one in QUESTIONS
            ],
        )
    ]
    left = list(DEVICE_METRICS)
    for title, prefixes in _ROWS:
        of_row = [metric for metric in left if metric.key.startswith(prefixes)]
        left = [metric for metric in left if metric not in of_row]
        rows.append((title, [_panel_of(metric) for metric in of_row]))
    rows.append(("Other", [_panel_of(metric) for metric in left]))
    rows.append(
        (
            "Jobs, collectives, faults",
            [_panel_of(metric) for metric in STATE_METRICS if not metric.key.endswith("_info")],
        )
    )
    rows.append(("Engine", [_panel_of(metric) for metric in ENGINE_METRICS]))
    return {
        "title": "emu",
        "uid": "emu",
        "schemaVersion": 39,
        "refresh": "1s",
        "time": {"from": "now-5m", "to": "now"},
        "templating": {
            "list": [
                {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"},
                _choice("run", "Run", "label_values(emu_run_info, run)"),
                _choice("device", "Device", f"label_values({PORT_TRANSMIT_FRAMES.name}{{{_RUN}}}, device)"),
            ]
        },
        "annotations": {
            "list": [
                {
                    "name": "faults",
                    "datasource": _SOURCE,
                    "enable": True,
                    "iconColor": "red",
                    "expr": FAULT_BEGAN,
                    "step": "1s",
                    "titleFormat": "a fault began",
                }
            ]
        },
        "panels": _laid_out([(title, panels) for title, panels in rows if panels]),
    }


def _choice(name: str, label: str, query: str) -> Panel:
    """Something that is chosen at the top, all of it to begin with."""
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": _SOURCE,
        "query": query,
        "includeAll": True,
        "allValue": ".*",
        "multi": True,
        "refresh": 2,
    }


def _panel_of(metric: Metric) -> Panel:
    chosen = f'{{{_RUN},device=~"$device"}}' if "device" in metric.labels else f"{{{_RUN}}}"
    legend = " ".join(f"{{{{{label}}}}}" for label in (metric.labels or ("instance",)))
    unit = _UNITS[metric.unit]
    if metric.kind is Kind.GAUGE or metric.name == CLOCK:
        expr = metric.name + chosen
    else:
        unit = _RATES[metric.unit]
        expr = f"rate({metric.name}{chosen}[10s]) / on (instance) group_left () (rate({CLOCK}[10s]) > 0)"
    if metric.labels:
        expr = f"topk({MOST_CURVES}, {expr})"
    return _panel(metric.name, expr, unit, legend) | {"description": metric.help}


def _panel(title: str, expr: str, unit: str, legend: str) -> Panel:
    return {
        "type": "timeseries",
        "title": title,
        "datasource": _SOURCE,
        "targets": [{"refId": "A", "datasource": _SOURCE, "expr": expr, "legendFormat": legend or "__auto"}],
        "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
    }


def _laid_out(rows: list[tuple[str, list[Panel]]]) -> list[Panel]:
    """The panels with their places, each row under its title.

    The first row is open. The others are closed, with their panels in them: a closed row asks Prometheus for
    nothing, and shows no panel of a series that the run has not.
    """
    placed: list[Panel] = []
    top = number = 0
    for title, panels in rows:
        place = {"x": 0, "y": top, "w": WIDTH, "h": 1}
        closed = bool(placed)
        number += 1
        row: Panel = {"type": "row", "title": title, "collapsed": closed, "gridPos": place, "id": number}
        row["panels"] = []
        placed.append(row)
        inside = row["panels"] if closed else placed
        top += 1
        for at, panel in enumerate(panels):
            down, across = divmod(at, WIDTH // PANEL_WIDTH)
            where = {
                "x": across * PANEL_WIDTH,
                "y": top + down * PANEL_HEIGHT,
                "w": PANEL_WIDTH,
                "h": PANEL_HEIGHT,
            }
            number += 1
            inside.append(panel | {"gridPos": where, "id": number})
        if not closed:
            top += -(-len(panels) // (WIDTH // PANEL_WIDTH)) * PANEL_HEIGHT
    return placed


def panels_of(shown: dict[str, Any]) -> list[Panel]:
    """Every panel of a dashboard, those in closed rows too."""
    return [one for panel in shown["panels"] for one in (panel, *panel.get("panels", ()))]


def markdown() -> str:
    """What an operator asks, and the panel that answers it: a table for the page on metrics."""
    rows = [f"| {one.asked} | {one.title} |" for one in QUESTIONS]
    return "\n".join(["| question | panel |", "|---|---|", *rows]) + "\n"


def text() -> str:
    """The file."""
    return json.dumps(dashboard(), indent=1) + "\n"


if __name__ == "__main__":
    sys.stdout.write(text())
