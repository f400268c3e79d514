# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The version of the Airflow that the testbed runs."""

from __future__ import annotations

import pytest

from testbed import airflow_version as module
from testbed.airflow_version import airflow_version, is_in_place


@pytest.mark.parametrize(
    ("text", "expected"), [("3.1.8", (3, 1)), ("3.10.0", (3, 10)), ("3.4.0b2", (3, 4)), ("4.0", (4, 0))]
)
def test_only_what_behaviour_depends_on_is_read(monkeypatch, text, expected):
    monkeypatch.setattr(module, "version", {"apache-airflow-core": text}.__getitem__)
    assert airflow_version() == expected


def test_versions_are_compared_as_numbers(monkeypatch):
    monkeypatch.setattr(module, "version", lambda name: "3.10.1")
    assert airflow_version() > (3, 9)


@pytest.mark.parametrize(("text", "expected"), [("10.25.0", False), ("10.25.0+resilience.1", True)])
def test_provider_with_our_executor_in_it_is_known_by_its_version(monkeypatch, text, expected):
    monkeypatch.setattr(module, "version", {"apache-airflow-providers-cncf-kubernetes": text}.__getitem__)
    assert is_in_place() is expected
