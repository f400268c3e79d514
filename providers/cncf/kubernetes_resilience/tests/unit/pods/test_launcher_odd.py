# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The launcher, and answers or pods that are not what they seem."""

from __future__ import annotations

from typing import Any

import pytest

from airflow.providers.cncf.kubernetes_resilience.pods.api.errors import error_from_status
from airflow.providers.cncf.kubernetes_resilience.pods.messages import PodDeleted, PodDeletionAccepted

from .test_launcher import REF, Bench, bench, created  # noqa: F401

BESIDE_A_SIDECAR = {
    "phase": "Running",
    "containerStatuses": [
        {"name": "base", "state": {"waiting": {"reason": "ErrImagePull"}}},
        {"name": "statsd", "state": {"running": {}}},
    ],
}


@pytest.mark.parametrize("status", [302, 404, 520])
@pytest.mark.parametrize("version", [None, "1"])
async def test_a_deletion_is_not_lost_to_an_answer_of_a_proxy(
    created: Bench,  # noqa: F811
    cluster: Any,
    status: int,
    version: str | None,
) -> None:
    """Its pod would live on beside its replacement (I2)."""
    cluster.fail["delete"] = [error_from_status(status, None, text="<html>")]
    await created.launcher.delete(REF, version, grace_seconds=0)
    assert created.outcome() == PodDeleted(REF)


async def test_a_pod_whose_sidecar_has_started_is_deleted_if_its_worker_has_not(
    created: Bench,  # noqa: F811
    cluster: Any,
) -> None:
    """Else it would be followed again, in a phase in which no waiting reason gives it up."""
    cluster.pods["worker"]["status"] = BESIDE_A_SIDECAR
    cluster.pods["worker"]["metadata"]["resourceVersion"] = "2"
    await created.launcher.delete(REF, "1")
    assert created.outcome() == PodDeletionAccepted(REF, 30)
    assert [deletion["resource_version"] for deletion in cluster.deletions][-1] == "2"
