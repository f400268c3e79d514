# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The DAGs of test_running.py whose tasks take a SIGTERM in their own way."""

from __future__ import annotations

import signal

from airflow.sdk import DAG, Context

from testbed.operators import BashWork
from testbed.work import Work, note_failure

DEFAULTS = {"on_failure_callback": note_failure}

LOSSES = ("evicted", "node_shut_down", "force_deleted")
OTHER_LOSSES = ("preempted", "under_pressure", "node_lost", "vanished", "killed")


class StubbornWork(Work):
    """Does not hear the signal that asks it to end."""

    def execute(self, context: Context) -> None:
        """Work."""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        super().execute(context)


for suffix, losses in (("", LOSSES), ("_otherwise", OTHER_LOSSES)):
    with DAG(f"bash{suffix}", schedule=None, catchup=False, default_args=DEFAULTS):
        for loss in losses:
            BashWork(task_id=loss)
    with DAG(f"stubborn{suffix}", schedule=None, catchup=False, default_args=DEFAULTS):
        for loss in losses:
            StubbornWork(task_id=loss)
