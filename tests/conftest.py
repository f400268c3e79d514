# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""One deployment for each module of tests: with a real control plane it takes some 25 seconds to start."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.schedulers import Scheduler
from testbed.testbed import Testbed, TestbedSettings, open_testbed

FOLDER = Path(__file__).parent / "dags"
BINARIES = os.environ.get("CONTROL_PLANE_BINARIES")
"""The programs of a real control plane; without them the embedded API server takes its place."""


@pytest.fixture(scope="module")
def testbed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Testbed]:
    """
    A deployment that runs.

    A module has its DAGs and their faults in a folder of its name, and says in ``DEPLOYMENT`` what its
    configuration has in addition: a mapping, or a function that makes one for the deployment's home. No test
    relies on another one, but a test may leave behind another scheduler than it found.
    """
    folder = FOLDER / Path(request.module.__file__).stem.removeprefix("test_")
    home = tmp_path_factory.mktemp("airflow")
    deployment = getattr(request.module, "DEPLOYMENT", {})
    settings = TestbedSettings(
        home=home,
        dags=folder,
        faults=folder / "faults.yaml",
        env=deployment(home) if callable(deployment) else deployment,
        control_plane=Path(BINARIES) if BINARIES else None,
        nodes=getattr(request.module, "NODES", 3),
    )
    with open_testbed(settings) as testbed:
        yield testbed


@pytest.fixture
def first_scheduler(testbed: Testbed) -> Iterator[Scheduler]:
    """The one scheduler that there is when a test begins, whatever the one before has left behind."""
    for scheduler in testbed.schedulers.alive[1:]:
        testbed.schedulers.kill_long_ago(scheduler)
    testbed.restart_ended()
    yield testbed.schedulers.alive[0]
    for scheduler in testbed.schedulers.alive:
        scheduler.resume()
