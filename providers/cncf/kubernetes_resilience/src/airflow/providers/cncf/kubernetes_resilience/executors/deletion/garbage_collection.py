# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Pods of dead schedulers without a task instance that could be adopted."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from queue import SimpleQueue

from airflow.configuration import conf
from airflow.jobs.job import Job, JobState
from airflow.utils.session import create_session
from attrs import define, field
from sqlalchemy import select
from sqlalchemy.orm import Session

from airflow.providers.cncf.kubernetes_resilience.executors.deletion.pod_deletion import PodDeletion
from airflow.providers.cncf.kubernetes_resilience.executors.isolation import Isolation
from airflow.providers.cncf.kubernetes_resilience.executors.launches.commands import PodCommands
from airflow.providers.cncf.kubernetes_resilience.executors.launches.identity import NOT_DONE, try_of
from airflow.providers.cncf.kubernetes_resilience.executors.tasks import task_instances
from airflow.providers.cncf.kubernetes_resilience.pods.api.errors import KubernetesApiError
from airflow.providers.cncf.kubernetes_resilience.pods.facts import SCHEDULER_LABEL, PodFacts
from airflow.providers.cncf.kubernetes_resilience.pods.thread.runtime import KubernetesRuntime

log = logging.getLogger(__name__)


@define(kw_only=True, eq=False, repr=False, slots=False)
class OrphanCollector:
    """
    Deletes or labels the pods of dead schedulers that no task needs.

    A pod whose worker has ended or has not started may still be adopted, and its task instance's state may
    depend on the pod. No task needs the pod if its try is over, or goes on without the pod. A pod whose
    worker runs ends by itself, and one without a row may be that of another deployment in the namespace.
    """

    _runtime: KubernetesRuntime
    _commands: PodCommands
    _deletion: PodDeletion
    _namespaces: Sequence[str | None]
    _isolation: Isolation
    _job_id: int | None
    _clock: Callable[[], float]
    _found: SimpleQueue[list[PodFacts]] = field(factory=SimpleQueue, init=False)
    _next: float = field(default=0.0, init=False)

    def tick(self) -> None:
        """
        Look for such pods, if it is time to, and clean up those that were found.

        :raises DatabaseAwayError: if the database does not answer
        """
        while not self._found.empty():
            self._isolation.batch("collect", self._found.get(), self._clean_up, name=lambda pod: pod.ref.uid)
        if self._clock() >= self._next:
            self._next = self._clock() + conf.getfloat("scheduler", "orphaned_tasks_check_interval")
            with create_session(scoped=False) as session:
                living = read_living(but=self._job_id, session=session)
            labels = ",".join([self._commands.own_label, *sorted(map(str, living))])
            self._commands.run(self._list, f"{SCHEDULER_LABEL} notin ({labels}),{NOT_DONE}")

    async def _list(self, selector: str) -> None:
        for namespace in self._namespaces:
            try:
                pods = await self._runtime.launcher.list_pods(namespace, selector)
            except KubernetesApiError as error:
                # The informer reports an outage; nothing waits for this list.
                log.debug("Looking for pods of dead schedulers is put off: %r", error)
            else:
                if idle := [pod for pod in pods if pod.has_ended or pod.may_start]:
                    self._found.put(idle)

    def _clean_up(self, pods: Sequence[PodFacts]) -> None:
        launched = {pod.ref.uid: try_of(pod) for pod in pods}
        with create_session(scoped=False) as session:
            tasks = task_instances.read_snapshots(set(launched.values()), session=session)
            over = task_instances.read_over(tasks, session=session)
        for pod in pods:
            key, ti_id = launched[pod.ref.uid]
            task = tasks[key, ti_id]
            if task.restarting:
                continue  # it has another UUID, and waits for the end of its worker
            if (key, ti_id) in over or task.has_released(pod):
                log.info("Pod %s of a dead scheduler is not needed any more; cleaning up", pod.ref)
                self._deletion.delete_or_keep(pod)


def read_living(*, but: int | None, session: Session) -> set[int]:
    """
    Return the jobs of the schedulers that are alive.

    A scheduler is alive if its heartbeat is not older than ``[scheduler] scheduler_health_check_threshold``,
    as in Airflow's search for orphaned task instances.

    :param but: the job that asks
    """
    threshold = timedelta(seconds=conf.getint("scheduler", "scheduler_health_check_threshold"))
    query = select(Job.id).where(
        Job.job_type == "SchedulerJob",
        Job.state == JobState.RUNNING,
        Job.latest_heartbeat >= datetime.now(UTC) - threshold,
        Job.id != but,
    )
    return set(session.scalars(query))
