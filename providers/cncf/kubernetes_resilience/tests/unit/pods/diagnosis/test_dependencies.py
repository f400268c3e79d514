# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Which failures name something that other launches need too, and what a pod needs and has got."""

from __future__ import annotations

import pytest

from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.causes import TABLE, find_cause
from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.dependencies import (
    find_dependency,
    needs_of,
    registries_of,
)
from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.failure import (
    QUOTA_EXCEEDED,
    find_failure,
    find_no_pod,
)
from airflow.providers.cncf.kubernetes_resilience.pods.facts import read_pod
from airflow_resilience.retry_policy.evidence import Phase

from ....support import manifests as m


def dependency_of(failure):
    found = find_dependency(failure, find_cause(failure, Phase.LAUNCH))
    return None if found is None else str(found)


def waits_for_image(message: str):
    return find_failure(read_pod(m.image_pull_error(message=message)), given_up_reasons={"ErrImagePull"})


def test_each_cause_that_names_a_dependency():
    assert {cause.name: str(cause.dependency) for cause in TABLE if cause.dependency} == {
        "quota-exceeded": "quota",
        "registry-unavailable": "registry",
        "airflow-api-unreachable": "airflow-api",
    }


@pytest.mark.parametrize(
    ("failure", "expected"),
    [
        (waits_for_image("dial tcp 10.0.0.9:443: i/o timeout"), "registry/registry.example.com"),
        (waits_for_image("unexpected status: 503 Service Unavailable"), "registry/registry.example.com"),
        (waits_for_image("429 Too Many Requests"), "registry/registry.example.com"),
        (waits_for_image("manifest unknown"), None),
        (waits_for_image("403 Forbidden"), None),
        (waits_for_image("unauthorized: access denied"), None),
        (waits_for_image('failed to resolve reference "docker.io/airflow": no match for platform'), None),
        (find_failure(read_pod(m.image_pull_error("InvalidImageName", None)), gone=True), None),
        (find_failure(read_pod(m.evicted())), None),
        (find_failure(read_pod(m.api_unreachable())), "airflow-api"),
        (find_no_pod("team-a", "x", QUOTA_EXCEEDED, message="exceeded quota"), "quota/team-a"),
    ],
)
def test_what_a_failure_names(failure, expected):
    assert dependency_of(failure) == expected


def test_the_name_of_an_image_is_no_evidence():
    image = "registry.example.com/jobs/timeout-checker:connection-refused"
    manifest = m.image_pull_error(message=f'failed to pull image "{image}": unexpected media type')
    manifest["spec"]["containers"][0]["image"] = image
    assert dependency_of(find_failure(read_pod(manifest), given_up_reasons={"ErrImagePull"})) is None


def test_a_registry_that_is_not_known_is_none():
    manifest = m.image_pull_error(message="i/o timeout")
    del manifest["spec"]["containers"][0]["image"]
    assert dependency_of(find_failure(read_pod(manifest), given_up_reasons={"ErrImagePull"})) is None


def test_what_a_pod_needs():
    spec = {
        "initContainers": [{"name": "git-sync", "image": "registry.k8s.io/git-sync"}],
        "containers": [{"name": "base", "image": "airflow"}, {"image": "apache/x"}, {"name": "y"}],
    }
    assert [str(need) for need in needs_of({"metadata": {"namespace": "team-a"}, "spec": spec})] == [
        "quota/team-a",
        "admission/team-a",
        "registry/registry.k8s.io",
        "registry/docker.io",
        "airflow-api",
    ]


def test_the_registries_that_a_pod_has_got_something_of():
    starting, alive = read_pod(m.starting()), read_pod(m.alive())
    assert registries_of(None, started=True) == registries_of(starting, started=True) == set()
    assert {str(used) for used in registries_of(alive, started=True)} == {"registry/registry.example.com"}
    assert registries_of(starting, started=False) == registries_of(alive, started=True)
    assert registries_of(alive, started=False) == set()
