# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""What retry policies are selected by: where a task instance runs, and what its author asks for."""

from __future__ import annotations

import logging
from collections.abc import Collection

from airflow.models.dag import DagTag
from airflow.models.taskinstance import TaskInstance
from sqlalchemy import select
from sqlalchemy.orm import Session

from airflow.providers.cncf.kubernetes_resilience.executors.tasks.ids import typed_ids
from airflow_resilience.retry_policy.selection import TaskProfile, wishes

log = logging.getLogger(__name__)


def read_profiles(ti_ids: Collection[str], *, session: Session) -> dict[str, TaskProfile]:
    """
    Read the profiles of task instances, by their UUIDs, with two queries.

    What a task asks for and cannot have is logged and left out: it is no reason to lose the task.
    """
    if not ti_ids:
        return {}
    ti = TaskInstance
    rows = session.execute(
        select(ti.id, ti.dag_id, ti.task_id, ti.queue, ti.pool, ti.executor_config).where(
            ti.id.in_(typed_ids(ti_ids))
        )
    ).all()
    tags = _tags({row.dag_id for row in rows}, session)
    return {
        str(id_): _profile(dag_id, task_id, queue, pool, tags[dag_id], executor_config)
        for id_, dag_id, task_id, queue, pool, executor_config in rows
    }


def _profile(
    dag_id: str, task_id: str, queue: str, pool: str, tags: frozenset[str], executor_config: object
) -> TaskProfile:
    wished = wishes(executor_config)
    for problem in wished.problems:
        log.warning("executor_config of %s.%s is ignored in part: %s", dag_id, task_id, problem)
    return TaskProfile(
        dag_id=dag_id,
        task_id=task_id,
        queue=queue,
        pool=pool,
        dag_tags=tags,
        policies=wished.policies,
        retries=wished.retries,
        infrastructure_retries=wished.infrastructure_retries,
        wants_infrastructure_retries=wished.wants_infrastructure_retries,
    )


def _tags(dag_ids: Collection[str], session: Session) -> dict[str, frozenset[str]]:
    rows = session.execute(select(DagTag.dag_id, DagTag.name).where(DagTag.dag_id.in_(dag_ids))).all()
    return {dag_id: frozenset(row.name for row in rows if row.dag_id == dag_id) for dag_id in dag_ids}
