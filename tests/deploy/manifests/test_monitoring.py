"""The files for Prometheus and Grafana, by Prometheus' own tool."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

FOLDER = Path(__file__).parents[3] / "deploy/manifests/monitoring"
CHART = FOLDER.parent / "chart/templates"
RULES = yaml.safe_load((FOLDER / "rules.yml").read_text())
ALERTS = [rule for group in RULES["groups"] for rule in group["rules"]]
PROMTOOL = shutil.which("promtool")


@pytest.mark.skipif(PROMTOOL is None, reason="no promtool on this machine (Debian: prometheus)")
@pytest.mark.parametrize(
    "words",
    [
        "check config prometheus.yml",
        "check config prometheus-kubernetes.yml",
        "check rules rules.yml",
        "test rules rules_test.yml",
    ],
)
def test_prometheus_takes_them(words: str) -> None:
    command = [str(PROMTOOL), *words.split()]
    done = subprocess.run(command, cwd=FOLDER, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_one_in_a_cluster_finds_what_the_chart_makes() -> None:
    (job,) = yaml.safe_load((FOLDER / "prometheus-kubernetes.yml").read_text())["scrape_configs"]
    roles = []
    for found in job["dns_sd_configs"]:
        (name,) = found["names"]
        (relabelled,) = job["relabel_configs"]
        match = re.fullmatch(relabelled["regex"], name)
        assert match is not None
        roles.append(match[1])
        template = (CHART / f"{match[1]}.yaml").read_text()
        (service,) = [
            each
            for each in template.split("\n---\n")
            if f"\n  name: {name.partition('.')[0]}\n" in each and "kind: Service\n" in each
        ]
        assert match[1] == "control-plane" or "clusterIP: None" in service
        assert str(found["port"]) in template
    assert sorted(roles) == ["agent", "control-plane", "gateway"]
    own = yaml.safe_load((FOLDER / "prometheus.yml").read_text())["scrape_configs"]
    assert [each["job_name"] for each in own] == [job["job_name"]], "as the rules call it"


def test_every_alert_is_tried_when_it_fires_and_when_it_does_not() -> None:
    tests = yaml.safe_load((FOLDER / "rules_test.yml").read_text())["tests"]
    tried = [
        (one["alertname"], bool(one["exp_alerts"]))
        for test in tests
        for one in test["alert_rule_test"]
    ]
    names = {alert["alert"] for alert in ALERTS}
    assert {name for name, fires in tried if fires} == names
    assert {name for name, fires in tried if not fires} == names


def test_every_alert_says_what_it_means() -> None:
    for alert in ALERTS:
        assert alert["labels"]["severity"] in ("warning", "critical")
        assert set(alert["annotations"]) == {"summary", "description"}


def test_every_panel_of_the_dashboard_asks_something() -> None:
    board: dict[str, Any] = json.loads((FOLDER / "grafana.json").read_text())
    rows = [panel["title"] for panel in board["panels"] if panel["type"] == "row"]
    assert rows == ["Overview", "One deployment: $deployment", "Nodes and cache"]
    panels = [panel for panel in board["panels"] if panel["type"] != "row"]
    for panel in panels:
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        assert all(re.search("hotplate|process_", one["expr"]) for one in panel["targets"])
        assert panel["targets"], panel["title"]
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in board["panels"]]
    assert len(set(places)) == len(places), "no two lie on each other"


def test_no_token_is_kept_here() -> None:
    assert (FOLDER / "metrics-token").read_text() == "put the content of DATA/metrics-token here\n"
