# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Every pod that there can be, however unlikely."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from hypothesis import strategies as st

from airflow.providers.cncf.kubernetes_resilience.pods.facts import (
    ConditionFacts,
    ContainerFacts,
    ContainerState,
    ContainerType,
    PodFacts,
    PodRef,
)

WORDS = [
    *("Error", "Completed", "OOMKilled", "StartError", "ContainerCannotRun", "ContainerStatusUnknown"),
    *("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "CrashLoopBackOff"),
    *("CreateContainerConfigError", "CreateContainerError", "ContainerCreating", "PodInitializing"),
    *("Evicted", "Terminated", "NodeShutdown", "OutOfcpu", "DeadlineExceeded", "ProviderFailed", "Odd"),
]
REASONS = st.none() | st.sampled_from(WORDS)
MESSAGES = (
    st.none()
    | st.sampled_from(
        [
            *(
                "pull QPS exceeded",
                "manifest unknown",
                "i/o timeout",
                'secret "a" not found',
                'exec: "airflow"',
            ),
            *("error mounting", 'Usage of EmptyDir volume "a" exceeds the limit "2Gi".', "Insufficient cpu"),
        ]
    )
    | st.text(max_size=20)
)
TIMES = st.none() | st.datetimes(timezones=st.just(UTC))
CONTAINERS = st.builds(
    ContainerFacts,
    name=st.sampled_from(["base", "statsd", "git-sync"]),
    type=st.sampled_from(ContainerType),
    state=st.sampled_from(ContainerState),
    reason=REASONS,
    message=MESSAGES,
    exit_code=st.none() | st.sampled_from([0, 1, 137, 139, 143, 255]),
    signal=st.none() | st.sampled_from([9, 15]),
    before_worker=st.booleans(),
    started=st.booleans(),
    finished_at=TIMES,
)
FAILED_CONTAINERS = CONTAINERS.map(lambda item: replace(item, state=ContainerState.TERMINATED, exit_code=1))
CONDITIONS = st.builds(
    ConditionFacts,
    type=st.sampled_from(["Ready", "PodScheduled", "DisruptionTarget", "odd.example.com/Condition"]),
    status=st.sampled_from(["True", "False", "Unknown"]),
    reason=REASONS | st.sampled_from(["PreemptionByScheduler", "TerminationByKubelet", "Unschedulable"]),
    message=MESSAGES,
)
PODS = st.builds(
    PodFacts,
    ref=st.just(PodRef("airflow", "worker-abcd1234", "uid")),
    labels=st.just({}),
    annotations=st.just({}),
    deletion_timestamp=st.none() | st.just(datetime(2026, 3, 1, tzinfo=UTC)),
    node=st.none() | st.just("node-1"),
    phase=st.none() | st.sampled_from(["Pending", "Running", "Succeeded", "Failed", "Unknown", "Odd"]),
    reason=REASONS,
    message=MESSAGES,
    restart_policy=st.sampled_from([None, "Never", "OnFailure", "Always"]),
    conditions=st.lists(CONDITIONS, max_size=3).map(tuple),
    containers=st.lists(CONTAINERS, max_size=4).map(tuple),
)
SETS_OF_REASONS = st.frozensets(st.sampled_from(WORDS))
