# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The rows of task instances are changed: many at once, and none that is not what it was."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from airflow.models.taskinstance import TaskInstance
from airflow.models.taskreschedule import TaskReschedule
from sqlalchemy import select, text
from uuid6 import uuid7

from airflow.providers.cncf.kubernetes_resilience.executors.tasks.task_instances import (
    TaskInstanceChangedError,
    forbid_retries,
    read_by_key,
    read_rows,
    refresh_queued,
    reschedule,
    run_again,
)

NOW = datetime(2026, 1, 2, tzinfo=UTC)


@pytest.fixture
def running(queued_ti, session):
    """Give a function that makes running task instances, each with a reschedule in its past."""

    def make(count, dag_id="dag"):
        tis = queued_ti(dag_id, mapped=count)
        for ti in tis:
            ti.state, ti.hostname, ti.pid = "running", "some-host", 7
            session.add(TaskReschedule(ti.id, NOW, NOW, NOW))
        session.commit()
        return tis

    return make


def test_rows_come_in_the_order_asked_for_whatever_the_order_of_the_database_is(queued_ti, session):
    tis = queued_ti(mapped=3)
    for asked in (tis, tis[::-1]):
        ti_ids, keys = [str(ti.id) for ti in asked], [ti.key for ti in asked]
        assert list(read_rows(ti_ids, session=session)) == ti_ids
        assert list(read_by_key(keys, session=session)) == keys


def new_ids(tis):
    return {str(ti.id): str(uuid7()) for ti in tis}


def test_each_runs_again_under_its_own_uuid_and_the_others_stay(running, session):
    tis = running(4)
    indexes = {str(ti.id): ti.map_index for ti in tis}
    given, before = new_ids(tis[:3]), datetime.now(UTC)
    run_again(given, session=session)
    session.commit()
    session.expire_all()
    expected = {new: indexes[old] for old, new in given.items()} | {str(tis[3].id): 3}
    rows = session.scalars(select(TaskInstance)).all()
    assert {str(row.id): row.map_index for row in rows} == expected
    again = [row for row in rows if row.map_index < 3]
    assert {(row.state, row.hostname, row.pid) for row in again} == {("queued", "", None)}
    assert all(before <= row.queued_dttm == row.scheduled_dttm for row in again)
    (other,) = [row for row in rows if row.map_index == 3]
    assert (other.state, other.hostname, other.pid) == ("running", "some-host", 7)
    assert set(map(str, session.scalars(select(TaskReschedule.ti_id)))) == set(expected)


@pytest.mark.parametrize("state", ["success", "up_for_retry", "queued"])
def test_none_runs_again_if_one_of_them_does_not_run_any_more(running, session, state):
    tis = running(3)
    tis[1].state = state
    session.commit()
    with pytest.raises(TaskInstanceChangedError, match=str(tis[1].id)):
        run_again(new_ids(tis), session=session)


# ---------------------------------------------------------------------- beside another scheduler

CHANGES = {
    "refresh_queued": ("queued", lambda ids, session: refresh_queued(ids, session=session)),
    "reschedule": ("queued", lambda ids, session: reschedule(ids, session=session)),
    "forbid_retries": ("queued", lambda ids, session: forbid_retries(ids, "queued", session=session)),
    "run_again": (
        "running",
        lambda ids, session: run_again({each: str(uuid7()) for each in ids}, session=session),
    ),
}


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("idle", [0, 300], ids=["few rows", "many rows"])
def test_rows_that_another_scheduler_has_changed_are_not_waited_for(
    running, session, impatient_session, name, idle
):
    state, change = CHANGES[name]
    tis = running(60 + idle)
    for ti in tis[60:]:
        ti.state = "success"
    for ti in tis[:60]:
        ti.state = state
    session.commit()
    if session.get_bind().dialect.name == "mysql":
        session.execute(text("ANALYZE TABLE task_instance, task_reschedule"))
        session.commit()
    ids = [str(ti.id) for ti in tis]
    change(ids[:30], session)
    change(ids[30:60], impatient_session)
    impatient_session.commit()
