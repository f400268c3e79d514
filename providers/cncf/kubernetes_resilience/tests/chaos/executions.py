# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
What befalls tasks that run, in a world with an infrastructure budget.

A worker is more than its pod here: one whose node is cut off goes on after its pod's object is gone, and
reports to the execution API for the UUID that it knows.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from airflow.callbacks.callback_requests import TaskCallbackRequest

from .cluster import WorldPod
from .scheduler import Killed, Scheduler
from .tries import Tries

HEARTBEAT_TIMEOUT = 300
"""Seconds after which Airflow gives up a worker that it does not hear of."""

UNREADY = {"type": "Ready", "status": "False"}


class ExecutionWorld(Tries):
    """A world in which what the infrastructure takes from a running task runs again in the same try."""

    def __init__(self, *args: Any, budget: int, **options: Any) -> None:
        self.budget = budget
        self._undecided: set[str] = set()
        """UIDs of pods whose late start was carried out before a scheduler had counted their end."""
        self.kills_at_callback = False
        """Whether the next scheduler that has called back is killed before it commits that."""
        super().__init__(*args, **options)

    # ------------------------------------------------------------------ workers and their nodes

    def cut_off(self, pod: WorldPod, *, dies: bool) -> None:
        """Cut the node of a running worker off from Kubernetes; the worker dies with it, or goes on."""
        self._lose(pod)
        pod.is_cut_off, pod.goes_on = True, not dies
        pod.manifest["status"]["conditions"] = [UNREADY]
        self.changed(pod)

    def evict_from_cut_off_nodes(self) -> None:
        """Do what the control plane does about pods whose node has been unreachable for five minutes."""
        for pod in self.pods:
            if pod.is_cut_off and pod.is_alive:
                self.delete(pod)

    def finish_deletion(self, pod: WorldPod) -> None:
        """Carry out a deletion; if the pod's node is cut off, remove its object by force."""
        if pod.is_cut_off:
            self.remove(pod)
        else:
            super().finish_deletion(pod)

    def kill(self, pod: WorldPod, how: str) -> None:
        """End a pod from outside. A container that has run cannot fail to start."""
        super().kill(pod, "unknown" if how == "start-error" and pod.has_reported else how)

    def take(self, pod: WorldPod, how: str, *, goes_on: bool) -> None:
        """End the pod of a running worker, as the API server has it; the worker dies with it, or goes on."""
        pod.goes_on = goes_on
        if how == "removed":
            self.remove(pod)
        else:
            self.kill(pod, how)

    def end_unreported(self, pod: WorldPod) -> None:
        """Have the process of a task be killed alone: its supervisor ends in good order."""
        pod.exited_by_itself = True
        self.succeed(pod)

    def severed(self) -> list[WorldPod]:
        """Return the pods whose worker goes on, whatever the API server has of them."""
        return [pod for pod in self.pods if pod.goes_on]

    def runs_in(self, ti: Any, pod: WorldPod) -> bool:
        """Whether a task instance's run is that of a worker."""
        return bool(ti.state == "running" and ti.hostname == pod.name and str(ti.id) == pod.ti_id)

    def report_end(self, ti: Any, state: str) -> None:
        pod = self.pod_named(ti.hostname)
        assert pod is not None
        self.report(pod, state)

    def report(self, pod: WorldPod, state: str) -> bool:
        """Let a worker report its end, and end; return whether the execution API has accepted that."""
        ti = self.known_to(pod)
        is_accepted = ti is not None and ti.state == "running"
        if is_accepted:
            assert ti.hostname == pod.name, (
                f"I8: the worker of {pod.name}, which was replaced, has ended the run of {ti.hostname}"
            )
            if state != "failed":
                self.mark(ti, state)
            elif pod.was_taken_in_good_order:
                # Nobody can tell such a failure from the task's own.
                self.report_failure(pod)
            else:
                self.fail(ti)
        pod.goes_on = False
        if pod.exists and pod.phase == "Running" and not pod.is_cut_off:
            self.succeed(pod)
        return is_accepted

    def report_in_time(self, pod: WorldPod, state: str) -> None:
        """Let a report arrive that was under way when its worker's pod ended."""
        is_accepted = self.report(pod, state)
        assert is_accepted or self.may_fail(pod.ti_id), (
            f"I8: the report of {pod.name} was under way, and was refused"
        )

    def silent(self) -> list[Any]:
        """Return the task instances that run, as far as Airflow knows, and may not be heard of."""
        running = [ti for ti in self.tis if ti.state == "running"]
        return [ti for ti in running if not self._is_heard(self.pod_named(ti.hostname))]

    def _is_heard(self, pod: WorldPod | None) -> bool:
        return pod is not None and pod.is_alive and not pod.is_cut_off

    def time_out(self, ti: Any) -> None:
        """Do what Airflow's scheduler does about a task instance of its own that it does not hear of."""
        for scheduler in self.schedulers:
            if scheduler.job_id == ti.queued_by_job_id:
                self._guess(scheduler, ti)
        self.check()

    def _guess(self, scheduler: Scheduler, ti: Any) -> None:
        request = TaskCallbackRequest.model_construct(ti=ti, filepath="", msg="no heartbeat")
        scheduler.executor.send_callback(request)
        scheduler.executor.change_state(ti.key, "failed", remove_running=True)

    @contextmanager
    def guessing(self, scheduler: Scheduler) -> Iterator[None]:
        """
        Have Airflow guess that a scheduler's workers are gone while another one adopts them.

        That one has labelled the pods, and has not committed yet. The scheduler learns of the labels.
        """

        def meanwhile(heir: Scheduler, orphans: list[Any]) -> list[Any]:
            reset = offer(heir, orphans)
            self.label_early(heir, orphans)
            for ti in orphans:
                if ti.state == "running" and ti.queued_by_job_id == scheduler.job_id:
                    self._guess(scheduler, ti)
            while scheduler.stream and not self.is_down:
                scheduler.deliver()
            scheduler.executor.heartbeat()
            return reset

        offer, self._offer = self._offer, meanwhile  # type: ignore[method-assign]
        try:
            yield
        finally:
            self._offer = offer  # type: ignore[method-assign]

    def call_back(self, scheduler: Scheduler, ti: Any) -> None:
        super().call_back(scheduler, ti)
        if self.kills_at_callback:
            self.kills_at_callback = False
            raise Killed

    def send(self, request: Any) -> None:
        """Take the callbacks of a failure. They are run at once, whatever becomes of it."""
        super().send(request)
        if self.is_owed(request.ti):
            self.complain("I3: the callbacks were run of a failure within the budget")

    # ------------------------------------------------------------------ a scheduler that dies in the middle

    def turn(self, scheduler: Scheduler) -> None:
        if scheduler not in self.schedulers:
            return  # it has died since
        try:
            super().turn(scheduler)
        except Killed:
            scheduler.runtime.commands.clear()
            self.read_again()
            self.crash(scheduler)

    # ------------------------------------------------------------------ starts that Airflow learns of late

    def late(self) -> list[WorldPod]:
        """Return the pods whose worker has ended, and whose request to run its task is still under way."""
        return [pod for pod in self.pods if pod.was_unreached and not pod.has_reported]

    def start_late(self, pod: WorldPod) -> None:
        """Carry the request of a worker out that asked whether it may run its task, and has ended since."""
        ti = self.known_to(pod)
        pod.has_reported = True
        if ti is None or ti.state != "queued":
            return
        if not self.has_counted_end(pod):
            self._undecided.add(pod.uid)
        self.start(ti, pod)

    # ------------------------------------------------------------------ promises

    def is_owed(self, ti: Any) -> bool:
        """Whether a task instance has lost its worker to the infrastructure, within its budget."""
        pod = self.pod_named(ti.hostname)
        if pod is None or not self.runs_in(ti, pod) or self.may_fail(str(ti.id)):
            return False
        # Nobody can tell whether a worker had begun that has ended by itself when its task was running.
        is_lost = pod.uid not in self._undecided if pod.was_unreached else pod.lost
        return is_lost and not pod.exited_by_itself and self.retries_of(self.attempt(pod)) < self.budget

    def launch(self, body: dict[str, Any]) -> WorldPod:
        pod = super().launch(body)
        attempt = self.attempt(pod)
        used = max(self.retries_of(attempt), self.starts_replaced(pod))
        assert used <= self.budget, f"I4: {used} infrastructure retries with a budget of {self.budget}"
        if pod.is_forgotten:
            return pod  # as its creation was asked for before its task ran again, it cannot start it any more
        for other in self.pods:
            # Of a pod that was poisoned perhaps nobody knows, as in the world without a budget.
            is_known = not (other.is_forgotten or self.may_fail(other.ti_id))
            # Nobody can wait for a worker whose pod is gone: its reports are refused.
            if self.attempt(other) == attempt and other.ti_id != pod.ti_id and is_known:
                assert self.may_be_replaced(other), (
                    f"I2: {pod.name} was launched while {other.name} could still run"
                )
        return pod

    def check_reset(self, ti: Any) -> None:
        super().check_reset(ti)
        assert not self.is_owed(ti), "I3: a loss within the budget was reset"

    def check_failure(self, ti: Any, info: Any) -> None:
        assert not self.is_owed(ti), f"I3: a loss within the budget has failed: {info}"
        pod = self.pod_named(ti.hostname)
        if ti.state == "running" and pod is not None and pod.is_cut_off:
            assert info, "I5: a failure without a reason"
        else:
            super().check_failure(ti, info)
