# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
Environment variables by which an executor prepares its worker for a termination by infrastructure.

A worker's configuration may lack the executor's options, and each task has its own budget.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping

INFRASTRUCTURE_RETRY = "AIRFLOW_RESILIENCE_INFRASTRUCTURE_RETRY"
"""``1`` in a worker whose task runs again if infrastructure takes the worker; not set otherwise."""

GRACE_PERIOD = "AIRFLOW_RESILIENCE_TERMINATION_GRACE_PERIOD"
"""Seconds from SIGTERM to SIGKILL. For Kubernetes: the pod's ``terminationGracePeriodSeconds``."""

DEFAULT_GRACE_PERIOD = 30.0
"""Kubernetes' own default, in seconds."""

log = logging.getLogger(__name__)


def runs_again(environment: Mapping[str, str]) -> bool:
    """Return whether this worker's task runs again if infrastructure takes the worker."""
    return environment.get(INFRASTRUCTURE_RETRY) == "1"


def grace_period(environment: Mapping[str, str]) -> float:
    """Return the seconds from SIGTERM to SIGKILL. An invalid value is logged, and replaced by the default."""
    text = environment.get(GRACE_PERIOD, str(DEFAULT_GRACE_PERIOD))
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if math.isfinite(seconds) and seconds >= 0:
        return seconds
    log.warning(
        "%s is %r, which is no number of seconds: it is taken for %g",
        GRACE_PERIOD,
        text,
        DEFAULT_GRACE_PERIOD,
    )
    return DEFAULT_GRACE_PERIOD
