# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The server itself: HTTP, authentication, and the controllers beside it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from aiohttp import web

from cluster_lab.apiserver import discovery
from cluster_lab.apiserver.handlers import Handlers, error_response, json_response
from cluster_lab.apiserver.logs import LogProxy
from cluster_lab.apiserver.podgc import PodGc, PodGcSettings
from cluster_lab.apiserver.registry import Registry
from cluster_lab.apiserver.requests import resolve
from cluster_lab.apiserver.resources import NAMESPACES
from cluster_lab.apiserver.scheduler import Scheduler
from cluster_lab.apiserver.status import ApiError, internal, unauthorized
from cluster_lab.apiserver.store import Store
from cluster_lab.http_server import listening
from cluster_lab.kubeconfig import write_kubeconfig
from cluster_lab.loop_thread import run_on

_log = logging.getLogger(__name__)

_LARGEST_BODY = 3 * 1024 * 1024
"""Bytes, as with a real server."""
_INITIAL_NAMESPACES = ("default", "kube-system")


class ApiServer:
    """An in-memory Kubernetes API server.

    :param port: 0 takes a free one; :attr:`url` says which.
    :param token: bearer token that requests have to carry, except for health and version; None asks for none.
    :param run_controllers: whether the scheduler and the pod garbage collector run.
    :param history: changes kept per resource for watches to start from.
    :param bookmark_interval: seconds between bookmarks.
    """

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = 0,
        token: str | None = None,
        run_controllers: bool = True,
        *,
        pod_gc: PodGcSettings | None = None,
        history: int = 20_000,
        bookmark_interval: float = 60.0,
    ) -> None:
        self._host, self._port, self._token = host, port, token
        self._run_controllers = run_controllers
        self._pod_gc = pod_gc or PodGcSettings()
        self._bookmark_interval = bookmark_interval
        self.store = Store(history)
        self.registry = Registry(self.store)
        self._tasks: list[asyncio.Task[None]] = []
        self._stack = contextlib.AsyncExitStack()
        for name in _INITIAL_NAMESPACES:
            self.registry.create(NAMESPACES, "", {"metadata": {"name": name}})

    @property
    def url(self) -> str:
        """:returns: base URL, known once the server has started."""
        return f"http://{self._host}:{self._port}"

    async def start(self) -> None:
        """Listen, and start the controllers.

        :raises OSError: the address cannot be used.
        """
        loop = self._loop = asyncio.get_running_loop()
        logs = LogProxy(self.registry)
        self._stack.push_async_callback(logs.close)
        self._handlers = Handlers(self.registry, logs, self._bookmark_interval)
        try:
            await self._listen()
        except OSError:
            await self._stack.aclose()
            raise
        if self._run_controllers:
            gc = PodGc(self.registry, self._pod_gc, time.monotonic)
            self._tasks = [loop.create_task(Scheduler(self.registry).run()), loop.create_task(gc.run())]
            for task in self._tasks:
                task.add_done_callback(_report_failure)

    async def _listen(self) -> None:
        app = web.Application(client_max_size=_LARGEST_BODY)
        app.router.add_route("*", "/{path:.*}", self._serve)
        # Without cancellation the handler of an idle watch outlives its client, until the watch's timeout.
        runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
        self._port = await self._stack.enter_async_context(listening(runner, self._host, self._port))

    async def stop(self) -> None:
        """Stop the controllers, break open watches and close."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._stack.aclose()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    def compact(self) -> None:
        """Expire every older resource version and continue token. May be called from any thread.

        https://etcd.io/docs/v3.5/op-guide/maintenance/#history-compaction-v3-api-key-value-database
        """
        run_on(self._loop, self.store.compact)

    def write_kubeconfig(self, path: Path) -> None:
        """Write a kubeconfig for this server."""
        write_kubeconfig(path, self.url, token=self._token)

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        try:
            return await self._answer(request)
        except ApiError as error:
            return error_response(error)
        except web.HTTPRequestEntityTooLarge as error:
            return error_response(ApiError(413, "RequestEntityTooLarge", str(error)))
        except Exception as error:  # noqa: BLE001 (a bug should look like a 500, as on a real server)
            _log.exception("%s %s", request.method, request.path_qs)
            return error_response(internal(str(error)))

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        if request.path in discovery.HEALTH:
            return web.Response(text="ok")
        if request.path != "/version":
            self._authenticate(request)
        if document := discovery.document(request.path, request.host):
            return json_response(document)
        return await self._handlers.handle(request, resolve(request.method, request.path, request.query))

    def _authenticate(self, request: web.Request) -> None:
        if self._token and request.headers.get("Authorization") != f"Bearer {self._token}":
            raise unauthorized()


def _report_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()):
        _log.error("a controller of the embedded API server stopped", exc_info=error)
