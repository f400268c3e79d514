# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""What is run, how fast, and what happens to the pods."""

from __future__ import annotations

import json
from pathlib import Path

import yaml

from cluster_lab.faults.plan import Fault

FOLDER_VARIABLE = "SOAK_HOLDINGS"
"""The environment variable that names the folder where executors write how much they hold."""

MANY = "many_light_tasks"
"""The DAG with many tasks, whose workers take little time of this machine."""

FEW = "few_real_tasks"
"""The DAG with Airflow's own worker, and with a task that is deferred."""

RUN_EVERY = 8.0
"""Seconds between two runs of the first DAG."""

REAL_EVERY = 6
"""Each so many runs of it comes one of the other."""

RATE, RELAUNCH_RATE = 0.3, 0.1
"""How many of the first pods of a task, and of their replacements, meet a fault."""

BUDGET = 5
"""Relaunches of one try, and losses of its worker: at these rates, one task in a million needs more."""

INFRASTRUCTURE_DELAY = 2
"""Seconds before a task runs again that was lost at work."""

DEAD_AFTER = 20
"""Seconds without a heartbeat after which a scheduler counts as dead."""

QUEUED_TIMEOUT = 90
"""Seconds in the queue after which Airflow takes a task for stuck."""

NOT_HEALED = (
    # The task's own failures.
    Fault.WORKER_EXIT,
    Fault.OOM_RUNNING,
    # It takes Airflow five minutes to notice that nothing is heard of a worker.
    Fault.NODE_SILENT_RUNNING,
    # The worker works on until it is refused: how often its code comes to its end is a matter of luck.
    Fault.PARTITION,
    Fault.PARTITION_RUNNING,
)

FAULTS = [fault for fault in Fault if fault not in NOT_HEALED]
"""A task meets them before it starts, and (:data:`.FAULTS_AT_WORK`) while it runs."""


def holdings_file(folder: Path, pid: int) -> Path:
    """Return where the executor of a scheduler writes how much it holds."""
    return folder / f"holdings-{pid}.jsonl"


def configuration(home: Path) -> dict[str, str]:
    """Return the Airflow configuration in which the run differs from other testbeds."""
    return {
        FOLDER_VARIABLE: str(home),
        "AIRFLOW__CORE__EXECUTOR": "KubernetesExecutor:soak.measured.MeasuredExecutor",
        "AIRFLOW__KUBERNETES_EXECUTOR__POD_LAUNCH_FAILURE_RETRIES": str(BUDGET),
        "AIRFLOW__KUBERNETES_RESILIENCE__INFRASTRUCTURE_RETRY_BUDGET": str(BUDGET),
        "AIRFLOW__KUBERNETES_RESILIENCE__INFRASTRUCTURE_RETRY_DELAY": str(INFRASTRUCTURE_DELAY),
        # Nobody comes to look at failed pods, and what is left in the end is left by mistake.
        "AIRFLOW__KUBERNETES_EXECUTOR__DELETE_WORKER_PODS_ON_FAILURE": "True",
        "AIRFLOW__SCHEDULER__SCHEDULER_HEALTH_CHECK_THRESHOLD": str(DEAD_AFTER),
        "AIRFLOW__SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL": "5",
        "AIRFLOW__SCHEDULER__TASK_QUEUED_TIMEOUT": str(QUEUED_TIMEOUT),
        "AIRFLOW__SCHEDULER__TASK_QUEUED_TIMEOUT_CHECK_INTERVAL": "5",
        # Airflow's scheduler makes another statement for each number of events that it handles at once, and
        # SQLAlchemy keeps 500 of them, some 200 kB each: that would be most of what memory grows by for half
        # an hour. With fewer the cache is full before the first quarter is over.
        "AIRFLOW__DATABASE__SQL_ALCHEMY_ENGINE_ARGS": json.dumps({"query_cache_size": 150}),
    }


def write_fault_plan(path: Path, seed: int) -> None:
    """Write the plan of what happens to the pods."""
    random = {
        "seed": seed,
        "rate": RATE,
        "relaunch_rate": RELAUNCH_RATE,
        "faults": [fault.value for fault in FAULTS],
    }
    path.write_text(yaml.safe_dump({"random": random}))
