# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Rows of Airflow's metadata database, made in the way that works on Airflow 3.1 to 3.4."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pendulum
from airflow.models.dagbundle import DagBundleModel
from airflow.models.serialized_dag import SerializedDagModel
from airflow.serialization import serialized_objects
from airflow.serialization.serialized_objects import LazyDeserializedDAG
from airflow.utils.types import DagRunTriggeredByType, DagRunType

if TYPE_CHECKING:
    from airflow.models.dagrun import DagRun
    from airflow.sdk import DAG
    from sqlalchemy.orm import Session


def store_run(session: Session, dag: DAG, *, bundle: str, run_id: str) -> DagRun:
    """
    Store a DAG and a run of it that is under way, with its task instances.

    :param session: to be committed by the caller
    :param bundle: the name of the bundle that the DAG is to come from
    """
    return create_run(session, store_dag(session, dag, bundle=bundle), run_id=run_id)


def store_dag(session: Session, dag: DAG, *, bundle: str) -> Any:
    """Store a DAG, and return the scheduler's form of it, of which :func:`create_run` makes runs."""
    # Through the serialised DAG, as the DAG processor does.
    # Airflow 3.2 split serialisation off from the class of serialised DAGs.
    name = "DagSerialization" if hasattr(serialized_objects, "DagSerialization") else "SerializedDAG"
    serialization: Any = getattr(serialized_objects, name)
    session.merge(DagBundleModel(name=bundle))
    session.commit()
    lazy = LazyDeserializedDAG(data=serialization.to_dict(dag))
    real = lazy._real_dag
    type(real).bulk_write_to_db(bundle, None, [lazy], session=session)
    SerializedDagModel.write_dag(lazy, bundle_name=bundle, session=session)
    session.flush()
    return real


def create_run(session: Session, stored: Any, *, run_id: str) -> DagRun:
    """Create a run that is under way, with its task instances, of a DAG that :func:`store_dag` has stored."""
    now = pendulum.now("UTC")
    run: DagRun = stored.create_dagrun(
        run_id=run_id,
        run_type=DagRunType.MANUAL,
        logical_date=now,
        data_interval=(now, now),
        run_after=now,
        state="running",
        triggered_by=DagRunTriggeredByType.TEST,
        session=session,
    )
    return run
