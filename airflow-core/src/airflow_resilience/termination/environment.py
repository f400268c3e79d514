# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
What a worker knows from its executor about the end that infrastructure may make to it: environment variables.

The executor's options need not be in the worker's configuration, and the budget is each task's own.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping

INFRASTRUCTURE_RETRY = "AIRFLOW_RESILIENCE_INFRASTRUCTURE_RETRY"
"""``1`` in a worker whose task runs again if infrastructure takes the worker; otherwise it is not set."""

GRACE_PERIOD = "AIRFLOW_RESILIENCE_TERMINATION_GRACE_PERIOD"
"""Seconds from SIGTERM to SIGKILL. For Kubernetes: the pod's ``terminationGracePeriodSeconds``."""

DEFAULT_GRACE_PERIOD = 30.0
"""Kubernetes' own default, in seconds."""

log = logging.getLogger(__name__)


def runs_again(environment: Mapping[str, str]) -> bool:
    """Whether this worker's task runs again if infrastructure takes the worker."""
    return environment.get(INFRASTRUCTURE_RETRY) == "1"


def grace_period(environment: Mapping[str, str]) -> float:
    """Return the seconds from SIGTERM to SIGKILL. What cannot be used is logged, and the default taken."""
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
