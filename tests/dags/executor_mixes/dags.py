# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The DAGs of test_executor_mixes.py. What happens to their pods is in faults.yaml."""

from __future__ import annotations

from airflow.sdk import DAG

from testbed.work import Work, held_pod, light_pod, make_pairs

OURS = "KubernetesExecutor"

with DAG("celery", schedule=None, catchup=False, default_args={"executor": OURS}):
    make_pairs("CeleryExecutor")

with DAG("side_by_side", schedule=None, catchup=False):
    for name, executor in (("ours", OURS), ("official", "official")):
        Work(task_id=f"{name}_untouched", executor=executor)
        Work(task_id=f"{name}_lost", executor=executor, executor_config=light_pod())

with DAG("scheduler_dies", schedule=None, catchup=False):
    Work(task_id="ours_running", executor=OURS, executor_config=light_pod())
    Work(task_id="ours_starting", executor=OURS, executor_config=held_pod())
    Work(task_id="official_running", executor="official", executor_config=light_pod())
    Work(task_id="official_starting", executor="official", executor_config=held_pod())
    Work(task_id="local_running", executor="LocalExecutor")
    Work(task_id="celery_running", executor="CeleryExecutor")
