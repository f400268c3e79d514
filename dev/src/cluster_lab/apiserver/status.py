# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""API errors as the Kubernetes API reports them: a ``Status`` object with a machine-readable reason.

https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/status/
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

SUCCESS = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}
"""A Status for an operation that has no object to return."""


@dataclass
class ApiError(Exception):
    """A request that fails; the HTTP layer turns it into a Status body."""

    code: int
    reason: str
    message: str
    retry_after: int | None = None
    """Seconds for the Retry-After header; None sends no such header."""
    page: str | None = None
    """What the body is in place of a Status: somebody between client and API server has answered."""

    def status(self) -> dict[str, Any]:
        """:returns: the Status object that is the body of the response, or the object of an ERROR event."""
        status: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
        }
        if self.retry_after is not None:
            status["details"] = {"retryAfterSeconds": self.retry_after}
        return status | {"code": self.code}


def not_found(plural: str, name: str) -> ApiError:
    """404 for an object that is not there."""
    return ApiError(404, "NotFound", f'{plural} "{name}" not found')


def conflict(kind: str, name: str, why: str) -> ApiError:
    """409 for a write whose assumption about the object does not hold."""
    return ApiError(409, "Conflict", f'Operation cannot be fulfilled on {kind} "{name}": {why}')


def invalid(kind: str, name: str, problems: list[str]) -> ApiError:
    """422 for an object that fails validation."""
    return ApiError(422, "Invalid", f'{kind} "{name}" is invalid: {", ".join(problems)}')


def expired(message: str) -> ApiError:
    """410 for a resource version or continue token that is no longer in the history."""
    return ApiError(410, "Expired", message)


def internal(message: str) -> ApiError:
    """500 for a failure behind the API."""
    return ApiError(500, "InternalError", f"Internal error occurred: {message}")
