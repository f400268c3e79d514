# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Airflow gives up on tasks that are queued for too long; a relaunch that waits is not one of them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import jwt
import pytest

from airflow.providers.cncf.kubernetes_resilience.executors import upstream
from airflow.providers.cncf.kubernetes_resilience.executors.failures.situation import SIDECAR_GRACE
from airflow.providers.cncf.kubernetes_resilience.executors.failures.superseded_pods import (
    UNFOLLOWED_INTERVAL,
)
from airflow.providers.cncf.kubernetes_resilience.executors.tasks import task_instances
from airflow.providers.cncf.kubernetes_resilience.executors.tasks.queued_timeout import PROMPT
from airflow.providers.cncf.kubernetes_resilience.pods.api.errors import (
    ConnectionFailedError,
    KubernetesApiError,
)
from airflow.providers.cncf.kubernetes_resilience.pods.messages import PodNotCreated, PodNotDeleted
from airflow_resilience.backoff import Backoff
from airflow_resilience.retry_policy import engine
from cluster_lab.airflow_fixtures import make_scheduler_job

from ....support import manifests as m
from ....support.cluster import Pod
from ....support.harness import OTHER_JOB, database_away, lock
from ..failures.test_executions import BUDGET, lose, present

LONG_AGO = datetime(2026, 1, 1, tzinfo=UTC)
CONFIG = {
    "SCHEDULER__TASK_QUEUED_TIMEOUT": "90",
    "KUBERNETES_EXECUTOR__WORKER_POD_PENDING_FATAL_CONTAINER_STATE_REASONS": "RunContainerError",
}
INTERVAL = 30


def age(harness, ti, **values) -> None:
    """Let a task instance have been queued long ago."""
    harness.set_state(ti, values.pop("state", "queued"), queued_dttm=LONG_AGO, **values)


def is_fresh(harness, ti) -> bool:
    """Whether the task instance counts as queued just now."""
    return harness.row(ti).queued_dttm > LONG_AGO


@pytest.fixture
def waiting(start, queued_ti):
    """Give an executor, a task instance whose relaunch waits until its pod is gone, and the pod."""
    harness = start(**CONFIG)
    ti = queued_ti()
    pod = harness.launch(ti)
    harness.observe(pod, m.not_startable())
    age(harness, ti)
    return harness, ti, pod


def test_while_a_relaunch_waits_for_the_old_pod(waiting):
    harness, ti, _ = waiting
    harness.wait(INTERVAL - 1)
    assert not is_fresh(harness, ti)
    harness.wait(1)
    assert is_fresh(harness, ti)
    age(harness, ti)
    harness.wait(INTERVAL - 1)
    assert not is_fresh(harness, ti)
    harness.wait(1)
    assert is_fresh(harness, ti)


def test_while_the_pod_goes_that_airflow_has_taken_back(start, queued_ti):
    """Its containers may take longer for their end than a task instance may be queued."""
    harness = start(**CONFIG)
    ti = queued_ti()
    pod = harness.launch(ti)
    harness.observe(pod, m.pod(containers=[m.base(m.PREPARING)], init=[m.status_of("vault", m.running())]))
    harness.executor.revoke_task(ti=ti)
    harness.accepted(pod.ref, grace_seconds=600)
    harness.hand_over(ti)
    age(harness, ti)
    harness.wait(INTERVAL)
    assert harness.runtime.take("create") == []
    assert is_fresh(harness, ti)


def test_while_a_relaunch_waits_for_its_backoff(start, queued_ti, monkeypatch):
    monkeypatch.setattr(engine, "IMMEDIATE_RELAUNCHES", 0)
    monkeypatch.setattr(engine, "MINIMUM_BACKOFF", Backoff(initial=1000.0, maximum=1000.0, jitter=0.0))
    harness = start(**CONFIG)
    ti = queued_ti()
    harness.observe(harness.launch(ti), m.evicted())
    age(harness, ti)
    harness.wait(INTERVAL)
    assert harness.runtime.take("create") == []
    assert is_fresh(harness, ti)


def test_while_an_adopted_one_waits_to_be_handed_back(waiting, successor):
    _, ti, _ = waiting
    heir = successor(**CONFIG)
    heir.take_over(ti)
    age(heir, ti)
    heir.wait(INTERVAL)
    assert heir.row(ti).state == "queued"
    assert is_fresh(heir, ti)


def test_when_the_replacement_is_asked_for(waiting):
    harness, ti, pod = waiting
    harness.deleted(pod.ref)
    harness.create_call()
    assert is_fresh(harness, ti)


def test_a_pod_that_was_asked_for_has_the_time_that_airflow_gives_it(waiting):
    harness, ti, pod = waiting
    harness.deleted(pod.ref)
    harness.created()
    age(harness, ti)
    harness.wait(INTERVAL)
    assert not is_fresh(harness, ti)


def test_a_task_that_is_not_queued_any_more_is_left_as_it_is(waiting):
    harness, ti, pod = waiting
    age(harness, ti, state="running")
    harness.wait(INTERVAL)
    harness.deleted(pod.ref)
    assert not is_fresh(harness, ti)


def test_a_task_that_another_scheduler_has_queued_is_left_as_it_is(waiting, session):
    harness, ti, pod = waiting
    age(harness, ti, queued_by_job_id=make_scheduler_job(session))
    harness.wait(INTERVAL)
    harness.deleted(pod.ref)
    assert not is_fresh(harness, ti)


def test_a_row_that_somebody_has_locked_is_not_waited_for(waiting):
    harness, ti, pod = waiting
    with lock(ti):
        harness.wait(INTERVAL)
        harness.deleted(pod.ref)
    assert harness.create_call()
    assert not is_fresh(harness, ti)


def test_a_database_that_does_not_answer_is_asked_again(waiting):
    harness, ti, _ = waiting
    with database_away(task_instances, "refresh_queued"):
        harness.wait(INTERVAL)
    assert not is_fresh(harness, ti)
    harness.executor.sync()
    assert is_fresh(harness, ti)


@pytest.mark.parametrize(
    ("timeout", "scheduled", "is_held"),
    [
        ("3600", timedelta(minutes=50), True),
        ("3600", timedelta(minutes=70), False),
        ("0", timedelta(0), False),
    ],
)
def test_while_a_scheduling_gate_holds_a_pod_back(start, queued_ti, timeout, scheduled, is_held):
    harness = start(**CONFIG, KUBERNETES_RESILIENCE__SCHEDULING_GATE_TIMEOUT=timeout)
    ti = queued_ti()
    harness.observe(harness.launch(ti), m.gated())
    age(harness, ti, scheduled_dttm=datetime.now(UTC) - scheduled)
    harness.wait(INTERVAL)
    assert is_fresh(harness, ti) is is_held


def test_while_a_gate_holds_the_pod_back_in_which_a_task_runs_again(start, queued_ti):
    """Its time counts from when it was queued again, however long it had run."""
    harness = start(**CONFIG, **BUDGET)
    ti = queued_ti()
    key, pod = ti.key, harness.run(ti)
    harness.set_state(ti, "running", scheduled_dttm=datetime.now(UTC) - timedelta(days=3))
    lose(harness, pod, m.evicted())
    harness.wait(60)
    harness.observe(harness.created(), m.gated())
    again = present(harness, key)
    age(harness, again)
    harness.wait(INTERVAL)
    assert is_fresh(harness, again)


def test_a_gated_pod_is_replaced_when_its_token_expires(start, queued_ti):
    """Its worker could not start the task any more, however late the gate is lifted."""
    harness = start(**CONFIG)
    ti = queued_ti()
    pod = harness.launch(ti)
    harness.observe(pod, m.gated())
    harness.wait(INTERVAL)
    harness.wait(89 - INTERVAL)
    assert harness.runtime.take("delete") == []
    harness.wait(20)
    ((ref, *_),) = harness.runtime.take("delete")
    assert ref == pod.ref
    harness.deleted(pod.ref)
    assert harness.created().launch_number == 1
    assert harness.ledger(ti) == []


def test_a_clock_that_is_ahead_of_the_api_servers_replaces_no_gated_pod(start, queued_ti):
    harness = start(**CONFIG)
    created = datetime.now(UTC) - timedelta(minutes=10)
    pod = harness.launch(queued_ti()).created(created.isoformat())
    harness.observe(pod, m.gated())
    harness.wait(INTERVAL)
    harness.wait(89 - INTERVAL)
    assert harness.runtime.take("delete") == []
    harness.wait(20)
    assert [ref for ref, *_ in harness.runtime.take("delete")] == [pod.ref]


def test_what_airflow_takes_back_is_told_with_what_kept_it(start, queued_ti):
    harness = start(**CONFIG)
    ti = queued_ti()
    pod = harness.launch(ti)
    harness.observe(pod, m.pod("Pending", [m.base(m.PREPARING)], init=[m.status_of("vault", m.running())]))
    harness.executor.revoke_task(ti=ti)
    (row,) = harness.ledger(ti)
    told = (row["action"], row["policy"], row["context"]["metadata"]["cause"], row["worker_name"])
    assert told == ("relaunch", "-", "init-container-running", pod.name)
    assert "num_stuck_in_queued_retries" in row["explanation"], "it need not be twice"
    harness.deleted(pod.ref)
    assert harness.launch(harness.row(ti)).launch_number == 2


@pytest.mark.parametrize("like", [None, m.alive()], ids=["unseen", "running"])
def test_nothing_is_told_of_what_kept_nothing(start, queued_ti, like):
    harness = start(**CONFIG)
    ti = queued_ti()
    pod = harness.launch(ti)
    if like:
        harness.observe(pod, like)
    harness.executor.revoke_task(ti=ti)
    assert harness.ledger(ti) == []


# ---------------------------------------------------------------- outages


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({}, 'pods is forbidden: User "airflow"'),
        (
            {"KUBERNETES_EXECUTOR__TASK_PUBLISH_MAX_RETRIES": "-1"},
            'pods "x" is forbidden: exceeded quota: tasks',
        ),
    ],
    ids=["refused", "repeated as often as configured"],
)
def test_while_a_creation_is_waited_out(start, queued_ti, options, why):
    harness = start(**CONFIG, **options)
    ti = queued_ti()
    harness.hand_over(ti)
    harness.refuse(KubernetesApiError(why, status=403, reason="Forbidden"))
    age(harness, ti)
    harness.wait(INTERVAL)
    assert is_fresh(harness, ti)


def test_while_a_create_call_waits_for_its_turn(start, queued_ti):
    """It may wait in our own thread for as long as the API server has asked for, again and again."""
    harness = start(**CONFIG)
    ti = queued_ti()
    harness.wait(INTERVAL - PROMPT)
    harness.hand_over(ti)
    age(harness, ti)
    harness.wait(PROMPT - 1)
    assert not is_fresh(harness, ti)
    harness.wait(1)
    assert is_fresh(harness, ti)
    age(harness, ti)
    harness.created()
    harness.wait(INTERVAL)
    assert not is_fresh(harness, ti)


def test_while_an_adoption_is_postponed(start, queued_ti, successor):
    harness = start(**CONFIG)
    ti = queued_ti()
    harness.launch(ti)
    heir = successor(**CONFIG)
    heir.cluster.outage = ConnectionFailedError("no")
    heir.adopt(ti)
    age(heir, ti)
    heir.wait(INTERVAL)
    assert is_fresh(heir, ti)


def test_all_that_have_not_started_are_held_off_from_the_beginning_to_the_end_of_an_outage(start, queued_ti):
    harness = start(**CONFIG)
    tis = creating, pending, running = queued_ti(mapped=3)
    harness.launch(pending)
    harness.observe(harness.launch(running), m.alive())
    harness.hand_over(creating)

    def are_held(after: float) -> list[bool]:
        for ti in tis:
            age(harness, ti)
        harness.wait(after)
        return [is_fresh(harness, ti) for ti in tis]

    assert are_held(1) == [False, False, False]
    harness.runtime.is_away = True
    assert are_held(1) == [True, True, False]
    assert are_held(1) == [False, False, False]
    assert are_held(INTERVAL) == [True, True, False]
    harness.runtime.is_away = False
    assert are_held(1) == [True, True, False]
    assert are_held(INTERVAL) == [True, False, False], "the create call still waits in our own thread"


TIMEOUT = 600.0


@pytest.mark.parametrize("config", [{}, {"KUBERNETES_EXECUTOR__POD_LAUNCH_FAILURE_RETRIES": "0"}], ids=str)
def test_an_outage_of_two_hours_costs_nothing(start, queued_ti, time_machine, config):
    time_machine.move_to("2026-11-01T00:00:00Z", tick=False)
    harness = start(SCHEDULER__TASK_QUEUED_TIMEOUT=str(TIMEOUT), **config)
    creating, pending = queued_ti(mapped=2)
    old = harness.launch(pending).created("2026-11-01T00:00:00Z")
    harness.observe(old, m.starting())
    harness.hand_over(creating)
    for ti in (creating, pending):
        age(harness, ti)
        harness.set_state(ti, "queued", queued_dttm=datetime.now(UTC))

    def go_on(seconds: float) -> None:
        time_machine.shift(seconds)
        harness.wait(seconds)
        for ti in (creating, pending):  # what the scheduler's stuck-in-queued handler looks at
            assert (datetime.now(UTC) - harness.row(ti).queued_dttm).total_seconds() < TIMEOUT

    call = harness.create_call()
    go_on(240)  # until the silent watch counts as dead
    harness.runtime.is_away = True
    for _ in range(120):
        harness.send(PodNotCreated(call[0], ConnectionFailedError("timed out")))
        go_on(60)
        call = harness.create_call()
    harness.runtime.is_away = False
    harness.cluster.outage = None
    go_on(11)

    # Its worker could not start the task any more: its token has expired.
    assert harness.runtime.take("delete") == [(old.ref,)]
    harness.deleted(old.ref)
    bodies = [call[1], harness.create_call()[1]]
    for body in bodies:
        assert Pod(body).claims["exp"] - datetime.now(UTC).timestamp() >= TIMEOUT * 2 / 3
    assert harness.events() == {}
    assert [harness.ledger(ti) for ti in (creating, pending)] == [[], []]
    assert [harness.occupied(ti) for ti in (creating, pending)] == [True, True]
    assert [harness.row(ti).try_number for ti in (creating, pending)] == [1, 1]


@pytest.fixture
def expired(start, queued_ti, time_machine):
    """Give an executor, and a task instance with a Pending pod that has outlived its token in an outage."""
    return outlive(start, queued_ti, time_machine)


def outlive(start, queued_ti, time_machine, **config):
    time_machine.move_to("2026-11-01T00:00:00Z", tick=False)
    harness = start(SCHEDULER__TASK_QUEUED_TIMEOUT=str(TIMEOUT), **config)
    ti = queued_ti()
    pod = harness.launch(ti).created("2026-11-01T00:00:00Z")
    pod.manifest["metadata"]["resourceVersion"] = "7"
    harness.observe(pod, m.starting())
    harness.runtime.is_away = True
    harness.wait(1)
    time_machine.shift(TIMEOUT)
    harness.clock.advance(TIMEOUT)
    return harness, ti, pod


def test_a_pod_that_has_outlived_its_token_is_replaced_unless_it_has_started(expired):
    harness, ti, pod = expired
    harness.runtime.is_away = False
    harness.wait(11)
    assert harness.runtime.take("delete") == [(pod.ref, "7", harness.label)]
    harness.send(PodNotDeleted(pod.become(m.alive()).facts()))
    harness.begin(ti, pod)
    harness.wait(1000)
    assert (harness.runtime.take("create"), harness.events(), harness.ledger(ti)) == ([], {}, [])
    harness.observe(pod, m.out_of_memory())
    assert [state for state, _ in harness.events().values()] == ["failed"]


def test_one_that_another_scheduler_may_know_nothing_of_goes_when_its_try_is_over(expired):
    harness, ti, pod = expired
    harness.set_state(ti, "queued", queued_by_job_id=OTHER_JOB)
    harness.runtime.is_away = False
    harness.wait(11)
    assert (harness.occupied(ti), harness.runtime.take("delete")) == (False, [])
    harness.set_state(ti, "success")
    harness.wait(UNFOLLOWED_INTERVAL)
    assert harness.runtime.take("delete") == [(pod.ref, "7", harness.label)]


def test_one_whose_worker_runs_is_not_replaced_though_a_sidecar_has_never_started(expired):
    """Its worker has reported nothing yet, and its pod is Pending."""
    harness, _, pod = expired
    harness.runtime.is_away = False
    harness.observe(pod, m.beside_a_sidecar_without_image(m.running()))
    harness.wait(11)
    assert harness.runtime.take("delete") == []


def test_it_is_not_replaced_while_the_api_server_is_away_or_without_an_outage(expired, queued_ti):
    harness, _, pod = expired
    harness.wait(11)
    assert harness.runtime.take("delete") == []
    other = harness.launch(queued_ti("other")).created("2026-11-01T00:00:00Z")
    harness.observe(other, m.starting())
    harness.clock.advance(TIMEOUT)
    harness.runtime.is_away = False
    harness.wait(11)
    harness.wait(11)
    assert [ref for ref, *_ in harness.runtime.take("delete")] == [pod.ref, other.ref]


@pytest.mark.parametrize("since", ["adopted by another scheduler", "started", "cleared"])
def test_it_is_not_replaced_if_its_task_does_not_wait_for_it_here_any_more(expired, session, since, caplog):
    """A scheduler that has stood still does not know yet what another one, or a worker, has done."""
    harness, ti, pod = expired
    if since == "adopted by another scheduler":
        ti.queued_by_job_id = OTHER_JOB
        session.commit()
    elif since == "started":
        harness.begin(ti, pod)
    else:
        ti.prepare_db_for_next_try(session)
        session.commit()
    harness.runtime.is_away = False
    harness.wait(11)
    # What was cleared is deleted for that.
    assert harness.runtime.take("delete") == ([(pod.ref, "7")] if since == "cleared" else [])
    assert ("has expired before it started" in caplog.text, harness.runtime.take("create")) == (False, [])


def test_without_an_outage_a_launch_has_the_time_that_airflow_gives_it(start, queued_ti):
    harness = start(**CONFIG)
    pod = harness.launch(queued_ti()).created("2026-01-01T00:00:00Z")
    harness.observe(pod, m.starting())
    for _ in range(5):
        harness.wait(100)
    assert harness.runtime.take("delete") == []


def test_an_adopted_pod_that_has_outlived_its_token_is_handed_back(expired, successor):
    _, ti, pod = expired
    heir = successor(SCHEDULER__TASK_QUEUED_TIMEOUT=str(TIMEOUT))
    heir.adopt(ti)
    heir.runtime.is_away = True
    heir.wait(1)
    heir.runtime.is_away = False
    heir.wait(11)
    assert heir.runtime.take("delete") == [(pod.ref, "7", heir.label)]
    heir.deleted(pod.ref)
    heir.executor.sync()
    assert (heir.row(ti).state, heir.ledger(ti)) == ("scheduled", [])


def test_a_create_call_that_is_under_way_is_held_off_too(start, queued_ti):
    """Each takes a minute to time out, or waits in our thread for as long as Retry-After says."""
    harness = start(**CONFIG)
    ti = queued_ti()
    harness.hand_over(ti)
    harness.refuse(KubernetesApiError("etcdserver: request timed out", status=504))
    harness.wait(2)
    assert harness.runtime.take("create")
    age(harness, ti)
    harness.wait(INTERVAL)
    assert is_fresh(harness, ti)


@pytest.mark.parametrize("sees", ["informer", "restart"])
@pytest.mark.parametrize("like", [m.worker_error(), m.lingering()], ids=["failed", "beside a sidecar"])
@pytest.mark.parametrize("retries", ["0", "3"])
def test_a_worker_that_starts_with_a_token_that_has_expired_in_an_outage_costs_nothing(
    start, queued_ti, time_machine, sees, like, retries
):
    """The kubelet is quicker than our next look, which is up to ten seconds away."""
    harness, ti, pod = outlive(
        start, queued_ti, time_machine, KUBERNETES_EXECUTOR__POD_LAUNCH_FAILURE_RETRIES=retries
    )
    harness.runtime.is_away = False
    if sees == "restart":
        harness.executor.sync()
        harness.observe(pod, m.alive())
    harness.observe(pod, like)
    harness.wait(SIDECAR_GRACE)
    (entry,) = harness.ledger(ti)
    assert (entry["action"], entry["policy"], entry["reason"]) == ("relaunch", "-", "TokenExpired")
    assert entry["context"]["metadata"]["cause"] == "worker-token-expired"
    assert harness.events() == {}
    second = harness.created()
    harness.observe(second, m.evicted())
    left = 3 if retries == "3" else 0
    assert [row["action"] for row in harness.ledger(ti)][1:] == ["relaunch" if left else "count"]
    if left:
        assert "launch 1 of 4" in harness.ledger(ti)[1]["explanation"], "the replacement was not counted"


def test_the_token_may_be_older_than_its_pod(expired):
    """The first create call had no answer for a while, and has made the pod after all."""
    harness, ti, pod = expired
    harness.clock.advance(TIMEOUT)
    pod.created("2026-11-01T00:09:00Z")
    harness.runtime.is_away = False
    harness.observe(pod, m.worker_error())
    assert [row["reason"] for row in harness.ledger(ti)] == ["TokenExpired"]


def test_a_clock_that_is_ahead_hides_no_token_that_had_expired(expired, time_machine):
    harness, ti, pod = expired
    ended = datetime.now(UTC)
    time_machine.shift(600)
    harness.runtime.is_away = False
    harness.observe(pod, m.worker_error(finishedAt=ended.isoformat()))
    assert [row["reason"] for row in harness.ledger(ti)] == ["TokenExpired"]


def test_an_adopted_worker_that_starts_with_an_expired_token_costs_nothing(expired, successor):
    _, ti, pod = expired
    heir = successor(SCHEDULER__TASK_QUEUED_TIMEOUT=str(TIMEOUT))
    heir.adopt(ti)
    heir.runtime.is_away = True
    heir.wait(1)
    heir.runtime.is_away = False
    heir.observe(pod, m.worker_error())
    heir.executor.sync()
    assert (heir.row(ti).state, heir.events()) == ("scheduled", {})
    assert [row["reason"] for row in heir.ledger(ti)] == ["TokenExpired"]


@pytest.mark.parametrize(
    "like",
    [
        m.out_of_memory(),
        m.worker_error(139),
        m.succeeded(),
        m.evicted(),
        m.worker_error(message="/usr/bin/python: No module named airflow"),
    ],
    ids=["out of memory", "crashed", "silent exit", "evicted", "nothing to import"],
)
def test_what_an_expired_token_does_not_explain_is_decided_as_ever(expired, like):
    harness, ti, pod = expired
    harness.runtime.is_away = False
    harness.observe(pod, like)
    (entry,) = harness.ledger(ti)
    assert (entry["reason"] == "TokenExpired", entry["policy"]) == (False, "built-in")


@pytest.mark.parametrize("sees", ["the same scheduler", "its successor"])
def test_a_worker_that_ended_before_its_token_expired_is_at_fault_however_late_that_is_learned(
    expired, successor, sees
):
    harness, ti, pod = expired
    if sees == "its successor":
        harness = successor(SCHEDULER__TASK_QUEUED_TIMEOUT=str(TIMEOUT))
        harness.adopt(ti)
        harness.runtime.is_away = True
        harness.wait(1)
    harness.runtime.is_away = False
    harness.observe(pod, m.worker_error(finishedAt="2026-11-01T00:00:20Z"))
    harness.executor.sync()
    assert [row["rule"] for row in harness.ledger(ti)] == ["excluded"]


def test_a_worker_that_starts_too_late_without_an_outage_is_excused_twice(start, queued_ti):
    """Airflow looks for task instances that are stuck every two minutes; a kubelet may be quicker."""
    harness = start(**CONFIG)
    ti = queued_ti()
    harness.hand_over(ti)
    for _ in range(3):
        pod = harness.created().created("2026-01-01T00:00:00Z")
        harness.observe(pod, m.worker_error())
    rules = [row["rule"] for row in harness.ledger(ti)]
    assert rules == ["token-expired", "token-expired", "excluded"]
    assert [state for state, _ in harness.events().values()] == ["failed"]


def test_a_token_is_valid_for_as_long_as_it_says(start, queued_ti, monkeypatch):
    """Airflow 3.1 takes its validity from ``[execution_api] jwt_expiration_time``."""
    day = timedelta(days=1).total_seconds()
    monkeypatch.setattr(
        upstream,
        "make_token",
        lambda ti_id, _: jwt.encode({"sub": ti_id, "iat": 0, "exp": day}, "k" * 64, "HS512"),
    )
    harness = start(**CONFIG)
    ti = queued_ti()
    pod = harness.launch(ti).created((datetime.now(UTC) - timedelta(hours=1)).isoformat())
    harness.observe(pod, m.worker_error())
    assert [row["rule"] for row in harness.ledger(ti)] == ["excluded"]


def test_it_is_not_replaced_by_a_scheduler_whose_adoption_of_it_was_rolled_back(expired, successor):
    """Its own scheduler was taken for dead, and goes on."""
    _, ti, _ = expired
    heir = successor(SCHEDULER__TASK_QUEUED_TIMEOUT=str(TIMEOUT))
    heir.executor.try_adopt_task_instances([ti])
    heir.session.rollback()
    heir.runtime.is_away = True
    heir.executor.sync()
    heir.wait(1)
    heir.runtime.is_away = False
    heir.wait(11)
    heir.wait(11)
    assert heir.runtime.take("delete") == []
