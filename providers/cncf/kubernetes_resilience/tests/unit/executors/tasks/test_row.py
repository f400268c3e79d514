# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest
from airflow.models.taskinstancekey import TaskInstanceKey

from airflow.providers.cncf.kubernetes_resilience.executors.tasks.row import (
    Standing,
    TaskInstanceRow,
    standing,
)

KEY = TaskInstanceKey("sales", "load", "manual", 2, -1)
OURS, ANOTHERS = 7, 8


def stands(state, *, queued_by=OURS, try_number=2):
    row = TaskInstanceRow("id", KEY, state, queued_by, None)
    return standing(row, KEY._replace(try_number=try_number), job_id=OURS)


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("queued", Standing.QUEUED),
        ("running", Standing.RUNNING),
        ("restarting", Standing.RUNNING),
        ("scheduled", Standing.HELD_UP),
        ("deferred", Standing.HELD_UP),
        ("up_for_reschedule", Standing.HELD_UP),
        ("awaiting_input", Standing.HELD_UP),
        (None, Standing.OVER),
        ("success", Standing.OVER),
        ("failed", Standing.OVER),
        ("skipped", Standing.OVER),
        ("upstream_failed", Standing.OVER),
        ("removed", Standing.OVER),
        ("up_for_retry", Standing.OVER),
    ],
)
def test_what_each_state_says(state, expected):
    assert stands(state) is expected


def test_without_a_row_the_task_instance_is_gone():
    assert standing(None, KEY, job_id=OURS) is Standing.GONE


@pytest.mark.parametrize("state", ["queued", "running", "success"])
def test_in_another_try_the_task_instance_is_gone(state):
    assert stands(state, try_number=1) is Standing.GONE


@pytest.mark.parametrize(
    ("state", "expected"),
    [("queued", Standing.ELSEWHERE), ("running", Standing.ELSEWHERE), ("success", Standing.OVER)],
)
def test_what_another_scheduler_has_queued_goes_on_there(state, expected):
    assert stands(state, queued_by=ANOTHERS) is expected
