# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest
from airflow.models.log import Log
from airflow.models.taskinstance import TaskInstance
from airflow.models.taskinstancekey import TaskInstanceKey

from airflow_resilience.keys import is_task_instance, is_try

KEY = TaskInstanceKey("dag", "task", "run", 2, 3)
OF_TASK_INSTANCE = {"dag_id": "dag", "task_id": "task", "run_id": "run", "map_index": 3}


@pytest.mark.parametrize("model", [Log, TaskInstance])
def test_every_name_of_a_key_is_compared(model):
    for conditions, names in (
        (is_try(model, KEY), OF_TASK_INSTANCE | {"try_number": 2}),
        (is_task_instance(model, KEY), OF_TASK_INSTANCE),
    ):
        assert {condition.left.key: condition.right.value for condition in conditions} == names
