# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The DAGs of test_outages.py. What happens to their pods is in faults.yaml."""

from __future__ import annotations

from airflow.sdk import DAG

from testbed.work import Work, light_pod

OUTAGES = (
    "api_paused",
    "api_killed",
    "database_gone",
    "refused",
    "unavailable",
    "slow",
    "unanswered",
    "cut",
    "late",
)

for outage in OUTAGES:
    # What is lost in the outage, and what lives through it.
    with DAG(outage, schedule=None, catchup=False):
        for task_id in ("lost_1", "lost_2", "lost_3", "working_1", "working_2"):
            Work(task_id=task_id, executor_config=light_pod())
    # What is launched in it.
    with DAG(f"{outage}_launches", schedule=None, catchup=False):
        for task_id in ("new_1", "new_2", "new_3"):
            Work(task_id=task_id, executor_config=light_pod())
