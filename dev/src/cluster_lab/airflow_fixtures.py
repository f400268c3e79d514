# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
pytest fixtures over a real Airflow metadata database, a server of its own.

Airflow reads its configuration when it is imported, so a ``conftest.py`` calls :func:`configure_airflow`
before any test module imports Airflow. The server starts with the first test that needs it.
"""

from __future__ import annotations

import atexit
import functools
import os
import secrets
import tempfile
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest

from cluster_lab.database import EmbeddedDatabase, make_database

if TYPE_CHECKING:
    from airflow.models.taskinstance import TaskInstance
    from sqlalchemy.orm import Session

QUEUED_AT = datetime(2026, 1, 1, tzinfo=UTC)
"""When the task instances were queued, as far as the database knows."""

_EMPTIED = ("dag_bundle", "dag", "job", "log")
"""Tables that are emptied after a test, with all that refer to one of them. Most DAGs stay, see below."""

_DEFINING = ("dag_bundle", "dag", "dag_version", "dag_code", "serialized_dag")
"""Tables that are left as they are while they hold the DAGs of ``_stored``, unchanged, and no others."""

_DEFINITIONS = """
SELECT dag.dag_id, dag.bundle_name, dag.is_paused, dag_bundle.active, serialized_dag.last_updated
FROM dag JOIN dag_bundle ON dag_bundle.name = dag.bundle_name
LEFT JOIN serialized_dag ON serialized_dag.dag_id = dag.dag_id
ORDER BY dag.dag_id, serialized_dag.last_updated
"""

_stored: dict[str, tuple[tuple[str, int, int], Any]] = {}
"""
DAGs that are in the database, by their ids: what each was made from last, and the scheduler's form of it. To
store one takes longer than all else that the fixture ``queued_ti`` does.
"""
_definitions: list[Any] = []
"""What the database says of them."""

_UNCHECKED = {
    "postgresql": (
        "SET LOCAL session_replication_role = replica",
        "SET LOCAL session_replication_role = origin",
    ),
    "mysql": ("SET foreign_key_checks = 0", "SET foreign_key_checks = 1"),
}
"""How foreign keys are not checked, and are checked again."""


_IMPATIENT = {
    "postgresql": "SET lock_timeout = '1s'",
    "mysql": "SET innodb_lock_wait_timeout = 1",
}
"""How a session does not wait for locks, as far as that can be said."""


@functools.cache
def configure_airflow() -> EmbeddedDatabase:
    """
    Give Airflow a folder and a database of its own, as far as this process is concerned.

    :return: the database's server, which does not run yet
    """
    server = make_database()
    home = tempfile.TemporaryDirectory(prefix="airflow-home-")
    atexit.register(home.cleanup)
    os.environ.update(
        AIRFLOW_HOME=home.name,
        AIRFLOW__DATABASE__SQL_ALCHEMY_CONN=server.url,
        AIRFLOW__CORE__LOAD_EXAMPLES="False",
        AIRFLOW__CORE__FERNET_KEY="",
        AIRFLOW__API_AUTH__JWT_SECRET=secrets.token_urlsafe(64),
        AIRFLOW__KUBERNETES_EXECUTOR__NAMESPACE="default",
        AIRFLOW__LOGGING__LOGGING_LEVEL="INFO",
    )
    return server


@functools.cache
def _migrate() -> None:
    # Once, whatever number of conftests has the fixture; until the end, when Airflow has let go of it.
    server = configure_airflow()
    server.__enter__()
    atexit.register(server.stop)
    from airflow.utils.db import initdb

    initdb()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that use the database, before any are chosen by their marks."""
    for item in items:
        if migrated_database.__name__ in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.database)


@pytest.fixture(scope="session")
def migrated_database() -> None:
    """Start the database, with Airflow's tables."""
    _migrate()


@pytest.fixture
def session(migrated_database: None) -> Iterator[Session]:  # noqa: ARG001 - pytest wants it as an argument
    """Give a session of its own to the test, after which nothing is left but DAGs of this module's."""
    from airflow.utils.session import create_session

    with create_session(scoped=False) as session:
        yield session
        session.rollback()
        empty_tables(session)


@pytest.fixture
def impatient_session(session: Session) -> Iterator[Session]:
    """Give the session of another scheduler, in which to wait for a lock is an error."""
    from airflow.utils.session import create_session
    from sqlalchemy import text

    with create_session(scoped=False) as other:
        other.execute(text(_IMPATIENT[session.get_bind().dialect.name]))
        yield other
        # Nobody else is to get its connection, which stays impatient.
        other.invalidate()


def empty_tables(session: Session) -> None:
    """
    Remove every task instance, job and audit-log row, and all rows that refer to one.

    DAGs go too, if there is one that a test has made or changed itself.
    """
    from sqlalchemy import text

    dialect = session.get_bind().dialect
    unchecked, checked = _UNCHECKED[dialect.name]
    kept = _DEFINING if _read_definitions(session) == _definitions else ()
    if not kept:
        _stored.clear()
        _definitions.clear()
    # TRUNCATE would make new files for each table and index: a tenth of a second where this takes a
    # hundredth. Foreign keys are not checked: what stays refers to nothing that goes.
    quote = dialect.identifier_preparer.quote
    deletions = [f"DELETE FROM {quote(table)}" for table in _emptied() if table not in kept]  # noqa: S608
    statements = [unchecked, *deletions, checked]
    if dialect.name == "postgresql":  # MySQL's driver says nothing of an error behind the first one
        statements = ["; ".join(statements)]
    for statement in statements:
        session.execute(text(statement))


def _read_definitions(session: Session) -> list[Any]:
    from sqlalchemy import text

    return list(session.execute(text(_DEFINITIONS)))


@cache
def _emptied() -> list[str]:
    from airflow.models.base import Base

    tables = Base.metadata.tables
    found = {tables[name] for name in _EMPTIED}
    while (
        referring := {
            table for table in tables.values() if any(key.column.table in found for key in table.foreign_keys)
        }
        - found
    ):
        found |= referring
    return sorted(table.name for table in found)


@pytest.fixture
def scheduler_job_id(session: Session) -> int:
    """Give the id of a scheduler job that is alive."""
    return make_scheduler_job(session)


def make_scheduler_job(session: Session) -> int:
    """Register a scheduler job that is alive, and return its id."""
    from airflow.jobs.job import Job, JobState

    job = Job(job_type="SchedulerJob", state=JobState.RUNNING)  # type: ignore[no-untyped-call]
    session.add(job)
    session.commit()
    return int(job.id)


MakeTaskInstance = Callable[..., "TaskInstance"]


@pytest.fixture
def queued_ti(session: Session, scheduler_job_id: int) -> MakeTaskInstance:
    """Give a function that makes a task instance which that scheduler job has queued, in its first try."""

    def make(dag_id: str = "dag", *, task_id: str = "task", retries: int = 0, mapped: int = 0) -> Any:
        found = _make_task_instances(session, dag_id, task_id, retries, mapped)
        for ti in found:
            ti.state = "queued"
            ti.try_number = 1
            ti.queued_by_job_id = scheduler_job_id
            ti.queued_dttm = QUEUED_AT
        session.commit()
        return found if mapped else found[0]

    return make


def scheduled_task_instances(session: Session, *, count: int) -> list[TaskInstance]:
    """Make mapped task instances that are scheduled in their first try, with no retries."""
    found = _make_task_instances(session, "dag", "task", 0, count)
    for ti in found:
        ti.state, ti.try_number = "scheduled", 1
    session.commit()
    return found


def _make_task_instances(
    session: Session, dag_id: str, task_id: str, retries: int, mapped: int
) -> list[TaskInstance]:
    import pendulum

    from cluster_lab.airflow_rows import create_run

    made_from = (task_id, retries, mapped)
    if dag_id not in _stored or _stored[dag_id][0] != made_from:
        is_unchanged = _read_definitions(session) == _definitions
        _stored[dag_id] = (made_from, _store_dag(session, dag_id, *made_from))
        _definitions[:] = _read_definitions(session) if is_unchanged else []
    _, stored = _stored[dag_id]
    run = create_run(session, stored, run_id=f"manual__{pendulum.now('UTC').isoformat()}")
    session.commit()
    return sorted(run.get_task_instances(session=session), key=lambda ti: ti.map_index)


def _store_dag(session: Session, dag_id: str, task_id: str, retries: int, mapped: int) -> Any:
    import pendulum
    from airflow.providers.standard.operators.empty import EmptyOperator
    from airflow.sdk import DAG

    from cluster_lab.airflow_rows import store_dag

    with DAG(dag_id, schedule=None, start_date=pendulum.datetime(2026, 1, 1)) as dag:
        if mapped:
            EmptyOperator.partial(task_id=task_id, retries=retries).expand(
                doc=[str(i) for i in range(mapped)]
            )
        else:
            EmptyOperator(task_id=task_id, retries=retries)
    return store_dag(session, dag, bundle="tests")
