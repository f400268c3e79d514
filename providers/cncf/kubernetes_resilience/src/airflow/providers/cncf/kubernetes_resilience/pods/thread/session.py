# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""A run of the event loop: the informers, and the commands until they are done."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Collection, Coroutine, Sequence
from itertools import count
from typing import Any

from airflow.providers.cncf.kubernetes_resilience.pods.api.timing import REAL, Timing
from airflow.providers.cncf.kubernetes_resilience.pods.thread.informer import RECONNECT, Informer
from airflow.providers.cncf.kubernetes_resilience.pods.thread.launcher import Launcher

logger = logging.getLogger(__name__)

CommandFunction = Callable[..., Coroutine[Any, Any, object]]


class Session:
    """
    A run of the event loop, made and used on the loop, but for :meth:`submit`.

    :param informers: kept running; one that crashes is started again and keeps its store
    """

    def __init__(self, launcher: Launcher, informers: Sequence[Informer], *, timing: Timing = REAL) -> None:
        self.loop = asyncio.get_running_loop()
        self.launcher = launcher
        self.informers = tuple(informers)
        self._timing = timing
        self._submitted: deque[tuple[Any, ...]] = deque()
        self._commands: set[asyncio.Task[object]] = set()
        self._stopping = asyncio.Event()
        self._grace = 0.0

    async def serve(self) -> None:
        """Run until :meth:`stop` is called and the commands in flight are done or out of time."""
        watchers = [asyncio.create_task(self._keep_running(informer)) for informer in self.informers]
        try:
            await self._stopping.wait()
        finally:
            await cancel_all(watchers)
        await self._finish()

    def submit(self, function: CommandFunction, *args: object) -> None:
        """
        Start a command from the scheduler's thread.

        Commands in a row wake the loop once: each time costs the scheduler half a millisecond, in which the
        loop has the interpreter's lock.

        :raises RuntimeError: if the loop is closed; the command is not started
        """
        self._submitted.append((function, *args))
        if len(self._submitted) > 1:
            return  # the loop is woken, and has not come to the one before
        try:
            self.loop.call_soon_threadsafe(self._spawn_submitted)
        except RuntimeError:
            self._submitted.clear()
            raise

    def _spawn_submitted(self) -> None:
        while self._submitted:
            self.loop.call_soon(self.spawn, *self._submitted.popleft())

    def spawn(self, function: CommandFunction, *args: object) -> None:
        """Start a command. An exception of the coroutine is logged."""
        task = self.loop.create_task(function(*args), name=_name(function, args))
        self._commands.add(task)
        task.add_done_callback(self._ended)

    def stop(self, grace: float) -> None:
        """
        End :meth:`serve`.

        :param grace: seconds for the commands in flight
        """
        self._spawn_submitted()  # a signal may have kept the scheduler from waking the loop
        self._grace = grace
        self._stopping.set()

    async def _keep_running(self, informer: Informer) -> None:
        for attempt in count(1):
            try:
                await informer.run()
            except Exception:
                logger.exception(
                    "The informer of %s crashed; it is started again", informer.namespace or "all"
                )
            await self._timing.sleep(RECONNECT.delay(attempt, self._timing.random))

    async def _finish(self) -> None:
        if not self._commands:
            return
        _, late = await asyncio.wait(self._commands, timeout=self._grace)
        if late:
            names = ", ".join(sorted(task.get_name() for task in late)[:10])
            logger.warning("Stopping with %d Kubernetes commands not done: %s", len(late), names)
        await cancel_all(late)

    def _ended(self, task: asyncio.Task[object]) -> None:
        self._commands.discard(task)
        if not task.cancelled() and (error := task.exception()):
            logger.error("Kubernetes command failed: %s", task.get_name(), exc_info=error)


def _name(function: CommandFunction, args: tuple[object, ...]) -> str:
    # The first argument is a PodRef, a namespace or a launch id. Pod bodies are not for logs.
    return f"{getattr(function, '__name__', function)} {args[0] if args else ''}".strip()


async def cancel_all(tasks: Collection[asyncio.Task[Any]]) -> None:
    """Cancel tasks, and wait until they have ended."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
