# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Consecutive failures of a connection: the delay after each, and what is logged."""

from __future__ import annotations

import logging

from airflow.providers.cncf.kubernetes_resilience.pods.api.errors import (
    KubernetesApiError,
    ResourceExpiredError,
)
from airflow.providers.cncf.kubernetes_resilience.pods.api.retries import retry_delay
from airflow.providers.cncf.kubernetes_resilience.pods.api.timing import Timing
from airflow_resilience.backoff import Backoff

logger = logging.getLogger(__name__)


class Outage:
    """
    Failures of one connection that is made again and again.

    It logs one warning when the connection breaks, one more if it fails with another status or is refused for
    another reason, and one line when it is back. A line for each attempt would bury the rest of the log just
    when it is needed.

    :param subject: the subject of the log lines
    """

    def __init__(self, subject: str, backoff: Backoff, timing: Timing) -> None:
        self._subject = subject
        self._backoff = backoff
        self._timing = timing
        self._attempts = 0
        self._began = 0.0
        self._failure: tuple[int | None, str] | None = None

    def failed(self, error: KubernetesApiError) -> float:
        """Record a failure and return the seconds to wait before the next attempt."""
        self._attempts += 1
        # A refusal names the permission that is missing. Other messages may be different each time.
        failure = (error.status, error.message if error.is_denied else "")
        new = self._attempts == 1 or failure != self._failure
        self._failure = failure
        if self._attempts == 1:
            self._began = self._timing.clock()
        delay = retry_delay(error, self._backoff, self._attempts, self._timing.random)
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
        """Record that the connection works."""
        if self._attempts:
            seconds = self._timing.clock() - self._began
            logger.info("%s: back after %d attempts, %.1f s", self._subject, self._attempts, seconds)
        self._attempts = 0

    @staticmethod
    def _level(error: KubernetesApiError) -> int:
        # An expired resource version is no fault: it asks for a relist.
        return logging.INFO if isinstance(error, ResourceExpiredError) else logging.WARNING
