# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: INP001 - a folder of DAGs
"""The DAGs of the soak run, of which new runs are started all the time."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.sdk import DAG

from soak.settings import FEW, MANY
from testbed.work import Work, WorkAfterWaiting, light_pod

SECONDS = (2, 5, 9, 14, 20, 27, 40)
"""How long the tasks work: from less than a watch takes to come back, to longer than two disturbances."""

NO_LIMIT: dict[str, Any] = {
    "schedule": None,
    "catchup": False,
    "max_active_runs": 1000,
    "max_active_tasks": 1000,
    # None of the tasks fails by itself. If one is failed all the same, it is one retry too few or too many.
    "default_args": {"retries": 1, "retry_delay": timedelta(seconds=1)},
}

with DAG(MANY, **NO_LIMIT):
    for seconds in SECONDS:
        work = Work(task_id=f"work_{seconds}", executor_config=light_pod(seconds))
        work >> Work(task_id=f"after_{seconds}", executor_config=light_pod(SECONDS[0]))

with DAG(FEW, **NO_LIMIT):
    Work(task_id="work")
    WorkAfterWaiting(task_id="wait")
