"""Which panels does the Grafana dashboard have?

It is made from the declaration of the series, so that none is forgotten and none shown that does not exist:

    python -m emu.measure.dashboard > deploy/grafana/emu.json

First come a few panels that answer what an operator asks first, over the recording rules of
`deploy/prometheus`; then, row by row, every series: a counter as its growth per second of virtual time, a
gauge as it is. Nothing is written by hand into the file; a test compares it with what this module makes.
"""

from __future__ import annotations

import json
import sys
from typing import Any, Final

from emu.measure.metric import Kind, Metric, Unit
from emu.measure.metrics import DEVICE_METRICS, ENGINE_METRICS
from emu.measure.state_metrics import STATE_METRICS

WIDTH: Final = 24
PANEL_WIDTH: Final = 8
PANEL_HEIGHT: Final = 7
CLOCK: Final = "emu_virtual_seconds_total"
MOST_CURVES: Final = 20
"""A fabric has thousands of ports: a panel shows the largest."""

Panel = dict[str, Any]

_SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
"""Of every panel: what the user chose."""

QUESTIONS: Final = (
    ("Delivered payload", "sum(emu:delivered_bits_per_virtual_second)", "bps", "all NICs"),
    ("Busiest ports", f"topk({MOST_CURVES}, emu:port_transmit_bits_per_virtual_second)", "bps", ""),
    ("Most paused ports", f"topk({MOST_CURVES}, emu:port_paused_fraction)", "percentunit", ""),
    (
        "Drops, by reason",
        "sum by (reason) (increase(emu_port_dropped_frames_total[10s]))",
        "short",
        "{{reason}}",
    ),
    ("Marked frames", f"topk({MOST_CURVES}, emu:marked_fraction)", "percentunit", ""),
    ("Speed of virtual time", "emu:virtual_seconds_per_second", "s", "{{instance}}"),
)
"""Title, expression, unit, legend."""

_ROWS: Final = (
    ("Ports", ("port_",)),
    ("Priority flow control", ("pfc_",)),
    ("Queues and buffers", ("queue_", "ingress_", "headroom_", "buffer_", "qos_")),
    ("NICs", ("nic_",)),
)
_UNITS: Final = {
    Unit.BYTES: "bytes",
    Unit.PS: "s",
    Unit.FRAMES: "short",
    Unit.COUNT: "short",
    Unit.PPM: "percentunit",
}


def dashboard() -> dict[str, Any]:
    """The dashboard, as Grafana imports it."""
    rows: list[tuple[str, list[Panel]]] = [
        ("What is going on", [_panel(title, expr, unit, legend) for title, expr, unit, legend in QUESTIONS])
    ]
    left = list(DEVICE_METRICS)
    for title, prefixes in _ROWS:
        of_row = [metric for metric in left if metric.key.startswith(prefixes)]
        left = [metric for metric in left if metric not in of_row]
        rows.append((title, [_panel_of(metric) for metric in of_row]))
    rows.append(("Other", [_panel_of(metric) for metric in left]))
    rows.append(
        ("State", [_panel_of(metric) for metric in STATE_METRICS if not metric.key.endswith("_info")])
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
                {
                    "name": "device",
                    "label": "Device",
                    "type": "query",
                    "datasource": _SOURCE,
                    "query": "label_values(emu_port_transmit_frames_total, device)",
                    "includeAll": True,
                    "allValue": ".*",
                    "multi": True,
                    "refresh": 2,
                },
            ]
        },
        "panels": _laid_out([(title, panels) for title, panels in rows if panels]),
    }


def _panel_of(metric: Metric) -> Panel:
    chosen = '{device=~"$device"}' if "device" in metric.labels else ""
    legend = " ".join(f"{{{{{label}}}}}" for label in (metric.labels or ("instance",)))
    if metric.kind is Kind.GAUGE or metric.name == CLOCK:
        expr = metric.name + chosen
    else:
        expr = f"rate({metric.name}{chosen}[10s]) / on (instance) group_left () (rate({CLOCK}[10s]) > 0)"
    if metric.labels:
        expr = f"topk({MOST_CURVES}, {expr})"
    return _panel(metric.name, expr, _UNITS[metric.unit], legend) | {"description": metric.help}


def _panel(title: str, expr: str, unit: str, legend: str) -> Panel:
    return {
        "type": "timeseries",
        "title": title,
        "datasource": _SOURCE,
        "targets": [{"refId": "A", "datasource": _SOURCE, "expr": expr, "legendFormat": legend or "__auto"}],
        "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
    }


def _laid_out(rows: list[tuple[str, list[Panel]]]) -> list[Panel]:
    """The panels with their places, each row under its title."""
    placed: list[Panel] = []
    top = 0
    for title, panels in rows:
        place = {"x": 0, "y": top, "w": WIDTH, "h": 1}
        placed.append({"type": "row", "title": title, "collapsed": False, "gridPos": place, "panels": []})
        top += 1
        for at, panel in enumerate(panels):
            down, across = divmod(at, WIDTH // PANEL_WIDTH)
            where = {
                "x": across * PANEL_WIDTH,
                "y": top + down * PANEL_HEIGHT,
                "w": PANEL_WIDTH,
                "h": PANEL_HEIGHT,
            }
            placed.append(panel | {"gridPos": where})
        top += -(-len(panels) // (WIDTH // PANEL_WIDTH)) * PANEL_HEIGHT
    return [panel | {"id": number} for number, panel in enumerate(placed, start=1)]


def text() -> str:
    """The file."""
    return json.dumps(dashboard(), indent=1) + "\n"


if __name__ == "__main__":
    sys.stdout.write(text())
