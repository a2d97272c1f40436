"""Do the files under `deploy/` fit the series that are declared, and do rules and alerts do what they say?"""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from emu.results.metrics import METRICS
from emu.views import dashboard

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
PROMETHEUS = DEPLOY / "prometheus"
NEEDS_PROMTOOL = pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
NAMES = {metric.name for metric in METRICS}


def rules() -> list[dict[str, str]]:
    found: list[dict[str, str]] = []
    for file in ("recording.yml", "alerts.yml"):
        groups = yaml.safe_load((PROMETHEUS / file).read_text(encoding="utf-8"))["groups"]
        found += [rule for group in groups for rule in group["rules"]]
    return found


def test_the_dashboard_is_the_one_made_from_the_declaration() -> None:
    file = DEPLOY / "grafana" / "emu.json"
    assert file.read_text(encoding="utf-8") == dashboard.text(), (
        "make it anew: python -m emu.views.dashboard > deploy/grafana/emu.json"
    )


def test_every_declared_series_has_a_panel_and_every_name_in_a_panel_or_rule_exists() -> None:
    panels = dashboard.panels_of(dashboard.dashboard())
    expressions = [target["expr"] for panel in panels for target in panel.get("targets", [])]
    expressions += [one["expr"] for one in dashboard.dashboard()["annotations"]["list"]]
    assert [one for one in expressions if "$run" not in one] == []
    asked = " ".join(expressions)
    shown = set(re.findall(r"\bemu_[a-z0-9_]+", asked))
    recorded = {rule["record"] for rule in rules() if "record" in rule}
    assert shown >= NAMES - {"emu_build_info", "emu_run_info", "emu_port_info"}
    used = shown | set(re.findall(r"\bemu_[a-z0-9_]+", " ".join(rule["expr"] for rule in rules())))
    assert used <= NAMES
    for text in (asked, " ".join(rule["expr"] for rule in rules())):
        assert set(re.findall(r"\bemu:[a-z_]+", text)) <= recorded


def test_the_page_says_which_panel_answers_which_question() -> None:
    assert dashboard.markdown() in (DEPLOY.parent / "docs" / "metrics.md").read_text(encoding="utf-8")
    titles = [one.title for one in dashboard.QUESTIONS]
    assert len(set(titles)) == len(titles)
    panels = {panel["title"]: panel for panel in dashboard.dashboard()["panels"]}
    assert [panels[one.title]["description"] for one in dashboard.QUESTIONS] == [
        one.asked for one in dashboard.QUESTIONS
    ]


def test_only_the_first_row_is_open_and_no_panel_lies_over_another() -> None:
    shown = dashboard.dashboard()["panels"]
    rows = [panel for panel in shown if panel["type"] == "row"]
    assert [row["collapsed"] for row in rows] == [False] + [True] * (len(rows) - 1)
    assert [bool(row["panels"]) for row in rows] == [row["collapsed"] for row in rows]
    every = dashboard.panels_of(dashboard.dashboard())
    assert sorted(panel["id"] for panel in every) == list(range(1, len(every) + 1))
    for together in (shown, *([row, *row["panels"]] for row in rows)):
        places = [panel["gridPos"] for panel in together]
        cells = [
            (x, y)
            for at in places
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        ]
        assert len(cells) == len(set(cells))


@NEEDS_PROMTOOL
@pytest.mark.parametrize(
    "arguments",
    [["check", "config", "prometheus.yml"], ["test", "rules", "tests.yml"]],
    ids=["configuration", "rules"],
)
def test_promtool_is_content(arguments: list[str]) -> None:
    done = subprocess.run(
        ["promtool", *arguments], cwd=PROMETHEUS, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_says_what_to_do() -> None:
    alerts = [rule for rule in rules() if "alert" in rule]
    assert len(alerts) >= 6
    for alert in alerts:
        assert set(alert["annotations"]) == {"summary", "action"}


def test_the_compose_file_mounts_what_is_there_and_listens_on_loopback_alone() -> None:
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))["services"]
    assert set(services) == {"prometheus", "grafana"}
    for service in services.values():
        assert service["network_mode"] == "host"
        assert ":" in service["image"]
        mounts = [volume.split(":") for volume in service["volumes"]]
        assert all((DEPLOY / mount[0]).exists() for mount in mounts if mount[0].startswith("."))
        assert all(mount[2:] == ["ro"] for mount in mounts if mount[0].startswith("."))
    assert "--web.listen-address=127.0.0.1:9090" in services["prometheus"]["command"]
    assert services["grafana"]["environment"]["GF_SERVER_HTTP_ADDR"] == "127.0.0.1"
    provisioning = DEPLOY / "grafana" / "provisioning"
    (source,) = yaml.safe_load((provisioning / "datasources" / "prometheus.yaml").read_text("utf-8"))[
        "datasources"
    ]
    assert source["url"] == "http://127.0.0.1:9090"
    (provider,) = yaml.safe_load((provisioning / "dashboards" / "emu.yaml").read_text("utf-8"))["providers"]
    mounted = [volume.split(":")[1] for volume in services["grafana"]["volumes"]]
    assert f"{provider['options']['path']}/emu.json" in mounted
