# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Traces and logs that others collect: they say of each launch what became of it, and why."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from cluster_lab.faults.plan import Fault
from testbed.airflow_version import airflow_version
from testbed.otlp_collector import Collector, ReceivedSpan, open_collector
from testbed.records import Run
from testbed.testbed import Testbed
from testbed.waiting import wait_for

pytestmark = [pytest.mark.system, pytest.mark.each_version]

from_3_2_on = pytest.mark.skipif(
    airflow_version() < (3, 2), reason="Airflow 3.1 has neither spans of workers nor logs in JSON"
)


@pytest.fixture(scope="module")
def collector(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Collector]:
    """What receives the spans of all processes."""
    with open_collector(tmp_path_factory.mktemp("collector")) as collector:
        yield collector


@pytest.fixture(scope="module")
def options(collector: Collector) -> dict[str, str]:
    """Traces go to the collector, and logs are JSON."""
    before_3_2 = {
        "AIRFLOW__TRACES__OTEL_HOST": "127.0.0.1",
        "AIRFLOW__TRACES__OTEL_PORT": str(collector.port),
    }
    return (before_3_2 if airflow_version() < (3, 2) else {}) | {
        "AIRFLOW__KUBERNETES_RESILIENCE__INFRASTRUCTURE_RETRY_BUDGET": "2",
        "AIRFLOW__KUBERNETES_RESILIENCE__INFRASTRUCTURE_RETRY_DELAY": "0",
        "AIRFLOW__LOGGING__JSON_LOGS": "True",
        "AIRFLOW__TRACES__OTEL_ON": "True",
        "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
        "OTEL_TRACES_EXPORTER": "otlp_proto_http",
        "OTEL_BSP_SCHEDULE_DELAY": "200",
    }


@pytest.fixture(scope="module")
def run(testbed: Testbed) -> Run:
    """A run that has ended: of each task, the first pod was lost in another way."""
    run = testbed.trigger("traced")
    run.wait_for_code("runs_again", "never_started", "given_up")
    testbed.cluster.evict(run.pods("runs_again")[0])
    testbed.cluster.lose(run.pods("given_up")[0], Fault.OOM_RUNNING)
    run.wait_for_times(2, "runs_again")
    run.release()
    states = {task: outcome.state for task, outcome in run.wait_for_all_to_end().items()}
    assert states == {"runs_again": "success", "never_started": "success", "given_up": "failed"}
    return run


def launches(collector: Collector, task: str, count: int) -> list[ReceivedSpan]:
    def enough() -> list[ReceivedSpan]:
        found = collector.spans(f"launch.{task}")
        return found if len(found) >= count else []

    found = wait_for(f"{count} launches of {task} are received", enough)
    assert len(found) == count
    return found


@pytest.mark.parametrize(
    ("task", "cause", "decision"),
    [
        ("runs_again", "evicted-by-api", "relaunch"),
        ("never_started", "evicted-by-node-pressure", "relaunch"),
        ("given_up", "worker-out-of-memory", "count"),
    ],
)
def test_each_launch_is_a_span_that_says_why_it_ended(
    collector: Collector, run: Run, task: str, cause: str, decision: str
) -> None:
    pods = run.pods(task)
    spans = launches(collector, task, len(pods))
    assert [span.attributes["k8s.pod.name"] for span in spans] == pods
    assert [span.has_failed for span in spans] == [True, False][: len(pods)]
    first = spans[0]
    assert first.attributes["airflow_resilience.cause"] == cause
    assert first.attributes["airflow_resilience.decision"] == decision
    assert first.attributes["airflow.dag_run.run_id"] == run.run_id
    assert first.attributes["k8s.node.name"].startswith("lab-node")
    assert len({(span.trace_id, span.parent_id) for span in spans}) == 1
    assert first.parent_id
    for span in spans:
        assert span.start <= span.events["pod scheduled"] <= span.end
        assert span.start <= span.events.get("worker started", span.start) <= span.end


@from_3_2_on
def test_the_launches_and_the_worker_are_in_one_trace_below_the_task(collector: Collector, run: Run) -> None:
    spans = launches(collector, "runs_again", 2)
    (worker,) = wait_for("the worker's span is received", lambda: collector.spans("worker.runs_again"))
    (task,) = wait_for("the task's span is received", lambda: collector.spans("task_run.runs_again"))
    assert {span.trace_id for span in (*spans, worker)} == {task.trace_id}
    assert {span.parent_id for span in (*spans, worker)} == {task.span_id}
    assert spans[1].start <= worker.start <= worker.end
    assert task.parent_id


def logged(testbed: Testbed, text: str) -> list[dict[str, Any]]:
    """Return the scheduler's lines with a text, by their names and values."""
    lines = testbed.schedulers.log().splitlines()
    read = [json.loads(line) for line in lines if line.startswith("{")]
    return [line for line in read if text in line["event"]]


@from_3_2_on
@pytest.mark.parametrize(
    ("task", "text", "cause", "decision"),
    [
        ("runs_again", "Running again", "evicted-by-api", "relaunch"),
        ("never_started", "Relaunching", "evicted-by-node-pressure", "relaunch"),
        ("given_up", "ended as failed", "worker-out-of-memory", "count"),
    ],
)
def test_the_lines_of_the_scheduler_have_values(
    testbed: Testbed, collector: Collector, run: Run, task: str, text: str, cause: str, decision: str
) -> None:
    (line,) = (line for line in logged(testbed, text) if line.get("task_id") == task)
    first = launches(collector, task, len(run.pods(task)))[0]
    assert (line["cause"], line["decision"], line["pod"]) == (cause, decision, run.pods(task)[0])
    shared = {"category", "reason", "policy", "rule", "launch", "attempt"} & line.keys()
    assert {name: line[name] for name in shared} == {
        name: first.attributes[f"airflow_resilience.{name}"] for name in shared
    }
    assert line["node"] == first.attributes["k8s.node.name"]


@pytest.mark.parametrize("task", ["runs_again", "never_started"])
def test_the_log_of_the_next_launch_says_why_there_is_one_before_the_task_has_its_say(
    testbed: Testbed, run: Run, task: str
) -> None:
    (file,) = testbed.home.glob(f"logs-of-workers/dag_id=traced/*/task_id={task}/attempt=1.log")
    events = [json.loads(line)["event"] for line in file.read_text().splitlines()]
    (line,) = (event for event in events if event.startswith("Try 1 is launched again: "))
    assert f"launch 1 in pod {run.pods(task)[0]} on node lab-node" in line
    assert "INFRASTRUCTURE / " in line
    at = events.index(line)
    assert events[at + 1] == "the task works"
    if airflow_version() >= (3, 2):
        # What is before it is in a group, which the page folds.
        assert events[at - 1] == "::endgroup::"
