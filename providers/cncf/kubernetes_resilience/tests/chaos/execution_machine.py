# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
The executor's promises about running tasks (I8, with I3 and I4 for the second budget) under random
interleavings of all that can happen, beside everything that befalls launches.
"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from .cluster import WorldPod
from .executions import HEARTBEAT_TIMEOUT, ExecutionWorld
from .machine import ENDED, Chaos, gets_through, pick, possible
from .poison import Poison
from .scheduler import Killed

LOSSES = ["drain", "removed", "evicted", "unknown"]
ways = st.sampled_from(LOSSES)
reports = st.sampled_from(["success", "failed", "deferred"])


class ExecutionChaos(Chaos):
    """What can happen to tasks that run, beside what can happen to launches."""

    world: ExecutionWorld

    @initialize(starts=st.sampled_from([True, True, False]), retries=st.sampled_from([0, 1]))
    def begin(self, starts: bool, retries: int = 0) -> None:
        """Begin with workers that run."""
        for ti in self.world.tis:
            self.world.give_retries(ti, retries)
        self.launch_all()
        if starts:
            self.start_all()

    def start_all(self) -> None:
        """Have the workers of all pods report that they run."""
        for pod in self.pods("Pending"):
            self.world.run(pod)
        for pod in self.starting():
            self.world.report_start(pod)
        self.flush()

    def enqueue_all(self) -> None:
        self.world.schedule_next_tries()
        super().enqueue_all()

    def wait_for_replacements(self) -> None:
        """Let the time pass after which replacements are launched, and start."""
        for seconds in (5, 40):
            self.world.pass_time(seconds)
            self.flush()
        # What a dead scheduler had decided about is queued again, and waits for when it is due.
        self.launch_all()
        self.world.pass_time(40)
        self.flush()
        self.start_all()

    def healthy(self) -> list[Any]:
        """Task instances whose worker runs in a healthy pod."""
        pods = {pod.name for pod in self.living() if pod.is_healthy}
        return [ti for ti in self.running() if ti.hostname in pods]

    def visibly_ready(self) -> list[Any]:
        """Those whose pod shows that its node is silent: it does not if it waits for a sidecar."""
        return [ti for ti in self.healthy() if self.pod_of(ti).manifest["status"]["phase"] == "Running"]

    def pod_of(self, ti: Any) -> WorldPod:
        pod = self.world.pod_named(ti.hostname)
        assert pod is not None
        return pod

    # ------------------------------------------------------------------ losses

    @possible(lambda self: self.healthy())
    @rule(data=st.data(), how=ways, goes_on=st.booleans(), again=st.booleans(), through=gets_through)
    def worker_is_lost(
        self, data: st.DataObject, how: str, goes_on: bool, again: bool, through: bool
    ) -> None:
        self.world.take(self.pod_of(pick(data, self.healthy())), how, goes_on=goes_on)
        self.flush(through)
        if again:
            self.wait_for_replacements()

    @possible(lambda self: self.visibly_ready())
    @rule(data=st.data(), dies=st.booleans(), again=st.booleans(), through=gets_through)
    def node_is_cut_off(self, data: st.DataObject, dies: bool, again: bool, through: bool) -> None:
        """Cut a worker's node off, until Airflow does not hear of the worker any more."""
        self.world.cut_off(self.pod_of(pick(data, self.visibly_ready())), dies=dies)
        self.flush()
        self.world.pass_time(HEARTBEAT_TIMEOUT)
        self.time_out_silent()
        self.flush(through)
        if again:
            self.wait_for_replacements()

    @possible(lambda self: self.world.silent())
    @rule(through=gets_through)
    def heartbeats_time_out(self, through: bool) -> None:
        self.world.pass_time(HEARTBEAT_TIMEOUT)
        self.time_out_silent()
        self.flush(through)

    def time_out_silent(self) -> None:
        for ti in self.world.silent():
            self.world.time_out(ti)

    @possible(lambda self: self.healthy())
    @rule(data=st.data(), through=gets_through)
    def task_process_is_killed_alone(self, data: st.DataObject, through: bool) -> None:
        self.world.end_unreported(self.pod_of(pick(data, self.healthy())))
        self.flush(through)

    @possible(lambda self: self.healthy())
    @rule(data=st.data(), error=st.sampled_from([Killed(), Poison("relaunch")]), how=ways)
    def relaunch_fails_after_the_commit(self, data: st.DataObject, error: BaseException, how: str) -> None:
        """Have a scheduler die, or get an exception, when it was committed that a task runs again."""
        for scheduler in self.world.schedulers:
            scheduler.fail_to_relaunch(error)
        self.world.take(self.pod_of(pick(data, self.healthy())), how, goes_on=False)
        self.flush()
        self.world.pass_time(5)
        self.flush()

    @precondition(lambda self: self.may_add_scheduler())
    @possible(lambda self: self.healthy())
    @rule(data=st.data(), in_haste=st.booleans(), through=gets_through)
    def guess_is_made_during_an_adoption(self, data: st.DataObject, in_haste: bool, through: bool) -> None:
        """Have a scheduler that has stood still take workers for lost which another one adopts."""
        scheduler = self.scheduler(data)
        heir = self.world.pause(scheduler)
        self.world.pass_time(40)
        with self.world.guessing(scheduler):
            self.world.adopt_orphans(heir)
        self.world.resume(scheduler)
        if in_haste:
            scheduler.runtime.carry_out_all()
        self.flush(through)

    @possible(lambda self: self.healthy())
    @rule(data=st.data(), through=gets_through)
    def scheduler_is_killed_as_it_reports(self, data: st.DataObject, through: bool) -> None:
        """Have a scheduler die when a failure was reported and called back, before that is committed."""
        self.world.kills_at_callback = True
        self.world.end_unreported(self.pod_of(pick(data, self.healthy())))
        self.flush()
        self.world.pass_time(5)
        self.flush(through)

    # ------------------------------------------------------------------ reports

    @possible(lambda self: self.healthy())
    @rule(data=st.data(), how=ways, state=reports, crashes=st.booleans(), through=gets_through)
    def report_is_under_way(
        self, data: st.DataObject, how: str, state: str, crashes: bool, through: bool
    ) -> None:
        """Let a report arrive a moment after its worker's pod has ended."""
        ti = pick(data, self.healthy())
        pod = self.pod_of(ti)
        self.world.take(pod, how, goes_on=True)
        self.flush()
        self.world.pass_time(1)
        if crashes:
            self.world.crash(self.scheduler(data))
        self.flush()
        self.world.report_in_time(pod, state)
        self.flush(through)

    @possible(lambda self: self.world.severed())
    @rule(data=st.data(), state=reports, through=gets_through)
    def severed_worker_reports(self, data: st.DataObject, state: str, through: bool) -> None:
        self.world.report(pick(data, self.world.severed()), state)
        self.flush(through)

    # ------------------------------------------------------------------ workers that are told to go

    @possible(lambda self: self.healthy())
    @rule(data=st.data(), through=gets_through)
    def worker_is_told_to_go(self, data: st.DataObject, through: bool) -> None:
        self.world.ask_to_end(self.pod_of(pick(data, self.healthy())))
        self.flush(through)

    @possible(lambda self: [*self.world.told_to_go(), *self.healthy()])
    @rule(
        data=st.data(),
        before=st.sampled_from(["nothing", "nothing", "crash", "next try"]),
        ends=st.sampled_from(["well", "killed", "later"]),
        through=gets_through,
    )
    def worker_reports_its_termination(
        self, data: st.DataObject, before: str, ends: str, through: bool
    ) -> None:
        """Have an operator break that its worker is told to go, which nothing in the worker prevents."""
        world = self.world
        pod = pick(data, [*world.told_to_go(), *(self.pod_of(ti) for ti in self.healthy())])
        if not pod.is_deleting:
            world.ask_to_end(pod)
        world.report_failure(pod)
        if before == "crash":
            world.crash(self.scheduler(data))
        elif before == "next try":
            world.schedule_next_tries(early=True)
            self.launch_all()
        if ends == "well":
            world.end_in_good_order(pod)
        elif ends == "killed":
            world.finish_deletion(pod)
        self.flush(through)

    @possible(lambda self: self.healthy())
    @rule(data=st.data(), drained=st.booleans(), through=gets_through)
    def task_fails_by_itself(self, data: st.DataObject, drained: bool, through: bool) -> None:
        """Let a failure be reported some time before its worker is told to go, which is busy with it."""
        pod = self.pod_of(pick(data, self.healthy()))
        self.world.report_failure(pod)
        self.world.pass_time(5)
        if drained:
            self.world.ask_to_end(pod)
            self.flush()
        self.world.end_in_good_order(pod)
        self.flush(through)

    @possible(lambda self: self.tis("up_for_retry"))
    @rule(data=st.data(), early=st.booleans(), state=st.sampled_from(["scheduled", *ENDED]))
    def next_try_is_scheduled_or_marked(self, data: st.DataObject, early: bool, state: str) -> None:
        if state == "scheduled":
            self.world.schedule_next_tries(early=early)
            self.launch_all()
        else:
            self.world.mark(pick(data, self.tis("up_for_retry")), state)

    # ------------------------------------------------------------------ workers that cannot reach Airflow

    @possible(lambda self: self.starting())
    @rule(data=st.data(), through=gets_through)
    def worker_cannot_reach_airflow(self, data: st.DataObject, through: bool) -> None:
        self.world.give_airflow_up(pick(data, self.starting()))
        self.flush(through)

    @possible(lambda self: self.starting())
    @rule(
        data=st.data(),
        late=st.sampled_from(["replacement waits", "replacement runs", "at once"]),
        crashes=st.sampled_from([False, False, True]),
        through=gets_through,
    )
    def start_is_carried_out_late(self, data: st.DataObject, late: str, crashes: bool, through: bool) -> None:
        """Let Airflow learn of the start of a worker that has given up and ended."""
        world = self.world
        pod = pick(data, self.starting())
        world.give_airflow_up(pod)
        if late != "at once":
            self.flush()
        if late == "replacement runs":
            world.pass_time(40)
            self.flush()
            for other in self.pods("Pending"):
                world.run(other)
        world.start_late(pod)
        if crashes:
            world.crash(self.scheduler(data))
        self.flush(through)

    @possible(lambda self: self.world.late())
    @rule(data=st.data(), through=gets_through)
    def a_late_start_is_carried_out(self, data: st.DataObject, through: bool) -> None:
        self.world.start_late(pick(data, self.world.late()))
        self.flush(through)

    # ------------------------------------------------------------------ people

    @possible(lambda self: self.tis("running"))
    @rule(data=st.data(), state=st.sampled_from(ENDED), through=gets_through)
    def running_task_is_marked(self, data: st.DataObject, state: str, through: bool) -> None:
        self.world.mark(pick(data, self.tis("running")), state)
        self.flush(through)

    # ------------------------------------------------------------------ rest

    def tidy_up(self) -> None:
        """Have the pods go of nodes that stay away; the task instances came to their ends without that."""
        self.world.evict_from_cut_off_nodes()
        super().tidy_up()

    def calm_round(self, *, late: bool) -> None:
        self.time_out_silent()
        super().calm_round(late=late)
