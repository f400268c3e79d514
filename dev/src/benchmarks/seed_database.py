# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
``python -m benchmarks.seed_database COUNT``: one DAG run with so many mapped task instances.

They are written to the database of Airflow's configuration, which is empty.
"""

from __future__ import annotations

import sys

import pendulum
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG
from airflow.utils.db import initdb
from airflow.utils.session import create_session

from benchmarks.candidates import MANY
from benchmarks.pods import DAG_ID, RUN_ID, TASK_ID
from cluster_lab.airflow_rows import store_run


def seed(count: int) -> None:
    """Write the DAG, its run and the task instances."""
    start = pendulum.datetime(2026, 1, 1)
    with DAG(DAG_ID, schedule=None, start_date=start, max_active_tasks=MANY) as dag:
        EmptyOperator.partial(task_id=TASK_ID).expand(doc=[str(number) for number in range(count)])
    with create_session(scoped=False) as session:
        store_run(session, dag, bundle="dags-folder", run_id=RUN_ID)


if __name__ == "__main__":
    initdb()
    seed(int(sys.argv[1]))
