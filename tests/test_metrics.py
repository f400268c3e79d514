# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Each failure is counted once, by the process that knows of it, and arrives with its tags."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest

from airflow_resilience import metrics
from testbed.airflow_version import airflow_version
from testbed.code_journal import Order
from testbed.metrics_received import COLLECTD, Counts, Metric, Receiver, opentelemetry, statsd
from testbed.records import Run
from testbed.testbed import Testbed
from testbed.waiting import wait_for

pytestmark = [pytest.mark.system, pytest.mark.each_version]

DEPLOYMENT = {
    "AIRFLOW__KUBERNETES_RESILIENCE__INFRASTRUCTURE_RETRY_BUDGET": "1",
    "AIRFLOW__KUBERNETES_RESILIENCE__INFRASTRUCTURE_RETRY_DELAY": "0",
    "AIRFLOW__SCHEDULER__SCHEDULER_HEARTBEAT_SEC": "1",
}

RECEIVERS = [
    pytest.param(
        statsd,
        id="statsd",
        marks=pytest.mark.skipif(COLLECTD is None, reason="needs collectd (collectd-core)"),
    ),
    pytest.param(opentelemetry, id="opentelemetry", marks=pytest.mark.long),
]

API_SERVER_COUNTS = airflow_version()[:2] != (3, 2)
"""That of Airflow 3.2 does not set its metrics up, and sends none."""

OWN = {counter.name for counter in metrics.COUNTERS}


def failed(category: str, reason: str, source: str, dag_id: str = "metrics") -> list[Metric]:
    """Return what counts one failure."""
    tags = {"reason": reason, "dag_id": dag_id}
    found = [Metric.of("task_instance.failed", category=category, source=source, **tags)]
    if category in {"INFRASTRUCTURE", "APPLICATION"}:
        found.append(Metric.of(f"task.failed.{category.lower()}", **tags))
    return found


LOST = {"reason": "WORKER_TERMINATION", "dag_id": "metrics"}

EXPECTED = Counts(
    [
        *failed("APPLICATION", "TASK_ERROR", "WORKER"),
        *failed("TIMEOUT", "EXECUTION_TIMEOUT", "WORKER"),
        *(failed("USER_ACTION", "MANUAL_STATE_CHANGE", "API") if API_SERVER_COUNTS else ()),
        # Two are lost, within the budget of one; one of them is lost again.
        *[Metric.of("task_instance.infrastructure_retry", attempt="1", **LOST)] * 2,
        Metric.of("task_instance.infrastructure_budget_exhausted", **LOST),
        *failed("INFRASTRUCTURE", "WORKER_TERMINATION", "EXECUTOR"),
        # A launch and the one relaunch that it may have.
        *failed("INFRASTRUCTURE", "START_ERROR", "EXECUTOR"),
    ]
)
AFTERWARDS = failed("APPLICATION", "TASK_ERROR", "WORKER", dag_id="metrics_afterwards")


@pytest.fixture(scope="module", params=RECEIVERS)
def receiver(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Receiver]:
    """What receives the metrics of all processes."""
    with request.param(tmp_path_factory.mktemp("metrics")) as receiver:
        yield receiver


@pytest.fixture(scope="module")
def options(receiver: Receiver) -> Mapping[str, str]:
    """Metrics go to the receiver."""
    return {**DEPLOYMENT, **receiver.configuration}


@pytest.fixture(scope="module")
def received(testbed: Testbed, receiver: Receiver) -> Counts:
    """What the receiver has, when a run has met everything and another one after it has failed."""
    fail_in_each_way(testbed)
    afterwards = testbed.trigger("metrics_afterwards")
    testbed.order(pod_of(afterwards, "fails"), Order.FAIL)
    wait_for(
        "all has arrived",
        lambda: EXPECTED <= of(receiver) >= Counts(AFTERWARDS),
        show=lambda: of(receiver),
    )
    return of(receiver)


def of(receiver: Receiver) -> Counts:
    """Return what is received of the metrics that are counted here."""
    return Counts({metric: number for metric, number in receiver.received().items() if metric.name in OWN})


def fail_in_each_way(testbed: Testbed) -> None:
    """Have each task meet what it is there for."""
    run = testbed.trigger("metrics")
    run.wait_for_code("fails", "lost_once", "lost_twice", "marked", "times_out")
    testbed.order(pod_of(run, "fails"), Order.FAIL)
    testbed.api.mark(run.dag_id, run.run_id, "marked", "failed")
    for task in ("lost_once", "lost_twice"):
        testbed.cluster.evict(pod_of(run, task))
    run.wait_for_times(2, "fails", "lost_once", "lost_twice")
    testbed.cluster.evict(run.wait_for_pods("lost_twice", 2)[-1])
    for task in ("lost_twice", "times_out", "never_starts"):
        run.wait_for_end(task)
    run.release()
    outcomes = run.wait_for_all_to_end()
    assert {task: outcome.state for task, outcome in outcomes.items()} == {
        **dict.fromkeys(("times_out", "lost_twice", "never_starts", "marked"), "failed"),
        **dict.fromkeys(("fails", "lost_once"), "success"),
    }


def pod_of(run: Run, task: str) -> str:
    """Return the first pod of a task."""
    return run.wait_for_pods(task, 1)[0]


def test_each_failure_is_counted_once(received: Counts) -> None:
    assert received == EXPECTED + Counts(AFTERWARDS)


def test_each_has_the_tags_that_it_is_known_for(received: Counts) -> None:
    tags = {(metric.name, frozenset(name for name, _ in metric.tags)) for metric in received}
    assert tags == {(counter.name, frozenset(counter.tags)) for counter in metrics.COUNTERS}
