# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""What the metadata database says that a decision about a pod depends on."""

from __future__ import annotations

from itertools import takewhile
from typing import Any, NamedTuple

from airflow.models.taskinstance import TaskInstance
from airflow.models.taskinstancekey import TaskInstanceKey
from airflow.utils.session import create_session
from airflow.utils.state import TaskInstanceState
from sqlalchemy import select
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from airflow.providers.cncf.kubernetes_resilience.cli.circumstances import Circumstances, from_pod
from airflow.providers.cncf.kubernetes_resilience.executors.launches.identity import (
    Place,
    locate,
    task_key,
    ti_id_of,
)
from airflow.providers.cncf.kubernetes_resilience.executors.tasks.task_instances import read_profiles
from airflow.providers.cncf.kubernetes_resilience.pods.facts import PodFacts
from airflow_resilience import ledger
from airflow_resilience.decision import NO_POLICY, Decision
from airflow_resilience.ledger import LaunchHistory
from airflow_resilience.retry_policy.evidence import Phase

_KNOWN = "The task, and what was decided about earlier failures of the try, are from the metadata database."


def from_database(facts: PodFacts, phase: Phase | None = None) -> Circumstances:
    """
    Read the task instance of a pod and its ledger. Without them, read what the pod says.

    :param phase: how far the task had come; None if that is to be found out
    """
    key, ti_id = task_key(facts.annotations), ti_id_of(facts)
    if key is None or ti_id is None:
        return from_pod(facts, "The pod does not say which task instance it is of")
    try:
        with create_session() as session:
            present = _read_present(key, session)
            now = str(present.id) if present and present.try_number == key.try_number else ti_id
            whole_try = ledger.read_whole_tries({key: now}, session=session)[key]
            launches = ledger.read_histories({key: ti_id}, until=facts.ref.uid, session=session)[key]
            # A task instance that runs again after a loss has another UUID than its earlier pods.
            earlier_ids = {entry.ti_id for entry in whole_try.entries}
            profile = read_profiles([now], session=session).get(now) if ti_id in {now, *earlier_ids} else None
    except SQLAlchemyError as error:
        return from_pod(facts, f"The metadata database does not answer ({type(error).__name__})")
    if profile is None:
        return from_pod(facts, "The pod's task instance is not in the metadata database any more")
    runs = present is not None and ti_id == now and present.state == TaskInstanceState.RUNNING
    hostname = present.hostname if present else None
    host = locate(hostname, name=facts.ref.name, addresses=facts.addresses)
    entry = whole_try.of_worker(facts.ref.uid)
    # A pod that was given up may have started after all. One that had ended has run nothing of its task.
    if runs and host is Place.HERE and entry is not None and entry.was_pending:
        entry = None
    if phase is None:
        phase = entry.phase if entry else Phase.EXECUTION if runs else None
    elif entry and entry.phase is not phase:
        entry = None
    return Circumstances(
        profile=profile,
        earlier=(
            _decisions_before(facts, whole_try, Phase.EXECUTION)
            if phase is Phase.EXECUTION
            else _decisions_before(facts, launches, Phase.LAUNCH)
        ),
        source=_KNOWN,
        phase=phase,
        recorded=entry.reason if entry else None,
        decided=entry.decision if entry and entry.decision.policy == NO_POLICY else None,
    )


def _decisions_before(facts: PodFacts, history: LaunchHistory, phase: Phase) -> list[Decision]:
    before = takewhile(lambda entry: entry.worker_uid != facts.ref.uid, history.entries)
    return [entry.decision for entry in before if entry.phase is phase]


class _Present(NamedTuple):
    """What a task instance is now."""

    id: Any
    try_number: int
    state: str | None
    hostname: str | None


def _read_present(key: TaskInstanceKey, session: Session) -> _Present | None:
    ti = TaskInstance
    row = session.execute(
        select(ti.id, ti.try_number, ti.state, ti.hostname).where(
            ti.dag_id == key.dag_id,
            ti.task_id == key.task_id,
            ti.run_id == key.run_id,
            ti.map_index == key.map_index,
        )
    ).one_or_none()
    return _Present(*row) if row else None
