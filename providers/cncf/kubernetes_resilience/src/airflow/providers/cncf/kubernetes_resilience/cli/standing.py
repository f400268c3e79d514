# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Whether a pod has failed, as the executor sees it, or what it would fail of. Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum

from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.failure import (
    DELETION_OVERDUE,
    PodFailure,
    find_failure,
    find_obstacle,
    find_overdue_deletion,
    find_silent_exit,
    find_unreported_end,
)
from airflow.providers.cncf.kubernetes_resilience.pods.facts import PodFacts


class State(StrEnum):
    """How far a pod has come."""

    FAILED = "failed"
    ENDING = "ending"
    """It is being deleted."""
    WAITING = "waiting"
    """It has not started yet, for a reason that may pass."""
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
    State.SUCCEEDED: "The pod has not failed: it has succeeded.",
}


@dataclass(frozen=True, slots=True)
class Standing:
    """State and failure of a pod."""

    state: State
    failure: PodFailure | None
    """How it failed. While it is ending or waiting: how it will fail if nothing changes."""

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
    :param still_queued: whether the task instance is known to be still queued; a pod that has succeeded then
        counts as failed, because its worker has not reported
    :param recorded: the reason with which the ledger has its failure; None if it has none
    """
    if failure := find_failure(facts, given_up_reasons=given_up_reasons):
        return Standing(State.FAILED, failure)
    if facts.phase == "Succeeded":
        if still_queued:
            return Standing(State.FAILED, find_silent_exit(facts))
        if recorded:
            return Standing(State.FAILED, find_unreported_end(facts))
        return Standing(State.SUCCEEDED, None)
    if facts.deletion_timestamp:
        if recorded == DELETION_OVERDUE:
            return Standing(State.FAILED, find_overdue_deletion(facts))
        return Standing(State.ENDING, find_failure(facts, gone=True))
    if obstacle := find_obstacle(facts):
        return Standing(State.WAITING, obstacle)
    return Standing(State.ALIVE, None)
