# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Build a real Kubernetes control plane from Debian's packages, and print the folder that it is in.

It holds ``etcd``, ``kube-apiserver``, ``kube-controller-manager``, ``kube-scheduler`` and ``kubectl``, and is
in a cache outside the checkout: ``$CONTROL_PLANE_CACHE``, by default ``airflow-resilience/control-plane`` in
``$XDG_CACHE_HOME`` (``~/.cache``). What is there already is used; only a build needs the network. It needs
neither root nor a compiler, and leaves nothing but the cache.

Needs nothing but Python's standard library.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import os
import platform
import re
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

from control_plane_recipe import BuildError, Workshop, make, say

CACHE_VARIABLE = "CONTROL_PLANE_CACHE"
RELEASE = "bookworm"
"""Later ones do not have the source of the servers, or need another recipe."""

_PARTIAL = "build-"


def main() -> int:
    """Build, unless that has been done, and print the folder."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--check", action="store_true", help="only tell whether this machine can have one")
    options = parser.parse_args()
    # The default action would leave the temporary folder behind.
    signal.signal(signal.SIGTERM, _leave)
    cache = cache_folder()
    try:
        found = find(cache)
        if found is None:
            require_debian()
        if not options.check:
            print(found or build(cache))
    except BuildError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def cache_folder() -> Path:
    """Tell where the results of builds are kept."""
    if chosen := os.environ.get(CACHE_VARIABLE):
        return Path(chosen).absolute()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "airflow-resilience" / "control-plane"


def recipe() -> str:
    """Name this way of building; another one has to be built anew."""
    text = Path(__file__).with_name("control_plane_recipe.py").read_bytes()
    return hashlib.sha256(text + platform.machine().encode()).hexdigest()[:12]


def find(cache: Path) -> Path | None:
    """Find what this recipe has built from the newest package."""
    # A folder gets its name when it is complete.
    return max(cache.glob(f"kubernetes-*-{recipe()}"), key=lambda path: path.stat().st_mtime, default=None)


def build(cache: Path) -> Path:
    """Build in a temporary folder, and give the result its place in the cache.

    :raises BuildError: if a step of it fails.
    """
    cache.mkdir(parents=True, exist_ok=True)
    with locked(cache):
        # Whoever had the lock before may have built it; what a killed one has left is of no use.
        if found := find(cache):
            return found
        for rest in cache.glob(f"{_PARTIAL}*"):
            shutil.rmtree(rest)
        started = time.monotonic()
        with tempfile.TemporaryDirectory(prefix=_PARTIAL, dir=cache) as folder:
            workshop = Workshop(Path(folder))
            result = workshop.home / "result"
            result.mkdir()
            version = make(workshop, result)
            place = result.rename(cache / f"kubernetes-{version}-{recipe()}")
        say(f"built in {time.monotonic() - started:.0f} s")
        return place


def require_debian() -> None:
    """:raises BuildError: if this machine cannot have a control plane."""
    release = Path("/etc/os-release")
    text = release.read_text() if release.exists() else ""
    if not (re.search(r"^ID=debian$", text, re.MULTILINE) and f"VERSION_CODENAME={RELEASE}" in text):
        raise BuildError(
            f"A control plane can be built on Debian {RELEASE} only, from its packages. Elsewhere, name a"
            " cluster with --kubeconfig, or use the embedded API server, which needs nothing."
        )
    for program in ("apt-get", "dpkg-deb", "tar"):
        if shutil.which(program) is None:
            raise BuildError(f"{program} was not found; it is a part of Debian that this build needs")


@contextmanager
def locked(cache: Path) -> Iterator[None]:
    """Keep other builds out."""
    with (cache / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another build is going on, waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _leave(number: int, _frame: object) -> NoReturn:
    raise SystemExit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
