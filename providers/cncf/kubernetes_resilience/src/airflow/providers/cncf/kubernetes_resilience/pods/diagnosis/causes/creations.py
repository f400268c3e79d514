# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""There never was a pod: the create call was refused."""

from __future__ import annotations

from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.causes.cause import Cause, both, said
from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.failure import (
    CREATION_CONFLICT,
    CREATION_FAILED,
    CREATION_FORBIDDEN,
    CREATION_REFUSED,
    CREATION_UNANSWERED,
    QUOTA_EXCEEDED,
    PodFailure,
)
from airflow_resilience.context import StateChangeCategory, StateChangeReason
from airflow_resilience.outages import DependencyKind


def _refused(failure: PodFailure) -> bool:
    return failure.reason == CREATION_REFUSED


CREATIONS = (
    Cause(
        name="admission-refused",
        applies=lambda failure: failure.reason == CREATION_FORBIDDEN,
        category=StateChangeCategory.APPLICATION,
        reason=StateChangeReason.ADMISSION_REFUSED,
        why="The API server does not let anybody create this pod: it is not valid, or a rule of the cluster "
        "(a webhook, a limit range, a quota smaller than the pod) forbids it.",
        url="https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/",
    ),
    Cause(
        name="quota-exceeded",
        applies=lambda failure: failure.reason == QUOTA_EXCEEDED,
        category=StateChangeCategory.INFRASTRUCTURE,
        reason=StateChangeReason.RESOURCE_EXHAUSTION,
        why="The quota of the namespace was used up by other pods.",
        url="https://kubernetes.io/docs/concepts/policy/resource-quotas/",
        dependency=DependencyKind.QUOTA,
    ),
    Cause(
        name="creation-conflict",
        applies=lambda failure: failure.reason == CREATION_CONFLICT,
        category=StateChangeCategory.INFRASTRUCTURE,
        reason=StateChangeReason.ADMISSION_REFUSED,
        why="Each call that was to create the pod met a change of something else, such as of the used "
        "amounts of a quota.",
        url="https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-versions",
    ),
    Cause(
        name="creation-failed",
        applies=lambda failure: failure.reason == CREATION_FAILED,
        category=StateChangeCategory.INFRASTRUCTURE,
        reason=StateChangeReason.ADMISSION_REFUSED,
        why="Each call that was to create the pod failed, while other pods were created: the pod is too "
        "large for etcd, or a webhook fails on it.",
        url="https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/",
    ),
    Cause(
        name="service-account-missing",
        applies=both(
            _refused,
            # plugin/pkg/admission/serviceaccount/admission.go
            said(
                lambda failure: failure.facts.message,
                r"is forbidden: .*service account .*not found|no api token found for service account",
            ),
        ),
        category=StateChangeCategory.INFRASTRUCTURE,
        # It may still come, as a secret may.
        reason=StateChangeReason.CONFIG_UNAVAILABLE,
        why="The service account that the pod names, or the token of it, is not in the pod's namespace.",
        url="https://kubernetes.io/docs/tasks/configure-pod-container/configure-service-account/",
    ),
    Cause(
        name="api-refused-credentials",
        applies=_refused,
        category=StateChangeCategory.INFRASTRUCTURE,
        reason=StateChangeReason.ADMISSION_REFUSED,
        why="The API server did not accept the executor's credentials, or did not let it create the pod: a "
        "credential has expired, or a role binding has changed.",
        url="https://kubernetes.io/docs/reference/access-authn-authz/authorization/",
    ),
    Cause(
        name="api-unreachable",
        applies=lambda failure: failure.reason == CREATION_UNANSWERED,
        category=StateChangeCategory.INFRASTRUCTURE,
        reason=StateChangeReason.ADMISSION_REFUSED,
        why="The call that was to create the pod got an answer that the API server does not give: of a "
        "proxy, a load balancer or a login page on the way to it.",
        url="https://kubernetes.io/docs/concepts/security/controlling-access/",
    ),
)
