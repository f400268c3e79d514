# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The DAGs of test_durability.py. What happens to their pods is in faults.yaml."""

from __future__ import annotations

from airflow.sdk import DAG

from testbed.work import Work, light_pod

DAGS = {
    "killed_before_relaunch": ("failed", "vanished"),
    "failover": ("lost_1", "lost_2", "steady_1", "steady_2"),
    "graceful_stop": tuple(f"task_{number}" for number in range(6)),
}

for dag_id, task_ids in DAGS.items():
    with DAG(dag_id, schedule=None, catchup=False):
        for task_id in task_ids:
            Work(task_id=task_id, executor_config=light_pod())
