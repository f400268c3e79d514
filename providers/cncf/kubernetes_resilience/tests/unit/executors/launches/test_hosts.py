# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""In which pod a task runs, by the host name that its worker has reported."""

from __future__ import annotations

import pytest
from airflow.models.taskinstancekey import TaskInstanceKey

from airflow.providers.cncf.kubernetes_resilience.executors.launches.identity import Place, locate
from airflow.providers.cncf.kubernetes_resilience.executors.launches.launch import Launch

KEY = TaskInstanceKey("sales", "load", "manual__2026-03-01", 1, -1)
POD = "sales-load-x7k2m9qa"
SIBLING = "sales-load-b3n8w1zc"
LONG = f"{'x' * 70}-x7k2m9qa"


@pytest.mark.parametrize(
    ("hostname", "place"),
    [
        (POD, Place.HERE),
        (f"{POD}.airflow.pod.cluster.local", Place.HERE),
        (SIBLING, Place.ELSEWHERE),
        (f"{SIBLING}.airflow.pod.cluster.local", Place.ELSEWHERE),
        ("sales-load", Place.ELSEWHERE),
        ("sales-load-2-b3n8w1zc", Place.UNKNOWN),
        ("sales-b3n8w1zc", Place.UNKNOWN),
        ("localhost", Place.UNKNOWN),
        ("10.244.1.7", Place.UNKNOWN),
        ("", Place.UNKNOWN),
        (None, Place.UNKNOWN),
    ],
)
def test_host_name(hostname: str | None, place: Place) -> None:
    assert locate(hostname, name=POD) is place


@pytest.mark.parametrize(
    ("name", "hostname", "place"),
    [
        ("etl.load-x7k2m9qa", "etl.load-x7k2m9qa", Place.HERE),
        ("etl.load-x7k2m9qa", "etl.load-x7k2m9qa.svc", Place.HERE),
        ("etl.load-x7k2m9qa", "etl.load-b3n8w1zc", Place.ELSEWHERE),
        ("etl.load-x7k2m9qa", "etl", Place.UNKNOWN),
    ],
)
def test_name_with_a_dot(name: str, hostname: str, place: Place) -> None:
    assert locate(hostname, name=name) is place


@pytest.mark.parametrize("hostname", [LONG[:63], LONG, f"{'x' * 63}.svc"])
def test_name_that_is_cut_says_nothing(hostname: str) -> None:
    """What is left of it is the same for each pod of the task."""
    assert locate(hostname, name=LONG) is Place.UNKNOWN


@pytest.mark.parametrize(
    ("hostname", "addresses", "place"),
    [
        ("10.0.0.1", "10.0.0.1", Place.HERE),
        ("10.0.0.1", "10.0.0.11", Place.ELSEWHERE),
        ("10.0.0.1", "fd00::1,10.0.0.1", Place.HERE),
        ("fd00:0::1", "10.0.0.1,fd00::1", Place.HERE),
        ("10.0.0.1", "", Place.UNKNOWN),
        ("10.0.0.1", "odd", Place.ELSEWHERE),
    ],
)
def test_address(hostname: str, addresses: str, place: Place) -> None:
    assert locate(hostname, name=POD, addresses=addresses) is place


@pytest.mark.parametrize("hostname", ["", "worker", "anything-b3n8w1zc"])
@pytest.mark.parametrize("name", ["worker7", "x7k2m9qa", "-7k2m9qaa"])
def test_name_without_a_suffix_has_no_siblings(name: str, hostname: str) -> None:
    assert locate(hostname, name=name) is Place.UNKNOWN


@pytest.mark.parametrize(
    ("number", "has_siblings", "is_alone"), [(1, False, True), (2, False, False), (1, True, False)]
)
def test_host_that_says_nothing_is_that_of_the_only_pod(
    number: int, has_siblings: bool, is_alone: bool
) -> None:
    launch = Launch(KEY, "ti", name=POD, number=number, has_siblings=has_siblings)
    assert launch.runs("node-1") is is_alone
    assert launch.runs(POD)
    assert not launch.runs(SIBLING)
