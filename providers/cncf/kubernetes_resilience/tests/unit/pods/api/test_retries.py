# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""What a failed request says about the next attempt, and when that is made."""

from __future__ import annotations

import pytest

from airflow.providers.cncf.kubernetes_resilience.pods.api.errors import (
    ConnectionFailedError,
    CreationCancelledError,
    ForeignAnswerError,
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
        (error_from_status(404, None, text="<html>"), Answer.FOREIGN),
        (refused(409, "AlreadyExists"), Answer.NAME_TAKEN),
        (refused(409, "AlreadyExists", **SOON), Answer.NAME_TAKEN),
        (ConnectionFailedError("reset"), Answer.TRANSIENT),
        (refused(429), Answer.TRANSIENT),
        (refused(504), Answer.TRANSIENT),
        (refused(409, "Conflict", **SOON), Answer.TRANSIENT),
        (refused(400), Answer.INVALID),
        (refused(413), Answer.INVALID),
        (refused(422), Answer.INVALID),
        *((error_from_status(status, None, text="<html>"), Answer.FOREIGN) for status in (409, 410, 422)),
        *(
            (error_from_status(status, None, text="<html>"), Answer.NOT_LET_THROUGH)
            for status in (401, 403, 405, 501)
        ),
        (refused(403, message="pods is forbidden: exceeded quota: tasks"), Answer.QUOTA_EXCEEDED),
        (refused(403, message="pods is forbidden: User"), Answer.REFUSED),
        (refused(409, message="the object has been modified; please apply"), Answer.MODIFIED),
        (refused(409, message="too old resource version"), Answer.CONFLICT),
        (refused(409, message="the UID in the precondition"), Answer.CONFLICT),
        (refused(410, message="too old resource version: 1 (2)"), Answer.MODIFIED),
        (refused(410, message="the continue token is too old"), Answer.CONFLICT),
        (refused(401), Answer.REFUSED),
        (refused(405), Answer.NOT_LET_THROUGH),
        (ForeignAnswerError("unreadable answer"), Answer.FOREIGN),
        (UnknownOwnerError("409; looking for it: 403", status=403), Answer.REFUSED),
        (CreationCancelledError("cancelled"), Answer.FOREIGN),
    ],
    ids=str,
)
def test_answer(error: KubernetesApiError, answer: Answer) -> None:
    assert answer_of(error) is answer


@pytest.mark.parametrize("status", [400, 403, 404, 409, 422, 500])
@pytest.mark.parametrize(
    "message",
    [
        'admission webhook "validate.kyverno.svc-fail" denied the request: \n\nresource Pod/a/x was blocked',
        'admission webhook "a.example.com" denied the request without explanation',
        'admission webhook "cost.example.com" denied the request: team a has exceeded quota for today',
        'admission webhook "a.example.com" denied the request: pods "x" is forbidden: exceeded quota: q',
        'pods "x" is forbidden: violates PodSecurity "restricted:latest": runAsNonRoot != true',
        'pods "x" is forbidden: maximum memory usage per Container is 1Gi, but limit is 2Gi',
        'pods "x" is forbidden: no PriorityClass with name urgent was found',
        'pods "x" is forbidden: failed quota: q: must specify limits.cpu for: base',
        'pods "x" is forbidden: unable to create new content in namespace a because it is being terminated',
        'pods "x" is forbidden: unable to validate against any security context constraint: []',
        "pods \"x\" is forbidden: ValidatingAdmissionPolicy 'a' with binding 'b' denied request: no owner",
        'pods "x" is forbidden: pod rejected: RuntimeClass "kata" not found',
    ],
)
def test_what_a_rule_of_the_cluster_forbids_is_forbidden_whatever_the_status(
    status: int, message: str
) -> None:
    for reason in ("", "Forbidden", "AlreadyExists", "NotFound"):
        assert answer_of(refused(status, reason, message=message)) is Answer.FORBIDDEN


@pytest.mark.parametrize(
    ("status", "message", "answer"),
    [
        (403, 'pods is forbidden: User "airflow" cannot create resource "pods"', Answer.REFUSED),
        (403, 'pods "x" is forbidden: User "airflow" cannot delete resource "pods"', Answer.REFUSED),
        (403, 'pods "x" is forbidden: error looking up service account a/w: not found', Answer.REFUSED),
        (403, 'pods "x" is forbidden: service account a/w was not found, retry after', Answer.REFUSED),
        (403, 'pods "x" is forbidden: status unknown for quota: q, resources: pods', Answer.REFUSED),
        (403, 'pods "x" is forbidden: not yet ready to handle request', Answer.REFUSED),
        (403, 'pods "x" is forbidden: Post "https://images.example.com": EOF', Answer.REFUSED),
        *(
            (403, f'pods "x" is forbidden: {why}', Answer.REFUSED)
            for why in (
                "unable to CREATE /v1, Resource=pods at this time because of an error",
                'Get "https://[::1]:6443/api/v1/namespaces/a/limitranges": context deadline exceeded',
                "Error contacting webhook: 503",
                'an error on the server ("") has prevented the request from succeeding',
                "the server is currently unable to handle the request (get limitranges)",
                "Internal error occurred: no leader",
                "Timeout: request did not complete within requested timeout",
                "etcdserver: leader changed",
                "context deadline exceeded",
                # OpenShift
                "caches not synchronized",
                "securitycontextconstraints.security.openshift.io cache is not synchronized",
                "management.openshift.io infra config cache not synchronized",
            )
        ),
        (403, "denied by a gateway that has exceeded quota: pods", Answer.REFUSED),
        (429, 'admission webhook "a.example.com" denied the request: too many', Answer.TRANSIENT),
        (503, 'admission webhook "a.example.com" denied the request: busy', Answer.TRANSIENT),
        (500, 'Internal error occurred: failed calling webhook "a": connection refused', Answer.TRANSIENT),
        (500, "etcdserver: request is too large", Answer.TRANSIENT),
    ],
)
def test_what_may_pass_is_not(status: int, message: str, answer: Answer) -> None:
    assert answer_of(refused(status, message=message)) is answer


@pytest.mark.parametrize(
    ("amounts", "answer"),
    [
        ("requested: pods=1, used: pods=2, limited: pods=2", Answer.QUOTA_EXCEEDED),
        ("requested: memory=4Gi, used: memory=1, limited: memory=4Gi", Answer.QUOTA_EXCEEDED),
        ("requested: cpu=1500m, used: cpu=1, limited: cpu=2", Answer.QUOTA_EXCEEDED),
        ("requested: cpu=1100m, used: cpu=1, limited: cpu=1.1", Answer.QUOTA_EXCEEDED),
        ("requested: memory=1e9, used: memory=0, limited: memory=1G", Answer.QUOTA_EXCEEDED),
        ("requested: cpu=many, used: cpu=0, limited: cpu=1", Answer.QUOTA_EXCEEDED),
        ("requested: cpu=2", Answer.QUOTA_EXCEEDED),
        ("", Answer.QUOTA_EXCEEDED),
        ("requested: pods=1, used: pods=0, limited: pods=0", Answer.FORBIDDEN),
        ("requested: cpu=2500m, used: cpu=1, limited: cpu=2", Answer.FORBIDDEN),
        ("requested: memory=10Gi, used: memory=1Gi, limited: memory=4Gi", Answer.FORBIDDEN),
        ("requested: memory=1Gi, used: memory=0, limited: memory=1G", Answer.FORBIDDEN),
        ("requested: cpu=1,memory=5Ti, used: cpu=9,memory=0, limited: cpu=9,memory=4Ti", Answer.FORBIDDEN),
        ("requested: a.b/gpu=1,memory=1E, used: memory=0, limited: a.b/gpu=1,memory=1P", Answer.FORBIDDEN),
    ],
)
def test_a_pod_that_is_bigger_than_the_quota_is_forbidden(amounts: str, answer: Answer) -> None:
    message = f'pods "x" is forbidden: exceeded quota: tasks, {amounts}'
    assert answer_of(refused(403, "Forbidden", message=message)) is answer


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
