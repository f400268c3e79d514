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

from airflow_resilience import current_termination, execution_context
from airflow_resilience.context import ExecutionContext
from airflow_resilience.termination import own_state

BEGUN = Path(os.environ.get("TEST_BEGUN", "begun"))
FOR_EVER = 600

# The API server of the test answers, however busy the machine is.
own_state.ANSWER_WITHIN = FOR_EVER


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


class AsksWhy(StopsAsIfDone):
    """Is told why it is ended, and asks too."""

    def on_kill(self, execution_context: ExecutionContext | None = None) -> None:
        print("on_kill:", in_words(execution_context), flush=True)  # noqa: T201
        print("asked:", in_words(current_termination()), flush=True)  # noqa: T201
        super().on_kill()


class TimesOut(AsksWhy):
    """Its execution timeout is over as soon as its code has begun."""

    def execute(self, context: Any) -> None:
        signal.raise_signal(signal.SIGALRM)  # by which Airflow's timer ends it


def in_words(context: ExecutionContext | None) -> str:
    """Return the three words."""
    return f"{context.category} / {context.reason} / {context.source}" if context else "unknown"


def say_why(context: Any) -> None:
    """Print why the task has failed."""
    print("callback:", in_words(execution_context(context)), flush=True)  # noqa: T201


with DAG("workers", schedule=None, start_date=pendulum.datetime(2026, 1, 1)):
    BashOperator(task_id="bash", bash_command=f'touch "$TEST_BEGUN"; sleep {FOR_EVER}')
    StopsAfterDeferral(task_id="stops_after_deferral")
    AsksWhy(task_id="asks_why")
    TimesOut(
        task_id="asks_why_with_timeout",
        execution_timeout=timedelta(seconds=FOR_EVER),
        on_failure_callback=say_why,
    )
    BashOperator(
        task_id="tells_why",
        bash_command="""
        {% set failure = macros.airflow_resilience.previous_failure() %}
        echo "macro: {{ failure.reason if failure else 'none' }}"
        """,
    )

    BashOperator(
        task_id="cannot_be_rendered", bash_command="{{ nothing.of_it }}", on_failure_callback=say_why
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

    finishes()
