# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Limits the launcher's concurrent requests to the API server, and repeats failed ones."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from itertools import count
from typing import TypeVar

from airflow.providers.cncf.kubernetes_resilience.pods.api.errors import KubernetesApiError
from airflow.providers.cncf.kubernetes_resilience.pods.api.retries import (
    UNANSWERED,
    Answer,
    answer_of,
    retry_delay,
)
from airflow.providers.cncf.kubernetes_resilience.pods.api.timing import REAL, Timing
from airflow_resilience.backoff import Backoff

logger = logging.getLogger(__name__)

T = TypeVar("T")
Request = Callable[[], Awaitable[T]]

RETRY = Backoff(initial=0.5, maximum=60.0)

DEFAULT_PAUSE = 1.0
"""Seconds without new pods after a 429 without Retry-After. The API server sends one; proxies may not."""

WARN_AT_ATTEMPT = 3
"""A request's failures are logged as a warning once, at this attempt. Earlier ones are not worth it."""

HOUSEKEEPING_SHARE = 8
"""Share of housekeeping: one in so many concurrent requests. To label a pod that has ended can wait; to
create its replacement cannot."""

REFUSALS = 10
"""Attempts at a request that is not permitted: some five minutes. Without a limit, a missing permission would
keep one more command alive for each pod that ends."""

_PASSING = UNANSWERED | {
    Answer.NOT_LET_THROUGH,
    Answer.REFUSED,
    Answer.FORBIDDEN,
    Answer.QUOTA_EXCEEDED,
}
"""Answers that may be others in a while. A pod that has to be deleted still has to be deleted then."""


class Calls:
    """
    Carries out requests with bounded concurrency.

    :param concurrency: requests at once; a request that waits for its next attempt does not count
    """

    def __init__(self, concurrency: int, *, timing: Timing = REAL) -> None:
        self._slots = asyncio.Semaphore(concurrency)
        self._housekeeping = asyncio.Semaphore(max(1, concurrency // HOUSEKEEPING_SHARE))
        self._timing = timing
        self._paused_until = 0.0

    async def once(self, request: Request[T], *, patient: bool = False, is_housekeeping: bool = False) -> T:
        """
        Carry out a request.

        :param patient: wait first until the pause that the API server has asked for is over
        :param is_housekeeping: use only a small part of the concurrency
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
                    continue  # the server has asked for a pause while this one waited for its slot
                try:
                    return await request()
                except KubernetesApiError as error:
                    self._note(error)
                    raise

    async def until_answered(
        self, what: str, request: Request[T], *, attempts: int | None = None, is_housekeeping: bool = False
    ) -> T:
        """
        Repeat a request until the API server gives a final answer.

        :param what: for the log
        :param attempts: how often; None for as long as it takes
        :param is_housekeeping: see :meth:`once`
        :raises KubernetesApiError: with the final answer, or the one to the last attempt
        """
        refusals = 0
        for attempt in count(1):
            try:
                return await self.once(request, is_housekeeping=is_housekeeping)
            except KubernetesApiError as error:
                # An API server that comes back may not know its roles yet, however long it was away.
                answer = answer_of(error)
                refusals += answer not in UNANSWERED
                if attempt == attempts or refusals == REFUSALS or answer not in _PASSING:
                    raise
                await self.pause(what, attempt, error)
        raise AssertionError  # count() does not end

    async def pause(self, what: str, attempt: int, error: KubernetesApiError) -> None:
        """Wait after a failed attempt."""
        delay = retry_delay(error, RETRY, attempt, self._timing.random)
        level = logging.WARNING if attempt == WARN_AT_ATTEMPT else logging.DEBUG
        logger.log(level, "%s: attempt %d failed, next in %.1f s: %s", what, attempt, delay, error)
        await self._timing.sleep(delay)

    def _note(self, error: KubernetesApiError) -> None:
        if error.is_denied_by_webhook:
            return  # what it asks for is about this pod
        pause = error.retry_after or (DEFAULT_PAUSE if error.status == 429 else 0.0)
        self._paused_until = max(self._paused_until, self._timing.clock() + pause)
