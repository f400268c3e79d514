# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Something that many launches need is away: they are held, at nobody's cost, until it is back."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
from airflow.models.log import Log
from kubernetes.client import models as k8s
from sqlalchemy import select

from airflow.providers.cncf.kubernetes_resilience.executors.creation import outages
from airflow.providers.cncf.kubernetes_resilience.executors.failures.record import REPORT_GRACE
from airflow.providers.cncf.kubernetes_resilience.pods.api.errors import error_from_status
from airflow.providers.cncf.kubernetes_resilience.pods.messages import (
    PodConfirmed,
    PodCreated,
    PodNotCreated,
    PodObservation,
)
from airflow_resilience import metrics
from airflow_resilience.ledger import LAUNCH_HELD_EVENT
from airflow_resilience.ledger_entries import HeldLaunch
from airflow_resilience.ledger_queries import read_outages
from cluster_lab.airflow_fixtures import make_scheduler_job

from ....support import manifests as m
from ....support.cluster import Pod

TIMEOUT = 'failed to pull image "airflow": failed to do request: Head "https://h/v2": dial tcp: i/o timeout'

QUOTA = {
    "kind": "Status",
    "reason": "Forbidden",
    "message": 'pods "x" is forbidden: exceeded quota: q, requested: pods=1, used: pods=10, limited: pods=10',
}


WEBHOOK_AWAY = {
    "kind": "Status",
    "reason": "InternalError",
    "message": 'Internal error occurred: failed calling webhook "policy.example.com": failed to call webhook:'
    ' Post "https://policy.example.com/validate": dial tcp 10.96.0.1:443: connect: connection refused',
}


def create(harness, *tis) -> list[Pod]:
    """Queue task instances; return the pods that were asked for, created."""
    harness.hand_over(*tis)
    return answer(harness)


def answer(harness) -> list[Pod]:
    pods = []
    for launch_id, body in harness.runtime.take("create"):
        pod = harness.cluster.add(Pod(body))
        harness.inbox.put(PodCreated(launch_id, pod.facts()))
        pods.append(pod)
    harness.executor.sync()
    return pods


def fail(harness, *pods, message: str = TIMEOUT) -> None:
    """Let pods wait for an image in vain; all of them are seen in the same turn."""
    seen = [PodObservation(pod.become(m.image_pull_error(message=message)).facts()) for pod in pods]
    harness.send(*seen)
    harness.send(*(PodConfirmed(ref, None) for ref, *_ in harness.runtime.take("delete")))


def queued_by(harness, ti):
    """Return a task instance that the harness's scheduler has queued."""
    harness.set_state(ti, "queued", queued_by_job_id=harness.executor.job_id)
    return ti


def outage(harness, queued_ti, tasks: int = 5) -> list:
    """Let a registry be away for several task instances; return these."""
    tis = queued_ti(mapped=tasks)
    fail(harness, *create(harness, *tis))
    assert harness.runtime.take("create") == []
    return tis


def airflow_away(harness, queued_ti) -> list:
    """Let the workers of three Dags not reach Airflow; return the task instances."""
    tis = [queued_ti(f"dag_{number}") for number in range(3)]
    give_airflow_up(harness, *create(harness, *tis))
    assert held(harness) == 3
    return tis


def give_airflow_up(harness, *pods) -> None:
    harness.send(*(PodObservation(pod.become(m.api_unreachable()).facts()) for pod in pods))


def recover(harness, seconds: float = 16) -> Pod:
    """Let the time of the probe come, and its worker start; return its pod."""
    harness.wait(seconds)
    (probe,) = answer(harness)
    harness.observe(probe, m.alive())
    return probe


def task_of(pod, tis):
    return next(ti for ti in tis if str(ti.id) == pod.workload["ti"]["id"])


def with_image(image: str, ti):
    container = k8s.V1Container(name="base", image=image)
    ti.executor_config = {"pod_override": k8s.V1Pod(spec=k8s.V1PodSpec(containers=[container]))}
    return ti


def held(harness) -> int:
    return sum("held" in line for line in harness.registry.describe(harness.clock.now))


def test_nobody_pays_for_a_registry_that_is_away(harness, queued_ti):
    tis = outage(harness, queued_ti)
    assert held(harness) == 5
    for ti in tis:
        (entry,) = harness.ledger(ti)
        assert (entry["action"], entry["policy"], entry["rule"]) == ("relaunch", "-", "outage")
        assert entry["dependency"] == "registry/docker.io"
        assert entry["away_since"]
    harness.wait(10)
    assert harness.runtime.take("create") == []
    harness.wait(6)
    (probe,) = answer(harness)
    fail(harness, probe)
    harness.wait(14)
    assert harness.runtime.take("create") == []
    probe = recover(harness, 2)
    pods = []
    while len(pods) < 4:
        harness.wait(1)
        pods += answer(harness)
    assert {pod.launch_number for pod in [probe, *pods]} == {2, 3}
    harness.observe(pods[0], m.start_error())  # its one relaunch is still there
    harness.created()
    assert harness.events() == {}


def test_a_probe_prefers_another_node(harness, queued_ti):
    """What is taken for an outage may be one broken node's."""
    outage(harness, queued_ti)
    for _ in range(2):
        harness.wait(16)
        (probe,) = answer(harness)
        assert m.NODE in str(probe.manifest["spec"]["affinity"]["nodeAffinity"])
        fail(harness, probe)


def test_a_task_that_comes_later_is_held_too(harness, queued_ti, caplog):
    outage(harness, queued_ti)
    ti = queued_ti("later")
    caplog.clear()
    assert create(harness, ti) == []
    assert f"The launch of {ti.key} is held: registry/docker.io is away" in caplog.messages
    assert "Creating pod" not in caplog.text
    assert harness.ledger(ti) == []
    assert harness.occupied(ti)
    assert held(harness) == 6


def test_the_audit_log_tells_once_of_each_launch_that_is_held(harness, queued_ti, session):
    tis = [*outage(harness, queued_ti), queued_ti("later")]
    create(harness, tis[-1])
    harness.wait(16)
    fail(harness, *answer(harness))
    harness.wait(1)
    held = select(Log).where(Log.event == LAUNCH_HELD_EVENT).order_by(Log.id)
    rows = session.scalars(held).all()
    assert Counter(row.dag_id for row in rows) == Counter(ti.dag_id for ti in tis)
    told = HeldLaunch.from_json(rows[-1].extra)
    assert (told.ti_id, str(told.dependency)) == (str(tis[-1].id), "registry/docker.io")


def test_the_audit_log_tells_what_a_launch_is_held_for_now(harness, queued_ti, session):
    outage(harness, queued_ti)
    error = error_from_status(403, QUOTA)
    for ti in queued_ti("large", mapped=3):
        harness.queue(with_image("registry.example.com/a", ti))
    harness.executor.heartbeat()
    refuse_all(harness, error)
    harness.wait(16)
    refuse_all(harness, error)  # among these is the probe of the registry
    assert held(harness) == 8
    harness.wait(1)
    first = select(Log).where(Log.event == LAUNCH_HELD_EVENT, Log.dag_id == "dag", Log.map_index == 0)
    rows = session.scalars(first.order_by(Log.id)).all()
    told = [str(HeldLaunch.from_json(row.extra).dependency) for row in rows]
    assert told == ["registry/docker.io", "quota/default"]
    away = read_outages(datetime.now(UTC), dag_ids={"dag"}, limit=100, session=session)
    assert {str(item.dependency): item.held for item in away} == {"registry/docker.io": 4, "quota/default": 1}


def test_a_task_that_needs_another_registry_is_not(harness, queued_ti):
    outage(harness, queued_ti)
    ti = with_image("registry.example.com/airflow", queued_ti("other"))
    fail(harness, *create(harness, ti))
    (entry,) = harness.ledger(ti)
    assert entry["rule"] == "unavailable"
    assert (entry["dependency"], entry["away_since"]) == ("registry/registry.example.com", None)


def test_it_can_be_switched_off(start, queued_ti):
    harness = start(KUBERNETES_RESILIENCE__OUTAGE_THRESHOLD="0")
    tis = outage(harness, queued_ti)
    assert [harness.ledger(ti)[0]["rule"] for ti in tis] == ["unavailable"] * 5
    assert held(harness) == 0


def test_what_is_cleared_while_it_is_held_is_gone_within_ten_seconds(harness, queued_ti):
    tis = outage(harness, queued_ti)
    harness.set_state(tis[0], None)
    harness.wait(10)
    assert not harness.occupied(tis[0])
    assert held(harness) == 4


def test_what_another_scheduler_has_adopted_is_held_no_longer(harness, queued_ti, session):
    other = make_scheduler_job(session)
    for ti in (tis := outage(harness, queued_ti)):
        harness.set_state(ti, "queued", queued_by_job_id=other)
    later = queued_ti("later")
    assert create(harness, later) == []
    harness.wait(10)
    assert not any(map(harness.occupied, tis))
    harness.wait(6)
    (probe,) = answer(harness)
    assert probe.annotations["dag_id"] == "later"


def test_what_is_held_is_not_queued_for_too_long(harness, queued_ti):
    tis = outage(harness, queued_ti)
    before = harness.row(tis[0]).queued_dttm
    harness.wait(250)
    assert harness.row(tis[0]).queued_dttm > before


def test_nothing_is_held_for_longer_than_is_configured(start, queued_ti):
    harness = start(KUBERNETES_RESILIENCE__OUTAGE_MAX_WAIT="60")
    tis = outage(harness, queued_ti, tasks=3)
    pods = []
    for _ in range(65):
        harness.wait(1)
        pods += (made := answer(harness))
        fail(harness, *made)
    assert held(harness) == 0
    rules = [[entry["rule"] for entry in harness.ledger(ti)] for ti in tis]
    assert all(found[-1] == "unavailable" for found in rules)
    harness.wait(31)
    fail(harness, *answer(harness))
    harness.wait(1)
    assert {state for state, _ in harness.events().values()} == {"failed"}


def test_a_pod_that_gets_one_image_of_a_registry_and_never_the_other_is_judged_in_the_end(start, queued_ti):
    harness = start(KUBERNETES_RESILIENCE__OUTAGE_MAX_WAIT="60")

    def becomes(pod, reason, message=None):
        init = [m.status_of("sync", m.terminated(0, "Completed"))]
        like = m.pod(containers=[m.base(m.waiting(reason, message))], init=init)
        like["spec"]["initContainers"][0]["image"] = "git-sync"
        return PodObservation(pod.become(like).facts())

    tis = queued_ti(mapped=3)
    pods = create(harness, *tis)
    for _ in range(200):
        harness.send(*(becomes(pod, "PodInitializing") for pod in pods))
        harness.send(*(becomes(pod, "ErrImagePull", TIMEOUT) for pod in pods))
        harness.send(*(PodConfirmed(ref, None) for ref, *_ in harness.runtime.take("delete")))
        harness.wait(1)
        pods = answer(harness)
    assert {state for state, _ in harness.events().values()} == {"failed"}
    assert not any(map(harness.occupied, tis))


def test_the_successor_of_a_dead_scheduler_knows_it(harness, queued_ti, successor):
    outage(harness, queued_ti)
    other = successor()
    assert create(other, queued_by(other, queued_ti("later"))) == []
    assert held(other) == 1
    recover(other)
    other.wait(1)
    assert create(other, queued_by(other, queued_ti("even_later")))


@pytest.mark.parametrize("state", ["running", "success", None])
def test_a_scheduler_that_starts_after_an_outage_holds_nothing(harness, queued_ti, successor, state):
    for ti in outage(harness, queued_ti):
        harness.set_state(ti, state)
    other = successor()
    assert create(other, queued_by(other, queued_ti("later")))


def test_a_quota_that_is_used_up_holds_the_namespace(harness, queued_ti):
    runs = queued_ti("first")
    (first,) = create(harness, runs)
    harness.begin(runs, first)
    tis = queued_ti("others", mapped=4)
    harness.hand_over(*tis)
    refuse_all(harness, error_from_status(403, QUOTA))
    assert held(harness) == 4
    assert [harness.ledger(ti)[0]["dependency"] for ti in tis] == ["quota/default"] * 4
    harness.set_state(runs, "success")
    harness.observe(first, m.succeeded())  # its quota is free
    harness.wait(1)
    assert len(answer(harness)) == 1
    harness.wait(1)
    assert answer(harness)


def test_workers_that_cannot_reach_airflow_hold_all_launches(harness, queued_ti):
    tis = airflow_away(harness, queued_ti)
    probe = recover(harness)
    harness.wait(6)
    assert answer(harness) == []  # that its container runs says nothing
    ti = task_of(probe, tis)
    harness.set_state(ti, "running", hostname=probe.name, start_date=datetime.now(UTC))
    harness.wait(6)
    harness.wait(1)
    assert answer(harness)


def test_a_worker_of_another_executor_says_nothing_of_pods(harness, queued_ti):
    airflow_away(harness, queued_ti)
    harness.set_state(queued_ti("local"), "running", hostname="scheduler", start_date=datetime.now(UTC))
    harness.wait(6)
    harness.wait(6)
    assert (held(harness), harness.runtime.take("create")) == (3, [])


def test_a_worker_whose_clock_is_ahead_does_not_begin_again_and_again(harness, queued_ti):
    ahead = datetime.now(UTC) + timedelta(hours=1)
    harness.run(runs := queued_ti("running"))
    harness.set_state(runs, "running", start_date=ahead)
    airflow_away(harness, queued_ti)
    harness.wait(6)
    harness.wait(6)
    assert answer(harness) == []
    assert held(harness) == 3


def test_a_worker_that_is_lost_after_an_outage_is_held_in_the_next_one(start, queued_ti):
    harness = start(KUBERNETES_RESILIENCE__INFRASTRUCTURE_RETRY_BUDGET="1")
    tis = airflow_away(harness, queued_ti)
    probe = recover(harness)
    ti = task_of(probe, tis)
    harness.begin(ti, probe)
    harness.set_state(ti, "running", start_date=datetime.now(UTC))
    harness.wait(4_000)  # longer than a launch is held
    fail(harness, *create(harness, *queued_ti("other", mapped=3)))
    before = held(harness)
    harness.observe(probe, m.evicted())
    harness.wait(REPORT_GRACE)
    harness.wait(10)
    assert held(harness) == before + 1


def test_a_launch_that_got_what_it_was_held_for_is_held_in_the_next_outage(harness, queued_ti):
    outage(harness, queued_ti, tasks=3)
    recover(harness)
    late = []
    while len(late) < 2:
        harness.wait(1)
        late += answer(harness)
    harness.wait(61)  # a large image: the outage is forgotten by then
    for pod in late:
        harness.observe(pod, m.alive())
    harness.wait(4_000)
    fail(harness, *create(harness, *queued_ti("other", mapped=3)))
    assert held(harness) == 3
    harness.observe(late[0], m.evicted())
    harness.wait(10)
    assert held(harness) == 4


def test_one_dag_cannot_hold_the_launches_of_others(harness, queued_ti):
    tis = queued_ti(mapped=5)
    give_airflow_up(harness, *create(harness, *tis))
    assert held(harness) == 0


def refuse_all(harness, error) -> None:
    calls = harness.runtime.take("create")
    harness.send(*(PodNotCreated(launch_id, error) for launch_id, _ in calls))


def test_a_webhook_that_is_away_holds_the_namespace(harness, queued_ti):
    tis = queued_ti(mapped=4)
    harness.hand_over(*tis)
    error = error_from_status(500, WEBHOOK_AWAY)
    refuse_all(harness, error)
    assert held(harness) == 2  # the first two are repeated, before they are known not to be alone
    for _ in range(4):
        harness.wait(2)
        refuse_all(harness, error)
    assert held(harness) == 4
    assert all(harness.ledger(ti) == [] for ti in tis)
    harness.wait(8)
    (probe,) = answer(harness)
    assert probe.launch_number == 1
    harness.wait(1)
    assert answer(harness)


def test_a_launch_that_may_have_a_pod_is_not_held(harness, queued_ti):
    tis = queued_ti(mapped=4)
    harness.hand_over(*tis)
    refuse_all(harness, error_from_status(504, {"kind": "Status", "message": "timeout"}))
    harness.wait(5)
    refuse_all(harness, error_from_status(500, WEBHOOK_AWAY))
    assert held(harness) == 0
    harness.wait(40)
    assert len(answer(harness)) == 4


def test_what_is_held_takes_no_slot_from_others(start, queued_ti, monkeypatch):
    monkeypatch.setenv("AIRFLOW__CORE__PARALLELISM", "3")
    harness = start()
    harness.executor.parallelism = 3
    outage(harness, queued_ti, tasks=3)
    harness.wait(1)
    assert (harness.executor.slots_available, harness.executor.slots_occupied) == (3, 0)
    others = [with_image("registry.example.com/a", queued_ti(f"other_{number}")) for number in range(4)]
    pods = create(harness, *others)
    assert len(pods) == 3
    recover(harness, 15)
    harness.wait(2)
    assert harness.executor.slots_available < 0
    assert answer(harness) == []  # they wait for the slots that are theirs
    for pod in pods:
        harness.observe(pod, m.alive())
        ti = task_of(pod, others)
        harness.begin(ti, pod)
        harness.set_state(ti, "success")
        harness.observe(pod, m.succeeded())
    harness.wait(2)
    assert len(answer(harness)) == 2
    assert harness.executor.slots_occupied == 4


def test_the_tries_of_one_task_instance_open_nothing(harness, queued_ti):
    ti = queued_ti("typo")
    for number in (1, 2, 3):
        harness.set_state(ti, "queued", try_number=number)
        fail(harness, *create(harness, ti))
        harness.wait(31)
        fail(harness, *answer(harness))
        assert {state for state, _ in harness.events().values()} == {"failed"}
    assert held(harness) == 0


@pytest.mark.parametrize(
    "error", [error_from_status(403, QUOTA), error_from_status(500, WEBHOOK_AWAY)], ids=str
)
def test_the_refused_pods_of_one_dag_hold_back_those_of_others_only_if_these_are_refused_too(
    harness, queued_ti, error
):
    """They may be large, or what a webhook fails on."""

    def refuse(*tis):
        harness.hand_over(*tis)
        refuse_all(harness, error)

    refuse(*queued_ti("refused", mapped=3))
    while held(harness) < 3:
        harness.wait(1)
        refuse_all(harness, error)
    assert len(create(harness, queued_ti("sound"))) == 1
    assert held(harness) == 3, "it says nothing about the others"
    refuse(queued_ti("second"), queued_ti("third"))
    assert create(harness, queued_ti("fourth")) == []
    assert held(harness) == 6


def test_listeners_are_told_once_that_an_outage_which_was_exhausted_is_over(start, queued_ti, monkeypatch):
    told = []
    monkeypatch.setattr(outages.listeners, "call", lambda name, **_: told.append(name))
    harness = start(KUBERNETES_RESILIENCE__OUTAGE_MAX_WAIT="60")
    outage(harness, queued_ti)
    harness.wait(61)
    pods = answer(harness)
    for pod in pods:
        harness.observe(pod, m.alive())
    assert len(pods) == 5
    assert [name for name in told if "outage" in name] == ["on_outage_opened", "on_outage_closed"]


def test_a_launch_that_is_held_for_a_webhook_stays_away_from_the_node_of_the_loss(start, queued_ti):
    harness = start(KUBERNETES_RESILIENCE__INFRASTRUCTURE_RETRY_BUDGET="1")
    ti = queued_ti("lost")
    pod = harness.run(ti)
    manifest = m.evicted()
    manifest["spec"]["nodeName"] = "node-9"
    harness.observe(pod, manifest)
    harness.wait(REPORT_GRACE)
    harness.wait(10)
    others = [queued_by(harness, item) for item in queued_ti("other", mapped=3)]
    for other in others:
        harness.queue(other)
    harness.executor.heartbeat()
    error = error_from_status(500, WEBHOOK_AWAY)
    while held(harness) < 4:
        refuse_all(harness, error)
        harness.wait(1)
    pods = []
    while len(pods) < 4:
        harness.wait(5)
        pods += answer(harness)
    (again,) = (pod for pod in pods if pod.annotations["dag_id"] == "lost")
    assert "node-9" in str(again.manifest["spec"]["affinity"])


def test_the_gauges_are_about_all_executors_of_a_scheduler(start, queued_ti, monkeypatch):
    """Each team may have one."""
    monkeypatch.setattr(metrics, "_shares", {})
    harness, other = start(), start()
    tis = outage(harness, queued_ti)
    shown = {}
    monkeypatch.setattr(
        metrics.stats(), "gauge", lambda name, value, *, tags: shown.update({(name, *tags.values()): value})
    )
    harness.wait(1)
    assert shown["kubernetes_executor.held_launches", "registry"] == len(tis)
    fail(other, *create(other, queued_ti("another")))
    other.wait(1)
    assert shown["kubernetes_executor.held_launches", "registry"] == len(tis) + 1
    harness.set_state(tis[0], "failed")
    harness.wait(10)
    harness.wait(1)
    assert shown["kubernetes_executor.held_launches", "registry"] == len(tis)


def test_an_outage_that_begins_while_no_scheduler_lives_is_learnt_within_a_minute(
    harness, queued_ti, successor
):
    tis = queued_ti(mapped=3)
    for pod in create(harness, *tis):
        pod.become(m.image_pull_error(message=TIMEOUT))
    heir = successor()
    heir.adopt(*tis)
    heir.wait(30)
    assert create(heir, queued_by(heir, queued_ti("later"))) == []
    assert held(heir) == 1


def test_of_two_schedulers_each_learns_by_itself(harness, start, session, queued_ti):
    other = start(make_scheduler_job(session))
    other.executor.sync()
    outage(harness, queued_ti)
    tis = queued_ti("others", mapped=3)
    pods = create(other, *(queued_by(other, ti) for ti in tis))
    assert len(pods) == 3
    fail(other, *pods)
    assert held(other) == 3


def test_what_fails_late_is_made_no_faster_than_what_is_held(harness, queued_ti):
    """It was let go in a recovery that has failed, and had its pod before the next one began."""
    outage(harness, queued_ti, tasks=16)
    recover(harness)
    late = []
    for _ in range(8):
        late += answer(harness)
        harness.wait(1)
    first, *late = late
    fail(harness, first)  # it is away again
    create(harness, *queued_ti("more", mapped=15))
    recover(harness)
    before = held(harness)
    fail(harness, *late)
    assert (len(harness.runtime.take("create")), held(harness)) == (0, before + len(late))
