# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""By what a pod is known to be a task instance's; what adoption reads of it is tested in ``test_plan``."""

from __future__ import annotations

import pytest

from airflow.providers.cncf.kubernetes_resilience.executors.launches.identity import ti_id_of
from airflow.providers.cncf.kubernetes_resilience.pods.facts import PodFacts, PodRef

UUID = "01984b6e-7c1f-7a52-9d0e-3f6f0c2b7a11"


@pytest.mark.parametrize(
    ("annotation", "ti_id"),
    [
        (UUID, UUID),
        (UUID.upper(), UUID),
        (f"{UUID}-2", None),
        ("none", None),
        ("", None),
        (None, None),
    ],
)
def test_a_pod_names_the_task_instance_that_it_was_launched_for(
    annotation: str | None, ti_id: str | None
) -> None:
    annotations = {} if annotation is None else {"airflow-resilience/task-instance-id": annotation}
    pod = PodFacts(PodRef("airflow", "sales-load", "uid"), {}, annotations)
    assert ti_id_of(pod) == ti_id
