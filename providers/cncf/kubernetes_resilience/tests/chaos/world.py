# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
A small world for the executor: a cluster, a scheduler or two, and the execution API, in one thread.

Real here are the executor, everything that it decides, its ledger and the metadata database. Modelled are the
Kubernetes thread (its commands lie in a list until somebody carries them out, its messages until somebody
delivers them), the API server, the kubelets and the few things that Airflow's scheduler and its execution API
do to a task instance. Each method is one thing that can happen; the state machine chooses which, and when.

A broken promise is an ``AssertionError`` whose text begins with the promise's name in DESIGN.md.
"""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Any

from airflow.executors.workloads import ExecuteTask
from airflow.jobs.job import Job
from airflow.models.log import Log

from airflow.providers.cncf.kubernetes_resilience.executors.retirement import DELETION_TIMEOUT
from airflow.providers.cncf.kubernetes_resilience.pods.facts import PodRef

from .cluster import GRACE, OWN_EXIT, Cluster, Life, WorldPod
from .scheduler import Scheduler

LONGEST_WAIT = timedelta(seconds=DELETION_TIMEOUT)
"""For a deletion that the API server does not accept."""


class World(Cluster):
    """Everything that is there, everything that can happen, and what must not."""

    def __init__(self, session: Any, tis: list[Any], make_job: Any, *, limit: int, traveller: Any) -> None:
        super().__init__()
        self.session, self.tis, self.limit = session, tis, limit
        self._make_job = make_job
        self._traveller = traveller
        self._complaints: list[str] = []
        self._refused: set[Life] = set()
        self._vanished: Counter[Life] = Counter()
        """Launches that were lost while no scheduler was there to count them."""
        self._revoked_by: dict[Life, Scheduler] = {}
        self._left_over: set[tuple[Life, str]] = set()
        """Lives that another scheduler has queued since, with the scheduler that may still have a creation of
        theirs under way, whose pod it will delete."""
        self.refuses_deletions = False
        """Whether the API server lets no deletion through; the launcher goes on trying."""
        self.is_away = False
        """Whether no list can be had, so that adoption is postponed."""
        self.seconds = 1000.0
        self.schedulers: list[Scheduler] = []
        self.add_scheduler()

    # ------------------------------------------------------------------ time and schedulers

    def clock(self) -> float:
        return self.seconds

    def pass_time(self, seconds: int) -> None:
        self.seconds += seconds
        self.now += timedelta(seconds=seconds)
        self._traveller.move_to(self.now)

    def add_scheduler(self) -> Scheduler:
        scheduler = Scheduler(self, self._make_job(self.session))
        self.schedulers.append(scheduler)
        self.watchers.append(scheduler.notice)
        return scheduler

    def crash(self, scheduler: Scheduler) -> None:
        """Kill a scheduler, lose all that was under way, and let another one adopt its task instances."""
        self.schedulers.remove(scheduler)
        self.watchers.remove(scheduler.notice)
        self.session.get(Job, scheduler.job_id).state = "failed"
        self.session.commit()
        heir = self.schedulers[0] if self.schedulers else self.add_scheduler()
        orphans = [
            ti
            for ti in self.tis
            if ti.queued_by_job_id == scheduler.job_id and ti.state in ("queued", "running")
        ]
        self._adopt(heir, orphans)
        self.check()

    def _adopt(self, heir: Scheduler, orphans: list[Any]) -> None:
        for ti in orphans:
            pods = self.pods_of(self.life(ti))
            self._vanished[self.life(ti)] += bool(pods and not pods[-1].exists)
        heir.runtime.may_wait = True
        reset = list(heir.executor.try_adopt_task_instances(orphans))
        heir.runtime.may_wait = False
        for ti in orphans:
            if ti not in reset:
                ti.queued_by_job_id = heir.job_id
                continue
            assert ti.state != "queued", "I5: a queued task instance was not adopted"
            pod = self.pod_named(ti.hostname)
            assert pod is None or not pod.is_alive, "I1: a task that runs was reset"
            self.next_try(ti)
        self.session.commit()

    def turn(self, scheduler: Scheduler) -> None:
        """Let a scheduler's loop turn once: the executor's heartbeat, then its events."""
        scheduler.executor.heartbeat()
        self.session.expire_all()
        for key, (state, info) in scheduler.executor.get_event_buffer().items():
            ti = next(ti for ti in self.tis if ti.key.primary == key.primary)
            if ti.try_number == key.try_number and state in ("failed", "success"):
                self._receive(scheduler, ti, info)
        self.session.commit()
        self.check()

    def _receive(self, scheduler: Scheduler, ti: Any, info: Any) -> None:
        """Do what Airflow's scheduler does about an event of the executor: fail what has not ended."""
        requeued = ti.queued_by_job_id != scheduler.job_id or scheduler.executor.has_task(ti)
        if ti.state not in ("scheduled", "queued", "running") or requeued:
            return
        if ti.state == "running":
            pod = self.pod_named(ti.hostname)
            assert pod is None or not pod.is_alive, f"I1: the healthy task of {pod.name} was failed: {info}"
        else:
            self._check_failed_launch(self.life(ti), info)
        assert info, "I5: a failure without a reason"
        ti.state = "failed"

    def enqueue(self, scheduler: Scheduler, ti: Any) -> None:
        """Queue a scheduled task instance."""
        life = self.life(ti)
        self._left_over.discard((life, str(scheduler.job_id)))
        revoker = self._revoked_by.pop(life, scheduler)
        if revoker is not scheduler:
            # Airflow queues a task instance again without waiting for what was revoked, and this scheduler
            # knows nothing of it.
            self._left_over.add((life, str(revoker.job_id)))
            for pod in self.pods_of(life):
                pod.is_forgotten = True
        ti.state, ti.queued_by_job_id, ti.queued_dttm = "queued", scheduler.job_id, self.now
        self.session.commit()
        workload = ExecuteTask.make(ti, generator=scheduler.executor.jwt_generator)
        scheduler.executor.queue_workload(workload, session=self.session)

    def revoke(self, ti: Any) -> None:
        """Do what Airflow's scheduler does about a task instance that is queued for too long."""
        for scheduler in self.schedulers:
            if scheduler.job_id == ti.queued_by_job_id:
                self._revoked_by[self.life(ti)] = scheduler
                scheduler.executor.revoke_task(ti=ti)
        self._vanished[self.life(ti)] += 1  # a launch that nobody counts
        ti.state, ti.queued_by_job_id, ti.queued_dttm = "scheduled", None, None
        self.session.commit()

    # ------------------------------------------------------------------ people, triggers and workers

    def next_try(self, ti: Any) -> None:
        ti.prepare_db_for_next_try(self.session)
        ti.state, ti.try_number, ti.queued_by_job_id, ti.hostname = "scheduled", ti.try_number + 1, None, ""
        self.session.commit()

    def mark(self, ti: Any, state: str) -> None:
        ti.state = state
        self.session.commit()

    def fire_trigger(self, ti: Any) -> None:
        self.triggers[str(ti.id)] += 1
        self.mark(ti, "scheduled")

    def report_start(self, pod: WorldPod) -> None:
        """Let a worker ask the execution API whether it may run its task."""
        ti = next((ti for ti in self.tis if str(ti.id) == pod.ti_id), None)
        if ti is None or ti.state != "queued":
            pod.become("Failed", terminated=OWN_EXIT)
            self.changed(pod)
            return
        ti.state, ti.hostname = "running", pod.name
        self.session.add(Log(event="running", task_instance=ti.key))
        self.session.commit()

    def report_end(self, ti: Any, state: str) -> None:
        """Let the worker of a running task report its end, and its pod succeed."""
        pod = self.pod_named(ti.hostname)
        assert pod is not None
        self.mark(ti, state)
        self.succeed(pod)

    def remove(self, pod: WorldPod) -> None:
        if any(scheduler.is_adopting for scheduler in self.schedulers):
            self._vanished[pod.life] += 1
        super().remove(pod)

    # ------------------------------------------------------------------ what the executor asks for

    def launch(self, body: dict[str, Any]) -> WorldPod:
        """Create a pod: the moment at which it shows whether there are too many."""
        pod = self.create(body)
        if (pod.life, pod.labels["airflow-worker"]) in self._left_over:
            pod.is_forgotten = True
            return pod
        *earlier, _ = self.pods_of(pod.life)
        for other in earlier:
            if other.is_forgotten:
                continue
            assert not other.is_healthy, f"I1: {other.name} is healthy and was replaced by {pod.name}"
            assert self._may_be_replaced(other), (
                f"I2: {pod.name} was launched while {other.name} could still run"
            )
        launches = len({pod.launch_id for pod in [*earlier, pod]})
        allowed = self.limit + 1 + self._vanished[pod.life]
        assert launches <= allowed, f"I4: {launches} launches of {allowed} allowed"
        return pod

    def refused(self, body: dict[str, Any]) -> None:
        """Note that a create call was refused, for which a task instance may be failed."""
        ti_id = body["metadata"]["annotations"]["airflow-resilience/task-instance-id"]
        self._refused.add((ti_id, self.triggers[ti_id]))

    def deletion_was_asked_for(self, ref: PodRef) -> None:
        pod = self.pod_of(ref)
        if pod is None:
            return
        is_first = pod.asked_at is None
        pod.asked_at = pod.asked_at or self.now
        if (
            is_first
            and pod.is_alive
            and any(ti.state == "running" and ti.hostname == pod.name for ti in self.tis)
        ):
            self.complain(f"I1: the pod {pod.name} of a task that runs was deleted")

    # ------------------------------------------------------------------ promises

    def life(self, ti: Any) -> Life:
        return str(ti.id), self.triggers[str(ti.id)]

    def complain(self, complaint: str) -> None:
        """Note a broken promise where the executor would catch the exception."""
        self._complaints.append(complaint)

    def check(self) -> None:
        assert not self._complaints, self._complaints[0]

    def _may_be_replaced(self, pod: WorldPod) -> bool:
        """Whether a pod has gone, or its time to go is over that began when its deletion was accepted."""
        if not pod.is_alive:
            return True
        over = pod.accepted_at is not None and self.now >= pod.accepted_at + GRACE
        given_up = pod.asked_at is not None and self.now >= pod.asked_at + LONGEST_WAIT
        return over or given_up

    def _check_failed_launch(self, life: Life, info: Any) -> None:
        if life in self._refused:
            return
        pods = self.pods_of(life)
        healthy = [pod.name for pod in pods if pod.is_healthy and not pod.is_forgotten]
        assert not healthy, f"I1: failed although {healthy[0]} is healthy: {info}"
        lost = sum(pod.lost for pod in pods)
        assert lost > self.limit or any(pod.exited_by_itself or pod.is_forgotten for pod in pods), (
            f"I3: failed after {lost} lost launches of {self.limit} allowed: {info}"
        )
