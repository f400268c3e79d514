# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
Executors of teams, in one scheduler: each has tasks, pods, options and budgets of its own.

.. seealso:: https://airflow.apache.org/docs/apache-airflow/stable/core-concepts/multi-team.html
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from testbed.airflow_configuration import POD_TEMPLATE, RESILIENT_EXECUTOR
from testbed.airflow_version import airflow_version
from testbed.cluster import EXECUTOR_LABEL, OWNER_LABEL
from testbed.records import RECOVERED, RUN_AGAIN, Outcome, Run
from testbed.testbed import Testbed

pytestmark = [
    pytest.mark.system,
    pytest.mark.each_version,
    pytest.mark.newest_version,
    pytest.mark.long,
    pytest.mark.skipif(airflow_version() < (3, 2), reason="Airflow 3.1 has no teams"),
]

OURS = RESILIENT_EXECUTOR.rpartition(":")[2]

EVERYONE, BLUE, RED = "everyone", "blue", "red"
NAMES = {EVERYONE: "KubernetesExecutor", BLUE: "blue.healing", RED: "red.healing"}
"""What the executor of each DAG's team is called in the label of its pods."""

DAGS = Path(__file__).parent / "dags" / "teams"
"""Of each bundle, after whose folder its Dag is called."""


def DEPLOYMENT(home: Path) -> dict[str, str]:  # noqa: N802 - what conftest.py looks for
    """Return the configuration: a team's executor reads the team's options, and no others."""
    template = home / "template-of-a-team.yaml"
    template.write_text(POD_TEMPLATE)
    for name in NAMES:
        shutil.copytree(DAGS, home / "bundles" / name)
    bundles = [
        {
            "name": name,
            "classpath": "airflow.dag_processing.bundles.local.LocalDagBundle",
            "kwargs": {"path": str(home / "bundles" / name), "refresh_interval": 3600},
            **({} if name == EVERYONE else {"team_name": name}),
        }
        for name in NAMES
    ]
    of_teams = {
        f"AIRFLOW__{team.upper()}___KUBERNETES_EXECUTOR__POD_TEMPLATE_FILE": str(template)
        for team in (BLUE, RED)
    }
    return {
        "AIRFLOW__CORE__MULTI_TEAM": "True",
        "AIRFLOW__CORE__EXECUTOR": ";".join(
            [f"{RESILIENT_EXECUTOR},LocalExecutor", f"{BLUE}=healing:{OURS}", f"{RED}=healing:{OURS}"]
        ),
        "AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST": json.dumps(bundles),
        **of_teams,
        "AIRFLOW__BLUE___KUBERNETES_EXECUTOR__POD_LAUNCH_FAILURE_RETRIES": "0",
        "AIRFLOW__RED___KUBERNETES_RESILIENCE__INFRASTRUCTURE_RETRY_BUDGET": "1",
        "AIRFLOW__RED___KUBERNETES_RESILIENCE__INFRASTRUCTURE_RETRY_DELAY": "0",
    }


LOST = Outcome(state="failed", pods=1, begun=0, ended=0, launch_failures=1)


@pytest.fixture(scope="module")
def runs(testbed: Testbed) -> dict[str, Run]:
    """A run of each team's DAG, whose tasks go on."""
    runs = {team: testbed.trigger(team) for team in NAMES}
    for run in runs.values():
        run.wait_for_code("running", "local")
        run.wait_for_pods("starting", 1)
    return runs


def test_each_team_has_its_executor_and_its_options(testbed: Testbed, runs: dict[str, Run]) -> None:
    assert runs[BLUE].wait_for_end("lost") == LOST
    for team in (EVERYONE, RED):
        runs[team].wait_for_code("lost")
    job_id = str(testbed.schedulers.alive[0].job_id)
    for team, run in runs.items():
        labels = [pod["metadata"]["labels"] for pod in testbed.cluster.pods(run.run_id)]
        expected = {(job_id, NAMES[team])}
        assert {(found[OWNER_LABEL], found[EXECUTOR_LABEL]) for found in labels} == expected


def test_of_a_dead_scheduler_each_team_s_executor_adopts_its_own(
    testbed: Testbed, runs: dict[str, Run]
) -> None:
    running = {team: run.pods("running")[0] for team, run in runs.items()}
    starting = {team: run.pods("starting")[0] for team, run in runs.items()}
    testbed.schedulers.kill_long_ago(testbed.schedulers.alive[0])
    successor = testbed.schedulers.start()
    testbed.cluster.wait_for_owner((*running.values(), *starting.values()), successor.job_id)
    for team, run in runs.items():
        labels = [pod["metadata"]["labels"] for pod in testbed.cluster.pods(run.run_id)]
        assert {found[EXECUTOR_LABEL] for found in labels} == {NAMES[team]}
    # Each heals by its own options, after that too.
    for pod in (*running.values(), *starting.values()):
        testbed.cluster.delete(pod)
    assert runs[BLUE].wait_for_end("starting") == LOST
    for team in (EVERYONE, RED):
        testbed.decide(runs[team].wait_for_pods("starting", 2)[1])
        runs[team].wait_for_code("starting")
    runs[RED].wait_for_times(2, "running")
    for team in (EVERYONE, BLUE):
        assert runs[team].wait_for_end("running").state == "failed"
    for run in runs.values():
        run.wait_for_times(2, "local")
    outcomes = {team: testbed.end(run) for team, run in runs.items()}
    given_up = Outcome(state="failed", pods=1, ended=0, launch_failures=0, execution_failures=1)
    assert {team: found["running"] for team, found in outcomes.items()} == {
        EVERYONE: given_up,
        BLUE: given_up,
        RED: RUN_AGAIN,
    }
    for task in ("lost", "starting"):
        assert {team: found[task] for team, found in outcomes.items()} == {
            EVERYONE: RECOVERED,
            BLUE: LOST,
            RED: RECOVERED,
        }
    # LocalExecutor is common to all teams. What it ran has ended with the scheduler, and Airflow resets it.
    reset = Outcome(state="success", try_number=2, pods=0, begun=2, launch_failures=0)
    assert {team: found["local"] for team, found in outcomes.items()} == dict.fromkeys(NAMES, reset)
