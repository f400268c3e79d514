# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The DAGs of test_running.py whose pods are like all others. What is lost when, the test decides."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.sdk import DAG, BaseSensorOperator, Context

from testbed.code_journal import folder_of_worker, read_steps, recorded
from testbed.operators import WorkWhenResumed
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
# Their workers are not told to go, or have no time to do anything about it: they need not be Airflow's.
LIGHT: dict[str, Any] = {"executor_config": light_pod()}
ARGUMENTS: dict[str, dict[str, Any]] = {
    "under_pressure": LIGHT,
    "node_lost": LIGHT,
    "vanished": LIGHT,
    "killed": LIGHT,
    "out_of_memory": {"executor_config": light_pod() | {"retry_policies": ["more-memory"]}},
}
ONE_RETRY: dict[str, Any] = {"retries": 1, "retry_delay": timedelta(0)}


class LongPoke(BaseSensorOperator):
    """A sensor that never sees what it waits for, and whose second poke takes long."""

    def poke(self, context: Context) -> bool:
        """Look."""
        name = code_of(context)
        with recorded(name, "poke"):
            if read_steps(folder_of_worker(), name).count("begun") == 2:
                work(context)
        return False


DEFAULTS = {"on_failure_callback": note_failure}

with DAG("lost", schedule=None, catchup=False, default_args=DEFAULTS):
    for loss in LOSSES:
        Work(task_id=loss, **ARGUMENTS.get(loss, {}))

# Each on a node of its own.
for dag_id in ("drained", "tainted"):
    with DAG(dag_id, schedule=None, catchup=False, default_args=DEFAULTS):
        Work(task_id="work")

with DAG("unprotected", schedule=None, catchup=False, default_args=DEFAULTS):
    Work(task_id="work", executor_config={"infrastructure_retry_enabled": False})

for dag_id in ("failed_before", "process_killed"):
    with DAG(dag_id, schedule=None, catchup=False, default_args=DEFAULTS):
        Work(task_id="work", **ONE_RETRY)

with DAG("resumed", schedule=None, catchup=False, default_args=DEFAULTS):
    WorkWhenResumed(task_id="deferred")
    LongPoke(task_id="rescheduled", mode="reschedule", poke_interval=1, timeout=5)
