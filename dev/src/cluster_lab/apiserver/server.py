# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The server itself: HTTP, authentication, and the scheduler beside it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import TracebackType
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
        self._stack = contextlib.AsyncExitStack()
        for name in _INITIAL_NAMESPACES:
            self.registry.create(NAMESPACES, "", {"metadata": {"name": name}})

    @property
    def url(self) -> str:
        """:returns: base URL, known once the server has started."""
        return f"http://{LOOPBACK}:{self._port}"

    async def __aenter__(self) -> Self:
        loop = self._loop = asyncio.get_running_loop()
        logs = LogProxy(self.registry)
        self._stack.push_async_callback(logs.close)
        self._handlers = Handlers(self.registry, logs, self._bookmark_interval)
        await self._listen()
        if self._run_controllers:
            self._scheduling = loop.create_task(Scheduler(self.registry).run())
            self._scheduling.add_done_callback(_report_failure)
            self._stack.push_async_callback(self._stop_scheduling)
        return self

    async def _listen(self) -> None:
        app = web.Application(client_max_size=_LARGEST_BODY)
        app.router.add_route("*", "/{path:.*}", self._serve)
        # Without cancellation the handler of an idle watch outlives its client, until the watch's timeout.
        runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
        self._port = await self._stack.enter_async_context(listening(runner, LOOPBACK))

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    async def _stop_scheduling(self) -> None:
        self._scheduling.cancel()
        await asyncio.gather(self._scheduling, return_exceptions=True)

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
        if request.path == "/api/v1":
            return json_response(discovery_document())
        return await self._handlers.handle(request, resolve(request.method, request.path, request.query))


def _report_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()):
        _log.error("the scheduler of the embedded API server stopped", exc_info=error)


@contextlib.contextmanager
def running_server(**options: Any) -> Iterator[ApiServer]:
    """
    Run a server on an event loop in a thread, for tests that have none of their own.

    :param options: arguments of :class:`ApiServer`.
    """
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(portal.call(partial(ApiServer, **options))) as server,
    ):
        yield server
