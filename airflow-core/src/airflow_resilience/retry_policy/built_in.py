# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
Policies that are in force without a file.

``built-in`` is about launches, and implements upstream's two options. ``infrastructure`` is about running
tasks, and workers that could not reach Airflow, and implements the options of the infrastructure budget.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import Final

from airflow_resilience.backoff import Backoff, constant_backoff
from airflow_resilience.context import StateChangeCategory, StateChangeReason
from airflow_resilience.decision import UNLIMITED, Action, AvoidNode
from airflow_resilience.retry_policy.evidence import Evidence, Phase
from airflow_resilience.retry_policy.matchers import (
    Finding,
    OnCategories,
    OnPhases,
    OnReasons,
    comparison,
    shown_reasons,
)
from airflow_resilience.retry_policy.rule import (
    INFRASTRUCTURE,
    OFF,
    InfrastructureBudget,
    Policy,
    PolicySet,
    Rule,
)

BUILT_IN: Final = "built-in"
"""Name of the policy and origin of the set. No policy of a file can have this name."""

AIRFLOW_UNREACHABLE: Final = "airflow-api-unreachable"
"""Rule of the policy ``infrastructure`` about launches whose worker could not reach Airflow."""

_LAUNCH: Final = OnPhases(frozenset({Phase.LAUNCH}))
_OUTAGE: Final = Backoff(initial=30.0, multiplier=2.0, maximum=300.0, jitter=0.2)
"""For failures that a person has to fix first. An immediate relaunch would fail again."""
_PREEMPTIONS: Final = Backoff(initial=10.0, multiplier=2.0, maximum=60.0, jitter=0.2)
"""Pods of DaemonSets preempt a worker on each node that is new, until all of them are there."""
_DISRUPTIONS: Final = replace(_PREEMPTIONS, begins_at_once=True)
"""More disruptions often follow a second one."""


_UNAVAILABLE: Final = frozenset(
    {
        "QuotaExceeded",
        StateChangeReason.IMAGE_UNAVAILABLE,
        StateChangeReason.VOLUME_UNAVAILABLE,
        StateChangeReason.CONFIG_UNAVAILABLE,
    }
)


_PREEMPTED: Final = frozenset({"PreemptionByScheduler", "Preempting"})
"""The words of the scheduler and of the kubelet for a pod that gave way to another one of higher priority:
https://kubernetes.io/docs/concepts/scheduling-eviction/pod-priority-preemption/"""

_REFUSED: Final = frozenset({"CreationForbidden", "PublishRetriesUsed"})
"""The executor's words for a worker that the platform refuses for good, or after all configured create
retries."""


_OWN_EXIT_REASON: Final = "Error"
"""The runtime's reason for every exit code but 0, also after a signal from outside."""


@dataclass(frozen=True, slots=True)
class OwnExit:
    """Condition: the worker's main container failed on its own."""

    def check(self, evidence: Evidence) -> Finding:
        """Look at the deciding container's reason, unless the worker was terminated from outside."""
        if not evidence.exited_by_itself:
            return Finding(False, "the worker's main container did not end on its own")
        reasons = {
            container.reason
            for container in evidence.containers
            if container.name == evidence.deciding_container and container.reason
        }
        how = f"the worker's main container ended on its own, reason {' '.join(sorted(reasons)) or 'unknown'}"
        if _OWN_EXIT_REASON not in reasons:
            return Finding(False, f"{how}, which is not {_OWN_EXIT_REASON}")
        return Finding(True, how)


@dataclass(frozen=True, slots=True)
class ShownReasons:
    """Condition: the worker or any of its containers shows one of the reasons."""

    reasons: frozenset[str]

    def check(self, evidence: Evidence) -> Finding:
        """Compare every shown reason."""
        shown = shown_reasons(evidence)
        if not shown:
            return Finding(False, "the worker shows no reason")
        matching = [subject for subject, reason in shown.items() if reason in self.reasons]
        return Finding(bool(matching), comparison(matching or shown, bool(matching), self.reasons))


@dataclass(frozen=True, slots=True)
class ClassifiedAs:
    """Condition: the context has one of the reasons. An equal word of the platform does not count."""

    reasons: frozenset[StateChangeReason]

    def check(self, evidence: Evidence) -> Finding:
        """Compare the reason of the failure's context."""
        found = evidence.context.reason in self.reasons
        return Finding(found, comparison([f"reason {evidence.context.reason}"], found, self.reasons))


def built_in(
    retries: int, excluded_container_reasons: Collection[str], infrastructure: InfrastructureBudget = OFF
) -> PolicySet:
    """
    Return the policies that are in force without a file.

    :param retries: ``[kubernetes_executor] pod_launch_failure_retries``, relaunches for one try by all rules;
        ``UNLIMITED`` for no limit
    :param excluded_container_reasons: ``[kubernetes_executor]
        pod_launch_failure_excluded_container_reasons``: no relaunch if the worker shows one of them anywhere;
        ``Error`` only if the main container exited on its own
    :param infrastructure: the budget of running tasks
    """
    policy = Policy(
        name=BUILT_IN,
        rules=(
            *_exclusions(frozenset(excluded_container_reasons)),
            Rule(
                name="refused",
                action=Action.COUNT,
                matchers=(_LAUNCH, OnReasons(reasons=_REFUSED)),
                note="its pod is refused for good",
            ),
            Rule(
                name="preemption",
                action=Action.RELAUNCH,
                matchers=(_LAUNCH, OnReasons(reasons=_PREEMPTED)),
                backoff=_PREEMPTIONS,
            ),
            Rule(
                name="disruption",
                action=Action.RELAUNCH,
                matchers=(_LAUNCH, OnReasons(reasons=frozenset({StateChangeReason.WORKER_TERMINATION}))),
                backoff=_DISRUPTIONS,
            ),
            Rule(
                name="unavailable",
                action=Action.RELAUNCH,
                matchers=(_LAUNCH, OnReasons(reasons=_UNAVAILABLE)),
                backoff=_OUTAGE,
            ),
            Rule(name="launch-failure", action=Action.RELAUNCH, matchers=(_LAUNCH,)),
        ),
        shared_limit=retries,
        avoid_node=AvoidNode.PREFER,
    )
    return PolicySet(
        policies={BUILT_IN: policy},
        default=BUILT_IN,
        global_max_retries=UNLIMITED,
        infrastructure=infrastructure,
        origin=BUILT_IN,
    )


def infrastructure_policy(infrastructure: InfrastructureBudget, phase: Phase) -> Policy:
    """
    Return the policy of the infrastructure budget.

    The policy is asked last about a running task. For launches the policy is asked before ``built-in``, and
    has only a rule for a worker that could not reach Airflow: neither the launch nor the task has failed
    then.
    """
    reasons = infrastructure.reasons
    if phase is Phase.LAUNCH:
        reasons &= {StateChangeReason.DB_CONNECTION_ERROR}
    rule = Rule(
        name=AIRFLOW_UNREACHABLE if phase is Phase.LAUNCH else INFRASTRUCTURE,
        action=Action.RELAUNCH,
        matchers=(
            OnPhases(frozenset({phase})),
            OnCategories(frozenset({StateChangeCategory.INFRASTRUCTURE})),
            ClassifiedAs(reasons),
        ),
    )
    return Policy(
        name=INFRASTRUCTURE,
        rules=(rule,) if reasons else (),
        backoff=constant_backoff(infrastructure.delay),
        avoid_node=AvoidNode.PREFER,
    )


def _exclusions(reasons: frozenset[str]) -> Iterator[Rule]:
    if _OWN_EXIT_REASON in reasons:
        yield Rule(
            name="excluded",
            action=Action.COUNT,
            matchers=(_LAUNCH, OwnExit()),
            note="the worker's own exit is not relaunched",
        )
    if listed := reasons - {_OWN_EXIT_REASON}:
        yield Rule(
            name="excluded-reason",
            action=Action.COUNT,
            matchers=(_LAUNCH, ShownReasons(listed)),
            note="its reason is excluded from relaunches",
        )
