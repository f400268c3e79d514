# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Thousands of tasks have a few names: each of their texts is in memory once."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from airflow.executors.workloads import ExecuteTask


@pytest.fixture
def tis(queued_ti) -> list[Any]:
    """Give two task instances of one Dag."""
    return queued_ti("sales", mapped=2)


def copies(keys: Iterable[Any]) -> int:
    """Return how many texts there are of the name of the Dag."""
    names = [key.dag_id for key in keys]
    assert set(names) == {"sales"}
    return len({id(name) for name in names})


def test_of_tasks_that_are_handed_over(harness, tis) -> None:
    for ti in tis:
        workload = ExecuteTask.make(ti, generator=harness.executor.jwt_generator)
        workload.ti.dag_id = "".join(workload.ti.dag_id)  # each row that is read has texts of its own
        harness.executor.queue_workload(workload, session=harness.session)
    harness.executor.heartbeat()
    assert len(harness.executor.running) == len(tis)
    assert copies(harness.executor.running) == 1


def test_of_tasks_that_are_adopted(harness, tis, successor) -> None:
    for ti in tis:
        harness.launch(ti)
    heir = successor()
    heir.adopt(*tis)
    assert len(heir.executor.running) == len(tis)
    assert copies([*harness.executor.running, *heir.executor.running]) == 1
