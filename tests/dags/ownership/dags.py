# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The DAGs of test_ownership.py. What happens to their pods is in faults.yaml."""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG

from testbed.work import Work, light_pod

MANY = tuple(f"task_{number}" for number in range(10))
FEW = ("running_1", "running_2", "running_3", "starting")
DAGS = {"killed_amid_adoption": MANY, "rolled_back": FEW, "paused": FEW, "paused_amid_adoption": FEW}

for dag_id, task_ids in DAGS.items():
    with DAG(dag_id, schedule=None, catchup=False):
        for task_id in task_ids:
            Work(task_id=task_id, executor_config=light_pod())

with DAG("cleared_while_paused", schedule=None, catchup=False):
    # Cut off from Airflow: it does not learn that it has to go.
    Work(task_id="running", executor_config=light_pod(heartbeat=600))

with DAG("left_behind", schedule=None, catchup=False):
    retry = {"retries": 1, "retry_delay": timedelta(seconds=1)}
    Work(task_id="failed", executor_config=light_pod(), **retry)
    Work(task_id="pending", executor_config=light_pod())
