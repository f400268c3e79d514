# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""What is not understood is not acted on."""

from __future__ import annotations

import pytest

from airflow.providers.cncf.kubernetes_resilience.pods.messages import PodObservation

from ....support import manifests as m

NOTHING_KNOWN = {
    "no status": None,
    "empty status": {},
    "null lists": {"phase": "Pending", "conditions": None, "containerStatuses": None},
    "no phase": {"containerStatuses": [{"name": "base", "state": {"running": {}}}]},
    "unknown phase": {"phase": "Hibernating", "reason": "Cold"},
    "phase Unknown": {"phase": "Unknown", "reason": "NodeLost"},
    "phase of another type": {"phase": 7},
    "container without state": {"phase": "Pending", "containerStatuses": [{"name": "base"}]},
    "container without name": {"phase": "Running", "containerStatuses": [{"state": {"running": {}}}]},
    "null containers": {"phase": "Running", "containerStatuses": [None, "x", {"name": None, "state": None}]},
    "unknown waiting reason": {
        "phase": "Pending",
        "containerStatuses": [{"name": "base", "state": {"waiting": {"reason": "Sulking"}}}],
    },
    "unknown condition": {"phase": "Running", "conditions": [{"type": "Odd", "status": "Perhaps"}, {}, None]},
}


@pytest.mark.parametrize("state", ["queued", "running"])
@pytest.mark.parametrize("status", NOTHING_KNOWN.values(), ids=NOTHING_KNOWN)
def test_it_changes_no_task(harness, launched, status, state, capsys):
    ti, pod = launched
    harness.set_state(ti, state)
    pod.manifest["status"] = status
    capsys.readouterr()
    harness.observe(pod)
    assert (harness.events(), harness.ledger(ti), harness.occupied(ti)) == ({}, [], True)
    assert harness.runtime.take("create") == []
    assert "Traceback" not in capsys.readouterr().out


@pytest.mark.parametrize(
    "metadata", [{"annotations": None}, {"labels": None}, {"annotations": {}, "labels": {}}]
)
def test_a_pod_is_known_by_its_uid_alone(harness, launched, metadata):
    _, pod = launched
    pod.manifest["metadata"] |= metadata
    harness.observe(pod, m.evicted())
    assert harness.created().launch_number == 2


@pytest.mark.parametrize("metadata", [{"annotations": None}, {"labels": None}])
def test_a_strange_pod_that_nobody_knows(harness, launched, metadata):
    ti, pod = launched
    pod.manifest["metadata"] |= {"uid": "somebody-else", **metadata}
    harness.observe(pod, m.evicted())
    harness.vanish(pod)
    assert (harness.events(), harness.ledger(ti), harness.occupied(ti)) == ({}, [], True)


def test_a_container_that_ended_without_an_exit_code(harness, queued_ti):
    ti = queued_ti()
    harness.observe(harness.launch(ti), m.pod("Failed", [m.base({"terminated": {"reason": None}})]))
    assert harness.created().launch_number == 2
    (entry,) = harness.ledger(ti)
    assert "None" not in str([value for value in entry.values() if value is not None])


def test_an_unknown_reason_is_named_as_it_is(harness, queued_ti):
    ti = queued_ti()
    harness.observe(harness.launch(ti), m.pod("Failed", reason="Sulking; since 9am"))
    (entry,) = harness.ledger(ti)
    assert entry["reason"] == "Sulking; since 9am"


def test_a_message_that_cannot_be_handled_does_not_take_others_with_it(harness, launched, caplog):
    _, pod = launched
    harness.send(PodObservation(None), PodObservation(pod.become(m.evicted()).facts()))
    assert harness.created().launch_number == 2
    assert "Receive of PodObservation(facts=None, gone=False) has failed and is given up" in caplog.text
