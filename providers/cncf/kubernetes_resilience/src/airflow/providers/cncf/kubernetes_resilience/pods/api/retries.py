# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Reads from a failed request whether and when the next attempt follows. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
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
_DENIED = frozenset({401, 403})
_NOT_LET_THROUGH = _DENIED | {405, 501}

_MODIFIED, _TOO_OLD = "object has been modified", "too old resource version"

_FORBIDDEN, _QUOTA = " is forbidden: ", "exceeded quota: "

_MAY_PASS = (
    'User "',
    "error looking up ",
    "no API token found for service account",
    "not yet ready to handle request",
    "service account ",
    "status unknown for quota",
    "unable to CREATE ",
    # A server that a plug-in has asked did not answer: an image policy's webhook, or the API server itself
    *('Post "', 'Get "', "Error contacting webhook: ", "Internal error occurred: ", "Timeout: "),
    *("an error on the server ", "the server ", "etcdserver: ", "context deadline exceeded"),
)
"""
Beginnings of the API server's messages about a forbidden pod if the pod is not the reason: a missing
permission, a service account that is not there yet, a plug-in that does not know enough.

.. seealso:: https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/
"""

_NOT_READY = "not synchronized"
"""Ends of messages of OpenShift's plug-ins, for a moment after the API server's start."""

_FACTORS = {"": Decimal(1), **{unit: Decimal(10) ** (3 * n) for n, unit in enumerate("num", -3)}}
_FACTORS |= {unit: Decimal(1000) ** n for n, unit in enumerate("kMGTPE", 1)}
_FACTORS |= {f"{unit}i": Decimal(1024) ** n for n, unit in enumerate("KMGTPE", 1)}


class Answer(Enum):
    """
    The API server's answer about repeating a request.

    Whether it is repeated is up to the caller: a create call, a deletion and a watch differ in that.
    """

    FORBIDDEN = auto()
    """A rule of the cluster forbids the pod: an admission plug-in, a webhook, or a quota that is smaller than
    the pod."""
    NOT_FOUND = auto()
    """There is no such pod, or no such namespace."""
    NAME_TAKEN = auto()
    """Another pod has the name."""
    TRANSIENT = auto()
    """The API server is unavailable or overloaded: see :attr:`.KubernetesApiError.transient`."""
    INVALID = auto()
    """The request is at fault, and will be refused again."""
    QUOTA_EXCEEDED = auto()
    """The namespace's quota is used up, until other pods are gone."""
    MODIFIED = auto()
    """Something else has changed an object, such as a quota. The same request may be accepted now."""
    CONFLICT = auto()
    """The object is not the one, or not at the version, that the request is about."""
    REFUSED = auto()
    """The API server does not accept the credentials, or a permission or a service account is missing.
    Credentials are rotated and role bindings are replaced, so it may pass within minutes."""
    NOT_LET_THROUGH = auto()
    """A proxy says who may send a request, or which, with a page of its own."""
    FOREIGN = auto()
    """Anything else: a proxy has answered. The request may succeed again within minutes."""


UNANSWERED = frozenset({Answer.TRANSIENT, Answer.FOREIGN})
"""Answers of an API server that is unavailable."""


def answer_of(error: KubernetesApiError) -> Answer:
    """Classify a failed request. The first row that fits counts."""
    if verdict := _verdict(error):
        return verdict
    if isinstance(error, PodNotFoundError):
        return Answer.NOT_FOUND
    if isinstance(error, PodConflictError) and error.reason == "AlreadyExists":
        return Answer.NAME_TAKEN
    if error.transient:
        return Answer.TRANSIENT
    is_of_a_proxy = isinstance(error, ConnectionFailedError)
    if error.status in _INVALID and not is_of_a_proxy:
        return Answer.INVALID
    if error.status in _CONFLICT and not is_of_a_proxy:
        return Answer.MODIFIED if _was_modified(error) else Answer.CONFLICT
    if error.status in _DENIED and type(error) is not ConnectionFailedError:
        return Answer.REFUSED
    return Answer.NOT_LET_THROUGH if error.status in _NOT_LET_THROUGH else Answer.FOREIGN


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


def _verdict(error: KubernetesApiError) -> Answer | None:
    """Return what an admission plug-in says about a pod; None if none does, or one asks to try again."""
    # A webhook that is broken in its own way denies with 500; with the others it asks to be tried again.
    if error.transient and error.status != 500:
        return None
    if error.is_denied_by_webhook:
        return Answer.FORBIDDEN
    subject, _, why = error.message.partition(_FORBIDDEN)
    if subject.startswith("pods") and why.startswith(_QUOTA):
        return Answer.FORBIDDEN if _is_bigger_than_quota(why) else Answer.QUOTA_EXCEEDED
    # A message about a missing permission has no pod name: the pod was not looked at.
    is_about_pod = subject.startswith('pods "') and why
    may_pass = why.startswith(_MAY_PASS) or why.endswith(_NOT_READY)
    return Answer.FORBIDDEN if is_about_pod and not may_pass else None


def _is_bigger_than_quota(why: str) -> bool:
    limits = _amounts(why, "limited")
    requested = _amounts(why, "requested")
    return any(amount > limits.get(resource, math.inf) for resource, amount in requested.items())


def _amounts(why: str, name: str) -> dict[str, Decimal]:
    """Read amounts: ``exceeded quota: q, requested: cpu=1,memory=2Gi, used: ..., limited: ...``."""
    found = {}
    for item in why.partition(f", {name}: ")[2].partition(", ")[0].split(","):
        resource, _, text = item.partition("=")
        number = text.rstrip("numkKMGTPEi")
        try:
            found[resource] = Decimal(number) * _FACTORS[text[len(number) :]]
        except (ArithmeticError, KeyError):
            continue
    return found


def _was_modified(error: KubernetesApiError) -> bool:
    # By these words the official provider knows what is worth another create call.
    return _MODIFIED in error.message if error.status == 409 else _TOO_OLD in error.message
