# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
# A folder of DAGs is no package.
# ruff: noqa: INP001
"""
The second act's DAG: tasks without retries, whose nodes are drained while they work.

They have an infrastructure budget, which is all that they are told. They work until the demo has seen enough.
"""

from __future__ import annotations

from airflow.sdk import DAG

from demo import BUDGET
from testbed.work import Work, pod_with

GRACE_PERIOD = 5
"""Seconds that a drain leaves a worker."""

with DAG(
    dag_id="drained_nodes",
    schedule=None,
    catchup=False,
    tags=["demo"],
    doc_md=__doc__,
    default_args={
        "executor_config": {"infrastructure_retry_limit": BUDGET, **pod_with(grace_period=GRACE_PERIOD)}
    },
) as dag:
    for number in range(1, 7):
        Work(task_id=f"report_{number}")
