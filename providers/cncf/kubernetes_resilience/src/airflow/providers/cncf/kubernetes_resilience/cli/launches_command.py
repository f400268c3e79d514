# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""``airflow kubernetes-resilience launches``: where the tasks are that executors of this kind hold."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from airflow.executors.executor_utils import ExecutorName
from airflow.models.taskinstance import TaskInstance
from airflow.utils.session import create_session
from airflow.utils.state import TaskInstanceState
from sqlalchemy import or_, select
from sqlalchemy.orm import Session

from airflow.providers.cncf.kubernetes_resilience.cli import executors, pods
from airflow.providers.cncf.kubernetes_resilience.cli.launches import HeldTask, locate_launches
from airflow.providers.cncf.kubernetes_resilience.cli.output import print_rows
from airflow.providers.cncf.kubernetes_resilience.executors.tasks import task_instances
from airflow_resilience import ledger
from airflow_resilience.ledger import LaunchHistory

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement  # not there before SQLAlchemy 2

_HELD = (TaskInstanceState.QUEUED, TaskInstanceState.RUNNING, TaskInstanceState.RESTARTING)


def launches(args: Namespace) -> int:
    """List the launches of each task that an executor of this kind holds."""
    names, ours = executors.read_names()
    with create_session() as session:
        tasks = _read_tasks(args, _may_be_held(names, ours), session=session)
    found = [pod for name in ours for pod in pods.list_from_cluster(executors.load(name))] if tasks else []
    # Two executors may have one namespace.
    unique = {pod.ref.uid: pod for pod in found}
    located = locate_launches(tasks, list(unique.values()), now=datetime.now(UTC))
    print_rows([launch.to_dict() for launch in located], [launch.to_row() for launch in located], args.output)
    return 0


def _may_be_held(names: Sequence[ExecutorName], ours: Sequence[ExecutorName]) -> ColumnElement[bool]:
    """
    Return the condition that leaves out the task instances that only other executors can have.

    A task instance has the name that its task has: an alias, a class with its module, or without. One that
    has none is for the first executor of its team, or of all.
    """
    others = {text for name in names for text in executors.texts_of(name)}.difference(
        *map(executors.texts_of, ours)
    )
    executor = TaskInstance.executor
    may_be_named = executor.not_in(others)
    defaults = {name.team_name: name for name in reversed(names)}
    if any(default in ours for default in defaults.values()):
        return or_(executor.is_(None), may_be_named)
    return may_be_named


def _read_tasks(args: Namespace, may_be_held: ColumnElement[bool], *, session: Session) -> list[HeldTask]:
    ti = TaskInstance
    query = select(*task_instances.ROW_COLUMNS, ti.queued_dttm, ti.start_date).where(
        ti.state.in_(_HELD), may_be_held
    )
    for column, wanted in ((ti.dag_id, args.dag), (ti.run_id, args.run), (ti.task_id, args.task)):
        if wanted is not None:
            query = query.where(column == wanted)
    found = session.execute(query).all()
    rows = [task_instances.make_row(row) for row in found]
    restarting = {row.key for row in rows if row.state == TaskInstanceState.RESTARTING}
    former_ids = task_instances.read_former_ids(restarting, session=session)
    queued = {row.key: row.ti_id for row in rows if row.state == TaskInstanceState.QUEUED}
    histories = ledger.read_histories(queued, session=session)
    held = ledger.read_held(queued, session=session)
    return [
        HeldTask(
            row=row,
            queued_at=times.queued_dttm,
            started_at=None if row.key in queued else times.start_date,  # else that of an earlier phase
            former_id=former_ids.get(row.key),
            history=histories.get(row.key) or LaunchHistory(),
            held=held.get(row.key),
        )
        for row, times in zip(rows, found, strict=True)
    ]
