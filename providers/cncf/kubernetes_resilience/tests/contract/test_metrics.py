# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
Airflow sends metrics that it does not know, with their tags.

Needs no database and no cluster: it is run with each supported version.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest

pytestmark = pytest.mark.airflow_alone

SCHEDULER = """
from airflow.executors.base_executor import BaseExecutor
from airflow_resilience.metrics import BUDGET_EXHAUSTED
BaseExecutor()
BUDGET_EXHAUSTED.count(reason="LOST", dag_id="a.b-c")
"""
WORKER = """
from airflow.sdk.execution_time import task_runner
from airflow_resilience.metrics import BUDGET_EXHAUSTED
try:
    task_runner.main()  # nobody says which task it is to run
except BaseException:
    BUDGET_EXHAUSTED.count(in_worker=True, reason="LOST", dag_id="a.b-c")
"""


@pytest.mark.parametrize("code", [SCHEDULER, WORKER], ids=["scheduler", "worker"])
def test_it_is_sent_by_each_kind_of_process(code):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.bind(("127.0.0.1", 0))
        receiver.settimeout(60)
        metrics = {
            "STATSD_ON": "True",
            "STATSD_HOST": "127.0.0.1",
            "STATSD_PORT": str(receiver.getsockname()[1]),
            "STATSD_INFLUXDB_ENABLED": "True",
        }
        env = {**os.environ, **{f"AIRFLOW__METRICS__{name}": value for name, value in metrics.items()}}
        words, channel = [sys.executable, "-c", code], socket.socketpair()
        channel[0].close()
        with channel[1]:
            subprocess.run(words, env=env, check=True, timeout=60, stdin=channel[1])
        expected = b"airflow.task_instance.infrastructure_budget_exhausted,reason=LOST,dag_id=a.b-c:1|c"
        while receiver.recv(2048) != expected:
            pass  # Airflow counts something itself
