# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Commands of Airflow and of the official provider, with this executor."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, repeat
from pathlib import Path
from signal import SIGTERM
from typing import Any

import pytest
import yaml

from cluster_lab.faults.plan import Fault
from testbed.cluster import DONE_LABEL, EXECUTOR_LABEL
from testbed.records import RECOVERED, UNTOUCHED, Run
from testbed.testbed import Testbed
from testbed.waiting import wait_for

pytestmark = [pytest.mark.system, pytest.mark.newest_version, pytest.mark.long]


def test_a_backfill_does_not_notice_a_lost_pod(testbed: Testbed) -> None:
    testbed.deployment.wait_for_dag("backfilled")
    testbed.deployment.run_well(
        *("backfill", "create", "--dag-id", "backfilled", "--max-active-runs", "2"),
        *("--from-date", "2021-01-01", "--to-date", "2022-01-01"),
    )
    runs = testbed.records.runs("backfilled")
    assert len(runs) == 2
    for run in runs:
        assert run.wait_for_all_to_end() == {"lost": RECOVERED, "untouched": UNTOUCHED}


def test_dags_test_with_the_executor_does_not_notice_a_lost_pod(testbed: Testbed) -> None:
    testbed.deployment.wait_for_dag("tested")
    # A scheduler would launch the same tasks.
    for scheduler in testbed.schedulers.alive:
        scheduler.end(SIGTERM)
    testbed.deployment.run_well("dags", "test", "--use-executor", "tested")
    (run,) = testbed.records.runs("tested")
    assert run.wait_for_all_to_end() == {"lost": RECOVERED, "untouched": UNTOUCHED}
    testbed.schedulers.start()


def test_cleanup_pods_uses_up_no_relaunch(testbed: Testbed) -> None:
    run = testbed.trigger("tidied")
    run.wait_for_code("lost")
    unseen = run.wait_for_pods("held", 1)[0]
    (scheduler,) = testbed.schedulers.alive
    testbed.schedulers.pause(scheduler)
    try:
        testbed.cluster.lose(unseen, Fault.EVICTED_RUNNING)
        # Of one of them the executor has heard that it has failed, of the other it has not.
        both = {unseen, run.pods("lost")[0]}
        wait_for("both have failed", lambda: failed_pods(testbed, run) == both)
        testbed.deployment.run_well("kubernetes", "cleanup-pods", "--min-completed-minutes", "0")
    finally:
        scheduler.resume()
    testbed.decide(run.wait_for_pods("held", 2)[1])
    run.wait_for_code("held")
    testbed.reconnect()
    run.release()
    assert run.wait_for_all_to_end() == {"lost": RECOVERED, "held": RECOVERED}


def test_generate_dag_yaml_shows_what_is_launched(testbed: Testbed, tmp_path: Path) -> None:
    run = testbed.trigger("kerberized")
    run.wait_for_code("lost")
    pods = testbed.cluster.pods(run.run_id)
    (first,) = (
        pod for pod in pods if pod["metadata"]["annotations"]["airflow-resilience/launch-number"] == "1"
    )
    shown = shown_by("kubernetes-resilience", testbed, tmp_path)
    assert list(missing(shown["spec"], first["spec"])) == [".containers[0].args[4]"]
    assert set(missing(workload_of(shown), workload_of(first))) == {
        *(".token", ".log_path", ".ti.id", ".ti.dag_version_id", ".ti.run_id", ".ti.context_carrier")
    }
    assert workload_of(shown)["token"] == "set-at-launch"
    assert [names(container.get("env", ())) for container in shown["spec"]["containers"]] == [
        names(container.get("env", ())) for container in first["spec"]["containers"]
    ]
    assert set(missing(shown["metadata"], first["metadata"])) == {
        *(".name", ".labels.airflow-worker", ".labels.run_id", ".annotations.run_id"),
        *(".annotations.airflow-resilience/launch-id", ".annotations.airflow-resilience/task-instance-id"),
    }
    assert first["metadata"]["annotations"].keys() - shown["metadata"]["annotations"].keys() == set()
    assert first["metadata"]["labels"].keys() - shown["metadata"]["labels"].keys() <= {DONE_LABEL}
    shown = shown_by("kubernetes", testbed, tmp_path)
    told: list[set[str]] = []
    for pod in pods:
        # The workload has another token, and is that of another run.
        assert list(missing(shown["spec"], pod["spec"])) == [".containers[0].args[4]"]
        (container,) = (container for container in pod["spec"]["containers"] if container["name"] == "base")
        assert container["terminationMessagePolicy"] == "FallbackToLogsOnError"
        told.append(names(container["env"]) - names(shown["spec"]["containers"][0]["env"]))
        added = {
            part: pod["metadata"][part].keys() - shown["metadata"][part] for part in ("labels", "annotations")
        }
        assert added["labels"] - {"run_id", DONE_LABEL} == {EXECUTOR_LABEL}
        assert added["annotations"] - {"run_id"} == {
            "airflow-resilience/launch-id",
            "airflow-resilience/launch-number",
            "airflow-resilience/task-instance-id",
        }
    assert sorted(told, key=len) == [set(), {"AIRFLOW_RESILIENCE_PREVIOUS_FAILURE"}]
    run.release()
    assert run.wait_for_all_to_end() == {"lost": RECOVERED}


def shown_by(group: str, testbed: Testbed, folder: Path) -> Any:
    """Return the one pod of a DAG as a group's command shows it."""
    testbed.deployment.run_well(
        *(group, "generate-dag-yaml", "kerberized", "--logical-date", "2026-01-01"),
        *("--output-path", str(folder / group)),
    )
    (file,) = (folder / group).glob("airflow_yaml_output/*")
    return yaml.safe_load(file.read_text())


def workload_of(pod: Mapping[str, Any]) -> Any:
    """Return what the worker of a pod is told to do."""
    return json.loads(pod["spec"]["containers"][0]["args"][4])


def names(items: Iterable[Mapping[str, Any]]) -> set[str]:
    """Return the names of some named items."""
    return {item["name"] for item in items}


def missing(expected: Any, found: Any, path: str = "") -> Iterator[str]:
    """Yield the path of each value of a document that is not, or not so, in another one that may say more."""
    match expected:
        case dict():
            for key, value in expected.items():
                yield from missing(value, (found or {}).get(key), f"{path}.{key}")
        case list():
            others = chain(found or [], repeat(None))
            for number, (value, other) in enumerate(zip(expected, others, strict=False)):
                yield from missing(value, other, f"{path}[{number}]")
        case _ if expected != found:
            yield path


def failed_pods(testbed: Testbed, run: Run) -> set[str]:
    """Return the names of a run's pods that have failed."""
    pods = testbed.cluster.pods(run.run_id)
    return {pod["metadata"]["name"] for pod in pods if pod["status"]["phase"] == "Failed"}
