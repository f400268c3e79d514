# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Waiting for what another process does."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

LONGEST_WAIT = 120.0
"""Seconds. Nothing takes that long, unless the machine has a lot else to do."""

Found = TypeVar("Found")


def wait_for(what: str, probe: Callable[[], Found], timeout: float = LONGEST_WAIT) -> Found:
    """
    Ask again and again until the answer is true, and return it.

    :param what: what is waited for, for the message of a failure
    :param probe: what to ask; cheap, and without side effects
    :param timeout: seconds
    :raises AssertionError: when time is up; it ends with the last answer
    """
    deadline = time.monotonic() + timeout
    while not (found := probe()):
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {timeout:.0f} s in vain until {what}; it is {found!r}")
        time.sleep(0.1)
    return found
