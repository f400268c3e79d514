# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Programs that are made from Debian's packages, once for each machine, and kept outside the checkout.

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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from control_plane_recipe import BuildError, Workshop

_PARTIAL = "build-"


@dataclass(frozen=True)
class PackageCache:
    """Where the results of builds are kept: each in a folder that is named after version and recipe."""

    what: str
    """The folder of its results; people read it too."""
    product: str
    """With what the name of each result begins."""
    recipe_file: Path
    """Another content of it is another way of building."""

    @property
    def variable(self) -> str:
        """The environment variable that chooses another folder."""
        return f"{self.what.replace('-', '_').upper()}_CACHE"

    def folder(self) -> Path:
        """Tell where the results of builds are kept."""
        if chosen := os.environ.get(self.variable):
            return Path(chosen).absolute()
        base = os.environ.get("XDG_CACHE_HOME")
        return (Path(base) if base else Path.home() / ".cache") / "airflow-resilience" / self.what

    def recipe(self) -> str:
        """Name this way of building; another one has to be built anew."""
        text = self.recipe_file.read_bytes()
        return hashlib.sha256(text + platform.machine().encode()).hexdigest()[:12]

    def find(self) -> Path | None:
        """Find what this recipe has built last."""
        # A folder gets its name when it is complete.
        found = self.folder().glob(f"{self.product}-*-{self.recipe()}")
        return max(found, key=lambda path: path.stat().st_mtime, default=None)

    def build(self, make: Callable[[Workshop, Path], str]) -> Path:
        """Build in a temporary folder, and give the result its place in the cache.

        :param make: puts what it makes into the folder, and returns its version.
        :raises BuildError: if a step of it fails.
        """
        cache = self.folder()
        cache.mkdir(parents=True, exist_ok=True)
        with self.locked():
            # Whoever had the lock before may have built it; what a killed one has left is of no use.
            if found := self.find():
                return found
            for rest in cache.glob(f"{_PARTIAL}*"):
                shutil.rmtree(rest)
            started = time.monotonic()
            with tempfile.TemporaryDirectory(prefix=_PARTIAL, dir=cache) as folder:
                workshop = Workshop(Path(folder))
                result = workshop.home / "result"
                result.mkdir()
                version = make(workshop, result)
                place = result.rename(cache / f"{self.product}-{version}-{self.recipe()}")
            self.say(f"built in {time.monotonic() - started:.0f} s")
            return place

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other builds out."""
        with (self.folder() / "lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self.say("another build is going on, waiting for it")
                fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def say(self, text: str) -> None:
        """Tell the user how far it is; standard output is for the result."""
        print(f"{self.what.replace('-', ' ')}: {text}", file=sys.stderr, flush=True)

    def main(
        self, description: str, require: Callable[[], None], make: Callable[[Workshop, Path], str]
    ) -> int:
        """Build, unless that has been done, and print the folder.

        :param description: of the command line.
        :param require: raises BuildError if this machine cannot build it.
        :param make: as :meth:`build` wants it.
        :returns: an exit code.
        """
        parser = argparse.ArgumentParser(description=description)
        parser.add_argument("--check", action="store_true", help="only tell whether this machine can have it")
        options = parser.parse_args()
        # The default action would leave the temporary folder behind.
        signal.signal(signal.SIGTERM, _leave)
        try:
            found = self.find()
            if found is None:
                require()
            if not options.check:
                print(found or self.build(make))
        except BuildError as error:
            print(error, file=sys.stderr)
            return 1
        return 0


def require_debian(without: str, release: str = "") -> None:
    """Make sure that this machine has Debian's packages, and the tools for them.

    :param without: what to do elsewhere, a sentence.
    :param release: the only one that will do; else any.
    :raises BuildError: if it has not.
    """
    file = Path("/etc/os-release")
    text = file.read_text() if file.exists() else ""
    if not re.search(r"^ID=debian$", text, re.MULTILINE) or f"VERSION_CODENAME={release}" not in text:
        raise BuildError(
            f"It is made on Debian {release} only, from its packages. {without}".replace("  ", " ")
        )
    for program in ("apt-get", "dpkg-deb", "tar"):
        if shutil.which(program) is None:
            raise BuildError(f"{program} was not found; it is a part of Debian that this build needs")


def _leave(number: int, _frame: object) -> NoReturn:
    raise SystemExit(128 + number)
