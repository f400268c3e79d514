# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
What runs with the configuration of a candidate.

``python -m benchmarks.airflow_side seed COUNT`` writes one DAG run with so many mapped task instances to an
empty database. ``drive JOB_ID`` runs an executor in a process with nothing of a scheduler but its loop, and
does what lines of JSON on standard input say.
"""

from __future__ import annotations

import ctypes
import gc
import json
import select
import sys
import time
from collections.abc import Mapping
from io import FileIO
from typing import Any

import pendulum
import sqlalchemy
from airflow.executors.executor_loader import ExecutorLoader
from airflow.executors.workloads import ExecuteTask
from airflow.jobs.scheduler_job_runner import SchedulerJobRunner  # noqa: F401 - its memory is a scheduler's
from airflow.models import DagModel, Pool
from airflow.models.taskinstance import TaskInstance
from airflow.models.taskinstancekey import TaskInstanceKey
from airflow.providers.cncf.kubernetes.executors.kubernetes_executor import _PodLaunchAttempt
from airflow.providers.cncf.kubernetes.executors.kubernetes_executor_types import KubernetesJob
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG
from airflow.utils.db import initdb
from airflow.utils.session import create_session
from airflow.utils.state import State

from airflow.providers.cncf.kubernetes_resilience.executors import upstream
from airflow.providers.cncf.kubernetes_resilience.executors.launches.launch import Launch
from airflow.providers.cncf.kubernetes_resilience.executors.launches.workload import StoredWorkload
from airflow.providers.cncf.kubernetes_resilience.pods.facts import PodFacts, PodRef
from benchmarks.pods import DAG_ID, MANY, NAMESPACE, RUN_ID, TASK_ID, pod_name
from cluster_lab.airflow_rows import store_run


def seed(count: int) -> None:
    """Write the DAG, which is paused, its run and the task instances."""
    initdb()
    with DAG(DAG_ID, start_date=pendulum.datetime(2026, 1, 1), max_active_tasks=MANY) as dag:
        EmptyOperator.partial(task_id=TASK_ID).expand(doc=[str(number) for number in range(count)])
    with create_session(scoped=False) as session:
        store_run(session, dag, bundle="dags-folder", run_id=RUN_ID)
        session.execute(sqlalchemy.update(Pool).values(slots=MANY))
        session.execute(sqlalchemy.update(DagModel).values(is_paused=True))


def drive(job_id: int) -> None:
    """Turn the loop of an executor that belongs to a scheduler, except while it is told something."""
    # With the default executor's alias it is the observed one of this candidate.
    executor: Any = ExecutorLoader.get_default_executor()
    executor.job_id = job_id
    # Airflow reads its list of metrics with the first one, which takes as long as thousands of events.
    executor._emit_metrics(0, 0, 0)
    # Not buffered: what was read ahead would not be seen by select().
    commands = FileIO(0)
    pause: float | None = None
    while True:
        if select.select([commands], [], [], pause)[0]:
            command, *arguments = json.loads(commands.readline())
            match command:
                case "hold":
                    _hold(executor, *arguments)
                case "start":
                    executor.note("started", time.process_time())
                    executor.start()
                    (pause,) = arguments
                case "turn":
                    (pause,) = arguments
                case "trim":
                    gc.collect()
                    # https://man7.org/linux/man-pages/man3/malloc_trim.3.html
                    ctypes.CDLL(None).malloc_trim(0)
            executor.note("done")
        if pause is not None:
            executor.heartbeat()
            events = executor.get_event_buffer().items()
            if results := {key: state for key, (state, _) in events if state in State.finished}:
                executor.note("results", len(results))
                _settle(results)


def _settle(results: Mapping[TaskInstanceKey, str]) -> None:
    """Write the states, as the scheduler does: ours reports again what the database does not say."""
    with create_session(scoped=False) as session:
        for state in set(results.values()):
            indices = [key.map_index for key, found in results.items() if found == state]
            chosen = sqlalchemy.update(TaskInstance).where(TaskInstance.map_index.in_(indices))
            session.execute(chosen.values(state=state))


def _hold(executor: Any, first: int, uids: list[str]) -> None:
    """
    Make pods that exist the current launches of task instances, as if the executor had made them.

    :param first: the map index of the first
    :param uids: of the pods, in the order of the map indices
    """
    chosen = sqlalchemy.select(TaskInstance).order_by(TaskInstance.map_index).offset(first).limit(len(uids))
    with create_session(scoped=False) as session:
        # A few at a time: all at once leave so many holes in the memory that nothing else can be seen in it.
        found = session.scalars(chosen.execution_options(yield_per=50))
        for ti, uid in zip(found, uids, strict=True):
            workload: Any = ExecuteTask.make(ti, generator=executor.jwt_generator)
            job = KubernetesJob(workload.ti.key, [workload], None, None, None)
            if hasattr(executor, "_registry"):
                _hold_in_ours(executor, job, PodRef(NAMESPACE, pod_name(ti.map_index), uid))
            else:
                executor.pod_launch_attempts[job.key] = _PodLaunchAttempt(job=job)
            executor.running.add(job.key)
            session.expunge(ti)


def _hold_in_ours(executor: Any, job: Any, ref: PodRef) -> None:
    (workload,) = job.command
    # That is how it comes in, and what is stored of it depends on that.
    executor.queue_workload(workload, None)
    upstream.queued_tasks(executor).pop(job.key)
    launch = Launch(
        key=job.key,
        ti_id=str(workload.ti.id),
        namespace=ref.namespace,
        name=ref.name,
        number=1,
        workload=StoredWorkload.of(job),
        ref=ref,
        # One that has not started would be looked for in the database.
        facts=PodFacts(PodRef("", "", ""), {}, {}, phase="Running"),
    )
    executor._registry.make_current(launch)


if __name__ == "__main__":
    {"seed": seed, "drive": drive}[sys.argv[1]](int(sys.argv[2]))
