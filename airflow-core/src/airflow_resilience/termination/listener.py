# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Has Airflow call the guard when a task begins to run: a listener, which Airflow finds by the plugin."""

from __future__ import annotations

import functools
import logging
import os
from typing import TYPE_CHECKING

from airflow.listeners import hookimpl
from airflow.sdk import __version__ as sdk_version

from airflow_resilience.termination.environment import grace_period, runs_again

if TYPE_CHECKING:
    from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

_FORWARDS_SIGTERM = tuple(map(int, sdk_version.split(".")[:2])) >= (1, 3)
"""From Airflow 3.3 on. Before, the supervisor dies of SIGTERM, and a task cannot report anything after it."""

log = logging.getLogger(__name__)


@hookimpl
def on_task_instance_running(task_instance: RuntimeTaskInstance) -> None:
    """Arm the guard if this worker's task runs again when infrastructure takes the worker."""
    if not _FORWARDS_SIGTERM or not runs_again(os.environ):
        return
    try:
        _arm(task_instance)
    except Exception:
        # An exception would keep the other listeners from being called. Without the guard the task runs too.
        log.exception("The task is not guarded against reporting its own termination")


def _arm(ti: RuntimeTaskInstance) -> None:
    # Older versions lack some of what it imports, and nothing but a worker needs it.
    from airflow_resilience.termination.guard import TerminationGuard  # noqa: PLC0415
    from airflow_resilience.termination.own_state import find_terminator  # noqa: PLC0415

    TerminationGuard(
        ti.task,
        find_terminator=functools.partial(find_terminator, ti),
        grace_period=grace_period(os.environ),
    ).arm()
