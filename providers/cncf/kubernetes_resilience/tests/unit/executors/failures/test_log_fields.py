# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The scheduler's lines about failures have their parts as values, beside the sentence."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from airflow.providers.cncf.kubernetes_resilience.executors.actions import Actions

from ....support import manifests as m
from .test_executions import lose


@pytest.fixture
def lines(monkeypatch):
    """The lines that the executor writes."""
    with capture_logs() as captured:
        # A logger that exists already has its processors.
        monkeypatch.setattr(Actions, "_log", None)
        yield captured


def line_with(lines, text):
    (line,) = (line for line in lines if text in line["event"])
    return {name: value for name, value in line.items() if name not in ("event", "log_level")}


def about(ti, pod):
    return {
        "dag_id": ti.dag_id,
        "task_id": ti.task_id,
        "run_id": ti.run_id,
        "map_index": -1,
        "try_number": 1,
        "launch": 1,
        "namespace": "default",
        "pod": pod.name,
        "node": "node-1",
    }


EVICTED = {
    "cause": "evicted-by-node-pressure",
    "category": "INFRASTRUCTURE",
    "reason": "RESOURCE_EXHAUSTION",
}


def test_a_relaunch(start, queued_ti, lines):
    harness = start()
    ti = queued_ti()
    pod = harness.launch(ti)
    harness.observe(pod, m.evicted())
    decided = {"decision": "relaunch", "policy": "built-in", "rule": "launch-failure"}
    assert line_with(lines, "relaunching") == about(ti, pod) | EVICTED | decided


@pytest.mark.parametrize(("budget", "decision"), [("0", "count"), ("1", "relaunch")])
def test_a_loss(start, running, lines, budget, decision):
    harness = start(KUBERNETES_RESILIENCE__INFRASTRUCTURE_RETRY_BUDGET=budget)
    ti, pod = running(harness)
    lose(harness, pod, m.evicted())
    text = "running again" if budget == "1" else "ended as failed"
    line = line_with(lines, text)
    assert line.items() >= (about(ti, pod) | EVICTED | {"decision": decision, "attempt": 1}).items()


def test_a_failed_launch_that_is_reported(start, queued_ti, lines):
    harness = start(KUBERNETES_EXECUTOR__POD_LAUNCH_FAILURE_RETRIES="0")
    ti = queued_ti()
    pod = harness.launch(ti)
    harness.observe(pod, m.evicted())
    line = line_with(lines, "ended as failed")
    assert line.items() >= (about(ti, pod) | EVICTED | {"decision": "count"}).items()
