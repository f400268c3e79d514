# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""What a failed request says about the next attempt, and when that is made."""

from __future__ import annotations

import pytest

from airflow.providers.cncf.kubernetes_resilience.pods.api.errors import (
    ConnectionFailedError,
    CreationCalledOffError,
    KubernetesApiError,
    UnknownOwnerError,
    error_from_status,
)
from airflow.providers.cncf.kubernetes_resilience.pods.api.retries import Answer, answer_of, retry_delay
from airflow_resilience.backoff import Backoff

BACKOFF = Backoff(initial=1.0, maximum=8.0, jitter=0.5)


def refused(status: int, reason: str = "", message: str = "no", **more: object) -> KubernetesApiError:
    return error_from_status(status, {"kind": "Status", "reason": reason, "message": message, **more})


SOON = {"details": {"retryAfterSeconds": 1}}


@pytest.mark.parametrize(
    ("error", "answer"),
    [
        (refused(404, "NotFound"), Answer.NOT_FOUND),
        (refused(404, "NotFound", **SOON), Answer.NOT_FOUND),
        (error_from_status(404, None, text="<html>"), Answer.REFUSED),
        (refused(409, "AlreadyExists"), Answer.NAME_TAKEN),
        (refused(409, "AlreadyExists", **SOON), Answer.NAME_TAKEN),
        (ConnectionFailedError("reset"), Answer.TRANSIENT),
        (refused(429), Answer.TRANSIENT),
        (refused(504), Answer.TRANSIENT),
        (refused(409, "Conflict", **SOON), Answer.TRANSIENT),
        (refused(400), Answer.INVALID),
        (refused(413), Answer.INVALID),
        (refused(422), Answer.INVALID),
        (error_from_status(422, None, text="<html>"), Answer.REFUSED),
        (refused(403, message="pods is forbidden: exceeded quota: tasks"), Answer.QUOTA_EXCEEDED),
        (refused(403, message="pods is forbidden: User"), Answer.REFUSED),
        (refused(409, message="the object has been modified; please apply"), Answer.MODIFIED),
        (refused(409, message="too old resource version"), Answer.CONFLICT),
        (refused(409, message="the UID in the precondition"), Answer.CONFLICT),
        (refused(410, message="too old resource version: 1 (2)"), Answer.MODIFIED),
        (refused(410, message="the continue token is too old"), Answer.CONFLICT),
        (refused(401), Answer.REFUSED),
        (refused(405), Answer.REFUSED),
        (UnknownOwnerError("409; looking for it: 403", status=403), Answer.REFUSED),
        (CreationCalledOffError("called off"), Answer.REFUSED),
    ],
    ids=str,
)
def test_answer(error: KubernetesApiError, answer: Answer) -> None:
    assert answer_of(error) is answer


@pytest.mark.parametrize(
    ("attempt", "retry_after", "chance", "delay"),
    [
        (1, None, 0.0, 1.0),
        (3, None, 0.5, 3.0),
        (9, None, 0.0, 8.0),
        (1, 5, 0.0, 5.0),
        (4, 5, 0.0, 8.0),
        (4, 5, 1.0, 5.0),
        (4, 60, 0.0, 60.0),
    ],
)
def test_retry_after_is_a_minimum(attempt: int, retry_after: int | None, chance: float, delay: float) -> None:
    error = refused(429, details={"retryAfterSeconds": retry_after or 0})
    assert retry_delay(error, BACKOFF, attempt, lambda: chance) == delay
