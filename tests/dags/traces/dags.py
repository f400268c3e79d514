# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The DAG of test_traces.py."""

from __future__ import annotations

from airflow.sdk import DAG

from testbed.work import Work

with DAG("traced", schedule=None, catchup=False):
    for task_id in ("runs_again", "never_started", "given_up"):
        Work(task_id=task_id)
