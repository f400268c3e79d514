# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Watches."""

from __future__ import annotations

from typing import Any

import pytest

from cluster_lab.conformance import Api, Target, check_status


def test_a_watch_from_a_list_shows_every_change_after_it(api: Api) -> None:
    api.create("before")
    version = api.version()
    with api.watch(resourceVersion=version) as events:
        created = api.create("a")
        changed = api.patch("a", {"metadata": {"labels": {"k": "v"}}}).json()
        api.delete("a", gracePeriodSeconds=0)

        (added, first), (modified, second), (marked, _), (deleted, last) = events.take(4)

    assert [added, modified, marked, deleted] == ["ADDED", "MODIFIED", "MODIFIED", "DELETED"]
    assert (first, second) == (created, changed)
    assert last["metadata"]["uid"] == created["metadata"]["uid"]
    assert int(last["metadata"]["resourceVersion"]) > int(changed["metadata"]["resourceVersion"])


def test_a_watch_replays_what_happened_since_its_version(api: Api) -> None:
    version = api.version()
    api.create("a")
    api.create("b")

    with api.watch(resourceVersion=version) as events:
        assert events.names(2) == [("ADDED", "a"), ("ADDED", "b")]


@pytest.mark.parametrize("version", [None, "", "0"])
def test_a_watch_from_nowhere_begins_with_what_is_there(api: Api, version: str | None) -> None:
    api.create("a")
    api.create("b")

    query: dict[str, Any] = {} if version is None else {"resourceVersion": version}
    with api.watch(**query) as events:
        assert sorted(events.names(2)) == [("ADDED", "a"), ("ADDED", "b")]
        api.create("c")
        assert events.names(1) == [("ADDED", "c")]


def test_a_version_too_old_is_an_error_in_the_stream(api: Api) -> None:
    with api.watch(resourceVersion="1") as events:
        assert events.response.status_code == 200
        everything = list(events)

    assert [kind for kind, _ in everything] == ["ERROR"]
    status = check_status(everything[0][1], 410, "Expired")
    assert status["message"].startswith("too old resource version: 1 (")


def test_a_watch_ends_when_its_time_is_up(api: Api) -> None:
    with api.watch(resourceVersion=api.version(), timeoutSeconds=1) as events:
        assert list(events) == []


def test_bookmarks_bring_a_quiet_watch_up_to_date(api: Api) -> None:
    version = api.version()
    query: dict[str, Any] = {"resourceVersion": version, "labelSelector": "app=x", "timeoutSeconds": "4"}

    with api.watch(allowWatchBookmarks="true", **query) as events:
        # What happened before a watch began is not always in its bookmarks.
        api.create("a", {"app": "other"})
        everything = list(events)

    assert {kind for kind, _ in everything} == {"BOOKMARK"}
    bookmark = everything[-1][1]
    assert (bookmark["kind"], bookmark["apiVersion"]) == ("Pod", "v1")
    assert int(bookmark["metadata"]["resourceVersion"]) > int(version)
    assert "name" not in bookmark["metadata"]


def test_all_namespaces_are_seen_from_the_root(api: Api) -> None:
    other = Api.in_new_namespace(api.http)
    with api.watch("/api/v1/pods", resourceVersion=api.version(), labelSelector="both=yes") as events:
        other.create("a", {"both": "yes"})
        api.create("b", {"both": "yes"})
        assert events.names(2) == [("ADDED", "a"), ("ADDED", "b")]
    other.clean_up()


def test_an_object_that_starts_to_match_is_added(api: Api) -> None:
    api.create("a")
    with api.watch(resourceVersion=api.version(), labelSelector="app=x") as events:
        changed = api.patch("a", {"metadata": {"labels": {"app": "x"}}}).json()
        assert next(events) == ("ADDED", changed)


def test_an_object_that_stops_to_match_is_deleted_as_it_last_matched(api: Api) -> None:
    before = api.create("a", {"app": "x"})
    with api.watch(resourceVersion=api.version(), labelSelector="app=x") as events:
        after = api.patch("a", {"metadata": {"labels": {"app": "y"}}}).json()
        kind, gone = next(events)

    assert kind == "DELETED"
    assert gone["metadata"]["labels"] == {"app": "x"}
    assert gone["metadata"]["uid"] == before["metadata"]["uid"]
    assert gone["metadata"]["resourceVersion"] == after["metadata"]["resourceVersion"]


def test_a_change_that_never_matches_is_not_seen(api: Api) -> None:
    api.create("a", {"app": "y"})
    with api.watch(resourceVersion=api.version(), labelSelector="app=x") as events:
        api.patch("a", {"metadata": {"annotations": {"k": "v"}}})
        api.delete("a", gracePeriodSeconds=0)
        api.create("b", {"app": "x"})
        assert events.names(1) == [("ADDED", "b")]


def test_a_node_sees_a_pod_when_it_is_bound_to_it(api: Api) -> None:
    node = api.create_node()
    api.create("a")
    query: dict[str, Any] = {"resourceVersion": api.version(), "fieldSelector": f"spec.nodeName={node}"}
    with api.watch("/api/v1/pods", **query) as events:
        api.bind("a", node).raise_for_status()
        assert events.names(1) == [("ADDED", "a")]


def test_compaction_does_not_disturb_an_open_watch(api: Api, target: Target) -> None:
    with api.watch(resourceVersion=api.version()) as events:
        api.create("a")
        target.compact()
        api.create("b")
        assert events.names(2) == [("ADDED", "a"), ("ADDED", "b")]
