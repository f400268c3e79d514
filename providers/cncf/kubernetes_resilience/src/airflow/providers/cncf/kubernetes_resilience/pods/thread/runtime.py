# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
The one thread that talks to Kubernetes, and the way into it.

The thread does not exist before :meth:`KubernetesRuntime.start`: Airflow's API server and command line
construct the executor too, and never start it.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from concurrent.futures import Future
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any, TypeVar

from airflow.providers.cncf.kubernetes_resilience.pods.api.api_clients import ApiClients
from airflow.providers.cncf.kubernetes_resilience.pods.api.call_budget import Calls
from airflow.providers.cncf.kubernetes_resilience.pods.api.client import PodClient, delete_options
from airflow.providers.cncf.kubernetes_resilience.pods.api.transport import JsonTransport, RequestTimeout
from airflow.providers.cncf.kubernetes_resilience.pods.messages import Message, PodObservation
from airflow.providers.cncf.kubernetes_resilience.pods.thread.forks import ForkSafeLoop
from airflow.providers.cncf.kubernetes_resilience.pods.thread.informer import INACTIVITY_TIMEOUT, Informer
from airflow.providers.cncf.kubernetes_resilience.pods.thread.launcher import Launcher
from airflow.providers.cncf.kubernetes_resilience.pods.thread.session import (
    CommandFunction,
    Session,
    cancel_all,
)

logger = logging.getLogger(__name__)

T = TypeVar("T")
Connect = Callable[[], Awaitable[PodClient]]

CLOSE_SECONDS = 5.0
"""To close connections on stop, after the time for the commands in flight."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeSettings:
    """Settings of the runtime."""

    namespaces: tuple[str | None, ...]
    """Each has an informer; None is all namespaces."""
    label_selector: str
    """Selects the pods that are this scheduler's."""
    concurrency: int
    """Requests of the launcher at once."""
    delete_options: Mapping[str, Any] = field(default_factory=dict)
    """``[kubernetes_executor] delete_option_kwargs``."""
    request_timeout: RequestTimeout | None = None
    """``_request_timeout`` of ``[kubernetes_executor] kube_client_request_args``; None for the default."""
    inactivity_timeout: float = INACTIVITY_TIMEOUT
    """Seconds of silence after which a watch counts as dead."""
    team_name: str | None = None
    """The team whose executor this is, for its client factory and its metrics."""


class KubernetesRuntime:
    """
    A daemon thread with an event loop. The methods are for the scheduler's thread.

    :param emit: takes each message, in the runtime's thread; must not block
    :param connect: makes a client; the default one reads Airflow's configuration
    """

    def __init__(
        self, settings: RuntimeSettings, emit: Callable[[Message], None], *, connect: Connect | None = None
    ) -> None:
        self._settings = settings
        self._emit = emit
        self._connect = connect
        self._thread: threading.Thread | None = None
        self._connecting: Future[Session] | None = None
        self._session: Session | None = None

    @property
    def is_alive(self) -> bool:
        """Whether it runs. False after a crash, which was logged. :meth:`start` then starts it again."""
        return self._session is not None and self._thread is not None and self._thread.is_alive()

    @property
    def is_away(self) -> bool:
        """Whether the API server does not answer, as far as is known, or the thread does not run."""
        session = self._session
        return session is None or not self.is_alive or all(item.is_away for item in session.informers)

    @property
    def launcher(self) -> Launcher:
        """
        The launcher whose methods are submitted. Each :meth:`start` makes a new launcher.

        :raises RuntimeError: if the runtime has not been started
        """
        return self._running().launcher

    def start(self, *, wait: bool = True) -> None:
        """
        Start the thread, unless it is alive.

        After a crash the informers begin with a list and emit all of it. The receiver goes by UID, so a
        replay is harmless, but an omission is not.

        :param wait: whether to wait until it is alive, which may take ``CONNECT_SECONDS``
            (:mod:`...pods.api.api_clients`) for all namespaces; otherwise a later call finds it alive
        :raises TimeoutError: if it takes longer; the message says what for, and what has not ended
        :raises Exception: if the configuration or the credentials cannot be used, in this call or in an
            earlier one that did not wait; the next call starts again
        """
        if self.is_alive:
            return
        if self._connecting is None:
            self._connecting, self._session = Future(), None
            self._thread = threading.Thread(
                target=self._run, args=(self._connecting,), name="kubernetes-resilience", daemon=True
            )
            self._thread.start()
        if wait or self._connecting.done():
            connecting, self._connecting = self._connecting, None
            self._session = connecting.result()

    def submit(self, function: CommandFunction, *args: object) -> None:
        """
        Start a command without waiting for it.

        :raises RuntimeError: if the runtime is not alive; the command is not started
        """
        self._running().submit(function, *args)

    def call(self, coroutine: Coroutine[Any, Any, T], timeout: float) -> T:
        """
        Run a coroutine on the loop and wait for its result. The call blocks, and is not for the scheduler's
        loop.

        :param timeout: seconds
        :raises TimeoutError: if it takes longer; it is cancelled
        :raises RuntimeError: if the runtime is not alive
        """
        try:
            future = asyncio.run_coroutine_threadsafe(coroutine, self._running().loop)
        except RuntimeError:
            coroutine.close()
            raise
        try:
            return future.result(timeout)
        finally:
            future.cancel()

    def stop(self, timeout: float) -> None:
        """
        End the thread. Commands in flight are finished; those that take too long are cancelled.

        Calls without :meth:`start`, and repeated calls, are allowed. Nothing is emitted after it returns.

        :param timeout: seconds for the commands in flight
        """
        thread, session, self._thread, self._session = self._thread, self._session, None, None
        connecting, self._connecting = self._connecting, None
        if thread is None:
            return
        if connecting is not None:
            connecting.add_done_callback(_stop_connected)
        elif session is not None and thread.is_alive():
            _stop(session, timeout)
        thread.join(timeout + CLOSE_SECONDS)
        if thread.is_alive():
            logger.error(
                "The Kubernetes thread did not end within %.0f s; it is left", timeout + CLOSE_SECONDS
            )

    def _running(self) -> Session:
        if self._session is None or not self.is_alive:
            raise RuntimeError("the Kubernetes runtime is not running")
        return self._session

    def _run(self, ready: Future[Session]) -> None:
        try:
            with asyncio.Runner(loop_factory=ForkSafeLoop) as runner:
                runner.run(self._main(ready))
        except BaseException as error:
            if ready.done():
                logger.critical("The Kubernetes thread crashed", exc_info=True)
            else:
                ready.set_exception(error)

    async def _main(self, ready: Future[Session]) -> None:
        async with AsyncExitStack() as stack:
            session = await self._open(stack)
            ready.set_result(session)
            await session.serve()

    async def _open(self, stack: AsyncExitStack) -> Session:
        """Make everything that is bound to the loop. Each informer has its own connections."""
        # With one pool for all, watches would wait for a connection during a burst of creates. Namespaces
        # beyond the size of the pool would never be watched.
        settings = self._settings

        def observed(observation: PodObservation) -> None:
            self._emit(observation)
            if observation.gone and not observation.facts.is_terminal:
                # The executor needs to know whether it was deleted or only relabelled. The scheduler's loop
                # would take a second to ask, and another one to see the answer.
                session.spawn(launcher.confirm, observation.facts.ref)

        purposes = [
            "creating pods",
            *(f"watching {name or 'all namespaces'}" for name in settings.namespaces),
        ]
        launchers_client, *informers_clients = await self._clients(stack, purposes)
        launcher = Launcher(
            launchers_client,
            emit=self._emit,
            calls=Calls(settings.concurrency),
            delete_options=delete_options(settings.delete_options),
            team_name=settings.team_name,
        )
        informers = [
            Informer(
                client,
                namespace=namespace,
                label_selector=settings.label_selector,
                emit=observed,
                inactivity_timeout=settings.inactivity_timeout,
            )
            for namespace, client in zip(settings.namespaces, informers_clients, strict=True)
        ]
        session = Session(launcher, informers)
        return session

    async def _clients(self, stack: AsyncExitStack, purposes: Iterable[str]) -> list[PodClient]:
        connect = self._connect or self._as_configured()
        connecting = [asyncio.create_task(_client(stack, connect, purpose)) for purpose in purposes]
        try:
            return await asyncio.gather(*connecting)
        finally:
            await cancel_all(connecting)

    def _as_configured(self) -> Connect:
        make = ApiClients(self._settings.team_name).make

        async def connect() -> PodClient:
            return PodClient(JsonTransport(await make(), self._settings.request_timeout, renew=make))

        return connect


async def _client(stack: AsyncExitStack, connect: Connect, purpose: str) -> PodClient:
    try:
        client = await connect()
    except TimeoutError as error:
        raise TimeoutError(f"Connecting to Kubernetes for {purpose} took too long: {error}") from error
    stack.push_async_callback(client.close)
    return client


def _stop_connected(connecting: Future[Session]) -> None:
    if connecting.exception() is None:
        _stop(connecting.result(), 0.0)


def _stop(session: Session, grace: float) -> None:
    try:
        session.loop.call_soon_threadsafe(session.stop, grace)
    except RuntimeError:
        logger.debug("The Kubernetes thread ended by itself", exc_info=True)
