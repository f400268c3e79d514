# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Events count for the current launch of a task instance and for nothing else."""

from __future__ import annotations

import itertools
import uuid

import pytest

from airflow.providers.cncf.kubernetes_resilience.pods.messages import (
    PodConfirmed,
    PodCreated,
    PodObservation,
)

from ....support import manifests as m
from ....support.cluster import Pod


@pytest.fixture
def relaunched(harness, queued_ti):
    """Give a task that runs in its second pod, while the first one, which failed, is still there."""
    ti = queued_ti()
    first = harness.launch(ti)
    harness.observe(first, m.start_error())
    second = harness.created()
    harness.observe(second, m.alive())
    harness.begin(ti, second)
    return ti, first, second


def assert_unharmed(harness, ti):
    assert harness.events() == {}
    assert harness.occupied(ti)
    assert len(harness.ledger(ti)) == 1
    assert harness.row(ti).state == "running"
    assert harness.runtime.take("create") == []


@pytest.mark.parametrize("times", [1, 3])
def test_replays_of_the_first_pod(harness, relaunched, times):
    ti, first, _ = relaunched
    harness.send(*[PodObservation(first.facts())] * times)
    assert_unharmed(harness, ti)


def test_the_first_pod_is_removed_with_its_node(harness, relaunched):
    ti, first, _ = relaunched
    harness.observe(
        first, m.pod("Failed", reason="NodeLost", conditions=(m.disruption("DeletionByPodGC"),), deleted=True)
    )
    harness.vanish(first)
    assert_unharmed(harness, ti)


@pytest.mark.parametrize("facts_known", [True, False])
def test_a_late_answer_about_the_first_pod(harness, relaunched, facts_known):
    ti, first, _ = relaunched
    harness.send(PodConfirmed(first.ref, first.facts() if facts_known else None))
    harness.send(PodConfirmed(first.ref, None))
    harness.send(PodCreated(first.launch_id, first.facts()))
    assert_unharmed(harness, ti)


def test_one_death_told_in_any_order_is_one_death(harness, queued_ti):
    deaths = [m.pod(containers=[m.base(m.CREATING)]), m.start_error(), m.start_error()]
    for number, order in enumerate(itertools.permutations(deaths)):
        ti = queued_ti(f"dag-{number}")
        first = harness.launch(ti)
        told = [PodObservation(first.become(like).facts()) for like in order]
        harness.send(*told, PodObservation(first.facts(), gone=True))
        harness.send(*told)
        second = harness.created()
        harness.send(*told)
        assert second.launch_number == 2
        assert len(harness.ledger(ti)) == 1
        assert harness.events() == {}


def test_an_event_may_come_before_the_answer_to_the_create_call(harness, called):
    ti, (launch_id, body) = called
    pod = Pod(body)
    harness.observe(pod, m.evicted())
    harness.send(PodCreated(launch_id, pod.facts()))
    assert harness.created().launch_number == 2
    assert [entry["worker_uid"] for entry in harness.ledger(ti)] == [pod.ref.uid]


def test_the_second_pod_of_a_create_call_counts_if_the_first_is_gone(harness, called):
    """A call without an answer was carried out too."""
    ti, (launch_id, body) = called
    first, second = Pod(body), Pod(body)
    harness.observe(first, m.pod("Pending", [m.base(m.CREATING)], deleted=True))
    harness.send(PodConfirmed(first.ref, None))
    harness.send(PodCreated(launch_id, second.facts()))
    harness.observe(second, m.alive())
    harness.wait(60)
    assert (harness.ledger(ti), harness.occupied(ti)) == ([], True)


def test_another_pod_of_the_same_name_is_not_taken_for_the_launch(harness, called):
    ti, (_, body) = called
    other = Pod(body)
    other.annotations["airflow-resilience/launch-id"] = uuid.uuid4().hex
    harness.observe(other, m.evicted())
    assert (harness.ledger(ti), harness.events()) == ([], {})


def test_a_stray_pod_that_has_ended_is_tidied_and_nothing_else(harness, launched):
    ti, pod = launched
    stray = Pod(pod.manifest)
    harness.observe(stray, m.worker_error())
    harness.quiet()
    assert harness.runtime.take("mark_done") == [(stray.ref,)]
    harness.observe(stray, m.succeeded())
    harness.quiet()
    assert harness.runtime.take("clean_up") == [(stray.ref,)]
    assert (harness.ledger(ti), harness.events(), harness.occupied(ti)) == ([], {}, True)
