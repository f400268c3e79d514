# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
Looks for the pods of orphaned task instances.

Only here does the scheduler's loop wait for the API server: for the first list of the pods. Airflow resets
task instances that are not adopted, at the cost of a try, and has to know them at once.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager
from typing import TYPE_CHECKING

from airflow.configuration import conf
from airflow.models.taskinstancekey import TaskInstanceKey
from attrs import define, field

from airflow.providers.cncf.kubernetes_resilience.executors.adoption.plan import FoundPods, plan_adoption
from airflow.providers.cncf.kubernetes_resilience.executors.isolation import REMINDER_INTERVAL
from airflow.providers.cncf.kubernetes_resilience.executors.launches.commands import PodCommands
from airflow.providers.cncf.kubernetes_resilience.executors.launches.identity import NOT_DONE, Orphan
from airflow.providers.cncf.kubernetes_resilience.pods.api.errors import KubernetesApiError
from airflow.providers.cncf.kubernetes_resilience.pods.api.retries import UNANSWERED, answer_of
from airflow.providers.cncf.kubernetes_resilience.pods.facts import PodFacts

if TYPE_CHECKING:
    from airflow.providers.cncf.kubernetes_resilience.pods.thread.runtime import KubernetesRuntime

log = logging.getLogger(__name__)

ADOPTION_TIMEOUT = 15.0
"""Seconds after which pods are searched for again without an answer to an attempt."""

RETRY_INTERVAL = 5.0
"""Seconds between attempts while the API server does not answer."""

REFUSED_INTERVAL = 60.0
"""Seconds between attempts while the pods of a namespace may not be listed: that may last, and each attempt
lists the pods of all the others."""

SHARE = 0.5
"""Of ``[scheduler] scheduler_health_check_threshold``. The rest is for what else there is to do between two
heartbeats."""


class WaitBudget:
    """
    Bounds the time that the scheduler waits for all its executors together.

    A waiting scheduler sends no heartbeat, and holds rows locked. After ``[scheduler]
    scheduler_health_check_threshold`` seconds other schedulers would take the scheduler for dead. In any
    period of this length, the scheduler waits for half of the period at most.
    """

    def __init__(self) -> None:
        self._waits: deque[tuple[float, float]] = deque()

    @contextmanager
    def spent(self, clock: Callable[[], float]) -> Iterator[float]:
        """Wait within the block; yield the seconds that are left for it, which may be none."""
        began = clock()
        try:
            yield self._left(began)
        finally:
            self._waits.append((clock(), clock() - began))

    def forget(self, now: float) -> None:
        """Forget what was waited so long ago that it does not count any more."""
        while self._waits and self._waits[0][0] <= now - _threshold():
            self._waits.popleft()

    def _left(self, now: float) -> float:
        self.forget(now)
        return max(0.0, SHARE * _threshold() - sum(seconds for _, seconds in self._waits))


def _threshold() -> float:
    return conf.getfloat("scheduler", "scheduler_health_check_threshold")


@define(kw_only=True, eq=False, repr=False, slots=False)
class PodSearch:
    """
    Finds the pods of orphans.

    The scheduler waits for the first list, within the limits of :class:`WaitBudget`. Later ones come in as
    answers.
    """

    _runtime: KubernetesRuntime
    _commands: PodCommands
    _namespaces: Sequence[str | None]
    _wait_budget: WaitBudget
    """How long the scheduler may be kept waiting, with all its executors."""
    _clock: Callable[[], float]
    _answers: deque[FoundPods | None] = field(factory=deque, init=False)
    """None for a list that could not be had."""
    _next_look: float = field(default=0.0, init=False)
    is_refused: bool = field(default=False, init=False)
    """Whether the pods of a namespace cannot be listed, which is no outage."""
    _next_warning: float = field(default=0.0, init=False)

    @property
    def is_due(self) -> bool:
        """Whether there is an answer, or it is time for another attempt."""
        return self._clock() >= self._next_look or bool(self._answers)

    def look(self, orphans: Mapping[TaskInstanceKey, Orphan]) -> FoundPods | None:
        """
        Wait for the list of the pods, which is the next answer too.

        :return: None if there is no list; they are looked for again
        """
        self._next_look = self._clock() + RETRY_INTERVAL
        try:
            with self._wait_budget.spent(self._clock) as seconds:
                found = self._runtime.call(self._list(orphans), seconds)
        except (KubernetesApiError, TimeoutError, RuntimeError, CancelledError) as error:
            log.warning("Adoption of %d task instances postponed: %r", len(orphans), error)
            return None
        self._answers.append(found)
        return found

    def look_again(self, orphans: Mapping[TaskInstanceKey, Orphan]) -> None:
        """Search for missing pods again when due; the scheduler does not wait."""
        if orphans and self._clock() >= self._next_look:
            self._next_look = self._clock() + ADOPTION_TIMEOUT
            self._commands.run(self._look_again, orphans)

    def answers(self) -> Iterator[FoundPods]:
        """Return, each once, what was found since."""
        self._wait_budget.forget(self._clock())
        while self._answers:
            self._next_look = self._clock() + (REFUSED_INTERVAL if self.is_refused else RETRY_INTERVAL)
            if found := self._answers.popleft():
                yield found

    def put_back(self, found: Collection[FoundPods]) -> None:
        """Return answers once more in the next turn: they could not be used in this one."""
        self._answers.extendleft(reversed([*found]))

    async def _list(self, orphans: Mapping[TaskInstanceKey, Orphan]) -> FoundPods:
        # Pods with any scheduler's label: an earlier adoption, by this scheduler or by a living one, may have
        # failed after it had labelled some of the pods.
        asked_at = self._clock()
        pods: list[PodFacts] = []
        errors: list[tuple[str, KubernetesApiError]] = []
        for namespace in self._namespaces:
            try:
                pods += await self._runtime.launcher.list_pods(namespace, NOT_DONE)
            except KubernetesApiError as error:
                errors.append((namespace or "all namespaces", error))
                are_away = sum(answer_of(each) in UNANSWERED for _, each in errors) == len(self._namespaces)
                # An object that cannot be decoded is a 500 for its namespace, each time.
                if are_away or (error.transient and error.status != 500):
                    self.is_refused = False
                    raise
        self.is_refused = bool(errors)
        if errors and self._clock() >= self._next_warning:
            self._next_warning = self._clock() + REMINDER_INTERVAL
            log.warning(
                "Task instances whose pods may not be listed are not adopted: %s",
                "; ".join(f"{namespace}: {error}" for namespace, error in errors),
            )
        found = plan_adoption(orphans, pods)
        found.is_partial, found.asked_at = bool(errors), asked_at
        return found

    async def _look_again(self, orphans: Mapping[TaskInstanceKey, Orphan]) -> None:
        try:
            found = await self._list(orphans)
        except KubernetesApiError as error:
            log.debug("Adoption of %d task instances postponed again: %r", len(orphans), error)
            self._answers.append(None)
        else:
            found.is_late = True
            self._answers.append(found)
