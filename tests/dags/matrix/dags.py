# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The DAG of test_matrix.py: a task for each way to lose a pod, and one that loses none."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import yaml
from airflow.sdk import DAG

import demo
from testbed.work import Work, WorkAfterWaiting, held_pod, light_pod

FOLDER = Path(__file__).parent
INIT_CONTAINER = Path(demo.__file__).parent / "dags" / "init_container.yaml"
TASKS = {rule["task_id"] for rule in yaml.safe_load((FOLDER / "faults.yaml").read_text())["rules"]}

# What is lost before a worker starts does not depend on whose worker it is. Twenty of Airflow's own would
# take two cores a minute to start.
LIGHT: dict[str, Any] = {"executor_config": light_pod()}
ARGUMENTS: dict[str, dict[str, Any]] = {
    "control": {},
    "deferred": {},
    "drain": {},
    "evicted": {},
    "init_failure": {"executor_config": light_pod() | {"pod_template_file": str(INIT_CONTAINER)}},
    "partition": {"executor_config": held_pod()},
    "start_error": {},
    "worker_exit": {"retries": 1, "retry_delay": timedelta(seconds=1)},
}

with DAG("matrix", schedule=None, catchup=False):
    for task_id in sorted(TASKS | {"control"}):
        operator = WorkAfterWaiting if task_id == "deferred" else Work
        operator(task_id=task_id, **ARGUMENTS.get(task_id, LIGHT))
