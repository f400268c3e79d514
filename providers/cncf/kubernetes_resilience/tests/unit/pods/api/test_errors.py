# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""How refusals are read."""

from __future__ import annotations

from typing import Any

import pytest

from airflow.providers.cncf.kubernetes_resilience.pods.api.errors import (
    MAX_MESSAGE_LENGTH,
    MAX_RETRY_AFTER,
    MAX_TEXT_LENGTH,
    ConnectionFailedError,
    ForeignAnswerError,
    KubernetesApiError,
    PodConflictError,
    PodNotFoundError,
    ResourceExpiredError,
    error_from_status,
)


@pytest.mark.parametrize(
    ("status", "class_"),
    [
        (404, PodNotFoundError),
        (409, PodConflictError),
        (410, ResourceExpiredError),
        (500, KubernetesApiError),
    ],
)
def test_class_by_status(status: int, class_: type[KubernetesApiError]) -> None:
    assert type(error_from_status(status, {"reason": "NotFound"})) is class_


@pytest.mark.parametrize(
    ("status", "leaves_open"),
    [(None, True), (500, True), (504, True), (403, False), (409, False), (429, False)],
)
def test_whether_it_may_have_been_done_all_the_same(status: int | None, leaves_open: bool) -> None:
    assert KubernetesApiError("x", status=status).leaves_open is leaves_open


def test_a_page_with_a_status_of_success_may_hide_that_it_was_done() -> None:
    assert ForeignAnswerError("unreadable answer").leaves_open


@pytest.mark.parametrize("status", [400, 404, 409, 410, 413, 422])
@pytest.mark.parametrize("body", [None, {}, {"message": "Bad Request"}, "no"], ids=str)
def test_a_page_says_nothing_about_the_request(status: int, body: Any) -> None:
    error = error_from_status(status, body, text="<html>")
    assert type(error) is ConnectionFailedError
    assert (error.status, error.transient, error.leaves_open) == (status, False, False)


@pytest.mark.parametrize("status", [400, 413, 422])
def test_a_status_does(status: int) -> None:
    # A webhook that denies a request need not give a reason.
    assert type(error_from_status(status, {"kind": "Status", "message": "no"})) is KubernetesApiError


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("7", 7.0),
        ("1.5", 1.5),
        ("86400", MAX_RETRY_AFTER),
        ("inf", MAX_RETRY_AFTER),
        ("0", None),
        ("-3", None),
        ("nan", None),
        ("soon", None),
        ("Wed, 21 Oct 2026 07:28:00 GMT", None),
    ],
)
def test_retry_after_header(header: str, seconds: float | None) -> None:
    assert error_from_status(429, None, headers={"Retry-After": header}).retry_after == seconds


@pytest.mark.parametrize(
    ("details", "seconds"),
    [
        ({"retryAfterSeconds": 3}, 3.0),
        ({"retryAfterSeconds": 0}, None),
        ({"retryAfterSeconds": []}, None),
        ({"retryAfterSeconds": 10**400}, None),
        (None, None),
    ],
)
def test_retry_after_in_the_body(details: Any, seconds: float | None) -> None:
    assert error_from_status(504, {"details": details}).retry_after == seconds


@pytest.mark.parametrize("body", [None, "text", ["list"], {"message": 5, "reason": None}, {"message": ""}])
def test_body_that_is_no_status(body: Any) -> None:
    error = error_from_status(502, body, text="Bad Gateway")
    assert (error.message, error.reason) == ("Bad Gateway", None)
    assert str(error) == "502: Bad Gateway"


@pytest.mark.parametrize(
    ("message", "is_without"),
    [
        ('Internal error occurred: failed calling webhook "a": connection refused', True),
        ('admission webhook "b" denied the request: failed calling webhook "a": connection refused', False),
    ],
)
def test_a_webhook_that_denies_does_not_say_that_another_one_is_away(message: str, is_without: bool) -> None:
    assert KubernetesApiError(message, status=500).is_without_webhook is is_without


def test_text_says_status_reason_and_message() -> None:
    error = error_from_status(403, {"reason": "Forbidden", "message": "exceeded quota: pods"})
    assert str(error) == "403 Forbidden: exceeded quota: pods"
    assert str(ConnectionFailedError("refused")) == "refused"


def test_long_messages_are_cut() -> None:
    error = error_from_status(422, {"message": "x" * 100_000})
    assert len(error.message) == MAX_MESSAGE_LENGTH
    for text in (str(error), repr(error), str(ConnectionFailedError("x" * 100_000))):
        assert text.count("x") in range(MAX_TEXT_LENGTH, MAX_TEXT_LENGTH + 2)


@pytest.mark.parametrize(
    ("status", "transient"), [(429, True), (500, True), (503, True), (403, False), (422, False)]
)
def test_transient(status: int, transient: bool) -> None:
    assert error_from_status(status, {}).transient is transient
    assert ConnectionFailedError("reset").transient
    assert error_from_status(status, {}, headers={"Retry-After": "1"}).transient


@pytest.mark.parametrize("status", [400, 403, 500, 503])
def test_what_a_webhook_has_denied_was_not_carried_out(status: int) -> None:
    message = 'admission webhook "a.example.com" denied the request: no owner'
    assert not error_from_status(status, {"kind": "Status", "message": message}).leaves_open
    assert error_from_status(500, {"kind": "Status", "message": "no"}).leaves_open
