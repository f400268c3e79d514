# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Clock, sleep and randomness, as one value that tests replace."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Timing:
    """Clock, sleep and randomness of code that waits."""

    clock: Callable[[], float] = time.monotonic
    """Seconds; only differences mean anything."""
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    random: Callable[[], float] = random.random
    """From 0 up to 1."""


REAL = Timing()
