# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The DAGs of test_given_up.py. What happens to their pods is in faults.yaml."""

from __future__ import annotations

from airflow.sdk import DAG

from testbed.work import Work, light_pod

for dag_id in ("starts_after_all", "starts_unseen"):
    with DAG(dag_id, schedule=None, catchup=False):
        for task_id in ("late_1", "late_2", "late_3"):
            Work(task_id=task_id, executor_config=light_pod())
