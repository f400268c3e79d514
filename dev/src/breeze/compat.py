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
from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from packaging.version import Version

from breeze.control_plane import control_plane_environment
from breeze.distributions import build_distributions
from breeze.environments import find_pythons, make_environment
from breeze.in_place import OFFICIAL, make_in_place_wheel
from breeze.locking import foreign_requirements, lowest_versions
from breeze.paths import BUILD, DEV, PROVIDER, relative
from breeze.steps import Step, run_program, run_steps
from breeze.suites import EACH_VERSION, SYSTEM, Part

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


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

    @property
    def on_this_machine(self) -> Versions:
        """The same with a Python that is installed."""
        return self if self.python in find_pythons() else self._replace(python="")


_CORES = ("3.1.8", "3.2.2", "3.3.2")
_PROVIDERS = ("10.21.0", "10.21.1", "10.22.0", "10.23.0", "10.24.0", "10.25.0")

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
_NEWEST = Versions("3.3.2", "10.25.0")

#: The oldest and the newest.
_IN_PLACE = (Versions("3.1.8", "10.21.0", in_place=True), _NEWEST._replace(in_place=True))

#: The newest pre-release. Our distributions do not say that they work with it.
_COMING = Versions("3.4.0b2", "10.25.0")

#: On which all system tests for each version run. Of the locked ones, other suites show what these show.
_DEPLOYED = (Versions("3.1.8", "10.21.0", python="3.12"), Versions("3.2.2", "10.25.0", python="3.13"))

#: On which tasks are lost in every way, and no more: what is told of them is not about these.
_DEPLOYED_BRIEFLY = (
    Versions("3.1.8", "10.25.0"),
    Versions("3.2.2", "10.21.0"),
    Versions("3.3.2", "10.21.0"),
    _IN_PLACE[-1],
    _COMING,
)

_ABOUT_THE_PAIR = ("-m", "not airflow_alone and not starts_airflow")
"""What the pairs that meet each version have shown, no other pair shows again."""

_CONTRACT = PROVIDER / "tests" / "contract"

_OLDEST_AIRFLOW = ("pyjwt<2.11", "structlog<25.5")
"""What the oldest Airflow needs and does not say: with newer ones it does not start."""

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
    contracts = [
        Step("lowest", partial(_run_lowest, wheels)),
        *(Step(str(pair), partial(_run_contract, pair, wheels)) for pair in (*pairs, *_IN_PLACE, _COMING)),
    ]
    failed = run_steps("breeze testing compat", contracts, at_once=_AT_ONCE)
    if full:
        # Not beside the others: environments are shared, and each is brought up to date first.
        failed |= run_steps("breeze testing compat, deployments", _deployments(wheels), at_once=_AT_ONCE)
    return failed


def _deployments(wheels: list[Path]) -> list[Step]:
    """Return the runs of system tests, the longest first: nothing runs beside the end of the last one."""
    control_plane = control_plane_environment()
    return [
        Step(str(versions), partial(_run, versions, wheels, tests, "-m", marked, env=control_plane))
        for deployed, tests, marked in (
            ((_NEWEST,), SYSTEM, Part.COMPAT.value),
            (_DEPLOYED, SYSTEM, EACH_VERSION),
            (_DEPLOYED_BRIEFLY, SYSTEM / "test_each_version.py", EACH_VERSION),
        )
        for versions in (wanted.on_this_machine for wanted in deployed)
    ]


def _run_contract(versions: Versions, wheels: list[Path]) -> int:
    is_one_more = versions not in (*_COVERING, *_IN_PLACE, _COMING)
    return _run(versions, wheels, _CONTRACT, *(_ABOUT_THE_PAIR if is_one_more else ()))


def _run_lowest(wheels: list[Path]) -> int:
    """Run the contract tests with the oldest versions that our distributions say they work with."""
    lowest = lowest_versions()
    return _run_pytest("lowest", wheels, [*lowest, *_OLDEST_AIRFLOW], _CONTRACT) if lowest else 1


def _run(
    versions: Versions, wheels: list[Path], tests: Path, *options: str, env: Mapping[str, str] | None = None
) -> int:
    if versions.in_place:
        wheel = make_in_place_wheel(versions.provider)
        if wheel is None:
            return 1
        wheels = [*wheels, wheel]
    airflow = [f"apache-airflow=={versions.core}", f"apache-airflow-core=={versions.core}"]
    return _run_pytest(
        str(versions),
        wheels,
        [*airflow, f"{OFFICIAL}=={versions.provider}"],
        tests,
        *options,
        env=env,
        python=find_pythons().get(versions.python, Path(sys.executable)),
        # Also if our distributions leave it out. By its name, a version of a package may be a pre-release.
        overrides=airflow if Version(versions.core).is_prerelease else (),
    )


def _run_pytest(
    name: str,
    wheels: list[Path],
    requirements: Sequence[str],
    tests: Path,
    *options: str,
    env: Mapping[str, str] | None = None,
    python: Path = Path(sys.executable),
    overrides: Sequence[str] = (),
) -> int:
    requirements = [*requirements, *map(str, foreign_requirements(DEV))]
    made = make_environment(
        name, wheels, requirements, sources=[DEV / "src"], python=python, overrides=overrides
    )
    if made is None:
        return 1
    home = BUILD / "airflow-home" / name
    return run_program(
        [made, "-m", "pytest", "-p", "no:cacheprovider", "-q", relative(tests), *options],
        env={"AIRFLOW_HOME": str(home), **(env or {})},
        in_one_piece=True,
    )
