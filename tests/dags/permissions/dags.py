# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The DAGs of test_permissions.py, one for each; what happens to their pods is in faults.yaml."""

from __future__ import annotations

from airflow.sdk import DAG

from testbed.work import Work, light_pod

for dag_id in ("create", "delete", "get", "list", "patch", "watch", "log_list", "log_get", "commands"):
    with DAG(dag_id, schedule=None, catchup=False):
        Work(task_id="work", executor_config=light_pod())
