# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""requirements.lock: every dependency, at one version, with its hashes.

``uv.lock`` would do the same, but it records the address of the index it was made with, and contributors and
CI use different ones.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from packaging.requirements import Requirement
from packaging.utils import NormalizedName, canonicalize_name
from packaging.version import Version

from breeze.paths import BUILD, DISTRIBUTIONS, LOCK, PROJECTS, UV, relative
from breeze.steps import console, run_program

if TYPE_CHECKING:
    from pathlib import Path

_OLDEST_COMPANIONS = ("opentelemetry-exporter-otlp<1.28",)
"""
What only Airflow requires, and what an old version of one of our own requirements needs to be old too: the
newest exporter works with the newest ``opentelemetry-api`` alone.
"""

_PIN = re.compile(r"^(?P<name>[A-Za-z0-9][\w.-]*)==(?P<version>[^\s;\\]+)", re.MULTILINE)


def write_lock(*, upgrade: bool = False) -> int:
    """Resolve the dependencies of all projects, for every supported Python and platform.

    :param upgrade: whether to prefer the newest versions to those locked now.
    :returns: the exit code of uv.
    """
    resolution = ["--universal", "--generate-hashes", "--python-version=3.11"]
    contents = ["--no-header", "--no-annotate", "--no-emit-index-url"]
    own = [f"--no-emit-package={read_project(project)['name']}" for project in PROJECTS]
    options = [*resolution, *contents, *own, *(["--upgrade"] if upgrade else [])]
    sources = [relative(project / "pyproject.toml") for project in PROJECTS]
    return run_program([UV, "pip", "compile", "--quiet", *options, "--output-file", relative(LOCK), *sources])


def unlocked_requirements() -> list[str]:
    """Find what the lock does not satisfy, without asking an index.

    :returns: one sentence for each direct dependency that is missing from the lock, or locked at a version
        that the project does not accept.
    """
    locked = _locked_versions()
    return [
        f"{relative(project)} requires {requirement}, which is not locked: run ./breeze lock"
        for project in PROJECTS
        for requirement in foreign_requirements(project)
        if not any(map(requirement.specifier.contains, locked[canonicalize_name(requirement.name)]))
    ]


def lowest_versions() -> list[str]:
    """Resolve what our distributions depend on directly to the oldest versions that they accept.

    :returns: a pin for each; none if that cannot be done, or if one of those versions cannot be installed
        with the others, so that nothing shows that it works; the reason has been printed.
    """
    target, constraints = BUILD / "lowest.txt", BUILD / "lowest.constraints"
    options = ["--quiet", "--no-header", "--no-annotate", "--python", sys.executable]
    own = [f"--no-emit-package={read_project(project)['name']}" for project in PROJECTS]
    sources = [project / "pyproject.toml" for project in DISTRIBUTIONS]
    constraints.write_text("".join(f"{constraint}\n" for constraint in _OLDEST_COMPANIONS))
    options += ["--constraint", str(constraints)]
    target.unlink(missing_ok=True)
    if run_program(
        [UV, "pip", "compile", "--resolution=lowest-direct", *options, *own, "-o", target, *sources]
    ):
        return []
    found = {canonicalize_name(pin["name"]): pin for pin in _PIN.finditer(target.read_text())}
    bounds = _lower_bounds()
    raised = [
        f"{found[name][0]} is the oldest that can be installed, and {bound} the oldest that is accepted"
        for name, bound in bounds.items()
        if Version(found[name]["version"]) != bound
    ]
    for problem in raised:
        console.print(problem, markup=False)
    return [] if raised else [found[name][0] for name in bounds]


def _lower_bounds() -> dict[NormalizedName, Version]:
    """Return the oldest version of each requirement that our distributions accept, both of them together."""
    bounds: dict[NormalizedName, Version] = {}
    for project in DISTRIBUTIONS:
        for requirement in foreign_requirements(project):
            (bound,) = (Version(one.version) for one in requirement.specifier if one.operator == ">=")
            name = canonicalize_name(requirement.name)
            bounds[name] = max(bound, bounds.get(name, bound))
    return bounds


def foreign_requirements(project: Path) -> list[Requirement]:
    """Give what a project requires besides other projects of this repository.

    :param project: the folder of the project.
    """
    own = {canonicalize_name(read_project(other)["name"]) for other in PROJECTS}
    requirements = map(Requirement, read_project(project)["dependencies"])
    return [requirement for requirement in requirements if canonicalize_name(requirement.name) not in own]


def read_project(project: Path) -> dict[str, Any]:
    """Read the table ``project`` of a pyproject.toml.

    :param project: the folder of the project.
    """
    table: dict[str, Any] = tomllib.loads((project / "pyproject.toml").read_text())["project"]
    return table


def _locked_versions() -> defaultdict[str, list[str]]:
    """Read the lock; a package has several versions where they differ by Python or platform."""
    versions: defaultdict[str, list[str]] = defaultdict(list)
    for pin in _PIN.finditer(LOCK.read_text()):
        versions[canonicalize_name(pin["name"])].append(pin["version"])
    return versions
