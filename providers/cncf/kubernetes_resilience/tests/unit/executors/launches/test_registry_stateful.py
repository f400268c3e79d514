# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The registry in any order of launches, answers, events, releases and departures, beside a plain model."""

from __future__ import annotations

from dataclasses import replace
from itertools import count

from airflow.models.taskinstancekey import TaskInstanceKey
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule

from airflow.providers.cncf.kubernetes_resilience.executors.launches.launch import (
    Deletion,
    Launch,
    LaunchState,
)
from airflow.providers.cncf.kubernetes_resilience.executors.launches.registry import LaunchRegistry
from airflow.providers.cncf.kubernetes_resilience.pods.facts import PodFacts, PodRef

KEYS = st.sampled_from([TaskInstanceKey("dag", "task", "run", 1, index) for index in range(3)])


class Registry(RuleBasedStateMachine):
    """Checks after each step that only a current launch is ever found."""

    launches = Bundle("launches")

    @initialize()
    def start(self) -> None:
        self.registry = LaunchRegistry()
        self.current: dict[TaskInstanceKey, Launch] = {}
        self.pods: dict[str, Launch] = {}
        """Every pod that ever was, and what it was launched as."""
        self.leaving: dict[str, tuple[Launch, float]] = {}
        self.now = 0.0
        self.numbers = count()

    # ------------------------------------------------------------------ launches

    @rule(target=launches, key=KEYS, adopted=st.booleans())
    def hold(self, key: TaskInstanceKey, adopted: bool) -> Launch:
        launch = Launch(
            key=key,
            ti_id="ti",
            namespace="ns",
            name="same",
            number=1,
            launch_id=f"launch-{next(self.numbers)}",
        )
        if adopted:
            launch.ref = self._new_pod(launch)
        self.registry.make_current(launch)
        self.current[key] = launch
        return launch

    @rule(launch=launches)
    def hold_again(self, launch: Launch) -> None:
        self.registry.make_current(launch)
        self.current[launch.key] = launch
        self.leaving.pop(launch.launch_id, None)

    @rule(launch=launches)
    def create_call_is_answered(self, launch: Launch) -> None:
        if self.registry.current(launch.launch_id) and launch.ref is None:
            self._bind(launch, self._new_pod(launch))

    @rule(launch=launches)
    def event_comes_before_the_answer(self, launch: Launch) -> None:
        if launch.ref is None:
            ref = self._new_pod(launch)
            found = self.registry.find(self._facts(ref.uid))
            assert found is (launch if self.current.get(launch.key) is launch else None)
            if found:
                self._bind(launch, ref)

    @rule(launch=launches)
    def copy_of_its_pod_appears(self, launch: Launch) -> None:
        if launch.ref is not None:
            copy = self._facts(launch.ref.uid, named=f"copy-{next(self.numbers)}")
            assert self.registry.find(copy) is None

    @rule(key=KEYS)
    def release(self, key: TaskInstanceKey) -> None:
        assert self.registry.release(key) is self.current.pop(key, None)

    # ------------------------------------------------------------------ pods that leave

    @rule(launch=launches, seconds=st.integers(min_value=0, max_value=5))
    def leave(self, launch: Launch, seconds: int) -> None:
        self.registry.supersede(launch, Deletion(self.now + seconds))
        self.leaving[launch.launch_id] = (launch, self.now + seconds)

    @rule(launch=launches, is_found=st.booleans())
    def pod_of_its_call_is_seen(self, launch: Launch, is_found: bool) -> None:
        if launch.deletion and launch.ref is None:
            ref = self._new_pod(launch)
            self.registry.supersede(launch, replace(launch.deletion, seen=ref))
            assert self.registry.departing(ref.uid) is launch
            if is_found and not self.registry.is_current(launch):
                self.registry.found(launch, ref)
                del self.leaving[launch.launch_id]

    @rule(launch=launches, by_pod=st.booleans())
    def left(self, launch: Launch, by_pod: bool) -> None:
        known, _ = self.leaving.pop(launch.launch_id, (None, 0.0))
        token = launch.ref.uid if by_pod and launch.ref else launch.launch_id
        assert self.registry.departing(token) is known
        self.registry.gone(token)

    @rule(key=KEYS, seconds=st.integers(min_value=0, max_value=3))
    def ask_later(self, key: TaskInstanceKey, seconds: int) -> None:
        self.now += seconds
        waited_for = [deadline for launch, deadline in self.leaving.values() if launch.key == key]
        assert self.registry.is_clear(key, self.now) == all(deadline <= self.now for deadline in waited_for)

    @rule()
    def prune(self) -> None:
        self.registry.prune(self.now)
        self.leaving = {name: item for name, item in self.leaving.items() if item[1] > self.now}

    # ------------------------------------------------------------------ what always holds

    @invariant()
    def finds_current_launches_and_nothing_else(self) -> None:
        assert {launch.key: launch for launch in self.registry} == self.current
        for uid, launch in self.pods.items():
            current = self.registry.is_current(launch) and launch.ref is not None and launch.ref.uid == uid
            assert self.registry.current(uid) is (launch if current else None)
            if launch.ref is not None:
                assert self.registry.find(self._facts(uid)) is (launch if current else None)

    @invariant()
    def each_is_in_the_state_that_it_says(self) -> None:
        in_state = {
            launch.launch_id: state for state in LaunchState for launch in self.registry.in_state(state)
        }
        departing = dict.fromkeys(self.leaving, LaunchState.DEPARTING)
        assert in_state == departing | {launch.launch_id: launch.state for launch in self.current.values()}

    def teardown(self) -> None:
        for key in list(self.current):
            self.registry.release(key)
        for token in list(self.leaving):
            self.registry.gone(token)
        left_over = {name: index for name, index in vars(self.registry).items() if index}
        left_over.pop("created", None)
        by_state = left_over.pop("_by_state")
        assert not left_over, "every index is empty when nothing is held"
        assert not any(by_state.values())

    def _bind(self, launch: Launch, ref: PodRef) -> None:
        self.registry.bind(launch, ref)
        self.leaving.pop(launch.launch_id, None)

    def _new_pod(self, launch: Launch) -> PodRef:
        uid = f"uid-{next(self.numbers)}"
        self.pods[uid] = launch
        return PodRef("ns", "same", uid)

    def _facts(self, uid: str, *, named: str | None = None) -> PodFacts:
        annotations = {"airflow-resilience/launch-id": self.pods[uid].launch_id}
        return PodFacts(PodRef("ns", "same", named or uid), {}, annotations)


TestRegistry = Registry.TestCase
TestRegistry.settings = settings(stateful_step_count=40)
