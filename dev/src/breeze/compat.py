# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""``breeze testing compat``: the contract tests, with each supported version of what we build on.

The contract tests name every part of Airflow and of the official provider that we touch. A version that moves
one shows up here by name.
"""

from __future__ import annotations

from functools import partial
from itertools import product
from typing import TYPE_CHECKING, NamedTuple

from breeze.distributions import build_distributions
from breeze.environments import make_environment
from breeze.locking import foreign_requirements
from breeze.paths import BUILD, DEV, PROVIDER, relative
from breeze.steps import Step, run_program, run_steps

if TYPE_CHECKING:
    from pathlib import Path


class Versions(NamedTuple):
    """Versions that are installed together."""

    core: str
    provider: str

    def __str__(self) -> str:
        return f"airflow-{self.core}-provider-{self.provider}"


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

_AT_ONCE = 2
"""Pairs. Each is one process, which spends half of its time starting."""


def check_versions(*, full: bool = False) -> int:
    """Run the contract tests with every pair of versions.

    :param full: every supported pair; otherwise as many as it takes to meet each version.
    :returns: 0 if all passed, otherwise 1.
    """
    wheels = build_distributions(BUILD / "wheels")
    if not wheels:
        return 1
    pairs = [Versions(*pair) for pair in product(_CORES, _PROVIDERS)] if full else _COVERING
    steps = [Step(str(pair), partial(_run_contract, pair, wheels)) for pair in pairs]
    return run_steps("breeze testing compat", steps, at_once=_AT_ONCE)


def _run_contract(versions: Versions, wheels: list[Path]) -> int:
    python = make_environment(
        str(versions),
        wheels,
        [
            f"apache-airflow=={versions.core}",
            f"apache-airflow-providers-cncf-kubernetes=={versions.provider}",
            *map(str, foreign_requirements(DEV)),
        ],
    )
    if python is None:
        return 1
    env = {"AIRFLOW_HOME": str(BUILD / "airflow-home" / str(versions)), "PYTHONPATH": str(DEV / "src")}
    tests = relative(PROVIDER / "tests" / "contract")
    return run_program(
        [python, "-m", "pytest", "-p", "no:cacheprovider", "-q", tests], env=env, in_one_piece=True
    )
