# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""``airflow kubernetes-resilience generate-dag-yaml``: the pods of a Dag before their launch."""

from __future__ import annotations

import json
import sys
import time
from argparse import Namespace
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from queue import Queue
from typing import Any, cast
from uuid import UUID

import yaml
from airflow.exceptions import (  # type: ignore[attr-defined]  # 3.1 has the second nowhere else
    AirflowConfigException,
    AirflowException,
    DeserializationError,
)
from airflow.executors.executor_loader import ExecutorLoader
from airflow.executors.executor_utils import ExecutorName
from airflow.executors.workloads import ExecuteTask
from airflow.models.dag import DagModel
from airflow.models.dagrun import DagRun
from airflow.models.taskinstance import TaskInstance
from airflow.providers.cncf.kubernetes.executors.kubernetes_executor_types import KubernetesJob
from airflow.providers.cncf.kubernetes.pod_generator import datetime_to_label_safe_datestring
from airflow.utils.cli import get_bagged_dag
from airflow.utils.session import create_session
from airflow.utils.types import DagRunType

from airflow.providers.cncf.kubernetes_resilience.cli.errors import CommandError
from airflow.providers.cncf.kubernetes_resilience.executors import upstream
from airflow.providers.cncf.kubernetes_resilience.executors.creation.pod_builder import PodBuilder
from airflow.providers.cncf.kubernetes_resilience.executors.failures.policies import RetryPolicies
from airflow.providers.cncf.kubernetes_resilience.executors.kubernetes_executor import KubernetesExecutor
from airflow.providers.cncf.kubernetes_resilience.executors.launches.launch import Launch, Waiting
from airflow.providers.cncf.kubernetes_resilience.executors.masking import describe
from airflow.providers.cncf.kubernetes_resilience.executors.settings import read_settings
from airflow_resilience.ledger_entries import LaunchHistory

FOLDER = "airflow_yaml_output"
"""As the official command names it."""

_NO_ID = UUID(int=0)
"""Stands for identifiers that a task instance gets with its run."""

AT_LAUNCH = "set-at-launch"
"""Stands for values that are unknown before the launch, or secret."""


def generate_dag_yaml(args: Namespace) -> int:
    """Write a file for each task of our executors; print the tasks without a file."""
    if args.logical_date is None:
        raise CommandError("--logical-date is needed")
    names, ours = _read_names()
    names = [name for name in names if name.team_name in (None, args.team)]
    loaded = {
        name: cast("KubernetesExecutor", ExecutorLoader.load_executor(name)) for name in names if name in ours
    }
    if not loaded:
        whose = f"team {args.team}" if args.team else "Dags without a team"
        raise CommandError(f"[core] executor names no executor of this provider for {whose}")
    tasks, file = _parse(args.dag_id, args.bundle_name)
    bundle = _find_bundle(args.dag_id, args.bundle_name)
    model = DagModel(dag_id=args.dag_id, bundle_name=bundle, relative_fileloc=file)  # type: ignore[no-untyped-call]
    run = make_run(args.dag_id, args.logical_date)
    manifests = {}
    for task in tasks:
        name = _choose(names, task.executor, args.team)
        if name in loaded:
            manifests[task.task_id] = _preview(loaded[name], make_workload(task, model, run))
        else:
            other = task.executor or (name and (name.alias or name.module_path))
            sys.stdout.write(f"{task.task_id} is left out: it is for {other}\n")
    folder = Path(args.output_path) / FOLDER
    date = datetime_to_label_safe_datestring(args.logical_date)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for task_id, manifest in manifests.items():
            (folder / f"{args.dag_id}_{task_id}_{date}.yml").write_text(yaml.safe_dump(manifest))
    except OSError as error:
        raise CommandError(str(error)) from error
    sys.stdout.write(f"YAML output can be found at {folder}\n")
    return 0


def _read_names() -> tuple[Sequence[ExecutorName], Sequence[ExecutorName]]:
    """
    Return the names of all executors, and of those that are ours.

    :raises CommandError: if none of them is ours
    """
    names = ExecutorLoader.get_executor_names()
    ours = [name for name in names if _is_ours(name)]
    if not ours:
        raise CommandError("[core] executor names no executor of this provider")
    return names, ours


def _texts_of(name: ExecutorName) -> set[str]:
    """Return the names by which a task can choose an executor: alias, class, class with its module."""
    texts = {name.module_path, name.module_path.rpartition(".")[2]}
    return texts | {name.alias} if name.alias else texts


def _is_ours(name: ExecutorName) -> bool:
    try:
        class_, _ = ExecutorLoader.import_executor_cls(name)
    except ImportError:
        return False  # an executor of a provider that is not installed
    return issubclass(class_, KubernetesExecutor)


def _parse(dag_id: str, bundle_names: Sequence[str] | None) -> tuple[Sequence[Any], str | None]:
    """Return the tasks of a Dag as the scheduler knows them, and the Dag's file in its bundle."""
    try:
        dag = get_bagged_dag(list(bundle_names or ()), dag_id)
        return upstream.schedulers_dag(dag).tasks, dag.relative_fileloc
    # No such Dag; no such bundle; a Dag that cannot be stored.
    except (AirflowException, ValueError, DeserializationError) as error:
        raise CommandError(str(error)) from error


def _choose(names: Sequence[ExecutorName], wanted: str | None, team: str | None) -> ExecutorName | None:
    """Return the executor that the scheduler hands a task to; None if there is no such executor."""
    if wanted:
        return next((name for name in names if wanted in _texts_of(name)), None)
    return next((name for name in names if name.team_name == team), names[0])


def _find_bundle(dag_id: str, named: Sequence[str] | None) -> str | None:
    with create_session() as session:
        row = session.get(DagModel, dag_id)
        # A Dag of a named bundle that was never deployed has no row.
        return row.bundle_name if row else next(iter(named or ()), None)


def make_run(dag_id: str, date: datetime) -> DagRun:
    """Make a run as a person triggers it. Nothing is stored."""
    kind = DagRunType.MANUAL
    run_id = DagRun.generate_run_id(run_type=kind, logical_date=date, run_after=date)
    return DagRun(dag_id, run_id=run_id, run_type=kind, logical_date=date, run_after=date)


def make_workload(task: Any, model: DagModel, run: DagRun) -> ExecuteTask:
    """Make what the scheduler hands to an executor for the first try of a task. Nothing is stored."""
    ti = TaskInstance(task, run_id=run.run_id, dag_version_id=_NO_ID)
    ti.id, ti.try_number, ti.dag_run, ti.dag_model = _NO_ID, 1, run, model
    return ExecuteTask.make(ti)


def _preview(executor: KubernetesExecutor, workload: ExecuteTask) -> dict[str, Any]:
    try:
        # A request would be JSON too: a hook may set enums, which YAML does not accept.
        return cast("dict[str, Any]", json.loads(json.dumps(preview(executor, workload))))
    except AirflowConfigException:
        raise
    except Exception as error:
        # A template, an override or a hook may fail in any way.
        why = describe(error)
        if isinstance(error.__cause__, Exception):  # the provider's own errors have only the place
            why = f"{type(error).__name__}: {describe(error.__cause__)}"
        raise CommandError(f"{workload.ti.dag_id}.{workload.ti.task_id} has no pod: {why}") from error


def preview(executor: KubernetesExecutor, workload: ExecuteTask) -> dict[str, Any]:
    """
    Return the manifest of the pod in which a task would be launched first. Nothing is launched.

    Values of a launch are :data:`AT_LAUNCH`: its id, the scheduler's id, and the secret token.

    :param executor: one that has not been started
    :raises AirflowConfigException: if a configured value or the task's ``executor_config`` is wrong
    :raises Exception: for an invalid template of a coordinator, and as :meth:`.PodBuilder.build` does
    """
    settings, ti = read_settings(executor.conf), workload.ti
    launch = Launch(ti.key, str(ti.id), launch_id=AT_LAUNCH, waiting=Waiting(_accept(executor, workload)))
    builder = PodBuilder(
        kube_config=executor.kube_config,
        scheduler_job_id=AT_LAUNCH,
        executor_label=executor.label,
        make_token=lambda _: AT_LAUNCH,
        worker_log_as_termination_message=settings.worker_log_as_termination_message,
        infrastructure=RetryPolicies(settings, time.monotonic).current.infrastructure,
    )
    return builder.build(launch, LaunchHistory()).body


def _accept(executor: KubernetesExecutor, workload: ExecuteTask) -> KubernetesJob:
    """Have the inherited executor turn a workload into the job from which a pod is built."""
    ti, executor.task_queue = workload.ti, Queue()
    executor.scheduler_job_id = AT_LAUNCH
    super(KubernetesExecutor, executor).execute_async(
        key=ti.key, command=[workload], queue=ti.queue, executor_config=ti.executor_config or {}
    )
    if executor.task_queue.empty():
        _, why = executor.event_buffer.pop(ti.key)
        raise AirflowConfigException(f"{ti.dag_id}.{ti.task_id}: {why}")
    job: KubernetesJob = executor.task_queue.get_nowait()
    return job
