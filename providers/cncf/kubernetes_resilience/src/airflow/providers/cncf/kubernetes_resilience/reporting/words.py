# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Words for people."""

from __future__ import annotations

from typing import Final

from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.causes import TABLE
from airflow_resilience.context import ExecutionContext, StateChangeReason
from airflow_resilience.ledger_entries import LedgerEntry

NOT_KNOWN: Final = "unknown"
"""Stands for a node, or a cause, that is missing in a row of the ledger."""

_SENTENCES: Final = {cause.name: cause.why for cause in TABLE}


_REASONS: Final = {
    StateChangeReason.WORKER_TERMINATION: "Its worker was terminated, and reported that as a failure.",
    StateChangeReason.WORKER_LOST: "Nothing was heard of its worker for too long.",
    StateChangeReason.RESOURCE_EXHAUSTION: "Something that it needs was used up.",
    StateChangeReason.DB_CONNECTION_ERROR: "Its worker could not reach Airflow.",
    StateChangeReason.EXECUTION_TIMEOUT: "It took longer than it was allowed to.",
    StateChangeReason.DAG_RUN_TIMEOUT: "Its Dag run took longer than it was allowed to.",
    StateChangeReason.TASK_ERROR: "Its own code raised an exception.",
    StateChangeReason.MANUAL_CLEAR: "Somebody has cleared it.",
    StateChangeReason.MANUAL_STATE_CHANGE: "Somebody has marked it, or removed it.",
    StateChangeReason.IMAGE_UNAVAILABLE: "Its image could not be pulled.",
    StateChangeReason.VOLUME_UNAVAILABLE: "Its volume could not be attached or mounted.",
    StateChangeReason.CONFIG_UNAVAILABLE: "A secret, a config map or a service account was not there.",
    StateChangeReason.ADMISSION_REFUSED: "Its pod was not accepted.",
    StateChangeReason.START_ERROR: "There could be no pod for it.",
    StateChangeReason.UNKNOWN: "It has failed, and nobody has said why.",
}
"""Sentences about ends of tasks without a lost pod."""


def cause_of(entry: LedgerEntry) -> str:
    """Return the name of a failure's cause, a row of the table of causes."""
    return str(entry.context.metadata.get("cause") or NOT_KNOWN)


def in_words(name: str) -> str | None:
    """Return the sentence about a cause; None for a cause of another version."""
    return _SENTENCES.get(name)


def end_in_words(context: ExecutionContext) -> str:
    """Return a sentence about the end of a task without a lost pod."""
    return _REASONS[context.reason]


def node_of(entry: LedgerEntry) -> str:
    """Return the node of the worker."""
    return str(entry.context.metadata.get("node") or NOT_KNOWN)


def message_of(context: ExecutionContext) -> str | None:
    """Return the last lines of the container, or the platform's message; None for neither."""
    message = context.metadata.get("message") or context.metadata.get("pod_message")
    return None if message is None else str(message)
