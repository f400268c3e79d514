# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
The DAGs of test_each_version.py. What happens to pods before their tasks run is in faults.yaml.

Workers are Airflow's own where it matters what they make of a signal, an answer or a failure.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import yaml
from airflow.sdk import DAG

import demo
from testbed.operators import BashWork, WorkWhenResumed
from testbed.work import Work, WorkAfterWaiting, held_pod, light_pod, note_failure, pod_with

FAULTS = Path(__file__).with_name("faults.yaml")
INIT_CONTAINER = Path(demo.__file__).parent / "dags" / "init_container.yaml"
ONE_RETRY: dict[str, Any] = {"retries": 1, "retry_delay": timedelta(0)}
DEFAULTS = {"on_failure_callback": note_failure}

# ---------------------------------------------------------------------- before the task runs

LOST = {rule["task_id"] for rule in yaml.safe_load(FAULTS.read_text())["rules"] if "matrix" in rule["dag_id"]}
IN_TWO_PHASES = {"deferred", "lost_in_both_phases"}
LIGHT: dict[str, Any] = {"executor_config": light_pod()}
ARGUMENTS: dict[str, dict[str, Any]] = {
    "init_failure": {"executor_config": light_pod() | {"pod_template_file": str(INIT_CONTAINER)}},
    "worker_exit": LIGHT | ONE_RETRY,
    "drain": {},
    "partition": {"executor_config": held_pod()},
}

with DAG("version_matrix", schedule=None, catchup=False):
    for task_id in sorted(IN_TWO_PHASES):
        WorkAfterWaiting(task_id=task_id)
    for task_id in sorted((LOST | {"control"}) - IN_TWO_PHASES):
        Work(task_id=task_id, **ARGUMENTS.get(task_id, LIGHT))

# ---------------------------------------------------------------------- while it runs

with DAG("version_drained", schedule=None, catchup=False, default_args=DEFAULTS):
    Work(task_id="python")
    BashWork(task_id="bash")

with DAG("version_graceful", schedule=None, catchup=False, default_args=DEFAULTS):
    Work(task_id="finishes", executor_config=pod_with(grace_period=600))

with DAG("version_unprotected", schedule=None, catchup=False, default_args=DEFAULTS):
    Work(task_id="work", executor_config=light_pod() | {"infrastructure_retry_limit": 0})

with DAG("version_failed_before", schedule=None, catchup=False, default_args=DEFAULTS):
    Work(task_id="work", **ONE_RETRY)

with DAG("version_resumed", schedule=None, catchup=False, default_args=DEFAULTS):
    WorkWhenResumed(task_id="deferred")

# It reports its success before it asks whether it still runs. The timeout is only how long it may take to
# notice that its task has ended.
SILENT = pod_with(
    env={
        "AIRFLOW__WORKERS__MIN_HEARTBEAT_INTERVAL": 600,
        "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": 10,
    }
)
with DAG("version_cut_off", schedule=None, catchup=False, default_args=DEFAULTS):
    for task_id in ("succeeds", "fails"):
        Work(task_id=task_id, executor_config=SILENT)
    Work(task_id="goes_on")

# ---------------------------------------------------------------------- its scheduler dies

with DAG("version_scheduler_dies", schedule=None, catchup=False, default_args=DEFAULTS):
    for task_id in ("relaunched", "lost", "hopeless"):
        Work(task_id=task_id, executor_config=light_pod())
