# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import httpx
import pytest

from cluster_lab.apiserver import ApiServer, RequestInfo
from cluster_lab.conformance import Api, creating, failure, pod
from testbed.waiting import wait_for

IMPATIENT = 0.3
FOR_EVER = 3600.0


def _creates_a_pod(info: RequestInfo) -> bool:
    return (info.verb, info.resource) == ("create", "pods")


def test_requests_are_refused_as_often_as_asked(server: ApiServer, api: Api) -> None:
    server.faults.fail(429, times=2, when=_creates_a_pod, retry_after=3)

    for _ in range(2):
        response = api.http.post(api.pods, json=pod("a"))
        status = failure(response, 429, "TooManyRequests")
        assert response.headers["Retry-After"] == "3"
        assert status["details"]["retryAfterSeconds"] == 3

    assert api.http.get(api.path("a")).status_code == 404
    assert api.create("a")


@pytest.mark.parametrize(("code", "reason"), [(500, "InternalError"), (503, "ServiceUnavailable")])
def test_other_requests_are_not_hit(server: ApiServer, api: Api, code: int, reason: str) -> None:
    server.faults.fail(code, when=_creates_a_pod)

    assert api.names() == []
    failure(api.http.post(api.pods, json=pod("a")), code, reason)


@pytest.mark.parametrize("status", [302, 404, 520])
def test_a_page_is_no_answer_of_an_api_server(server: ApiServer, api: Api, status: int) -> None:
    server.faults.fail(status, when=_creates_a_pod, page="<html>who are you?</html>")

    response = api.http.post(api.pods, json=pod("a"))

    assert (response.status_code, response.text) == (status, "<html>who are you?</html>")
    assert response.headers["Content-Type"].startswith("text/html")
    assert api.names() == []


def test_a_request_whose_reply_is_lost_has_happened(server: ApiServer, api: Api) -> None:
    server.faults.lose_reply(when=_creates_a_pod)

    with pytest.raises(httpx.RemoteProtocolError):
        api.http.post(api.pods, json=pod("a"))

    failure(api.http.post(api.pods, json=pod("a")), 409, "AlreadyExists")


def test_a_late_reply_is_to_a_request_that_has_happened(server: ApiServer, api: Api) -> None:
    server.faults.delay(FOR_EVER, when=_creates_a_pod, reply=True)

    with creating("a", server.url) as client:
        wait_for("there is the pod", lambda: api.names() == ["a"], show=api.names)
        client.settimeout(IMPATIENT)
        with pytest.raises(TimeoutError):
            client.recv(1)

    assert api.names() == ["a"]


def test_a_client_that_gives_up_first_prevents_a_late_request(server: ApiServer, api: Api) -> None:
    server.faults.delay(FOR_EVER, when=_creates_a_pod)

    with pytest.raises(httpx.ReadTimeout):
        api.http.post(api.pods, json=pod("a"), timeout=IMPATIENT)

    assert api.names() == []


def test_faults_can_be_taken_back(server: ApiServer, api: Api) -> None:
    server.faults.fail(500, times=99)

    server.faults.clear()

    assert api.names() == []


def test_a_cut_watch_breaks_off(server: ApiServer, api: Api) -> None:
    with api.watch() as events:
        api.create("a")
        assert events.names(1) == [("ADDED", "a")]
        server.faults.cut_watches()
        with pytest.raises(httpx.RemoteProtocolError):
            next(events)


def test_only_chosen_watches_are_cut(server: ApiServer, api: Api) -> None:
    with api.watch() as pods, api.watch("/api/v1/nodes") as nodes:
        server.faults.cut_watches(lambda info: info.resource == "nodes")
        with pytest.raises(httpx.RemoteProtocolError):
            next(nodes)
        api.create("a")
        assert pods.names(1) == [("ADDED", "a")]


def test_a_frozen_watch_is_silent_and_a_new_one_is_not(server: ApiServer, api: Api) -> None:
    with api.watch(patience=IMPATIENT) as frozen:
        server.faults.freeze_watches()
        api.create("a")
        with api.watch() as fresh:
            assert fresh.names(1) == [("ADDED", "a")]
        with pytest.raises(httpx.ReadTimeout):
            next(frozen)


def test_who_has_no_patience_with_events_has_it_until_the_watch_begins(server: ApiServer, api: Api) -> None:
    server.faults.delay(3 * IMPATIENT, when=lambda info: info.verb == "watch")
    with api.watch(patience=IMPATIENT) as events, pytest.raises(httpx.ReadTimeout):
        next(events)


def test_a_thawed_watch_catches_up(server: ApiServer, api: Api) -> None:
    with api.watch() as events:
        server.faults.freeze_watches()
        api.create("a")
        api.create("b")
        server.faults.thaw_watches()
        assert events.names(2) == [("ADDED", "a"), ("ADDED", "b")]


def test_compaction_expires_versions(server: ApiServer, api: Api) -> None:
    version = api.version()
    api.create("a")
    server.faults.compact()

    with api.watch(resourceVersion=version) as events:
        assert [kind for kind, _ in events] == ["ERROR"]


def test_watches_of_clients_that_left_are_closed(server: ApiServer, api: Api) -> None:
    with api.watch() as events:
        assert events.response.status_code == 200
        assert server.faults.open_watches() == 1

    open_watches = server.faults.open_watches
    wait_for("no watch is open", lambda: open_watches() == 0, show=open_watches)
