# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""What the workers of ``test_real_worker.py`` run. Each task touches a file when its code has begun."""

from __future__ import annotations

import os
import signal
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pendulum
from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG, BaseOperator, task

BEGUN = Path(os.environ.get("TEST_BEGUN", "begun"))
FOR_EVER = 600


class StopsAsIfDone(BaseOperator):
    """Its on_kill() makes it return."""

    killed = False

    def execute(self, context: Any) -> None:
        BEGUN.touch()
        while not self.killed:
            time.sleep(0.1)

    def on_kill(self) -> None:
        self.killed = True


class StopsAfterDeferral(StopsAsIfDone):
    """The same, in the method that Airflow calls after a deferral."""

    def execute(self, context: Any) -> None:
        raise AssertionError("it has been deferred already")

    def resumed(self, context: Any) -> None:
        super().execute(context)


with DAG("workers", schedule=None, start_date=pendulum.datetime(2026, 1, 1)):
    BashOperator(task_id="bash", bash_command=f'touch "$TEST_BEGUN"; sleep {FOR_EVER}')
    StopsAsIfDone(task_id="stops_as_if_done")
    StopsAfterDeferral(task_id="stops_after_deferral")
    BashOperator(
        task_id="timeout",
        bash_command=f'touch "$TEST_BEGUN"; sleep {FOR_EVER}',
        execution_timeout=timedelta(seconds=3),
    )

    @task
    def finishes() -> str:
        """Take no notice of SIGTERM but to wait for it: the signal is delivered to this process."""
        airflows_handler = signal.getsignal(signal.SIGTERM)
        terminated = []

        def notice(signum: int, frame: Any) -> None:
            terminated.append(signum)
            airflows_handler(signum, frame)

        signal.signal(signal.SIGTERM, notice)
        BEGUN.touch()
        while not terminated:
            time.sleep(0.1)
        return "done"

    @task
    def fails() -> None:
        """Fail by itself."""
        raise ValueError("its own failure")

    finishes()
    fails()
