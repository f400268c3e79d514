# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""What refers to a task instance's UUID, in the installed Airflow's own tables, on an empty SQLite."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from typing import Any

import pytest
from airflow.models import import_all_models
from airflow.models.base import Base
from airflow.models.taskinstance import TaskInstance
from airflow.utils.sqlalchemy import UtcDateTime
from sqlalchemy import Integer, Table, insert, select, text, update
from sqlalchemy.orm import Session

from airflow.providers.cncf.kubernetes_resilience.executors.tasks.dependents import (
    REFERENCES,
    following,
    typed_ids,
)

pytestmark = pytest.mark.airflow_alone

OLD, OTHER, NEW = (f"018f2f3a-0000-7000-8000-00000000000{number}" for number in range(3))

FIRST, SECOND = "first", "second"

import_all_models()  # type: ignore[no-untyped-call]
TABLES = Base.metadata.tables

HERE = [reference for reference in REFERENCES if reference.table in TABLES]


def test_they_are_all_that_do_not_follow_by_themselves() -> None:
    keys = [key for table in TABLES.values() for key in table.foreign_keys if key.onupdate != "CASCADE"]
    found = {
        (key.parent.table.name, key.parent.name) for key in keys if key.target_fullname == "task_instance.id"
    }
    assert found == {reference[:2] for reference in HERE}
    taken = {reference.table for reference in HERE}
    dependents = {key.parent.table.name for key in keys if key.column.table.name in taken}
    assert dependents == {name for reference in HERE for name in reference.dependents}


def test_they_follow_and_those_of_others_stay(session: Session) -> None:
    tables = [TABLES[name] for reference in HERE for name in (reference.table, *reference.dependents)]
    fill(session, TaskInstance.__table__, id=OLD, task_id=FIRST)
    fill(session, TaskInstance.__table__, id=OTHER, task_id=SECOND)
    for reference in HERE:
        for ti_id, task_id in ((OLD, FIRST), (OTHER, SECOND)):
            fill(session, TABLES[reference.table], **{reference.column: ti_id, "task_id": task_id})
            for dependent in reference.dependents:
                fill(session, TABLES[dependent], task_id=task_id)
    session.commit()
    before = {table.name: rows(session, table) for table in tables}
    assert {len(found) for found in before.values()} == {2}
    session.execute(text("PRAGMA foreign_keys = ON"))
    with following({OLD: NEW}, session=session):
        ti = TaskInstance.__table__.c.id
        old, new = typed_ids([OLD, NEW])
        session.execute(update(TaskInstance.__table__).where(ti == old).values(id=new))
    session.commit()
    assert {table.name: rows(session, table) for table in tables} == {
        name: sorted(row.replace(OLD, NEW) for row in found) for name, found in before.items()
    }


def fill(session: Session, table: Any, **given: str) -> None:
    """Insert a row with these values where it has such columns, and some value where one is needed."""
    row = {name: typed_ids([value], table.c[name])[0] for name, value in given.items() if name in table.c}
    for column in table.c.values():
        # SQLite numbers an integer itself that is the whole key.
        is_numbered = [*table.primary_key] == [column] and isinstance(column.type, Integer)
        is_needed = not column.nullable and column.default is None and not is_numbered
        if is_needed and column.name not in row:
            row[column.name] = example(column.type)
    session.execute(insert(table), row)


def example(kind: Any) -> Any:
    """Return a value of a type."""
    if isinstance(kind, UtcDateTime):
        return datetime(2026, 1, 2, tzinfo=UTC)
    # Airflow's type for JSON says nothing of its values.
    return {object: dict, uuid.UUID: uuid.uuid4}.get(kind.python_type, kind.python_type)()


def rows(session: Session, table: Table) -> list[str]:
    """Return the rows of a table, as texts, in order."""
    return sorted(
        str({name: str(value) for name, value in row.items()})
        for row in session.execute(select(table)).mappings()
    )
