# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The DAGs of test_policies.py. What happens to their pods is in faults.yaml."""

from __future__ import annotations

from airflow.sdk import DAG

from testbed.work import Work, light_pod, pod_with

with DAG("registry_outage", schedule=None, catchup=False, tags=["pulls-images"]):
    Work(task_id="pulled", executor_config=light_pod())

with DAG("bad_node", schedule=None, catchup=False):
    Work(task_id="placed", executor_config=light_pod() | {"retry_policies": ["elsewhere"]})

with DAG("needs_memory", schedule=None, catchup=False):
    Work(task_id="large", executor_config={"retry_policies": ["memory"], **pod_with(memory="512Mi")})

with DAG("hopeless", schedule=None, catchup=False):
    Work(task_id="broken", retries=3, executor_config=light_pod() | {"retry_policies": ["strict"]})

with DAG("changing", schedule=None, catchup=False):
    Work(task_id="lost", executor_config=light_pod())

with DAG("outlived", schedule=None, catchup=False, tags=["pulls-images"]):
    Work(task_id="waits", executor_config=light_pod())

with DAG("old_policy", schedule=None, catchup=False):
    for task_id in ("launch", "execution"):
        Work(task_id=task_id, executor_config=light_pod() | {"retry_policies": ["old"]})
