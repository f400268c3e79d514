# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
A small world for the executor: a cluster, a scheduler or two, and the execution API, in one thread.

Real here are the executor, everything that it decides, its ledger and the metadata database. Modelled are the
Kubernetes thread (its commands lie in a list until somebody carries them out, its messages until somebody
delivers them), the API server, the kubelets and the few things that Airflow's scheduler and its execution API
do to a task instance. Each method is one thing that can happen; the state machine chooses which, and when.

A broken promise is an ``AssertionError`` whose text begins with the promise's name in docs/architecture.md.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.callbacks.callback_requests import TaskCallbackRequest
from airflow.configuration import conf
from airflow.executors.workloads import ExecuteTask
from airflow.jobs.job import Job
from airflow.models.log import Log
from airflow.models.taskinstance import TaskInstance
from sqlalchemy import select, update

from airflow.providers.cncf.kubernetes_resilience.executors.adoption.plan import CLOCK_SKEW
from airflow.providers.cncf.kubernetes_resilience.executors.deletion.pod_deletion import DELETION_TIMEOUT
from airflow.providers.cncf.kubernetes_resilience.pods.facts import PodRef
from airflow_resilience.propagation.stored import XCOM_KEY

from .cluster import GRACE, OWN_EXIT, Cluster, Life, WorldPod
from .poison import poison
from .scheduler import Scheduler

LONGEST_WAIT = timedelta(seconds=DELETION_TIMEOUT)
"""For a deletion that the API server does not accept."""

PATIENCE = timedelta(minutes=4)
"""So long, at least, credentials or permissions that are refused are waited for, before a launch counts as
failed."""

REQUEUES = 2
"""How often Airflow's scheduler queues again what is stuck in queued, before it fails it."""

ADOPTABLE = ("queued", "running", "restarting")


class World(Cluster):
    """Everything that is there, everything that can happen, and what must not."""

    refuses_deletions = False
    """Whether the API server lets no deletion through; the launcher goes on trying."""
    is_away = False
    """Whether no list can be had, so that adoption is postponed."""
    is_down = False
    """Whether the API server cannot be reached: it tells nothing, and nothing can be asked of it."""

    def __init__(self, session: Any, tis: list[Any], make_job: Any, *, limit: int, traveller: Any) -> None:
        super().__init__()
        self.session, self.tis, self.limit = session, tis, limit
        self._make_job = make_job
        self._traveller = traveller
        self._complaints: list[str] = []
        self._refused: set[Life] = set()
        """Lives with a create call that was refused for good."""
        self._forbidden: dict[str, tuple[Life, datetime, datetime]] = {}
        """Launches whose create calls were answered with 401 or 403: from when and until when."""
        self._vanished: Counter[Life] = Counter()
        """Launches that were lost while no scheduler was there to count them."""
        self._revoked_by: dict[Life, Scheduler] = {}
        self._left_over: set[tuple[Life, str]] = set()
        """Lives that another scheduler has queued since, with the scheduler that may still have a creation of
        theirs under way, whose pod it will delete."""
        self._rolled_back: defaultdict[Life, set[str]] = defaultdict(set)
        """Lives whose adoption was rolled back, with the schedulers that had them and stood still then. Who
        has adopted them may have had them scheduled again, in a transaction of the executor's own."""
        self._overtaken: dict[str, set[str]] = {}
        """The same for a scheduler that has its task instance back by now: launch ids of create calls that it
        had under way, and calls off, each with the UIDs of the pods that were launched meanwhile."""
        self._revoked: set[str] = set()
        """Launch ids of which Airflow does not want a pod any more, though their task instance lives on."""
        self._called_off: set[str] = set()
        """Launch ids of creations that a scheduler had under way when it was taken for dead, and that it
        calls off as it adopts the task instance itself. Their pods go, and no failure has ended them."""
        self._cleared: defaultdict[int, list[WorldPod]] = defaultdict(list)
        """Pods whose worker ran a task instance when it was cleared, by map index."""
        self._stuck: Counter[Life] = Counter()
        self._poison = pytest.MonkeyPatch()
        self._poisoned: int | None = None
        """The map index of the task instance about which a step of the executor's raises an exception."""
        self.poison_taken: list[str] = []
        """The step, each time that it has raised one."""
        self._harmed: set[str] = set()
        """UUIDs that it has or had while it was poisoned. What has one may fail."""
        self.called_back: list[Any] = []
        """The requests for callbacks that Airflow has been handed."""
        self._asked_in: dict[str, Life] = {}
        """In which life of its task instance each launch was asked for. It may be created in a later one."""
        self._first_asked: dict[str, datetime] = {}
        """When each launch's creation was asked for first, and its token made. A scheduler that stands still
        makes the call later."""
        self.first_calls: dict[str, datetime] = {}
        """When each launch's creation was asked for first."""
        self.seconds = 1000.0
        self.schedulers: list[Scheduler] = []
        self.paused: list[Scheduler] = []
        """Schedulers whose processes stand still."""
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
        scheduler.executor.callback_sink = self
        self.schedulers.append(scheduler)
        self.watchers.append(scheduler.notice)
        return scheduler

    def crash(self, scheduler: Scheduler) -> None:
        """Kill a scheduler, lose all that was under way, and let another one adopt its task instances."""
        self.kill_scheduler(scheduler)
        self.session.execute(update(Job).where(Job.id == scheduler.job_id).values(state="failed"))
        self.session.commit()
        self.adopt_orphans(self.other_than(scheduler))
        self.check()

    def kill_scheduler(self, scheduler: Scheduler) -> None:
        """Kill a scheduler. It counts as living, for as long as its last heartbeat is fresh."""
        self._beat(scheduler)
        self.schedulers.remove(scheduler)
        self.watchers.remove(scheduler.notice)

    def other_than(self, *schedulers: Scheduler) -> Scheduler:
        """Return a scheduler that works, a new one if there is no other."""
        others = [item for item in self.schedulers if item not in schedulers]
        return others[0] if others else self.add_scheduler()

    def pause(self, scheduler: Scheduler) -> Scheduler:
        """Have a scheduler's process stand still, all its threads, and return another that works."""
        self._beat(scheduler)
        self.schedulers.remove(scheduler)
        self.paused.append(scheduler)
        return self.other_than()

    def resume(self, scheduler: Scheduler) -> None:
        """Have it go on, with all that it had to do, and with what its watch has received since."""
        self.paused.remove(scheduler)
        self.schedulers.append(scheduler)

    def orphans(self) -> list[Any]:
        """Return the task instances that no scheduler looks after which works."""
        working = {scheduler.job_id for scheduler in self.schedulers}
        return [ti for ti in self.tis if ti.state in ADOPTABLE and ti.queued_by_job_id not in working]

    def adopt_orphans(self, heir: Scheduler, *, commits: bool = True, relabels: int | None = None) -> None:
        """
        Do what Airflow's scheduler does about task instances whose scheduler counts as dead.

        :param commits: whether its transaction succeeds
        :param relabels: how many pods get the heir's label before the transaction fails; None for all
        """
        for scheduler in self.schedulers:
            self._beat(scheduler)
        stale = self.now - timedelta(seconds=conf.getint("scheduler", "scheduler_health_check_threshold"))
        running = Job.state == "running"
        self.session.execute(update(Job).where(running, Job.latest_heartbeat < stale).values(state="failed"))
        self.session.commit()
        alive = set(self.session.scalars(select(Job.id).where(running)))
        orphans = [ti for ti in self.orphans() if ti.queued_by_job_id not in alive]
        if orphans and commits:
            self._adopt(heir, orphans)
        elif orphans:
            self._fail_to_adopt(heir, orphans, relabels)

    def overtake(self, scheduler: Scheduler, **options: Any) -> Scheduler:
        """Have a scheduler stand still until another adopts what was its; return that one."""
        heir = self.pause(scheduler)
        self.pass_time(40)
        self.adopt_orphans(heir, **options)
        return heir

    def _adopt(self, heir: Scheduler, orphans: list[Any]) -> None:
        asleep = {scheduler.job_id: scheduler for scheduler in self.paused}
        for ti in orphans:
            pods = self.pods_of(self.life(ti))
            self._vanished[self.life(ti)] += bool(pods and not pods[-1].exists)
            if owner := asleep.get(
                ti.queued_by_job_id
            ):  # what it had asked for is still done when it wakes up
                self._left_over.add((self.life(ti), str(owner.job_id)))
            self._have_it_back(heir, ti)
        reset = self._offer(heir, orphans)
        self._called_off |= heir.runtime.cancelled()
        for ti in orphans:
            if ti not in reset:
                ti.queued_by_job_id = heir.job_id
                continue
            if not self.may_fail(str(ti.id)):
                self.check_reset(ti)
            self.next_try(ti)
        self.session.commit()

    def _have_it_back(self, scheduler: Scheduler, ti: Any) -> None:
        """Note that a task instance is again that of a scheduler that may have a creation of it under way."""
        life, label = self.life(ti), str(scheduler.job_id)
        if (life, label) in self._left_over:
            self._left_over.remove((life, label))
            pods = {pod.uid for pod in self.pods_of(life)}
            self._overtaken |= dict.fromkeys(scheduler.runtime.creations_of(str(ti.id)), pods)

    def check_reset(self, ti: Any) -> None:
        """Look at a task instance that the executor has not adopted."""
        assert ti.state != "queued", "I5: a queued task instance was not adopted"
        pod = self.pod_named(ti.hostname)
        runs = pod is not None and pod.is_alive and ti.state == "running"
        assert not runs, "I1: a task that runs was reset"

    def _fail_to_adopt(self, heir: Scheduler, orphans: list[Any], relabels: int | None) -> None:
        asleep = {scheduler.job_id for scheduler in self.paused}
        for ti in orphans:
            if ti.queued_by_job_id in asleep:
                self._rolled_back[self.life(ti)].add(str(ti.queued_by_job_id))
        pods = [pod for ti in orphans for pod in self.pods_of(self.life(ti))]
        asked = [(pod, pod.asked_at, pod.deleted_as) for pod in pods]
        self._offer(heir, orphans)
        self.label_early(heir, orphans, relabels)
        if heir.runtime.is_alive:
            heir.runtime.carry_out_all()
        self.session.rollback()
        for pod, at, label in asked:
            # Whose it still is has asked for its deletion, and waits no longer for that because of a label.
            if pod.asked_at is None:
                pod.asked_at, pod.deleted_as = at, label

    def label_early(self, heir: Scheduler, orphans: list[Any], limit: int | None = None) -> None:
        """
        Label the pods of what is adopted before that is committed, as older versions and the official do.

        :param limit: how many pods; None for all
        """
        if not self.is_down:
            found = [pod for ti in orphans for pod in self.pods_of(self.life(ti)) if pod.exists]
            for pod in found[:limit]:
                self.relabel(pod, {"airflow-worker": str(heir.job_id)})

    def _offer(self, heir: Scheduler, orphans: list[Any]) -> list[Any]:
        # Airflow holds the rows locked meanwhile, in a transaction that the executor knows nothing of.
        ids = [ti.id for ti in orphans]
        self.session.execute(select(TaskInstance.id).where(TaskInstance.id.in_(ids)).with_for_update())
        heir.runtime.may_wait = True
        with self._unstopped():
            reset = list(heir.executor.try_adopt_task_instances(orphans))
        heir.runtime.may_wait = False
        return reset

    def turn(self, scheduler: Scheduler) -> None:
        """Let a scheduler's loop turn once: the executor's heartbeat, then its events."""
        self._beat(scheduler)
        with self._unstopped():
            scheduler.executor.heartbeat()
        self._check_called_off(scheduler)
        self.read_again()
        for key, (state, info) in scheduler.executor.get_event_buffer().items():
            ti = next(ti for ti in self.tis if ti.key.primary == key.primary)
            if ti.try_number == key.try_number and state in ("failed", "success"):
                self._receive(scheduler, ti, info)
        self.session.commit()
        self.check()

    def _check_called_off(self, scheduler: Scheduler) -> None:
        """Look whether a scheduler goes on with a creation from before another one had its task instance."""
        for launch_id in self._overtaken:
            is_known = scheduler.registry.current(launch_id)
            pod = next((pod for pod in self.pods if pod.launch_id == launch_id), None)
            # Its pod was made all the same, and has started: the task may run in it. So it is followed again,
            # unless the launch that has taken its place has a pod that lives.
            has_started = pod is not None and pod.phase != "Pending" and not self._is_rivalled(pod)
            assert not is_known or has_started or self.may_fail(is_known.ti_id), (
                f"I2: launch {launch_id}, which was overtaken, is still the current one of {is_known.key}"
            )

    def _is_rivalled(self, pod: WorldPod) -> bool:
        """Whether another pod of the same life lives that its scheduler has to follow."""
        others = (other for other in self.pods_of(pod.life) if other is not pod)
        return any(
            other.is_healthy and not (other.is_forgotten or self.may_fail(other.ti_id)) for other in others
        )

    def read_again(self) -> None:
        """Read the task instances' rows. The executor may have given them other UUIDs."""
        self.session.expire_all()
        self.tis[:] = read_task_instances(self.session)
        if self.poisoned is not None:
            self._harmed.add(str(self.poisoned.id))

    @contextmanager
    def _unstopped(self) -> Iterator[None]:
        try:
            yield
        except AssertionError:
            raise
        except Exception as error:
            raise AssertionError(f"I10: the scheduler was stopped by {error!r}") from error

    def _beat(self, scheduler: Scheduler) -> None:
        """Send a heartbeat; it also takes back that somebody took the scheduler for dead."""
        if scheduler.beat_at != self.now:
            scheduler.beat_at = self.now
            self.session.execute(
                update(Job)
                .where(Job.id == scheduler.job_id)
                .values(state="running", latest_heartbeat=self.now)
            )
            self.session.commit()

    def _receive(self, scheduler: Scheduler, ti: Any, info: Any) -> None:
        """Do what Airflow's scheduler does about an event of the executor: fail what has not ended."""
        requeued = ti.queued_by_job_id != scheduler.job_id or scheduler.executor.has_task(ti)
        if ti.state not in ("scheduled", "queued", "running", "restarting") or requeued:
            return
        if ti.state == "restarting":
            self.restart(ti)
            return
        if not self.may_fail(str(ti.id)):
            self.check_failure(ti, info)
        self.call_back(scheduler, ti)
        self.fail(ti)

    def call_back(self, scheduler: Scheduler, ti: Any) -> None:
        """Have the callbacks of a failure run, which Airflow does before it commits that."""
        names = "id", "dag_id", "task_id", "run_id", "try_number", "map_index", "state", "hostname"
        copy = SimpleNamespace(**{name: getattr(ti, name) for name in names}, context_carrier=None)
        request = TaskCallbackRequest.model_construct(ti=copy, filepath="", msg="")
        scheduler.executor.send_callback(request)
        if not self.may_fail(str(ti.id)):
            assert self.called_back[-1:] == [request], "I9: the callbacks of a failure are held back"
            assert XCOM_KEY in (copy.context_carrier or {}), "I9: callbacks are not told why"

    def send(self, request: Any) -> None:
        """Take a request for callbacks."""
        self.called_back.append(request)

    def fail(self, ti: Any) -> None:
        """Do what Airflow does about a failure of a task. It has no retries here."""
        self.mark(ti, "failed")

    def check_failure(self, ti: Any, info: Any) -> None:
        """Look at a failure that the executor has reported."""
        if ti.state == "running":
            pod = self.pod_named(ti.hostname)
            assert pod is None or not pod.is_alive, f"I1: the healthy task of {pod.name} was failed: {info}"
        else:
            for pod in self.pods_of(self.life(ti)):
                is_free = pod.is_forgotten or self.is_stopped(pod)
                assert is_free, f"I1: failed while {pod.name} could still start: {info}"
            self._check_failed_launch(self.life(ti), info)
        assert info, "I5: a failure without a reason"

    def enqueue(self, scheduler: Scheduler, ti: Any) -> None:
        """Queue a scheduled task instance."""
        life = self.life(ti)
        self._have_it_back(scheduler, ti)
        for label in self._rolled_back.pop(life, set()) - {str(scheduler.job_id)}:
            self._left_over.add((life, label))
            for pod in self.pods_of(life):
                pod.is_forgotten |= pod.labels["airflow-worker"] == label
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
                self._revoked |= scheduler.runtime.creations_of(str(ti.id))
                scheduler.executor.revoke_task(ti=ti)
        self._revoked |= {pod.launch_id for pod in self.pods_of(self.life(ti))}
        self._vanished[self.life(ti)] += 1  # a launch that nobody counts
        ti.queued_by_job_id, ti.queued_dttm = None, None
        self.mark(ti, "scheduled")

    def handle_stuck_in_queued(self) -> None:
        """Do what Airflow's schedulers do about their task instances that are queued for too long."""
        longest = self.now - timedelta(seconds=conf.getint("scheduler", "task_queued_timeout"))
        working = {scheduler.job_id for scheduler in self.schedulers}
        for ti in self.tis:
            if ti.state == "queued" and ti.queued_by_job_id in working and ti.queued_dttm < longest:
                life = self.life(ti)
                # One whose launch cannot be settled is left to Airflow's own limits, outage or not.
                is_free = self.may_fail(str(ti.id))
                assert is_free or self._stuck[life] < REQUEUES, (
                    "I5: an outage has failed a task as stuck in queued"
                )
                self._stuck[life] += 1
                self.revoke(ti)

    def give_up_lost(self) -> None:
        """Do what Airflow does about those that are not heard of, or that have been poisoned and wait."""
        for ti in self.tis:
            if ti.state == "restarting":
                self.restart(ti)
            elif ti.state == "queued" and self.may_fail(str(ti.id)) and self.poisoned is None:
                self.revoke(ti)

    # ------------------------------------------------------------------ people, triggers and workers

    def next_try(self, ti: Any) -> None:
        self._give_new_id(ti)
        ti.try_number, ti.queued_by_job_id, ti.hostname = ti.try_number + 1, None, ""
        self.mark(ti, "scheduled")

    def _give_new_id(self, ti: Any) -> None:
        ti.prepare_db_for_next_try(self.session)
        if ti is self.poisoned:
            self._harmed.add(str(ti.id))

    def clear_running(self, ti: Any) -> None:
        """Clear a task instance that runs. Its worker goes on until its next heartbeat."""
        pod = self.pod_named(ti.hostname)
        assert pod is not None
        self._cleared[ti.map_index].append(pod)
        self._give_new_id(ti)
        ti.state = "restarting"
        self.session.commit()

    def cleared_workers(self) -> list[WorldPod]:
        """Return the pods in which a worker runs what was cleared."""
        return [pod for pods in self._cleared.values() for pod in pods if pod.is_alive]

    def notice_clearing(self, pod: WorldPod, *, succeeds: bool) -> None:
        """Let the worker of a task instance that was cleared learn of it, and end."""
        if succeeds:
            self.succeed(pod)
        else:
            self.exit_by_itself(pod)

    def restart(self, ti: Any) -> None:
        """Schedule a task instance whose cleared worker has ended, with the UUID that clearing gave it."""
        ti.try_number, ti.queued_by_job_id = ti.try_number + 1, None
        self.mark(ti, "scheduled")

    def poison(self, ti: Any, step: str) -> None:
        """Have a step of the executor's raise an exception for a task instance, in all schedulers."""
        self._poisoned = ti.map_index
        self._harmed.add(str(ti.id))
        primary = ti.key.primary
        concerns = lambda name: name in self._harmed or getattr(name, "primary", None) == primary  # noqa: E731
        poison(self._poison, step, concerns, self.poison_taken)

    def cure(self) -> None:
        self._poison.undo()
        self._poisoned = None

    @property
    def poisoned(self) -> Any:
        """The task instance about which a step of the executor's raises an exception."""
        return next((ti for ti in self.tis if ti.map_index == self._poisoned), None)

    def mark(self, ti: Any, state: str) -> None:
        if state == "scheduled":
            self.pass_time(CLOCK_SKEW.seconds + 1)
            ti.scheduled_dttm = self.now
        ti.state = state
        self.session.commit()

    def fire_trigger(self, ti: Any) -> None:
        self.triggers[str(ti.id)] += 1
        self.mark(ti, "scheduled")

    def report_start(self, pod: WorldPod) -> None:
        """Let a worker ask the execution API whether it may run its task."""
        ti = self.known_to(pod)
        pod.has_reported = True
        if ti is None or ti.state != "queued":
            pod.end("Failed", OWN_EXIT, self.now)
            self.changed(pod)
            return
        self.start(ti, pod)

    def start(self, ti: Any, pod: WorldPod) -> None:
        ti.state, ti.hostname, ti.end_date = "running", pod.name, None
        self._stuck.pop(self.life(ti), None)
        self.session.add(Log(event="running", task_instance=ti.key))
        self.session.commit()

    def known_to(self, pod: WorldPod) -> Any:
        """Return the task instance that has the UUID by which a worker knows it."""
        return next((ti for ti in self.tis if str(ti.id) == pod.ti_id), None)

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

    def begin_outage(self) -> None:
        self.is_down = True
        for pod in self.pods:
            pod.was_held |= pod.is_alive
            pod.ended_unseen |= not (
                pod.is_alive or pod.exited_by_itself or self._is_known_to_have_ended(pod)
            )

    def end_outage(self) -> None:
        """Let the API server answer again: those who watch list the pods anew."""
        self.is_down = False
        for scheduler in [*self.schedulers, *self.paused]:
            scheduler.relist()

    # ------------------------------------------------------------------ what the executor asks for

    def creation_was_asked_for(self, launch_id: str, body: dict[str, Any]) -> None:
        """Note a create call, which may be under way for long."""
        ti_id = body["metadata"]["annotations"]["airflow-resilience/task-instance-id"]
        self._asked_in.setdefault(launch_id, (ti_id, self.triggers[ti_id]))
        self._first_asked.setdefault(launch_id, self.now)

    def launch(self, body: dict[str, Any]) -> WorldPod:
        """Create a pod: the moment at which it shows whether there are too many."""
        pod = self.create(body)
        pod.life = self._asked_in[pod.launch_id]
        pod.token_made_at = self._first_asked[pod.launch_id]
        pod.created_late = pod.token_made_at < self.now
        pod.was_held = self.first_calls[pod.launch_id] < self.now
        self._check_cleared(pod)
        if (pod.life, pod.labels["airflow-worker"]) in self._left_over:
            pod.is_forgotten = True
            self._vanished[pod.life] += 1
            return pod
        *earlier, _ = self.pods_of(pod.life)
        overtook = self._overtaken.get(pod.launch_id, set())
        self._vanished[pod.life] += bool(overtook)
        for other in earlier:
            if other.uid in overtook:
                continue
            # A poisoned pod may be one that cannot be read, and is not adopted then: Airflow's own limits
            # take its task instance back, and whoever launches that next knows nothing of the pod.
            if other.is_forgotten or self.may_fail(pod.ti_id):
                continue
            assert not other.is_healthy, f"I1: {other.name} is healthy and was replaced by {pod.name}"
            assert self.may_be_replaced(other), (
                f"I2: {pod.name} was launched while {other.name} could still run"
            )
            self.check_replaced(other)
        revoked = {other.launch_id for other in earlier if other.asked_at} | {pod.launch_id}
        launches = len({item.launch_id for item in [*earlier, pod]} - (revoked & self._called_off))
        expired = sum(self._has_expired(other) for other in earlier)
        allowed = self.limit + 1 + self._vanished[pod.life] + expired + self.borne(earlier)
        assert launches <= allowed, f"I4: {launches} launches of {allowed} allowed"
        return pod

    def check_replaced(self, pod: WorldPod) -> None:
        """Look at a pod that was replaced in the same life of its task instance."""
        is_free = pod.was_held or self._has_expired(pod) or not pod.exists or pod.launch_id in self._revoked
        assert is_free or not self.is_own_exit(pod), f"I3: {pod.name} had ended by itself, and was replaced"

    def borne(self, pods: list[WorldPod]) -> int:
        """Return how many of these pods were replaced without a relaunch that counts."""
        return 0

    def is_free(self, pod: WorldPod) -> bool:
        """Whether a pod was lost to what was away for everybody."""
        return False

    def is_own_exit(self, pod: WorldPod) -> bool:
        """Whether a pod's end is its task's own failure. Without a budget it is whatever its log says."""
        return pod.was_unreached

    def _has_expired(self, pod: WorldPod) -> bool:
        """
        Whether a pod was replaced since its worker had not started for too long.

        That worker has ended by itself, or an outage has kept it. Its token had expired by then, which is
        nobody's failure. As far as anybody knew, that is: a pod that was killed or deleted a moment before
        the outage is replaced for its token if that is looked at first.
        """
        validity = timedelta(seconds=conf.getint("scheduler", "task_queued_timeout"))
        if pod.exited_by_itself and pod.ended_at - pod.token_made_at >= validity:
            return True  # nothing has kept it but its node
        replaced_at = self.now if pod.ended_unseen else pod.asked_at or self.now
        was_kept = pod.was_held or pod.ended_unseen or pod.created_late or pod.was_unreached
        return was_kept and replaced_at - pod.token_made_at >= validity

    def _is_known_to_have_ended(self, pod: WorldPod) -> bool:
        schedulers = [*self.schedulers, *self.paused]
        return any(scheduler.phases.get(pod.uid) in ("Failed", "Succeeded") for scheduler in schedulers)

    def _check_cleared(self, pod: WorldPod) -> None:
        ti = self.known_to(pod)
        for other in self._cleared[ti.map_index] if ti else ():
            assert self.may_be_replaced(other), (
                f"I2: {pod.name} was launched while {other.name}, which was cleared, still runs"
            )

    def refused(self, launch_id: str, body: dict[str, Any], *, is_final: bool) -> None:
        """Note that a create call was refused: one of those for which a task instance may be failed."""
        ti_id = body["metadata"]["annotations"]["airflow-resilience/task-instance-id"]
        life = (ti_id, self.triggers[ti_id])
        if is_final:
            self._refused.add(life)
        else:
            _, began, _ = self._forbidden.get(launch_id, (life, self.now, self.now))
            self._forbidden[launch_id] = (life, began, self.now)

    def deletion_was_asked_for(self, ref: PodRef, scheduler: Scheduler, *, label: str | None = None) -> None:
        pod = self.pod_of(ref)
        if pod and label is None:
            pod.deleted_as = None
        if pod is None or pod.asked_at:
            return
        pod.asked_at = self.now
        pod.deleted_as = label
        pod.could_start = scheduler.phases.get(pod.uid) in (None, "Pending")
        if pod.is_alive and self._runs(pod):
            self.complain(f"I1: the pod {pod.name} of a task that runs was deleted")
        elif pod.is_alive and not pod.lost and self.is_anothers(pod, scheduler):
            self.complain(f"I1: the healthy pod {pod.name} of another scheduler was deleted")

    def deletion_arrived(self, pod: WorldPod) -> None:
        """Look at what a deletion hits that a scheduler has decided on some time ago."""
        is_free = pod.launch_id in self._revoked or pod.is_forgotten or self.may_fail(pod.ti_id)
        if pod.is_alive and not pod.is_deleting and pod.could_start and not is_free and self._runs(pod):
            self.complain(f"I1: {pod.name} was deleted as it was decided before, and runs its task by now")

    def is_anothers(self, pod: WorldPod, scheduler: Scheduler) -> bool:
        """Whether a task instance waits for a pod that another scheduler has, by its row and by its label."""
        for ti in self.tis:
            if str(ti.id) == pod.ti_id and ti.state == "queued" and ti.queued_by_job_id != scheduler.job_id:
                return pod.labels["airflow-worker"] == str(ti.queued_by_job_id)
        return False

    def _runs(self, pod: WorldPod) -> bool:
        # As it is now: the executor may have changed it in the turn that it is in.
        running = select(TaskInstance.hostname).where(TaskInstance.state == "running")
        return pod.name in self.session.scalars(running).all()

    # ------------------------------------------------------------------ promises

    def life(self, ti: Any) -> Life:
        return str(ti.id), self.triggers[str(ti.id)]

    def complain(self, complaint: str) -> None:
        """Note a broken promise where the executor would catch the exception."""
        self._complaints.append(complaint)

    def check(self) -> None:
        assert not self._complaints, self._complaints[0]

    def may_be_replaced(self, pod: WorldPod) -> bool:
        """Whether a pod has gone, or its time to go is over that began when its deletion was accepted."""
        if not pod.is_alive:
            return True
        over = pod.accepted_at is not None and self.now >= pod.accepted_at + GRACE
        given_up = pod.asked_at is not None and self.now >= pod.asked_at + LONGEST_WAIT
        return over or given_up

    def is_stopped(self, pod: WorldPod) -> bool:
        """Whether a pod cannot start any more, or its deletion was not accepted in all the time for that."""
        return pod.accepted_at is not None or self.may_be_replaced(pod)

    def may_fail(self, ti_id: str) -> bool:
        """Whether a task instance may be failed for what nobody has expected."""
        return ti_id in self._harmed

    def _check_failed_launch(self, life: Life, info: Any) -> None:
        if life in self._refused:
            return
        never_created = {
            launch_id
            for launch_id, (whose, began, last) in self._forbidden.items()
            if whose == life and last - began >= PATIENCE
        }
        pods = [pod for pod in self.pods_of(life) if pod.launch_id not in never_created]
        healthy = [pod.name for pod in pods if pod.is_healthy and not pod.is_forgotten]
        assert not healthy, f"I1: failed although {healthy[0]} is healthy: {info}"
        lost = sum(pod.lost and not self.is_free(pod) for pod in pods) + len(never_created)
        excuses = [pod.exited_by_itself or pod.is_forgotten or self.is_own_exit(pod) for pod in pods]
        assert lost > self.limit or any(excuses), (
            f"I3: failed after {lost} lost launches of {self.limit} allowed: {info}"
        )


def read_task_instances(session: Any) -> list[Any]:
    """Read all task instances, in their order."""
    return list(session.scalars(select(TaskInstance).order_by(TaskInstance.map_index)))
