# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
What is known of a launch, as named values: the fields of log lines, and the attributes of spans.

Nothing here is a text that somebody else has written, such as a container's message.
"""

from __future__ import annotations

from airflow.providers.cncf.kubernetes_resilience.executors.launches.launch import Launch
from airflow_resilience.context import MetadataKey
from airflow_resilience.ledger import LedgerEntry

Fields = dict[str, str | int]


def fields_of(launch: Launch, entry: LedgerEntry | None = None) -> Fields:
    """
    Return what is known of a launch by name. What is not known is left out.

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
