# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The DAGs of test_trust.py. What happens to their pods is in faults.yaml."""

from __future__ import annotations

from airflow.sdk import DAG

from testbed.work import Work, light_pod

OTHERS = tuple(f"task_{number}" for number in range(11))

with DAG("endless_delay", schedule=None, catchup=False):
    Work(task_id="poisoned", executor_config={**light_pod(), "retry_policies": ["endless"]})
    for task_id in OTHERS:
        Work(task_id=task_id, executor_config=light_pod())

with DAG("refused_row", schedule=None, catchup=False):
    for task_id in ("unwritable", *OTHERS):
        Work(task_id=task_id, executor_config=light_pod())

# What a scheduler does afterwards.
with DAG("afterwards", schedule=None, catchup=False):
    Work(task_id="lost", executor_config=light_pod())

with DAG("refused_credentials", schedule=None, catchup=False):
    for task_id in ("task_1", "task_2"):
        Work(task_id=task_id, executor_config=light_pod())

with DAG("long_outage", schedule=None, catchup=False):
    for task_id in ("working", "lost"):
        Work(task_id=task_id, executor_config=light_pod())

with DAG("long_outage_launches", schedule=None, catchup=False):
    for task_id in ("task_1", "task_2"):
        Work(task_id=task_id, executor_config=light_pod())
