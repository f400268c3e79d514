# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The DAG of test_told.py: each of its tasks ends in another way."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any

from airflow.sdk import DAG, Context
from remote_job import RemoteJob

from airflow_resilience import execution_context, previous_failure
from airflow_resilience.context import ExecutionContext
from testbed.code_journal import FOLDER_VARIABLE, recorded
from testbed.told import note
from testbed.work import Work, code_of

UNPROTECTED: dict[str, Any] = {"executor_config": {"infrastructure_retry_enabled": False}}


def say_why(context: Context) -> None:
    """Note why the task has failed, as a callback."""
    where = "worker" if "exception" in context else "DAG processor"
    note(f"callback in the {where}", context["ti"].task_id, execution_context(context))


class SaysWhy(Work):
    """Notes in each run why there was one before it."""

    def execute(self, context: Context) -> None:
        """Work."""
        note("next run", self.task_id, previous_failure(context))
        super().execute(context)


class NotedJob(RemoteJob):
    """Notes what it is told."""

    def execute(self, context: Context) -> int:
        """Run the job."""
        note("next run", self.task_id, previous_failure(context))
        with recorded(code_of(context)):
            return super().execute(context)

    def on_kill(self, execution_context: ExecutionContext | None = None) -> None:
        """Keep the job, or cancel it."""
        note("on_kill", self.task_id, execution_context)
        super().on_kill(execution_context)


with DAG(
    "told",
    schedule=None,
    catchup=False,
    default_args={"on_failure_callback": say_why, "on_retry_callback": say_why},
):
    for task_id in ("evicted", "out_of_memory"):
        Work(task_id=task_id, **UNPROTECTED)
    Work(task_id="fails", retries=1, retry_delay=timedelta(0))
    Work(task_id="times_out", execution_timeout=timedelta(seconds=1))
    Work(task_id="marked")
    SaysWhy(task_id="runs_again")
    SaysWhy(task_id="tried_again", retries=1, retry_delay=timedelta(0), **UNPROTECTED)
    for task_id in ("job_kept", "job_cancelled"):
        NotedJob(task_id=task_id, folder=os.environ[FOLDER_VARIABLE])
