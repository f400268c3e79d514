# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
A fork-safe event loop. LocalExecutor and Celery's pool fork the scheduler's process beside it.

A forked process has a copy of the memory and all descriptors, but only the thread that forked. This has two
consequences:

* A lock that the loop's thread holds at that moment is never released in the child. The lock may be that of
  an imported module, of OpenSSL during a handshake, or of a metrics client.
* A connection stays open until the child ends too. A child may run tasks for as long as the scheduler lives.
  A watch that was closed, or whose scheduler was killed, would go on in the API server.

So the loop pauses while its process forks, in a call that holds no lock. In the child, its descriptors are
replaced.

.. seealso:: https://docs.python.org/3/library/os.html#os.register_at_fork
"""

from __future__ import annotations

import asyncio

# Imported before our own hooks are registered, so that its hook takes its lock after the loops have paused. A
# loop may need that lock for a name look-up until then.
import concurrent.futures.thread  # noqa: F401
import logging
import os
import selectors
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any
from weakref import WeakSet

logger = logging.getLogger(__name__)

PAUSE_SECONDS = 1.0
"""Seconds that a fork waits for a loop to pause. Only code of the deployment, such as a client factory, could
keep a loop busy for longer. The fork then happens anyway."""

CLOSED = -1
"""The descriptor of a socket that is closed."""


class ForkSafeLoop(asyncio.SelectorEventLoop):
    """Pauses while its process forks. A forked process has none of its connections."""

    def __init__(self) -> None:
        self._own_selector = selectors.DefaultSelector()
        self._connected: WeakSet[socket.socket] = WeakSet()
        super().__init__(self._own_selector)
        _loops.add(self)

    def close(self) -> None:
        """Close the loop. Forks do not wait for it any more."""
        _loops.discard(self)
        super().close()

    def stand_still(self, until: threading.Event) -> threading.Event:
        """
        Pause the loop, in its thread, until an event is set.

        :return: set once the loop has paused
        :raises RuntimeError: if it is closed
        """
        standing = threading.Event()

        def stand() -> None:
            standing.set()
            until.wait()

        self.call_soon_threadsafe(stand)
        return standing

    async def sock_connect(self, sock: socket.socket, address: Any) -> None:
        """Connect a socket. A connected socket is not always registered: between its steps, or paused."""
        self._connected.add(sock)
        await super().sock_connect(sock, address)

    def disconnect(self) -> None:
        """
        In a forked process: replace every descriptor of the loop by one of ``/dev/null``.

        The connections are not closed. Their numbers would be used again, and objects that still have them
        could then do harm to other files.
        """
        nowhere = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        descriptors = {key.fd for key in self._own_selector.get_map().values()}
        descriptors.update(sock.fileno() for sock in self._connected)
        for descriptor in {self._own_selector.fileno(), *descriptors} - {CLOSED}:
            os.dup2(nowhere, descriptor, inheritable=False)
        os.close(nowhere)


_loops: set[ForkSafeLoop] = set()


class _Fork(threading.local):
    """The fork that a thread is about to make."""

    is_over = threading.Event()


_fork = _Fork()


def _before() -> None:
    _fork.is_over = threading.Event()
    deadline = time.monotonic() + PAUSE_SECONDS
    for standing in [*_standing_still(_fork.is_over)]:
        if not standing.wait(max(0.0, deadline - time.monotonic())):
            logger.warning("A process is forked while the Kubernetes thread is busy")


def _standing_still(until: threading.Event) -> Iterator[threading.Event]:
    for loop in tuple(_loops):
        with suppress(RuntimeError):  # it has been closed meanwhile
            if not _is_running_here(loop):
                yield loop.stand_still(until)


def _after_in_parent() -> None:
    _fork.is_over.set()


def _after_in_child() -> None:
    loops = tuple(_loops)
    _loops.clear()
    for loop in loops:
        loop.disconnect()


def _is_running_here(loop: asyncio.AbstractEventLoop) -> bool:
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False


os.register_at_fork(before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child)
