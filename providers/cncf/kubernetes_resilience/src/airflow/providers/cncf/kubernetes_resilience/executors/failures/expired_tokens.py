# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Pods that an outage has kept from starting for longer than their worker's token is good for."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from airflow.providers.cncf.kubernetes_resilience.executors.launches.launch import Launch
from airflow.providers.cncf.kubernetes_resilience.executors.launches.registry import LaunchRegistry

log = logging.getLogger(__name__)

CHECK_INTERVAL = 10.0
"""Seconds between two looks."""


class ExpiredTokens:
    """
    Replaces launches that were held through an outage, once their workers could not start the task any more.

    A worker whose token has expired exits on its own, which would pass for the task's failure: settlement
    asks whether that may be so, since a kubelet can be quicker than the next look. Without an outage Airflow
    gives a launch no longer than its token is good for, and no launch is replaced.

    :param replace: gives a launch up unless it has started, and launches its task instance again
    :param validity: of a token, seconds
    :param is_away: whether the API server does not answer
    :param clock: monotonic time, seconds
    """

    def __init__(
        self,
        *,
        registry: LaunchRegistry,
        replace: Callable[[Launch], None],
        validity: float,
        is_away: Callable[[], bool],
        clock: Callable[[], float],
    ) -> None:
        self._registry = registry
        self._replace = replace
        self._validity = timedelta(seconds=validity)
        self._is_away = is_away
        self._clock = clock
        self._next_look = 0.0

    def tick(self) -> None:
        """Replace such launches, if it is time to look for them."""
        if self._clock() < self._next_look or self._is_away():
            return
        self._next_look = self._clock() + CHECK_INTERVAL
        for launch in self._registry.pending():
            if launch.facts and self.has_expired(launch):
                log.info("The token of pod %s for %s has expired in an outage", launch.ref, launch.key)
                self._replace(launch)

    def has_expired(self, launch: Launch) -> bool:
        """
        Whether an outage has kept a launch from starting, and its token is not good any more.

        That is known of a token of this scheduler by when it was made. It is no younger than its pod, which
        may have been created by a call before the one that has brought a fresh token.
        """
        if not launch.was_held:
            return False
        age = self._clock() - launch.token_made_at if launch.token_made_at else 0.0
        created = launch.facts.created if launch.facts else None
        pod_age = datetime.now(UTC) - created if created else timedelta()
        return max(timedelta(seconds=age), pod_age) >= self._validity
