# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Adoption where the pods of a namespace may not be listed, for as long as nobody permits it."""

from __future__ import annotations

import logging

import pytest
from kubernetes.client import V1ObjectMeta, V1Pod

from airflow.providers.cncf.kubernetes_resilience.executors.adoption.pod_search import REFUSED_INTERVAL
from airflow.providers.cncf.kubernetes_resilience.executors.deletion.pod_deletion import DELETION_TIMEOUT
from airflow.providers.cncf.kubernetes_resilience.executors.isolation import REMINDER_INTERVAL
from airflow.providers.cncf.kubernetes_resilience.pods.api.errors import (
    KubernetesApiError,
    error_from_status,
)
from cluster_lab.airflow_fixtures import make_scheduler_job

from ....support import manifests as m

FORBIDDEN = KubernetesApiError('pods is forbidden: in the namespace "other"', status=403, reason="Forbidden")
BROKEN = KubernetesApiError("illegal base64 data in a pod", status=500, reason="InternalError")
BUSY = KubernetesApiError("too many requests", status=429, reason="TooManyRequests")
PAGE = error_from_status(302, None, text="<html>")
NAMESPACES = {
    "KUBERNETES_EXECUTOR__MULTI_NAMESPACE_MODE": "True",
    "KUBERNETES_EXECUTOR__MULTI_NAMESPACE_MODE_NAMESPACE_LIST": "other,default",
}


@pytest.fixture
def dead(start):
    """Give the executor of a scheduler that will be dead."""
    return start(**NAMESPACES)


@pytest.fixture
def heir(dead, successor, cluster):
    """Give the executor of its successor, which may not list the pods of one of two namespaces."""
    cluster.unlisted["other"] = FORBIDDEN
    return successor(**NAMESPACES)


def launch(dead, ti, namespace, *, begins=False):
    dead.set_state(
        ti, "queued", executor_config={"pod_override": V1Pod(metadata=V1ObjectMeta(namespace=namespace))}
    )
    pod = dead.launch(ti)
    if begins:
        pod.become(m.alive())
        dead.begin(ti, pod)
    return pod


def look(heir) -> None:
    """Let the time of the next attempt come, and the attempt be made."""
    heir.wait(REFUSED_INTERVAL)
    heir.runtime.carry_out("PodSearch")
    heir.executor.sync()
    heir.relabel()


@pytest.mark.parametrize("error", [FORBIDDEN, BROKEN], ids=["forbidden", "broken"])
@pytest.mark.parametrize("begins", [True, False], ids=["running", "queued"])
def test_the_task_instances_of_the_other_namespace_are_adopted(dead, queued_ti, heir, begins, error):
    heir.cluster.unlisted["other"] = error
    here, there = queued_ti("here"), queued_ti("there")
    pod = launch(dead, here, "default", begins=begins)
    launch(dead, there, "other", begins=begins)
    assert heir.adopt(here, there) == []
    assert pod.labels["airflow-worker"] == heir.label
    assert (heir.occupied(here), heir.occupied(there)) == (True, True)
    assert set(heir.registry.adopting()) == {there.key}


@pytest.mark.parametrize("begins", [True, False], ids=["running", "queued"])
def test_the_others_are_adopted_once_it_is_permitted(dead, queued_ti, heir, begins):
    ti = queued_ti()
    pod = launch(dead, ti, "other", begins=begins)
    assert heir.adopt(ti) == []
    look(heir)
    assert pod.labels["airflow-worker"] != heir.label
    del heir.cluster.unlisted["other"]
    look(heir)
    assert pod.labels["airflow-worker"] == heir.label
    assert heir.occupied(ti)


@pytest.mark.parametrize("state", ["success", "failed", "up_for_retry", "skipped", "deferred", None])
@pytest.mark.parametrize("begins", [True, False], ids=["running", "queued"])
def test_what_has_ended_has_no_slot(dead, queued_ti, heir, begins, state):
    ti = queued_ti()
    launch(dead, ti, "other", begins=begins)
    heir.adopt(ti)
    heir.set_state(ti, state)
    look(heir)
    look(heir)
    assert not heir.occupied(ti)
    assert heir.registry.adopting() == {}
    assert heir.events() == {}


def test_a_worker_that_was_told_to_stop_keeps_its_slot(dead, queued_ti, heir):
    ti = queued_ti()
    launch(dead, ti, "other", begins=True)
    heir.adopt(ti)
    heir.begin_anew(ti, "restarting")
    look(heir)
    look(heir)
    assert [key.try_number for key in heir.registry.adopting()] == [1]


def test_a_revoked_one_that_has_ended_is_looked_for_no_longer(dead, queued_ti, heir):
    ti = queued_ti()
    launch(dead, ti, "other")
    heir.adopt(ti)
    heir.executor.revoke_task(ti=ti)
    heir.set_state(ti, "failed")
    look(heir)
    look(heir)
    lists = len(heir.runtime.launcher.listed)
    look(heir)
    assert len(heir.runtime.launcher.listed) == lists


@pytest.mark.parametrize(
    ("other", "default", "is_outage"),
    [
        (BUSY, None, True),
        (BUSY, FORBIDDEN, True),
        (PAGE, PAGE, True),
        (PAGE, FORBIDDEN, False),
        (BROKEN, BROKEN, True),
        (BROKEN, FORBIDDEN, False),
        (FORBIDDEN, BROKEN, False),
        (FORBIDDEN, None, False),
        (BROKEN, None, False),
    ],
)
def test_only_an_outage_of_the_api_server_is_waited_out(dead, queued_ti, heir, other, default, is_outage):
    """One that is overloaded refuses some requests, for seconds. Where all lists fail, it may be ill."""
    heir.cluster.unlisted = {"other": other, "default": default}
    ti = queued_ti()
    launch(dead, ti, "other")
    heir.adopt(ti)
    queued_at = heir.row(ti).queued_dttm
    for _ in range(30):
        look(heir)
    assert (heir.row(ti).queued_dttm > queued_at) is is_outage


def test_it_is_launched_again_after_that(dead, queued_ti, heir):
    ti = queued_ti()
    launch(dead, ti, "other")
    heir.adopt(ti)
    heir.executor.revoke_task(ti=ti)  # it was stuck in queued
    heir.hand_over(heir.row(ti))
    heir.wait(DELETION_TIMEOUT)
    heir.wait(1)
    assert len(heir.runtime.take("create")) == 1


def test_a_guess_about_a_silent_worker_is_passed_on(dead, queued_ti, start, session, cluster):
    cluster.unlisted["other"] = FORBIDDEN
    ti = queued_ti()
    launch(dead, ti, "other", begins=True)
    heir = start(
        make_scheduler_job(session), **NAMESPACES, KUBERNETES_RESILIENCE__INFRASTRUCTURE_RETRY_BUDGET="2"
    )
    heir.adopt(ti)
    heir.executor.change_state(ti.key, "failed")
    assert [state for state, _ in heir.events().values()] == ["failed"]


def test_it_is_told_again_and_again(dead, queued_ti, heir, caplog):
    ti = queued_ti()
    launch(dead, ti, "other")
    with caplog.at_level(logging.INFO):
        heir.adopt(ti)
        for _ in range(30):
            look(heir)
    told = [record for record in caplog.records if 'in the namespace "other"' in record.getMessage()]
    assert len(told) == 1 + 30 * REFUSED_INTERVAL // REMINDER_INTERVAL
    assert {record.levelname for record in told} == {"WARNING"}
    assert sum("Adopted 0" in record.getMessage() for record in caplog.records) == 0


def test_a_dead_schedulers_pods_in_the_other_namespace_are_collected(dead, queued_ti, heir):
    ti = queued_ti()
    pod = launch(dead, ti, "default", begins=True).become(m.succeeded())
    heir.set_state(ti, "success")
    heir.executor.sync()
    heir.runtime.carry_out("OrphanCollector")
    heir.executor.sync()
    heir.quiet()
    assert heir.runtime.take("clean_up") == [(pod.ref,)]
