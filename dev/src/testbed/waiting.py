# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Waiting for what another process does."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

LONGEST_WAIT = 300.0
"""Seconds. Nothing takes half as long, even where CI runs two deployments on two slow cores."""

INTERVAL = 0.1

Found = TypeVar("Found")


def wait_for(
    what: str,
    probe: Callable[[], Found],
    show: Callable[[], Any] | None = None,
) -> Found:
    """
    Ask again and again until the answer is true, and return it.

    :param what: what is waited for, for the message of a failure
    :param probe: what to ask; cheap, and without side effects
    :param show: what a failure's message ends with; needed where the answer is a mere no
    :raises AssertionError: when :data:`LONGEST_WAIT` is up
    """
    deadline = time.monotonic() + LONGEST_WAIT
    while not (found := probe()):
        if time.monotonic() > deadline:
            seen = show() if show else found
            raise AssertionError(f"waited {LONGEST_WAIT:.0f} s in vain until {what}; last seen: {seen!r}")
        time.sleep(INTERVAL)
    return found


def holds_for(seconds: float, what: str, probe: Callable[[], bool]) -> None:
    """
    Ask again and again, and expect a yes each time: what must not happen does not happen.

    :param seconds: how long
    :raises AssertionError: at the first no
    """
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        assert probe(), f"it is not true any more that {what}"
        time.sleep(INTERVAL)
