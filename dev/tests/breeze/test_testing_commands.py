# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The words of Airflow's own breeze, where they have their meaning here."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from breeze import suites, testing_commands


@pytest.fixture
def run(monkeypatch):
    """Give a function that runs a command, and returns what it says and the suites that it has run."""
    started = []
    monkeypatch.setattr(suites, "run_suite", lambda name, extra: started.append((name, extra)) or 0)

    def command(*words):
        wide = {"COLUMNS": "300", "NO_COLOR": "1"}
        told = CliRunner().invoke(testing_commands.testing_app, words, env=wide)
        return told.exit_code, told.output, started

    return command


@pytest.mark.parametrize("name", ["All", "Providers", "Providers[cncf.kubernetes]"])
def test_test_types_of_airflow_name_our_provider(run, name):
    code, _, started = run("providers-tests", "--test-type", name, "-k", "word")
    assert (code, started) == (0, [("providers-tests", ["-k", "word"])])


@pytest.mark.parametrize("name", ["Providers[amazon]", "Providers[-cncf.kubernetes]", "Core", ""])
def test_another_test_type_is_an_error_that_says_what_exists(run, name):
    code, output, started = run("providers-tests", "--test-type", name)
    assert (code, started) == (2, [])
    assert repr(name) in output
    assert "All, Providers, Providers[cncf.kubernetes], Providers[cncf.kubernetes_resilience]" in output
