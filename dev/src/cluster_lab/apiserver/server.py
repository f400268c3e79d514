# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The server itself: HTTP, authentication, and the scheduler beside it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Coroutine, Iterator
from pathlib import Path
from typing import Any, Self

from aiohttp import web
from anyio.from_thread import start_blocking_portal

from cluster_lab.apiserver.handlers import Handlers, error_response, json_response
from cluster_lab.apiserver.logs import LogProxy
from cluster_lab.apiserver.registry import Registry
from cluster_lab.apiserver.requests import resolve
from cluster_lab.apiserver.resources import NAMESPACES, discovery_document
from cluster_lab.apiserver.scheduler import Scheduler
from cluster_lab.apiserver.status import ApiError, internal
from cluster_lab.apiserver.store import Store
from cluster_lab.http_server import listening
from cluster_lab.kubeconfig import write_kubeconfig
from cluster_lab.ports import LOOPBACK

_log = logging.getLogger(__name__)

_LARGEST_BODY = 3 * 1024 * 1024
"""Bytes, as with a real server."""
_INITIAL_NAMESPACES = ("default", "kube-system")


class ApiServer:
    """An in-memory Kubernetes API server.

    :param token: bearer token that requests have to carry.
    :param run_controllers: whether the scheduler runs.
    :param bookmark_interval: seconds between bookmarks.
    """

    def __init__(self, token: str, *, run_controllers: bool = True, bookmark_interval: float = 60.0) -> None:
        self._token = token
        self._run_controllers = run_controllers
        self._bookmark_interval = bookmark_interval
        self.store = Store()
        self.registry = Registry(self.store)
        for name in _INITIAL_NAMESPACES:
            self.registry.create(NAMESPACES, "", {"metadata": {"name": name}})

    @property
    def url(self) -> str:
        """:returns: base URL, known once the server has started."""
        return f"http://{LOOPBACK}:{self._port}"

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Self]:
        """Run for as long as the block lasts."""
        self._loop = asyncio.get_running_loop()
        app = web.Application(client_max_size=_LARGEST_BODY)
        app.router.add_route("*", "/{path:.*}", self._serve)
        # Without cancellation the handler of an idle watch outlives its client, until the watch's timeout.
        runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
        async with contextlib.AsyncExitStack() as stack:
            logs = await stack.enter_async_context(contextlib.aclosing(LogProxy(self.registry)))
            self._handlers = Handlers(self.registry, logs, self._bookmark_interval)
            self._port = await stack.enter_async_context(listening(runner, LOOPBACK))
            if self._run_controllers:
                await stack.enter_async_context(in_background(Scheduler(self.registry).run()))
            yield self

    def compact(self) -> None:
        """Expire every older resource version and continue token. May be called from any thread.

        https://etcd.io/docs/v3.5/op-guide/maintenance/#history-compaction-v3-api-key-value-database
        """
        self._loop.call_soon_threadsafe(self.store.compact)

    def write_kubeconfig(self, path: Path) -> None:
        """Write a kubeconfig for this server."""
        write_kubeconfig(path, self.url, token=self._token)

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        try:
            return await self._answer(request)
        except ApiError as error:
            return error_response(error)
        except Exception as error:  # noqa: BLE001 (a bug should look like a 500, as on a real server)
            _log.exception("%s %s", request.method, request.path_qs)
            return error_response(internal(str(error)))

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        if request.headers.get("Authorization") != f"Bearer {self._token}":
            raise ApiError(401, "Unauthorized", "Unauthorized")
        if document := discovery_document(request.path):
            return json_response(document)
        return await self._handlers.handle(request, resolve(request.method, request.path, request.query))


@contextlib.asynccontextmanager
async def in_background(work: Coroutine[None, None, None]) -> AsyncIterator[None]:
    """Do something that does not end by itself for as long as the block lasts."""
    task = asyncio.create_task(work)
    task.add_done_callback(_report_failure)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def _report_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()):
        _log.error("%s has stopped", task, exc_info=error)


@contextlib.contextmanager
def running_server(**options: Any) -> Iterator[ApiServer]:
    """
    Run a server on an event loop in a thread, for tests that have none of their own.

    :param options: arguments of :class:`ApiServer`.
    """
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(ApiServer(**options).running()) as server,
    ):
        yield server
