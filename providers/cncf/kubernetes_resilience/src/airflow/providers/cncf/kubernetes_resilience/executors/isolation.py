# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
Isolates an item that cannot be handled from the batch, the turn and the scheduler.

Any exception may come: the database refuses a row, a policy or a pod makes our own code fail, a hook fails.
The exception may come again, here and with the next scheduler. Only a database that does not answer is no
item's fault: everything waits for it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from airflow.utils.session import create_session
from sqlalchemy import select
from sqlalchemy.exc import SQLAlchemyError

from airflow.providers.cncf.kubernetes_resilience.executors.counters import UNHANDLED_ERRORS
from airflow.providers.cncf.kubernetes_resilience.executors.masking import describe
from airflow_resilience.backoff import Backoff

log = logging.getLogger(__name__)

T = TypeVar("T")
R = TypeVar("R")

ATTEMPTS = 5
"""Number of attempts with an item that fails alone, before it is given up."""

RETRY_BACKOFF = Backoff(initial=1.0, maximum=8.0, jitter=0.0)
"""Between these attempts, 15 s together: enough for a deadlock, or a lock that was waited for in vain."""

FORGOTTEN_AFTER = 60.0
"""Seconds after its next attempt was due at which an item that has not come again is forgotten."""

REMINDER_INTERVAL = 300.0
"""Seconds between two lines about what goes wrong in the same way in each turn."""


class DatabaseAwayError(Exception):
    """The metadata database does not answer. All items are still there for a later turn."""


@dataclass(slots=True)
class _Suspect:
    """An item that has failed alone."""

    failures: int = 0
    not_before: float = 0.0


class Isolation:
    """
    Runs the steps of a turn, and work on many items, so that one failure does not affect the others.

    Each failure that is not the database's is counted by the metric ``kubernetes_executor.unhandled_errors``,
    with the tag ``step``.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._suspects: dict[tuple[str, Hashable], _Suspect] = {}
        self._said: dict[tuple[str, type[Exception]], float] = {}

    def run(self, step: str, work: Callable[..., bool | None], *args: Any) -> bool:
        """
        Run one step of a turn; what it raises is logged.

        :return: what it returned (whether something is left to do, usually); False if it failed
        :raises DatabaseAwayError: if that is why it failed
        """
        try:
            return bool(work(*args))
        except Exception as error:  # noqa: BLE001 - any of them concerns this step, and is logged below
            failure = error
        _raise_if_away(failure)
        self._complain(step, failure)
        return False

    def batch(
        self,
        step: str,
        items: Iterable[T],
        work: Callable[[Sequence[T]], Iterable[R] | None],
        *,
        name: Callable[[T], Hashable] = lambda item: item,
        give_up: Callable[[T, Exception], None] | None = None,
    ) -> list[R]:
        """
        Do work for many items. Failed work is repeated in halves, to find the item that it fails for.

        :param work: does it, in a transaction of its own; anything else that it does may be done twice
        :param name: identifies an item, in this turn and later ones
        :param give_up: ends an item that has failed alone :data:`ATTEMPTS` times, so that it does not come
            again. Without it the item is only left out each time, and something else ends it.
        :return: what the work has returned for the items that it did not fail for
        :raises DatabaseAwayError: if that is why it failed; what was done by then is done
        """
        now = self._clock()
        self._forget_gone(now)

        def divide(items: Sequence[T]) -> list[R]:
            if not items:
                return []
            try:
                results = list(work(items) or ())
            except Exception as error:  # noqa: BLE001 - one item's fault, and logged for that item
                failure = error
            else:
                for item in items:
                    self._suspects.pop((step, name(item)), None)
                return results
            _raise_if_away(failure)
            if half := len(items) // 2:
                return divide(items[:half]) + divide(items[half:])
            self._failed_alone(step, name(items[0]), failure, give_up and partial(give_up, items[0]))
            return []

        new, suspects = [], []
        for item in items:
            suspect = self._suspects.get((step, name(item)))
            if suspect is None:
                new.append(item)
            elif suspect.not_before <= now:
                suspects.append([item])
        # Items that have failed alone are run alone, so that the others need not be divided again.
        return [result for group in (new, *suspects) for result in divide(group)]

    def alone(
        self,
        step: str,
        item: T,
        work: Callable[[T], None],
        *,
        name: Callable[[T], Hashable],
        give_up: Callable[[T, Exception], None],
    ) -> None:
        """Like :meth:`batch`, for one item, which comes again in a later turn if the work fails."""
        self.batch(step, [item], lambda _: work(item), name=name, give_up=give_up)

    def attempt(self, step: str, name: object, work: Callable[..., object], *args: Any) -> bool:
        """
        Do work for one item that does not come again.

        :return: whether that succeeded; what it raised is logged and counted
        """
        try:
            work(*args)
        except Exception as error:  # noqa: BLE001 - concerns this item alone, and is logged below
            self.gave_up(step, name, error)
            return False
        return True

    def gave_up(self, step: str, name: object, error: Exception) -> None:
        """Log and count that one item cannot be handled; the caller decides what follows."""
        log.error("%s of %s has failed and is given up", step.capitalize(), name, exc_info=error)
        UNHANDLED_ERRORS.count(step=step)

    def _failed_alone(
        self, step: str, name: Hashable, error: Exception, give_up: Callable[[Exception], None] | None
    ) -> None:
        if give_up is None:
            self._complain(step, error)
            return
        suspect = self._suspects.setdefault((step, name), _Suspect())
        suspect.failures += 1
        suspect.not_before = self._clock() + RETRY_BACKOFF.delay(suspect.failures, lambda: 0.0)
        if suspect.failures < ATTEMPTS:
            attempt = suspect.failures
            log.info("[Try %d of %d] %s of %s failed: %s", attempt, ATTEMPTS, step, name, describe(error))
            return
        self.gave_up(step, name, error)
        self.run(step, give_up, error)
        del self._suspects[step, name]

    def _forget_gone(self, now: float) -> None:
        for name, suspect in list(self._suspects.items()):
            if suspect.not_before + FORGOTTEN_AFTER < now:
                del self._suspects[name]

    def _complain(self, step: str, error: Exception) -> None:
        """Log what goes wrong: with its traceback the first time, then every :data:`REMINDER_INTERVAL`."""
        UNHANDLED_ERRORS.count(step=step)
        kind, now = (step, type(error)), self._clock()
        if kind not in self._said:
            log.error("Something went wrong (%s), and is left out", step, exc_info=error)
        elif now - self._said[kind] >= REMINDER_INTERVAL:
            log.error("Something still goes wrong (%s), and is left out: %s", step, describe(error))
        else:
            return
        self._said[kind] = now


def database_answers() -> bool:
    """Return whether the metadata database answers a query that does not depend on any item."""
    try:
        with create_session(scoped=False) as session:
            session.execute(select(1))
    except SQLAlchemyError:
        return False
    return True


def _raise_if_away(error: Exception) -> None:
    if isinstance(error, DatabaseAwayError):
        raise error
    if isinstance(error, SQLAlchemyError) and not database_answers():
        raise DatabaseAwayError(describe(error)) from error
