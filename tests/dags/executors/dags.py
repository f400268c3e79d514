# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The DAGs of test_executors.py: tasks of two executors that wait for each other, in turn and at once."""

from __future__ import annotations

from airflow.sdk import DAG

from testbed.work import Work, light_pod

EXECUTORS = {"local": "LocalExecutor", "celery": "CeleryExecutor"}
PAIRS = 3

for dag_id, executor in EXECUTORS.items():
    with DAG(dag_id, schedule=None, catchup=False):
        for number in range(PAIRS):
            pods = [
                Work(task_id=f"pod_{number}_{wave}", executor_config=light_pod())
                for wave in ("first", "then")
            ]
            others = [Work(task_id=f"other_{number}_{wave}", executor=executor) for wave in ("first", "then")]
            pods[0] >> others[1]
            others[0] >> pods[1]
