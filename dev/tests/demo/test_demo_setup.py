# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The example DAG and the plan belong together, and a worker is not told what it need not know."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import demo
from cluster_lab.faults.plan import FaultPlan
from demo import drained
from demo.lost_pods import CONTROL
from testbed.airflow_configuration import DeploymentSettings, configuration, worker_configuration

FOLDER = Path(demo.__file__).parent
# In a process of its own: Airflow reads its configuration when it is imported, and has warnings to give.
LIST_TASKS = """
import runpy, sys
dag = runpy.run_path(sys.argv[1])["dag"]
print(*dag.task_ids)
"""
LIST_BUDGETS = """
import runpy, sys
dag = runpy.run_path(sys.argv[1])["dag"]
print(*{task.executor_config["infrastructure_retry_limit"] for task in dag.tasks})
"""


def settings(home: Path) -> DeploymentSettings:
    return DeploymentSettings(
        home=home,
        database_url="postgresql+psycopg2://secret@127.0.0.1/airflow",
        kubeconfig=home / "kubeconfig",
        dags_folder=FOLDER / "dags",
        env={"AIRFLOW__CORE__PARALLELISM": "3"},
    )


def test_the_dag_has_a_task_for_each_rule_and_the_control(tmp_path: Path) -> None:
    rules = FaultPlan.load(FOLDER / "faults.yaml").rules
    assert told_by(LIST_TASKS, "lost_pods.py", tmp_path) == [CONTROL, *(rule.task_id for rule in rules)]


def test_the_budget_that_is_shown_is_that_of_the_tasks(tmp_path: Path) -> None:
    assert told_by(LIST_BUDGETS, "drained_nodes.py", tmp_path) == [str(drained.BUDGET)]


def told_by(script: str, dag: str, home: Path) -> list[str]:
    result = subprocess.run(
        [sys.executable, "-c", script, FOLDER / "dags" / dag],
        env={**os.environ, "AIRFLOW_HOME": str(home)},
        capture_output=True,
        text=True,
        check=True,
    )
    return result.stdout.split()


def test_workers_get_neither_the_database_nor_the_key_of_the_tokens(tmp_path: Path) -> None:
    everything = configuration(settings(tmp_path), "http://127.0.0.1:1")
    worker = worker_configuration(everything)
    assert "secret" in everything["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"]
    assert not any("secret" in value for value in worker.values())
    assert everything["AIRFLOW__API_AUTH__JWT_SECRET"] not in worker.values()
    assert worker["AIRFLOW__CORE__EXECUTION_API_SERVER_URL"] == "http://127.0.0.1:1/execution/"


def test_the_callers_settings_win(tmp_path: Path) -> None:
    assert configuration(settings(tmp_path), "http://x")["AIRFLOW__CORE__PARALLELISM"] == "3"
