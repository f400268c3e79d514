# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""What a decision about a pod depends on besides the pod: its task, and the earlier decisions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

from airflow.utils.session import create_session
from sqlalchemy.exc import SQLAlchemyError

from airflow.providers.cncf.kubernetes_resilience.executors.launches.identity import task_key
from airflow.providers.cncf.kubernetes_resilience.executors.tasks.profiles import read_profiles
from airflow.providers.cncf.kubernetes_resilience.pods.facts import TASK_INSTANCE_ID_ANNOTATION, PodFacts
from airflow_resilience import ledger
from airflow_resilience.decision import Decision
from airflow_resilience.retry_policy.selection import TaskProfile

_ASSUMED = "only the ids of its task are known, and earlier launches are taken to have failed like this one"


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """What policies look at besides the pod itself."""

    profile: TaskProfile
    earlier: Sequence[Decision] | None
    """Decisions about the earlier launches of the try, oldest first; None if they are not known."""
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


def from_database(facts: PodFacts) -> Circumstances:
    """Read the task instance of a pod and its ledger. Without them, read what the pod says."""
    key, ti_id = task_key(facts.annotations), facts.annotations.get(TASK_INSTANCE_ID_ANNOTATION)
    if key is None or ti_id is None:
        return from_pod(facts, "The pod does not say which task instance it is of")
    try:
        with create_session() as session:
            profile = read_profiles([ti_id], session=session).get(ti_id)
            entries = ledger.read_histories({key: ti_id}, session=session)[key].entries
    except SQLAlchemyError as error:
        return from_pod(facts, f"The metadata database does not answer ({type(error).__name__})")
    if profile is None:
        return from_pod(facts, "The pod's task instance is not in the metadata database any more")
    before = takewhile(lambda entry: entry.worker_uid != facts.ref.uid, entries)
    return Circumstances(
        profile=profile,
        earlier=[entry.decision for entry in before],
        source="The task, and what was decided about earlier launches, are from the metadata database.",
    )
