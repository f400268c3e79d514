# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
Reconciles launches with the rows of their task instances: asks, settles, acts.

A transaction settles many launches: reads the rows, judges, decides about failed launches, and writes the
ledger. The acts follow after its commit. A launch is asked about again until what follows was carried out: in
the next turn, or at the next look if the launch has not started. So an error, or a database that is away,
loses nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import islice
from math import inf

from airflow.models.taskinstancekey import TaskInstanceKey
from airflow.utils.session import create_session
from airflow.utils.state import TaskInstanceState
from attrs import define, field
from sqlalchemy.orm import Session

from airflow.providers.cncf.kubernetes_resilience.executors.actions import Actions
from airflow.providers.cncf.kubernetes_resilience.executors.creation.create_retries import CreateRetries
from airflow.providers.cncf.kubernetes_resilience.executors.creation.launch_queue import LaunchQueue
from airflow.providers.cncf.kubernetes_resilience.executors.failures.judge import (
    Asked,
    Build,
    Fail,
    Release,
    Report,
    Settled,
    Situation,
    Step,
    judge,
)
from airflow.providers.cncf.kubernetes_resilience.executors.failures.record import Recorder
from airflow.providers.cncf.kubernetes_resilience.executors.failures.situation import has_expired_token
from airflow.providers.cncf.kubernetes_resilience.executors.isolation import Isolation
from airflow.providers.cncf.kubernetes_resilience.executors.launches.commands import PodCommands
from airflow.providers.cncf.kubernetes_resilience.executors.launches.identity import Try
from airflow.providers.cncf.kubernetes_resilience.executors.launches.launch import (
    Launch,
    LaunchState,
    NextAttempt,
)
from airflow.providers.cncf.kubernetes_resilience.executors.launches.registry import LaunchRegistry
from airflow.providers.cncf.kubernetes_resilience.executors.tasks import task_instances
from airflow.providers.cncf.kubernetes_resilience.executors.tasks.row import TaskSnapshot
from airflow.providers.cncf.kubernetes_resilience.executors.tasks.slots import Slots
from airflow.providers.cncf.kubernetes_resilience.pods.messages import ConfirmPod
from airflow_resilience.propagation import audit
from airflow_resilience.retry_policy.evidence import Phase

log = logging.getLogger(__name__)

BATCH = 100
"""
Launches that are settled in one transaction. Their relaunches are asked for before the next batch is settled:
the API server creates pods while this thread waits for the database.
"""

BUILD_BUDGET = 0.2
"""Seconds that a turn of the scheduler's loop may spend on building pods, some 400 of them."""

LAUNCH_BATCH = 500
"""Launches that are read from the database at once. A turn has no time to build more."""

CHECK_INTERVAL = 10.0
"""Seconds between two looks at launches that have not started."""

CHECK_LIMIT = 500
"""Launches that are looked at in one turn of the scheduler's loop; the others in the next."""


@define(kw_only=True, eq=False, repr=False, slots=False)
class Reconciler:
    """Reconciles launches with the rows of their task instances."""

    _registry: LaunchRegistry
    _commands: PodCommands
    """Say whether the API server answers."""
    _slots: Slots
    """Say whether the next phase of a task instance is queued."""
    _recorder: Recorder
    """Decides about launches that have failed."""
    _create_retries: CreateRetries
    """Say how those have failed whose pod was not created."""
    _actions: Actions
    """Do what follows."""
    _launch_queue: LaunchQueue
    """Says which launches are due."""
    _isolation: Isolation
    _job_id: int | None
    _token_validity: float
    """Of a worker's token, seconds."""
    _clock: Callable[[], float]
    _next_look: float = field(default=0.0, init=False)
    _last_away: float = field(default=-inf, init=False)
    """When the API server was last unavailable."""
    _unchecked: dict[Launch, None] = field(factory=dict, init=False)
    """Launches that had not started at the last check, and are still to be checked."""
    _late: list[Launch] = field(factory=list, init=False)
    """Those for which the last turn had no time."""

    def revive(self) -> None:
        """Start the Kubernetes thread again if it has crashed, and ask again for what was lost with it."""
        if not self._commands.revive():
            return
        self._commands.send_again(self._registry.pending_deletions())
        for launch in (*self._registry, *self._registry.in_state(LaunchState.DEPARTING)):
            launch.calls = 0  # there will be no answer
            if launch.creation and launch.creation.next_attempt is None:
                launch.creation.was_unclear = True
                launch.creation.next_attempt = NextAttempt(0.0)
            elif launch.ref and self._registry.is_current(launch):
                # The new informer does not know the pod, and would not notice that it is gone.
                self._commands.send(ConfirmPod(launch.ref))

    def tick(self, until: float) -> bool:
        """
        Settle launches, and ask for the pods of relaunches after each batch.

        :param until: on the executor's monotonic clock (seconds); one batch is settled in any case
        :return: whether the time was over before all were settled
        :raises DatabaseAwayError: if the database does not answer; everything is asked again then
        """
        now = self._clock()
        if self._commands.is_away:
            self._last_away = now
        found = self._ask(now)
        # Launches that had to wait come first. Otherwise create calls that fail again and again would keep
        # them waiting.
        order = {launch: found[launch] for launch in self._late if launch in found} | found
        asked = [Asked(launch, situation) for launch, situation in order.items()]
        for first in range(0, len(asked), BATCH):
            if first and self._clock() > until:
                self._late = [launch for launch, _ in asked[first:]]
                return True
            self._reconcile(asked[first : first + BATCH])
        self._late = []
        return False

    def launch(self) -> bool:
        """
        Settle the launches that are due: most are created. Return whether some are left to the next turn.

        :raises DatabaseAwayError: if the database does not answer; everything waits on then
        """
        due = self._launch_queue.due()
        settled = self._isolation.batch(
            "launch",
            [Asked(launch, Situation.LAUNCH_DUE) for launch in due[:LAUNCH_BATCH]],
            self.settle,
            name=_key,
            give_up=self._actions.cannot_settle,
        )
        spent = 0.0
        for item in sorted(settled, key=_order):
            if not isinstance(item.outcome, Build):
                self._act("act", item)
            elif spent <= BUILD_BUDGET:
                began = self._clock()
                self._act("build", item)
                spent += self._clock() - began
        return spent > BUILD_BUDGET or len(due) > LAUNCH_BATCH

    def _act(self, step: str, item: Settled) -> None:
        self._isolation.alone(step, item, self._actions.act, name=_key, give_up=self._actions.cannot_act)

    def _reconcile(self, asked: Sequence[Asked]) -> None:
        # Some may have been launched, or released, since the batch before.
        asked = [item for item in asked if self._registry.is_current(item.launch)]
        settled = self._isolation.batch(
            "settle", asked, self.settle, name=_key, give_up=self._actions.cannot_settle
        )
        for item in settled:
            self._act("act", item)
        for launch, _ in asked:
            self._unchecked.pop(launch, None)
        if any(item.situation is Situation.ENDED for item in settled):
            self._isolation.run("launch", self.launch)

    def settle(self, asked: Sequence[Asked]) -> list[Settled]:
        """
        Settle launches that can be settled now. A decision waits if another transaction has locked the row.

        :raises sqlalchemy.exc.SQLAlchemyError: if the database does not answer, or refuses one of them;
            nothing is settled then
        """
        failed: list[tuple[Launch, Phase]] = []
        # Not the thread's scoped session, which may be in the middle of the scheduler's own transaction.
        with create_session(scoped=False) as session:
            tasks = task_instances.read_snapshots({item.launch.tried for item in asked}, session=session)
            settled = self._recorder.read_decided(_find_cleared(asked, tasks), session)
            known = {item.launch for item in settled}
            earlier = self._recorder.read_earlier(_find_due(asked), session)
            known |= {
                launch for launch, found in earlier.items() if self._launch_queue.postpone(launch, found)
            }
            for item in asked:
                if item.launch in known:
                    continue
                task = tasks[item.launch.tried]
                verdict = judge(
                    item.situation,
                    item.launch,
                    task,
                    job_id=self._job_id,
                    queued_again=self._slots.is_queued_again(item.launch.key),
                    earlier=earlier.get(item.launch),
                )
                match verdict:
                    case Phase():
                        if item.situation is Situation.CREATION_DUE:
                            # If this is not committed, it has ended, and is asked about as such.
                            self._create_retries.end(item.launch)
                        failed.append((item.launch, verdict))
                    case Step.WAIT:
                        continue
                    case _:
                        settled.append(Settled(item.launch, verdict, item.situation))
                standing = task.standing(self._job_id)
                log.debug("%s: %s, %s: %r", item.launch.key, item.situation.name, standing.name, verdict)
            audit.record_reported(_ended_by_themselves(settled), session=session)
            settled = _record_cleared(settled, tasks, session)
            settled = self._recorder.record_due(settled, session)
            return [*settled, *self._recorder.record(failed, session)]

    def _ask(self, now: float) -> dict[Launch, Situation]:
        """Return the launches whose situation raises a question."""
        found = dict.fromkeys(self._registry.relabelled(), Situation.RELABELLED)
        for launch in self._registry.in_state(LaunchState.CREATING):
            if launch.is_creation_due(now):
                found.setdefault(launch, Situation.CREATION_DUE)
        for launch in self._registry.in_state(LaunchState.ENDED):
            if not (launch.calls or self._is_adopted(launch)):
                found.setdefault(launch, Situation.ENDED)
        for launch in self._look_round(now):
            # An exception about one concerns that launch alone.
            has_expired = launch.was_delayed and self._isolation.run("token", self._has_expired, launch, now)
            found.setdefault(launch, Situation.TOKEN_EXPIRED if has_expired else Situation.UNCHECKED)
        return found

    def _is_adopted(self, launch: Launch) -> bool:
        """
        Return whether the adoption of a launch's task instance is not complete.

        The launch is from before another scheduler had the task instance. The list of the pods tells whether
        it was replaced meanwhile.
        """
        return self._registry.adopting_of(launch.key) is not None

    def _look_round(self, now: float) -> list[Launch]:
        """Return launches that have not started, each after :data:`CHECK_INTERVAL`."""
        if not self._unchecked and self._next_look <= now:
            self._next_look = now + CHECK_INTERVAL
            waiting = self._registry.in_state(LaunchState.WAITING)
            self._unchecked = dict.fromkeys(
                [
                    *self._registry.in_state(LaunchState.PENDING),
                    # A new launch is looked at when it is due.
                    *(launch for launch in waiting if launch.is_relaunch),
                    *self._registry.in_state(LaunchState.HELD),
                ]
            )
        batch = list(islice(self._unchecked, CHECK_LIMIT))
        for launch in batch:
            if not (self._registry.is_current(launch) and _is_unstarted(launch)):
                del self._unchecked[launch]
        return [launch for launch in batch if launch in self._unchecked]

    def _has_expired(self, launch: Launch, now: float) -> bool:
        """Return whether a pod that an outage may have kept from starting has outlived its worker's token."""
        return (
            launch.facts is not None
            # Facts from the time of the outage are read first.
            and now - self._last_away >= CHECK_INTERVAL
            and not self._is_adopted(launch)
            and has_expired_token(launch, now, self._token_validity)
        )


def _find_due(asked: Sequence[Asked]) -> list[Launch]:
    return [launch for launch, situation in asked if situation is Situation.LAUNCH_DUE]


def _order(settled: Settled) -> int:
    """Return the place of an act: first come acts without the database, and last reports, which write."""
    match settled.outcome:
        case Step.FOLLOW:
            return 1
        case Build():
            return 2
        case Fail():
            return 3
    return 0


def _find_cleared(asked: Sequence[Asked], tasks: Mapping[Try, TaskSnapshot]) -> list[Launch]:
    """Return the ended launches whose task instances are gone, or have another UUID."""
    return [
        launch
        for launch, situation in asked
        if situation is Situation.ENDED and tasks[launch.tried] == TaskSnapshot(launch.key, None)
    ]


def _record_cleared(
    settled: Sequence[Settled], tasks: Mapping[Try, TaskSnapshot], session: Session
) -> list[Settled]:
    """Record tries that have ended because they were cleared; rows that are locked are skipped."""
    cleared = {
        item.launch: row.ti_id
        for item in settled
        if (row := tasks[item.launch.tried].restarting) and isinstance(item.outcome, Report)
    }
    if not cleared:
        return list(settled)
    locked = task_instances.lock_rows(set(cleared.values()), session=session)
    held = {launch.key: launch.ti_id for launch, ti_id in cleared.items() if ti_id in locked}
    audit.record_cleared(held, session=session)
    return [item for item in settled if item.launch.key in held or item.launch not in cleared]


def _ended_by_themselves(settled: Collection[Settled]) -> dict[TaskInstanceKey, str]:
    """Return the tries, and their UUIDs, whose worker may have said why they have failed."""
    return {
        item.launch.key: item.launch.ti_id
        for item in settled
        if item.situation is Situation.ENDED and isinstance(item.outcome, Report | Release)
        if item.outcome != Report(TaskInstanceState.SUCCESS)
    }


def _is_unstarted(launch: Launch) -> bool:
    return launch.state in (LaunchState.WAITING, LaunchState.HELD, LaunchState.PENDING)


def _key(item: Asked | Settled) -> TaskInstanceKey:
    return item.launch.key
