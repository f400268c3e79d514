# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""A version of Airflow that is not supported is refused, also where pip was told to install it."""

from __future__ import annotations

from importlib.metadata import requires

import pytest
from packaging.requirements import Requirement

from airflow_resilience import airflow_version
from airflow_resilience.airflow_version import UNSUPPORTED, refuse_unsupported


@pytest.mark.parametrize("version", ["3.4.0", "3.4.0.post1", "3.5.1", "4.0.0b1"])
def test_a_later_release_is_refused(version, monkeypatch):
    monkeypatch.setattr(airflow_version, "airflow_version", version)
    with pytest.raises(RuntimeError, match=f"Airflow {version} is not supported"):
        refuse_unsupported()


@pytest.mark.parametrize("version", ["3.1.1", "3.3.9", "3.4.0b2", "3.4.0rc1"])
def test_others_and_what_comes_before_that_release_are_not(version, monkeypatch):
    monkeypatch.setattr(airflow_version, "airflow_version", version)
    refuse_unsupported()


def test_the_metadata_says_the_same():
    (airflow,) = (
        requirement
        for text in requires("airflow-resilience") or ()
        if (requirement := Requirement(text)).name == "apache-airflow-core"
    )
    assert f"<{UNSUPPORTED}" in str(airflow.specifier)
