# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The DAGs of test_mass_drain.py. What happens to their pods is in faults.yaml."""

from __future__ import annotations

from airflow.sdk import DAG

from testbed.work import Work, light_pod

TASKS = 300

for dag_id in ("all_at_once", "in_waves"):
    with DAG(dag_id, schedule=None, catchup=False, max_active_tasks=TASKS):
        Work.partial(task_id="item", executor_config=light_pod()).expand(number=list(range(TASKS)))
