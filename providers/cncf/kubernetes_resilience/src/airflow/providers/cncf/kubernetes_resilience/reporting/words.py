# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Words for people, and numbers that the ledger has only in words. Pure."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.causes import TABLE
from airflow_resilience.decision import Action, Decision
from airflow_resilience.ledger import LedgerEntry

NOT_KNOWN: Final = "unknown"
"""What stands for a node, or a cause, that a row of the ledger does not have."""

_SENTENCES: Final = {cause.name: cause.why for cause in TABLE}

_OF_LAUNCHES: Final = re.compile(r"\Alaunch (\d+) of (\d+|unlimited)")
_OF_LOSSES: Final = re.compile(r"\Ainfrastructure (?:retry|retries used:) (\d+) of (\d+|unlimited)")
"""How the explanation of a decision begins. A test has the policy engine write each of these."""

_RAN_OUT: Final = re.compile(r"; no (?:relaunch|infrastructure retry) is left; ")


class Budget(NamedTuple):
    """How much of a limit is used."""

    used: int
    allowed: int | None
    """None if there is no limit, or it is not known."""


def cause_of(entry: LedgerEntry) -> str:
    """Return the name of a failure's cause, a row of the table of causes."""
    return str(entry.context.metadata.get("cause") or NOT_KNOWN)


def in_words(name: str) -> str | None:
    """Return the sentence about a cause; None if this version has no such cause."""
    return _SENTENCES.get(name)


def node_of(entry: LedgerEntry) -> str:
    """Return on which node the worker was."""
    return str(entry.context.metadata.get("node") or NOT_KNOWN)


def budget_of(decision: Decision) -> Budget | None:
    """Return how many relaunches a try has had with this one; None if the decision is not about a budget."""
    if found := _OF_LAUNCHES.match(decision.explanation):
        launch, launches = int(found[1]), _allowed(found[2])
        # The first launch of a try is no relaunch.
        used = launch if decision.action is Action.RELAUNCH else launch - 1
        return Budget(used, None if launches is None else launches - 1)
    if found := _OF_LOSSES.match(decision.explanation):
        return Budget(int(found[1]), _allowed(found[2]))
    return None


def ran_out(decision: Decision) -> bool:
    """Whether a rule would have had the task launched again, and no budget was left for it."""
    return decision.action is Action.COUNT and _RAN_OUT.search(decision.explanation) is not None


def _allowed(text: str) -> int | None:
    return None if text == "unlimited" else int(text)
