# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The DAG of a bundle of test_teams.py. What happens to its pods is in faults.yaml."""

from __future__ import annotations

from pathlib import Path

from airflow.sdk import DAG

from testbed.work import Work, held_pod, light_pod

with DAG(Path(__file__).parent.name, schedule=None, catchup=False):
    Work(task_id="lost", executor_config=light_pod())
    Work(task_id="running", executor_config=light_pod())
    Work(task_id="starting", executor_config=held_pod())
    Work(task_id="local", executor="LocalExecutor")
