# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
One deployment for most modules of tests: with a real control plane it takes half a minute to start.

Each module has a scheduler of its own, with its own configuration.
"""

from __future__ import annotations

import os
import time
from collections.abc import Generator, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from testbed.post_mortem import post_mortem
from testbed.schedulers import Scheduler
from testbed.testbed import Testbed, TestbedSettings, open_testbed

FOLDER = Path(__file__).parent / "dags"
BINARIES = os.environ.get("CONTROL_PLANE_BINARIES")
CONTROL_PLANE = Path(BINARIES) if BINARIES else None
"""The programs of a real control plane; without them the embedded API server takes its place."""

ALONE = ("executor_mixes", "executors", "kubectl", "mass_drain", "teams", "told")
"""Modules with a deployment of their own: three need other executors everywhere, one a control plane and no
Airflow, one more nodes and a larger pool, one plugins, and receivers of metrics and traces."""

FIRST = ("told", "each_version")
"""Modules that take longest. The others run beside them, and none of these alone at the end."""

TIMEOUT = 1200
"""Seconds for a test that has no limit of its own. The first one of a module also starts a deployment."""

UNHURRIED = {
    # Schedulers.wait_for_turns() counts heartbeats.
    "AIRFLOW__SCHEDULER__SCHEDULER_HEARTBEAT_SEC": "1",
    # How often a scheduler looks for task instances of one that is dead.
    "AIRFLOW__SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL": "2",
    "AIRFLOW__SCHEDULER__SCHEDULER_HEALTH_CHECK_THRESHOLD": "300",
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "3600",
}
"""
Configuration of every deployment. On a busy machine nothing counts as dead that lives: a test dates back the
heartbeats of what is to count as dead.
"""

FAILED = Path(__file__).parents[1] / ".build" / "failed"
"""Where the logs of a deployment are kept, in a folder named like the test that has failed."""

HOME = pytest.StashKey[Path]()
"""The folder of a module's deployment, from before it starts: how it failed to start is told too."""

SINCE = pytest.StashKey[float]()
"""When the module began to use it, in seconds of the epoch."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """
    Give the tests in this folder their time limit and their order.

    Others may have been collected with them.
    """
    for item in items:
        if item.path.is_relative_to(FOLDER.parent) and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(TIMEOUT))
    items.sort(key=lambda item: FIRST.index(name) if (name := name_of(item.path)) in FIRST else len(FIRST))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show what the deployment of a test that has failed has written last, and keep all of its logs."""
    report = yield
    module = item.getparent(pytest.Module)
    if report.failed and module and (home := module.stash.get(HOME, None)):
        folder = FAILED / f"{item.path.stem}.{item.name.replace('/', '-')}"
        report.sections += post_mortem(home, folder, module.stash[SINCE])
    return report


@pytest.fixture(scope="session")
def shared_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the deployment that most modules share."""
    return tmp_path_factory.mktemp("airflow")


@pytest.fixture(scope="session")
def shared_testbed(request: pytest.FixtureRequest, shared_home: Path) -> Iterator[Testbed]:
    """A deployment for the modules that are to run and need none of their own, with all of their DAGs."""
    dags = shared_home / "dags"
    dags.mkdir()
    for name in {name_of(item.path) for item in request.session.items}.difference(ALONE):
        (dags / name).symlink_to(FOLDER / name)
    settings = TestbedSettings(home=shared_home, dags=dags, env=UNHURRIED, control_plane=CONTROL_PLANE)
    with open_testbed(settings) as testbed:
        yield testbed


@pytest.fixture(scope="module")
def options(request: pytest.FixtureRequest) -> Any:
    """Say what a module's configuration has in addition. A module may have a fixture of this name itself."""
    return getattr(request.module, "DEPLOYMENT", {})


@pytest.fixture(scope="module")
def testbed(
    request: pytest.FixtureRequest, options: Any, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Testbed]:
    """
    A deployment that runs, with a new scheduler.

    A module has its DAGs and their faults in a folder of its name, and says in ``DEPLOYMENT`` what the
    configuration of its schedulers has in addition: a mapping, or a function that makes one for the
    deployment's home. No test relies on another one, but a test may leave behind another scheduler than it
    found.
    """
    name = name_of(Path(request.module.__file__))
    folder = FOLDER / name
    alone = name in ALONE
    home: Path = tmp_path_factory.mktemp("airflow") if alone else request.getfixturevalue("shared_home")
    request.node.stash[HOME], request.node.stash[SINCE] = home, time.time()
    if not alone:
        shared: Testbed = request.getfixturevalue("shared_testbed")
        with shared.configured(_mapping(options, shared.home), folder / "faults.yaml"):
            yield shared
        return
    settings = TestbedSettings(
        home=home,
        dags=folder,
        env={**UNHURRIED, **_mapping(options, home)},
        control_plane=CONTROL_PLANE,
        nodes=getattr(request.module, "NODES", 3),
    )
    with open_testbed(settings) as testbed:
        testbed.lab.use(folder / "faults.yaml")
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


def _mapping(options: Any, home: Path) -> Mapping[str, str]:
    made: Mapping[str, str] = options(home) if callable(options) else options
    return made


def name_of(module: Path) -> str:
    """Return what the folder of a module is called."""
    return module.stem.removeprefix("test_")
