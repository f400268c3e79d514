# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Notifies of decisions about workers: logs, metrics, listeners, and Airflow's callbacks."""

from __future__ import annotations

from airflow.callbacks.callback_requests import TaskCallbackRequest
from airflow.models.taskinstancekey import TaskInstanceKey
from airflow.utils.session import create_session

from airflow.providers.cncf.kubernetes_resilience.executors.counters import LAUNCH_FAILURES
from airflow.providers.cncf.kubernetes_resilience.executors.launches.launch import Launch
from airflow_resilience.context import MetadataKey
from airflow_resilience.decision import Action
from airflow_resilience.ledger_entries import LedgerEntry
from airflow_resilience.metrics import BUDGET_EXHAUSTED, count_infrastructure_retry
from airflow_resilience.propagation import listeners
from airflow_resilience.propagation.database import read_failure
from airflow_resilience.propagation.stored import XCOM_KEY
from airflow_resilience.retry_policy.evidence import Phase

Fields = dict[str, str | int]
"""The fields of a log line, or the attributes of a span: none is a text of another program, such as a
container's message."""


def count(key: TaskInstanceKey, entry: LedgerEntry) -> None:
    """Count what was decided about a worker; nothing that is different for each task is a tag."""
    LAUNCH_FAILURES.count(
        action=entry.decision.action,
        category=entry.context.category,
        reason=entry.context.reason,
        cause=entry.context.metadata.get("cause", "unknown"),  # it may have been read back from the ledger
    )
    if entry.phase is Phase.LAUNCH:
        return
    if entry.decision.action is Action.RELAUNCH:
        count_infrastructure_retry(entry.context, key.dag_id, _attempt(entry))
    elif entry.decision.ran_out:
        BUDGET_EXHAUSTED.count(reason=entry.context.reason, dag_id=key.dag_id)


def notify_of_relaunch(key: TaskInstanceKey, entry: LedgerEntry) -> None:
    """Call the listeners' hook of a relaunch."""
    listeners.call(
        "on_task_instance_relaunched",
        task_instance_key=key,
        execution_context=entry.context,
        decision=entry.decision,
        attempt=_attempt(entry),
    )


def carry_context(request: TaskCallbackRequest, key: TaskInstanceKey) -> None:
    """
    Have a callback carry why the task has failed: the next try may begin before it is called.

    :raises sqlalchemy.exc.SQLAlchemyError: if the database does not answer
    """
    with create_session(scoped=False) as session:
        stored = read_failure(key, session=session)
    if stored:
        request.ti.context_carrier = {**(request.ti.context_carrier or {}), XCOM_KEY: stored.to_dict()}


def _attempt(entry: LedgerEntry) -> int:
    """Return which worker of its kind has failed in its try, from 1."""
    return int(entry.context.metadata.get(MetadataKey.INFRASTRUCTURE_ATTEMPT, entry.launch))


def fields_of(launch: Launch, entry: LedgerEntry | None = None) -> Fields:
    """
    Return what is known of a launch by name. Unknown fields are omitted.

    :param entry: what the ledger says about its end; None if it is not in there
    """
    key, facts = launch.key, launch.facts
    known = {
        "dag_id": key.dag_id,
        "task_id": key.task_id,
        "run_id": key.run_id,
        "map_index": key.map_index,
        "try_number": key.try_number,
        "launch": launch.number,
        "namespace": launch.namespace,
        "pod": launch.name,
        "node": facts.node if facts else None,
        **(_of_entry(entry) if entry else {}),
    }
    return {name: value for name, value in known.items() if value not in (None, "")}


def _of_entry(entry: LedgerEntry) -> dict[str, str | int | None]:
    metadata = entry.context.metadata
    return {
        "cause": metadata.get(MetadataKey.CAUSE),
        "category": entry.context.category.value,
        "reason": entry.context.reason.value,
        "decision": entry.decision.action.value,
        "policy": entry.decision.policy,
        "rule": entry.decision.rule,
        "attempt": metadata.get(MetadataKey.INFRASTRUCTURE_ATTEMPT),
    }
