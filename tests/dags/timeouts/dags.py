# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The DAG of test_timeouts.py. What happens to its pods is in faults.yaml."""

from __future__ import annotations

from airflow.sdk import DAG

from testbed.work import Work

with DAG("waits_long", schedule=None, catchup=False):
    # Airflow's own worker: its token is one of the things that may have expired.
    Work(task_id="lost")
