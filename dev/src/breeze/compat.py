# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""``breeze testing compat``: each supported version of what we build on.

The contract tests name every part of Airflow and of the official provider that we touch. A version that moves
one shows up here by name. Whether tasks heal with it, only a deployment tells: a few system tests run with
the newest release of each Airflow that is not the locked one. With that one run those of other executors, of
the way here and back, and of Airflow's commands.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import partial
from itertools import product, starmap
from pathlib import Path
from typing import Annotated, NamedTuple

from packaging.version import Version
from typer import Option

from breeze.control_plane import control_plane_environment, control_plane_possible
from breeze.distributions import OFFICIAL, build_distributions, make_in_place_wheel
from breeze.environments import find_pythons, lowest_requirements, make_environment, run_pytest
from breeze.paths import BUILD, DEV
from breeze.steps import Step, run_steps
from breeze.suites import SUITES, SYSTEM


class Versions(NamedTuple):
    """Versions that are installed together."""

    core: str
    provider: str
    in_place: bool = False
    """Whether our executor is in the provider's wheel, in the place of the official one."""
    python: str = ""
    """Version of Python; empty: the one that runs this."""

    def __str__(self) -> str:
        in_place = "-in-place" if self.in_place else ""
        python = f"-python-{self.python}" if self.python else ""
        return f"airflow-{self.core}-provider-{self.provider}{in_place}{python}"


CORES = ("3.1.8", "3.2.2", "3.3.2")
PROVIDERS = ("10.21.0", "10.21.1", "10.22.0", "10.23.0", "10.24.0", "10.25.0")

#: Each version once at least, and the far corners. The newest of both are what the other suites run on.
_COVERING = (
    Versions("3.1.8", "10.21.0"),
    Versions("3.1.8", "10.25.0"),
    Versions("3.2.2", "10.22.0"),
    Versions("3.2.2", "10.23.0"),
    Versions("3.3.2", "10.21.1"),
    Versions("3.3.2", "10.24.0"),
)

#: The locked ones.
NEWEST = Versions("3.3.2", "10.25.0")

#: The oldest and the newest.
_IN_PLACE = (Versions("3.1.8", "10.21.0", in_place=True), NEWEST._replace(in_place=True))

#: The newest pre-release. Our distributions do not say that they work with it.
COMING = Versions("3.4.0b2", "10.25.0")

#: On which all system tests for each version run. Of the locked ones, other suites show what these show.
DEPLOYED = (Versions("3.1.8", "10.21.0", python="3.12"), Versions("3.2.2", "10.25.0", python="3.13"))

#: On which tasks are lost in every way, and no more: what is told of them is not about these.
DEPLOYED_BRIEFLY = (
    Versions("3.1.8", "10.25.0"),
    Versions("3.2.2", "10.21.0"),
    Versions("3.3.2", "10.21.0"),
    _IN_PLACE[-1],
    COMING,
)

_CONTRACT = SUITES["providers-tests"] / "contract"

_OF_LIBRARIES = (SUITES["core-tests"] / "retry_policy", SUITES["providers-tests"] / "unit" / "pods")
"""What reads files and pods, and talks to the API server: little of Airflow, and much of other libraries."""

_ABOUT_THE_PAIR = ("-m", "not airflow_alone and not starts_airflow")
"""What the pairs that meet each version have shown, no other pair shows again."""

_OLDEST_AIRFLOW = ("pyjwt<2.11", "structlog<25.5")
"""What the oldest Airflow needs and does not say: with newer ones it does not start."""

_AT_ONCE = 2
"""Pairs. Each is one process, which spends half of its time starting, or a deployment, which mostly waits."""


def check_versions(
    full: Annotated[
        bool,
        Option(
            "--full",
            help="Every supported pair, not a covering few, and deployments: of each Airflow, with other"
            " executors, on the way here and back.",
        ),
    ] = False,
) -> int:
    """Check what we rely on in Airflow and the official provider against the supported versions."""
    wheels = build_distributions(BUILD / "wheels")
    contracts = [Step("lowest", partial(_run_lowest, wheels))]
    further = set(starmap(Versions, product(CORES, PROVIDERS))) - {*_COVERING} if full else ()
    for pairs, words in (((*_COVERING, *_IN_PLACE, COMING), ()), (sorted(further), _ABOUT_THE_PAIR)):
        contracts += [Step(str(pair), partial(_run, pair, wheels, _CONTRACT, *words)) for pair in pairs]
    failed = run_steps("breeze testing compat", contracts, at_once=_AT_ONCE)
    if full:
        # Not beside the others: environments are shared, and each is brought up to date first.
        failed |= run_steps("breeze testing compat, deployments", _deployments(wheels), at_once=_AT_ONCE)
    return failed


def _deployments(wheels: list[Path]) -> list[Step]:
    """Return the runs of system tests, the longest first: nothing runs beside the end of the last one."""
    control_plane = control_plane_environment() if control_plane_possible() else {}
    pythons = find_pythons()
    return [
        Step(str(versions), partial(_run, versions, wheels, tests, "-m", marked, env=control_plane))
        for deployed, tests, marked in (
            ((NEWEST,), SYSTEM, "long and newest_version"),
            (DEPLOYED, SYSTEM, "each_version"),
            (DEPLOYED_BRIEFLY, SYSTEM / "test_each_version.py", "each_version"),
        )
        for wanted in deployed
        for versions in (wanted if wanted.python in pythons else wanted._replace(python=""),)
    ]


def _run(
    versions: Versions, wheels: list[Path], tests: Path, *options: str, env: Mapping[str, str] | None = None
) -> int:
    in_place = [make_in_place_wheel(versions.provider)] if versions.in_place else []
    airflow = [f"apache-airflow=={versions.core}", f"apache-airflow-core=={versions.core}"]
    python = make_environment(
        str(versions),
        [*wheels, *in_place, *airflow, f"{OFFICIAL}=={versions.provider}", f"-e {DEV}"],
        python=find_pythons().get(versions.python, Path(sys.executable)),
        # Also if our distributions leave it out. By its name, a version of a package may be a pre-release.
        overrides=airflow if Version(versions.core).is_prerelease else (),
    )
    return run_pytest(python, tests, *options, env=env, in_one_piece=True)


def _run_lowest(wheels: list[Path]) -> int:
    """Run tests with the oldest version of each library that our distributions say they work with."""
    requirements = [*wheels, *lowest_requirements(), *_OLDEST_AIRFLOW, f"-e {DEV}"]
    python = make_environment("lowest", requirements)
    # The contract tests have a configuration of their own.
    contracts = run_pytest(python, _CONTRACT, in_one_piece=True)
    return run_pytest(python, *_OF_LIBRARIES, in_one_piece=True) or contracts
