# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The DAGs of test_switching.py. What happens to their pods is in faults.yaml."""

from __future__ import annotations

from airflow.sdk import DAG

from testbed.work import Work, WorkAfterWaiting, held_pod, light_pod

# One for each way to switch: all runs of a DAG are released together.
for way in ("configuration", "wheel"):
    with DAG(f"switched_by_{way}", schedule=None, catchup=False):
        # One for each of the three executors that it may meet.
        for number in range(3):
            Work(task_id=f"queued_{number}", executor_config=held_pod())
        Work(task_id="lost", executor_config=held_pod())
        Work(task_id="running", executor_config=light_pod())
        Work(task_id="evicted", executor_config=light_pod())
        WorkAfterWaiting(task_id="deferred")

    with DAG(f"switched_back_by_{way}", schedule=None, catchup=False):
        Work(task_id="queued", executor_config=held_pod())
        Work(task_id="running", executor_config=light_pod())
        Work(task_id="relaunched", executor_config=light_pod())
        WorkAfterWaiting(task_id="deferred")

    with DAG(f"held_off_by_{way}", schedule=None, catchup=False):
        Work(task_id="work", executor_config=light_pod())

for dag_id in ("rolled_out", "rolled_out_meanwhile"):
    with DAG(dag_id, schedule=None, catchup=False):
        for number in range(4):
            Work(task_id=f"task_{number}", executor_config=light_pod())
        if dag_id == "rolled_out":
            Work(task_id="lost", executor_config=held_pod())
