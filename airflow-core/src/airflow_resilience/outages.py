# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
Outages of dependencies of launches, learnt from several launches together.

An outage is like an open circuit breaker: launches are held, one probe at a time is made, and the first
successful launch releases the others. Pure: the caller passes the time, and makes the launches.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

EVIDENCE_WINDOW: Final = 300.0
"""Seconds within which task instances have to fail for an outage to be assumed."""

PROBE_INTERVAL: Final = 15.0
LONGEST_PROBE_INTERVAL: Final = 120.0
"""Seconds between two probes, at least and at most."""

PROBE_SHARE: Final = 0.1
"""The interval between two probes, as a share of the outage's age: no launch is held for much longer than the
outage lasts."""

PROBE_TIMEOUT: Final = 300.0
"""Seconds after which a probe that has neither started nor failed is followed by another: a node for its pod
may be missing, and a large image takes minutes."""

WATCHED_AFTER: Final = 60.0
"""Seconds after the last held launch in which one failure opens an outage again."""


_LAST_DOUBLING = 30
# Seconds, after which a billion launches could have been released.


class DependencyKind(StrEnum):
    """Kinds of dependencies of launches."""

    REGISTRY = "registry"
    """An image registry, by its host."""
    QUOTA = "quota"
    """The resource quota of a namespace."""
    ADMISSION = "admission"
    """The admission webhooks of a namespace."""
    AIRFLOW_API = "airflow-api"
    """Airflow's API server, which workers talk to."""


class Dependency(NamedTuple):
    """A dependency of launches, besides nodes."""

    kind: DependencyKind
    name: str = ""
    """The host of a registry, or a namespace; empty for Airflow's API server."""

    def __str__(self) -> str:
        """Return kind and name, as in ``registry/registry.example.com``."""
        return f"{self.kind}/{self.name}" if self.name else self.kind.value

    @classmethod
    def parse(cls, text: str) -> Dependency:
        """
        Read what :meth:`__str__` has returned.

        :raises ValueError: if the kind is unknown
        """
        kind, _, name = text.partition("/")
        return cls(DependencyKind(kind), name)


class OutageState(StrEnum):
    """States of a dependency, as launches show them."""

    SUSPECTED = "suspected"
    """Fewer launches than the threshold have failed. Retry policies decide about them."""
    OPEN = "open"
    """The dependency is unavailable. Launches that need it are held, but for one probe at a time."""
    RECOVERING = "recovering"
    """A launch has succeeded. Held launches are released at a growing rate, and a failure opens the outage
    again."""
    EXHAUSTED = "exhausted"
    """The longest wait is over. No launch is held, and policies decide about failures until a launch
    succeeds."""


@dataclass(frozen=True, slots=True)
class OutageLimits:
    """Limits from which an outage is assumed, and to which launches are held."""

    threshold: int
    """Number of failed task instances (of ``airflow-api``: Dags) that opens an outage; 0 for never."""
    max_wait: float
    """Seconds without a successful launch, after which no launch is held any more."""


class Outage:
    """
    The state of one dependency, learnt from launches.

    :param now: time of the first failure. All times are on one monotonic clock, seconds
    """

    def __init__(self, limits: OutageLimits, now: float) -> None:
        self._limits = limits
        self.state = OutageState.SUSPECTED
        self.since = now
        """Time of the first failure since the last successful launch."""
        self.probe: str | None = None
        """Id of the launch that probes the dependency."""
        self._failures: dict[Hashable, float] = {}
        self._last_failure = now
        self._probe_made = now
        self._next_probe = now + PROBE_INTERVAL
        self._hinted = -math.inf
        self._released_since = self._last_release = now
        self._released = 0

    @property
    def subjects(self) -> int:
        """Number of task instances (or Dags) that have failed lately."""
        return len(self._failures)

    @property
    def is_open(self) -> bool:
        """Whether launches that fail for it are repeated at no cost."""
        return self.state in (OutageState.OPEN, OutageState.RECOVERING)

    def failed(self, subject: Hashable, launch_id: str, began: float, now: float) -> None:
        """
        Note the failure of a launch for the dependency.

        :param subject: the task instance, or the Dag: several have to fail
        :param began: time of the launch
        """
        self._failures = {key: at for key, at in self._failures.items() if now - at <= EVIDENCE_WINDOW}
        self._failures[subject] = self._last_failure = now
        match self.state:
            case OutageState.SUSPECTED:
                self.since = min(self._failures.values())
                if len(self._failures) >= self._limits.threshold:
                    self._open(now)
            case OutageState.OPEN if launch_id == self.probe:
                self.probe = None
                self._schedule_probe(began, now)
            # A launch from before the first successful one proves nothing new.
            case OutageState.RECOVERING if began >= self._released_since:
                self.since = now
                self._open(now)
                self._schedule_probe(began, now)

    def started(self, began: float, now: float) -> None:
        """
        Note the success of a launch with the dependency.

        :param began: time of the launch. A launch from before the outage proves nothing.
        """
        match self.state:
            case OutageState.SUSPECTED:
                self._failures.clear()
            case OutageState.OPEN if began >= self.since:
                self._release(OutageState.RECOVERING, now)
            case OutageState.EXHAUSTED if began >= self._released_since:
                self._release(OutageState.RECOVERING, now)

    def hint(self, now: float) -> None:
        """Note the possible end of the outage: the next probe is made at once."""
        self._hinted = now
        self._next_probe = min(self._next_probe, now)

    def restore(self, since: float, now: float) -> None:
        """Note an open outage that another scheduler has recorded."""
        if self.state is OutageState.SUSPECTED:
            self.since = min(self.since, since)
            if now - self.since < self._limits.max_wait:
                self._open(now)
            else:
                self._release(OutageState.EXHAUSTED, now)

    def holds(self, launch_id: str, *, was_resumed: bool, are_held: bool) -> bool:
        """
        Say whether a launch that needs the dependency has to wait.

        :param was_resumed: whether the launch was held and then resumed
        :param are_held: whether other launches wait
        """
        match self.state:
            case OutageState.OPEN:
                return launch_id != self.probe
            case OutageState.RECOVERING:
                return are_held and not was_resumed
            case _:
                return False

    def may_go(self, held: int, now: float) -> int:
        """
        Return how many held launches may be released now.

        The rate doubles, from one a second: a recovering dependency is not overloaded.
        """
        match self.state:
            case OutageState.OPEN:
                return min(held, int(self.probe is None and self._next_probe <= now))
            case OutageState.RECOVERING:
                seconds = min(int(now - self._released_since), _LAST_DOUBLING)
                return min(held, (2 << seconds) - 1 - self._released)
            case _:
                return held

    def go(self, launch_id: str, now: float) -> None:
        """Note the release of a held launch; while the outage is open, the launch is the probe."""
        if self.state is OutageState.OPEN:
            self.probe, self._probe_made = launch_id, now
        else:
            self._released += 1

    def tick(self, held: int, *, probe_lives: bool, now: float) -> bool:
        """
        Update the state by the clock; return whether the outage still has to be known.

        :param held: number of launches that wait for the dependency
        :param probe_lives: whether the probe may still start or fail
        """
        if self.probe and not (probe_lives and now - self._probe_made < PROBE_TIMEOUT):
            self.probe = None
            self._next_probe = self._probe_made + self._interval(now)
        # A broken configuration is not waited for twice.
        memory = self._limits.max_wait if self.state is OutageState.EXHAUSTED else EVIDENCE_WINDOW
        is_quiet = not held and not self.probe and now - self._last_failure > memory
        match self.state:
            case OutageState.RECOVERING:
                if held:
                    self._last_release = now
                return bool(held) or now - max(self._last_release, self._released_since) <= WATCHED_AFTER
            case OutageState.OPEN if now - self.since >= self._limits.max_wait and not is_quiet:
                self._release(OutageState.EXHAUSTED, now)
        return not is_quiet

    def _open(self, now: float) -> None:
        self.state, self.probe = OutageState.OPEN, None
        self._next_probe = now + PROBE_INTERVAL

    def _schedule_probe(self, began: float, now: float) -> None:
        """Schedule the next probe: at once after a hint that is newer than the failed launch."""
        self._next_probe = now if self._hinted >= began else now + self._interval(now)

    def _interval(self, now: float) -> float:
        return min(max(PROBE_INTERVAL, PROBE_SHARE * (now - self.since)), LONGEST_PROBE_INTERVAL)

    def _release(self, state: OutageState, now: float) -> None:
        self.state, self.probe = state, None
        self._failures.clear()
        self._released_since = self._last_release = now
        self._released = 0
