# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The DAGs of test_user_actions.py: one for each action at each stage of a relaunch."""

from __future__ import annotations

from airflow.sdk import DAG

from testbed.work import Work, light_pod

ACTIONS = ("clear", "mark_success", "mark_failed", "delete_run")
STAGES = ("waiting", "pending", "running")

for action in ACTIONS:
    for stage in STAGES:
        with DAG(f"{action}_{stage}", schedule=None, catchup=False):
            Work(task_id="lost", executor_config=light_pod())
