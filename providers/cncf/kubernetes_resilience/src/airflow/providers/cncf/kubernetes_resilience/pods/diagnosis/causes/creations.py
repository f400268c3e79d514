# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""There never was a pod: the create call was refused for minutes."""

from __future__ import annotations

from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.causes.cause import Cause
from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.failure import (
    CREATION_REFUSED,
    CREATION_UNANSWERED,
)
from airflow_resilience.context import StateChangeCategory, StateChangeReason

CREATIONS = (
    Cause(
        name="api-refused-credentials",
        applies=lambda failure: failure.reason == CREATION_REFUSED,
        category=StateChangeCategory.INFRASTRUCTURE,
        reason=StateChangeReason.ADMISSION_REFUSED,
        why="The API server did not accept the executor's credentials, or did not let it create the pod: a "
        "credential has expired, a role binding or an admission policy has changed.",
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
