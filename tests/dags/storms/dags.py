# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The DAGs of test_storms.py. Whose registry is away is in faults.yaml."""

from __future__ import annotations

from airflow.sdk import DAG, chain

from testbed.work import Work, light_pod, note_failure

TASKS = 6

for dag_id in ("storm_one", "storm_two", "storm_killed", "no_quota"):
    with DAG(dag_id, schedule=None, catchup=False, default_args={"on_failure_callback": note_failure}):
        for number in range(TASKS):
            Work(task_id=f"task_{number}", executor_config=light_pod(1.0))

# One after the other: each would be sent to the node that nothing keeps busy.
with DAG("sick_node", schedule=None, catchup=False):
    chain(*(Work(task_id=f"task_{number}", executor_config=light_pod(1.0)) for number in range(TASKS)))

with DAG("uses_quota", schedule=None, catchup=False):
    Work(task_id="task", executor_config=light_pod())

with DAG("elsewhere", schedule=None, catchup=False):
    Work(task_id="task", executor_config=light_pod(1.0, image="elsewhere.example.com/airflow"))
