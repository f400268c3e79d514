# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
``python -m benchmarks.seed_database COUNT``: one DAG run with so many mapped task instances.

They are written to the database of Airflow's configuration.
"""

from __future__ import annotations

import sys
from typing import Any

import pendulum
from airflow.models.dagbundle import DagBundleModel
from airflow.models.serialized_dag import SerializedDagModel
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG
from airflow.serialization import serialized_objects
from airflow.serialization.serialized_objects import LazyDeserializedDAG
from airflow.utils.session import create_session
from airflow.utils.types import DagRunTriggeredByType, DagRunType

from benchmarks.candidates import MANY
from benchmarks.pods import DAG_ID, RUN_ID, TASK_ID

_BUNDLE = "dags-folder"


def seed(count: int) -> None:
    """Write the DAG, its run and the task instances."""
    # Airflow 3.2 split serialisation off from the class of serialised DAGs.
    name = "DagSerialization" if hasattr(serialized_objects, "DagSerialization") else "SerializedDAG"
    serialization: Any = getattr(serialized_objects, name)
    start = pendulum.datetime(2026, 1, 1)
    with DAG(DAG_ID, schedule=None, start_date=start, max_active_tasks=MANY) as dag:
        EmptyOperator.partial(task_id=TASK_ID).expand(doc=[str(number) for number in range(count)])
    with create_session(scoped=False) as session:
        session.merge(DagBundleModel(name=_BUNDLE))
        session.commit()
        lazy = LazyDeserializedDAG(data=serialization.to_dict(dag))
        real = lazy._real_dag
        type(real).bulk_write_to_db(_BUNDLE, None, [lazy], session=session)
        SerializedDagModel.write_dag(lazy, bundle_name=_BUNDLE, session=session)
        session.flush()
        now = pendulum.now("UTC")
        real.create_dagrun(
            run_id=RUN_ID,
            run_type=DagRunType.MANUAL,
            logical_date=now,
            data_interval=(now, now),
            run_after=now,
            state="running",
            triggered_by=DagRunTriggeredByType.TEST,
            session=session,
        )


if __name__ == "__main__":
    seed(int(sys.argv[1]))
