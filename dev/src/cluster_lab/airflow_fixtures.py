# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
pytest fixtures over a real Airflow metadata database, a PostgreSQL of its own.

Airflow reads its configuration when it is imported, so a ``conftest.py`` imports the fixtures from here
before any test module imports Airflow.
"""

from __future__ import annotations

import atexit
import os
import secrets
import tempfile
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from cluster_lab.postgres import EmbeddedPostgres

if TYPE_CHECKING:
    from airflow.models.taskinstance import TaskInstance
    from sqlalchemy.orm import Session

_server = EmbeddedPostgres()
_server.__enter__()
atexit.register(_server.stop)

_home = tempfile.TemporaryDirectory(prefix="airflow-home-")
atexit.register(_home.cleanup)

os.environ.update(
    AIRFLOW_HOME=_home.name,
    AIRFLOW__DATABASE__SQL_ALCHEMY_CONN=_server.url,
    AIRFLOW__CORE__LOAD_EXAMPLES="False",
    AIRFLOW__CORE__FERNET_KEY="",
    AIRFLOW__API_AUTH__JWT_SECRET=secrets.token_urlsafe(64),
    AIRFLOW__KUBERNETES_EXECUTOR__NAMESPACE="default",
    AIRFLOW__LOGGING__LOGGING_LEVEL="INFO",
)

QUEUED_AT = datetime(2026, 1, 1, tzinfo=UTC)
"""When the task instances were queued, as far as the database knows."""

_EMPTIED = ("dag_bundle", "dag", "job", "log")


@pytest.fixture(scope="session")
def migrated_database() -> None:
    """Create Airflow's tables."""
    from airflow.utils.db import initdb

    initdb()


@pytest.fixture
def session(migrated_database: None) -> Iterator[Session]:  # noqa: ARG001 - pytest wants it as an argument
    """Give a session of its own to the test, on tables that are empty again after it."""
    from airflow.utils.session import create_session

    with create_session(scoped=False) as session:
        yield session
        session.rollback()
        empty_tables(session)


def empty_tables(session: Session) -> None:
    """Remove every Dag, task instance, job and audit-log row."""
    from sqlalchemy import text

    session.execute(text(f"TRUNCATE {', '.join(_EMPTIED)} CASCADE"))


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
    # The way that works on Airflow 3.1 to 3.4: through the serialised DAG, as the DAG processor does.
    import pendulum
    from airflow.models.dagbundle import DagBundleModel
    from airflow.models.serialized_dag import SerializedDagModel
    from airflow.providers.standard.operators.empty import EmptyOperator
    from airflow.sdk import DAG
    from airflow.serialization import serialized_objects
    from airflow.serialization.serialized_objects import LazyDeserializedDAG
    from airflow.utils.types import DagRunTriggeredByType, DagRunType

    # Airflow 3.2 split serialisation off from the class of serialised DAGs.
    name = "DagSerialization" if hasattr(serialized_objects, "DagSerialization") else "SerializedDAG"
    serialization: Any = getattr(serialized_objects, name)
    with DAG(dag_id, schedule=None, start_date=pendulum.datetime(2026, 1, 1)) as dag:
        if mapped:
            EmptyOperator.partial(task_id=task_id, retries=retries).expand(
                doc=[str(i) for i in range(mapped)]
            )
        else:
            EmptyOperator(task_id=task_id, retries=retries)
    session.merge(DagBundleModel(name="tests"))
    session.commit()
    lazy = LazyDeserializedDAG(data=serialization.to_dict(dag))
    real = lazy._real_dag
    type(real).bulk_write_to_db("tests", None, [lazy], session=session)
    SerializedDagModel.write_dag(lazy, bundle_name="tests", session=session)
    session.flush()
    now = pendulum.now("UTC")
    run = real.create_dagrun(
        run_id=f"manual__{now.isoformat()}",
        run_type=DagRunType.MANUAL,
        logical_date=now,
        data_interval=(now, now),
        run_after=now,
        state="running",
        triggered_by=DagRunTriggeredByType.TEST,
        session=session,
    )
    session.commit()
    return sorted(run.get_task_instances(session=session), key=lambda ti: ti.map_index)
