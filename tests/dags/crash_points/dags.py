# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The DAGs of test_crash_points.py. What happens to their pods is in faults.yaml."""

from __future__ import annotations

from airflow.sdk import DAG

from testbed.work import Work, light_pod, note_failure

MOMENTS = ("before_new_pod", "before_deletion", "waiting_for_old_pod", "in_backoff", "amid_create")

for moment in MOMENTS:
    with DAG(moment, schedule=None, catchup=False):
        Work(task_id="healed", executor_config=light_pod())
        Work(task_id="hopeless", executor_config=light_pod())

RUNNING_MOMENTS = ("unseen", "uncommitted", "committed", "amid_create_again")

for moment in RUNNING_MOMENTS:
    with DAG(moment, schedule=None, catchup=False, default_args={"on_failure_callback": note_failure}):
        Work(task_id="again", executor_config=light_pod())
        Work(task_id="limited", executor_config=light_pod() | {"infrastructure_retry_limit": 1})

with DAG("two_schedulers", schedule=None, catchup=False):
    for number in range(6):
        Work(task_id=f"task_{number}", executor_config=light_pod())
