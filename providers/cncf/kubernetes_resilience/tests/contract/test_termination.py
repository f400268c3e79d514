# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
Airflow's workers are as the guard against reporting their own termination needs them.

Needs no database and no cluster: it is run with each supported version.
"""

from __future__ import annotations

import inspect

import pytest
from airflow.listeners.listener import get_listener_manager
from airflow.sdk.execution_time import task_runner
from airflow.sdk.execution_time.supervisor import ActivitySubprocess

from airflow_resilience.propagation import listener

pytestmark = pytest.mark.airflow_alone


def test_airflow_finds_the_listener():
    assert get_listener_manager().pm.is_registered(listener)


def test_the_task_runner_finds_the_listener():
    assert task_runner.get_listener_manager().pm.is_registered(listener)


def test_a_worker_forwards_sigterm_where_it_is_expected_to():
    forwards = "SIGTERM" in inspect.getsource(ActivitySubprocess.wait)
    assert forwards is listener._FORWARDS_SIGTERM


def test_a_task_can_ask_for_its_own_state():
    parameters = inspect.signature(task_runner.RuntimeTaskInstance.get_task_states).parameters
    assert {"dag_id", "map_index", "task_ids", "run_ids"} <= set(parameters)
