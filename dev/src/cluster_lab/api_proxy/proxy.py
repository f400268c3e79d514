# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The proxy itself."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import select
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import aiohttp
import msgspec
from aiohttp import web
from anyio.from_thread import start_blocking_portal

from cluster_lab.api_proxy.request_faults import DroppedError, Hold, Predicate, RequestFaults
from cluster_lab.api_proxy.upstream import Upstream, relay
from cluster_lab.api_proxy.watch import Watches
from cluster_lab.apiserver.handlers import error_response
from cluster_lab.apiserver.requests import RequestInfo, resolve
from cluster_lab.apiserver.status import ApiError, expired
from cluster_lab.http_server import listening
from cluster_lab.kubeconfig import write_kubeconfig
from cluster_lab.managed_process import Service
from cluster_lab.ports import LOOPBACK

_log = logging.getLogger(__name__)

_BACKLOG = 1024
"""Connections that wait to be accepted: in a burst on a busy machine, one too many waits for a SYN retry."""
_PLAIN = {"Accept-Encoding": "identity"}
"""For watches, whose lines are looked at."""


class ApiProxy(Service):
    """A proxy on loopback, from entering the ``with`` block to its end.

    :param kubeconfig: of the server behind, with a token or a client certificate. It is read once.
    """

    def __init__(self, kubeconfig: Path) -> None:
        self.faults = RequestFaults()
        self._kubeconfig = kubeconfig
        self._watches = Watches()
        self._expiries = 0
        self._holds: list[Hold] = []
        self._stack = contextlib.ExitStack()

    def _start(self) -> None:
        self._portal = self._stack.enter_context(start_blocking_portal())
        self._stack.enter_context(self._portal.wrap_async_context_manager(self._serving()))

    def stop(self) -> None:
        """Stop it, and break all connections."""
        self._stack.close()

    @property
    def url(self) -> str:
        """The address of the proxy."""
        return f"http://{LOOPBACK}:{self._port}"

    def write_kubeconfig(self, path: Path, token: str | None = None) -> None:
        """
        Write a kubeconfig for the proxy.

        :param token: of the user who the server behind is to take its requests for; None: who brings no token
            is the one of the proxy's kubeconfig
        """
        write_kubeconfig(path, self.url, token=token)

    @contextlib.contextmanager
    def hold(self, when: Predicate, *, reply: bool = False) -> Iterator[Hold]:
        """Hold requests for as long as the block lasts; then they go on.

        A held request meets the faults when it goes on.

        :param reply: whether they are forwarded, and so applied, at once, and only the replies are held. If
            not, a client that goes away first prevents its request for good.
        """
        hold = Hold(self._portal, when, reply=reply)
        self._holds.append(hold)
        try:
            yield hold
        finally:
            self._holds.remove(hold)
            hold.end()

    @property
    def watches_opened(self) -> int:
        """How many watches have been opened so far: the client has been sent status 200 of the server's."""
        return self._watches.opened

    def cut_watches(self) -> None:
        """Break the connections of the watches that are open."""
        self._portal.call(self._watches.cut)

    def freeze_watches(self) -> None:
        """Pass nothing on from the watches that are open, and keep them: a dead peer behind a NAT."""
        self._portal.call(self._watches.freeze)

    @property
    def open_watches(self) -> int:
        """How many watches are open."""
        return len(self._watches.open)

    def expire_watch(self) -> None:
        """Answer one more watch request as if its resourceVersion had been compacted away.

        That is said as kube-apiserver says it, in a stream (status 200) of one ERROR event of code 410. One
        without a version, or with version 0, cannot expire, and is not counted.
        """
        self._expiries += 1

    def clear(self) -> None:
        """Pass everything on as it comes from now on: no faults, no watches that are still to expire."""
        self.faults.clear()
        self._expiries = 0
        self.lag(0)

    def lag(self, seconds: float) -> None:
        """Pass watch events on when they are so old, in their order; 0: at once.

        That goes for the watches that are open, the events that wait already, and the end of a watch too.
        """
        self._portal.call(self._watches.set_lag, seconds)

    @contextlib.asynccontextmanager
    async def _serving(self) -> AsyncIterator[None]:
        self._upstream = Upstream(self._kubeconfig)
        # The server behind says what is too large.
        app = web.Application(client_max_size=0)
        app.router.add_route("*", "/{path:.*}", self._serve)
        runner = web.AppRunner(
            app,
            access_log=None,
            auto_decompress=False,
            # Otherwise a request would outlive its client, and be forwarded when its hold ends.
            handler_cancellation=True,
            shutdown_timeout=0.1,
        )
        async with (
            contextlib.aclosing(self._upstream),
            listening(runner, LOOPBACK, backlog=_BACKLOG) as self._port,
        ):
            yield

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        try:
            body = await request.read()
            info = _info(request)
            if info is None:
                async with self._upstream.send(request, body, {}) as reply:
                    return await relay(request, reply)
            return await self._answer(request, body, info)
        except ApiError as error:
            return error_response(error)
        except (aiohttp.ClientError, OSError) as error:
            # Whatever broke, the client sees what it would see without a proxy: a broken connection.
            _log.info("%s %s: %r", request.method, request.raw_path, error)
            if request.transport is not None:
                request.transport.abort()
            return web.Response()

    async def _answer(self, request: web.Request, body: bytes, info: RequestInfo) -> web.StreamResponse:
        await self._hold(info, reply=False)
        fault = self.faults.take(info)
        await asyncio.sleep(fault.delay)
        _check_client(request)
        if fault.error:
            raise fault.error
        is_watch = info.verb == "watch"
        if is_watch and (response := self._expiry(info)):
            return response
        async with self._upstream.send(request, body, _PLAIN if is_watch else {}) as reply:
            await self._hold(info, reply=True)
            await asyncio.sleep(fault.reply_delay)
            if fault.reply_lost:
                raise DroppedError
            if is_watch and reply.status == 200:
                return await self._watches.relay(request, reply)
            return await relay(request, reply)

    async def _hold(self, info: RequestInfo, *, reply: bool) -> None:
        for hold in tuple(self._holds):
            if hold.reply == reply and hold.when(info):
                await hold.stop(info)

    def _expiry(self, info: RequestInfo) -> web.Response | None:
        version = info.query.get("resourceVersion", "")
        if version in ("", "0") or not self._expiries:
            return None
        self._expiries -= 1
        status = expired(f"too old resource version: {version}").status()
        event = msgspec.json.encode({"type": "ERROR", "object": status})
        return web.Response(body=event + b"\n", content_type="application/json")


def _info(request: web.Request) -> RequestInfo | None:
    try:
        return resolve(request.method, request.path, request.query)
    except ApiError:
        return None


def _check_client(request: web.Request) -> None:
    """Make sure that the client is still there.

    A client may have died before the test let its request go on, and the event loop hears of both at once,
    in either order. The kernel knows.

    :raises ConnectionResetError: it is not.
    """
    if (transport := request.transport) is not None:
        poll = select.poll()
        poll.register(transport.get_extra_info("socket").fileno(), select.POLLRDHUP)
        if not transport.is_closing() and not poll.poll(0):
            return
    raise ConnectionResetError("the client has gone away")
