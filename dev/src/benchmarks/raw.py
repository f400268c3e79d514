# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The rate to which an executor's can be compared: the same bytes, read and decoded, with no logic at all."""

from __future__ import annotations

import time
from typing import NamedTuple

import msgspec

from benchmarks.api import Api

PAGE_SIZE = 500
"""Pods to a page, as many as our executor asks for."""


ATTEMPTS = 3
"""The API server has just been busy, and the first pays for it."""


class RawRate(NamedTuple):
    """How fast the pods of a list arrive, as plain dictionaries."""

    pods_per_second: float
    bytes_per_pod: float


async def read_and_decode(api: Api) -> RawRate:
    """
    Read the list of pods, page by page, each decoded as our executor decodes it; the best of some attempts.

    :raises ValueError: if there are none
    """
    return max([await _read(api) for _ in range(ATTEMPTS)])


async def _read(api: Api) -> RawRate:
    began, pods, size = time.perf_counter(), 0, 0
    async for page in api.pages(PAGE_SIZE):
        pods += len(msgspec.json.decode(page)["items"])
        size += len(page)
    if not pods:
        raise ValueError("there are no pods to read")
    return RawRate(pods / (time.perf_counter() - began), size / pods)
