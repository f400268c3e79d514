# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The dashboard, the alerts and the page about them ask for metrics and tags that there are."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from airflow.providers.cncf.kubernetes_resilience.executors import counters
from airflow_resilience import metrics
from airflow_resilience.context import ContextSource, StateChangeCategory, StateChangeReason
from airflow_resilience.decision import Action
from breeze.paths import ROOT
from testbed.packages import needs

FOLDER = ROOT / "docs" / "monitoring"
RULES = FOLDER / "prometheus-rules.yaml"
PROMTOOL = shutil.which("promtool")

OURS = vars(counters).values()
COUNTERS = (*metrics.COUNTERS, *(item for item in OURS if isinstance(item, metrics.Counter)))
GAUGES = [item for item in OURS if isinstance(item, metrics.Gauge)]
NAMES: Mapping[str, metrics.Counter | metrics.Gauge] = {
    **{f"airflow_{counter.name.replace('.', '_')}_total": counter for counter in COUNTERS},
    **{f"airflow_{gauge.name.replace('.', '_')}": gauge for gauge in GAUGES},
}
"""What each is called in Prometheus, whether it comes from statsd_exporter or from OpenTelemetry."""

VALUES: Mapping[str, set[str]] = {
    "category": set(StateChangeCategory),
    "reason": set(StateChangeReason),
    "source": set(ContextSource),
    "action": set(Action),
}

GRAFANA = {"$__range": "1d", "$__interval": "1m", "$dag_id": ".*"}
"""What Grafana puts in the place of its variables."""

needs_promtool = needs("prometheus", PROMTOOL)


def groups() -> list[dict[str, Any]]:
    """Return the rules of the file."""
    (group,) = yaml.safe_load(RULES.read_text())["groups"]
    rules: list[dict[str, Any]] = group["rules"]
    return rules


def recorded() -> dict[str, set[str]]:
    """Return the labels of each series that a rule records."""
    return {
        rule["record"]: set(re.findall(r"\w+", found[1])) if (found := _BY.search(rule["expr"])) else set()
        for rule in groups()
        if "record" in rule
    }


def panels() -> Iterator[dict[str, Any]]:
    """Yield the panels of the dashboard that show something."""
    for panel in json.loads((FOLDER / "grafana-dashboard.json").read_text())["panels"]:
        if panel["type"] != "row":
            yield panel


def expressions() -> list[tuple[str, str]]:
    """Return what each panel and rule is called, and what it asks for."""
    rules = [(rule.get("alert") or rule["record"], rule["expr"]) for rule in groups()]
    return rules + [(panel["title"], target["expr"]) for panel in panels() for target in panel["targets"]]


_BY = re.compile(r"\bby \(([^)]*)\)")
_NAME = re.compile(r"\bairflow[_:][\w:]+")
_SELECTORS = re.compile(r"(airflow[_:][\w:]+)\{([^}]*)\}")
_SELECTOR = re.compile(r'(\w+)(=|=~)"([^"]*)"')


@pytest.mark.parametrize("expression", [pytest.param(text, id=name) for name, text in expressions()])
def test_what_is_asked_for_exists(expression: str) -> None:
    labels = {**{name: set(counter.tags) for name, counter in NAMES.items()}, **recorded()}
    asked = set(_NAME.findall(expression))
    assert asked
    assert asked <= labels.keys()
    for found in _BY.findall(expression):
        for name in asked:
            assert set(re.findall(r"\w+", found)) <= labels[name]
    for name, selectors in _SELECTORS.findall(expression):
        for label, _, value in _SELECTOR.findall(selectors):
            assert label in labels[name]
            assert value in VALUES.get(label, {value})


def test_texts_use_labels_that_are_left() -> None:
    for rule in groups():
        if "alert" in rule:
            told = set(re.findall(r"\$labels\.(\w+)", str(rule["annotations"])))
            (name, *_) = _NAME.findall(rule["expr"])
            by = _BY.search(rule["expr"])
            assert told <= (set(re.findall(r"\w+", by[1])) if by else recorded()[name])
    for panel in panels():
        for target in panel["targets"]:
            told = set(re.findall(r"\{\{(\w+)\}\}", target.get("legendFormat", "")))
            by = _BY.search(target["expr"])
            assert told == (set(re.findall(r"\w+", by[1])) if by and target.get("legendFormat") else set())


def test_everything_that_is_counted_is_mapped_and_shown() -> None:
    mappings = yaml.safe_load((FOLDER / "statsd-mappings.yaml").read_text())["mappings"]
    assert mappings == [{"match": f"airflow.{counter.name}", "name": name} for name, counter in NAMES.items()]
    shown = {name for _, text in expressions() for name in _NAME.findall(text)}
    # The other name of a part of what is shown, for StatsD without tags.
    without_tags = {"airflow_task_failed_infrastructure_total", "airflow_task_failed_application_total"}
    assert shown.symmetric_difference(recorded()) == NAMES.keys() - without_tags


def test_the_page_has_each_metric_with_its_tags() -> None:
    page = (ROOT / "docs" / "monitoring.md").read_text()
    rows = dict(re.findall(r"^\| `([a-z_.]+)` \|([^|]*)\|", page, re.MULTILINE))
    assert {name: re.findall(r"`(\w+)`", tags) for name, tags in rows.items()} == {
        metric.name: list(metric.tags) for metric in (*COUNTERS, *GAUGES)
    }
    alerts = re.findall(r"^\| `(Airflow\w+)` \|", page, re.MULTILINE)
    assert alerts == [rule["alert"] for rule in groups() if "alert" in rule]


def promtool(*words: object) -> str:
    """Return what it says; a failure ends with that."""
    run = subprocess.run([str(PROMTOOL), *map(str, words)], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout


@needs_promtool
def test_prometheus_takes_the_rules() -> None:
    assert f"{len(groups())} rules found" in promtool("check", "rules", RULES)


@needs_promtool
def test_alerts_are_raised_when_they_should() -> None:
    promtool("test", "rules", Path(__file__).with_name("alerts.yaml"))


@needs_promtool
def test_prometheus_takes_what_the_dashboard_asks_for(tmp_path: Path) -> None:
    rules = []
    for number, panel in enumerate(panels()):
        for target in panel["targets"]:
            expression = target["expr"]
            for variable, value in GRAFANA.items():
                expression = expression.replace(variable, value)
            assert "$" not in expression
            rules.append({"record": f"panel:{number}", "expr": expression})
    file = tmp_path / "dashboard.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    promtool("check", "rules", file)
