# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Keeps task instances that do not wait for their pods from Airflow's limit of the time in ``queued``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta

from airflow.utils.session import create_session
from airflow.utils.state import TaskInstanceState
from attrs import define, field

from airflow.providers.cncf.kubernetes_resilience.executors.isolation import Isolation
from airflow.providers.cncf.kubernetes_resilience.executors.launches.commands import PodCommands
from airflow.providers.cncf.kubernetes_resilience.executors.launches.identity import Orphan
from airflow.providers.cncf.kubernetes_resilience.executors.launches.launch import Launch, LaunchState
from airflow.providers.cncf.kubernetes_resilience.executors.launches.registry import LaunchRegistry
from airflow.providers.cncf.kubernetes_resilience.executors.tasks import task_instances

PROMPT = 10.0
"""
Seconds after which a create call without an answer must be waiting: for its turn, or for as long as the API
server has asked for. A call that is sent takes a fraction of a second.
"""


@define(kw_only=True, eq=False, repr=False, slots=False)
class QueuedTimeout:
    """
    Begins the time in the queue anew for task instances that wait, but not because of their pods.

    The scheduler revokes a task instance that is queued for longer than ``[scheduler] task_queued_timeout``,
    and fails it in the end. The official limit is meant for a pod that does not start. The timeout is not
    meant for a launch that waits on purpose, for a pod behind a scheduling gate, or for an outage of the API
    server: pods can be neither created nor scheduled then.
    """

    _timeout: float
    """Seconds."""
    _gate_timeout: float
    """Seconds, from when a task instance was scheduled, in which its pod may wait behind a scheduling
    gate."""
    _registry: LaunchRegistry
    _commands: PodCommands
    _isolation: Isolation
    _job_id: int | None
    _clock: Callable[[], float]
    _was_away: bool = field(default=False, init=False)

    def __attrs_post_init__(self) -> None:
        self._next = self._clock() + self._timeout / 3

    def tick(self, orphans: Iterable[Orphan]) -> None:
        """
        Begin the time of those task instances anew, if it is time for that or an outage begins or ends.

        :param orphans: task instances whose adoption waits until the API server answers
        :raises DatabaseAwayError: if the database does not answer; it is tried again then
        """
        now, is_away = self._clock(), self._commands.is_away
        if now < self._next and is_away == self._was_away:
            return
        ti_ids = self._waiting_on_purpose(orphans) | self._gated()
        if is_away or self._was_away:
            for launch in self._registry.starting():
                launch.was_delayed = True
            ti_ids |= self._not_started()
        self._isolation.batch("hold-off", ti_ids, self._begin_anew)
        self._next, self._was_away = now + self._timeout / 3, is_away

    def _begin_anew(self, ti_ids: Sequence[str]) -> None:
        with create_session(scoped=False) as session:
            rows = task_instances.lock_rows(ti_ids, session=session)
            queued = {row.ti_id for row in rows.values() if row.queued_by_job_id == self._job_id}
            task_instances.refresh_queued(queued, session=session)

    def _waiting_on_purpose(self, orphans: Iterable[Orphan]) -> set[str]:
        """Return the UUIDs of the queued task instances that wait because this executor wants them to."""
        waiting = self._registry.in_state(LaunchState.WAITING)
        creating = self._registry.in_state(LaunchState.CREATING)
        return {
            *(launch.ti_id for launch in waiting if self._waits_on_purpose(launch)),
            *(launch.ti_id for launch in self._registry.in_state(LaunchState.HELD)),
            *(launch.ti_id for launch in creating if launch.is_created_again or self._is_late(launch)),
            *(orphan.ti_id for orphan in orphans if orphan.state == TaskInstanceState.QUEUED),
        }

    def _gated(self) -> set[str]:
        """Return the UUIDs of the task instances whose pod may wait behind a scheduling gate, and does."""
        pending = self._registry.in_state(LaunchState.PENDING)
        gated = {launch.ti_id: launch for launch in pending if launch.facts and launch.facts.is_gated}
        if not gated:
            return set()
        with create_session(scoped=False) as session:
            since = datetime.now(UTC) - timedelta(seconds=self._gate_timeout)
            held = task_instances.read_scheduled_since(since, gated.keys(), session=session)
        for ti_id in held:
            gated[ti_id].was_delayed = True
        return held

    def _not_started(self) -> set[str]:
        """Return the UUIDs of the task instances that cannot start while the API server does not answer."""
        waiting = self._registry.in_state(LaunchState.WAITING)
        to_be_launched = {launch.ti_id for launch in waiting if launch.waiting and launch.waiting.job}
        return to_be_launched | {launch.ti_id for launch in self._registry.starting()}

    def _waits_on_purpose(self, launch: Launch) -> bool:
        is_another = launch.waiting is not None and launch.waiting.is_another
        # A pod before may have to go first, as that of a launch which Airflow has taken back.
        return is_another or not self._registry.is_clear(launch.key, self._clock())

    def _is_late(self, launch: Launch) -> bool:
        # A launch that is not repeated was asked for when its token was made.
        return launch.calls > 0 and self._clock() - launch.token_made_at >= PROMPT
