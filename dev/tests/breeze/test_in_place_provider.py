# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The official provider with our executor in it, installed as deployers install it, and how they go back."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from breeze.distributions import OFFICIAL, build_distributions, make_in_place_wheel
from breeze.environments import make_environment
from breeze.paths import UV

NEWEST = "10.25.0"

PATH = "airflow.providers.cncf.kubernetes.executors.kubernetes_executor.KubernetesExecutor"
OURS = "airflow.providers.cncf.kubernetes_resilience.executors.kubernetes_executor"

WHAT_AIRFLOW_FINDS = f"""
import importlib, json, pkgutil, sys
from importlib.metadata import version
from airflow.executors.executor_loader import ExecutorLoader

class_, _ = ExecutorLoader.import_default_executor_cls()
(name,) = ExecutorLoader.get_executor_names()
path = importlib.import_module({PATH.rpartition(".")[0]!r})
bases = [f"{{base.__module__}}.{{base.__name__}}" for base in class_.__mro__]

import airflow.providers.cncf.kubernetes as provider
modules, broken = [], {{}}
for module in pkgutil.walk_packages(provider.__path__, f"{{provider.__name__}}."):
    try:
        modules.append(importlib.import_module(module.name))
    except Exception as error:
        broken[module.name] = repr(error)

from airflow.providers_manager import ProvidersManager
manager = ProvidersManager()
print(json.dumps({{
    "path": name.module_path,
    "class": f"{{class_.__module__}}.{{class_.__name__}}",
    "same": path.KubernetesExecutor is class_,
    "bases": bases,
    "names": sorted(name for name in vars(path) if not name.startswith("__")),
    "broken": broken,
    "provider": manager.providers[{OFFICIAL!r}].version,
    "executors": sorted(manager.executor_class_names),
}}))
"""


class Deployment:
    """A virtual environment with Airflow."""

    def __init__(self, python: Path, home: Path) -> None:
        self.python = python
        self.env = {"PATH": "", "AIRFLOW_HOME": str(home), "AIRFLOW__CORE__EXECUTOR": "KubernetesExecutor"}

    def run(self, *words: str) -> str:
        """Run its Python, and return what it prints."""
        return subprocess.check_output([self.python, "-I", *words], env=self.env, text=True)

    def finds(self, first: str = "sys") -> dict:
        """Return what Airflow finds in there, if this module is the first that is imported."""
        return json.loads(self.run("-c", f"import {first}\n{WHAT_AIRFLOW_FINDS}").splitlines()[-1])

    def pip(self, *words: str) -> None:
        """Run pip for it."""
        subprocess.run([UV.with_name("pip"), "--python", self.python, *words], check=True)


@pytest.fixture
def deployment(tmp_path):
    wheels = [*build_distributions(tmp_path / "wheels"), make_in_place_wheel(NEWEST)]
    return Deployment(make_environment("in-place", wheels), tmp_path)


@pytest.mark.long
def test_upgrade_and_the_way_back(deployment):
    found = deployment.finds()
    assert (
        deployment.run("-m", "airflow", "config", "get-value", "core", "executor") == "KubernetesExecutor\n"
    )
    assert found["path"] == PATH
    assert (found["class"], found["same"]) == (f"{OURS}.KubernetesExecutor", True)
    moved = PATH.replace(".kubernetes_executor.", ".official_kubernetes_executor.")
    assert moved in found["bases"]
    assert {PATH, f"{OURS}.KubernetesExecutor"} <= set(found["executors"])
    assert found["provider"] == f"{NEWEST}+resilience.1"
    # Whichever is imported first: neither waits for the other.
    assert deployment.finds(OURS) == deployment.finds(PATH.rpartition(".")[0]) == found
    assert "cleanup-pods" in deployment.run("-m", "airflow", "kubernetes", "--help")
    assert "build-provider-wheel" in deployment.run("-m", "airflow", "kubernetes-resilience", "--help")
    deployment.pip("check")

    # The version that is asked for is there, as pip has it: a later installation does not undo the upgrade.
    deployment.pip("install", f"{OFFICIAL}=={NEWEST}")
    assert deployment.finds() == found

    deployment.pip("install", "--force-reinstall", "--no-deps", f"{OFFICIAL}=={NEWEST}")
    official = deployment.finds()
    assert (official["class"], official["provider"]) == (PATH, NEWEST)
    # The new module has each name of the official one.
    assert set(official["names"]) < set(found["names"])
    # Nothing but the executor works otherwise, modules that need other packages among them.
    assert official["broken"] == found["broken"]
    assert not [name for name in official["broken"] if ".operators." in name or ".cli." in name]
    deployment.pip("check")
