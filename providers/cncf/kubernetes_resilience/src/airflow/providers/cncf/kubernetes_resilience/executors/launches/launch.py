# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""What is known of a launch: one pod created for one try of a task instance."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import Any

from airflow.models.taskinstancekey import TaskInstanceKey
from airflow.providers.cncf.kubernetes.executors.kubernetes_executor_types import KubernetesJob

from airflow.providers.cncf.kubernetes_resilience.executors.launches.hosts import runs_in
from airflow.providers.cncf.kubernetes_resilience.executors.launches.workload import StoredWorkload
from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.failure import PodFailure
from airflow.providers.cncf.kubernetes_resilience.pods.facts import PodFacts, PodRef

Command = tuple[str, tuple[Any, ...]]
"""Something to be done by the Kubernetes thread: the name of a launcher's method, and its arguments."""


@dataclass(slots=True)
class WaitingLaunch:
    """A launch whose pod has not been asked for yet."""

    job: KubernetesJob
    ti_id: str
    not_before: float = 0.0
    """Earliest time of its creation, on the executor's monotonic clock (seconds)."""
    is_relaunch: bool = False
    """Whether there was a launch before, which has failed."""
    previous_name: str | None = None
    """Name of the pod that it replaces; None if it replaces none, or one of another scheduler."""


@dataclass(slots=True, eq=False)
class Launch:
    """One pod created for one try of a task instance."""

    key: TaskInstanceKey
    ti_id: str
    namespace: str
    name: str
    number: int
    """1 for the first launch of a try; one more for each relaunch."""
    workload: StoredWorkload | None = None
    """What to launch again; None for an adopted pod."""
    launch_id: str = field(default_factory=lambda: uuid.uuid4().hex)
    ref: PodRef | None = None
    """The pod's identity; None until the API server has confirmed its creation."""
    facts: PodFacts | None = None
    """The last that was seen of the pod."""
    body: dict[str, Any] | None = None
    """The manifest, kept until its creation is confirmed so that the call can be repeated."""
    token: str | None = None
    """The workload's token in the manifest, kept as long."""
    token_made_at: float = 0.0
    """When it was made, or a little later, on the executor's monotonic clock (seconds)."""
    adopted_from: int | None = None
    """The dead scheduler's job, for a launch that was adopted."""
    given_up: PodFailure | None = None
    """How it failed according to the ledger, for a launch that was adopted after that had been decided. What
    the pod says now does not change it: the dead scheduler may have acted upon it already."""
    publish_attempts: int = 0
    """How often its creation was refused for now."""
    calls: int = 0
    """Create calls that are under way. While there is one, the pod that is known need not be the last of this
    launch: the call before may have been carried out without an answer, and its pod be gone by now."""
    unanswered: int = 0
    """How often its creation has failed because the API server was away or overloaded."""
    was_unclear: bool = False
    """Whether a call to create its pod had no clear answer."""
    refusals: int = 0
    """How often in a row its creation was refused for something that is not its manifest's fault."""
    was_held: bool = False
    """Whether an outage of the API server may have kept its pod from starting."""
    has_survived: bool = False
    """Whether its pod was given up on and has started all the same."""
    is_renamed: bool = False
    """Whether its pod has got another name, because the first one was taken."""
    may_exist: bool = False
    """Whether a call to create the pod is under way or has had no clear answer."""
    has_siblings: bool = False
    """Whether its task instance may have had other pods, beside those that its number tells of."""

    def runs(self, hostname: str | None) -> bool:
        """
        Whether a task that runs, runs in its pod, as far as can be told.

        :param hostname: what the worker has reported
        """
        return runs_in(
            hostname,
            name=self.name,
            addresses=self.facts.addresses if self.facts else "",
            is_alone=self.number == 1 and not self.has_siblings,
        )

    @property
    def is_created_again(self) -> bool:
        """Whether its pod does not exist, as far as is known, and a call to create it has failed."""
        # A renamed one is asked for again at once.
        return self.ref is None and bool(self.unanswered or self.refusals or self.publish_attempts)

    @property
    def has_started(self) -> bool:
        """Whether its pod has been seen in another phase than Pending."""
        return self.facts is not None and self.facts.phase not in (None, "Pending")


@dataclass(slots=True)
class Departure:
    """A superseded pod that may still run or start."""

    key: TaskInstanceKey
    deadline: float
    """When it is waited for no longer, on the executor's monotonic clock (seconds)."""
    command: Command | None
    """What has its deletion asked for; None if something else sees to that."""
    launch: Launch | None = None
    """What it was the pod of, or was to be; None if that is not known."""
    unless_started: bool = False
    """Whether it stays if it has started by the time that its deletion is carried out."""
    accepted: bool = False
    """Whether the API server has accepted its deletion, so that it goes without our doing."""
