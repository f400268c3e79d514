# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The DAG of test_executors.py: tasks of two executors that wait for each other, in turn and at once."""

from __future__ import annotations

from airflow.sdk import DAG

from testbed.work import make_pairs

with DAG("local", schedule=None, catchup=False):
    make_pairs("LocalExecutor")
