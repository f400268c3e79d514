# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
# A folder of DAGs is no package.
# ruff: noqa: INP001
"""
The demo's DAG: one task for each way in which the infrastructure can lose a pod before the task starts.

The tasks know nothing of that. Each one works (it waits) until the executor has listed all pods anew while
all tasks were at work, and notes when its code began and when it ended.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import yaml
from airflow.sdk import DAG

from testbed.operators import WorkWhenResumed
from testbed.work import Work, light_pod

FOLDER = Path(__file__).parent
PLAN = yaml.safe_load((FOLDER.parent / "faults.yaml").read_text())

DEFERRED_FOR = timedelta(seconds=10)
"""Longer than a worker takes to leave on a busy machine: the pod that deferred is to be gone by then."""


REAL = {"control", "deferred", "drain", "evicted", "start_error", "vanish", "worker_exit"}
"""The tasks that have Airflow's own worker: two cores start no more than these at a time."""

with DAG(dag_id="lost_pods", schedule=None, catchup=False, tags=["demo"], doc_md=__doc__) as dag:
    Work(task_id="control")
    for rule in PLAN["rules"]:
        task_id, fault = rule["task_id"], rule["fault"]
        arguments: dict[str, Any] = {"task_id": task_id, "doc": f"Loses its first pod by: {fault}"}
        if task_id not in REAL:
            arguments["executor_config"] = light_pod()
        if fault == "worker-exit":
            arguments |= {"retries": 1, "retry_delay": timedelta(seconds=1)}
        if fault == "init-failure":
            template = FOLDER / "init_container.yaml"
            arguments["executor_config"] |= {"pod_template_file": str(template)}
        if rule.get("phase") == "resume":
            WorkWhenResumed(after=DEFERRED_FOR, **arguments)
        else:
            Work(**arguments)
