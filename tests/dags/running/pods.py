# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The DAGs of test_running.py whose pods are not like all others."""

from __future__ import annotations

from airflow.sdk import DAG

from testbed.work import Work, light_pod, note_failure, pod_with

DEFAULTS = {"on_failure_callback": note_failure}

# A worker that is cut off reports before it asks whether it still runs; the last one asks. The timeout is
# only how long such a worker may take to notice that its task has ended.
SILENT = pod_with(
    env={
        "AIRFLOW__WORKERS__MIN_HEARTBEAT_INTERVAL": 600,
        "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": 10,
    }
)
with DAG("cut_off", schedule=None, catchup=False, default_args=DEFAULTS):
    Work(task_id="succeeds", executor_config=SILENT)
    Work(task_id="fails", executor_config=SILENT)
    Work(task_id="goes_on")

with DAG("graceful", schedule=None, catchup=False, default_args=DEFAULTS):
    Work(task_id="finishes", executor_config=pod_with(grace_period=600))

with DAG("lost_five_times", schedule=None, catchup=False, default_args=DEFAULTS):
    Work(task_id="lost_again", executor_config=light_pod() | {"infrastructure_retry_limit": 4})
