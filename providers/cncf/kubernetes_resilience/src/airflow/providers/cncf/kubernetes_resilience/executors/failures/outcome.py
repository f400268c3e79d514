# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""What was settled about a launch, as it was committed."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from airflow.providers.cncf.kubernetes_resilience.executors.failures.judge import (
    Asked,
    Keep,
    Release,
    Report,
    Step,
)
from airflow.providers.cncf.kubernetes_resilience.executors.launches.launch import Launch
from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.classify import Classified
from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.failure import HEARTBEAT_TIMEOUT, PodFailure
from airflow_resilience.decision import Action, Decision
from airflow_resilience.ledger import LedgerEntry


@dataclass(frozen=True, slots=True)
class Decided:
    """A worker has failed, and the decision about it is in the ledger."""

    entry: LedgerEntry
    failure: PodFailure
    """How it failed, by its pod and by what else is known."""


@dataclass(frozen=True, slots=True)
class Settled:
    """What to do about a launch that has ended, as it was committed."""

    launch: Launch
    outcome: Decided | Report | Release | Keep
    found: PodFailure | None = None
    """How the worker has failed, if its pod does not say so."""
    recorded: LedgerEntry | None = None
    """What the ledger says about it, if that is nothing to act on."""

    @property
    def entry(self) -> LedgerEntry | None:
        """What the ledger says about it; None if it is not in there."""
        return self.outcome.entry if isinstance(self.outcome, Decided) else self.recorded

    @property
    def failure(self) -> PodFailure | None:
        """How the launch has failed; None if its pod succeeded."""
        if isinstance(self.outcome, Decided):
            return self.outcome.failure
        return self.found or self.launch.failure

    @property
    def leaves_pod(self) -> bool:
        """
        Whether its pod stays as it is.

        It has not ended, or nobody but Airflow says that it has, or another scheduler has its task instance.
        """
        if isinstance(self.outcome, Release) and self.outcome.leaves_pod:
            return True
        if isinstance(self.outcome, Decided) and self.outcome.entry.decision.action is Action.RELAUNCH:
            return False
        is_silent = self.failure is not None and self.failure.reason == HEARTBEAT_TIMEOUT
        return is_silent or isinstance(self.outcome, Keep)


@dataclass(frozen=True, slots=True)
class Judged:
    """What to do about a launch that has not ended."""

    asked: Asked
    step: Step
    owner: int | None
    """The job of the scheduler that has its task instance; None if nobody has."""

    @property
    def launch(self) -> Launch:
        """The launch."""
        return self.asked.launch


def make_entry(
    launch: Launch, failure: PodFailure, classified: Classified, decision: Decision
) -> LedgerEntry:
    """Make the ledger's entry about a launch that has failed; it is one of a launch failure."""
    relaunches = decision.action is Action.RELAUNCH
    return LedgerEntry(
        ti_id=launch.ti_id,
        worker_uid=launch.worker_uid,
        worker_name=launch.name,
        launch=launch.number,
        reason=failure.reason,
        context=classified.context,
        decision=decision,
        due=datetime.now(UTC) + timedelta(seconds=decision.delay) if relaunches else None,
    )
