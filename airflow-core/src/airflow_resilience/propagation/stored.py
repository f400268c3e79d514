# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
The forms in which the context of a failure travels to where it is asked for.

XComs of the task instance store it. What Airflow sends to its DAG processor for a callback carries a copy:
the next run of the task may have begun by then, and the XComs be gone. An environment variable tells that
next run. All have the same content, which is bounded.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from airflow_resilience.context import ExecutionContext

XCOM_KEY = "airflow_resilience_execution_context"
"""
Key of the XCom that a worker writes, and of the copy in a task instance's ``context_carrier``. Airflow
removes the XCom when the task begins anew, as it does with every XCom of a task.
"""

SETTLED_XCOM_KEY = "airflow_resilience_settled_context"
"""
Key of the XCom that an executor writes with its decision that a try has failed, under the lock of the task
instance's row. What a worker says of the same try does not count then, whenever it is written.
"""

XCOM_KEYS = (SETTLED_XCOM_KEY, XCOM_KEY)
"""What counts comes first."""

PREVIOUS_FAILURE = "AIRFLOW_RESILIENCE_PREVIOUS_FAILURE"
"""Environment variable of a worker whose task has failed before, or had lost its worker."""

TEXT_LIMIT = 2048
"""
Characters of each text that are kept: its beginning. What Kubernetes keeps of a log is not cut by it, since
what was wrong stands at its end.
"""

NUMBER_LIMIT = 50
"""Metadata that are kept. Nothing here has as many."""


class StoredContext(NamedTuple):
    """A context, and the run of a task that it is for."""

    ti_id: str
    """The task instance's UUID."""
    try_number: int
    context: ExecutionContext
    explanation: str = ""
    """Why the task is launched again, if that is at the infrastructure's cost."""

    def to_dict(self) -> dict[str, Any]:
        """Return what is stored; texts are cut."""
        fields = self.context.to_dict()
        kept = list(fields["metadata"].items())[:NUMBER_LIMIT]
        fields["metadata"] = {_cut(name): _cut(value) for name, value in kept}
        stored = {"ti_id": self.ti_id, "try_number": self.try_number, "context": fields}
        return stored | ({"explanation": _cut(self.explanation)} if self.explanation else {})

    def to_json(self) -> str:
        """
        Return the value of the environment variable.

        Kubernetes expands ``$(NAME)`` in it, which a message may contain.
        """
        return json.dumps(self.to_dict()).replace("$", "\\u0024")

    @classmethod
    def from_dict(cls, fields: object) -> StoredContext | None:
        """Read what :meth:`to_dict` has returned; None if it is anything else."""
        if not isinstance(fields, Mapping):
            return None
        try:
            context = ExecutionContext.from_dict(fields["context"])
            explanation = str(fields.get("explanation") or "")
            return cls(str(fields["ti_id"]), int(fields["try_number"]), context, explanation)
        except (KeyError, OverflowError, TypeError, ValueError):
            return None

    @classmethod
    def from_json(cls, text: str | None) -> StoredContext | None:
        """Read the JSON text of :meth:`to_dict`; None if it is anything else."""
        try:
            return cls.from_dict(json.loads(text or "null"))
        except (ValueError, RecursionError):
            return None


def _cut(value: Any) -> Any:
    if value is None or isinstance(value, bool | int):
        return value
    # Nothing here has values of any other kind; somebody else's may be as large as they like.
    text = str(value)
    cut = text if len(text) <= TEXT_LIMIT else f"{text[:TEXT_LIMIT]}…"
    # What PostgreSQL does not take for JSON.
    return cut.replace("\0", "").encode(errors="replace").decode()
