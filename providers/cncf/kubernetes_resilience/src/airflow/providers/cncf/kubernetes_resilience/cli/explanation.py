# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Explains the failure of a pod, the decision, and its reasons. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any

from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.classify import (
    Classified,
    classify,
    make_evidence,
)
from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.dependencies import find_dependency
from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.failure import (
    DELETION_OVERDUE,
    PodFailure,
    find_failure,
    find_obstacle,
    find_silent_exit,
    find_unreported_end,
)
from airflow.providers.cncf.kubernetes_resilience.pods.facts import PodFacts
from airflow_resilience.decision import Action, Decision
from airflow_resilience.outages import Dependency
from airflow_resilience.retry_policy.engine import Step, Trace, trace
from airflow_resilience.retry_policy.evidence import Phase
from airflow_resilience.retry_policy.rule import PolicySet
from airflow_resilience.retry_policy.selection import Selection, TaskProfile, select

_ASSUMED = "only the ids of its task are known, and earlier launches are taken to have failed like this one"


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """Facts for policies besides the pod itself."""

    profile: TaskProfile
    earlier: Sequence[Decision] | None
    """Decisions about earlier failures of the try in this phase, oldest first; None if unknown."""
    phase: Phase | None = None
    """Phase of the task; None if unknown."""
    recorded: str | None = None
    """Reason of the pod's failure in the ledger; None without an entry."""
    decided: Decision | None = None
    """Decision that was made without policies, in an outage for example."""
    source: str
    """A sentence about the origin of these facts, and missing ones."""


def from_pod(facts: PodFacts, why: str = "The manifest alone") -> Circumstances:
    """
    Read facts about a pod's task from the pod itself.

    :param why: reason for the lack of other facts
    """
    return Circumstances(
        profile=TaskProfile(
            dag_id=facts.annotations.get("dag_id", ""),
            task_id=facts.annotations.get("task_id", ""),
            queue="",
            pool="",
        ),
        earlier=None,
        source=f"{why}: {_ASSUMED}.",
    )


class State(StrEnum):
    """States of a pod."""

    FAILED = "failed"
    ENDING = "ending"
    """The pod is being deleted."""
    WAITING = "waiting"
    """The pod has not started yet, for a reason that may pass."""
    ALIVE = "alive"
    SUCCEEDED = "succeeded"


_WHAT_HAPPENS = {
    State.FAILED: "The pod has failed.",
    State.ENDING: "The pod has not failed yet: it is being deleted. The executor waits for its end.",
    State.WAITING: (
        "The pod has not failed: it has not started yet, and the executor waits with it. It is given up with"
        " the reasons in [kubernetes_executor] worker_pod_pending_fatal_container_state_reasons, and after"
        " [kubernetes_resilience] pending_timeout, or unschedulable_timeout while no node suits it."
    ),
    State.ALIVE: "The pod has not failed.",
    State.SUCCEEDED: "The pod has not failed: its worker has succeeded.",
}


@dataclass(frozen=True, slots=True)
class Standing:
    """State and failure of a pod."""

    state: State
    failure: PodFailure | None
    """Failure of the pod. While ending or waiting: the failure that follows if nothing changes."""

    @property
    def text(self) -> str:
        """The state in a sentence."""
        return _WHAT_HAPPENS[self.state]


def examine(
    facts: PodFacts, *, given_up_reasons: Collection[str], still_queued: bool, recorded: str | None = None
) -> Standing:
    """
    Say whether a pod has failed.

    :param given_up_reasons: waiting reasons with which a Pending pod counts as failed
    :param still_queued: whether the task instance is known to be still queued; a successful worker then
        counts as failed, without a report
    :param recorded: reason of the pod's failure in the ledger; None without an entry
    """
    if failure := find_failure(facts, given_up_reasons=given_up_reasons):
        return Standing(State.FAILED, failure)
    if facts.has_succeeded:
        if still_queued:
            return Standing(State.FAILED, find_silent_exit(facts))
        if recorded:
            return Standing(State.FAILED, find_unreported_end(facts))
        return Standing(State.SUCCEEDED, None)
    if facts.deletion_timestamp:
        if recorded == DELETION_OVERDUE:
            return Standing(State.FAILED, PodFailure(DELETION_OVERDUE, facts, alive=True))
        return Standing(State.ENDING, find_failure(facts, gone=True))
    if obstacle := find_obstacle(facts):
        return Standing(State.WAITING, obstacle)
    return Standing(State.ALIVE, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The decision about a failure."""

    classified: Classified
    dependency: Dependency | None
    """Dependency that was not available; several failed launches open an outage."""
    selection: Selection
    trace: Trace
    """Its decision has the longest delay: that without jitter."""
    shortest_delay: float
    """Seconds: the delay with the most jitter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """The explanation of a pod."""

    facts: PodFacts
    phase: Phase
    standing: Standing
    circumstances: Circumstances
    policies: PolicySet
    answer: Answer | None
    """None if the pod has not failed, and nothing keeps it from starting."""

    @property
    def exit_code(self) -> int:
        """0 for a relaunch, 1 for another action, 3 for a pod that has not failed."""
        if self.standing.state is not State.FAILED or self.answer is None:
            return 3
        return 0 if self.answer.trace.decision.action is Action.RELAUNCH else 1

    def to_dict(self) -> dict[str, Any]:
        """Return the explanation for JSON."""
        return {
            "pod": _facts(self.facts),
            "phase": self.phase,
            "state": self.standing.state,
            "policies": self.policies.origin,
            "circumstances": self.circumstances.source,
            **(_answer(self.answer) if self.answer else {}),
        }


def explain(
    facts: PodFacts,
    *,
    phase: Phase | None,
    given_up_reasons: Collection[str],
    policies: PolicySet,
    circumstances: Circumstances,
) -> Explanation:
    """
    Explain a pod.

    :param phase: phase of the task; None for the phase of the circumstances, else the launch
    :param given_up_reasons: waiting reasons with which a Pending pod counts as failed
    """
    phase = phase or circumstances.phase
    standing = examine(
        facts,
        given_up_reasons=given_up_reasons,
        still_queued=phase is Phase.LAUNCH,
        recorded=circumstances.recorded,
    )
    phase = phase or Phase.LAUNCH
    answer = _ask(standing.failure, phase, policies, circumstances) if standing.failure else None
    return Explanation(
        facts=facts,
        phase=phase,
        standing=standing,
        circumstances=circumstances,
        policies=policies,
        answer=answer,
    )


def _ask(failure: PodFailure, phase: Phase, policies: PolicySet, circumstances: Circumstances) -> Answer:
    number = failure.facts.launch_number
    classified = classify(failure, launch_number=number, phase=phase)
    evidence = make_evidence(failure, classified, phase)
    selection = select(policies, circumstances.profile)

    def ask(earlier: Sequence[Decision], random: float) -> Trace:
        if decided := circumstances.decided:
            return Trace(decided, (Step(decided.policy, decided.rule, True, decided.explanation),))
        return trace(evidence, selection, policies, earlier, lambda: random)

    earlier = circumstances.earlier
    if earlier is None:
        # Each earlier launch was followed by a relaunch, despite the decision about this one: the pod proves
        # that.
        earlier = [replace(ask((), 0.0).decision, action=Action.RELAUNCH)] * (number - 1)
    return Answer(
        classified=classified,
        dependency=find_dependency(failure, classified.cause) if phase is Phase.LAUNCH else None,
        selection=selection,
        trace=ask(earlier, 0.0),
        shortest_delay=ask(earlier, 1.0).decision.delay,
    )


def _facts(facts: PodFacts) -> dict[str, Any]:
    return {
        "namespace": facts.ref.namespace,
        "name": facts.ref.name,
        "uid": facts.ref.uid,
        "launch": facts.launch_number,
        "phase": facts.phase,
        "reason": facts.reason,
        "message": facts.message,
        "node": facts.node,
        "created": facts.created,
        "deletion_timestamp": facts.deletion_timestamp,
        "conditions": [asdict(condition) for condition in facts.conditions],
        "containers": [asdict(container) for container in facts.containers],
    }


def _answer(answer: Answer) -> dict[str, Any]:
    cause, selection = answer.classified.cause, answer.selection
    return {
        "cause": {"row": cause.name, "why": cause.why, "url": cause.url},
        "dependency": answer.dependency and str(answer.dependency),
        "context": answer.classified.context.to_dict(),
        "chain": [{"policy": policy.name, "why": why} for policy, why in selection.policies],
        "unknown_policies": list(selection.unknown),
        "steps": [asdict(step) for step in answer.trace.steps],
        "decision": answer.trace.decision.to_dict() | {"shortest_delay": answer.shortest_delay},
    }
