# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
The executor's promises while a registry goes and comes, beside everything that befalls launches.

What is lost to a registry that is known to be away costs no budget (I3, I4), nothing is held for longer than
is configured, and what is cleared while it is held is released within ten seconds (I5).
"""

from __future__ import annotations

from typing import Any

from airflow.models.log import Log
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule
from sqlalchemy import select

from airflow.providers.cncf.kubernetes_resilience.executors.launches.launch import Launch, LaunchState
from airflow_resilience.ledger import LAUNCH_FAILURE_EVENT
from airflow_resilience.ledger_entries import LedgerEntry

from .cluster import WorldPod
from .machine import Chaos, gets_through, pick, possible
from .scheduler import Scheduler
from .world import World

THRESHOLD = 2
"""Task instances that open an outage: as many as there are."""
MAX_WAIT = 600
"""Seconds for which a launch is held at most."""
LOOK = 1
"""Seconds between two looks at what is held."""

AWAY = {"reason": "ErrImagePull", "message": "failed to do request: dial tcp 192.0.2.1:443: i/o timeout"}


class OutageWorld(World):
    """A world with one registry, which may be away."""

    registry_is_away = False

    def __init__(self, *args: Any, **options: Any) -> None:
        self._free: set[str] = set()
        """UIDs of pods whose loss was decided to be free."""
        self._unpulled: set[str] = set()
        """UIDs of pods whose image the registry did not give."""
        super().__init__(*args, **options)

    def run(self, pod: WorldPod, *, sidecar_waits: bool = False) -> None:
        if self.registry_is_away and not pod.has_started:
            self._unpulled.add(pod.uid)
            self._lose(pod)
            pod.enter("Pending", waiting=AWAY)
            self.changed(pod)
        else:
            super().run(pod, sidecar_waits=sidecar_waits)

    def report_start(self, pod: WorldPod) -> None:
        if pod.phase == "Running":
            super().report_start(pod)

    def turn(self, scheduler: Scheduler) -> None:
        super().turn(scheduler)
        extras = self.session.scalars(select(Log.extra).where(Log.event == LAUNCH_FAILURE_EVENT))
        entries = filter(None, map(LedgerEntry.from_json, extras))
        self._free |= {entry.worker_uid for entry in entries if entry.decision.rule == "outage"}
        assert self._free <= self._unpulled, "I4: what was lost otherwise is free"
        for launch in self.held_by(scheduler):
            waited = scheduler.clock() - launch.held_since
            assert waited <= MAX_WAIT + LOOK, f"I5: {launch.key} is held for {waited:.0f} s"

    def held_by(self, *schedulers: Scheduler) -> list[Launch]:
        """Return the launches that these schedulers hold, as of their last turn."""
        return [
            launch for scheduler in schedulers for launch in scheduler.registry.in_state(LaunchState.HELD)
        ]

    def is_free(self, pod: WorldPod) -> bool:
        return pod.uid in self._free

    def borne(self, pods: list[WorldPod]) -> int:
        return super().borne(pods) + sum(map(self.is_free, pods))


class OutageChaos(Chaos):
    """What can happen to launches, while a registry goes and comes."""

    world: OutageWorld

    def held(self) -> list[Any]:
        """Task instances whose launch is held by a scheduler that works."""
        ti_ids = {launch.ti_id for launch in self.world.held_by(*self.world.schedulers)}
        return [ti for ti in self.queued() if str(ti.id) in ti_ids]

    def begin_outage(self) -> None:
        """Have the registry go, and all that is to start fail for it."""
        self.world.registry_is_away = True
        self.launch_all()
        self.try_to_start()

    def try_to_start(self) -> None:
        """Have all pods pull their image, and those go that are given up for it."""
        for pod in self.pods("Pending"):
            self.world.run(pod)
        self.flush()
        for pod in self.leaving():
            self.world.finish_deletion(pod)
        for _ in range(2):
            self.flush()

    @precondition(lambda self: not self.world.registry_is_away)
    @rule(dies=st.sampled_from([False, False, True]), data=st.data())
    def registry_goes_away(self, dies: bool, data: st.DataObject) -> None:
        self.begin_outage()
        if dies:
            self.world.crash(self.scheduler(data))
            self.flush()

    @possible(lambda self: self.held())
    @rule(seconds=st.sampled_from([16, 31, 121, MAX_WAIT]), starts=st.booleans(), through=gets_through)
    def a_probe_is_made(self, seconds: int, starts: bool, through: bool) -> None:
        """Let the time pass after which there is one, and perhaps the pod try to start."""
        self.world.pass_time(seconds)
        self.flush(through)
        if starts:
            self.try_to_start()

    @precondition(lambda self: self.world.registry_is_away)
    @rule(starts=st.booleans())
    def registry_comes_back(self, starts: bool) -> None:
        self.world.registry_is_away = False
        self.world.pass_time(LOOK)
        self.flush()
        for pod in self.pods("Pending") if starts else ():
            self.world.run(pod)

    @possible(lambda self: self.held())
    @rule(data=st.data(), dies=st.sampled_from([False, False, True]))
    def what_is_held_is_cleared(self, data: st.DataObject, dies: bool) -> None:
        self.clear(pick(data, self.held()), self.scheduler(data) if dies else None)

    def clear(self, ti: Any, dies: Scheduler | None = None) -> None:
        """Clear a task instance whose launch is held, and look for it within some seconds."""
        ti_id = str(ti.id)
        self.world.next_try(ti)
        if dies:
            self.world.crash(dies)
        for _ in range(2):
            self.world.pass_time(10)
            for scheduler in self.world.schedulers:
                self.world.turn(scheduler)
        held = self.world.held_by(*self.world.schedulers)
        assert ti_id not in {launch.ti_id for launch in held}, "I5: what was cleared is still held"

    def come_to_rest(self) -> None:
        self.world.registry_is_away = False
        super().come_to_rest()
