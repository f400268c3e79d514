# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The DAGs of test_metrics.py: each task of the first fails in another way, or is lost and does not fail."""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG

from testbed.work import Work


class Breaks(Work):
    """Fails when it is told to go, so that its worker knows of a failure, too."""

    def on_kill(self) -> None:
        """Break the work off."""
        raise RuntimeError("the task is told to go")


with DAG("metrics", schedule=None, catchup=False):
    Work(task_id="fails", retries=1, retry_delay=timedelta(0))
    Work(task_id="times_out", execution_timeout=timedelta(seconds=1))
    Work(task_id="lost_once")
    Work(task_id="lost_twice")
    Work(task_id="never_starts")
    Breaks(task_id="marked")

with DAG("metrics_afterwards", schedule=None, catchup=False):
    Work(task_id="fails")
