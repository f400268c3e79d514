# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""A file with retry policies, in a deployment that runs."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import pytest

from cluster_lab.faults.plan import Fault
from cluster_lab.journal import JournalEvent
from testbed.records import RECOVERED, Outcome, Run
from testbed.testbed import Testbed
from testbed.waiting import holds_for, wait_for

pytestmark = pytest.mark.system

OURS = "kubernetes-resilience"
DEFAULT = "defaultPolicy: lenient\n"
WRITTEN = Path(__file__).parent / "dags" / "policies" / "policies.yaml"


def policy_file(home: Path) -> Path:
    """Return where the deployment's policies are; the test may change them."""
    return home / "policies.yaml"


def DEPLOYMENT(home: Path) -> dict[str, str]:  # noqa: N802 - what conftest.py looks for
    """Return the configuration, which names a file."""
    shutil.copy(WRITTEN, policy_file(home))
    return {"AIRFLOW__KUBERNETES_RESILIENCE__RETRY_POLICY_FILE": str(policy_file(home))}


def test_an_outage_of_the_registry_is_waited_out(testbed: Testbed) -> None:
    run = testbed.trigger("registry_outage")
    run.wait_for_code("pulled")
    run.release()
    assert run.wait_for_end("pulled") == Outcome(state="success", pods=3, launch_failures=2)

    rows = run.ledger("pulled")
    assert [(row["policy"], row["rule"], row["delay"]) for row in rows] == [
        ("patient", "registry", 3.0),
        ("patient", "registry", 6.0),
    ]
    arrivals = [entry.time for entry in run.events("pulled", JournalEvent.BOUND)]
    for row, arrival in zip(rows, arrivals[1:], strict=True):
        assert arrival >= datetime.fromisoformat(row["due"])
        assert row["context"]["reason"] == "IMAGE_UNAVAILABLE"

    told = json.loads(
        testbed.deployment.run_well(
            OURS, "history", "registry_outage", run.run_id, "pulled", "--output", "json"
        )
    )
    assert [(launch["launch"], launch["decision"]["rule"]) for launch in told] == [
        (1, "registry"),
        (2, "registry"),
    ]
    assert "patient" in testbed.deployment.run_well(
        OURS, "policy", "show", "--dag", "registry_outage", "--task", "pulled"
    )


def test_a_bad_node_is_left_alone(testbed: Testbed) -> None:
    first, *others = testbed.cluster.nodes()
    testbed.cluster.cordon(*others)
    run = testbed.trigger("bad_node")
    run.wait_for_ledger("placed", 1)
    holds_for(5, "no node is good enough", lambda: len(run.pods("placed")) == 1)
    testbed.cluster.cordon(*others, unschedulable=False)
    run.wait_for_code("placed")
    run.release()
    assert run.wait_for_end("placed") == RECOVERED
    bad, good = [entry.node for entry in run.events("placed", JournalEvent.BOUND)]
    assert bad == first
    assert good in others


def test_a_worker_that_was_out_of_memory_gets_more(testbed: Testbed) -> None:
    run = testbed.trigger("needs_memory")
    run.wait_for_code("large")
    limits = {
        pod["metadata"]["name"]: pod["spec"]["containers"][0]["resources"]["limits"]["memory"]
        for pod in testbed.cluster.pods(run.run_id)
    }
    assert limits[run.pods("large")[-1]] == "768Mi"
    run.release()
    assert run.wait_for_end("large") == RECOVERED


def test_a_task_may_be_failed_for_good(testbed: Testbed) -> None:
    run = testbed.trigger("hopeless")
    ended = run.wait_for_end("broken")
    assert (ended.state, ended.try_number, ended.pods, ended.begun) == ("failed", 1, 1, 0)
    (row,) = run.ledger("broken")
    assert (row["action"], row["policy"], row["rule"]) == ("fail", "strict", "image-is-broken")


@pytest.mark.long
def test_the_file_may_change_while_the_scheduler_runs(testbed: Testbed) -> None:
    file = policy_file(testbed.home)
    file.write_text(WRITTEN.read_text().replace("action: Retry", "action: Explode"))
    wait_for("the scheduler refuses it", lambda: "got 'Explode'" in testbed.schedulers.log())
    lenient = (
        "  - {name: lenient, rules: [{name: evicted, onReasons: [Evicted], action: Retry, retryLimit: 2}]}\n"
    )
    with changed(testbed, WRITTEN.read_text().replace("policies:\n", f"policies:\n{lenient}", 1) + DEFAULT):
        run = testbed.trigger("changing")
        assert run.wait_for_end("lost") == Outcome(
            state="failed", pods=3, begun=0, ended=0, launch_failures=3
        )
    assert [(row["rule"], row["action"]) for row in run.ledger("lost")] == [
        ("evicted", "relaunch"),
        ("evicted", "relaunch"),
        ("evicted", "count"),
    ]


def test_a_rule_that_names_no_phase_runs_nothing_again_while_there_is_no_budget(testbed: Testbed) -> None:
    run = testbed.trigger("old_policy")
    run.wait_for_code("launch", "execution")
    testbed.cluster.lose(run.pods("execution")[0], Fault.EVICTED_RUNNING)
    ended = run.wait_for_end("execution")
    assert (ended.state, ended.pods, ended.begun, ended.ended) == ("failed", 1, 1, 0)
    run.release()
    assert run.wait_for_end("launch") == RECOVERED


@pytest.mark.long
def test_a_relaunch_that_waits_survives_its_scheduler(testbed: Testbed) -> None:
    with changed(testbed, WRITTEN.read_text().replace("initialDelay: 3s", "initialDelay: 30s")):
        run = testbed.trigger("outlived")
        run.wait_for_ledger("waits", 1)
        testbed.schedulers.replace()
        run.wait_for_code("waits")
        run.release()
        assert run.wait_for_end("waits") == RECOVERED
    (row,) = run.ledger("waits")
    second = run.events("waits", JournalEvent.BOUND)[1]
    assert second.time >= datetime.fromisoformat(row["due"])


def test_a_pod_can_be_explained(testbed: Testbed) -> None:
    run: Run = testbed.trigger("hopeless")
    run.wait_for_end("broken")
    (pod,) = run.pods("broken")
    done = testbed.deployment.run(OURS, "explain", "--namespace", "default", pod, "--output", "json")
    assert done.returncode == 1, done.stderr
    (explained,) = json.loads(done.stdout)
    assert explained["decision"]["rule"] == "image-is-broken"
    assert "StartError" in done.stdout


@contextmanager
def changed(testbed: Testbed, text: str) -> Iterator[None]:
    """Let the deployment have other policies for a while."""
    _write(testbed, text)
    try:
        yield
    finally:
        _write(testbed, WRITTEN.read_text())


def _write(testbed: Testbed, text: str) -> None:
    def read() -> int:
        return testbed.schedulers.log().count("Retry policies were read again")

    before = read()
    policy_file(testbed.home).write_text(text)
    wait_for("the scheduler has read its policies again", lambda: read() > before)
