# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Virtual environments of other versions than the locked ones, made with uv and kept under .build/."""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.utils import parse_wheel_filename

from breeze.paths import BUILD, LOCK, UV
from breeze.steps import run_program

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def make_environment(
    name: str,
    wheels: Sequence[Path],
    requirements: Sequence[str] = (),
    *,
    sources: Sequence[Path] = (),
    env: Mapping[str, str] | None = None,
) -> Path | None:
    """Make, or bring up to date, a virtual environment with our Python.

    Everything comes at the locked version, unless that contradicts what is asked for: a new release of some
    library must not fail a check that is about something else.

    :param name: what to call it.
    :param wheels: wheels that were built here.
    :param requirements: what to install besides them and their dependencies, in the words of pip.
    :param sources: folders whose modules can be imported in it, whoever starts its Python.
    :param env: variables for what has to be compiled.
    :returns: its Python, or None if it could not be made; the reason has been printed.
    """
    home = BUILD / "environments" / name
    wanted, resolved = home.with_name(f"{name}.in"), home.with_name(f"{name}.txt")
    home.parent.mkdir(parents=True, exist_ok=True)
    wanted.write_text("".join(f"{requirement}\n" for requirement in [*wheels, *requirements]))
    # uv keeps to the versions that it finds in the file which it is to write.
    resolved.write_bytes(LOCK.read_bytes())
    # What is built here keeps its version while its content changes.
    built = [f"--reinstall-package={parse_wheel_filename(wheel.name)[0]}" for wheel in wheels]
    commands: list[list[str | Path]] = [
        [UV, "venv", "--quiet", "--allow-existing", "--python", sys.executable, home],
        [UV, "pip", "compile", "--quiet", "--python", sys.executable, wanted, "--output-file", resolved],
        [UV, "pip", "sync", "--quiet", "--python", home, *built, resolved],
    ]
    if any(run_program(command, env=env) for command in commands):
        return None
    # Not PYTHONPATH: the workers of a deployment are given an environment of their own.
    path_file = _site_packages(home) / "sources-of-this-checkout.pth"
    path_file.write_text("".join(f"{source}\n" for source in sources))
    return home / "bin" / "python"


def _site_packages(home: Path) -> Path:
    """Return where a virtual environment that our Python has made keeps its packages."""
    return Path(sysconfig.get_path("purelib", "venv", {"base": str(home)}))
