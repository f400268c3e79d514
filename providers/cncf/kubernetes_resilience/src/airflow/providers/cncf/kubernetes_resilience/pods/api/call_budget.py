# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""How the launcher's requests reach the API server: how many at once, and what follows a failure."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from itertools import count
from typing import TypeVar

from airflow.providers.cncf.kubernetes_resilience.pods.api.errors import (
    ConnectionFailedError,
    KubernetesApiError,
    PodNotFoundError,
)
from airflow.providers.cncf.kubernetes_resilience.pods.api.timing import REAL, Timing
from airflow_resilience.backoff import Backoff

logger = logging.getLogger(__name__)

T = TypeVar("T")
Request = Callable[[], Awaitable[T]]

RETRY = Backoff(initial=0.5, maximum=60.0)

DEFAULT_PAUSE = 1.0
"""Seconds without new pods after a 429 that names no time. The API server names one; proxies may not."""

WARN_AT_ATTEMPT = 3
"""A request's failures are reported once, at this attempt: if it succeeds before, nobody needs to know."""

_STANDS = frozenset({400, 409, 410, 413, 422})
# What the API server says of the request itself. Else credentials are rotated, permissions are corrected, and
# a proxy finds its way again; a pod that has to go still has to go then.

HOUSEKEEPING_SHARE = 8
"""Of so many requests at once, one may be housekeeping: to label a pod that has ended can wait, to create the
one that replaces it cannot."""

REFUSALS = 10
"""Attempts at a change that is not permitted: some five minutes. For ever would be one more command for each
pod that ends, under permissions that lack a verb."""


class Calls:
    """
    Carries out requests, a bounded number at once.

    :param concurrency: requests at once; the time between two attempts of a request does not count
    """

    def __init__(self, concurrency: int, *, backoff: Backoff = RETRY, timing: Timing = REAL) -> None:
        self._slots = asyncio.Semaphore(concurrency)
        self._housekeeping = asyncio.Semaphore(max(1, concurrency // HOUSEKEEPING_SHARE))
        self._backoff = backoff
        self._timing = timing
        self._paused_until = 0.0

    async def once(self, request: Request[T], *, patient: bool = False, is_housekeeping: bool = False) -> T:
        """
        Carry out a request.

        :param patient: wait first for as long as the API server has asked for fewer requests
        :param is_housekeeping: leave most of what may be done at once to other requests
        :raises KubernetesApiError: if it fails
        """
        if is_housekeeping:
            async with self._housekeeping:
                return await self.once(request, patient=patient)
        while True:
            while patient and (pause := self._paused_until - self._timing.clock()) > 0:
                await self._timing.sleep(pause)
            async with self._slots:
                if patient and self._paused_until > self._timing.clock():
                    continue  # the server asked while this one waited for its slot
                try:
                    return await request()
                except KubernetesApiError as error:
                    self._note(error)
                    raise

    async def until_answered(
        self,
        what: str,
        request: Request[T],
        *,
        attempts: int | None = None,
        stubborn: bool = False,
        is_housekeeping: bool = False,
    ) -> T:
        """
        Carry out a request again and again until the API server gives an answer that stands.

        :param what: for the log
        :param attempts: how often; None for as long as it takes
        :param stubborn: take nothing for an answer but success and "there is no such pod"
        :param is_housekeeping: see :meth:`once`
        :raises KubernetesApiError: with an answer that another attempt would not change, or the last one
        """
        for attempt in count(1):
            try:
                return await self.once(request, is_housekeeping=is_housekeeping)
            except KubernetesApiError as error:
                if attempt == attempts or not _may_change(error, attempt, stubborn=stubborn):
                    raise
                await self.pause(what, attempt, error)
        raise AssertionError  # count() does not end

    async def pause(self, what: str, attempt: int, error: KubernetesApiError) -> None:
        """Wait after a failed attempt."""
        delay = max(self._backoff.delay(attempt, self._timing.random), error.retry_after or 0.0)
        level = logging.WARNING if attempt == WARN_AT_ATTEMPT else logging.DEBUG
        logger.log(level, "%s: attempt %d failed, next in %.1f s: %s", what, attempt, delay, error)
        await self._timing.sleep(delay)

    def _note(self, error: KubernetesApiError) -> None:
        pause = error.retry_after or (DEFAULT_PAUSE if error.status == 429 else 0.0)
        self._paused_until = max(self._paused_until, self._timing.clock() + pause)


def _may_change(error: KubernetesApiError, attempt: int, *, stubborn: bool) -> bool:
    if isinstance(error, PodNotFoundError):
        return False
    if stubborn or error.transient:
        return True
    stands = error.status in _STANDS and not isinstance(error, ConnectionFailedError)
    return not stands and attempt < REFUSALS
