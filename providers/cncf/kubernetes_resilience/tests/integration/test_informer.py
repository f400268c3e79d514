# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The informer against an API server that cuts, compacts, falls silent and refuses."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from typing import Any

import pytest

from airflow.providers.cncf.kubernetes_resilience.pods.facts import ContainerState
from airflow.providers.cncf.kubernetes_resilience.pods.messages import PodConfirmed, PodObservation
from airflow.providers.cncf.kubernetes_resilience.pods.thread.informer import Informer
from airflow.providers.cncf.kubernetes_resilience.pods.thread.runtime import KubernetesRuntime
from cluster_lab.api_proxy import ApiProxy
from cluster_lab.apiserver import ApiServer
from testbed.waiting import wait_for

from ..support.waiting import wait_synced

Pod = Callable[..., dict[str, Any]]
Make = Callable[..., KubernetesRuntime]


def gone(observation: PodObservation) -> bool:
    return observation.gone


def test_life_of_a_pod(runtime: KubernetesRuntime, kubelet: Any, inbox: Any, pod: Pod) -> None:
    ref = kubelet.create(pod("a"))
    first = inbox.of(PodObservation)
    assert (first.facts.ref, first.facts.phase, first.gone) == (ref, "Pending", False)

    kubelet.bind("a", "node-1")
    assert inbox.observation("a", lambda seen: seen.facts.node == "node-1")

    kubelet.set_status("a", containerStatuses=[{"name": "base", "state": {"running": {}}}], phase="Running")
    running = inbox.observation("a", lambda seen: seen.facts.phase == "Running")
    assert running.facts.worker.state is ContainerState.RUNNING

    kubelet.delete("a", grace=30)
    assert inbox.of(PodObservation).facts.deletion_timestamp is not None
    kubelet.delete("a")
    assert inbox.observation("a", gone).facts.ref == ref


def test_only_what_matters_and_only_ours(
    runtime: KubernetesRuntime, kubelet: Any, inbox: Any, pod: Pod
) -> None:
    other = pod("of-another-scheduler")
    other["metadata"]["labels"] = {"airflow-worker": "2"}
    kubelet.create(other)
    kubelet.create(pod("a"))
    assert inbox.of(PodObservation).facts.ref.name == "a"
    kubelet.set_status("a", message="still pulling", podIP="10.0.0.1")
    kubelet.set_status("a", phase="Running")
    assert inbox.of(PodObservation).facts.phase == "Running"


def test_label_transitions(runtime: KubernetesRuntime, kubelet: Any, inbox: Any, pod: Pod) -> None:
    kubelet.create(pod("a"))
    inbox.of(PodObservation)
    kubelet.labels("a", airflow_executor_done="True")
    assert inbox.of(PodObservation).gone
    kubelet.labels("a", airflow_executor_done="False")
    assert not inbox.of(PodObservation).gone
    kubelet.labels("a", **{"airflow-worker": "2"})
    assert inbox.of(PodObservation).gone


def test_what_has_left_the_store_before_its_end_is_asked_for_at_once(
    runtime: KubernetesRuntime, kubelet: Any, inbox: Any, pod: Pod
) -> None:
    for name in ("relabelled", "deleted", "done"):
        kubelet.create(pod(name))
    kubelet.labels("relabelled", **{"airflow-worker": "2"})
    assert inbox.of(PodConfirmed).facts.labels["airflow-worker"] == "2"
    kubelet.delete("deleted")
    confirmed = inbox.of(PodConfirmed)
    assert (confirmed.ref.name, confirmed.facts) == ("deleted", None)
    # Nobody has to ask about a pod that had ended before.
    kubelet.set_status("done", phase="Succeeded")
    kubelet.delete("done")
    inbox.observation("done", lambda observation: observation.gone)
    kubelet.create(pod("last"))
    inbox.observation("last")
    kubelet.delete("last")
    assert inbox.of(PodConfirmed).ref.name == "last"


@pytest.mark.parametrize("compacted", [False, True])
def test_cut_watch_emits_only_the_difference(
    runtime: KubernetesRuntime,
    proxy: ApiProxy,
    server: ApiServer,
    kubelet: Any,
    inbox: Any,
    pod: Pod,
    compacted: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    for name in ("same", "changes", "vanishes"):
        kubelet.create(pod(name))
        inbox.observation(name)
    # Kept from reconnecting until everything has happened behind its back.
    proxy.faults.fail(503, times=1000, when=lambda info: info.verb == "list")
    proxy.cut_watches()
    kubelet.set_status("changes", phase="Failed", reason="Evicted")
    kubelet.delete("vanishes")
    kubelet.create(pod("new"))
    if compacted:
        server.compact()
    with caplog.at_level(logging.INFO):
        proxy.faults.clear()
        seen = {
            (item.facts.ref.name, item.facts.phase, item.gone)
            for item in (inbox.of(PodObservation) for _ in range(3))
        }
        assert seen == {
            ("changes", "Failed", False),
            ("vanishes", "Pending", True),
            ("new", "Pending", False),
        }
        kubelet.set_status("same", phase="Running")
        assert inbox.of(PodObservation).facts.phase == "Running"
    warnings = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(warnings) <= 2  # the cut, and the 503 that followed; not one per attempt


def test_silent_watch_is_noticed(
    make_runtime: Make, proxy: ApiProxy, kubelet: Any, inbox: Any, pod: Pod
) -> None:
    runtime = make_runtime(inactivity_timeout=0.6)  # three bookmarks of this server
    runtime.start()
    wait_for("one watch is open", lambda: proxy.open_watches == 1, show=lambda: proxy.open_watches)
    proxy.freeze_watches()
    kubelet.create(pod("a"))
    assert inbox.of(PodObservation).facts.ref.name == "a"


def test_a_quiet_watch_is_sent_bookmarks(make_runtime: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[str] = []
    monkeypatch.setattr(Informer, "_take", lambda self, event: heard.append(event.type))
    make_runtime().start()
    wait_for("two events have come", lambda: len(heard) >= 2, show=lambda: heard)
    assert set(heard) == {"BOOKMARK"}


def test_long_lists_come_in_pages(
    make_runtime: Make, proxy: ApiProxy, kubelet: Any, inbox: Any, pod: Pod, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airflow.providers.cncf.kubernetes_resilience.pods.api.client.PAGE_SIZE", 3)
    for number in range(8):
        kubelet.create(pod(f"pod-{number}"))
    # The second page's snapshot has been compacted away.
    proxy.faults.fail(410, when=lambda info: "continue" in info.query)
    make_runtime().start()
    names = [inbox.of(PodObservation).facts.ref.name for _ in range(8)]
    assert sorted(names) == [f"pod-{number}" for number in range(8)]
    kubelet.set_status("pod-0", phase="Running")
    assert inbox.of(PodObservation).facts.phase == "Running"


def test_all_namespaces_and_large_pods(make_runtime: Make, kubelet: Any, inbox: Any, pod: Pod) -> None:
    runtime = make_runtime(namespaces=(None,))
    runtime.start()
    assert wait_synced(runtime)
    large = pod("large")
    large["metadata"]["annotations"]["filler"] = "x" * 200_000  # more than one read of the stream
    kubelet.create(large)
    assert inbox.of(PodObservation).facts.ref.name == "large"


@pytest.mark.parametrize("seed", range(3))
def test_whatever_happens_the_picture_ends_up_right(
    runtime: KubernetesRuntime,
    proxy: ApiProxy,
    server: ApiServer,
    kubelet: Any,
    inbox: Any,
    pod: Pod,
    seed: int,
) -> None:
    """Random changes under random faults; what the observations add up to must be what there is."""
    chance = random.Random(seed)
    phases: dict[str, str] = {}
    uids: dict[str, str] = {}
    for _ in range(120):
        name = f"pod-{chance.randrange(12)}"
        if name not in phases:
            uids[name] = kubelet.create(pod(name)).uid
            phases[name] = "Pending"
        elif chance.random() < 0.3:
            kubelet.delete(name)
            del phases[name], uids[name]
        else:
            phases[name] = chance.choice(["Running", "Failed", "Succeeded"])
            kubelet.set_status(name, phase=phases[name])
        if chance.random() < 0.1:
            chance.choice([proxy.cut_watches, server.compact])()

    expected = {(uids[name], phase) for name, phase in phases.items()}
    picture: dict[str, str] = {}

    def complete() -> bool:
        while not inbox.empty():
            seen = inbox.next()
            if not isinstance(seen, PodObservation):
                continue
            if seen.gone:
                picture.pop(seen.facts.ref.uid)
            else:
                picture[seen.facts.ref.uid] = seen.facts.phase
        return set(picture.items()) == expected

    wait_for(f"the pods are {expected}", complete, show=lambda: picture)
