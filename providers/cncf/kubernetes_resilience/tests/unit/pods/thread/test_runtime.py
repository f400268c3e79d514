# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The runtime's thread: how it starts, takes commands, reports what breaks, and ends without a trace."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any

import pytest

from airflow.providers.cncf.kubernetes_resilience.pods.messages import PodConfirmed, PodObservation
from airflow.providers.cncf.kubernetes_resilience.pods.thread.runtime import (
    KubernetesRuntime,
    RuntimeSettings,
)
from airflow.providers.cncf.kubernetes_resilience.pods.thread.session import Session

from ....support.waiting import WAIT, wait_synced

SETTINGS = RuntimeSettings(namespaces=("airflow",), label_selector="a=b", concurrency=2)


class Connection:
    """The way to the cluster, which may take its time, or lead nowhere."""

    def __init__(self, cluster: Any) -> None:
        self.cluster = cluster
        self.reachable: Future[None] = Future()
        self.reachable.set_result(None)

    async def connect(self) -> Any:
        await asyncio.shield(asyncio.wrap_future(self.reachable))
        return self.cluster


@pytest.fixture
def hold() -> Future[None]:
    """What every call that is about one pod waits for."""
    return Future()


@pytest.fixture
def quiet(cluster: Any, pod: Any, hold: Future[None]) -> Any:
    """Give a cluster of one pod, in which nothing happens."""
    cluster.pods["worker"] = pod()
    cluster.entered = lambda: asyncio.shield(asyncio.wrap_future(hold))
    return cluster


@pytest.fixture
def connection(quiet: Any) -> Connection:
    return Connection(quiet)


@pytest.fixture
def inbox() -> SimpleQueue[Any]:
    return SimpleQueue()


@pytest.fixture
def runtime(connection: Connection, inbox: SimpleQueue[Any]) -> Iterator[KubernetesRuntime]:
    runtime = KubernetesRuntime(SETTINGS, inbox.put, connect=connection.connect)
    yield runtime
    runtime.stop(0)
    assert [thread.name for thread in threading.enumerate() if thread.name == "kubernetes-resilience"] == []


def test_nothing_exists_before_start(runtime: KubernetesRuntime) -> None:
    before = threading.active_count()
    assert not runtime.is_alive
    runtime.stop(1)
    assert threading.active_count() == before
    with pytest.raises(RuntimeError):
        _ = runtime.launcher
    with pytest.raises(RuntimeError):
        runtime.submit(asyncio.sleep, 0)
    with pytest.raises(RuntimeError):
        runtime.call(asyncio.sleep(0), 1)


def test_starts_syncs_and_stops(runtime: KubernetesRuntime, quiet: Any, inbox: SimpleQueue[Any]) -> None:
    runtime.start()
    runtime.start()
    assert runtime.is_alive
    assert wait_synced(runtime)
    assert isinstance(inbox.get(timeout=WAIT), PodObservation)
    runtime.stop(1)
    runtime.stop(1)
    assert not runtime.is_alive
    assert quiet.calls.count("close") == 2  # the launcher's and the informer's client


def test_can_be_started_again(runtime: KubernetesRuntime, inbox: SimpleQueue[Any]) -> None:
    for _ in range(2):
        runtime.start()
        assert isinstance(inbox.get(timeout=WAIT), PodObservation)
        runtime.stop(1)


def test_commands_in_a_row_wake_the_loop_once(
    runtime: KubernetesRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime.start()
    session, stands, goes_on, done = runtime._running(), threading.Event(), threading.Event(), SimpleQueue()

    def stand() -> None:
        stands.set()
        goes_on.wait(WAIT)

    async def command(number: int) -> None:
        done.put(number)

    session.loop.call_soon_threadsafe(stand)
    assert stands.wait(WAIT)
    wake, woken = session.loop.call_soon_threadsafe, []
    monkeypatch.setattr(session.loop, "call_soon_threadsafe", lambda *args: woken.append(wake(*args)))
    for number in range(50):
        runtime.submit(command, number)
    goes_on.set()
    assert [done.get(timeout=WAIT) for _ in range(50)] == list(range(50))
    runtime.submit(command, 50)
    assert done.get(timeout=WAIT) == 50
    assert len(woken) == 2


def test_stop_starts_a_command_whose_submission_a_signal_has_interrupted(
    runtime: KubernetesRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime.start()
    done: SimpleQueue[str] = SimpleQueue()

    async def command() -> None:
        done.put("done")

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(runtime._running().loop, "call_soon_threadsafe", interrupted)
        with pytest.raises(KeyboardInterrupt):
            runtime.submit(command)
    runtime.stop(WAIT)
    assert done.get_nowait() == "done"


def test_stop_finishes_what_is_in_flight(
    runtime: KubernetesRuntime, hold: Future[None], inbox: SimpleQueue[Any]
) -> None:
    runtime.start()
    first = inbox.get(timeout=WAIT)
    runtime.submit(runtime.launcher.confirm, first.facts.ref)
    threading.Timer(0.01, hold.set_result, (None,)).start()
    runtime.stop(WAIT)
    assert inbox.get_nowait() == PodConfirmed(first.facts.ref, first.facts)


def test_stop_cancels_what_takes_too_long(
    runtime: KubernetesRuntime, inbox: SimpleQueue[Any], caplog: pytest.LogCaptureFixture
) -> None:
    runtime.start()
    runtime.submit(runtime.launcher.confirm, inbox.get(timeout=WAIT).facts.ref)
    runtime.stop(0.05)
    assert inbox.empty()
    assert "1 Kubernetes commands not done: confirm airflow/worker" in caplog.text


def test_unusable_configuration_is_raised_by_start(inbox: SimpleQueue[Any]) -> None:
    async def connect() -> Any:
        raise FileNotFoundError("no kubeconfig")

    runtime = KubernetesRuntime(SETTINGS, inbox.put, connect=connect)
    with pytest.raises(FileNotFoundError, match="no kubeconfig"):
        runtime.start()
    assert not runtime.is_alive
    runtime.stop(1)


def test_unknown_delete_option_is_raised_by_start(
    quiet: Any, connection: Connection, inbox: SimpleQueue[Any]
) -> None:
    settings = RuntimeSettings(
        namespaces=(None,), label_selector="a=b", concurrency=1, delete_options={"grace": 1}
    )
    runtime = KubernetesRuntime(settings, inbox.put, connect=connection.connect)
    with pytest.raises(ValueError, match="delete_option_kwargs"):
        runtime.start()
    assert quiet.calls.count("close") == 2  # all that were made


def test_command_that_fails_is_logged(runtime: KubernetesRuntime, caplog: pytest.LogCaptureFixture) -> None:
    async def fails(what: str) -> None:
        raise LookupError(what)

    runtime.start()
    runtime.submit(fails, "some pod")
    runtime.stop(WAIT)
    (record,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert record.message == "Kubernetes command failed: fails some pod"
    assert record.exc_info is not None


def test_call_returns_raises_and_times_out(runtime: KubernetesRuntime) -> None:
    async def value() -> int:
        return 7

    async def fails() -> None:
        raise LookupError

    runtime.start()
    assert runtime.call(value(), WAIT) == 7
    with pytest.raises(LookupError):
        runtime.call(fails(), WAIT)
    with pytest.raises(TimeoutError):
        runtime.call(asyncio.sleep(1000), 0.01)


def test_crashed_informer_is_reported_and_started_again(
    runtime: KubernetesRuntime, quiet: Any, inbox: SimpleQueue[Any], caplog: pytest.LogCaptureFixture
) -> None:
    # The change comes before the crash: the next list is made at once, if the jitter is such.
    quiet.watches = [[lambda: quiet.change("worker", phase="Running"), LookupError("bug in the informer")]]
    runtime.start()
    observations: list[PodObservation] = [inbox.get(timeout=WAIT) for _ in range(2)]
    assert [observation.facts.phase for observation in observations] == ["Pending", "Running"]
    assert "The informer of airflow crashed" in caplog.text


def test_crashed_thread_is_reported_and_can_be_started_again(
    runtime: KubernetesRuntime,
    inbox: SimpleQueue[Any],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def crash(self: Session) -> None:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(Session, "serve", crash)
        runtime.start()
        thread = runtime._thread
        if thread is not None:
            thread.join(WAIT)
    assert not runtime.is_alive
    assert [record.levelname for record in caplog.records if "crashed" in record.message] == ["CRITICAL"]

    runtime.start()
    assert isinstance(inbox.get(timeout=WAIT), PodObservation)


def test_start_need_not_wait(runtime: KubernetesRuntime, connection: Connection) -> None:
    connection.reachable = Future()
    for _ in range(2):
        runtime.start(wait=False)
        assert not runtime.is_alive
        with pytest.raises(RuntimeError):
            runtime.submit(asyncio.sleep, 0)
    connection.reachable.set_result(None)
    runtime.start()
    assert runtime.is_alive
    assert [thread.name for thread in threading.enumerate()].count("kubernetes-resilience") == 1


def test_start_that_did_not_wait_raises_what_went_wrong_when_it_is_called_again(
    runtime: KubernetesRuntime, connection: Connection
) -> None:
    connection.reachable = Future()
    runtime.start(wait=False)
    connection.reachable.set_exception(FileNotFoundError("no kubeconfig"))
    with pytest.raises(FileNotFoundError, match="no kubeconfig"):
        runtime.start()
    connection.reachable = Future()
    connection.reachable.set_result(None)
    runtime.start()
    assert runtime.is_alive


def test_stop_while_it_connects(runtime: KubernetesRuntime, quiet: Any, connection: Connection) -> None:
    connection.reachable = Future()
    runtime.start(wait=False)
    threading.Timer(0.01, connection.reachable.set_result, (None,)).start()
    runtime.stop(WAIT)
    assert not runtime.is_alive
    assert quiet.calls.count("close") == 2


def test_the_server_is_away_while_no_informer_can_list_or_there_is_none(runtime: KubernetesRuntime) -> None:
    assert runtime.is_away
    runtime.start()
    assert wait_synced(runtime)
    assert not runtime.is_away
    (informer,) = runtime._running().informers
    informer.is_away = True
    assert runtime.is_away
    informer.is_away = False
    runtime.stop(1)
    assert runtime.is_away
