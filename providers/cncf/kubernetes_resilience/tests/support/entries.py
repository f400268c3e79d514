# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Ledger entries about pods that were lost."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from airflow_resilience.context import (
    ContextSource,
    ExecutionContext,
    StateChangeCategory,
    StateChangeReason,
)
from airflow_resilience.decision import Action, AvoidNode, BudgetUse, Decision
from airflow_resilience.ledger_entries import LedgerEntry
from airflow_resilience.retry_policy.evidence import Phase

DUE = datetime(2026, 3, 1, 12, 1, tzinfo=UTC)


def lost(
    launch: int = 1,
    action: Action = Action.RELAUNCH,
    phase: Phase = Phase.LAUNCH,
    *,
    explanation: str = "launch 1 of 2; policy built-in, rule infrastructure",
    cause: str = "drain",
    node: str | None = "node-1",
    budget: tuple[int, int | None] | None = (1, 1),
    ran_out: bool = False,
    avoid_node: AvoidNode = AvoidNode.NONE,
    **fields: Any,
) -> LedgerEntry:
    """Return what the ledger says about a pod that was lost to a drain of its node."""
    metadata: dict[str, Any] = {"cause": cause, "pod": f"pod-{launch}", "namespace": "airflow"}
    if node:
        metadata["node"] = node
    return LedgerEntry(
        **{
            "ti_id": "ti",
            "worker_uid": f"uid-{launch}",
            "worker_name": f"pod-{launch}",
            "reason": "EvictionByEvictionAPI",
            "due": DUE if action is Action.RELAUNCH else None,
            "context": ExecutionContext(
                StateChangeCategory.INFRASTRUCTURE,
                StateChangeReason.WORKER_TERMINATION,
                ContextSource.EXECUTOR,
                metadata,
            ),
            **fields,
        },
        launch=launch,
        phase=phase,
        decision=Decision(
            action=action,
            policy="built-in",
            rule="infrastructure",
            explanation=explanation,
            budget=BudgetUse(*budget) if budget else None,
            ran_out=ran_out,
            avoid_node=avoid_node,
        ),
    )
