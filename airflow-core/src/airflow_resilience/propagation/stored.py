# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
Stored forms of the context of a failure.

XComs of the task instance store the context. A callback request of Airflow carries a copy: the next run of
the task may have removed the XComs by then. An environment variable passes the context to that next run. All
have the same content, which is bounded.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from airflow_resilience.context import ExecutionContext

XCOM_KEY = "airflow_resilience_execution_context"
"""
Key of the XCom that a worker writes, and of the copy in a task instance's ``context_carrier``. Airflow
removes all XComs of a task when the task begins anew.
"""

SETTLED_XCOM_KEY = "airflow_resilience_settled_context"
"""
Key of the XCom that an executor writes with its decision that a try has failed, under the lock of the task
instance's row. The worker's XCom about the same try does not count then, even if written later.
"""

XCOM_KEYS = (SETTLED_XCOM_KEY, XCOM_KEY)
"""The key that takes precedence comes first."""

PREVIOUS_FAILURE = "AIRFLOW_RESILIENCE_PREVIOUS_FAILURE"
"""Environment variable of a worker whose task has failed before, or had lost its worker."""

TEXT_LIMIT = 2048
"""
Characters of each text that are kept: its beginning. Log lines that Kubernetes keeps are not longer: the
error stands at their end.
"""

NUMBER_LIMIT = 50
"""Number of metadata that are kept. No context of ours has as many."""


class StoredContext(NamedTuple):
    """A context, and the run of a task to which it belongs."""

    ti_id: str
    """The task instance's UUID."""
    try_number: int
    context: ExecutionContext
    explanation: str = ""
    """Explanation of a relaunch at the infrastructure's cost."""

    def to_dict(self) -> dict[str, Any]:
        """Return the stored fields; texts are cut."""
        fields = self.context.to_dict()
        kept = list(fields["metadata"].items())[:NUMBER_LIMIT]
        fields["metadata"] = {_cut(name): _cut(value) for name, value in kept}
        stored = {"ti_id": self.ti_id, "try_number": self.try_number, "context": fields}
        return stored | ({"explanation": _cut(self.explanation)} if self.explanation else {})

    def to_json(self) -> str:
        """
        Return the value of the environment variable, and of the XCom.

        Kubernetes expands ``$(NAME)`` in it, which a message may contain. The XCom is a text: Airflow passes
        a removed value to the configured XCom backend, and many backends expect texts.
        """
        return json.dumps(self.to_dict()).replace("$", "\\u0024")

    @classmethod
    def from_dict(cls, fields: object) -> StoredContext | None:
        """Read what :meth:`to_dict` has returned; None for anything else."""
        if not isinstance(fields, Mapping):
            return None
        try:
            context = ExecutionContext.from_dict(fields["context"])
            explanation = str(fields.get("explanation") or "")
            return cls(str(fields["ti_id"]), int(fields["try_number"]), context, explanation)
        except (KeyError, OverflowError, TypeError, ValueError):
            return None

    @classmethod
    def from_json(cls, text: Any) -> StoredContext | None:
        """Read the JSON text of :meth:`to_dict`; None for anything else."""
        try:
            return cls.from_dict(json.loads(text or "null"))
        except (TypeError, ValueError, RecursionError):
            return None


def _cut(value: Any) -> Any:
    if value is None or isinstance(value, bool | int):
        return value
    # Our contexts have no values of another type; those of other components may be large.
    text = str(value)
    cut = text if len(text) <= TEXT_LIMIT else f"{text[:TEXT_LIMIT]}…"
    # PostgreSQL accepts neither in JSON.
    return cut.replace("\0", "").encode(errors="replace").decode()
