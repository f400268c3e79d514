# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The DAGs of test_told.py: each of their tasks ends in another way."""

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

AT_ONCE: dict[str, Any] = {"retries": 1, "retry_delay": timedelta(0)}


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


class Stops(SaysWhy):
    """Notes why it is to stop."""

    def on_kill(self, execution_context: ExecutionContext | None = None) -> None:
        """Note it."""
        note("on_kill", self.task_id, execution_context)


class Breaks(Stops):
    """Fails when it is told to go, so that its worker knows of a failure that others have caused."""

    def on_kill(self, execution_context: ExecutionContext | None = None) -> None:
        """Break the work off."""
        super().on_kill(execution_context)
        raise RuntimeError("the task is told to go")


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


callbacks: dict[str, Any] = {"on_failure_callback": say_why, "on_retry_callback": say_why}

with DAG("told", schedule=None, catchup=False, default_args=callbacks):
    for task_id in ("exhausted", "out_of_memory", "relaunched", "never_starts"):
        SaysWhy(task_id=task_id)
    SaysWhy(task_id="tried_again", executor_config={"infrastructure_retry_enabled": False}, **AT_ONCE)
    SaysWhy(task_id="fails", **AT_ONCE)
    Stops(task_id="times_out", execution_timeout=timedelta(seconds=1))
    Breaks(task_id="marked")
    NotedJob(task_id="job_kept", folder=os.environ[FOLDER_VARIABLE])

# To clear a task has Airflow begin a new trace of its DAG run.
with DAG("told_cleared", schedule=None, catchup=False, default_args=callbacks):
    NotedJob(task_id="job_cancelled", folder=os.environ[FOLDER_VARIABLE])

with DAG(
    "told_in_time", schedule=None, catchup=False, default_args=callbacks, dagrun_timeout=timedelta(hours=1)
):
    Breaks(task_id="run_times_out")
