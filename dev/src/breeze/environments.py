# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""What is installed where: the lock, and virtual environments of other versions, kept under .build/."""

from __future__ import annotations

import os
import shutil
import sys
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

from packaging.requirements import Requirement
from packaging.version import Version
from typer import Option

from breeze.paths import BUILD, CORE, DEV, DISTRIBUTIONS, PROVIDER, ROOT, UV
from breeze.steps import run_program

_LOCK = ROOT / "requirements.lock"
SUPPORTED_PYTHONS = ("3.11", "3.12", "3.13")


def write_lock(
    upgrade: Annotated[
        bool, Option("--upgrade", help="Take the newest versions; otherwise only what has to change.")
    ] = False,
) -> int:
    """Write requirements.lock anew from the dependencies of the three projects."""
    # uv.lock would record the address of an index, and contributors and CI use different ones.
    contents = ["--universal", "--generate-hashes", "--no-header", "--no-annotate", "--no-emit-index-url"]
    own = ("airflow-resilience", "airflow-provider-cncf-kubernetes-resilience", "airflow-resilience-dev")
    contents += [f"--no-emit-package={name}" for name in own]
    sources = [project.relative_to(ROOT) / "pyproject.toml" for project in (CORE, PROVIDER, DEV)]
    options = [*contents, "--python-version=3.11", *(["--upgrade"] if upgrade else [])]
    return run_program([UV, "pip", "compile", "--quiet", *options, "-o", _LOCK.name, *sources])


def lowest_requirements() -> list[str]:
    """Pin what our distributions require to the oldest versions that both of them accept."""
    lowest: dict[str, Version] = {}
    for project in DISTRIBUTIONS:
        table = tomllib.loads((project / "pyproject.toml").read_text())["project"]
        for requirement in map(Requirement, table["dependencies"]):
            name = requirement.name
            for bound in (Version(one.version) for one in requirement.specifier if one.operator == ">="):
                lowest[name] = max(bound, lowest.get(name, bound))
    return [f"{name}=={version}" for name, version in lowest.items()]


def find_pythons() -> dict[str, Path]:
    """Find an interpreter of each supported version that is installed: this one, pyenv's, or on ``PATH``."""
    # Before PATH, where pyenv has a script that fails for each version that is not chosen.
    pyenv = Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser() / "versions"
    folders = [str(Path(sys.executable).parent), *map(str, sorted(pyenv.glob("*/bin")))]
    path = os.pathsep.join([*folders, os.environ.get("PATH", os.defpath)])
    found = {version: shutil.which(f"python{version}", path=path) for version in SUPPORTED_PYTHONS}
    return {version: Path(python) for version, python in found.items() if python}


def make_environment(
    name: str,
    requirements: Sequence[object],
    *,
    env: Mapping[str, str] | None = None,
    python: Path = Path(sys.executable),
    overrides: Sequence[str] = (),
) -> Path:
    """Make, or bring up to date, a virtual environment.

    Everything comes at the locked version, unless that contradicts what is asked for: a new release of some
    library must not fail a check that is about something else.

    :param name: what to call it.
    :param requirements: what to install besides its dependencies, in the words of pip; wheels among it.
    :param env: variables for what has to be compiled.
    :param python: the Python to make it with.
    :param overrides: requirements that stand for all others of the same packages.
    :returns: its Python.
    """
    home = BUILD / "environments" / name
    home.parent.mkdir(parents=True, exist_ok=True)
    wanted, overriding, resolved = (home.with_name(f"{name}.{end}") for end in ("in", "overrides", "txt"))
    for file, lines in ((wanted, requirements), (overriding, overrides)):
        file.write_text("".join(f"{line}\n" for line in lines))
    # uv keeps to the versions that it finds in the file which it is to write.
    shutil.copyfile(_LOCK, resolved)
    compile_ = [UV, "pip", "compile", "--quiet", "--no-sources", "--python", python]
    for command in (
        [UV, "venv", "--quiet", "--allow-existing", "--python", python, home],
        [*compile_, "--override", overriding, wanted, "--output-file", resolved],
        [UV, "pip", "sync", "--quiet", "--python", home, resolved],
    ):
        run_program(command, env=env, check=True)
    return home / "bin" / "python"


def run_pytest(
    python: Path, *words: object, env: Mapping[str, str] | None = None, in_one_piece: bool = False
) -> int:
    """
    Run pytest in an environment, with an ``AIRFLOW_HOME`` of its own that is new, and return its exit code.

    :param python: of the environment.
    :param env: variables to set besides those of this process.
    :param in_one_piece: show its output once it has ended.
    """
    home = BUILD / "airflow-home" / python.parents[1].name
    # Airflow 3.1 writes defaults into its airflow.cfg, and the next run would take them for somebody's.
    shutil.rmtree(home, ignore_errors=True)
    command = [python, "-m", "pytest", "-p", "no:cacheprovider", "-q", *words]
    return run_program(command, env={"AIRFLOW_HOME": str(home), **(env or {})}, in_one_piece=in_one_piece)
