# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""A listener as somebody else writes one: it notes what it is told, in each kind of process."""

from __future__ import annotations

from airflow.listeners import hookimpl
from airflow.plugins_manager import AirflowPlugin

from testbed.told import note


class Listener:
    """Notes what it is told."""

    @hookimpl
    def on_task_instance_failed_with_context(self, task_instance, execution_context):
        """Note why a task has failed, and whether its row or the running task tells so."""
        note(type(task_instance).__name__, task_instance.task_id, execution_context)

    @hookimpl
    def on_task_instance_relaunched(self, task_instance_key, execution_context, decision, attempt):
        """Note why a task runs again."""
        note(f"relaunched {attempt}", task_instance_key.task_id, execution_context)


class ToldPlugin(AirflowPlugin):
    """Has the listener."""

    name = "told"
    listeners = [Listener()]  # noqa: RUF012
