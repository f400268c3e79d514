# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
What listeners may implement, beside the hooks of Airflow.

An implementation is a function of a plugin's listener, as for Airflow's own hooks. It may leave out
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
    A task instance has failed, or is to be retried.

    Called where Airflow calls ``on_task_instance_failed``, with the same arguments and why: in the worker, in
    the scheduler for what an executor reports, in the API server for what a person marks as failed.
    """


@hookspec
def on_task_instance_relaunched(
    task_instance_key: TaskInstanceKey, execution_context: ExecutionContext, decision: Decision, attempt: int
) -> None:
    """
    The executor runs a task instance again without touching its retries. Airflow sees no failure.

    Called in the scheduler, after the decision was committed, and once more if what follows has failed.

    :param task_instance_key: of the try that has lost a worker
    :param execution_context: why it was lost
    :param attempt: which worker of its kind it was, from 1: that many launches of the try have failed, or the
        infrastructure has taken that many workers that were running
    """


@hookspec
def on_outage_opened(dependency: str, execution_context: ExecutionContext) -> None:
    """
    Something that launches need is away, and launches that need it are held.

    Called in each scheduler that learns of the outage, again if the dependency goes away again.

    :param dependency: ``registry/HOST``, ``quota/NAMESPACE``, ``admission/NAMESPACE`` or ``airflow-api``
    :param execution_context: why a launch has failed
    """


@hookspec
def on_outage_closed(dependency: str) -> None:
    """
    Nothing is held for a dependency any more: it is back, or is waited for no longer.

    :param dependency: as for :func:`on_outage_opened`
    """
