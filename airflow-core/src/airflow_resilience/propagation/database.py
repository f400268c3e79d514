# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
The context of a failure as an XCom of its task instance, in the metadata database.

An executor writes it in the transaction that settles the failure. So it is there before Airflow has a
callback run, or a listener called. The worker may write at the same time why it has failed: under a key of
its own, so that neither waits for the other, or takes its place.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from airflow.models.dagrun import DagRun
from airflow.models.taskinstancekey import TaskInstanceKey
from airflow.models.xcom import XComModel
from sqlalchemy import bindparam, delete, insert, select, tuple_
from sqlalchemy.orm import Session

from airflow_resilience.context import ExecutionContext
from airflow_resilience.propagation.stored import SETTLED_XCOM_KEY, XCOM_KEY, XCOM_KEYS, StoredContext

_PLACE = (XComModel.dag_id, XComModel.task_id, XComModel.run_id, XComModel.map_index)


def write_failures(
    failures: Mapping[TaskInstanceKey, tuple[str, ExecutionContext]], *, session: Session
) -> None:
    """
    Store why these tries have failed, in place of what was stored before.

    :param failures: for each try the UUID of its task instance, and why it has failed; the task instances'
        rows are locked, so that none of them is removed meanwhile
    """
    if not failures:
        return
    places = {_place(key) for key in failures}
    _delete(places, session)
    runs = {(key.dag_id, key.run_id) for key in failures}
    rows = session.execute(
        select(DagRun.dag_id, DagRun.run_id, DagRun.id).where(tuple_(DagRun.dag_id, DagRun.run_id).in_(runs))
    )
    run_ids = {(dag_id, run_id): row_id for dag_id, run_id, row_id in rows}
    values = [
        {
            "dag_run_id": run_ids[key.dag_id, key.run_id],
            "dag_id": key.dag_id,
            "task_id": key.task_id,
            "run_id": key.run_id,
            "map_index": key.map_index,
            "key": SETTLED_XCOM_KEY,
            "value": StoredContext(ti_id, key.try_number, context).to_json(),
        }
        for key, (ti_id, context) in failures.items()
        if (key.dag_id, key.run_id) in run_ids
    ]
    if values:
        session.execute(insert(XComModel), values)


def _delete(places: Collection[tuple[Any, ...]], session: Session) -> None:
    """
    Remove what was stored, row by row, and none if there is none.

    MySQL waits for the lock of each row that a DELETE looks at, and may look at all.
    """
    xcom = XComModel.__table__
    place = tuple_(*(xcom.c[column.key] for column in _PLACE)).in_(places)
    stored = (
        session.execute(select(*xcom.primary_key).where(place, xcom.c.key == SETTLED_XCOM_KEY))
        .mappings()
        .all()
    )
    if stored:
        is_it = [column == bindparam(f"its_{column.key}") for column in xcom.primary_key]
        session.execute(
            delete(xcom).where(*is_it),
            [{f"its_{name}": value for name, value in row.items()} for row in stored],
        )


def read_failure(key: TaskInstanceKey, *, session: Session) -> StoredContext | None:
    """Return why a try has failed; None if that is not stored."""
    # An earlier failure leaves one behind, if what follows has never begun.
    found = _read([key], session=session)[_place(key)]
    return next((item.stored for item in found if item.stored.try_number == key.try_number), None)


def read_failures_of_workers(
    keys: Collection[TaskInstanceKey], *, session: Session
) -> dict[TaskInstanceKey, StoredContext]:
    """Return why these tries have failed, of those of which only their worker has said it, with one query."""
    if not keys:
        return {}
    read = _read(keys, session=session)
    found = {
        key: [item for item in read[_place(key)] if item.stored.try_number == key.try_number] for key in keys
    }
    return {key: items[0].stored for key, items in found.items() if items and items[0].xcom_key == XCOM_KEY}


def read_previous_failures(
    keys: Collection[TaskInstanceKey], *, session: Session
) -> dict[TaskInstanceKey, ExecutionContext]:
    """Return why tries before these have failed, the last of each that is known, with one query."""
    retried = [key for key in keys if key.try_number > 1]
    if not retried:
        return {}
    read = _read(retried, session=session)
    found = {
        key: [item.stored for item in read[_place(key)] if item.stored.try_number < key.try_number]
        for key in retried
    }
    return {
        key: max(items, key=lambda stored: stored.try_number).context for key, items in found.items() if items
    }


class _Item(NamedTuple):
    """What is stored under one key."""

    xcom_key: str
    stored: StoredContext


def _read(
    keys: Collection[TaskInstanceKey], *, session: Session
) -> defaultdict[tuple[Any, ...], list[_Item]]:
    """Return what is stored about these task instances. What counts comes first."""
    rows = session.execute(
        select(*_PLACE, XComModel.key, XComModel.value).where(
            tuple_(*_PLACE).in_({_place(key) for key in keys}), XComModel.key.in_(XCOM_KEYS)
        )
    ).all()
    found: defaultdict[tuple[Any, ...], list[_Item]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: XCOM_KEYS.index(row[4])):
        if stored := StoredContext.from_json(row[5]):
            found[tuple(row[:4])].append(_Item(row[4], stored))
    return found


def _place(key: TaskInstanceKey) -> tuple[Any, ...]:
    return key.dag_id, key.task_id, key.run_id, key.map_index
