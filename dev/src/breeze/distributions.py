# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Building the published distributions, and trying them as a user would install them."""

from __future__ import annotations

import shutil
import sys
import zipfile
from typing import TYPE_CHECKING

from breeze.environments import find_pythons, make_environment
from breeze.paths import BUILD, DISTRIBUTIONS, PROVIDER, PROVIDER_PACKAGE, ROOT, relative
from breeze.steps import console, run_program, run_tool

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_DIST = ROOT / "dist"

#: All that we may have below ``airflow/``. An ``__init__.py`` above it would take the place of the installed
#: Airflow's, or hide the official provider.
_OURS = PROVIDER_PACKAGE.relative_to(PROVIDER / "src").as_posix()

#: A pod that is relaunched: the quick command ends with 0.
_POD = ROOT / "docs" / "policy-examples" / "drain.yaml"

#: Run in a clean environment: both providers import, Airflow finds ours, and its options have their defaults.
_TRIAL = """
from airflow.configuration import conf
from airflow.providers.cncf.kubernetes.executors.kubernetes_executor import KubernetesExecutor as Official
from airflow.providers.cncf.kubernetes_resilience.executors.kubernetes_executor import KubernetesExecutor
from airflow.providers_manager import ProvidersManager

assert issubclass(KubernetesExecutor, Official)
manager = ProvidersManager()
assert "airflow-provider-cncf-kubernetes-resilience" in manager.providers, list(manager.providers)
manager.initialize_providers_configuration()
assert conf.getint("kubernetes_resilience", "api_concurrency") > 0
assert conf.getint("kubernetes_executor", "worker_pods_creation_batch_size") > 0
print("Airflow finds the provider; the executor imports next to the official one.")
"""


def build_distributions(target: Path, kinds: Sequence[str] = ("wheel",)) -> list[Path]:
    """Build the published distributions, with the locked hatchling.

    :param target: the folder to put them in; what it held before is deleted.
    :param kinds: "wheel", "sdist" or both.
    :returns: the wheels; empty if something failed, after the reason has been printed.
    """
    shutil.rmtree(target, ignore_errors=True)
    options = [word for kind in kinds for word in ("--target", kind)]
    for project in DISTRIBUTIONS:
        if run_program([sys.executable, "-m", "hatchling", "build", "-d", target, *options], cwd=project):
            return []
    wheels = sorted(target.glob("*.whl"))
    return [] if any(_check_wheel(wheel) for wheel in wheels) else wheels


def prepare_distributions() -> int:
    """Build wheels and source distributions into dist/, then install the wheels and try them.

    :returns: 0 if they work.
    """
    wheels = build_distributions(_DIST, ("sdist", "wheel"))
    if not wheels:
        return 1
    # The long description has to render, and the metadata to be what an index takes.
    if exit_code := run_tool("twine", "check", "--strict", *sorted(_DIST.iterdir())):
        return exit_code
    if exit_code := max(_try(wheels, version, python) for version, python in find_pythons().items()):
        return exit_code
    for path in sorted(_DIST.iterdir()):
        console.print(relative(path))
    return 0


def _try(wheels: Sequence[Path], version: str, python: Path) -> int:
    """Install the wheels as a user does, into an environment that has nothing else, and try them."""
    name = f"release-{version}"
    shutil.rmtree(BUILD / "environments" / name, ignore_errors=True)
    installed = make_environment(name, wheels, python=python)
    if installed is None:
        return 1
    # -I: neither this checkout nor the caller's environment may help.
    env = {"AIRFLOW_HOME": str(BUILD / "airflow-home" / name)}
    quick = installed.with_name("airflow-resilience")
    trial = run_program([installed, "-I", "-c", _TRIAL], env=env)
    return trial or run_program([quick, "explain", "-f", _POD])


def _check_wheel(wheel: Path) -> int:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    problems = [
        f"{wheel.name} contains {name}, which belongs to Airflow"
        for name in names
        if name.startswith("airflow/") and not name.startswith(f"{_OURS}/")
    ]
    problems += [
        f"{wheel.name} lacks {required}"
        for required in ("py.typed", "licenses/LICENSE", "licenses/NOTICE")
        if not any(name.endswith(f"/{required}") for name in names)
    ]
    for problem in problems:
        console.print(problem, markup=False)
    return len(problems)
