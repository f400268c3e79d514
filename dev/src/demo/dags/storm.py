# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
# A folder of DAGs is no package.
# ruff: noqa: INP001
"""The third act's DAG: tasks without retries that start while the image registry is away."""

from __future__ import annotations

from airflow.sdk import DAG

from testbed.work import Work, light_pod

TASKS = 12

with DAG(dag_id="storm", schedule=None, catchup=False, tags=["demo"], doc_md=__doc__) as dag:
    for number in range(1, TASKS + 1):
        Work(task_id=f"report_{number}", executor_config=light_pod(1.0))
