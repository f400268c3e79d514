# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Wheels: ours, as a user would install them, and the official provider's with our executor in it."""

from __future__ import annotations

import shutil
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

from breeze.environments import find_pythons, make_environment
from breeze.paths import BUILD, DISTRIBUTIONS, PROVIDER, PROVIDER_PACKAGE, ROOT, UV
from breeze.steps import console, run_program, run_tool

OFFICIAL = "apache-airflow-providers-cncf-kubernetes"

_DIST = ROOT / "dist"
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
    :returns: the wheels.
    """
    shutil.rmtree(target, ignore_errors=True)
    options = [word for kind in kinds for word in ("--target", kind)]
    for project in DISTRIBUTIONS:
        run_tool("hatchling", "build", "-d", target, *options, cwd=project, check=True)
    wheels = sorted(target.glob("*.whl"))
    for wheel in wheels:
        _check_wheel(wheel)
    return wheels


def _check_wheel(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    # An __init__.py above ours would take the place of Airflow's, or hide the official provider.
    ours = PROVIDER_PACKAGE.relative_to(PROVIDER / "src").as_posix()
    foreign = [name for name in names if name.startswith("airflow/") and not name.startswith(f"{ours}/")]
    needed = ("py.typed", "licenses/LICENSE", "licenses/NOTICE")
    missing = [end for end in needed if not any(name.endswith(f"/{end}") for name in names)]
    if foreign or missing:
        raise ValueError(f"{wheel.name} lacks {missing}, and contains what belongs to Airflow: {foreign}")


def prepare_distributions() -> int:
    """Build the distributions that are published into dist/, and try them in an environment of their own."""
    wheels = build_distributions(_DIST, ("sdist", "wheel"))
    # The long description has to render, and the metadata to be what an index takes.
    run_tool("twine", "check", "--strict", *sorted(_DIST.iterdir()), check=True)
    for version, python in find_pythons().items():
        name = f"release-{version}"
        shutil.rmtree(BUILD / "environments" / name, ignore_errors=True)
        installed = make_environment(name, wheels, python=python)
        # -I: neither this checkout nor the caller's environment may help.
        env = {"AIRFLOW_HOME": str(BUILD / "airflow-home" / name)}
        run_program([installed, "-I", "-c", _TRIAL], env=env, check=True)
        run_program([installed.with_name("airflow-resilience"), "explain", "-f", _POD], check=True)
    console.print(*sorted(_DIST.iterdir()), sep="\n", soft_wrap=True)
    return 0


def make_in_place_wheel(version: str) -> Path:
    """Make a wheel of an official version in which KubernetesExecutor is ours, anew."""
    folder = BUILD / "in-place" / version
    shutil.rmtree(folder, ignore_errors=True)
    words = ["--from", fetch_official_wheel(version), "--output", folder]
    run_tool("airflow", "kubernetes-resilience", "build-provider-wheel", *words, check=True)
    return next(folder.iterdir())


def fetch_official_wheel(version: str) -> Path:
    """Find an official wheel, or have pip fetch it: uv only installs."""
    wheels = BUILD / "official-wheels"
    wheel = wheels / f"{OFFICIAL.replace('-', '_')}-{version}-py3-none-any.whl"
    if not wheel.exists():
        wheels.mkdir(parents=True, exist_ok=True)
        # Other tests may want it at the same time: it appears in one piece.
        with tempfile.TemporaryDirectory(dir=wheels) as folder:
            words = ["download", "--quiet", "--no-deps", "--only-binary=:all:", "--dest", folder]
            run_program([UV.with_name("pip"), *words, f"{OFFICIAL}=={version}"], check=True)
            Path(folder, wheel.name).rename(wheel)
    return wheel
