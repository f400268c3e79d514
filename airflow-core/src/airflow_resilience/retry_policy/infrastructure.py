# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
The budget of running tasks for losses to the infrastructure. Data only; see ``engine``.

A loss within it costs the task none of its own retries. The two budgets are those of AIP-97.

.. seealso:: :mod:`airflow_resilience.context`
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from airflow_resilience.context import StateChangeReason

INFRASTRUCTURE: Final = "infrastructure"
"""Name of the policy that is asked last about a running task, and of its rule about that."""
BUDGET_OPTION: Final = "infrastructure_retry_budget"
"""The option that holds the budget of every task that asks for no other."""
DELAY_OPTION: Final = "infrastructure_retry_delay"
REASONS_OPTION: Final = "infrastructure_retry_reasons"
DEFAULT_TASK_BUDGET: Final = 3
"""The budget of a task that switches infrastructure retries on where they are off, and states no limit."""
DEFAULT_REASONS: Final = frozenset(
    {
        StateChangeReason.WORKER_TERMINATION,
        StateChangeReason.WORKER_LOST,
        StateChangeReason.RESOURCE_EXHAUSTION,
        StateChangeReason.DB_CONNECTION_ERROR,
    }
)
"""Those of AIP-97."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InfrastructureBudget:
    """How often, and after what, a running task is launched again in the same try."""

    budget: int
    """Infrastructure retries for each try; 0 for none, ``UNLIMITED`` for no limit."""
    delay: float = 10.0
    """Seconds before each of them, where no policy has a backoff for it."""
    reasons: frozenset[StateChangeReason] = DEFAULT_REASONS
    """Of category INFRASTRUCTURE: what no rule of a policy has to be about. Empty leaves all to the rules."""


OFF: Final = InfrastructureBudget(budget=0)
"""No running task is launched again unless it asks for that."""
