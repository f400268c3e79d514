# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""States of a pod that are its end if they last: no node for it, and a sidecar that outlives its worker."""

from __future__ import annotations

import pytest

from airflow.providers.cncf.kubernetes_resilience.executors.failures.record import REPORT_GRACE
from airflow.providers.cncf.kubernetes_resilience.executors.failures.situation import SIDECAR_GRACE

from ....support import manifests as m
from ....support.harness import lock

TIMEOUT = 60.0


@pytest.fixture
def impatient(start):
    return start(KUBERNETES_RESILIENCE__UNSCHEDULABLE_TIMEOUT=f"{TIMEOUT:g}")


# ---------------------------------------------------------------------------------------------- unschedulable


def test_a_pod_that_stays_unschedulable_is_given_up(impatient, queued_ti):
    ti = queued_ti()
    pod = impatient.launch(ti)
    impatient.observe(pod, m.unschedulable())
    impatient.wait(TIMEOUT - 0.1)
    assert (impatient.ledger(ti), impatient.runtime.take("delete")) == ([], [])
    impatient.wait(0.2)
    assert impatient.runtime.take("delete") == [(pod.ref,)]
    assert impatient.runtime.take("create") == []
    impatient.deleted(pod.ref)
    assert impatient.created().launch_number == 2

    (entry,) = impatient.ledger(ti)
    assert (entry["reason"], entry["action"], entry["launch"]) == ("Unschedulable", "relaunch", 1)
    known = entry["context"]["metadata"]
    assert (known["cause"], known["message"]) == (
        "unschedulable-resources",
        "0/3 nodes are available: 3 Insufficient cpu.",
    )


def test_its_time_begins_anew_once_it_was_not_unschedulable_any_more(impatient, queued_ti):
    ti = queued_ti()
    pod = impatient.launch(ti)
    for like in (m.unschedulable(), m.gated(), m.unschedulable()):
        impatient.observe(pod, like)
        impatient.wait(TIMEOUT - 1)
    assert impatient.ledger(ti) == []
    impatient.wait(1)
    assert len(impatient.ledger(ti)) == 1


def test_it_is_waited_for_without_the_option(harness, queued_ti):
    ti = queued_ti()
    harness.observe(harness.launch(ti), m.unschedulable())
    harness.wait(1e6)
    assert harness.ledger(ti) == []


def test_a_pod_that_is_adopted_has_its_time_from_then_on(impatient, queued_ti, successor):
    ti = queued_ti()
    impatient.observe(impatient.launch(ti), m.unschedulable())
    impatient.wait(TIMEOUT - 1)
    heir = successor(KUBERNETES_RESILIENCE__UNSCHEDULABLE_TIMEOUT=f"{TIMEOUT:g}")
    heir.adopt(ti)
    heir.wait(TIMEOUT - 1)
    assert heir.ledger(ti) == []
    heir.wait(1)
    assert len(heir.ledger(ti)) == 1


def test_a_rule_can_be_about_it(start, queued_ti, with_policies):
    policies = with_policies(
        "policies:\n- name: nodes\n  rules:\n"
        "  - {name: none, onReasons: [Unschedulable], onTerminationMessage: {pattern: Insufficient},"
        " action: Fail}\ndefaultPolicy: nodes\n"
    )
    harness = start(**policies, KUBERNETES_RESILIENCE__UNSCHEDULABLE_TIMEOUT="5")
    ti = queued_ti()
    harness.observe(harness.launch(ti), m.unschedulable())
    harness.wait(5)
    assert [(entry["rule"], entry["action"]) for entry in harness.ledger(ti)] == [("none", "fail")]


@pytest.mark.parametrize("option", ["UNSCHEDULABLE_TIMEOUT", "PENDING_TIMEOUT"])
def test_the_time_of_an_outage_does_not_count(start, queued_ti, option):
    """Nothing is given a node while the API server is away, and nothing is seen to start."""
    harness = start(**{f"KUBERNETES_RESILIENCE__{option}": f"{TIMEOUT:g}"})
    ti = queued_ti()
    pod = harness.launch(ti)
    harness.observe(pod, m.unschedulable())
    harness.runtime.is_away = True
    for _ in range(3):
        harness.wait(TIMEOUT)
    harness.runtime.is_away = False
    harness.wait(TIMEOUT - 1)
    assert (harness.ledger(ti), harness.runtime.take("delete")) == ([], [])
    harness.wait(1)
    assert len(harness.ledger(ti)) == 1


# ---------------------------------------------------------------------------------------------------- pending


HANGS_IN_INIT = m.pod("Pending", [m.base(m.PREPARING)], init=[m.status_of("vault", m.running())])


@pytest.mark.parametrize(
    ("like", "cause"),
    [(HANGS_IN_INIT, "init-container-running"), (m.unschedulable(), "unschedulable-resources")],
    ids=["init", "unschedulable"],
)
def test_a_pod_that_stays_pending_is_given_up(start, queued_ti, like, cause):
    limited, ti = start(KUBERNETES_RESILIENCE__PENDING_TIMEOUT=f"{TIMEOUT:g}"), queued_ti()
    pod = limited.launch(ti)
    limited.observe(pod, like)
    limited.wait(TIMEOUT - 0.1)
    assert limited.ledger(ti) == []
    limited.wait(0.2)
    assert [(row["action"], row["context"]["metadata"]["cause"]) for row in limited.ledger(ti)] == [
        ("relaunch", cause)
    ]
    assert limited.runtime.take("delete") == [(pod.ref,)]


# ------------------------------------------------------------------------- a sidecar that outlives its worker


def test_a_launch_whose_sidecar_runs_on_is_replaced(harness, launched):
    ti, pod = launched
    harness.observe(pod, m.lingering(m.terminated(128, "StartError")))
    harness.wait(SIDECAR_GRACE - 0.1)
    assert harness.ledger(ti) == []
    harness.wait(0.2)
    assert harness.created().launch_number == 2
    (entry,) = harness.ledger(ti)
    assert (entry["reason"], entry["context"]["metadata"]["cause"]) == ("StartError", "start-error")


@pytest.mark.parametrize("like", [m.lingering(), m.lingering(phase="Pending", sidecar=m.CREATING)])
def test_a_task_that_ran_in_it_is_reported(harness, queued_ti, like):
    ti = queued_ti(retries=1)
    pod = harness.run(ti)
    harness.observe(pod, like)
    harness.wait(SIDECAR_GRACE)
    ((key, (state, info)),) = harness.events().items()
    assert (key, state) == (ti.key, "failed")
    assert "worker container base terminated" in info
    assert not harness.occupied(ti)


def test_who_ends_the_pod_has_time_to_say_why(harness, launched):
    ti, pod = launched
    harness.observe(pod, m.lingering())
    harness.wait(SIDECAR_GRACE - 1)
    harness.observe(pod, m.evicted_by_kubelet())
    (entry,) = harness.ledger(ti)
    assert (entry["reason"], entry["action"]) == ("Evicted", "relaunch")
    assert harness.created().launch_number == 2
    harness.quiet()
    assert harness.runtime.take("mark_done") == [(pod.ref,)]


def test_a_clean_up_does_not_excuse_the_worker(harness, launched):
    ti, pod = launched
    with lock(ti):
        harness.observe(pod, m.lingering())
        harness.wait(SIDECAR_GRACE)
        harness.observe(pod, m.lingering(deleted=True))
        harness.vanish(pod)
    harness.executor.sync()
    assert [entry["rule"] for entry in harness.ledger(ti)] == ["excluded"]


# --------------------------------------------------------------------- one that outlives a worker's good end

DONE = m.lingering(m.terminated(0, "Completed"))


def test_a_worker_that_has_exited_with_0_beside_a_sidecar_and_never_started_its_task(harness, launched):
    """It was told to go before it had begun; the sidecar keeps the pod Running."""
    ti, pod = launched
    harness.observe(pod, DONE)
    harness.wait(SIDECAR_GRACE - 0.1)
    assert harness.ledger(ti) == []
    harness.wait(0.2)
    assert [entry["reason"] for entry in harness.ledger(ti)] == ["ExitedWithoutStarting"]
    harness.quiet()
    assert harness.runtime.take("stop_and_keep") == [(pod.ref,)]


@pytest.mark.parametrize(
    ("like", "why"),
    [(DONE, ("ExitedWithoutStarting", "launch-failure")), (m.lingering(), ("Error", "excluded"))],
    ids=["done", "failed"],
)
def test_the_removal_of_its_pod_is_not_why_it_has_ended(harness, launched, like, why):
    ti, pod = launched
    harness.observe(pod, like)
    harness.vanish(pod)
    assert [(entry["reason"], entry["rule"]) for entry in harness.ledger(ti)] == [why]


def test_a_deletion_that_was_seen_may_be(harness, launched):
    ti, pod = launched
    harness.observe(pod, m.lingering(m.COMPLETED, deleted=True))
    harness.vanish(pod)
    (entry,) = harness.ledger(ti)
    assert entry["context"]["metadata"]["cause"] == "deleted"


@pytest.mark.parametrize("state", ["success", "failed", "up_for_retry", "deferred", "running"])
@pytest.mark.parametrize(("delete", "command"), [("True", "clean_up"), ("False", "stop_and_keep")])
def test_a_worker_that_is_done_beside_it_gives_its_slot_back(start, queued_ti, state, delete, command):
    """As one whose pod has succeeded does; the sidecar would hold slot and pod for ever."""
    harness = start(KUBERNETES_EXECUTOR__DELETE_WORKER_PODS=delete)
    ti = queued_ti()
    pod = harness.run(ti)
    harness.set_state(ti, state)
    harness.observe(pod, DONE)
    harness.wait(SIDECAR_GRACE - 0.1)
    assert (harness.occupied(ti), harness.events()) == (True, {})
    harness.wait(0.2)
    if state == "running":  # its report may be under way; then its process was killed alone
        assert harness.events() == {}
        harness.wait(REPORT_GRACE)
        state, command = "failed", "stop_and_keep"
    assert [state for state, _ in harness.events().values()] == [state]
    assert (harness.occupied(ti), harness.ledger(ti)) == (False, [])
    harness.quiet()
    assert harness.runtime.take(command) == [(pod.ref,)]


def test_one_that_is_started_again_is_not_done(harness, queued_ti):
    ti = queued_ti()
    harness.observe(harness.launch(ti), m.lingering(m.COMPLETED, restart_policy="Always"))
    harness.wait(SIDECAR_GRACE * 10)
    assert (harness.ledger(ti), harness.occupied(ti)) == ([], True)


def test_after_a_success_only_always_starts_it_again(harness, begun):
    ti, pod = begun
    harness.set_state(ti, "success")
    harness.observe(pod, m.lingering(m.COMPLETED, restart_policy="OnFailure"))
    harness.wait(SIDECAR_GRACE)
    assert not harness.occupied(ti)
    harness.quiet()
    assert harness.runtime.take("clean_up") == [(pod.ref,)]
