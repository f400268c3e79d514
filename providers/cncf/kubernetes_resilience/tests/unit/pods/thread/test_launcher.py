# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The launcher: what it sends, what it concludes from each answer, and what it does while there is none."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from airflow.providers.cncf.kubernetes_resilience.pods.api.call_budget import (
    DEFAULT_PAUSE,
    REFUSALS,
    RETRY,
    Calls,
)
from airflow.providers.cncf.kubernetes_resilience.pods.api.errors import (
    ConnectionFailedError,
    CreationCancelledError,
    ForeignAnswerError,
    KubernetesApiError,
    PodConflictError,
    error_from_status,
)
from airflow.providers.cncf.kubernetes_resilience.pods.api.retries import Answer, answer_of
from airflow.providers.cncf.kubernetes_resilience.pods.facts import SCHEDULER_LABEL, PodRef
from airflow.providers.cncf.kubernetes_resilience.pods.messages import (
    PodConfirmed,
    PodCreated,
    PodDeletionAccepted,
    PodNotConfirmed,
    PodNotCreated,
    PodNotDeleted,
)
from airflow.providers.cncf.kubernetes_resilience.pods.thread.launcher import LAUNCH_ID_ANNOTATION, Launcher
from airflow_resilience.metrics import stats

DROPPED = ConnectionFailedError("TimeoutError")
PAGE = ForeignAnswerError("unreadable answer")
REF = PodRef("airflow", "worker", "uid-1")


def is_created(message: Any) -> bool:
    """Whether a message says that the pod of the launch exists."""
    return isinstance(message, PodCreated) and (message.launch_id, message.facts.ref) == ("launch-1", REF)


def body(launch_id: str = "launch-1", name: str = "worker") -> dict[str, Any]:
    annotations = {LAUNCH_ID_ANNOTATION: launch_id}
    return {"metadata": {"namespace": "airflow", "name": name, "annotations": annotations}}


class Bench:
    def __init__(self, cluster: Any, time: Any, concurrency: int = 8) -> None:
        self.emitted: list[Any] = []
        self.delete_options: dict[str, Any] = {"propagationPolicy": "Background"}
        self.launcher = Launcher(
            cluster,
            emit=self.emitted.append,
            calls=Calls(concurrency, timing=time.timing),
            delete_options=self.delete_options,
        )

    async def delete(self, ref: PodRef, version: str | None = None, *, grace: int) -> None:
        self.delete_options["gracePeriodSeconds"] = grace
        await self.launcher.delete(ref, version)

    def outcome(self) -> Any:
        (message,) = self.emitted
        return message


@pytest.fixture
def bench(cluster: Any, time: Any) -> Bench:
    return Bench(cluster, time)


@pytest.fixture
async def created(bench: Bench) -> Bench:
    await bench.launcher.create("launch-1", body())
    bench.emitted.clear()
    return bench


class TestCreate:
    async def test_repeating_finds_the_same_pod(self, bench: Bench, cluster: Any) -> None:
        await bench.launcher.create("launch-1", body())
        await bench.launcher.create("launch-1", body())
        assert list(map(is_created, bench.emitted)) == [True, True]
        assert len(cluster.pods) == 1

    async def test_name_taken_by_another(self, bench: Bench) -> None:
        await bench.launcher.create("other", body("other"))
        await bench.launcher.create("launch-1", body())
        assert isinstance(bench.emitted[1], PodNotCreated)
        assert isinstance(bench.emitted[1].error, PodConflictError)

    async def test_foreign_pod_without_annotations(self, bench: Bench, cluster: Any, pod: Any) -> None:
        cluster.pods["worker"] = pod("worker")
        await bench.launcher.create("launch-1", body())
        assert isinstance(bench.outcome().error, PodConflictError)

    @pytest.mark.parametrize("status", [None, 500, 503, 504])
    async def test_carried_out_without_an_answer(
        self, bench: Bench, cluster: Any, refused: Any, status: int | None
    ) -> None:
        cluster.lose_answer["create"] = [DROPPED if status is None else refused(status)]
        await bench.launcher.create("launch-1", body())
        assert is_created(bench.outcome())

    async def test_lookup_outlives_a_short_outage(self, bench: Bench, cluster: Any, time: Any) -> None:
        cluster.lose_answer["create"] = [DROPPED]
        cluster.fail["get"] = [DROPPED, DROPPED]
        await bench.launcher.create("launch-1", body())
        assert is_created(bench.outcome())
        assert time.sleeps == [RETRY.delay(1, float), RETRY.delay(2, float)]

    async def test_not_carried_out(self, bench: Bench, cluster: Any) -> None:
        cluster.fail["create"] = [DROPPED]
        await bench.launcher.create("launch-1", body())
        assert bench.outcome() == PodNotCreated("launch-1", DROPPED)

    async def test_unknown_whether_carried_out(self, bench: Bench, cluster: Any) -> None:
        cluster.lose_answer["create"] = [DROPPED]
        cluster.fail["get"] = [ConnectionFailedError(f"outage {n}") for n in range(9)]
        await bench.launcher.create("launch-1", body())
        assert isinstance(bench.outcome().error, ConnectionFailedError)
        assert cluster.calls.count("get") == 3

    @pytest.mark.parametrize("status", [401, 403, 418])
    async def test_lookup_that_is_refused_leaves_open_whether_it_was_carried_out(
        self, bench: Bench, cluster: Any, refused: Any, status: int
    ) -> None:
        cluster.lose_answer["create"] = [DROPPED]
        cluster.fail["get"] = [refused(status)] * 3
        await bench.launcher.create("launch-1", body())
        assert bench.outcome() == PodNotCreated("launch-1", DROPPED)
        assert bench.outcome().error.__cause__.status == status

    @pytest.mark.parametrize("lookup", [403, 503])
    async def test_a_name_that_is_taken_by_nobody_knows_whom_may_be_our_own(
        self, bench: Bench, cluster: Any, refused: Any, lookup: int
    ) -> None:
        await bench.launcher.create("launch-1", body())
        cluster.fail["get"] = [refused(lookup)] * 3
        await bench.launcher.create("launch-1", body())
        error = bench.emitted[1].error
        # What is not permitted is not waited for without an end, as an outage is.
        assert (error.leaves_open, error.transient, error.reason) == (True, lookup == 503, None)
        assert "AlreadyExists" in str(error)
        assert str(lookup) in str(error)

    async def test_one_that_waits_for_a_slot_is_called_off_for_certain(self, cluster: Any, time: Any) -> None:
        bench = Bench(cluster, time, concurrency=1)
        go_on = asyncio.Event()
        cluster.entered = go_on.wait
        creations = [
            asyncio.create_task(bench.launcher.create(name, body(name, name))) for name in ("a", "b", "c")
        ]
        await asyncio.sleep(0)
        assert cluster.calls == ["create"]
        await bench.launcher.cancel("b")
        message = bench.outcome()
        assert (message.launch_id, message.error.leaves_open) == ("b", False)
        assert isinstance(message.error, CreationCancelledError)
        go_on.set()
        await asyncio.gather(*creations)
        assert [type(item) for item in bench.emitted[1:]] == [PodCreated, PodCreated]
        assert sorted(cluster.pods) == ["a", "c"]

    async def test_one_that_waits_for_the_servers_time_is_called_off_for_certain(
        self, cluster: Any, time: Any, refused: Any
    ) -> None:
        async def sleep(seconds: float) -> None:
            time.now += seconds
            await bench.launcher.cancel("b")

        time.sleep = sleep
        bench = Bench(cluster, time)
        cluster.fail["create"] = [refused(429, retry_after=25)]
        await bench.launcher.create("a", body("a", "a"))
        await bench.launcher.create("b", body("b", "b"))
        (message,) = bench.emitted[1:]
        assert isinstance(message.error, CreationCancelledError)
        assert cluster.pods == {}

    async def test_one_that_was_sent_is_not_called_off(self, bench: Bench, cluster: Any) -> None:
        cluster.entered = lambda: bench.launcher.cancel("launch-1")
        await bench.launcher.create("launch-1", body())
        await bench.launcher.cancel("launch-1")
        assert is_created(bench.outcome())

    async def test_one_that_was_called_off_may_be_asked_for_again(self, bench: Bench) -> None:
        await bench.launcher.cancel("launch-1")
        await bench.launcher.create("launch-1", body())
        assert is_created(bench.outcome())

    @pytest.mark.parametrize(
        ("status", "reason"), [(403, "Forbidden"), (422, "Invalid"), (400, "BadRequest"), (409, "Conflict")]
    )
    async def test_refusal_is_reported_as_it_is(
        self, bench: Bench, cluster: Any, refused: Any, status: int, reason: str
    ) -> None:
        cluster.fail["create"] = [refused(status, reason)]
        await bench.launcher.create("launch-1", body())
        assert (bench.outcome().error.status, bench.outcome().error.reason) == (status, reason)
        assert cluster.calls == ["create"]

    async def test_bug_still_gives_a_result(self, bench: Bench, cluster: Any) -> None:
        cluster.fail["create"] = [LookupError("bug")]
        await bench.launcher.create("launch-1", body())
        assert isinstance(bench.outcome().error, KubernetesApiError)
        assert "bug" in str(bench.outcome().error)

    @pytest.mark.parametrize(("retry_after", "pause"), [(25, 25.0), (None, DEFAULT_PAUSE)])
    async def test_rate_limit_holds_back_later_creates(
        self, bench: Bench, cluster: Any, time: Any, refused: Any, retry_after: int | None, pause: float
    ) -> None:
        cluster.fail["create"] = [refused(429, retry_after=retry_after)]
        await bench.launcher.create("launch-1", body())
        assert time.sleeps == []

        await bench.launcher.create("launch-1", body())
        assert time.sleeps == [pause]
        assert is_created(bench.emitted[1])

    @pytest.mark.parametrize(("status", "retry_after"), [(429, 300), (403, 300), (429, None)])
    async def test_a_webhook_that_asks_for_time_for_one_pod_holds_back_no_other(
        self, bench: Bench, cluster: Any, time: Any, refused: Any, status: int, retry_after: int | None
    ) -> None:
        denied = refused(status, "Denied", retry_after=retry_after)
        denied.message = 'admission webhook "w" denied the request: its team has had enough for today'
        cluster.fail["create"] = [denied]
        await bench.launcher.create("launch-1", body())
        await bench.launcher.create("launch-2", body("launch-2", "other"))
        assert time.sleeps == []
        assert isinstance(bench.emitted[1], PodCreated)

    async def test_rate_limit_reaches_creates_that_wait_for_a_slot(
        self, cluster: Any, time: Any, refused: Any
    ) -> None:
        bench = Bench(cluster, time, concurrency=1)
        cluster.fail["create"] = [refused(429, retry_after=9)]
        await asyncio.gather(
            bench.launcher.create("a", body("a", "a")), bench.launcher.create("b", body("b", "b"))
        )
        assert time.sleeps == [9]
        assert isinstance(bench.emitted[0], PodNotCreated)
        assert isinstance(bench.emitted[1], PodCreated)

    async def test_concurrency_is_bounded(self, cluster: Any, time: Any) -> None:
        bench = Bench(cluster, time, concurrency=3)
        inside, most = 0, 0

        async def hold() -> None:
            nonlocal inside, most
            inside += 1
            most = max(most, inside)
            await asyncio.sleep(0)
            inside -= 1

        cluster.entered = hold
        await asyncio.gather(*(bench.launcher.create(str(n), body(str(n), str(n))) for n in range(20)))
        assert len(bench.emitted) == 20
        assert most == 3


class TestDelete:
    async def test_graceful_deletion_is_not_yet_gone(self, created: Bench, cluster: Any) -> None:
        await created.launcher.delete(REF)
        assert created.outcome() == PodDeletionAccepted(REF, 30)
        assert cluster.deletions == [
            {
                "uid": "uid-1",
                "resource_version": None,
                "options": {"propagationPolicy": "Background"},
            }
        ]

    async def test_a_finalizer_keeps_it(self, created: Bench, cluster: Any) -> None:
        cluster.pods["worker"]["metadata"]["finalizers"] = ["example.com/hold"]
        await created.delete(REF, grace=0)
        assert created.outcome() == PodDeletionAccepted(REF, 0)

    async def test_grace_period_is_the_servers(self, created: Bench) -> None:
        await created.delete(REF, grace=7)
        assert created.outcome() == PodDeletionAccepted(REF, 7)

    @pytest.mark.parametrize("version", [None, "1"])
    async def test_already_gone(self, bench: Bench, version: str | None) -> None:
        await bench.launcher.delete(REF, version)
        assert bench.outcome() == PodConfirmed(REF, None)

    @pytest.mark.parametrize("version", [None, "1"])
    async def test_another_pod_of_that_name_is_left_alone(
        self, created: Bench, cluster: Any, version: str | None
    ) -> None:
        old = PodRef("airflow", "worker", "uid-0")
        await created.delete(old, version, grace=0)
        assert created.outcome() == PodConfirmed(old, None)
        assert "worker" in cluster.pods

    async def test_conflict_about_something_else_is_tried_again(
        self, created: Bench, cluster: Any, refused: Any
    ) -> None:
        cluster.fail["delete"] = [refused(409, "Conflict")]
        await created.delete(REF, grace=0)
        assert created.outcome() == PodConfirmed(REF, None)
        assert cluster.calls.count("delete") == 2

    async def test_goes_on_through_an_outage(
        self, created: Bench, cluster: Any, time: Any, refused: Any, caplog: pytest.LogCaptureFixture
    ) -> None:
        errors = [DROPPED, refused(500), refused(429, retry_after=40), refused(403, "Forbidden"), DROPPED]
        cluster.fail["delete"] = [*errors, *[DROPPED] * 20]
        with caplog.at_level(logging.INFO):
            await created.delete(REF, grace=0)
        assert created.outcome() == PodConfirmed(REF, None)
        assert time.sleeps[:5] == [0.5, 1.0, 40, 4.0, 8.0]
        assert max(time.sleeps) == RETRY.maximum
        assert len(caplog.records) == 1

    async def test_waiting_to_retry_takes_no_slot(self, cluster: Any, time: Any) -> None:
        slept = asyncio.Event()
        retry = asyncio.Event()

        async def sleep(seconds: float) -> None:
            slept.set()
            await retry.wait()

        time.sleep = sleep
        bench = Bench(cluster, time, concurrency=1)
        cluster.fail["delete"] = [DROPPED]
        deleting = asyncio.create_task(bench.launcher.delete(REF))
        await slept.wait()
        await bench.launcher.create("launch-2", body("launch-2", "second"))
        assert isinstance(bench.outcome(), PodCreated)
        retry.set()
        await deleting

    async def test_answer_that_no_retry_changes_is_raised(
        self, created: Bench, cluster: Any, refused: Any
    ) -> None:
        cluster.fail["delete"] = [refused(400, "BadRequest")]
        with pytest.raises(KubernetesApiError, match="BadRequest"):
            await created.launcher.delete(REF)
        assert created.emitted == []


STARTED = {"phase": "Running", "containerStatuses": [{"name": "base", "state": {"running": {}}}]}


class TestDeleteUnlessStarted:
    async def test_the_version_that_was_decided_upon_is_a_precondition(
        self, created: Bench, cluster: Any
    ) -> None:
        await created.launcher.delete(REF, "1")
        assert [options["resource_version"] for options in cluster.deletions] == ["1"]
        assert created.outcome() == PodDeletionAccepted(REF, 30)

    async def test_a_pod_that_still_waits_is_deleted_at_the_version_that_it_has_now(
        self, created: Bench, cluster: Any, time: Any
    ) -> None:
        for _ in range(3):
            cluster.before["delete"].append(lambda: cluster.change("worker"))
        await created.launcher.delete(REF, "1")
        assert [options["resource_version"] for options in cluster.deletions] == ["1", "2", "3", "4"]
        assert created.outcome() == PodDeletionAccepted(REF, 30)
        assert time.sleeps == [RETRY.delay(attempt, float) for attempt in (1, 2, 3)]

    @pytest.mark.parametrize(
        "status",
        [
            STARTED,
            {**STARTED, "phase": "Pending"},  # a sidecar's image is still being pulled
            {"phase": "Running"},
            {"phase": "Succeeded"},
            {"phase": "Failed"},
            {"phase": "Unknown"},
        ],
        ids=lambda status: "-".join((status["phase"], *map(str, status.get("containerStatuses", ())))),
    )
    async def test_one_that_has_started_or_ended_is_left_alone(
        self, created: Bench, cluster: Any, status: Any
    ) -> None:
        cluster.before["delete"] = [lambda: cluster.change("worker", **status)]
        await created.launcher.delete(REF, "1")
        assert "deletionGracePeriodSeconds" not in cluster.pods["worker"]["metadata"]
        message = created.outcome()
        assert isinstance(message, PodNotDeleted)
        assert (message.facts.ref, message.facts.phase) == (REF, status["phase"])

    @pytest.mark.parametrize(("label", "is_left"), [("2", True), ("1", False)])
    async def test_one_that_another_scheduler_has_adopted_is_left_alone(
        self, created: Bench, cluster: Any, label: str, is_left: bool
    ) -> None:
        """Its label says so, which it had not when its deletion was decided on."""
        await created.launcher.adopt(REF, {SCHEDULER_LABEL: label})
        cluster.change("worker")
        await created.launcher.delete(REF, "1", "1")
        assert isinstance(created.outcome(), PodNotDeleted) is is_left

    async def test_one_that_is_being_deleted_already(self, created: Bench, cluster: Any) -> None:
        def deleted_by_somebody() -> None:
            cluster.change("worker", **STARTED)
            cluster.pods["worker"]["metadata"] |= {
                "deletionTimestamp": "2026-01-01T00:00:00Z",
                "deletionGracePeriodSeconds": 12,
            }

        cluster.before["delete"] = [deleted_by_somebody]
        await created.launcher.delete(REF, "1")
        assert created.outcome() == PodDeletionAccepted(REF, 12)

    async def test_goes_on_through_an_outage(self, created: Bench, cluster: Any) -> None:
        cluster.fail["delete"] = [DROPPED] * 9
        cluster.before["delete"] = [lambda: cluster.change("worker")]
        cluster.fail["get"] = [DROPPED] * 9
        await created.launcher.delete(REF, "1")
        assert created.outcome() == PodDeletionAccepted(REF, 30)
        assert cluster.deletions[-1]["resource_version"] == "2"

    @pytest.mark.parametrize("away", [DROPPED, PAGE, error_from_status(302, None, text="<html>")], ids=str)
    async def test_an_outage_is_no_refusal(
        self, created: Bench, cluster: Any, refused: Any, away: Exception
    ) -> None:
        """An API server that comes back refuses everybody for some seconds, until it knows its roles."""
        cluster.fail["delete"] = [away] * 2 * REFUSALS + [refused(403, "Forbidden")] * (REFUSALS - 1)
        await created.launcher.delete(REF)
        assert created.outcome() == PodDeletionAccepted(REF, 30)

    @pytest.mark.parametrize("status", [400, 403, 409, 422, 500])
    @pytest.mark.parametrize("change", ["delete", "delete unless started", "mark_done"])
    async def test_ends_if_a_webhook_denies_it(
        self, created: Bench, cluster: Any, status: int, change: str
    ) -> None:
        """Whatever status the webhook chooses: it would be asked for ever, once for each pod that ends."""
        body = {"kind": "Status", "message": 'admission webhook "keep.example.com" denied the request: no'}
        operation = "patch" if change == "mark_done" else "delete"
        cluster.fail[operation] = [error_from_status(status, body) for _ in range(3 * REFUSALS)]
        version = ["1"] if change == "delete unless started" else []
        with pytest.raises(KubernetesApiError, match="denied the request"):
            await getattr(created.launcher, change.partition(" ")[0])(REF, *version)
        assert len(cluster.fail[operation]) == 2 * REFUSALS
        assert created.emitted == []

    @pytest.mark.parametrize("status", [401, 403, 405, 501])
    @pytest.mark.parametrize("change", ["delete", "mark_done"])
    async def test_ends_if_a_proxy_does_not_let_it_through(
        self, created: Bench, cluster: Any, status: int, change: str
    ) -> None:
        """One that lets pods be read and created may never do so, once for each pod that ends."""
        operation = "patch" if change == "mark_done" else "delete"
        page = error_from_status(status, None, text="<html>")
        cluster.fail[operation] = [page] * 2 * REFUSALS
        with pytest.raises(KubernetesApiError, match="<html>"):
            await getattr(created.launcher, change)(REF)
        assert len(cluster.fail[operation]) == REFUSALS

    async def test_ends_if_the_pod_may_not_be_read(self, created: Bench, cluster: Any, refused: Any) -> None:
        cluster.fail["get"] = [refused(403, "Forbidden")] * REFUSALS
        cluster.before["delete"] = [lambda: cluster.change("worker")]
        with pytest.raises(KubernetesApiError, match="Forbidden"):
            await created.launcher.delete(REF, "1")
        assert created.emitted == []


class TestHousekeeping:
    @pytest.fixture
    def held(self, cluster: Any) -> asyncio.Event:
        """Hold every call until it is set."""
        event = asyncio.Event()
        cluster.entered = event.wait
        return event

    @pytest.mark.parametrize("name", ["mark_done", "stop_and_keep", "clean_up"])
    async def test_takes_a_part_of_what_may_be_done_at_once(
        self, cluster: Any, time: Any, held: asyncio.Event, name: str
    ) -> None:
        bench = Bench(cluster, time, concurrency=16)
        refs = [PodRef("airflow", f"worker-{number}", "uid") for number in range(20)]
        housekeeping = [asyncio.create_task(getattr(bench.launcher, name)(ref)) for ref in refs]
        await asyncio.sleep(0)
        creations = [asyncio.create_task(bench.launcher.create(f"launch-{n}", body())) for n in range(20)]
        for _ in range(10):
            await asyncio.sleep(0)
        operations = Counter(cluster.calls)
        assert operations.pop("create") == 14
        assert list(operations.values()) == [2]
        held.set()
        await asyncio.gather(*housekeeping, *creations)

    async def test_a_pod_that_has_ended_is_deleted(self, created: Bench, cluster: Any) -> None:
        cluster.fail["delete"] = [DROPPED]
        await created.launcher.clean_up(REF)
        assert cluster.calls.count("delete") == 2
        assert created.outcome() == PodDeletionAccepted(REF, 30)


class TestLookFor:
    async def test_says_which_pod_it_is(self, created: Bench, cluster: Any) -> None:
        cluster.fail["get"] = [DROPPED, DROPPED, DROPPED, DROPPED]
        await created.launcher.look_for("airflow", "worker", "launch-1")
        assert is_created(created.outcome())
        assert created.outcome().facts.phase == "Pending"

    async def test_leaves_the_pod_of_another_launch(self, created: Bench) -> None:
        await created.launcher.look_for("airflow", "worker", "launch-0")
        assert created.emitted == []

    async def test_there_is_none(self, bench: Bench, cluster: Any) -> None:
        await bench.launcher.look_for("airflow", "worker", "launch-1")
        assert (cluster.calls, bench.emitted) == (["get"], [])


class TestLabels:
    async def test_mark_done(self, created: Bench, cluster: Any) -> None:
        cluster.fail["patch"] = [DROPPED]
        await created.launcher.mark_done(REF)
        assert cluster.pods["worker"]["metadata"]["labels"] == {"airflow_executor_done": "True"}

    async def test_stop_and_keep(self, created: Bench, cluster: Any) -> None:
        await created.launcher.stop_and_keep(REF)
        assert cluster.pods["worker"]["metadata"]["labels"] == {"airflow_executor_done": "True"}
        assert cluster.pods["worker"]["spec"]["activeDeadlineSeconds"] == 1

    async def test_adopt(self, created: Bench, cluster: Any) -> None:
        await created.launcher.adopt(REF, {"airflow-worker": "42"})
        assert cluster.pods["worker"]["metadata"]["labels"] == {"airflow-worker": "42"}

    async def test_pod_is_gone(self, bench: Bench) -> None:
        await bench.launcher.mark_done(REF)
        await bench.launcher.adopt(REF, {"airflow-worker": "42"})
        assert bench.outcome() == PodConfirmed(REF, None)

    async def test_another_pod_of_that_name(self, created: Bench, cluster: Any) -> None:
        another = PodRef("airflow", "worker", "uid-0")
        await created.launcher.adopt(another, {"airflow-worker": "42"})
        assert created.outcome() == PodConfirmed(another, None)
        assert "labels" not in cluster.pods["worker"]["metadata"]

    async def test_refused_although_it_is_there(self, created: Bench, cluster: Any, refused: Any) -> None:
        cluster.fail["patch"] = [refused(422, "Invalid")]
        with pytest.raises(KubernetesApiError, match="Invalid"):
            await created.launcher.mark_done(REF)


class TestConfirm:
    async def test_there(self, created: Bench) -> None:
        await created.launcher.confirm(REF)
        assert created.outcome().facts.ref == REF

    async def test_goes_on_through_an_outage(self, created: Bench, cluster: Any) -> None:
        cluster.fail["get"] = [DROPPED] * 12
        await created.launcher.confirm(REF)
        assert created.outcome().facts.ref == REF

    @pytest.mark.parametrize("uid", ["uid-0", "uid-2"])
    async def test_another_pod_of_that_name(self, created: Bench, uid: str) -> None:
        ref = PodRef("airflow", "worker", uid)
        await created.launcher.confirm(ref)
        assert created.outcome() == PodConfirmed(ref, None)

    async def test_gone(self, bench: Bench) -> None:
        await bench.launcher.confirm(REF)
        assert bench.outcome() == PodConfirmed(REF, None)

    async def test_one_that_may_not_be_read(
        self, created: Bench, cluster: Any, refused: Any, caplog: pytest.LogCaptureFixture
    ) -> None:
        cluster.fail["get"] = [refused(403, "Forbidden")] * REFUSALS
        await created.launcher.confirm(REF)
        assert created.outcome() == PodNotConfirmed(REF)
        assert "Pod airflow/worker cannot be read: 403 Forbidden" in caplog.text


async def test_list_leaves_out_malformed_pods(bench: Bench, cluster: Any, pod: Callable[..., Any]) -> None:
    cluster.pods = {"a": pod("a", uid="a"), "bad": {"metadata": {"name": "bad"}}, "b": pod("b", uid="b")}
    pods = await bench.launcher.list_pods("airflow", "kubernetes_executor=True")
    assert [facts.ref.name for facts in pods] == ["a", "b"]


async def test_metrics_have_the_official_names(
    bench: Bench, cluster: Any, refused: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    metrics: list[tuple[str, dict[str, str]]] = []
    monkeypatch.setattr(stats(), "incr", lambda name, tags: metrics.append((name, tags)))
    cluster.fail["create"] = [DROPPED, refused(403, "Forbidden")]
    for _ in range(3):
        await bench.launcher.create("launch-1", body())
    await bench.launcher.mark_done(REF)
    await bench.launcher.delete(REF)
    assert metrics == [
        ("kubernetes_executor.pod_creation_status", {"status": "error"}),
        ("kubernetes_executor.pod_creation_status", {"status": "403"}),
        ("kubernetes_executor.pod_creation_status", {"status": "200"}),
        ("kubernetes_executor.pod_patching_status", {"status": "200"}),
        ("kubernetes_executor.pod_deletion_status", {"status": "200"}),
    ]


BESIDE_A_SIDECAR = {
    "phase": "Running",
    "containerStatuses": [
        {"name": "base", "state": {"waiting": {"reason": "ErrImagePull"}}},
        {"name": "statsd", "state": {"running": {}}},
    ],
}


@pytest.mark.parametrize("status", [302, 400, 404, 413, 422, 520])
@pytest.mark.parametrize("version", [None, "1"])
async def test_a_deletion_is_not_lost_to_an_answer_of_a_proxy(
    created: Bench, cluster: Any, status: int, version: str | None
) -> None:
    """Its pod would live on beside its replacement (I2)."""
    cluster.fail["delete"] = [error_from_status(status, None, text="<html>")]
    await created.delete(REF, version, grace=0)
    assert created.outcome() == PodConfirmed(REF, None)


NO_PODS = [{}, {"error": "no"}, {"kind": "Status", "status": "Failure"}, {"metadata": 1}]


@pytest.mark.parametrize("answer", NO_PODS, ids=str)
@pytest.mark.parametrize("version", [None, "1"])
async def test_nor_to_one_that_says_success(
    created: Bench, cluster: Any, monkeypatch: pytest.MonkeyPatch, answer: Any, version: str | None
) -> None:
    answers, delete = [answer], cluster.delete_pod

    async def delete_pod(*args: Any, **options: Any) -> Any:
        return answers.pop() if answers else await delete(*args, **options)

    monkeypatch.setattr(cluster, "delete_pod", delete_pod)
    await created.delete(REF, version, grace=0)
    assert created.outcome() == PodConfirmed(REF, None)


@pytest.mark.parametrize("answer", NO_PODS, ids=str)
async def test_a_creation_that_a_proxy_has_answered_may_have_been_carried_out(
    bench: Bench, cluster: Any, monkeypatch: pytest.MonkeyPatch, answer: Any
) -> None:
    create = cluster.create_pod

    async def create_pod(*args: Any) -> Any:
        await create(*args)
        return answer

    monkeypatch.setattr(cluster, "create_pod", create_pod)
    await bench.launcher.create("launch-1", body())
    created = bench.outcome()
    assert (type(created), created.facts.ref.uid) == (PodCreated, "uid-1")


@pytest.mark.parametrize("answer", NO_PODS, ids=str)
async def test_a_creation_that_a_proxy_has_answered_is_no_outage(
    bench: Bench, cluster: Any, monkeypatch: pytest.MonkeyPatch, answer: Any
) -> None:
    async def call(*args: Any) -> Any:
        return answer

    monkeypatch.setattr(cluster, "create_pod", call)
    monkeypatch.setattr(cluster, "get_pod", call)
    await bench.launcher.create("launch-1", body())
    error = bench.outcome().error
    assert (answer_of(error), error.leaves_open) == (Answer.FOREIGN, True)


async def test_a_pod_whose_sidecar_has_started_is_deleted_if_its_worker_has_not(
    created: Bench, cluster: Any
) -> None:
    """Else it would be followed again, in a phase in which no waiting reason gives it up."""
    cluster.pods["worker"]["status"] = BESIDE_A_SIDECAR
    cluster.pods["worker"]["metadata"]["resourceVersion"] = "2"
    await created.launcher.delete(REF, "1")
    assert created.outcome() == PodDeletionAccepted(REF, 30)
    assert [deletion["resource_version"] for deletion in cluster.deletions][-1] == "2"
