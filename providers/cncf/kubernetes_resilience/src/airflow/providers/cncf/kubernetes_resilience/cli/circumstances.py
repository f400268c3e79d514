# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""What a decision about a pod depends on besides the pod: its task, and the earlier decisions. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from airflow.providers.cncf.kubernetes_resilience.pods.facts import PodFacts
from airflow_resilience.decision import Decision
from airflow_resilience.retry_policy.evidence import Phase
from airflow_resilience.retry_policy.selection import TaskProfile

_ASSUMED = "only the ids of its task are known, and earlier launches are taken to have failed like this one"


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """What policies look at besides the pod itself."""

    profile: TaskProfile
    earlier: Sequence[Decision] | None
    """Decisions about earlier failures of the try in this phase, oldest first; None if they are not known."""
    phase: Phase | None = None
    """How far the task had come, if that is known."""
    recorded: str | None = None
    """The reason with which the ledger has the failure of this pod; None if it has none."""
    decided: Decision | None = None
    """What was decided about it, if no policy was asked: in an outage, for example."""
    source: str
    """A sentence about where it is from, and what is missing."""


def from_pod(facts: PodFacts, why: str = "The manifest alone") -> Circumstances:
    """
    Read what the pod itself says of its task.

    :param why: why nothing else is known
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
