# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Virtual environments of other versions than the locked ones, made with uv and kept under .build/."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.utils import parse_wheel_filename

from breeze.paths import BUILD, LOCK, UV
from breeze.steps import run_program

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


_SUPPORTED_PYTHONS = ("3.11", "3.12", "3.13")


def find_pythons() -> dict[str, Path]:
    """Find an interpreter of each supported version: on ``PATH``, or among those of pyenv.

    :returns: the interpreters by their versions; a version that is not installed is left out.
    """
    pyenv = Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser() / "versions"
    found: dict[str, Path] = {}
    for version in _SUPPORTED_PYTHONS:
        on_path = shutil.which(f"python{version}") or sys.executable
        candidates = (Path(sys.executable), Path(on_path), *sorted(pyenv.glob(f"{version}.*/bin/python")))
        # What pyenv has on PATH may be a script that finds no such version.
        if python := next((path for path in candidates if _is_version(path, version)), None):
            found[version] = python
    return found


def _is_version(python: Path, version: str) -> bool:
    told = subprocess.run([python, "--version"], capture_output=True, text=True, check=False)
    return told.returncode == 0 and told.stdout.startswith(f"Python {version}.")


def make_environment(
    name: str,
    wheels: Sequence[Path],
    requirements: Sequence[str] = (),
    *,
    sources: Sequence[Path] = (),
    env: Mapping[str, str] | None = None,
    python: Path = Path(sys.executable),
    overrides: Sequence[str] = (),
) -> Path | None:
    """Make, or bring up to date, a virtual environment.

    Everything comes at the locked version, unless that contradicts what is asked for: a new release of some
    library must not fail a check that is about something else.

    :param name: what to call it.
    :param wheels: wheels that were built here.
    :param requirements: what to install besides them and their dependencies, in the words of pip.
    :param sources: folders whose modules can be imported in it, whoever starts its Python.
    :param env: variables for what has to be compiled.
    :param python: the Python to make it with.
    :param overrides: requirements that stand for all others of the same packages.
    :returns: its Python, or None if it could not be made; the reason has been printed.
    """
    home = BUILD / "environments" / name
    wanted, resolved = home.with_name(f"{name}.in"), home.with_name(f"{name}.txt")
    home.parent.mkdir(parents=True, exist_ok=True)
    wanted.write_text("".join(f"{requirement}\n" for requirement in [*wheels, *requirements]))
    # uv keeps to the versions that it finds in the file which it is to write.
    resolved.write_bytes(LOCK.read_bytes())
    overriding = home.with_name(f"{name}.overrides")
    overriding.write_text("".join(f"{requirement}\n" for requirement in overrides))
    # What is built here keeps its version while its content changes.
    built = [f"--reinstall-package={parse_wheel_filename(wheel.name)[0]}" for wheel in wheels]
    compile_: list[str | Path] = [UV, "pip", "compile", "--quiet", "--python", python]
    commands: list[list[str | Path]] = [
        [UV, "venv", "--quiet", "--allow-existing", "--python", python, home],
        [*compile_, "--override", overriding, wanted, "--output-file", resolved],
        [UV, "pip", "sync", "--quiet", "--python", home, *built, resolved],
    ]
    if any(run_program(command, env=env) for command in commands):
        return None
    # Not PYTHONPATH: the workers of a deployment are given an environment of their own.
    (site_packages,) = home.glob("lib/python3*/site-packages")
    path_file = site_packages / "sources-of-this-checkout.pth"
    path_file.write_text("".join(f"{source}\n" for source in sources))
    return home / "bin" / "python"
