# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Words for people. Pure."""

from __future__ import annotations

from typing import Final

from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.causes import TABLE
from airflow_resilience.ledger import LedgerEntry

NOT_KNOWN: Final = "unknown"
"""What stands for a node, or a cause, that a row of the ledger does not have."""

_SENTENCES: Final = {cause.name: cause.why for cause in TABLE}


def cause_of(entry: LedgerEntry) -> str:
    """Return the name of a failure's cause, a row of the table of causes."""
    return str(entry.context.metadata.get("cause") or NOT_KNOWN)


def in_words(name: str) -> str | None:
    """Return the sentence about a cause; None if this version has no such cause."""
    return _SENTENCES.get(name)


def node_of(entry: LedgerEntry) -> str:
    """Return on which node the worker was."""
    return str(entry.context.metadata.get("node") or NOT_KNOWN)
