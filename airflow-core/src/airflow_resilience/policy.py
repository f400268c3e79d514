# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
What to do about a launch that failed.

Pure: the same question always gets the same answer, and nothing is acted upon here.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

UNLIMITED = -1
"""Value of a limit that is never reached."""


class Action(StrEnum):
    """What becomes of a task instance whose launch failed."""

    RELAUNCH = "relaunch"
    """A new worker for the same try; the task's own retries are not touched."""
    FAIL = "fail"
    """The failure is reported to the scheduler, which retries or fails the task as its author asked."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do, and the sentence that explains it to the person who reads the log."""

    action: Action
    rule: str
    """Short name of the rule that decided."""
    explanation: str


@dataclass(frozen=True, slots=True)
class LaunchFailurePolicy:
    """How often a task instance is launched again after launches that failed."""

    retries: int
    """Relaunches allowed for one try: 0 for none, ``UNLIMITED`` for no limit."""

    def __post_init__(self) -> None:
        if self.retries < UNLIMITED:
            raise ValueError(f"retries must be {UNLIMITED} (unlimited) or more, got {self.retries}")

    @property
    def launches(self) -> str:
        """How many launches one try may take altogether, for people to read."""
        return "unlimited" if self.retries == UNLIMITED else str(self.retries + 1)

    def decide(self, *, pre_execution: bool, relaunches: int) -> Decision:
        """
        Decide about one failed launch.

        :param pre_execution: whether the failure is one of the infrastructure before the task's process
            started, as opposed to one that the task's own worker process caused
        :param relaunches: relaunches that this try has had so far
        """
        used = f"launch {relaunches + 1} of {self.launches}"
        if not pre_execution:
            return Decision(Action.FAIL, "excluded", f"{used}; the worker's own exit is not relaunched")
        if self.retries != UNLIMITED and relaunches >= self.retries:
            return Decision(Action.FAIL, "limit", f"{used}; no relaunch is left")
        return Decision(Action.RELAUNCH, "launch-failure", used)
