# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""How soon a pod is launched again if the policy asks for no delay, or for too short a one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from airflow_resilience.backoff import Backoff
from airflow_resilience.decision import LONGEST_DELAY, Action, Decision

IMMEDIATE_RELAUNCHES = 3
RELAUNCH_BACKOFF = Backoff(initial=2.0, maximum=60.0, jitter=0.5)
"""Before each further relaunch: a pod that always fails at once is not to be launched in a busy loop."""


def paced(decision: Decision, relaunches: int, random: Callable[[], float]) -> Decision:
    """
    Return the decision with a delay that grows from the fourth relaunch on, if it has not a longer one.

    None is longer than :data:`~airflow_resilience.decision.LONGEST_DELAY`.

    :param relaunches: that the try has had before this decision
    :param random: returns a number from 0 up to 1, for the jitter
    """
    if decision.action is not Action.RELAUNCH:
        return decision
    attempt = relaunches + 1 - IMMEDIATE_RELAUNCHES
    pause = RELAUNCH_BACKOFF.delay(attempt, random) if attempt > 0 else 0.0
    return replace(decision, delay=min(LONGEST_DELAY, max(decision.delay, pause)))
