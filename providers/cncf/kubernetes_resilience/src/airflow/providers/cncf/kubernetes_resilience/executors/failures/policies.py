# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The retry policies in force: those of the configured file, read again at each change, or built-in ones."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Collection
from pathlib import Path

from airflow.exceptions import AirflowConfigException
from airflow.utils.session import create_session

from airflow.providers.cncf.kubernetes_resilience.executors.counters import POLICY_FILE_ERRORS
from airflow.providers.cncf.kubernetes_resilience.executors.policy_settings import (
    EXCLUDED_REASONS,
    OWN_SECTION,
    POLICY_FILE,
    UPSTREAM_SECTION,
    PolicySettings,
)
from airflow.providers.cncf.kubernetes_resilience.executors.tasks.task_instances import read_profiles
from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.classify import Classified, make_evidence
from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.failure import PodFailure
from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.vocabulary import VOCABULARY
from airflow_resilience.decision import Decision
from airflow_resilience.ledger_entries import LaunchHistory
from airflow_resilience.retry_policy.document import PolicyFileError, PolicySource
from airflow_resilience.retry_policy.engine import decide
from airflow_resilience.retry_policy.evidence import Phase
from airflow_resilience.retry_policy.rule import PolicySet
from airflow_resilience.retry_policy.selection import TaskProfile, infrastructure_budget, select

log = logging.getLogger(__name__)

CHECK_INTERVAL = 5.0
"""Seconds between two looks at the file. A kubelet takes up to a minute to bring a changed ConfigMap."""


class RetryPolicies:
    """
    Knows the policies in force.

    :raises AirflowConfigException: if there is a file and it cannot be used
    """

    def __init__(self, settings: PolicySettings, clock: Callable[[], float]) -> None:
        self._built_in = settings.built_in
        self._source = _open(settings.retry_policy_file, self._built_in)
        for reason in sorted(settings.excluded_container_reasons):
            if warning := VOCABULARY.warning_about(reason):
                log.warning("[%s] %s: %s", UPSTREAM_SECTION, EXCLUDED_REASONS, warning)
        _warn_of(self.current)
        self._clock = clock
        self._next_look = clock() + CHECK_INTERVAL

    @property
    def current(self) -> PolicySet:
        """The policies in force."""
        return self._source.current if self._source else self._built_in

    def infrastructure_budget(self, profile: TaskProfile) -> int:
        """Return how often, for each try, a running task may run again; ``UNLIMITED`` for no limit."""
        return infrastructure_budget(profile.options, self.current.infrastructure)

    def with_budget(self, ti_ids: Collection[str]) -> set[str]:
        """
        Return which task instances, by their UUIDs, may run again after a loss.

        :raises sqlalchemy.exc.SQLAlchemyError: if the database does not answer
        """
        with create_session(scoped=False) as session:
            profiles = read_profiles(ti_ids, session=session)
        return {ti_id for ti_id, profile in profiles.items() if self.infrastructure_budget(profile)}

    def decide(
        self,
        failure: PodFailure,
        classified: Classified,
        phase: Phase,
        history: LaunchHistory,
        profile: TaskProfile,
    ) -> Decision:
        """
        Decide about the failure of a worker.

        :param classified: what the failure means
        :param phase: how far the task had come
        :param history: what has failed in this try in the same phase
        :param profile: what the task's policies are selected by
        """
        policies, evidence = self.current, make_evidence(failure, classified, phase)
        selection = select(policies, profile)
        for name in selection.unknown:
            log.warning(
                "%s.%s asks for the retry policy %r, which %s does not have",
                profile.dag_id,
                profile.task_id,
                name,
                policies.origin,
            )
        return decide(evidence, selection, policies, history.decisions, random.random)

    def tick(self) -> None:
        """Read the file again, if it has changed and it is time to look; an invalid one changes nothing."""
        if self._source is None or self._clock() < self._next_look:
            return
        self._next_look = self._clock() + CHECK_INTERVAL
        before = self.current
        if error := self._source.refresh():
            log.error(
                "The retry policies that were in force stay in force; the changed file is invalid:\n%s", error
            )
            POLICY_FILE_ERRORS.count()
        elif self.current is not before:
            log.info("Retry policies were read again from %s", self.current.origin)
            _warn_of(self.current)


def _warn_of(policies: PolicySet) -> None:
    if policies.warnings:
        log.warning("The retry policy file has warnings:\n%s", "\n".join(policies.warnings))


def _open(path: Path | None, fallback: PolicySet) -> PolicySource | None:
    if path is None:
        return None
    try:
        return PolicySource(path, fallback, VOCABULARY)
    except PolicyFileError as error:
        raise AirflowConfigException(
            f"[{OWN_SECTION}] {POLICY_FILE} = {str(path)!r} cannot be used; allowed is the path of a"
            f" valid policy file, or nothing:\n{error}"
        ) from error
