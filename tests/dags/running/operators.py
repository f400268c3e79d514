# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The DAGs of test_running.py whose tasks take a SIGTERM in their own way."""

from __future__ import annotations

import signal
from typing import Any

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG, Context

from testbed.code_journal import FOLDER_VARIABLE, recorded
from testbed.work import Work, code_of, note_failure

DEFAULTS = {"on_failure_callback": note_failure}

LOSSES = ("evicted", "node_shut_down", "force_deleted")
OTHER_LOSSES = ("preempted", "under_pressure", "node_lost", "vanished", "killed")


class BashWork(BashOperator):
    """Works in a program of its own, which ``on_kill`` ends."""

    def execute(self, context: Context) -> Any:
        """Work."""
        with recorded(code_of(context)):
            return super().execute(context)


class StubbornWork(Work):
    """Does not hear the signal that asks it to end."""

    def execute(self, context: Context) -> None:
        """Work."""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        super().execute(context)


UNTIL_RELEASED = f"until [ -e ${FOLDER_VARIABLE}/{{{{ dag.dag_id }}}}/release ]; do sleep 0.2; done"

for suffix, losses in (("", LOSSES), ("_otherwise", OTHER_LOSSES)):
    with DAG(f"bash{suffix}", schedule=None, catchup=False, default_args=DEFAULTS):
        for loss in losses:
            BashWork(task_id=loss, bash_command=UNTIL_RELEASED)
    with DAG(f"stubborn{suffix}", schedule=None, catchup=False, default_args=DEFAULTS):
        for loss in losses:
            StubbornWork(task_id=loss)
