# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
Counters of failures, with the names of AIP-97, through Airflow's own ``Stats``.

Each failure is counted once, by the process that Airflow notifies first: a worker counts failures of its
task, the API server actions of people, and the scheduler failures that executors or itself have noticed. A
task that is launched again in the same try has not failed. A task that waits for its next try has failed, as
in Airflow's own ``ti_failures``.

A tag has few values, apart from ``dag_id``, which has one for each Dag. Values have letters, digits and
``_-.`` only: with another character, Airflow omits the metric where StatsD gets tags in the format of
InfluxDB.

.. seealso:: https://cwiki.apache.org/confluence/display/AIRFLOW/AIP-97+Infrastructure-Aware+Task+Execution+and+Context+Propagation
"""

from __future__ import annotations

import functools
import logging
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Final
from weakref import WeakKeyDictionary

from airflow_resilience.context import ContextSource, ExecutionContext, StateChangeCategory

log = logging.getLogger(__name__)


@functools.cache
def stats(*, in_worker: bool = False) -> Any:
    """
    Return Airflow's ``Stats`` that is set up in this process.

    Since Airflow 3.2 there are two. The provider ``common.compat`` knows that of workers only, which nothing
    sets up in a scheduler of Airflow 3.2: metrics are lost there.

    :param in_worker: whether this process runs a task
    """
    if in_worker and find_spec("airflow.sdk.observability"):
        from airflow.sdk.observability.stats import Stats as OfWorkers  # noqa: PLC0415 - not there before 3.2

        return OfWorkers
    if find_spec("airflow.observability"):
        from airflow.observability.stats import Stats as OfOthers  # noqa: PLC0415 - not there before 3.2

        return OfOthers
    from airflow.stats import Stats  # noqa: PLC0415 - for Airflow 3.1; later ones warn of it

    return Stats


@dataclass(frozen=True, slots=True)
class _Metric:
    name: str
    """Name without Airflow's prefix."""
    tags: tuple[str, ...]
    """Names of its tags."""
    description: str
    """For people."""


class Counter(_Metric):
    """A metric that counts."""

    def count(self, *, in_worker: bool = False, **tags: object) -> None:
        """Add one; a failure to count is only logged."""
        try:
            stats(in_worker=in_worker).incr(self.name, tags={name: str(tags[name]) for name in self.tags})
        except Exception:
            log.exception("The metric %s could not be counted", self.name)


_shares: dict[tuple[str, ...], WeakKeyDictionary[object, float]] = {}
"""By the name of a gauge and the values of its tags."""


class Gauge(_Metric):
    """A metric that has a value at a time."""

    def set(self, value: float, *, of: object, **tags: object) -> None:
        """
        Set a share of the value; a failure to set is only logged.

        :param of: owner of the share: a scheduler may have an executor for each team
        """
        named = {name: str(tags[name]) for name in self.tags}
        shares = _shares.setdefault((self.name, *named.values()), WeakKeyDictionary())
        shares[of] = value
        try:
            stats().gauge(self.name, sum(shares.values()), tags=named)
        except Exception:
            log.exception("The metric %s could not be set", self.name)


FAILED: Final = Counter(
    "task_instance.failed",
    ("category", "reason", "source", "dag_id"),
    "Tries that have failed, whether the task is to be retried or not.",
)
FAILED_BY_INFRASTRUCTURE: Final = Counter(
    "task.failed.infrastructure", ("reason", "dag_id"), "Those of category INFRASTRUCTURE."
)
FAILED_BY_APPLICATION: Final = Counter(
    "task.failed.application", ("reason", "dag_id"), "Those of category APPLICATION."
)
INFRASTRUCTURE_RETRY: Final = Counter(
    "task_instance.infrastructure_retry",
    ("reason", "dag_id", "attempt"),
    "Relaunches in the same try that the infrastructure budget has paid for.",
)
BUDGET_EXHAUSTED: Final = Counter(
    "task_instance.infrastructure_budget_exhausted",
    ("reason", "dag_id"),
    "Losses of a running task for which no infrastructure retry was left.",
)

COUNTERS: Final = (
    FAILED,
    FAILED_BY_INFRASTRUCTURE,
    FAILED_BY_APPLICATION,
    INFRASTRUCTURE_RETRY,
    BUDGET_EXHAUSTED,
)
"""All counters of this module."""

_BY_CATEGORY: Final = {
    StateChangeCategory.INFRASTRUCTURE: FAILED_BY_INFRASTRUCTURE,
    StateChangeCategory.APPLICATION: FAILED_BY_APPLICATION,
}

LAST_ATTEMPT: Final = 10
"""Attempts from this one on are counted as one value of the tag: a budget may be unlimited."""


def count_failure(context: ExecutionContext, dag_id: str, *, in_worker: bool) -> None:
    """
    Count a failure of which Airflow notifies its listeners.

    :param in_worker: whether this process runs the task; it counts only failures that it has caused
    """
    if in_worker and context.source is not ContextSource.WORKER:
        return
    FAILED.count(
        in_worker=in_worker,
        category=context.category,
        reason=context.reason,
        source=context.source,
        dag_id=dag_id,
    )
    if counter := _BY_CATEGORY.get(context.category):
        counter.count(in_worker=in_worker, reason=context.reason, dag_id=dag_id)


def count_infrastructure_retry(context: ExecutionContext, dag_id: str, attempt: int) -> None:
    """
    Count a relaunch that the infrastructure budget pays for.

    :param context: context of the worker's loss
    :param attempt: number of the infrastructure retry in its try, from 1
    """
    shown = attempt if attempt < LAST_ATTEMPT else f"{LAST_ATTEMPT}_or_more"
    INFRASTRUCTURE_RETRY.count(reason=context.reason, dag_id=dag_id, attempt=shown)
