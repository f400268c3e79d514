# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from airflow.providers.cncf.kubernetes_resilience.cli.explanation import State, examine
from airflow.providers.cncf.kubernetes_resilience.pods.facts import read_pod

from ...support import manifests as m

IMAGE = "ErrImagePull"


@pytest.mark.parametrize(
    ("manifest", "still_queued", "state", "reason"),
    [
        (m.evicted(), False, State.FAILED, "Evicted"),
        (m.worker_error(), False, State.FAILED, "Error"),
        (m.provider_failed("Pending"), False, State.FAILED, "ProviderFailed"),
        (m.image_pull_error(), False, State.FAILED, IMAGE),
        (m.image_pull_error("ImagePullBackOff"), False, State.WAITING, "ImagePullBackOff"),
        (m.image_pull_error("CreateContainerError"), False, State.WAITING, "CreateContainerError"),
        (m.starting(), False, State.WAITING, "ContainerCreating"),
        (m.unscheduled(), False, State.WAITING, "Unschedulable"),
        (m.alive(), False, State.ALIVE, None),
        (m.pod("Running", [m.base(m.running())], deleted=True), False, State.ENDING, "Deleted"),
        (m.succeeded(), False, State.SUCCEEDED, None),
        (m.succeeded(), True, State.FAILED, "ExitedWithoutStarting"),
        (m.lingering(m.COMPLETED), False, State.SUCCEEDED, None),
        (m.lingering(m.COMPLETED), True, State.FAILED, "ExitedWithoutStarting"),
        (m.pod("Succeeded", [m.base(m.COMPLETED)], deleted=True), False, State.SUCCEEDED, None),
    ],
)
def test_state_of_a_pod(manifest, still_queued, state, reason):
    standing = examine(read_pod(manifest), given_up_reasons={IMAGE}, still_queued=still_queued)
    assert standing.state is state
    assert (standing.failure and standing.failure.reason) == reason
    assert ("has not failed" in standing.text) is (state is not State.FAILED)
