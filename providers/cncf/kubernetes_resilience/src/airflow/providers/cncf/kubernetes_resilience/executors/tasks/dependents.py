# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
UUIDs of task instances, and rows of other tables that refer to them and do not follow a change of them.

Their foreign keys have no ``ON UPDATE CASCADE``. A contract test says that these are all.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

# These modules define the tables.
import airflow.models.renderedtifields
import airflow.models.taskreschedule
import airflow.models.xcom  # noqa: F401
from airflow.models.base import Base
from airflow.models.taskinstance import TaskInstance
from sqlalchemy import Table, bindparam, delete, insert, select, tuple_
from sqlalchemy.orm import Session

Row = dict[str, Any]


class Reference(NamedTuple):
    """A column that refers to a task instance's UUID."""

    table: str
    column: str
    dependents: tuple[str, ...] = ()
    """Tables whose rows refer to this one's by its primary key, and are deleted with them."""


REFERENCES = (
    Reference("task_reschedule", "ti_id"),
    # Of Airflow 3.4 and later.
    Reference("xcom_v2", "task_instance_id"),
    Reference("rtif_v2", "task_instance_id"),
    Reference("legacy_task_data_owner", "task_instance_id", dependents=("xcom_v1", "rtif_v1")),
)
"""The installed Airflow has some of them."""


def typed_ids(ti_ids: Collection[str], column: Any = TaskInstance.id) -> list[Any]:
    """Return UUIDs as a column has them."""
    # The column is a string up to Airflow 3.1 and a UUID from 3.2 on; a value of the other type would either
    # be refused or keep the database from using the primary key.
    try:
        kind = column.type.python_type
    except NotImplementedError:
        kind = str
    return [kind(ti_id) for ti_id in ti_ids]


@contextmanager
def following(new_ids: Mapping[str, str], *, session: Session) -> Iterator[None]:
    """
    Have the rows that refer to task instances refer to them by their new UUIDs after the block.

    The block changes the UUIDs. In it, the rows are not there.

    :param new_ids: by the present UUIDs; the task instances are locked
    """
    taken = [part for reference in REFERENCES for part in _take(reference, new_ids, session)]
    yield
    for table, rows in taken:
        if rows:
            session.execute(insert(table), rows)


def _take(
    reference: Reference, new_ids: Mapping[str, str], session: Session
) -> Iterator[tuple[Table, list[Row]]]:
    """Remove the rows that refer to task instances; yield them as they refer to the new UUIDs."""
    table = Base.metadata.tables.get(reference.table)
    if table is None:
        return
    name, column = reference.column, table.c[reference.column]
    rows = _read(table, column.in_(typed_ids(new_ids, column)), session)
    followed = [{**row, name: type(row[name])(new_ids[str(row[name])])} for row in rows]
    yield table, followed
    for dependent in reference.dependents if rows else ():
        yield _take_dependents(Base.metadata.tables[dependent], table, rows, session)
    _delete(table, rows, session)


def _take_dependents(
    table: Table, owners: Table, rows: list[Row], session: Session
) -> tuple[Table, list[Row]]:
    names = [column.name for column in owners.primary_key]
    keys = [tuple(row[name] for name in names) for row in rows]
    taken = _read(table, tuple_(*(table.c[name] for name in names)).in_(keys), session)
    _delete(table, taken, session)
    return table, taken


def _read(table: Table, condition: Any, session: Session) -> list[Row]:
    query = select(table).where(condition).order_by(*table.primary_key)
    return [dict(row) for row in session.execute(query).mappings()]


def _delete(table: Table, rows: list[Row], session: Session) -> None:
    """
    Delete rows one by one, and none if there is none.

    MySQL waits for the lock of each row that a DELETE looks at, and may look at all.
    """
    if rows:
        primary = list(table.primary_key)
        is_it = [column == bindparam(f"its_{column.name}") for column in primary]
        keys = [{f"its_{column.name}": row[column.name] for column in primary} for row in rows]
        session.execute(delete(table).where(*is_it), keys)
