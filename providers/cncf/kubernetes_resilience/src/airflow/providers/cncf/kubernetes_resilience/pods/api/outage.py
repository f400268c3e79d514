# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Failures in a row: how long to wait after each, and what to say about them."""

from __future__ import annotations

import logging

from airflow.providers.cncf.kubernetes_resilience.pods.api.errors import (
    KubernetesApiError,
    ResourceExpiredError,
)
from airflow.providers.cncf.kubernetes_resilience.pods.api.timing import Timing
from airflow_resilience.backoff import Backoff

logger = logging.getLogger(__name__)


class Outage:
    """
    The state of one connection that is made again and again.

    One warning when it breaks (and one more if it then fails for another reason), one line when it is back:
    a line per attempt would bury everything else in the log, just when it is needed.

    :param subject: what the log lines are about
    """

    def __init__(self, subject: str, backoff: Backoff, timing: Timing) -> None:
        self._subject = subject
        self._backoff = backoff
        self._timing = timing
        self._attempts = 0
        self._began = 0.0
        self._status: int | None = None

    def failed(self, error: KubernetesApiError) -> float:
        """Note a failure and return the seconds to wait before the next attempt."""
        self._attempts += 1
        new = self._attempts == 1 or error.status != self._status
        self._status = error.status
        if self._attempts == 1:
            self._began = self._timing.clock()
        delay = max(self._backoff.delay(self._attempts, self._timing.random), error.retry_after or 0.0)
        logger.log(
            self._level(error) if new else logging.DEBUG,
            "%s: attempt %d failed, next in %.1f s: %s",
            self._subject,
            self._attempts,
            delay,
            error,
        )
        return delay

    def over(self) -> None:
        """Note that it works (again)."""
        if self._attempts:
            seconds = self._timing.clock() - self._began
            logger.info("%s: back after %d attempts, %.1f s", self._subject, self._attempts, seconds)
        self._attempts = 0

    @staticmethod
    def _level(error: KubernetesApiError) -> int:
        # An expired resource version is how the API server says "list again", not a fault.
        return logging.INFO if isinstance(error, ResourceExpiredError) else logging.WARNING
