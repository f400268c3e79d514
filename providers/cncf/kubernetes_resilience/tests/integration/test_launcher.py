# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The launcher against an API server that refuses, loses replies and has other pods of the same name."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from airflow.providers.cncf.kubernetes_resilience.pods.api.errors import (
    ConnectionFailedError,
    PodConflictError,
)
from airflow.providers.cncf.kubernetes_resilience.pods.api.transport import DEFAULT_REQUEST_TIMEOUT
from airflow.providers.cncf.kubernetes_resilience.pods.facts import PodRef
from airflow.providers.cncf.kubernetes_resilience.pods.messages import (
    PodConfirmed,
    PodCreated,
    PodDeletionAccepted,
    PodNotCreated,
    PodNotDeleted,
    PodObservation,
)
from airflow.providers.cncf.kubernetes_resilience.pods.thread.runtime import KubernetesRuntime
from cluster_lab.api_proxy import ApiProxy
from testbed.waiting import wait_for

from ..support import manifests as m
from ..support.waiting import WAIT

Pod = Callable[..., dict[str, Any]]
Make = Callable[..., KubernetesRuntime]


def verb(*names: str) -> Callable[[Any], bool]:
    return lambda info: info.verb in names


def test_create_is_answered_and_observed(runtime: KubernetesRuntime, inbox: Any, pod: Pod) -> None:
    runtime.submit(runtime.launcher.create, "launch-1", pod("a"))
    messages = {type(message): message for message in (inbox.next(), inbox.next())}
    assert messages[PodCreated].facts.ref == messages[PodObservation].facts.ref
    assert messages[PodCreated].launch_id == "launch-1"


def test_create_applied_but_answered_too_late(
    runtime: KubernetesRuntime, proxy: ApiProxy, inbox: Any, pod: Pod, kubelet: Any
) -> None:
    proxy.faults.delay(600, when=verb("create"), reply=True)
    runtime.submit(runtime.launcher.create, "launch-1", pod("a"))
    # A client that gives up first prevents the creation.
    wait_for("there is a pod", lambda: kubelet.read("a"))

    async def advance() -> None:
        loop = asyncio.get_running_loop()
        now = loop.time
        loop.time = lambda: now() + DEFAULT_REQUEST_TIMEOUT  # type: ignore[method-assign]

    runtime.call(advance(), WAIT)
    assert inbox.of(PodCreated).facts.ref.uid == kubelet.read("a")["metadata"]["uid"]


def test_create_that_never_arrived(
    make_runtime: Make, proxy: ApiProxy, inbox: Any, pod: Pod, kubelet: Any
) -> None:
    runtime = make_runtime(request_timeout=(5.0, 0.5))
    runtime.start()
    proxy.faults.delay(30, when=verb("create"))
    runtime.submit(runtime.launcher.create, "launch-1", pod("a"))
    result = inbox.of(PodNotCreated)
    assert isinstance(result.error, ConnectionFailedError)
    assert kubelet.read("a") is None


def test_create_with_a_name_that_another_launch_has(
    runtime: KubernetesRuntime, inbox: Any, pod: Pod, kubelet: Any
) -> None:
    kubelet.create(pod("a", launch_id="launch-0"))
    runtime.submit(runtime.launcher.create, "launch-1", pod("a"))
    assert isinstance(inbox.of(PodNotCreated).error, PodConflictError)


def test_create_refused_for_good(runtime: KubernetesRuntime, inbox: Any, pod: Pod) -> None:
    body = pod("a")
    del body["spec"]["containers"]
    runtime.submit(runtime.launcher.create, "launch-1", body)
    error = inbox.of(PodNotCreated).error
    assert error.status == 422
    assert not error.transient
    assert "containers" in error.message


def test_delete_with_grace_is_seen_by_the_informer(
    runtime: KubernetesRuntime, inbox: Any, pod: Pod, kubelet: Any
) -> None:
    kubelet.create(pod("a"))
    kubelet.bind("a", "node-1")
    kubelet.set_status("a", phase="Running")
    running = inbox.observation("a", lambda seen: seen.facts.phase == "Running")
    runtime.submit(runtime.launcher.delete, running.facts.ref)
    messages = {type(message): message for message in (inbox.next(), inbox.next())}
    assert messages[PodObservation].facts.deletion_timestamp is not None
    assert messages[PodDeletionAccepted] == PodDeletionAccepted(running.facts.ref, 30)
    kubelet.delete("a")  # as the kubelet does when the containers have ended
    assert inbox.observation("a", lambda seen: seen.gone).facts.ref == running.facts.ref


def test_a_pod_that_has_changed_and_still_waits_is_deleted(
    runtime: KubernetesRuntime, inbox: Any, pod: Pod, kubelet: Any
) -> None:
    kubelet.create(pod("a"))
    kubelet.bind("a", "node-1")
    facts = inbox.observation("a", lambda seen: seen.facts.node == "node-1").facts
    kubelet.set_status("a", phase="Pending", containerStatuses=[m.base(m.waiting("ErrImagePull"))])
    assert facts.resource_version not in (None, kubelet.read("a")["metadata"]["resourceVersion"])
    runtime.submit(runtime.launcher.delete, facts.ref, facts.resource_version)
    assert inbox.of(PodDeletionAccepted) == PodDeletionAccepted(facts.ref, 30)


def test_a_pod_that_has_started_is_not_deleted_for_not_having_started(
    runtime: KubernetesRuntime, inbox: Any, pod: Pod, kubelet: Any
) -> None:
    kubelet.create(pod("a"))
    kubelet.bind("a", "node-1")
    facts = inbox.observation("a", lambda seen: seen.facts.node == "node-1").facts
    kubelet.set_status("a", phase="Running", containerStatuses=[m.base(m.running())])
    runtime.submit(runtime.launcher.delete, facts.ref, facts.resource_version)
    assert inbox.of(PodNotDeleted).facts.phase == "Running"
    assert "deletionTimestamp" not in kubelet.read("a")["metadata"]


def test_delete_options_of_the_configuration(make_runtime: Make, inbox: Any, pod: Pod, kubelet: Any) -> None:
    runtime = make_runtime(delete_options={"grace_period_seconds": 0})
    runtime.start()
    kubelet.create(pod("a"))
    kubelet.bind("a", "node-1")
    ref = inbox.observation("a").facts.ref
    runtime.submit(runtime.launcher.delete, ref)
    assert inbox.of(PodConfirmed) == PodConfirmed(ref, None)


def test_nothing_is_done_to_another_pod_of_that_name(
    runtime: KubernetesRuntime, inbox: Any, pod: Pod, kubelet: Any
) -> None:
    present = kubelet.create(pod("a"))
    past = PodRef("default", "a", "11111111-1111-1111-1111-111111111111")
    runtime.submit(runtime.launcher.mark_done, past)
    runtime.call(runtime.launcher.delete(past), WAIT)
    assert inbox.of(PodConfirmed) == PodConfirmed(past, None)
    for call in ((runtime.launcher.confirm, past), (runtime.launcher.adopt, past, {"airflow-worker": "9"})):
        runtime.submit(*call)
        assert inbox.of(PodConfirmed) == PodConfirmed(past, None)
    metadata = kubelet.read("a")["metadata"]
    assert metadata["uid"] == present.uid
    assert metadata["labels"] == {"airflow-worker": "1"}


def test_done_pods_leave_the_store(runtime: KubernetesRuntime, inbox: Any, pod: Pod, kubelet: Any) -> None:
    ref = kubelet.create(pod("a"))
    inbox.next()
    runtime.submit(runtime.launcher.mark_done, ref)
    assert inbox.next().gone
    runtime.submit(runtime.launcher.confirm, ref)
    facts = inbox.of(PodConfirmed).facts
    assert facts.labels["airflow_executor_done"] == "True"


def test_a_pod_that_is_stopped_is_kept(
    runtime: KubernetesRuntime, inbox: Any, pod: Pod, kubelet: Any
) -> None:
    ref = kubelet.create(pod("a"))
    inbox.next()
    runtime.submit(runtime.launcher.stop_and_keep, ref)
    assert inbox.next().gone
    stopped = kubelet.read("a")
    assert stopped["metadata"]["labels"]["airflow_executor_done"] == "True"
    assert stopped["spec"]["activeDeadlineSeconds"] == 1


def test_adoption_finds_and_takes_over(
    runtime: KubernetesRuntime, inbox: Any, pod: Pod, kubelet: Any
) -> None:
    body = pod("a")
    body["metadata"]["labels"] = {"airflow-worker": "7", "kubernetes_executor": "True"}
    ref = kubelet.create(body)
    kubelet.create(pod("b"))
    launcher = runtime.launcher
    found = runtime.call(launcher.list_pods("default", "kubernetes_executor=True,airflow-worker!=1"), WAIT)
    assert [facts.ref for facts in found] == [ref]
    runtime.submit(launcher.adopt, ref, {"airflow-worker": "1"})
    assert inbox.observation("a").facts.ref == ref


def test_stop_leaves_nothing_behind(
    runtime: KubernetesRuntime, proxy: ApiProxy, inbox: Any, pod: Pod
) -> None:
    proxy.faults.delay(0.3, when=verb("create"), reply=True)
    runtime.submit(runtime.launcher.create, "launch-1", pod("a"))
    runtime.stop(WAIT)
    assert inbox.of(PodCreated).launch_id == "launch-1"
    wait_for("no watch is open", lambda: proxy.open_watches == 0, show=lambda: proxy.open_watches)
