# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The informer: when it lists, when it watches on, and what it emits."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from airflow.providers.cncf.kubernetes_resilience.pods.api.errors import (
    ConnectionFailedError,
    ForeignAnswerError,
    error_from_status,
)
from airflow.providers.cncf.kubernetes_resilience.pods.messages import PodObservation
from airflow.providers.cncf.kubernetes_resilience.pods.thread.informer import RECONNECT, Informer

Pod = Callable[..., dict[str, Any]]
BROKEN = ConnectionFailedError("connection reset")
EXPIRED = error_from_status(410, {"reason": "Expired", "message": "too old resource version"})
BOOKMARK = ("BOOKMARK", {"metadata": {"resourceVersion": "90"}})


class Watched:
    def __init__(self, cluster: Any, time: Any) -> None:
        self.seen: list[PodObservation] = []
        self.cluster = cluster
        self.informer = Informer(
            cluster, namespace="airflow", label_selector="a=b", emit=self.seen.append, timing=time.timing
        )

    async def play(self) -> list[tuple[str, str | None, bool]]:
        await self.cluster.played(self.informer.run())
        return [(item.facts.ref.uid, item.facts.phase, item.gone) for item in self.seen]


@pytest.fixture
def watched(cluster: Any, time: Any) -> Watched:
    return Watched(cluster, time)


@pytest.fixture
def noted(watched: Watched, time: Any) -> list[bool]:
    """What the informer says of the server, each time that it waits: whether that is away."""
    noted: list[bool] = []
    sleep = time.sleep

    async def note(seconds: float) -> None:
        noted.append(watched.informer.is_away)
        await sleep(seconds)

    time.sleep = note
    watched.informer._timing = time.timing
    return noted


async def test_lists_then_watches_from_the_lists_version(watched: Watched, cluster: Any, pod: Pod) -> None:
    cluster.lists = [("7", [pod(uid="a"), pod(uid="b", phase="Running")])]
    assert not watched.informer.synced.is_set()

    assert await watched.play() == [("a", "Pending", False), ("b", "Running", False)]
    assert cluster.calls == ["list", "watch 7"]
    assert watched.informer.synced.is_set()


async def test_emits_what_matters_and_nothing_else(watched: Watched, cluster: Any, pod: Pod) -> None:
    noise = pod(uid="a", conditions=[{"type": "Ready", "status": "False"}], podIP="10.0.0.1")
    cluster.lists = [("1", [pod(uid="a")])]
    cluster.watches = [
        [
            ("MODIFIED", noise),
            ("MODIFIED", pod(uid="a", phase="Failed", reason="Evicted")),
            ("MODIFIED", pod(uid="a", phase="Failed", reason="Evicted", message="disk")),
            ("DELETED", pod(uid="a", phase="Failed", reason="Evicted")),
        ]
    ]
    assert await watched.play() == [("a", "Pending", False), ("a", "Failed", False), ("a", "Failed", True)]


async def test_all_readings_of_a_pod_share_its_identity(watched: Watched, cluster: Any, pod: Pod) -> None:
    cluster.lists = [("1", [pod(uid="a"), pod(uid="b")])]
    cluster.watches = [[("MODIFIED", pod(uid="a", phase="Running"))], [("DELETED", pod(uid="a"))]]
    await watched.play()
    first, other, *later = (item.facts.ref for item in watched.seen)
    assert [ref is first for ref in later] == [True, True]
    assert other.uid == "b"


async def test_clean_end_goes_on_without_a_list(watched: Watched, cluster: Any, time: Any, pod: Pod) -> None:
    cluster.lists = [("1", [])]
    five_quiet_minutes = partial(setattr, time, "now", time.now + 300)
    cluster.watches = [[("ADDED", pod(uid="a", version="5"))], [BOOKMARK], [five_quiet_minutes]]

    await watched.play()
    assert cluster.calls == ["list", "watch 1", "watch 5", "watch 90", "watch 90"]
    assert time.sleeps == []


@pytest.mark.parametrize("error", [BROKEN, EXPIRED], ids=["broken", "expired"])
async def test_reconnect_emits_only_the_difference(
    watched: Watched, cluster: Any, pod: Pod, error: Exception
) -> None:
    cluster.lists = [
        ("1", [pod(uid="same"), pod(uid="changes"), pod(uid="vanishes", phase="Running")]),
        ("9", [pod(uid="same", version="8"), pod(uid="changes", phase="Failed"), pod(uid="new")]),
    ]
    cluster.watches = [[BOOKMARK, error]]

    assert (await watched.play())[3:] == [
        ("vanishes", "Running", True),
        ("changes", "Failed", False),
        ("new", "Pending", False),
    ]
    assert cluster.calls == ["list", "watch 1", "list", "watch 9"]


async def test_name_used_again_while_away_is_another_pod(watched: Watched, cluster: Any, pod: Pod) -> None:
    cluster.lists = [("1", [pod(name="x", uid="old")]), ("2", [pod(name="x", uid="new")])]
    cluster.watches = [[BROKEN]]
    assert (await watched.play())[1:] == [("old", "Pending", True), ("new", "Pending", False)]


async def test_backs_off_until_the_watch_speaks(
    watched: Watched, cluster: Any, time: Any, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.lists = [BROKEN, BROKEN, ("1", []), BROKEN, ("2", []), ("3", [])]
    cluster.watches = [[BROKEN], [BOOKMARK, BROKEN]]
    with caplog.at_level(logging.INFO):
        await watched.play()

    # A list alone is no recovery: where lists succeed and watches fail, the delay keeps growing.
    grown = [RECONNECT.delay(attempt, lambda: 0.0) for attempt in (1, 2, 3, 4)]
    assert time.sleeps == [*grown, RECONNECT.initial]
    assert [(record.levelname, record.message.split(":")[1][:10]) for record in caplog.records] == [
        ("WARNING", " attempt 1"),
        ("INFO", " back afte"),
        ("WARNING", " attempt 1"),
    ]


async def test_another_reason_within_an_outage_is_said(
    watched: Watched, cluster: Any, caplog: pytest.LogCaptureFixture
) -> None:
    forbidden = error_from_status(403, {"reason": "Forbidden", "message": "pods is forbidden"})
    cluster.lists = [BROKEN, forbidden, forbidden, ("1", [])]
    with caplog.at_level(logging.INFO):
        await watched.play()
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]
    assert "pods is forbidden" in caplog.records[1].message


async def test_another_permission_that_is_missing_within_an_outage_is_said(
    watched: Watched, cluster: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """That lists are permitted again does not hide that watches are not."""
    list_, watch = (
        error_from_status(
            403, {"kind": "Status", "reason": "Forbidden", "message": f'cannot {verb} resource "pods"'}
        )
        for verb in ("list", "watch")
    )
    cluster.lists = [list_, list_, ("1", []), ("2", []), ("3", [])]
    cluster.watches = [[watch], [watch]]
    with caplog.at_level(logging.INFO):
        await watched.play()
    assert [record.message.split("cannot ")[1][:5] for record in caplog.records] == ["list ", "watch"]


async def test_expired_version_is_not_a_warning(
    watched: Watched, cluster: Any, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.lists = [("1", []), ("2", [])]
    cluster.watches = [[BOOKMARK, EXPIRED]]
    with caplog.at_level(logging.WARNING):
        await watched.play()
    assert caplog.records == []


async def test_versions_that_expire_one_after_the_other_are_said_once(
    watched: Watched, cluster: Any, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.lists = [(version, []) for version in ("1", "2", "3")]
    cluster.watches = [
        [error_from_status(410, {"reason": "Expired", "message": f"too old resource version: {version}"})]
        for version in ("1", "2")
    ]
    with caplog.at_level(logging.INFO):
        await watched.play()
    assert [record.levelname for record in caplog.records] == ["INFO"]


async def test_retry_after_is_honoured(watched: Watched, cluster: Any, time: Any, refused: Any) -> None:
    cluster.lists = [refused(429, retry_after=17), refused(503, retry_after=5), ("1", [])]
    await watched.play()
    assert time.sleeps == [17, 5]


async def test_watch_that_ends_at_once_is_no_busy_loop(watched: Watched, cluster: Any, time: Any) -> None:
    cluster.lists = [("1", []), ("2", []), ("3", [])]
    cluster.watches = [[], []]
    await watched.play()
    assert time.sleeps == [0.5, 1.0]


async def test_malformed_pod_is_reported_once_and_skipped(
    watched: Watched, cluster: Any, pod: Pod, caplog: pytest.LogCaptureFixture
) -> None:
    bad = {"metadata": {"name": "broken", "resourceVersion": "3"}, "status": None}
    cluster.lists = [("1", [bad, pod(uid="a")])]
    cluster.watches = [[("MODIFIED", bad), ("DELETED", bad), ("MODIFIED", pod(uid="a", phase="Running"))]]

    assert await watched.play() == [("a", "Pending", False), ("a", "Running", False)]
    assert len([record for record in caplog.records if "broken" in record.message]) == 1


@pytest.mark.parametrize("event", [("BOOKMARK", {}), ("ADDED", {}), ("SURPRISE", {"metadata": None})])
async def test_odd_events_keep_the_version(watched: Watched, cluster: Any, event: Any) -> None:
    cluster.lists = [("4", [])]
    cluster.watches = [[event]]
    assert await watched.play() == []
    assert cluster.calls == ["list", "watch 4", "watch 4"]


async def test_started_again_it_still_knows_the_pods(watched: Watched, cluster: Any, pod: Pod) -> None:
    def crash() -> None:
        raise LookupError

    cluster.lists = [("1", [pod(uid="a"), pod(uid="b")]), ("2", [pod(uid="b")])]
    cluster.watches = [[crash]]
    with pytest.raises(LookupError):
        await watched.informer.run()
    assert (await watched.play())[2:] == [("a", "Pending", True)]


@pytest.mark.parametrize(
    ("error", "is_away"),
    [
        (BROKEN, True),
        (error_from_status(503, None), True),
        (error_from_status(502, None, text="<html>"), True),
        (error_from_status(302, None, text="<html>"), True),
        (error_from_status(403, None, text="<html>"), False),
        (error_from_status(404, None, text="<html>"), True),
        (ForeignAnswerError("unreadable answer"), True),
        (error_from_status(403, {"reason": "Forbidden"}), False),
        (EXPIRED, False),
    ],
    ids=str,
)
async def test_the_server_is_away_if_it_does_not_list(
    watched: Watched, cluster: Any, pod: Pod, noted: list[bool], error: Exception, is_away: bool
) -> None:
    cluster.lists = [error, error, ("1", [pod()])]
    await watched.play()
    assert noted == [is_away, is_away]
    assert not watched.informer.is_away


async def test_a_watch_that_breaks_does_not_say_that_it_is_away(
    watched: Watched, cluster: Any, pod: Pod, noted: list[bool]
) -> None:
    cluster.lists = [("1", [pod()]), ("2", [pod()])]
    cluster.watches = [[BROKEN]]
    await watched.play()
    assert noted == [False]
