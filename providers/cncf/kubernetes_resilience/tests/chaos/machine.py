# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
The executor's promises (I1 to I7, I9, I10) under random interleavings of all that happens.

They are listed in docs/architecture.md.

A failure prints the steps that lead to it and the seed that plays it again. Most steps about a pod come with
a choice whether all that is under way then gets through, else a history of any length would be too unlikely.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, ClassVar

import time_machine
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from .cluster import TERMINATED, WorldPod
from .poison import STEPS
from .scheduler import Scheduler
from .world import World

DEATHS = [*TERMINATED, "removed"]
ENDED = ("success", "failed")
LONGEST_MEMORY = 1000
"""Seconds: nothing is remembered for longer of what has ended."""

TIDYING_ROUNDS = 4
"""Until pods are collected that nobody has any more, and nothing waits for that."""

SETTLING_ROUNDS = 60
MOST_SCHEDULERS = 3
"""Each more makes a history longer, and adds nothing to what two failovers can bring about."""

# What hypothesis draws most often by itself is the first of the choices, hence the order.
gets_through = st.sampled_from([True, True, False])


def pick(data: st.DataObject, candidates: list[Any]) -> Any:
    return data.draw(st.sampled_from(candidates))


def possible(candidates: Callable[[Chaos], list[Any]]) -> Callable[[Any], Any]:
    """Make a rule of which there is something to choose from; without, a step would do nothing."""
    return precondition(lambda self: bool(candidates(self)))


class Chaos(RuleBasedStateMachine):
    """What can happen, chosen at random; :meth:`teardown` then lets the world come to rest."""

    make_world: ClassVar[Any]

    def __init__(self) -> None:
        super().__init__()
        self.travel = time_machine.travel(datetime(2026, 1, 1, tzinfo=UTC), tick=False)
        self.world: World = type(self).make_world(self.travel.start())

    # ------------------------------------------------------------------ choosing

    def scheduler(self, data: st.DataObject) -> Scheduler:
        return pick(data, self.world.schedulers)

    def pods(self, *phases: str, deleting: bool = False) -> list[WorldPod]:
        return [
            pod
            for pod in self.world.pods
            if pod.exists and pod.phase in phases and pod.is_deleting is deleting
        ]

    def living(self) -> list[WorldPod]:
        return [pod for pod in self.world.pods if pod.is_alive]

    def starting(self) -> list[WorldPod]:
        """Pods whose worker has not reported and still may."""
        return [pod for pod in self.living() if pod.phase == "Running" and not pod.has_reported]

    def leaving(self) -> list[WorldPod]:
        return self.pods("Pending", "Running", deleting=True)

    def tis(self, *states: str) -> list[Any]:
        return [ti for ti in self.world.tis if ti.state in states]

    def running(self) -> list[Any]:
        """Task instances that run in a pod which is alive."""
        pods = {pod.name for pod in self.living()}
        return [ti for ti in self.tis("running") if ti.hostname in pods]

    def queued(self) -> list[Any]:
        """Task instances that are queued by a scheduler which works."""
        working = {scheduler.job_id for scheduler in self.world.schedulers}
        return [ti for ti in self.tis("queued") if ti.queued_by_job_id in working]

    def may_add_scheduler(self) -> bool:
        return len(self.world.schedulers) + len(self.world.paused) < MOST_SCHEDULERS

    def busy(self) -> list[Scheduler]:
        return [scheduler for scheduler in self.world.schedulers if scheduler.runtime.commands]

    def informed(self) -> list[Scheduler]:
        up = not self.world.is_down
        return [scheduler for scheduler in self.world.schedulers if scheduler.stream and up]

    def past(self) -> list[tuple[Scheduler, Any]]:
        """Observations of pods that have ended: they stay true, and may be told again."""
        return [
            (scheduler, observation)
            for scheduler in self.world.schedulers
            for observation in scheduler.told
            if observation.facts.is_terminal
        ]

    # ------------------------------------------------------------------ how it mostly goes

    def flush(self, when: bool = True, *, outcome: str = "ok") -> None:
        """Deliver and carry out all there is, create calls with that outcome, and let the loops turn."""
        for scheduler in self.world.schedulers if when else ():
            self.decide(scheduler)
            scheduler.runtime.carry_out_all(outcome)
            self.world.turn(scheduler)

    def decide(self, scheduler: Scheduler) -> None:
        """Let a scheduler learn all there is to learn; what it asks for then is not carried out yet."""
        while scheduler in self.informed():
            scheduler.deliver()
        self.world.turn(scheduler)

    def enqueue_all(self) -> None:
        for ti in self.tis("scheduled"):
            self.world.enqueue(self.world.schedulers[0], ti)

    def launch_all(self) -> None:
        self.enqueue_all()
        self.flush()

    @initialize(starts=st.booleans())
    def begin(self, starts: bool) -> None:
        """Begin with launches that have succeeded: it takes many lucky steps to get there by chance."""
        self.launch_all()
        for pod in self.pods("Pending") if starts else ():
            self.world.run(pod)

    @rule()
    def everything_gets_through(self) -> None:
        self.flush()

    @possible(lambda self: self.tis("scheduled"))
    @rule()
    def all_are_launched(self) -> None:
        self.launch_all()

    @possible(lambda self: [*self.pods("Pending"), *self.starting()])
    @rule(data=st.data(), sidecar_waits=st.sampled_from([False, False, True]), through=gets_through)
    def worker_starts(self, data: st.DataObject, sidecar_waits: bool, through: bool) -> None:
        """Let a container start and its worker report."""
        pod = pick(data, [*self.starting(), *self.pods("Pending")])
        self.world.run(pod, sidecar_waits=sidecar_waits)
        self.world.report_start(pod)
        self.flush(through)

    @possible(lambda self: self.leaving())
    @rule(then_start=st.booleans())
    def deletions_are_carried_out(self, then_start: bool) -> None:
        for pod in self.leaving():
            self.world.finish_deletion(pod)
        self.flush()
        for pod in self.pods("Pending") if then_start else ():
            self.world.run(pod)

    @possible(lambda self: self.living())
    @rule(data=st.data(), outcome=st.sampled_from(["refused", "unanswered", "lost"]))
    def replacement_cannot_be_created(self, data: st.DataObject, outcome: str) -> None:
        self.world.kill(pick(data, self.living()), "drain")
        self.flush(outcome=outcome)

    @possible(lambda self: self.starting())
    @rule(data=st.data(), winner=st.sampled_from(["old", "new", "none"]), crashes=st.booleans())
    def node_is_partitioned(self, data: st.DataObject, winner: str, crashes: bool) -> None:
        """Let a pod outlive its deletion, and its worker and that of its replacement race for the task."""
        old = pick(data, self.starting())
        self.world.delete(old)
        for _ in range(2):
            self.flush()
            self.world.pass_time(40)
        self.flush()
        if winner == "old":
            self.world.report_start(old)
        for pod in self.pods("Pending") if winner != "none" else ():
            self.world.run(pod)
            self.world.report_start(pod)
        if crashes:
            self.world.crash(self.scheduler(data))
        self.flush()

    @possible(lambda self: self.pods("Pending"))
    @rule(data=st.data(), seconds=st.sampled_from([40, 120]), later=st.booleans())
    def deletions_are_refused_for_a_while(self, data: st.DataObject, seconds: int, later: bool) -> None:
        self.world.refuses_deletions = True
        self.world.stall(pick(data, self.pods("Pending")))
        self.flush()
        self.world.pass_time(seconds)
        self.flush()
        self.world.refuses_deletions = later
        self.flush()

    @precondition(lambda self: self.world.refuses_deletions)
    @rule()
    def deletions_are_accepted_again(self) -> None:
        self.world.refuses_deletions = False
        self.flush()

    # ------------------------------------------------------------------ the schedulers

    @rule(data=st.data())
    def loop(self, data: st.DataObject) -> None:
        self.world.turn(self.scheduler(data))

    @possible(lambda self: self.tis("scheduled"))
    @rule(data=st.data())
    def enqueue(self, data: st.DataObject) -> None:
        ti = pick(data, self.tis("scheduled"))
        self.world.enqueue(self.scheduler(data), ti)

    @precondition(lambda self: len(self.world.schedulers) + len(self.world.paused) < 2)
    @rule()
    def second_scheduler(self) -> None:
        self.world.add_scheduler()

    @rule(data=st.data(), through=gets_through, away=st.sampled_from([False, False, True]))
    def crash(self, data: st.DataObject, through: bool, away: bool) -> None:
        self.world.is_away = away
        self.world.crash(self.scheduler(data))
        self.flush(through)

    @precondition(lambda self: self.world.is_away)
    @rule()
    def pods_can_be_listed_again(self) -> None:
        self.world.is_away = False
        self.world.pass_time(20)
        self.flush()
        self.flush()

    @possible(lambda self: self.queued())
    @rule(data=st.data(), through=gets_through)
    def stuck_in_queued(self, data: st.DataObject, through: bool) -> None:
        self.world.revoke(pick(data, self.queued()))
        self.launch_all() if through else None

    @rule(seconds=st.sampled_from([40, 10, 1]), through=gets_through)
    def time_passes(self, seconds: int, through: bool) -> None:
        self.world.pass_time(seconds)
        self.flush(through)

    # ------------------------------------------------------------------ schedulers that are taken for dead

    @precondition(lambda self: self.may_add_scheduler())
    @rule(
        data=st.data(),
        relabels=st.sampled_from([1, 0, None]),
        heir_dies=st.sampled_from([True, True, False]),
        first_comes_back=st.booleans(),
        through=gets_through,
    )
    def adoption_is_rolled_back(
        self,
        data: st.DataObject,
        relabels: int | None,
        heir_dies: bool,
        first_comes_back: bool,
        through: bool,
    ) -> None:
        """Let an adoption's transaction fail; its rows go to a third scheduler, or stay the first's."""
        world, first = self.world, self.scheduler(data)
        heir = world.pause(first)
        world.pass_time(40)
        world.adopt_orphans(heir, commits=False, relabels=relabels)
        if first_comes_back:
            world.resume(first)
        if heir_dies:
            world.kill_scheduler(heir)
        if not first_comes_back:
            world.paused.remove(first)
            world.watchers.remove(first.notice)
            world.adopt_orphans(world.other_than(heir))
        self.flush(through)

    @precondition(lambda self: self.may_add_scheduler())
    @rule(
        data=st.data(),
        before=st.sampled_from(["killed", "stalled", "crash", "queued", "unanswered", "nothing"]),
        adopted=st.sampled_from([True, True, False]),
        through=gets_through,
    )
    def scheduler_is_paused(self, data: st.DataObject, before: str, adopted: bool, through: bool) -> None:
        """Have a scheduler stand still with something to do, and another adopt its task instances."""
        scheduler = self.scheduler(data)
        self.have_something_done(data, scheduler, before)
        heir = self.world.pause(scheduler)
        if adopted:
            self.world.pass_time(40)
            self.world.adopt_orphans(heir)
        self.flush(through)

    def have_something_done(self, data: st.DataObject, scheduler: Scheduler, what: str) -> None:
        """Bring it about that a scheduler has asked for something that is not carried out yet."""
        world = self.world
        others = [item for item in world.schedulers if item is not scheduler]
        if what == "killed" and self.living():
            world.kill(pick(data, self.living()), "drain")
        elif what == "stalled" and self.pods("Pending"):
            world.stall(pick(data, self.pods("Pending")))
        elif what in ("queued", "unanswered"):
            for ti in self.tis("scheduled"):
                world.enqueue(scheduler, ti)
        elif what == "crash" and others:
            world.kill_scheduler(others[0])
            world.pass_time(40)
            world.adopt_orphans(scheduler)
            return
        self.decide(scheduler)
        if what == "unanswered":
            scheduler.runtime.carry_out_all("unanswered")

    @possible(lambda self: self.world.paused)
    @rule(
        data=st.data(),
        in_haste=st.booleans(),
        heir_dies=st.sampled_from([False, False, True]),
        through=gets_through,
    )
    def paused_scheduler_comes_back(
        self, data: st.DataObject, in_haste: bool, heir_dies: bool, through: bool
    ) -> None:
        """Let it go on with what it had asked for, perhaps before its loop turns."""
        scheduler = pick(data, self.world.paused)
        self.world.resume(scheduler)
        if in_haste:
            scheduler.runtime.carry_out_all()
        if heir_dies:
            self.world.crash(self.world.other_than(scheduler))
        self.flush(through)

    @possible(lambda self: self.world.orphans())
    @rule(data=st.data(), through=gets_through)
    def orphans_are_looked_for(self, data: st.DataObject, through: bool) -> None:
        self.world.adopt_orphans(self.scheduler(data))
        self.flush(through)

    # ------------------------------------------------------------------ an API that does not do as it is told

    @possible(lambda self: self.pods("Pending"))
    @rule(data=st.data(), reports=st.sampled_from([True, True, False]), through=gets_through)
    def deletion_comes_late(self, data: st.DataObject, reports: bool, through: bool) -> None:
        """Have a pod that cannot start given up, and start before its deletion is carried out."""
        pod = pick(data, self.pods("Pending"))
        self.world.stall(pod)
        for scheduler in self.world.schedulers:
            self.decide(scheduler)
        self.world.run(pod)
        if reports:
            self.world.report_start(pod)
        self.flush(through)

    @possible(lambda self: [*self.living(), *self.tis("scheduled")])
    @rule(
        data=st.data(),
        outcome=st.sampled_from(["unauthorized", "forbidden"]),
        rounds=st.sampled_from([1, 2, 18]),
    )
    def creation_is_not_permitted(self, data: st.DataObject, outcome: str, rounds: int) -> None:
        """Let create calls be answered with 401 or 403: for a while, or for longer than is waited for."""
        if self.tis("scheduled"):
            self.enqueue_all()
        else:
            self.world.kill(pick(data, self.living()), "drain")
        for _ in range(rounds):
            self.flush(outcome=outcome)
            self.world.pass_time(70)
        self.flush(outcome=outcome)
        self.flush()

    @precondition(lambda self: not self.world.is_down)
    @rule(
        data=st.data(),
        before=st.sampled_from(["killed", "queued", "crash", "nothing"]),
        rounds=st.sampled_from([7, 1]),
    )
    def api_is_away(self, data: st.DataObject, before: str, rounds: int) -> None:
        """Let the API server be away, for a few minutes or for more than three queued timeouts."""
        if before == "killed" and self.living():
            self.world.kill(pick(data, self.living()), "drain")
            for scheduler in self.world.schedulers:
                self.decide(scheduler)
        self.world.begin_outage()
        if before == "crash":
            self.world.crash(self.scheduler(data))
        for _ in range(rounds):
            if before == "queued":
                self.enqueue_all()
            self.flush()
            self.world.pass_time(300)
            self.flush()
            self.world.handle_stuck_in_queued()
        self.world.end_outage()
        self.flush()

    # ------------------------------------------------------------------ what nobody has expected

    @precondition(lambda self: self.world.poisoned is None)
    @rule(
        data=st.data(),
        step=st.sampled_from(list(STEPS)),
        then=st.sampled_from(["killed", "crash", "nothing"]),
        through=gets_through,
    )
    def one_is_poisoned(self, data: st.DataObject, step: str, then: str, through: bool) -> None:
        """Have a step of the executor's raise an exception for one task instance, until all come to rest."""
        self.world.poison(pick(data, self.world.tis), step)
        if then == "killed":
            for pod in self.living():
                self.world.kill(pod, "drain")
        elif then == "crash":
            self.world.crash(self.scheduler(data))
        self.flush(through)

    # ------------------------------------------------------------------ people and triggers

    @possible(lambda self: self.tis(*ENDED))
    @rule(data=st.data())
    def clear_what_has_ended(self, data: st.DataObject) -> None:
        self.world.next_try(pick(data, self.tis(*ENDED)))
        self.launch_all()

    @possible(lambda self: self.tis("queued"))
    @rule(data=st.data(), state=st.sampled_from(["cleared", *ENDED]))
    def somebody_interferes(self, data: st.DataObject, state: str) -> None:
        ti = pick(data, self.tis("queued"))
        if state == "cleared":
            self.world.next_try(ti)
        else:
            self.world.mark(ti, state)

    @possible(lambda self: self.running())
    @rule(data=st.data(), dies=st.sampled_from([True, False]), through=gets_through)
    def running_task_is_cleared(self, data: st.DataObject, dies: bool, through: bool) -> None:
        """Clear what runs, perhaps let a scheduler die before the worker has noticed."""
        self.world.clear_running(pick(data, self.running()))
        if dies:
            self.world.crash(self.scheduler(data))
        self.flush(through)

    @possible(lambda self: self.world.cleared_workers())
    @rule(data=st.data(), succeeds=st.sampled_from([True, True, False]), through=gets_through)
    def cleared_worker_notices(self, data: st.DataObject, succeeds: bool, through: bool) -> None:
        self.world.notice_clearing(pick(data, self.world.cleared_workers()), succeeds=succeeds)
        self.flush(through)

    @possible(lambda self: self.tis("deferred"))
    @rule(data=st.data())
    def trigger_fires(self, data: st.DataObject) -> None:
        self.world.fire_trigger(pick(data, self.tis("deferred")))

    # ------------------------------------------------------------------ the Kubernetes thread

    @rule(data=st.data(), through=gets_through)
    def thread_crashes(self, data: st.DataObject, through: bool) -> None:
        self.scheduler(data).runtime.crash()
        self.flush(through)

    @possible(lambda self: self.busy())
    @rule(data=st.data(), outcome=st.sampled_from(["ok", "ok", "ok", "unanswered", "lost", "refused"]))
    def carry_out(self, data: st.DataObject, outcome: str) -> None:
        runtime = pick(data, self.busy()).runtime
        runtime.carry_out(pick(data, list(range(len(runtime.commands)))), outcome)

    @possible(lambda self: self.informed())
    @rule(data=st.data())
    def deliver(self, data: st.DataObject) -> None:
        pick(data, self.informed()).deliver()

    @possible(lambda self: self.past())
    @rule(through=gets_through)
    def the_past_is_told_again(self, through: bool) -> None:
        for scheduler, observation in self.past():
            scheduler.tell(observation)
        self.flush(through)

    @rule(data=st.data())
    def relist(self, data: st.DataObject) -> None:
        self.scheduler(data).relist()

    # ------------------------------------------------------------------ pods

    @possible(lambda self: self.pods("Pending"))
    @rule(data=st.data(), sidecar_waits=st.booleans())
    def container_starts(self, data: st.DataObject, sidecar_waits: bool) -> None:
        self.world.run(pick(data, self.pods("Pending")), sidecar_waits=sidecar_waits)

    @possible(lambda self: self.starting())
    @rule(data=st.data())
    def worker_reports_start(self, data: st.DataObject) -> None:
        self.world.report_start(pick(data, self.starting()))

    @possible(lambda self: self.running())
    @rule(data=st.data(), state=st.sampled_from(["deferred", "success", "failed"]), through=gets_through)
    def worker_reports_end(self, data: st.DataObject, state: str, through: bool) -> None:
        self.world.report_end(pick(data, self.running()), state)
        self.flush(through)

    @possible(lambda self: self.pods("Pending"))
    @rule(data=st.data(), through=gets_through)
    def image_cannot_be_pulled(self, data: st.DataObject, through: bool) -> None:
        self.world.stall(pick(data, self.pods("Pending")))
        self.flush(through)

    @possible(lambda self: self.living())
    @rule(data=st.data(), how=st.sampled_from(DEATHS), through=gets_through)
    def pod_dies(self, data: st.DataObject, how: str, through: bool) -> None:
        pod = pick(data, self.living())
        if how == "removed":
            self.world.remove(pod)
        else:
            self.world.kill(pod, how)
        self.flush(through)

    @possible(lambda self: self.starting())
    @rule(data=st.data())
    def worker_crashes(self, data: st.DataObject) -> None:
        self.world.exit_by_itself(pick(data, self.starting()))

    @possible(lambda self: self.pods("Pending", "Running", "Failed", "Succeeded"))
    @rule(data=st.data(), through=gets_through)
    def somebody_deletes_a_pod(self, data: st.DataObject, through: bool) -> None:
        self.world.delete(pick(data, self.pods("Pending", "Running", "Failed", "Succeeded")))
        self.flush(through)

    # ------------------------------------------------------------------ rest

    def teardown(self) -> None:
        try:
            if sys.exc_info()[0] is None:  # else what follows from a broken promise would hide it
                self.come_to_rest()
        finally:
            self.world.cure()
            self.travel.stop()

    def come_to_rest(self) -> None:
        """I5: with no more faults, every task instance comes to its end, and nothing of it is held."""
        world = self.world
        world.refuses_deletions = world.is_away = False
        for scheduler in list(world.paused):
            world.resume(scheduler)
        if world.poisoned is not None:  # I10: every other one does so with it
            self.settle("I10", but=world.poisoned.map_index)
            world.cure()
        self.settle("I5")
        self.tidy_up()  # only then every executor has seen the ends
        world.pass_time(LONGEST_MEMORY)
        self.tidy_up()
        held = {scheduler.job_id: scheduler.holds() for scheduler in world.schedulers}
        assert not any(held.values()), f"I5: held at rest: {held}"

    def tidy_up(self) -> None:
        for _ in range(TIDYING_ROUNDS):
            self.calm_round(late=True)

    def settle(self, promise: str, *, but: int | None = None) -> None:
        """
        Let all task instances come to their end.

        :param but: the map index of one that need not
        """
        for number in range(SETTLING_ROUNDS):
            if not self.unsettled(but):
                return
            self.calm_round(late=number > SETTLING_ROUNDS / 2)
        if stuck := self.unsettled(but):
            raise AssertionError(f"{promise}: lost task instances: {stuck}")

    def unsettled(self, but: int | None) -> list[tuple[int, str]]:
        """Return map indexes and states of the task instances that have not come to their end."""
        tis = [ti for ti in self.world.tis if ti.state not in ENDED]
        return [(ti.map_index, ti.state) for ti in tis if ti.map_index != but]

    def calm_round(self, *, late: bool) -> None:
        """
        Let everything get through, and every worker come to its end.

        :param late: whether Airflow sees to those that the executor has lost, and may lose
        """
        world = self.world
        for ti in self.tis("deferred"):
            world.fire_trigger(ti)
        for scheduler in world.schedulers:
            scheduler.relist()
        if world.orphans():
            world.adopt_orphans(world.schedulers[0])
        self.launch_all()
        self.let_kubelets_work()
        self.let_workers_end(late=late)
        if late:
            world.give_up_lost()
        world.pass_time(10)

    def let_kubelets_work(self) -> None:
        for pod in self.leaving():
            self.world.finish_deletion(pod)
        for pod in self.pods("Pending"):
            self.world.run(pod)

    def let_workers_end(self, *, late: bool) -> None:
        for pod in self.starting():
            self.world.report_start(pod)
        for pod in self.world.cleared_workers():
            self.world.notice_clearing(pod, succeeds=True)
        alive = self.running()
        for ti in self.tis("running"):
            if ti in alive:
                self.world.report_end(ti, "success")
            elif late:  # a superseded pod had won the start, and nobody follows that one
                self.world.mark(ti, "failed")
        wanted = {ti.hostname for ti in self.tis("running")}
        for pod in self.living():
            if pod.has_reported and pod.name not in wanted and not pod.is_cut_off:
                self.world.exit_by_itself(pod)  # its heartbeat is answered that its task does not run
