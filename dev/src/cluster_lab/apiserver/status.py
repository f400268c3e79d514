# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""API errors as the Kubernetes API reports them: a ``Status`` object with a machine-readable reason.

https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/status/
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

SUCCESS = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}
"""A Status for an operation that has no object to return."""


@dataclass
class ApiError(Exception):
    """A request that fails; the HTTP layer turns it into a Status body."""

    code: int
    reason: str
    message: str
    details: dict[str, Any] = field(default_factory=dict)
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
        details = dict(self.details)
        if self.retry_after is not None:
            details["retryAfterSeconds"] = self.retry_after
        if details:
            status["details"] = details
        return status | {"code": self.code}


@dataclass(frozen=True)
class Cause:
    """One field that makes an object invalid, as it stands in ``details.causes``."""

    field: str
    message: str
    reason: str = "FieldValueInvalid"


def required(path: str, why: str = "") -> Cause:
    """A field that has to be there and is not."""
    return Cause(path, "Required value" + (f": {why}" if why else ""), "FieldValueRequired")


def _object_details(kind: str, name: str) -> dict[str, Any]:
    return {"name": name, "kind": kind}


def not_found(plural: str, name: str) -> ApiError:
    """404 for an object that is not there."""
    message = f'{plural} "{name}" not found'
    return ApiError(404, "NotFound", message, _object_details(plural, name))


def no_such_path() -> ApiError:
    """404 for a path that names no resource of this server."""
    return ApiError(404, "NotFound", "the server could not find the requested resource")


def already_exists(plural: str, name: str) -> ApiError:
    """409 for a create of a name that is taken."""
    message = f'{plural} "{name}" already exists'
    return ApiError(409, "AlreadyExists", message, _object_details(plural, name))


def conflict(kind: str, name: str, why: str) -> ApiError:
    """409 for a write whose assumption about the object does not hold."""
    message = f'Operation cannot be fulfilled on {kind} "{name}": {why}'
    return ApiError(409, "Conflict", message, _object_details(kind, name))


def invalid(kind: str, name: str, causes: list[Cause]) -> ApiError:
    """422 for an object that fails validation."""
    parts = [f"{cause.field}: {cause.message}" for cause in causes]
    text = parts[0] if len(parts) == 1 else f"[{', '.join(parts)}]"
    details = _object_details(kind, name) | {"causes": list(map(asdict, causes))}
    return ApiError(422, "Invalid", f'{kind} "{name}" is invalid: {text}', details)


def bad_request(message: str) -> ApiError:
    """400 for a request that cannot be understood."""
    return ApiError(400, "BadRequest", message)


def expired(message: str) -> ApiError:
    """410 for a resource version or continue token that is no longer in the history."""
    return ApiError(410, "Expired", message)


def method_not_allowed() -> ApiError:
    """405 for a verb that the resource does not have."""
    message = "the server does not allow this method on the requested resource"
    return ApiError(405, "MethodNotAllowed", message)


def internal(message: str) -> ApiError:
    """500 for a failure behind the API."""
    return ApiError(500, "InternalError", f"Internal error occurred: {message}")
