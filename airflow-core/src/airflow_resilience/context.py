# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
Why the state of a task changed. The value is made where the failure is seen, and passed on from there.

The names are those of AIP-97. Some reasons of launch failures are not in its list.

.. seealso:: https://cwiki.apache.org/confluence/display/AIRFLOW/AIP-97+Infrastructure-Aware+Task+Execution+and+Context+Propagation
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class StateChangeCategory(StrEnum):
    """Who has to do something about it."""

    INFRASTRUCTURE = "INFRASTRUCTURE"
    """The platform failed; the same work would succeed elsewhere or later."""
    APPLICATION = "APPLICATION"
    """The task's own process, image or settings failed, and most likely will again."""
    TIMEOUT = "TIMEOUT"
    """A time limit was reached."""
    USER_ACTION = "USER_ACTION"
    """A person asked for it."""


class StateChangeReason(StrEnum):
    """What happened, in words that do not depend on the platform."""

    WORKER_TERMINATION = "WORKER_TERMINATION"
    """The worker was terminated: by a drain, a preemption, an eviction or a deletion."""
    WORKER_LOST = "WORKER_LOST"
    """The worker is gone, and nobody says why."""
    RESOURCE_EXHAUSTION = "RESOURCE_EXHAUSTION"
    DB_CONNECTION_ERROR = "DB_CONNECTION_ERROR"
    EXECUTION_TIMEOUT = "EXECUTION_TIMEOUT"
    MANUAL_CLEAR = "MANUAL_CLEAR"
    IMAGE_UNAVAILABLE = "IMAGE_UNAVAILABLE"
    VOLUME_UNAVAILABLE = "VOLUME_UNAVAILABLE"
    CONFIG_UNAVAILABLE = "CONFIG_UNAVAILABLE"
    """A secret, a config map or a service account that the worker needs is not there."""
    ADMISSION_REFUSED = "ADMISSION_REFUSED"
    """A node or the platform did not admit the worker."""
    START_ERROR = "START_ERROR"
    """The worker, or something that runs before it, could not be started, or ended at once."""
    UNKNOWN = "UNKNOWN"
    """Nothing more is known."""


class ContextSource(StrEnum):
    """Who noticed it."""

    WORKER = "WORKER"
    EXECUTOR = "EXECUTOR"
    SCHEDULER = "SCHEDULER"
    API = "API"


@dataclass(frozen=True, slots=True)
class ExecutionContext:
    """Why a task's state changed."""

    category: StateChangeCategory
    reason: StateChangeReason
    source: ContextSource
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """Whatever else is known, JSON-serialisable; its names are those of the platform."""

    def to_dict(self) -> dict[str, Any]:
        """Return the context as JSON has it."""
        return {
            "category": self.category.value,
            "reason": self.reason.value,
            "source": self.source.value,
            "metadata": dict(self.metadata),
        }

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> ExecutionContext:
        """
        Read what :meth:`to_dict` has returned.

        :raises ValueError: if it is anything else
        """
        try:
            return cls(
                StateChangeCategory(fields["category"]),
                StateChangeReason(fields["reason"]),
                ContextSource(fields["source"]),
                dict(fields["metadata"]),
            )
        except (KeyError, TypeError) as error:
            raise ValueError(f"not an execution context: {fields!r}") from error
