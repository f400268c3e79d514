# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""When the demo lets its tasks end, and when it stops waiting."""

from __future__ import annotations

from demo.outcome import TaskOutcome
from demo.pace import GIVE_UP, QUIET, STUCK, Pace


def row(task_id: str, state: str, *, working: bool = False, code_runs: int = 1) -> TaskOutcome:
    return TaskOutcome(
        task_id=task_id,
        fault=None,
        state=state,
        finished=state == "success",
        try_number=1,
        nodes=("node-1",),
        lost=False,
        code_runs=code_runs,
        working=working,
        ran_once=state == "success",
        seconds=0.0,
        relaunch_seconds=None,
    )


WORKING = row("a", "running", working=True)
DONE = row("a", "success")
WAITING = row("b", "queued", code_runs=0)
ALSO_WORKING = row("b", "running", working=True)
ALSO_DONE = row("b", "success")


def test_tasks_work_until_the_last_one_has_worked_long_enough() -> None:
    pace, rows = Pace(0.0), [WORKING, ALSO_WORKING]
    pace.observe([WORKING, WAITING], 5.0)
    pace.observe(rows, 20.0)
    assert not pace.may_end(rows, 20.0 + QUIET - 1)
    assert pace.may_end(rows, 20.0 + QUIET)


def test_a_task_that_does_not_begin_is_waited_for_longer_but_not_for_ever() -> None:
    pace, rows = Pace(0.0), [WORKING, WAITING]
    pace.observe(rows, 5.0)
    assert not pace.may_end(rows, 5.0 + STUCK - 1)
    assert pace.may_end(rows, 5.0 + STUCK)


def test_over_when_all_have_ended_even_before_the_release() -> None:
    pace = Pace(0.0)
    pace.observe([DONE, ALSO_DONE], 5.0)
    assert pace.is_over([DONE, ALSO_DONE], 5.0)


def test_not_over_while_tasks_work() -> None:
    pace, rows = Pace(0.0), [DONE, ALSO_WORKING]
    pace.observe(rows, 5.0)
    assert not pace.is_over(rows, 5.0 + GIVE_UP)
    pace.release(100.0)
    assert not pace.is_over(rows, 100.0 + GIVE_UP - 1)


def test_a_task_that_never_began_is_not_waited_for() -> None:
    pace, rows = Pace(0.0), [DONE, WAITING]
    pace.observe(rows, 5.0)
    pace.release(70.0)
    assert pace.is_over(rows, 70.0)


def test_gives_up_when_nothing_ends_any_more() -> None:
    pace, rows = Pace(0.0), [WORKING, ALSO_WORKING]
    pace.release(70.0)
    pace.observe([DONE, ALSO_WORKING], 75.0)
    assert not pace.is_over(rows, 75.0 + GIVE_UP - 1)
    assert pace.is_over(rows, 75.0 + GIVE_UP)
