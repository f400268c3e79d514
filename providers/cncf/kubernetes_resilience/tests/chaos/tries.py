# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
What the retries of tasks are spent on, in a world with an infrastructure budget.

A worker that is told to go, and whose operator does not bear that, reports a failure of its own on Airflow
3.3, if nothing in its image keeps the worker from that. Such a failure costs a retry.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from airflow.models.log import Log
from sqlalchemy import select

from airflow_resilience.ledger import LAUNCH_FAILURE_EVENT
from airflow_resilience.ledger_entries import LedgerEntry

from .cluster import DRAINED, WorldPod
from .world import World

RETRY_DELAY = timedelta(seconds=60)
"""That the author of each task has asked for."""

Attempt = tuple[int, int]
"""What has one budget: the map index of a task instance, and the number of its try."""


class Tries(World):
    """A world in which tasks have retries, and workers are told to go before their pods end."""

    budget: int

    def __init__(self, *args: Any, **options: Any) -> None:
        self._retry_at: dict[int, datetime] = {}
        super().__init__(*args, **options)

    def give_retries(self, ti: Any, retries: int) -> None:
        ti.max_tries = retries
        self.session.commit()

    # ------------------------------------------------------------------ what happens

    def ask_to_end(self, pod: WorldPod) -> None:
        """Have a pod be evicted by the API: its worker is told to go, and is given time for that."""
        pod.manifest["status"]["conditions"] = [DRAINED]
        pod.was_taken_in_good_order = True
        self.delete(pod)

    def told_to_go(self) -> list[WorldPod]:
        """Return the pods whose worker was told to go, and runs its task."""
        return [pod for pod in self.pods if pod.is_deleting and pod.is_alive and self._is_running_in(pod)]

    def report_failure(self, pod: WorldPod) -> None:
        """Let a worker report a failure of its task. Its container goes on, with a callback maybe."""
        self.fail(self.known_to(pod))

    def end_in_good_order(self, pod: WorldPod) -> None:
        """Let the container of a worker that has reported end, and a kubelet remove its pod."""
        self.succeed(pod)
        self.remove(pod)

    def fail(self, ti: Any) -> None:
        """Do what Airflow does about a failure, whoever has reported it."""
        if ti.try_number > ti.max_tries:
            self.mark(ti, "failed")
            return
        ti.end_date = self.now
        self._give_new_id(ti)
        self._retry_at[ti.map_index] = self.now + RETRY_DELAY
        self.mark(ti, "up_for_retry")

    def schedule_next_tries(self, *, early: bool = False) -> None:
        """
        Do what Airflow's scheduler does about task instances whose next try is due.

        :param early: whether the authors have asked for no delay
        """
        for ti in self.tis:
            if ti.state == "up_for_retry" and (early or self.now >= self._retry_at[ti.map_index]):
                ti.try_number, ti.queued_by_job_id, ti.hostname = ti.try_number + 1, None, ""
                self.mark(ti, "scheduled")

    def _is_running_in(self, pod: WorldPod) -> bool:
        ti = self.known_to(pod)
        return ti is not None and ti.state == "running" and ti.hostname == pod.name

    # ------------------------------------------------------------------ promises

    def attempt(self, pod: WorldPod) -> Attempt:
        return int(pod.annotations["map_index"]), int(pod.annotations["try_number"])

    def runs_of(self, attempt: Attempt) -> set[str]:
        """Return the UUIDs under which something was launched with one budget."""
        return {pod.ti_id for pod in self.pods if self.attempt(pod) == attempt}

    def retries_of(self, attempt: Attempt) -> int:
        """Return how much of its budget was used after losses."""
        return len(self.runs_of(attempt)) - 1

    def starts_replaced(self, pod: WorldPod) -> int:
        """Return how many workers that could not reach Airflow were replaced at least, before a pod."""
        *earlier, _ = self.pods_of(pod.life)
        free = [other for other in earlier if other.was_held or other.is_forgotten]
        counted = sum(other.was_unreached for other in earlier if other not in free)
        return counted - self._vanished[pod.life]

    def borne(self, pods: list[WorldPod]) -> int:
        return min(sum(pod.was_unreached for pod in pods), self.budget)

    def is_own_exit(self, pod: WorldPod) -> bool:
        *earlier, last = self.pods_of(pod.life)
        return (
            pod.was_unreached and pod is last and sum(other.was_unreached for other in earlier) >= self.budget
        )

    def has_counted_end(self, pod: WorldPod) -> bool:
        """Whether a scheduler has counted the end of a pod as a failed launch, not that it was given up."""
        rows = self.session.scalars(select(Log.extra).where(Log.event == LAUNCH_FAILURE_EVENT))
        entries = [entry for extra in rows if (entry := LedgerEntry.from_json(extra))]
        return any(
            entry.worker_uid == pod.uid and entry.context.metadata.get("phase") == "Failed"
            for entry in entries
        )
