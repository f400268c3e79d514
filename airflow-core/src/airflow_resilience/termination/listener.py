# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Has a task observed, and guarded, when it begins to run: a listener, which Airflow finds by the plugin."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

from airflow.listeners import hookimpl
from airflow.sdk import __version__ as sdk_version

from airflow_resilience.propagation import reading
from airflow_resilience.termination.environment import grace_period, runs_again

if TYPE_CHECKING:
    from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

    from airflow_resilience.propagation.observer import FailureObserver

_FORWARDS_SIGTERM = tuple(map(int, sdk_version.split(".")[:2])) == (1, 3)
"""
With Airflow 3.3. Before, the supervisor dies of SIGTERM, and a task cannot report anything after it. The one
of 3.4 lets the task go on for as long as its pod may.
"""

log = logging.getLogger(__name__)


# First: an exception of another listener would keep this one from being called.
@hookimpl(tryfirst=True)
def on_task_instance_running(task_instance: RuntimeTaskInstance) -> None:
    """Observe the task, and arm the guard if it runs again when infrastructure takes this worker."""
    # An exception would keep the other listeners from being called. The task runs without all this, too.
    try:
        _announce(task_instance)
    except Exception:
        log.exception("Why the task runs again is not said")
    try:
        observer = _observe(task_instance)
    except Exception:
        log.exception("The task is not observed: why it fails will not be known")
        return
    if _FORWARDS_SIGTERM and runs_again(os.environ):
        try:
            _arm(observer)
        except Exception:
            log.exception("The task is not guarded against reporting its own termination")
    # After the guard has wrapped it, so that nothing is known of an end that the guard holds back.
    observer.wrap()
    reading.observe(observer)


def _announce(ti: RuntimeTaskInstance) -> None:
    # Nothing but a worker needs what it imports.
    from airflow_resilience.propagation.next_run import announce  # noqa: PLC0415

    announce(ti)


def _observe(ti: RuntimeTaskInstance) -> FailureObserver:
    observer = reading.new_observer(ti)
    try:
        observer.handle_signals()
    except ValueError:
        log.debug("Signals go to another thread than that of the task")
    return observer


def _arm(observer: FailureObserver) -> None:
    # Older versions lack some of what it imports.
    from airflow_resilience.termination.guard import TerminationGuard  # noqa: PLC0415

    TerminationGuard(
        observer.task, find_terminator=observer.find_terminator, grace_period=grace_period(os.environ)
    ).arm()
