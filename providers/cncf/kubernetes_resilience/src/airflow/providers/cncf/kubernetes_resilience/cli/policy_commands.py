# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""``airflow kubernetes-resilience policy show``: the policies in force, also for one task."""

from __future__ import annotations

from argparse import Namespace

from airflow.configuration import conf
from airflow.models.dag import DagTag
from airflow.models.serialized_dag import SerializedDagModel
from airflow.utils.session import create_session
from sqlalchemy import select
from sqlalchemy.orm import Session

from airflow.providers.cncf.kubernetes_resilience.cli import answers
from airflow.providers.cncf.kubernetes_resilience.cli.errors import CommandError
from airflow_resilience.retry_policy.selection import TaskProfile, read_task_options


def show(args: Namespace) -> int:
    """Show the policies in force."""
    if bool(args.dag) != bool(args.task):
        raise CommandError("--dag and --task are needed together")
    policies, task = answers.read_policies_of(conf, args.policy), None
    if args.dag:
        with create_session() as session:
            task = _read_task(args.dag, args.task, session=session)
    return answers.show(args.output, policies, task)


def _read_task(dag_id: str, task_id: str, *, session: Session) -> TaskProfile:
    """
    Read the profile of a task from the latest version of its Dag.

    A mapped task has one definition, so all of its instances have the same policies.

    :raises CommandError: if the Dag, or its task, does not exist
    """
    row = SerializedDagModel.get(dag_id, session=session)
    if row is None:
        raise CommandError(f"there is no Dag {dag_id} in the metadata database")
    dag = row.dag
    if not dag.has_task(task_id):
        raise CommandError(f"Dag {dag_id} has no task {task_id}; it has {', '.join(sorted(dag.task_ids))}")
    task = dag.get_task(task_id)
    return TaskProfile(
        dag_id=dag_id,
        task_id=task_id,
        queue=task.queue,
        pool=task.pool,
        dag_tags=frozenset(session.scalars(select(DagTag.name).where(DagTag.dag_id == dag_id))),
        options=read_task_options(task.executor_config),
    )
