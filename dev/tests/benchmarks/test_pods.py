# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import zlib

import pytest

from airflow.providers.cncf.kubernetes_resilience.pods.facts import read_pod
from benchmarks.pods import Json, failed, never_started, running, shut_down, succeeded, worker_pod


@pytest.mark.parametrize(
    ("status", "phase", "exit_code"),
    [
        (running(), "Running", None),
        (succeeded(), "Succeeded", 0),
        (failed(), "Failed", 1),
        (never_started(), "Failed", 128),
        (shut_down(), "Failed", 143),
    ],
)
def test_our_executor_reads_what_a_pod_is_made_of(status: Json, phase: str, exit_code: int | None) -> None:
    pod = worker_pod(7, "ti", 3)
    pod["metadata"]["uid"] = "uid"
    facts = read_pod({**pod, "status": status})
    assert (facts.phase, facts.annotations["map_index"]) == (phase, "7")
    assert facts.worker
    assert facts.worker.exit_code == exit_code


def test_pods_cannot_be_compressed_into_nothing() -> None:
    pods = [json.dumps(worker_pod(index, f"ti-{index}", 3)).encode() for index in range(50)]
    assert len(zlib.compress(b"".join(pods))) > 50 * 450


def test_a_pod_is_the_same_each_time() -> None:
    assert worker_pod(7, "ti", 3) == worker_pod(7, "ti", 3)
