# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Decision about a failure: a frozen value that the policy engine returns, and the executor acts on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from airflow_resilience.mutation import Mutation

UNLIMITED = -1
"""Value of a limit that is never reached."""

NO_POLICY = "-"
"""Policy of a decision that no policy has made. The decision counts against no limit."""

LONGEST_DELAY = 366 * 86_400.0
"""Seconds: a year. A longer delay means "never", and its date overflows."""


class Action(StrEnum):
    """Actions for a task whose worker failed."""

    RELAUNCH = "relaunch"
    """Another worker, at the infrastructure's cost: the task's own retries are not touched."""
    COUNT = "count"
    """The failure counts: Airflow retries or fails the task as its author asked."""
    FAIL = "fail"
    """The task fails for good, without its remaining retries."""


class AvoidNode(StrEnum):
    """Modes of avoiding the failed worker's node."""

    NONE = "none"
    PREFER = "prefer"
    """The next worker uses that node only if no other node fits."""
    REQUIRE = "require"
    """The next worker never uses that node, and stays Pending if no other node fits."""


class BudgetUse(NamedTuple):
    """The used part of a budget."""

    used: int
    allowed: int | None
    """None for no limit, or an unknown limit."""

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any] | None) -> BudgetUse | None:
        """
        Read the field of :meth:`Decision.to_dict`; None stands for no budget.

        :raises KeyError, TypeError, ValueError: if the fields are no use of a budget
        """
        if fields is None:
            return None
        allowed = fields["allowed"]
        return cls(int(fields["used"]), None if allowed is None else int(allowed))


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """An action, and a sentence for the log that explains the action."""

    action: Action
    policy: str
    """Name of the policy that decided."""
    rule: str
    """Name of the rule that decided, or of its substitute, such as ``defaultAction``."""
    explanation: str
    delay: float = 0.0
    """Seconds before the next worker is launched, a year at most; 0 unless the action is a relaunch."""
    avoid_node: AvoidNode = AvoidNode.NONE
    mutation: Mutation | None = None
    """Changes of the next launch; None for no changes."""
    budget: BudgetUse | None = None
    """Relaunches of the try with this one, and their limit; None if no limit was asked."""
    ran_out: bool = False
    """Whether a rule asked for a relaunch, and the budget was exhausted."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "delay", min(LONGEST_DELAY, max(0.0, self.delay)))

    def to_dict(self) -> dict[str, Any]:
        """Return the decision as JSON has it."""
        return {
            "action": self.action.value,
            "policy": self.policy,
            "rule": self.rule,
            "explanation": self.explanation,
            "delay": self.delay,
            "avoid_node": self.avoid_node.value,
            "mutation": self.mutation and self.mutation.to_dict(),
            "budget": self.budget and self.budget._asdict(),
            "ran_out": self.ran_out,
        }

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Decision:
        """
        Read what :meth:`to_dict` has returned. Other fields are ignored.

        :raises ValueError: if a field is missing or cannot be used
        """
        try:
            return cls(
                action=Action(fields["action"]),
                policy=str(fields["policy"]),
                rule=str(fields["rule"]),
                explanation=str(fields["explanation"]),
                delay=float(fields["delay"]),
                avoid_node=AvoidNode(fields["avoid_node"]),
                # Rows of version 0.1.0 have none of these.
                mutation=Mutation.from_dict(fields["mutation"]) if fields.get("mutation") else None,
                budget=BudgetUse.from_dict(fields.get("budget")),
                ran_out=bool(fields.get("ran_out")),
            )
        except (KeyError, TypeError, OverflowError) as error:
            raise ValueError(f"not a decision: {fields!r}") from error
