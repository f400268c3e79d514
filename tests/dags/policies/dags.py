# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The DAGs of test_policies.py. What happens to their pods is in faults.yaml."""

from __future__ import annotations

from airflow.sdk import DAG

from testbed.work import Work, pod_with

with DAG("registry_outage", schedule=None, catchup=False, tags=["pulls-images"]):
    Work(task_id="pulled")

with DAG("bad_node", schedule=None, catchup=False):
    Work(task_id="placed", executor_config={"retry_policies": ["elsewhere"]})

with DAG("needs_memory", schedule=None, catchup=False):
    Work(task_id="large", executor_config={"retry_policies": ["memory"], **pod_with(memory="512Mi")})

with DAG("hopeless", schedule=None, catchup=False):
    Work(task_id="broken", retries=3, executor_config={"retry_policies": ["strict"]})

with DAG("changing", schedule=None, catchup=False):
    Work(task_id="lost")

with DAG("outlived", schedule=None, catchup=False, tags=["pulls-images"]):
    Work(task_id="waits")

with DAG("old_policy", schedule=None, catchup=False):
    for task_id in ("launch", "execution"):
        Work(task_id=task_id, executor_config={"retry_policies": ["old"]})
