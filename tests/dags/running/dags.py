# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The DAGs of test_running.py. What is lost when, the test decides."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.sdk import DAG, BaseSensorOperator, Context

from testbed.code_journal import folder_of_worker, open_code_journal, recorded
from testbed.work import Work, code_of, light_pod, note_failure, work

LOSSES = (
    "evicted",
    "preempted",
    "under_pressure",
    "node_shut_down",
    "node_lost",
    "force_deleted",
    "vanished",
    "killed",
    "out_of_memory",
)
# What Airflow's own workers make of a signal, operators.py and test_each_version.py show.
ARGUMENTS: dict[str, dict[str, Any]] = {"out_of_memory": {"retry_policies": ["more-memory"]}}


class LongPoke(BaseSensorOperator):
    """A sensor that never sees what it waits for, and whose second poke takes long."""

    def poke(self, context: Context) -> bool:
        """Look."""
        name = code_of(context)
        with recorded(name):
            if open_code_journal(folder_of_worker()).read().count((name, "begun")) == 2:
                work(context)
        return False


DEFAULTS = {"on_failure_callback": note_failure}

with DAG("lost", schedule=None, catchup=False, default_args=DEFAULTS):
    for loss in LOSSES:
        Work(task_id=loss, executor_config=light_pod() | ARGUMENTS.get(loss, {}))

with DAG("tainted", schedule=None, catchup=False, default_args=DEFAULTS):
    Work(task_id="work")

with DAG("process_killed", schedule=None, catchup=False, default_args=DEFAULTS):
    Work(task_id="work", retries=1, retry_delay=timedelta(0))

with DAG("resumed", schedule=None, catchup=False, default_args=DEFAULTS):
    LongPoke(task_id="rescheduled", mode="reschedule", poke_interval=1, timeout=5)
