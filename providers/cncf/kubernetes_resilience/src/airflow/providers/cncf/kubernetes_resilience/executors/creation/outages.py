# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
Holds launches during the outage of a dependency.

:mod:`airflow_resilience.outages` knows the outages. A scheduler learns of outages from its own launches, and
from the ledger when it starts.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.models.taskinstancekey import TaskInstanceKey
from airflow.utils.session import create_session
from attrs import define, field

from airflow.providers.cncf.kubernetes_resilience.executors.counters import HELD_LAUNCHES, OUTAGES
from airflow.providers.cncf.kubernetes_resilience.executors.launches.launch import Launch, LaunchState
from airflow.providers.cncf.kubernetes_resilience.executors.launches.registry import LaunchRegistry
from airflow.providers.cncf.kubernetes_resilience.executors.tasks import task_instances
from airflow.providers.cncf.kubernetes_resilience.executors.tasks.slots import Slots
from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.dependencies import (
    AIRFLOW_API,
    OF_NAMESPACES,
    needs_of,
    registries_of,
)
from airflow.providers.cncf.kubernetes_resilience.pods.facts import PodFacts
from airflow_resilience.context import ExecutionContext, MetadataKey
from airflow_resilience.ledger import record_held
from airflow_resilience.ledger_entries import HeldLaunch
from airflow_resilience.ledger_queries import OUTAGE_MEMORY, find_outages, read_failures
from airflow_resilience.outages import Dependency, DependencyKind, Outage, OutageLimits, OutageState
from airflow_resilience.propagation import listeners

log = logging.getLogger(__name__)

INTERVAL = 1.0
"""Seconds between two looks at what is held."""

BEGINNINGS_INTERVAL = 5.0
"""Seconds between two queries whether a worker has begun, while workers cannot reach Airflow's API server."""

REPORT_INTERVAL = 60.0
"""Seconds between two lines in the log about an outage that lasts."""

READ_LIMIT = 1_000
"""Rows of the ledger that a scheduler reads when it starts."""


@define
class _Known:
    """Facts about a dependency for which launches have failed."""

    outage: Outage
    context: ExecutionContext
    """Context of the newest launch failure."""
    dags: set[str] = field(factory=set)
    """Of which Dags launches have failed."""
    announced: OutageState = OutageState.SUSPECTED
    """State in the log and the metrics."""
    logged: float = 0.0
    """Time of the last log line about the outage, on the executor's monotonic clock (seconds)."""


@define(kw_only=True, eq=False, repr=False, slots=False)
class Outages:
    """Knows which dependencies are away, and which launches may be made."""

    _limits: OutageLimits
    """When an outage is assumed, and for how long launches are held."""
    _registry: LaunchRegistry
    _slots: Slots
    """Those of held launches are lent to others."""
    _clock: Callable[[], float]
    _known: dict[Dependency, _Known] = field(factory=dict, init=False)
    _to_record: list[tuple[TaskInstanceKey, HeldLaunch]] = field(factory=list, init=False)
    """Launches that are held, and that the audit log does not have yet."""
    _next_look: float = field(default=0.0, init=False)
    _next_query: float = field(default=0.0, init=False)
    _is_restored: bool = field(default=False, init=False)

    # ------------------------------------------------------------------ questions

    def has_waited(self, launch: Launch) -> bool:
        """Return whether a launch was held for the longest time, so that its failure counts."""
        return launch.held_since > 0 and self._clock() - launch.held_since >= self._limits.max_wait

    def is_free(self, launch: Launch, dependency: Dependency | None) -> bool:
        """Return whether the failure of a launch counts against no limit, since the dependency is away."""
        outage = self._find(dependency)
        return outage is not None and outage.is_open and not self.has_waited(launch)

    def away_since(self, dependency: Dependency | None) -> datetime | None:
        """Return since when a dependency is away; None if no outage is known."""
        outage = self._find(dependency)
        if outage is None or outage.state is OutageState.SUSPECTED:
            return None
        return datetime.now(UTC) - timedelta(seconds=self._clock() - outage.since)

    def _find(self, dependency: Dependency | None) -> Outage | None:
        known = self._known.get(dependency) if dependency else None
        return known.outage if known else None

    # ------------------------------------------------------------------ launches that wait

    def hold_back(self, launch: Launch, manifest: Mapping[str, Any]) -> bool:
        """
        Hold a launch without a pod, if one of its dependencies is away; return whether the launch is held.

        :param manifest: of its pod
        """
        away = self._find_away(launch, manifest)
        if away:
            log.info("The launch of %s is held: %s is away", launch.key, away)
            since = self.away_since(away)
            if since and not (launch.held_since and launch.held_for == away):
                held = HeldLaunch(ti_id=launch.ti_id, dependency=away, away_since=since)
                self._to_record.append((launch.key, held))
            self._registry.suspend(launch, away, self._clock())
        return away is not None

    def _find_away(self, launch: Launch, manifest: Mapping[str, Any]) -> Dependency | None:
        if not self._known or self.has_waited(launch):
            return None
        if any(known.outage.probe == launch.launch_id for known in self._known.values()):
            return None
        for dependency in needs_of(manifest):
            known = self._known.get(dependency)
            if (
                known
                and self._concerns(launch, dependency, known)
                and known.outage.holds(
                    launch.launch_id,
                    was_resumed=launch.waiting is not None and launch.waiting.resumed_for == dependency,
                    are_held=self._registry.count_held(dependency) > 0,
                )
            ):
                return dependency
        return None

    def _concerns(self, launch: Launch, dependency: Dependency, known: _Known) -> bool:
        """
        Return whether the failures for a dependency concern a launch, too.

        A quota has no room for the large pods of a Dag, and may have it for those of others. A webhook fails
        on the pods of one Dag.
        """
        is_of_few = dependency.kind in OF_NAMESPACES and len(known.dags) < self._limits.threshold
        return launch.key.dag_id in known.dags or not is_of_few

    # ------------------------------------------------------------------ evidence

    def failed(self, launch: Launch, dependency: Dependency | None, context: ExecutionContext) -> None:
        """Note the failure of a launch, with its dependency and its reason."""
        if dependency is None or not self._limits.threshold:
            return
        now = self._clock()
        known = self._known.setdefault(dependency, _Known(Outage(self._limits, now), context))
        # A worker's message is under the control of a Dag's author. A single Dag does not hold back the
        # others.
        subject = launch.key.dag_id if dependency == AIRFLOW_API else launch.key.primary
        known.context = context
        known.dags.add(launch.key.dag_id)
        known.outage.failed(subject, launch.launch_id, launch.token_made_at, now)
        self._announce(dependency, known)

    def created(self, launch: Launch) -> None:
        """Note that the pod of a launch was created."""
        for kind in OF_NAMESPACES:
            self._got(launch, Dependency(kind, launch.namespace))

    def observed(self, launch: Launch, pod: PodFacts) -> None:
        """Note new facts of a launch's pod, before the launch has these facts."""
        # A launch may get what it was held for when the outage is forgotten.
        if not (self._known or launch.held_since):
            return
        before = launch.facts
        if before is None and not launch.token_made_at:
            return  # it is not known what is new
        used = registries_of(pod, started=True)
        if launch.held_for in used - registries_of(pod, started=False):
            launch.held_since = 0.0
        for dependency in used - registries_of(before, started=True):
            self._is_back(launch, dependency)
        if pod.is_terminal and not (before and before.is_terminal):
            if outage := self._find(Dependency(DependencyKind.QUOTA, pod.ref.namespace)):
                outage.hint(self._clock())
            if pod.phase == "Succeeded":
                self._got(launch, AIRFLOW_API)

    def _got(self, launch: Launch, dependency: Dependency) -> None:
        if launch.held_for == dependency:
            launch.held_since = 0.0
        self._is_back(launch, dependency)

    def _is_back(self, launch: Launch, dependency: Dependency) -> None:
        if (known := self._known.get(dependency)) and self._concerns(launch, dependency, known):
            known.outage.started(launch.token_made_at, self._clock())
            self._announce(dependency, known)

    # ------------------------------------------------------------------ the loop

    def tick(self) -> None:
        """
        Resume held launches that may be created, if it is time to look.

        :raises sqlalchemy.exc.SQLAlchemyError: if the database does not answer; it is asked again then
        """
        if not self._known or self._clock() < self._next_look:
            return
        self._next_look = self._clock() + INTERVAL
        self._resume_held(self._clock())
        self._lend_slots()
        self._measure()
        self._record_held()
        self._ask_for_beginnings()

    def _resume_held(self, now: float) -> None:
        free = self._slots.configured - len(self._slots.occupied) + self._registry.count(LaunchState.HELD)
        for dependency, known in list(self._known.items()):
            outage = known.outage
            held = self._registry.count_held(dependency)
            probe = self._registry.current(outage.probe) if outage.probe else None
            lives = probe is not None and probe.state is not LaunchState.HELD
            is_over = not outage.tick(held, probe_lives=lives, now=now)
            self._announce(dependency, known)
            first = outage.may_go(held, now)
            if outage.state is OutageState.RECOVERING:
                first = min(first, max(0, free))
            for launch in self._find_going(dependency, first) if held else ():
                outage.go(launch.launch_id, now)
                self._registry.unsuspend(launch)
                free -= 1
            if is_over:
                self._forget(dependency, known)
            elif outage.state is OutageState.OPEN and now - known.logged >= REPORT_INTERVAL:
                known.logged = now
                log.info(
                    "%s is still away, for %.0f s; %d launches are held",
                    dependency,
                    now - outage.since,
                    self._registry.count_held(dependency),
                )

    def _find_going(self, dependency: Dependency, first: int) -> list[Launch]:
        """Return the launches that were held for a dependency first, and those that were held long enough."""
        all_held = self._registry.in_state(LaunchState.HELD)
        held = [launch for launch in all_held if launch.held_for == dependency]
        return [launch for place, launch in enumerate(held) if place < first or self.has_waited(launch)]

    def _lend_slots(self) -> None:
        """
        Have other task instances use the slots of held launches, at most as many again as are configured.

        Launches that are about to go get theirs back first.
        """
        held = sum(
            self._registry.count_held(dependency)
            for dependency, known in self._known.items()
            if known.outage.state is OutageState.OPEN
        )
        self._slots.lend(min(held, self._slots.configured))

    def _forget(self, dependency: Dependency, known: _Known) -> None:
        del self._known[dependency]
        if known.outage.state is OutageState.OPEN:
            log.info("No launch needs %s any more, which was away", dependency)
            listeners.call("on_outage_closed", dependency=str(dependency))

    def _record_held(self) -> None:
        if self._to_record:
            with create_session(scoped=False) as session:
                record_held(self._to_record, session=session)
            self._to_record.clear()

    def _ask_for_beginnings(self) -> None:
        known, now = self._known.get(AIRFLOW_API), self._clock()
        if known is None or now < self._next_query:
            return
        self._next_query = now + BEGINNINGS_INTERVAL
        at = datetime.now(UTC)
        # Workers of other executors run elsewhere, and may reach Airflow's API server when pods do not.
        begun = (*self._registry.in_state(LaunchState.PENDING), *self._registry.in_state(LaunchState.STARTED))
        ti_ids = {launch.ti_id for launch in begun}
        with create_session(scoped=False) as session:
            last = task_instances.read_last_beginning(ti_ids, at, session=session)
        if last is None:
            return
        began = now - (at - last).total_seconds()
        if began >= known.outage.since:
            known.outage.started(began, now)
            self._announce(AIRFLOW_API, known)

    def restore(self) -> None:
        """
        Learn the outages from the ledger, once.

        :raises sqlalchemy.exc.SQLAlchemyError: if the database does not answer; it is asked again then
        """
        if self._is_restored or not self._limits.threshold:
            return
        at, now = datetime.now(UTC), self._clock()
        with create_session(scoped=False) as session:
            failures = read_failures(at - OUTAGE_MEMORY, at, dag_ids=None, limit=READ_LIMIT, session=session)
        self._is_restored = True
        for dependency, entry in find_outages(failures.found).items():
            known = self._known.setdefault(dependency, _Known(Outage(self._limits, now), entry.context))
            since = entry.away_since or at
            known.outage.restore(now - max(0.0, (at - since).total_seconds()), now)
            self._announce(dependency, known)
        for failure in failures.found:
            if (found := failure.entry.dependency) and found in self._known:
                self._known[found].dags.add(failure.key.dag_id)
        self._measure()

    # ------------------------------------------------------------------ log and metrics

    def _announce(self, dependency: Dependency, known: _Known) -> None:
        outage, context, before = known.outage, known.context, known.announced
        if outage.state is before:
            return
        known.announced = outage.state
        now = self._clock()
        lasted = now - outage.since
        held = self._registry.count_held(dependency)
        if before is OutageState.OPEN:
            listeners.call("on_outage_closed", dependency=str(dependency))
        match outage.state:
            case OutageState.OPEN:
                known.logged = now
                # Within a minute it is the same one: the quota of a namespace may be used up all day.
                log.log(
                    logging.INFO if before is OutageState.RECOVERING else logging.WARNING,
                    "%s is away, for %.0f s: launches that need it are held, and cost no retry; %s: %s",
                    dependency,
                    lasted,
                    f"{outage.subjects} have failed" if outage.subjects else "the ledger says so",
                    context.metadata.get(MetadataKey.MESSAGE)
                    or context.metadata.get(MetadataKey.POD_MESSAGE),
                )
                listeners.call("on_outage_opened", dependency=str(dependency), execution_context=context)
            case OutageState.RECOVERING:
                log.info("%s is back after %.0f s; %d held launches are resumed", dependency, lasted, held)
            case OutageState.EXHAUSTED:
                log.warning(
                    "%s is away for %.0f s, and is waited for no longer: %d held launches are resumed,"
                    " and retry policies decide about their failures",
                    dependency,
                    lasted,
                    held,
                )

    def _measure(self) -> None:
        for kind in DependencyKind:
            away = [
                dependency
                for dependency, known in self._known.items()
                if dependency.kind is kind and known.outage.state is not OutageState.SUSPECTED
            ]
            OUTAGES.set(len(away), of=self, kind=kind)
            HELD_LAUNCHES.set(sum(map(self._registry.count_held, away)), of=self, kind=kind)
