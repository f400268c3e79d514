# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""``breeze testing compat``: each supported version of what we build on.

The contract tests name every part of Airflow and of the official provider that we touch. A version that moves
one shows up here by name. Whether tasks heal with it, only a deployment tells: a few system tests run with
the newest release of each Airflow that is not the locked one.
"""

from __future__ import annotations

from functools import partial
from itertools import product
from typing import TYPE_CHECKING, NamedTuple

from breeze.control_plane import control_plane_environment
from breeze.distributions import build_distributions
from breeze.environments import make_environment
from breeze.in_place import OFFICIAL, make_in_place_wheel
from breeze.locking import foreign_requirements
from breeze.paths import BUILD, DEV, PROVIDER, relative
from breeze.steps import Step, run_program, run_steps
from breeze.suites import EACH_VERSION, SUITES

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


class Versions(NamedTuple):
    """Versions that are installed together."""

    core: str
    provider: str
    in_place: bool = False
    """Whether our executor is in the provider's wheel, in the place of the official one."""

    def __str__(self) -> str:
        return f"airflow-{self.core}-provider-{self.provider}{'-in-place' if self.in_place else ''}"


_CORES = ("3.1.8", "3.2.2", "3.3.2")
_PROVIDERS = ("10.21.0", "10.22.0", "10.23.0", "10.24.0", "10.25.0")

#: Each version once at least, and the far corners. The newest of both are what the other suites run on.
_COVERING = (
    Versions("3.1.8", "10.21.0"),
    Versions("3.1.8", "10.25.0"),
    Versions("3.2.2", "10.22.0"),
    Versions("3.2.2", "10.23.0"),
    Versions("3.3.2", "10.21.0"),
    Versions("3.3.2", "10.24.0"),
)

#: The oldest and the newest.
_IN_PLACE = (Versions("3.1.8", "10.21.0", in_place=True), Versions("3.3.2", "10.25.0", in_place=True))

#: On which a deployment runs. On the locked versions, which are the newest, all system tests do.
_DEPLOYED = (Versions("3.1.8", "10.21.0"), Versions("3.2.2", "10.25.0"), _IN_PLACE[-1])

_AT_ONCE = 2
"""Pairs. Each is one process, which spends half of its time starting, or a deployment, which mostly waits."""


def check_versions(*, full: bool = False) -> int:
    """Run the contract tests with every pair of versions.

    :param full: every supported pair, and deployments; otherwise as many pairs as it takes to meet each
        version. In either case, the wheels that have our executor in them are among them.
    :returns: 0 if all passed, otherwise 1.
    """
    wheels = build_distributions(BUILD / "wheels")
    if not wheels:
        return 1
    pairs = [Versions(*pair) for pair in product(_CORES, _PROVIDERS)] if full else _COVERING
    contracts = [Step(str(pair), partial(_run_contract, pair, wheels)) for pair in (*pairs, *_IN_PLACE)]
    failed = run_steps("breeze testing compat", contracts, at_once=_AT_ONCE)
    if full:
        # Not beside the others: environments are shared, and each is brought up to date first.
        control_plane = control_plane_environment()
        deployments = [
            Step(str(pair), partial(_run_deployment, pair, wheels, control_plane)) for pair in _DEPLOYED
        ]
        failed |= run_steps("breeze testing compat, deployments", deployments, at_once=_AT_ONCE)
    return failed


def _run_contract(versions: Versions, wheels: list[Path]) -> int:
    return _run_pytest(versions, wheels, PROVIDER / "tests" / "contract")


def _run_deployment(versions: Versions, wheels: list[Path], control_plane: Mapping[str, str]) -> int:
    tests = SUITES["system-tests"].tests
    if versions.in_place:
        # The rest is not about where the executor comes from.
        tests /= "test_each_version.py"
    return _run_pytest(versions, wheels, tests, "-m", EACH_VERSION, env=control_plane)


def _run_pytest(
    versions: Versions, wheels: list[Path], tests: Path, *options: str, env: Mapping[str, str] | None = None
) -> int:
    if versions.in_place:
        wheel = make_in_place_wheel(versions.provider)
        if wheel is None:
            return 1
        wheels = [*wheels, wheel]
    python = make_environment(
        str(versions),
        wheels,
        [
            f"apache-airflow=={versions.core}",
            f"{OFFICIAL}=={versions.provider}",
            *map(str, foreign_requirements(DEV)),
        ],
        sources=[DEV / "src"],
    )
    if python is None:
        return 1
    home = BUILD / "airflow-home" / str(versions)
    return run_program(
        [python, "-m", "pytest", "-p", "no:cacheprovider", "-q", relative(tests), *options],
        env={"AIRFLOW_HOME": str(home), **(env or {})},
        in_one_piece=True,
    )
