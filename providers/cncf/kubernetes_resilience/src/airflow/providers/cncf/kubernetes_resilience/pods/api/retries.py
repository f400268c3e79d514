# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""What a failed request says about the next attempt, and how long to wait before it. Pure."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto

from airflow.providers.cncf.kubernetes_resilience.pods.api.errors import (
    ConnectionFailedError,
    KubernetesApiError,
    PodConflictError,
    PodNotFoundError,
)
from airflow_resilience.backoff import Backoff

_INVALID = frozenset({400, 413, 422})
_CONFLICT = frozenset({409, 410})

_QUOTA, _MODIFIED, _TOO_OLD = "exceeded quota", "object has been modified", "too old resource version"


class Answer(Enum):
    """
    What the API server says about repeating a request.

    Whether it is repeated is up to the caller: a create call, a deletion and a watch differ in that.
    """

    NOT_FOUND = auto()
    """There is no such pod, or no such namespace."""
    NAME_TAKEN = auto()
    """Another pod has the name."""
    TRANSIENT = auto()
    """The API server is away or overloaded: see :attr:`.KubernetesApiError.transient`."""
    INVALID = auto()
    """The request is at fault, and will be refused again."""
    QUOTA_EXCEEDED = auto()
    """The namespace's quota is used up, until other pods are gone."""
    MODIFIED = auto()
    """Something else has changed an object, such as a quota. The same request may be accepted now."""
    CONFLICT = auto()
    """The object is not the one, or not at the version, that the request is about."""
    REFUSED = auto()
    """
    Anything else. It is about credentials or permissions, or comes from a proxy. Credentials are rotated,
    role bindings are replaced, and a proxy finds its way again, so it may pass within minutes.
    """


def answer_of(error: KubernetesApiError) -> Answer:
    """Classify a failed request. The first row that fits counts."""
    if isinstance(error, PodNotFoundError):
        return Answer.NOT_FOUND
    if isinstance(error, PodConflictError) and error.reason == "AlreadyExists":
        return Answer.NAME_TAKEN
    if error.transient:
        return Answer.TRANSIENT
    if error.status in _INVALID and not isinstance(error, ConnectionFailedError):
        return Answer.INVALID
    if error.status == 403 and _QUOTA in error.message:
        return Answer.QUOTA_EXCEEDED
    if error.status in _CONFLICT:
        return Answer.MODIFIED if _was_modified(error) else Answer.CONFLICT
    return Answer.REFUSED


def retry_delay(
    error: KubernetesApiError, backoff: Backoff, attempt: int, random: Callable[[], float]
) -> float:
    """
    Return the seconds to wait after a failed attempt: the backoff, and at least Retry-After.

    Retry-After alone would not grow: an overloaded API server often says one second, to each attempt.

    :param attempt: number of the attempt that failed, from 1
    :param random: returns a number from 0 up to 1, for the jitter
    """
    return max(backoff.delay(attempt, random), error.retry_after or 0.0)


def _was_modified(error: KubernetesApiError) -> bool:
    # By these words the official provider knows what is worth another create call.
    return _MODIFIED in error.message if error.status == 409 else _TOO_OLD in error.message
