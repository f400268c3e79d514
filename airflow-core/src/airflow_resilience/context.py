# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
Reasons for which the state of a task changes. The process that notices the failure makes the value.

The names are those of AIP-97. Some reasons of launch failures are not in its list.

.. seealso:: https://cwiki.apache.org/confluence/display/AIRFLOW/AIP-97+Infrastructure-Aware+Task+Execution+and+Context+Propagation
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class StateChangeCategory(StrEnum):
    """Kinds of state changes, by who has to act."""

    INFRASTRUCTURE = "INFRASTRUCTURE"
    """The platform failed; the same work would succeed elsewhere or later."""
    APPLICATION = "APPLICATION"
    """The task's own process, image or settings failed, and most likely will again."""
    TIMEOUT = "TIMEOUT"
    """A time limit was reached."""
    USER_ACTION = "USER_ACTION"
    """A person asked for the change."""


class StateChangeReason(StrEnum):
    """Reasons of state changes, in words that do not depend on the platform."""

    WORKER_TERMINATION = "WORKER_TERMINATION"
    """The worker was terminated: by a drain, a preemption, an eviction or a deletion."""
    WORKER_LOST = "WORKER_LOST"
    """The worker is gone for an unknown reason."""
    RESOURCE_EXHAUSTION = "RESOURCE_EXHAUSTION"
    DB_CONNECTION_ERROR = "DB_CONNECTION_ERROR"
    """The worker could not reach Airflow."""
    EXECUTION_TIMEOUT = "EXECUTION_TIMEOUT"
    """The task, a phase of it, or its container took longer than it was allowed to."""
    DAG_RUN_TIMEOUT = "DAG_RUN_TIMEOUT"
    """The DAG run took longer than it was allowed to."""
    TASK_ERROR = "TASK_ERROR"
    """The task's own code raised an exception."""
    MANUAL_CLEAR = "MANUAL_CLEAR"
    """The task instance was cleared."""
    MANUAL_STATE_CHANGE = "MANUAL_STATE_CHANGE"
    """The task instance was marked as something else, or removed."""
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
    """Components that notice a state change."""

    WORKER = "WORKER"
    EXECUTOR = "EXECUTOR"
    SCHEDULER = "SCHEDULER"
    API = "API"


class MetadataKey(StrEnum):
    """
    Names of further facts about a failure. Unknown facts have no entry.

    Values are texts, unless stated otherwise.
    """

    POD = "pod"
    """Name of the worker's pod."""
    NAMESPACE = "namespace"
    """Namespace of that pod."""
    UID = "uid"
    """UID of that pod; a pod that was never created has none."""
    NODE = "node"
    """Node on which the pod ran, or was to run."""
    PHASE = "phase"
    """Last known phase of the pod."""
    POD_REASON = "pod_reason"
    """Reason in the status of the pod."""
    POD_MESSAGE = "pod_message"
    """Message in the status of the pod."""
    CONDITION = "condition"
    """Type of the condition that disrupted the pod, or keeps it from a node."""
    CONDITION_REASON = "condition_reason"
    """Reason of that condition."""
    CONTAINER = "container"
    """Name of the container that decides why the pod failed."""
    CONTAINER_TYPE = "container_type"
    """Type of that container: `worker`, `init` or `sidecar`."""
    CONTAINER_REASON = "container_reason"
    """Reason of that container's state, terminated or waiting."""
    EXIT_CODE = "exit_code"
    """Exit code of that container: an integer."""
    SIGNAL = "signal"
    """Number of the signal that ended that container: an integer."""
    MESSAGE = "message"
    """Message of that container, else of the condition or the exception; a long message is cut."""
    CAUSE = "cause"
    """Row of the table of causes."""
    LAUNCH = "launch"
    """Number of the launch in its try: an integer, from 1."""
    INFRASTRUCTURE_ATTEMPT = "infrastructure_attempt"
    """Number of the run in its try: an integer, from 1, 1 more for each infrastructure retry."""
    EXCEPTION = "exception"
    """Type of the exception that ended the task, with its module."""
    STATE = "state"
    """State that Airflow or a user has set meanwhile; `removed` for a task instance that is gone."""


VERSION = 1
"""Version of what :meth:`ExecutionContext.to_dict` returns. A name that is added does not change the
version."""


@dataclass(frozen=True, slots=True)
class ExecutionContext:
    """The reason for which a task's state changed."""

    category: StateChangeCategory
    reason: StateChangeReason
    source: ContextSource
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """Further facts, JSON-serialisable. The names are those of :class:`MetadataKey`."""

    def to_dict(self) -> dict[str, Any]:
        """Return the context as JSON has it."""
        return {
            "version": VERSION,
            "category": self.category.value,
            "reason": self.reason.value,
            "source": self.source.value,
            "metadata": {str(name): value for name, value in self.metadata.items()},
        }

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> ExecutionContext:
        """
        Read what :meth:`to_dict` has returned.

        Fields without a version are of the first one. A newer version is read if category, reason and source
        are known here; its additional fields are ignored.

        :raises ValueError: if the fields are no execution context
        """
        try:
            if int(fields.get("version", VERSION)) < 1:
                raise ValueError(f"not a version of an execution context: {fields['version']!r}")
            return cls(
                StateChangeCategory(fields["category"]),
                StateChangeReason(fields["reason"]),
                ContextSource(fields["source"]),
                dict(fields["metadata"]),
            )
        except (AttributeError, KeyError, OverflowError, TypeError) as error:
            raise ValueError(f"not an execution context: {fields!r}") from error
