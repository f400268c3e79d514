# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
Hooks that listeners may implement, beside the hooks of Airflow.

An implementation is a function of a plugin's listener, as for Airflow's own hooks, with all or some of the
arguments.

.. seealso:: https://airflow.apache.org/docs/apache-airflow/stable/administration-and-deployment/listeners.html
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pluggy import HookspecMarker

if TYPE_CHECKING:
    from airflow.models.taskinstance import TaskInstance
    from airflow.models.taskinstancekey import TaskInstanceKey
    from airflow.sdk import TaskInstanceState
    from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

    from airflow_resilience.context import ExecutionContext
    from airflow_resilience.decision import Decision

hookspec = HookspecMarker("airflow")


@hookspec
def on_task_instance_failed_with_context(
    previous_state: TaskInstanceState | None,
    task_instance: RuntimeTaskInstance | TaskInstance,
    error: str | BaseException | None,
    execution_context: ExecutionContext,
) -> None:
    """
    Handle a task instance that has failed, or is to be retried.

    Called where Airflow calls ``on_task_instance_failed``, with the same arguments and the context: in the
    worker, in the scheduler for what an executor reports, in the API server for what a person marks as
    failed.
    """


@hookspec
def on_task_instance_relaunched(
    task_instance_key: TaskInstanceKey, execution_context: ExecutionContext, decision: Decision, attempt: int
) -> None:
    """
    Handle a relaunch by the executor, which uses no retry of the task. Airflow sees no failure.

    Called in the scheduler, after the decision was committed, and once more after a failure of the next step.

    :param task_instance_key: of the try that has lost a worker
    :param execution_context: reason of the worker's loss
    :param attempt: number of the lost worker, from 1, among the failed launches or the lost running workers
        of the try
    """


@hookspec
def on_outage_opened(dependency: str, execution_context: ExecutionContext) -> None:
    """
    Handle the start of an outage: launches that need the dependency are held.

    Called in each scheduler that notices the outage, again for each further outage.

    :param dependency: ``registry/HOST``, ``quota/NAMESPACE``, ``admission/NAMESPACE`` or ``airflow-api``
    :param execution_context: reason of a launch's failure
    """


@hookspec
def on_outage_closed(dependency: str) -> None:
    """
    Handle the end of an outage, or of the longest wait: no launch is held for the dependency any more.

    :param dependency: as for :func:`on_outage_opened`
    """
