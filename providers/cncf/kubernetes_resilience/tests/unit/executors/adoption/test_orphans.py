# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Which of the task instances that Airflow offers are orphans."""

from __future__ import annotations

from sqlalchemy.exc import DataError

from airflow.providers.cncf.kubernetes_resilience.executors.tasks import task_instances

from ....support import manifests as m


def test_a_task_that_no_scheduler_has_queued_is_reset(harness, queued_ti, successor):
    ti = queued_ti()
    harness.set_state(ti, "running", queued_by_job_id=None)
    heir = successor()

    assert list(heir.executor.try_adopt_task_instances([ti])) == [ti]


def test_a_task_of_its_own_is_left_as_it_is(harness, queued_ti):
    ti = queued_ti()
    harness.launch(ti)
    assert harness.adopt(ti) == []
    assert harness.runtime.calls == 0
    assert harness.occupied(ti)


def test_a_task_that_was_cleared_while_it_ran_waits_for_its_worker(harness, launched, successor):
    ti, pod = launched
    harness.begin(ti, pod)
    harness.begin_anew(ti, "restarting")
    heir = successor()

    assert heir.adopt(ti) == []
    assert heir.occupied(ti)
    heir.observe(pod, m.alive())
    assert heir.events() == {}
    heir.observe(pod, m.succeeded())
    assert [state for state, _ in heir.events().values()] == ["success"]
    assert not heir.occupied(ti)


def test_a_task_that_was_cleared_while_it_ran_and_has_no_pod_is_reset(harness, launched, successor, cluster):
    ti, pod = launched
    harness.begin(ti, pod)
    harness.begin_anew(ti, "restarting")
    cluster.remove(pod)
    assert successor().adopt(ti) == [ti]


def test_a_pod_of_another_try_is_not_waited_for(harness, launched, successor):
    ti, pod = launched
    harness.begin(ti, pod)
    harness.begin_anew(ti, "restarting")
    pod.annotations["airflow-resilience/task-instance-id"] = "01954f1e-4c5b-7d2a-8f57-5a4f1c6b0001"
    assert successor().adopt(ti) == [ti]


def test_a_row_that_the_database_refuses_does_not_end_the_scheduler_in_adoption(
    harness, queued_ti, successor, monkeypatch
):
    """Airflow repeats the offer for an OperationalError only; any other ends the scheduler, and the next."""
    odd, good = queued_ti(mapped=2)
    pod = harness.launch(good)
    real = task_instances.read_rows
    odd_id = str(odd.id)

    def broken(ti_ids, *, session):
        if odd_id in ti_ids:
            raise DataError("select", {}, ValueError("invalid byte sequence"))
        return real(ti_ids, session=session)

    heir = successor()
    monkeypatch.setattr(task_instances, "read_rows", broken)
    heir.adopt(odd, good)
    heir.observe(pod, m.start_error())
    assert heir.row(good).state == "scheduled"
