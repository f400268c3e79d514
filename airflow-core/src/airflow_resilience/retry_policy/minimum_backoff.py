# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""How long a relaunch waits at least, whatever the policies ask for. Pure."""

from __future__ import annotations

from collections.abc import Callable

from airflow_resilience.backoff import Backoff

IMMEDIATE_RELAUNCHES = 3
"""Relaunches of a try that have no minimum."""

MINIMUM_BACKOFF = Backoff(initial=2.0, maximum=60.0, jitter=0.5)
"""Before each further relaunch: a worker that always fails at once is not launched in a busy loop."""


def minimum_delay(relaunches: int, random: Callable[[], float]) -> float:
    """
    Return the seconds that the next relaunch of a try waits at least.

    :param relaunches: that the try has had, whoever has decided them
    :param random: returns a number from 0 up to 1, for the jitter
    """
    attempt = relaunches + 1 - IMMEDIATE_RELAUNCHES
    return MINIMUM_BACKOFF.delay(attempt, random) if attempt > 0 else 0.0


def describe_minimum(relaunches: int) -> str:
    """
    Say why the next relaunch of a try has a minimum.

    :param relaunches: as for :func:`minimum_delay`
    """
    return (
        f"relaunch {relaunches + 1} of the try: from relaunch {IMMEDIATE_RELAUNCHES + 1} on there is a delay,"
        f" up to {MINIMUM_BACKOFF.maximum:g} s"
    )
