# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""What to do about a failure: a frozen value, returned by the policy engine and acted upon elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

UNLIMITED = -1
"""Value of a limit that is never reached."""

NO_POLICY = "-"
"""Stands as the policy of a decision that no policy was asked for: it counts against no limit."""

LONGEST_DELAY = 366 * 86_400.0
"""Seconds, a year. Whoever asks for more means "never", and times far from now cannot be calculated with."""


class Action(StrEnum):
    """What becomes of a task whose worker failed."""

    RELAUNCH = "relaunch"
    """Another worker, at the infrastructure's cost: the task's own retries are not touched."""
    COUNT = "count"
    """The failure counts: Airflow retries or fails the task as its author asked."""
    FAIL = "fail"
    """The task fails for good, whatever retries it has left."""


class AvoidNode(StrEnum):
    """Whether the next worker stays away from the node of the one that failed."""

    NONE = "none"
    PREFER = "prefer"
    """It goes there only if there is no other node for it."""
    REQUIRE = "require"
    """It waits rather than go there, for ever if need be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What to do, and the sentence that explains it to the person who reads the log."""

    action: Action
    policy: str
    """Name of the policy that decided."""
    rule: str
    """Name of its rule that decided, or of what stood in for one: a limit, the default action."""
    explanation: str
    delay: float = 0.0
    """Seconds before the next worker is launched; 0 unless the action is a relaunch."""
    avoid_node: AvoidNode = AvoidNode.NONE

    def to_dict(self) -> dict[str, Any]:
        """Return the decision as JSON has it."""
        return {
            "action": self.action.value,
            "policy": self.policy,
            "rule": self.rule,
            "explanation": self.explanation,
            "delay": self.delay,
            "avoid_node": self.avoid_node.value,
        }

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Decision:
        """
        Read what :meth:`to_dict` has returned; other fields beside it are not looked at.

        A delay that nobody can wait for is cut to one that can be calculated with.

        :raises ValueError: if a field is missing or cannot be used
        """
        try:
            return cls(
                action=Action(fields["action"]),
                policy=str(fields["policy"]),
                rule=str(fields["rule"]),
                explanation=str(fields["explanation"]),
                delay=min(LONGEST_DELAY, max(0.0, float(fields["delay"]))),
                avoid_node=AvoidNode(fields["avoid_node"]),
            )
        except (KeyError, TypeError, OverflowError) as error:
            raise ValueError(f"not a decision: {fields!r}") from error
