# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Pods that are given up on while they could still start, and what waits for their end."""

from __future__ import annotations

from unittest.mock import Mock

import pytest

from airflow.providers.cncf.kubernetes_resilience.executors.creation.launch_queue import LaunchQueue
from airflow.providers.cncf.kubernetes_resilience.executors.deletion.pod_deletion import (
    CREATION_TIMEOUT,
    DELETION_TIMEOUT,
    GRACE_MARGIN,
)
from airflow.providers.cncf.kubernetes_resilience.pods.messages import PodObservation

from ....support import manifests as m
from ....support.harness import lock

REASONS = "ErrImagePull,RunContainerError"


@pytest.fixture
def impatient(start):
    return start(KUBERNETES_EXECUTOR__WORKER_POD_PENDING_FATAL_CONTAINER_STATE_REASONS=REASONS)


@pytest.fixture
def given_up(impatient, queued_ti):
    ti = queued_ti()
    pod = impatient.launch(ti)
    impatient.observe(pod, m.not_startable())
    return impatient, ti, pod


def test_it_is_deleted_and_its_replacement_waits(given_up):
    harness, ti, pod = given_up
    assert harness.runtime.take("delete") == [(pod.ref,)]
    assert harness.runtime.take("create") == []
    assert harness.occupied(ti)
    (entry,) = harness.ledger(ti)
    assert (entry["reason"], entry["context"]["metadata"]["container"]) == ("RunContainerError", "base")


@pytest.mark.parametrize("end", ["deleted", "gone", "failed", "succeeded"])
def test_until_it_is_gone(given_up, end):
    harness, _, pod = given_up
    match end:
        case "deleted":
            harness.deleted(pod.ref)
        case "gone":
            harness.vanish(pod)
        case "failed":
            harness.observe(pod, m.pod("Failed", deleted=True))
        case "succeeded":
            harness.observe(pod, m.succeeded())
    assert harness.created().launch_number == 2


def test_also_if_the_relaunch_fails_at_first(impatient, queued_ti, monkeypatch):
    pod = impatient.launch(queued_ti())
    with monkeypatch.context() as patch:
        patch.setattr(LaunchQueue, "relaunch", Mock(side_effect=LookupError("a defect")))
        impatient.observe(pod, m.not_startable())
        impatient.deleted(pod.ref)
    impatient.wait(60.0)
    assert impatient.created().launch_number == 2


@pytest.mark.parametrize("grace_seconds", [5, 30, 600])
def test_or_until_its_grace_period_is_over(given_up, grace_seconds):
    harness, _, pod = given_up
    harness.wait(100)  # the API server does not let the delete call through
    harness.accepted(pod.ref, grace_seconds)
    harness.wait(grace_seconds + GRACE_MARGIN - 0.1)
    assert harness.runtime.take("create") == []
    harness.wait(0.2)
    assert harness.created().launch_number == 2


def test_a_deletion_that_is_seen_was_accepted(given_up):
    harness, _, pod = given_up
    harness.observe(pod, m.pod(deleted=True))  # the answer to the delete call is late
    harness.wait(30 + GRACE_MARGIN)
    assert harness.created().launch_number == 2


def test_or_until_nobody_can_expect_that_it_can_be_deleted(given_up):
    harness, _, _ = given_up
    harness.wait(DELETION_TIMEOUT - 0.1)
    assert harness.runtime.take("create") == []
    harness.wait(0.2)
    assert harness.created().launch_number == 2


def test_an_api_server_that_is_away_can_delete_nothing(given_up):
    harness, _, _ = given_up
    harness.runtime.is_away = True
    harness.wait(DELETION_TIMEOUT + 1)
    harness.runtime.is_away = False
    harness.wait(CREATION_TIMEOUT - 0.1)
    assert harness.runtime.take("create") == []
    harness.wait(0.2)
    assert harness.created().launch_number == 2


def test_an_image_that_is_pulled_after_all(impatient, queued_ti):
    ti = queued_ti()
    pod = impatient.launch(ti)
    failing, fine = (
        PodObservation(pod.become(like).facts()) for like in (m.image_pull_error(), m.starting())
    )
    impatient.send(failing, fine)
    assert (impatient.ledger(ti), impatient.runtime.take("delete")) == ([], [])


def test_a_worker_that_starts_before_it_is_decided(impatient, queued_ti):
    ti = queued_ti()
    pod = impatient.launch(ti)
    with lock(ti):
        impatient.observe(pod, m.image_pull_error())
    impatient.begin(ti, pod)
    impatient.executor.sync()
    assert (impatient.ledger(ti), impatient.runtime.take("delete"), impatient.events()) == ([], [], {})
    impatient.observe(pod, m.alive())
    impatient.observe(pod, m.out_of_memory())
    assert [state for state, _ in impatient.events().values()] == ["failed"]
