# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
Errors of requests to the Kubernetes API.

Callers decide by class, ``status`` and :func:`.retries.answer_of`. The text is for people, so it is cut.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MAX_TEXT_LENGTH = 1000
"""Characters of the server's message that are shown. A message may quote a refused pod in full, with its
environment, which belongs neither in a log line nor in a task's history."""

MAX_MESSAGE_LENGTH = 65_536
"""Characters of the server's message that are kept. Only a secret that is there as a whole can be masked, so
the text is cut afterwards."""

MAX_RETRY_AFTER = 300.0
"""Seconds: upper limit of a Retry-After. A wrong value of a proxy must not stop the executor for a day."""

_TRANSIENT = frozenset({408, 429, 500, 502, 503, 504})


class KubernetesApiError(Exception):
    """
    A request to the API server that did not succeed.

    :param message: what the server (or the connection) said; cut to :data:`MAX_MESSAGE_LENGTH`
    :param status: HTTP status; None if there was no usable answer
    :param reason: the machine-readable ``Status.reason``, such as ``AlreadyExists``
    :param retry_after: seconds to wait before the next attempt, if the server named a time
    """

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        reason: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        self.message = message[:MAX_MESSAGE_LENGTH]
        self.status = status
        self.reason = reason
        self.retry_after = retry_after
        super().__init__(_shown(message))

    def __str__(self) -> str:
        head = " ".join(str(part) for part in (self.status, self.reason) if part is not None)
        return f"{head}: {_shown(self.message)}" if head else _shown(self.message)

    @property
    def transient(self) -> bool:
        """Whether the same request may succeed later without a change."""
        return self.status is None or self.status in _TRANSIENT or self.retry_after is not None

    @property
    def is_denied_by_webhook(self) -> bool:
        """Whether an admission webhook has denied the request, with a status that it has chosen."""
        return self.message.startswith('admission webhook "') and '" denied the request' in self.message

    @property
    def is_without_webhook(self) -> bool:
        """
        Whether the API server could not ask an admission webhook that has to be asked.

        .. seealso:: https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/#failure-policy
        """
        # A webhook that denies chooses status and words, and may speak of another one.
        says_so = 'failed calling webhook "' in self.message and not self.is_denied_by_webhook
        return self.status == 500 and says_so

    @property
    def leaves_open(self) -> bool:
        """Whether the request may have been carried out nevertheless, or may still be."""
        is_answer = self.is_denied_by_webhook or self.is_without_webhook
        return self.status is None or (self.status >= 500 and not is_answer)


class ConnectionFailedError(KubernetesApiError):
    """
    No usable answer: refused, reset, timed out, TLS, or cut off. The request may have been carried out.

    If there is a status, the answer is a proxy's and not the API server's.
    """


class ForeignAnswerError(ConnectionFailedError):
    """
    A status of success, and not what the API server answers: a login page. The request may have been carried
    out.
    """

    leaves_open = True
    transient = False


class UnknownOwnerError(ConnectionFailedError):
    """The name is taken, and the pod that has it could not be read. The pod may be the requested one."""

    leaves_open = True


class CreationCancelledError(KubernetesApiError):
    """The request was cancelled before it was sent, and will never be carried out."""

    leaves_open = transient = False


class PodNotFoundError(KubernetesApiError):
    """404: there is no such object."""


class PodConflictError(KubernetesApiError):
    """409: the name is taken, a precondition (UID) does not hold, or a quota is being changed."""


class ResourceExpiredError(KubernetesApiError):
    """410: the resource version or the continue token has expired."""


_SAID_OF_THE_REQUEST = frozenset({400, 401, 403, 413, 422})
"""Statuses for a request that is at fault, or whose sender is. The API server sends a ``Status`` object with
them. Proxies send them without one, for requests that they do not understand or do not let through."""

_BY_STATUS: dict[int, type[KubernetesApiError]] = {
    404: PodNotFoundError,
    409: PodConflictError,
    410: ResourceExpiredError,
}


def error_from_status(
    status: int, body: Any, *, text: str = "", headers: Mapping[str, str] | None = None
) -> KubernetesApiError:
    """
    Make the exception for a refusal.

    :param status: HTTP status, or ``Status.code`` of an ERROR event in a watch
    :param body: the decoded answer; used if it is a ``v1.Status``
    :param text: the message if it is not
    :param headers: the answer's headers, for ``Retry-After``
    """
    if not isinstance(body, Mapping):
        body = {}
    message, reason = body.get("message"), body.get("reason")
    kind = _BY_STATUS.get(status, KubernetesApiError)
    is_status = body.get("kind") == "Status" or (status in _BY_STATUS and bool(reason))
    is_of_a_proxy = reason != "NotFound" if status == 404 else not is_status
    if is_of_a_proxy and (status in _BY_STATUS or status in _SAID_OF_THE_REQUEST):
        # The answer of a proxy says nothing about the pod.
        kind = ConnectionFailedError
    return kind(
        message if isinstance(message, str) and message else text or f"HTTP status {status}",
        status=status,
        reason=reason if isinstance(reason, str) and reason else None,
        retry_after=_retry_after(body, headers or {}),
    )


def _shown(message: str) -> str:
    return message if len(message) <= MAX_TEXT_LENGTH else message[:MAX_TEXT_LENGTH] + "..."


def _retry_after(body: Mapping[str, Any], headers: Mapping[str, str]) -> float | None:
    # HTTP defines the header. A Status in a watch has no headers, but may have the time in its details, where
    # 0 means "not set". Kubernetes sends seconds, so the header's date form is not read.
    details = body.get("details")
    in_body = details.get("retryAfterSeconds") if isinstance(details, Mapping) else None
    for value in (headers.get("Retry-After"), in_body):
        try:
            seconds = float(value) if value is not None else 0.0
        except (OverflowError, TypeError, ValueError):
            continue
        if seconds > 0:  # neither 0 nor "nan"
            return min(seconds, MAX_RETRY_AFTER)
    return None
