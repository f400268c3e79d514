# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Deletion: grace, force and preconditions."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from cluster_lab.conformance import Api, failure


def _moment(text: str) -> datetime:
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%S%z")


def test_a_missing_pod_cannot_be_deleted(api: Api) -> None:
    failure(api.delete("a"), 404, "NotFound")


def test_a_pod_on_a_node_is_given_its_grace_period(api: Api) -> None:
    created = api.create_bound("a", terminationGracePeriodSeconds=60)

    response = api.delete("a")

    assert response.status_code == 200
    metadata = response.json()["metadata"]
    assert metadata["uid"] == created["metadata"]["uid"]
    assert metadata["deletionGracePeriodSeconds"] == 60
    left = _moment(metadata["deletionTimestamp"]) - datetime.now(UTC)
    assert timedelta(seconds=30) < left < timedelta(seconds=90)
    assert api.get("a")["metadata"] == metadata


@pytest.mark.parametrize("way", ["body", "query"])
def test_the_caller_may_choose_the_grace_period(api: Api, way: str) -> None:
    api.create_bound("a")

    if way == "body":
        response = api.delete("a", gracePeriodSeconds=7)
    else:
        response = api.http.delete(api.path("a"), params={"gracePeriodSeconds": 7})

    assert response.json()["metadata"]["deletionGracePeriodSeconds"] == 7


def test_a_later_delete_may_shorten_the_grace_period(api: Api) -> None:
    api.create_bound("a")
    first = api.delete("a", gracePeriodSeconds=60).json()["metadata"]

    second = api.delete("a", gracePeriodSeconds=20).json()["metadata"]

    assert second["deletionGracePeriodSeconds"] == 20
    sooner = _moment(first["deletionTimestamp"]) - _moment(second["deletionTimestamp"])
    assert sooner == timedelta(seconds=40)


@pytest.mark.parametrize("options", [{}, {"gracePeriodSeconds": 60}, {"gracePeriodSeconds": 20}])
def test_a_later_delete_may_not_lengthen_it(api: Api, options: dict[str, Any]) -> None:
    api.create_bound("a")
    first = api.delete("a", gracePeriodSeconds=20).json()

    assert api.delete("a", **options).json() == first
    assert api.get("a") == first


def test_a_pod_without_a_node_is_gone_at_once(api: Api) -> None:
    api.create("a", terminationGracePeriodSeconds=60)

    response = api.delete("a")

    assert (response.status_code, response.json()["kind"]) == (200, "Pod")
    assert api.names() == []


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_pod_that_has_ended_is_gone_at_once(api: Api, phase: str) -> None:
    api.create_bound("a")
    api.set_status("a", phase=phase)

    api.delete("a", gracePeriodSeconds=60).raise_for_status()

    assert api.names() == []


def test_a_force_delete_is_a_mark_and_a_removal(api: Api) -> None:
    """Removing a pod at once is still two writes: a watch sees the deletionTimestamp before the end."""
    created = api.create_bound("a")
    with api.watch(resourceVersion=api.version()) as events:
        assert api.delete("a", gracePeriodSeconds=0).status_code == 200
        (first, marked), (second, gone) = events.take(2)

    assert (first, second) == ("MODIFIED", "DELETED")
    for obj in (marked, gone):
        assert obj["metadata"]["uid"] == created["metadata"]["uid"]
        assert obj["metadata"]["deletionGracePeriodSeconds"] == 0
        assert "deletionTimestamp" in obj["metadata"]
        assert obj["status"]["phase"] == "Pending"
    versions = [int(obj["metadata"]["resourceVersion"]) for obj in (created, marked, gone)]
    assert versions == sorted(set(versions))
    failure(api.http.get(api.path("a")), 404, "NotFound")


def test_force_ends_a_graceful_deletion(api: Api) -> None:
    api.create_bound("a")
    api.delete("a", gracePeriodSeconds=60).raise_for_status()
    with api.watch(resourceVersion=api.version()) as events:
        api.delete("a", gracePeriodSeconds=0).raise_for_status()
        kinds = [kind for kind, _ in events.take(2)]

    assert kinds == ["MODIFIED", "DELETED"]
    assert api.names() == []


class TestPreconditions:
    def test_another_uid_is_a_conflict(self, api: Api) -> None:
        old = api.create("a")["metadata"]["uid"]
        api.delete("a").raise_for_status()
        api.create("a")

        failure(api.delete("a", preconditions={"uid": old}), 409, "Conflict")
        assert api.names() == ["a"]

    def test_another_version_is_a_conflict(self, api: Api) -> None:
        version = api.create("a")["metadata"]["resourceVersion"]
        api.patch("a", {"metadata": {"labels": {"k": "v"}}}).raise_for_status()

        response = api.delete("a", preconditions={"resourceVersion": version})

        failure(response, 409, "Conflict")
        assert api.names() == ["a"]

    def test_no_pod_has_the_version_zero(self, api: Api) -> None:
        """What the executor stands on that has a pod read before it is deleted. In lists it means any."""
        metadata = api.create("a")["metadata"]

        response = api.delete("a", preconditions={"uid": metadata["uid"], "resourceVersion": "0"})

        failure(response, 409, "Conflict")
        assert api.names() == ["a"]

    def test_both_have_to_be_right(self, api: Api) -> None:
        api.create_bound("a")
        metadata = api.get("a")["metadata"]
        right = {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}

        failure(api.delete("a", preconditions={**right, "uid": "another"}), 409, "Conflict")
        assert api.get("a")["metadata"] == metadata
        assert api.delete("a", preconditions=right).json()["metadata"]["deletionGracePeriodSeconds"] == 30

    def test_a_status_that_was_reported_since_is_another_version(self, api: Api) -> None:
        """What the executor stands on that deletes a pod only if it has not started."""
        api.create_bound("a")
        metadata = api.get("a")["metadata"]
        preconditions = {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}
        api.set_status("a", phase="Running")

        failure(api.delete("a", preconditions=preconditions), 409, "Conflict")

        assert "deletionTimestamp" not in api.get("a")["metadata"]

    def test_they_hold_for_a_pod_being_deleted_too(self, api: Api) -> None:
        api.create_bound("a")
        api.delete("a").raise_for_status()

        response = api.delete("a", gracePeriodSeconds=0, preconditions={"uid": "another"})

        failure(response, 409, "Conflict")
        assert api.names() == ["a"]
