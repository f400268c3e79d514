# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The official provider with our executor in the place of its own."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from breeze.paths import BUILD, UV
from breeze.steps import run_program

OFFICIAL = "apache-airflow-providers-cncf-kubernetes"

_OFFICIAL_WHEELS = BUILD / "official-wheels"


def prepare_in_place_provider(official: Path, folder: Path) -> int:
    """Make such a wheel, by the command that deployers have, which says on stdout where it is.

    :param official: the official wheel.
    :param folder: where to put the new one.
    :returns: 0 if it is made.
    """
    command = [sys.executable, "-m", "airflow", "kubernetes-resilience", "build-provider-wheel"]
    return run_program([*command, "--from", official, "--output", folder])


def make_in_place_wheel(version: str) -> Path | None:
    """Make such a wheel of an official version, anew.

    :param version: the version, as the index has it.
    :returns: the wheel; None if it cannot be made, after the reason has been printed.
    """
    folder = BUILD / "in-place" / version
    shutil.rmtree(folder, ignore_errors=True)
    official = fetch_official_wheel(version)
    if official is None or prepare_in_place_provider(official, folder):
        return None
    return next(folder.iterdir())


def fetch_official_wheel(version: str) -> Path | None:
    """Find an official wheel, or have pip fetch it: uv only installs.

    :param version: the version, as the index has it.
    :returns: the wheel; None if it cannot be had, after the reason has been printed.
    """
    wheel = _OFFICIAL_WHEELS / f"{OFFICIAL.replace('-', '_')}-{version}-py3-none-any.whl"
    if not wheel.exists():
        _OFFICIAL_WHEELS.mkdir(parents=True, exist_ok=True)
        # Other tests may want it at the same time: it appears in one piece.
        with tempfile.TemporaryDirectory(dir=_OFFICIAL_WHEELS) as folder:
            words = ["download", "--quiet", "--no-deps", "--only-binary=:all:", "--dest", folder]
            if run_program([UV.with_name("pip"), *words, f"{OFFICIAL}=={version}"]):
                return None
            Path(folder, wheel.name).rename(wheel)
    return wheel
