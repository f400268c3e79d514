# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from airflow.providers.cncf.kubernetes_resilience.pods.images import registry_of, without_name


@pytest.mark.parametrize(
    ("image", "host"),
    [
        ("airflow", "docker.io"),
        ("apache/airflow:3.3.2", "docker.io"),
        ("index.docker.io/apache/airflow", "docker.io"),
        ("Registry.example.com/team/airflow:3", "registry.example.com"),
        ("registry:5000/airflow", "registry:5000"),
        ("localhost/airflow@sha256:9d2f", "localhost"),
        ("", "docker.io"),
    ],
)
def test_the_registry_of_an_image(image, host):
    assert registry_of(image) == host


@pytest.mark.parametrize(
    ("image", "message"),
    [
        ("r.example.com/timeout:eof", 'failed to pull "r.example.com/timeout:eof": no such layer'),
        ("timeout:eof", 'failed to resolve "docker.io/library/timeout:eof": no such layer'),
        ("r.example.com/timeout@sha256:9d", 'reference "r.example.com/timeout@sha256:9d": no such layer'),
        (
            "r.example.com/a/timeout:1",
            "Get https://r.example.com/token?scope=repository%3Aa%2Ftimeout%3Apull: no such layer",
        ),
        (
            "docker.io/a/timeout:1",
            'Head "https://registry-1.docker.io/v2/a/timeout/manifests/1": no such layer',
        ),
        ("r.example.com/a/timeout:1", 'Get "https://r.example.com/v2/a/timeout/manifests/1": no such layer'),
    ],
)
def test_a_message_without_the_name_of_its_image(image, message):
    assert "timeout" not in without_name(message, image)
    assert without_name(message, image).endswith(": no such layer")


def test_a_message_about_an_image_that_is_not_known():
    assert without_name("i/o timeout", None) == "i/o timeout"
