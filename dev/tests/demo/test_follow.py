# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""When the demo goes on."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import replace
from itertools import repeat

import pytest

from demo import follow as module
from demo.follow import follow
from demo.outcome import TaskOutcome

QUEUED = TaskOutcome(
    task_id="a",
    fault=None,
    state="queued",
    finished=False,
    try_number=1,
    nodes=("node-1",),
    lost=False,
    code_runs=0,
    working=False,
    ran_once=False,
    seconds=0.0,
    relaunch_seconds=None,
)
WORKING = replace(QUEUED, state="running", code_runs=1, working=True)
DONE = replace(WORKING, state="success", finished=True, working=False, ran_once=True)


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a pause take a second of a clock that nothing else moves."""
    now = [0.0]

    class Clock:
        @staticmethod
        def monotonic() -> float:
            return now[0]

        @staticmethod
        def sleep(_: float) -> None:
            now[0] += 1

    monkeypatch.setattr(module, time.__name__, Clock)


def played(rows: Iterable[TaskOutcome], patience: float | None) -> TaskOutcome:
    states = iter(rows)
    (row,) = follow(lambda: [next(states)], lambda rows: all(row.finished for row in rows), patience)
    return row


def test_goes_on_at_once_when_the_state_is_reached() -> None:
    assert played([DONE], patience=5) == DONE


def test_patience_counts_from_the_last_task_that_began_or_ended() -> None:
    assert played([*[QUEUED] * 5, *[WORKING] * 5, DONE], patience=5) == DONE


def test_no_task_may_be_lost_where_none_is_given_up() -> None:
    with pytest.raises(AssertionError, match="no task has begun or ended"):
        played(repeat(WORKING), patience=None)


def test_tasks_that_neither_begin_nor_end_any_more_are_not_waited_for() -> None:
    assert played([QUEUED, *[WORKING] * 6, DONE], patience=5) == WORKING
