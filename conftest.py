# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
How property tests are run: the same few examples each time, but for ``HYPOTHESIS_PROFILE=release``.

Tests marked ``control_plane`` are skipped where there is none. The first failure ends all processes of a run.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress

import pytest
from hypothesis import settings
from hypothesis.internal.conjecture import providers

# Hypothesis' own profile for CI has no limits of time either: a property that fails on a busy machine would
# only say that the machine was busy.
# Those that are the same each time have found what they can find when they have passed once.
settings.register_profile("all", settings.get_profile("ci"), max_examples=40)
settings.register_profile("release", settings.get_profile("ci"), max_examples=200, derandomize=False)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "all"))

# Hypothesis mixes in constants of the modules that the process has imported so far, which depends on the
# tests that have run before in it. The seed alone is to decide what is tried.
providers._get_local_constants = providers.Constants


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what needs a real control plane, unless the environment names its programs."""
    if not os.environ.get("CONTROL_PLANE_BINARIES"):
        for item in items:
            if item.get_closest_marker("control_plane"):
                item.add_marker(pytest.mark.skip(reason="CONTROL_PLANE_BINARIES is not set"))


def pytest_sessionstart(session: pytest.Session) -> None:
    """Have a process of pytest-xdist run no more tests after its present one, if it is told to."""
    if hasattr(session.config, "workerinput"):
        signal.signal(signal.SIGUSR1, lambda *_: setattr(session, "shouldfail", "stopped after a failure"))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Stop all processes after a failure with ``--exitfirst``.

    pytest-xdist hands out no more tests then, but each process may have those of a whole module.
    """
    node = getattr(report, "node", None)  # Only the process that has started the others knows of them.
    if report.failed and node and node.config.getoption("maxfail") == 1:
        for gateway in node.nodemanager.group:
            with suppress(ProcessLookupError):
                os.kill(gateway._rinfo().pid, signal.SIGUSR1)
