# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
The context of a failure as an XCom of its task instance, in the metadata database.

An executor writes it in the transaction that settles the failure. So the context is there before Airflow runs
a callback, or calls a listener. The worker may store its own reason at the same time under another key:
neither waits for the other, or replaces the other's value.

Up to Airflow 3.3 an XCom belongs to a task instance, and has its names. From 3.4 on an XCom belongs to a try,
and has the try's UUID; an ended try keeps its XComs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from airflow.models import xcom
from airflow.models.dagrun import DagRun
from airflow.models.taskinstance import TaskInstance
from airflow.models.taskinstancekey import TaskInstanceKey
from airflow.models.xcom import XComModel
from sqlalchemy import Table, bindparam, delete, insert, select, tuple_
from sqlalchemy.orm import Session

from airflow_resilience.context import ExecutionContext
from airflow_resilience.keys import names_of_task_instance
from airflow_resilience.past_tries import WITH_PAST_TRIES
from airflow_resilience.propagation.stored import SETTLED_XCOM_KEY, XCOM_KEY, XCOM_KEYS, StoredContext

_Place = tuple[str, str, str, int]
"""Names of a task instance: of its DAG, task and DAG run, and its map index."""


class _RowsOfTaskInstances:
    """The XComs under our keys of Airflow 3.1 to 3.3."""

    _PLACE = names_of_task_instance(XComModel)

    def replace(self, values: Mapping[TaskInstanceKey, tuple[str, str]], session: Session) -> None:
        """
        Store the contexts of an executor's decisions in place of earlier ones.

        :param values: for each try the UUID of its task instance, and the value
        """
        table = XComModel.__table__
        place = tuple_(*(table.c[column.key] for column in self._PLACE))
        _delete(table, place.in_({key.primary for key in values}), session)
        runs = {(key.dag_id, key.run_id) for key in values}
        ids = session.execute(
            select(DagRun.dag_id, DagRun.run_id, DagRun.id).where(
                tuple_(DagRun.dag_id, DagRun.run_id).in_(runs)
            )
        )
        run_ids = {(dag_id, run_id): row_id for dag_id, run_id, row_id in ids}
        rows = [
            {
                "dag_run_id": run_ids[key.dag_id, key.run_id],
                "dag_id": key.dag_id,
                "task_id": key.task_id,
                "run_id": key.run_id,
                "map_index": key.map_index,
                "key": SETTLED_XCOM_KEY,
                "value": value,
            }
            for key, (_, value) in values.items()
            if (key.dag_id, key.run_id) in run_ids
        ]
        if rows:
            session.execute(insert(XComModel), rows)

    def read(self, places: Collection[_Place], session: Session) -> Iterable[tuple[_Place, str, Any]]:
        """Return the stored values of task instances: names, key and value of each."""
        rows = session.execute(
            select(*self._PLACE, XComModel.key, XComModel.value).where(
                tuple_(*self._PLACE).in_(places), XComModel.key.in_(XCOM_KEYS)
            )
        )
        return [(tuple(row[:4]), row[4], row[5]) for row in rows]


class _RowsOfTries:
    """The XComs of Airflow 3.4 under our keys."""

    def __init__(self) -> None:
        self._model: Any = xcom.XComModelV2

    def replace(self, values: Mapping[TaskInstanceKey, tuple[str, str]], session: Session) -> None:
        table = self._model.__table__
        kind = TaskInstance.id.type.python_type
        new = {kind(ti_id): value for ti_id, value in values.values()}
        _delete(table, table.c.task_instance_id.in_(new), session)
        known = session.scalars(
            select(TaskInstance.id).where(TaskInstance.id.in_(new)), execution_options=WITH_PAST_TRIES
        )
        rows = [{"task_instance_id": ti_id, "key": SETTLED_XCOM_KEY, "value": new[ti_id]} for ti_id in known]
        if rows:
            session.execute(insert(self._model), rows)

    def read(self, places: Collection[_Place], session: Session) -> Iterable[tuple[_Place, str, Any]]:
        place = names_of_task_instance(TaskInstance)
        rows = session.execute(
            select(*place, self._model.key, self._model.value)
            .join(TaskInstance, TaskInstance.id == self._model.task_instance_id)
            .where(tuple_(*place).in_(places), self._model.key.in_(XCOM_KEYS)),
            execution_options=WITH_PAST_TRIES,
        )
        return [(tuple(row[:4]), row[4], row[5]) for row in rows]


def _delete(table: Table, condition: Any, session: Session) -> None:
    """
    Remove stored values, row by row; without stored values, execute no DELETE.

    MySQL waits for the lock of each row that a DELETE looks at, and may look at all.
    """
    stored = session.execute(
        select(*table.primary_key).where(condition, table.c.key == SETTLED_XCOM_KEY)
    ).mappings()
    if values := [{f"its_{name}": value for name, value in row.items()} for row in stored]:
        is_it = [column == bindparam(f"its_{column.key}") for column in table.primary_key]
        session.execute(delete(table).where(*is_it), values)


_ROWS = _RowsOfTries() if hasattr(xcom, "XComModelV2") else _RowsOfTaskInstances()


def write_failures(
    failures: Mapping[TaskInstanceKey, tuple[str, ExecutionContext]], *, session: Session
) -> None:
    """
    Store why tries have failed, in place of earlier contexts.

    :param failures: for each try the UUID of its task instance, and the context; the caller has locked the
        task instances' rows against removal
    """
    values = {
        key: (ti_id, StoredContext(ti_id, key.try_number, context).to_json())
        for key, (ti_id, context) in failures.items()
    }
    if values:
        _ROWS.replace(values, session)


def read_failure(key: TaskInstanceKey, *, session: Session) -> StoredContext | None:
    """Return the stored context of a try's failure; None without one."""
    # The context of an earlier failure remains if the next run has never begun.
    _, found = _read([key], session).get(key, (None, None))
    return found


def read_failures_of_workers(
    keys: Collection[TaskInstanceKey], *, session: Session
) -> dict[TaskInstanceKey, StoredContext]:
    """Return the contexts of tries for which only the worker has stored one, with one query."""
    found = _read(keys, session)
    return {key: found[key][1] for key in keys if key in found and found[key][0] == XCOM_KEY}


def read_previous_failures(
    keys: Collection[TaskInstanceKey], *, session: Session
) -> dict[TaskInstanceKey, ExecutionContext]:
    """Return the stored contexts of the tries right before these, with one query."""
    before = {key: key._replace(try_number=key.try_number - 1) for key in keys if key.try_number > 1}
    found = _read(before, session)
    return {key: found[earlier][1].context for key, earlier in before.items() if earlier in found}


def _read(
    keys: Collection[TaskInstanceKey], session: Session
) -> dict[TaskInstanceKey, tuple[str, StoredContext]]:
    """Return the stored contexts of the tries of these task instances, each with the key that counts."""
    rows = _ROWS.read({key.primary for key in keys}, session) if keys else ()
    found: dict[TaskInstanceKey, tuple[str, StoredContext]] = {}
    for (dag_id, task_id, run_id, map_index), xcom_key, value in sorted(
        rows, key=lambda row: XCOM_KEYS.index(row[1])
    ):
        if stored := StoredContext.from_json(value):
            key = TaskInstanceKey(dag_id, task_id, run_id, stored.try_number, map_index)
            found.setdefault(key, (xcom_key, stored))
    return found
