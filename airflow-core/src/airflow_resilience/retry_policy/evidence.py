# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Evidence about a failure: all facts that rules can see."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum

from airflow_resilience.context import ExecutionContext


class Phase(StrEnum):
    """Phases of a task in which its worker fails."""

    LAUNCH = "launch"
    """The task instance is still queued: none of the task's code has run."""
    EXECUTION = "execution"
    """The task was running."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerEvidence:
    """A container of the worker that failed or was waiting."""

    name: str
    is_init: bool = False
    """Whether the container has to run before the worker container (init containers and native sidecars)."""
    exit_code: int | None = None
    """None for a container that did not end, or an unknown exit code."""
    reason: str | None = None
    message: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConditionEvidence:
    """A condition that the platform has set, or that a rule asks for."""

    type: str
    status: str
    reason: str | None = None
    """In a rule, None stands for any reason."""

    def __str__(self) -> str:
        return f"{self.type}={self.status}" + (f" ({self.reason})" if self.reason else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Everything that rules can check about one failure."""

    phase: Phase
    context: ExecutionContext
    reasons: Collection[str] = ()
    """Reasons of the worker as a whole, in the platform's words and in ours (``Evicted``, ``Deleted``). The
    reasons of its containers are in :attr:`containers`."""
    message: str | None = None
    """Message of the worker as a whole."""
    containers: tuple[ContainerEvidence, ...] = ()
    deciding_container: str | None = None
    """Name of the container whose failure ended the worker; None if no container did."""
    conditions: tuple[ConditionEvidence, ...] = ()
    exited_by_itself: bool = False
    """Whether the worker's main container ended without a signal or a termination from outside."""
