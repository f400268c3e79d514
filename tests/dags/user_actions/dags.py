# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The DAGs of test_user_actions.py: one for each action at each stage of a relaunch, or of running again."""

from __future__ import annotations

from airflow.sdk import DAG

from testbed.work import LIGHT_WORKER, Work, light_pod, pod_with

ACTIONS = ("clear", "mark_success", "mark_failed", "delete_run")
STAGES = ("waiting", "pending", "running", "waiting_again", "running_again")

# It does not go when it is told to, and has time to be told something else.
STUBBORN = pod_with(
    command=("sh", "-c", 'trap "" TERM; exec "$@"', "worker", *LIGHT_WORKER), grace_period=600
)

for action in ACTIONS:
    for stage in STAGES:
        with DAG(f"{action}_{stage}", schedule=None, catchup=False):
            Work(task_id="lost", executor_config=light_pod())
    with DAG(f"{action}_ending", schedule=None, catchup=False):
        Work(task_id="lost", executor_config=STUBBORN)
