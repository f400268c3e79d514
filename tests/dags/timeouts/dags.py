# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The DAGs of test_timeouts.py. What happens to its pods is in faults.yaml."""

from __future__ import annotations

from airflow.sdk import DAG

from testbed.work import Work, light_pod, note_failure

with DAG("waits_long", schedule=None, catchup=False):
    # Airflow's own worker: its token is one of the things that may have expired.
    Work(task_id="lost")

with DAG("silent", schedule=None, catchup=False, default_args={"on_failure_callback": note_failure}):
    for task_id in ("silent", "evicted"):
        # No heartbeat is under way when the test dates the last one back.
        Work(task_id=task_id, executor_config=light_pod(heartbeat=600))
