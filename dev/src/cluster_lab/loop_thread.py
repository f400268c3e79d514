# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""An event loop in a thread of its own, for servers whose users are synchronous."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, contextmanager
from typing import TypeVar

T = TypeVar("T")
_TIMEOUT = 10.0


@contextmanager
def running_loop(name: str) -> Iterator[asyncio.AbstractEventLoop]:
    """Run an event loop for as long as the block lasts.

    :param name: of the thread.
    """
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name=name, daemon=True)
    thread.start()
    try:
        yield loop
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@contextmanager
def entered_on_loop(
    name: str, make: Callable[[], AbstractAsyncContextManager[T]]
) -> Iterator[tuple[asyncio.AbstractEventLoop, T]]:
    """Make and enter something on an event loop of its own, for as long as the block lasts.

    :param name: of the thread.
    """

    async def enter() -> tuple[AsyncExitStack, T]:
        stack = AsyncExitStack()
        return stack, await stack.enter_async_context(make())

    with running_loop(name) as loop:
        stack, value = asyncio.run_coroutine_threadsafe(enter(), loop).result(_TIMEOUT)
        try:
            yield loop, value
        finally:
            asyncio.run_coroutine_threadsafe(stack.aclose(), loop).result(_TIMEOUT)


def run_on(loop: asyncio.AbstractEventLoop, act: Callable[[], None]) -> None:
    """Run a function on the loop and return when it is done, so that a test can rely on it.

    May be called from any thread, the loop's own included.
    """
    try:
        is_here = asyncio.get_running_loop() is loop
    except RuntimeError:
        is_here = False
    if is_here:
        act()
    else:
        asyncio.run_coroutine_threadsafe(_call(act), loop).result()


async def _call(act: Callable[[], None]) -> None:
    act()
