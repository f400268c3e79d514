# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Pods whose worker's token had expired before they started."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta

from airflow.utils.session import create_session

from airflow.providers.cncf.kubernetes_resilience.executors.creation.create_retries import awaits_pod
from airflow.providers.cncf.kubernetes_resilience.executors.isolation import Isolation
from airflow.providers.cncf.kubernetes_resilience.executors.launches.commands import PodCommands
from airflow.providers.cncf.kubernetes_resilience.executors.launches.launch import Launch, LaunchState
from airflow.providers.cncf.kubernetes_resilience.executors.launches.registry import LaunchRegistry
from airflow.providers.cncf.kubernetes_resilience.executors.tasks import task_instances
from airflow.providers.cncf.kubernetes_resilience.pods.facts import PodFacts

CHECK_INTERVAL = 10.0
"""Seconds between two looks."""


class ExpiredTokens:
    """
    Finds launches whose token has expired, so that their workers cannot start the task.

    Such a worker exits on its own, which looks like a failure of the task; settlement asks. A pod that an
    outage has kept from starting is replaced before. Without an outage the scheduler does that, though up to
    ``[scheduler] task_queued_timeout_check_interval`` later, and a kubelet may be quicker.

    :param validity: of a token, seconds
    :param job_id: this scheduler's job
    :param clock: monotonic time, seconds
    """

    def __init__(
        self,
        *,
        registry: LaunchRegistry,
        commands: PodCommands,
        isolation: Isolation,
        validity: float,
        job_id: int | None,
        clock: Callable[[], float],
    ) -> None:
        self._registry = registry
        self._commands = commands
        self._isolation = isolation
        self._job_id = job_id
        self._validity = timedelta(seconds=validity)
        self._clock = clock
        self._next_look = 0.0

    def tick(self) -> list[Launch]:
        """
        Return the launches that have to be replaced after an outage, if it is time to look for them.

        :raises DatabaseAwayError: if the database does not answer; they are looked for again then
        """
        is_away = self._commands.is_away
        if self._clock() < self._next_look and not is_away:
            return []
        # After an outage too: what has happened in it is learned first.
        self._next_look = self._clock() + CHECK_INTERVAL
        if is_away:
            return []
        expired = [
            launch
            for launch in self._registry.in_state(LaunchState.PENDING)
            # What is being adopted may have been replaced by another scheduler.
            if launch.facts and launch.was_held and self.has_expired(launch)
            if not self._registry.adopting_of(launch.key)
        ]
        return self._isolation.batch("expire", expired, self._awaited, name=_name)

    def _awaited(self, launches: Sequence[Launch]) -> Iterable[Launch]:
        # A scheduler that has stood still does not know yet that another one has adopted them.
        with create_session(scoped=False) as session:
            rows = task_instances.read_rows({launch.ti_id for launch in launches}, session=session)
        # An adoption that is not committed yet never may be: its scheduler was taken for dead, and goes on.
        return [launch for launch in launches if awaits_pod(launch, rows.get(launch.ti_id), self._job_id)]

    def has_expired(self, launch: Launch) -> bool:
        """
        Whether the token of a launch has expired.

        This scheduler knows when it has made a token. The pod's age counts too: the pod may have been created
        by an earlier call, with an earlier token. A worker that has ended was as old as it was then, however
        late that is learned.
        """
        now = datetime.now(UTC)
        age = self._clock() - launch.token_made_at if launch.token_made_at else 0.0
        created = launch.facts.created if launch.facts else None
        pod_age = now - created if created else timedelta()
        return max(timedelta(seconds=age), pod_age) - _since_end(launch.facts, now) >= self._validity


def _name(launch: Launch) -> str:
    return launch.launch_id


def _since_end(pod: PodFacts | None, now: datetime) -> timedelta:
    """Return how long ago a pod's worker has ended, as its kubelet says; none if it is not known to have."""
    if pod is None or pod.created is None or pod.worker is None or pod.worker.finished_at is None:
        return timedelta()
    # A kubelet whose clock is wrong says nothing.
    return now - pod.worker.finished_at if pod.created <= pod.worker.finished_at <= now else timedelta()
