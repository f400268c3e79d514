# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Processes that are forked while the Kubernetes thread works, as LocalExecutor and Celery's pool do."""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import os
import socket
import stat
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

import pytest

from airflow.providers.cncf.kubernetes_resilience.pods.messages import PodCreated
from airflow.providers.cncf.kubernetes_resilience.pods.thread import forks
from airflow.providers.cncf.kubernetes_resilience.pods.thread.runtime import KubernetesRuntime
from cluster_lab.api_proxy import ApiProxy
from cluster_lab.apiserver import ApiServer
from cluster_lab.ports import LOOPBACK
from testbed.waiting import wait_for

from ..support.waiting import WAIT

pytestmark = [
    # What Python 3.12 warns of is what is tested.
    pytest.mark.filterwarnings("ignore:This process .*is multi-threaded:DeprecationWarning"),
]

FORK = multiprocessing.get_context("fork")
TIMES = 20


@contextmanager
def forked(work: Callable[[Connection], None]) -> Iterator[Connection]:
    """Run something in a forked process, with a pipe to it; closing the pipe is to end it."""
    ours, theirs = FORK.Pipe()

    def run() -> None:
        ours.close()  # else it would not notice that we have closed it
        work(theirs)

    process = FORK.Process(target=run)
    process.start()
    theirs.close()
    try:
        yield ours
    finally:
        ours.close()
        process.join(WAIT)
        assert process.exitcode == 0


def waits(pipe: Connection) -> None:
    pipe.send("here")
    with pytest.raises(EOFError):
        pipe.recv()


class Busy:
    """Work in the Kubernetes thread that holds a lock for most of the time, as an import may."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.turns = 0

    async def work(self) -> None:
        while True:
            with self.lock:
                time.sleep(0.005)  # noqa: ASYNC251 - lets go of the interpreter: the process is forked here
            self.turns += 1
            await asyncio.sleep(0)


@pytest.fixture
def busy(runtime: KubernetesRuntime) -> Busy:
    busy = Busy()
    runtime.submit(busy.work)
    wait_for("the thread works", lambda: busy.turns > 1, show=lambda: busy.turns)
    return busy


def test_no_lock_of_the_thread_is_held_in_a_forked_process(busy: Busy) -> None:
    def tell(pipe: Connection) -> None:
        pipe.send(busy.lock.locked())

    for _ in range(TIMES):
        with forked(tell) as pipe:
            assert pipe.recv() is False


def test_the_thread_goes_on_after_each_fork(busy: Busy) -> None:
    for _ in range(TIMES):
        with forked(waits) as pipe:
            assert pipe.recv() == "here"
            before = busy.turns
            wait_for(
                f"the thread has worked more than {before + 1} times",
                lambda before=before: busy.turns > before + 1,
                show=lambda: busy.turns,
            )


def test_a_connection_that_is_closed_is_closed_while_a_forked_process_lives(
    runtime: KubernetesRuntime, proxy: ApiProxy
) -> None:
    with forked(waits) as pipe:
        assert pipe.recv() == "here"
        runtime.stop(1)
        wait_for("no watch is open", lambda: proxy.open_watches == 0, show=lambda: proxy.open_watches)


def test_a_connection_that_is_not_registered_yet_is_not_in_a_forked_process(
    runtime: KubernetesRuntime,
) -> None:
    sock = socket.create_server((LOOPBACK, 0))

    async def connect() -> socket.socket:
        # As it is between the end of this call and the next step of the loop, in which its reader is added.
        client = socket.socket()
        client.setblocking(False)
        await asyncio.get_running_loop().sock_connect(client, sock.getsockname())
        return client

    client = runtime.call(connect(), WAIT)
    accepted, _ = sock.accept()

    def tell(pipe: Connection) -> None:
        pipe.send(stat.S_ISSOCK(os.fstat(client.fileno()).st_mode))

    with sock, client, accepted:
        with forked(tell) as pipe:
            assert pipe.recv() is False
        assert stat.S_ISSOCK(os.fstat(client.fileno()).st_mode)


def test_the_runtime_is_down_in_a_forked_process(runtime: KubernetesRuntime) -> None:
    def use(pipe: Connection) -> None:
        try:
            runtime.submit(asyncio.sleep, 0)
        except RuntimeError as error:
            pipe.send((runtime.is_alive, str(error)))
        runtime.stop(0)

    with forked(use) as pipe:
        assert pipe.recv() == (False, "the Kubernetes runtime is not running")
    assert runtime.is_alive


def test_nothing_that_a_forked_process_does_reaches_our_connections(
    runtime: KubernetesRuntime, proxy: ApiProxy, server: ApiServer, inbox: Any, pod: Any
) -> None:
    def close_everything(pipe: Connection) -> None:
        session = runtime._session
        assert session is not None
        loop: Any = session.loop
        for client in (session.launcher._client, *(informer._client for informer in session.informers)):
            connector = client._transport._client.api.rest_client.pool_manager.connector
            connector._close()
        for descriptor in tuple(loop._selector.get_map()):
            loop._selector.unregister(descriptor)
        loop._selector.close()
        loop._write_to_self()
        del session, loop
        runtime._session = None
        gc.collect()

    with forked(close_everything):
        pass
    runtime.submit(runtime.launcher.create, "launch-1", pod("a"))
    ref = inbox.of(PodCreated).facts.ref
    server.compact()
    assert ref.name == "a"
    assert proxy.open_watches == 1
    assert inbox.observation("a").facts.ref == ref
    assert runtime.is_alive


def test_the_thread_itself_may_fork(runtime: KubernetesRuntime, caplog: pytest.LogCaptureFixture) -> None:
    async def fork() -> int:
        if not (pid := os.fork()):
            os._exit(7)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])  # noqa: ASYNC222 - it ends at once

    assert runtime.call(fork(), WAIT) == 7
    assert caplog.text == "", "the thread has waited for itself"


def test_a_thread_that_does_not_stand_still_is_not_waited_for(
    runtime: KubernetesRuntime, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(forks, "PAUSE_SECONDS", 0.05)
    stuck, go_on = threading.Event(), threading.Event()

    async def hang() -> None:
        stuck.set()
        go_on.wait()

    runtime.submit(hang)
    assert stuck.wait(WAIT)
    with forked(waits) as pipe:
        assert pipe.recv() == "here"
        go_on.set()
    assert "forked while the Kubernetes thread is busy" in caplog.text
    assert runtime.call(asyncio.sleep(0, "well"), WAIT) == "well"


def test_nobody_minds_a_loop_that_is_closed(runtime: KubernetesRuntime) -> None:
    assert len(forks._loops) == 1
    runtime.stop(1)
    assert not forks._loops
