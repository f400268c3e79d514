# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""How a MySQL server is fetched that this machine's Debian does not have.

Debian has one in its unstable release only. It is unpacked with everything that it loads, the C library and
its loader among them, and so runs on any other release. The client library is loaded by Python, so it has to
be of this release: MariaDB's, which knows how MySQL wants passwords. The hosts are those of this apt.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path

from control_plane_recipe import BuildError, Workshop

SUITE = "sid"
SERVER = "mysql-server-core"
KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"
CLIENT = ("libmariadb-dev", "libmariadb3")


def make(workshop: Workshop, result: Path) -> str:
    """Fetch server and client library.

    :param result: the folder to put them into.
    :returns: the version of the server's package.
    :raises BuildError: if a step fails.
    """
    version = _make_server(workshop, result / "server")
    _make_client(workshop, result / "client")
    return version


def _make_server(workshop: Workshop, place: Path) -> str:
    apt = _private_apt(workshop, SUITE)
    _update(workshop, apt)
    # Nothing is installed already, as far as it knows: all libraries come along.
    workshop.run(
        [*apt, "install", "--download-only", "--yes", "--no-install-recommends", SERVER], cwd=workshop.home
    )
    packages = sorted((workshop.home / SUITE / "cache" / "archives").glob("*.deb"))
    for package in packages:
        workshop.run(["dpkg-deb", "--extract", package, workshop.packages], cwd=workshop.home)
    root = workshop.packages / "usr"
    (place / "lib").mkdir(parents=True)
    for file in _loaded(root):
        shutil.copy(file, place / "lib" / file.name)
    (place / "sbin").mkdir()
    shutil.move(root / "sbin" / "mysqld", place / "sbin" / "mysqld")
    shutil.move(root / "share" / "mysql", place / "share")
    (name,) = (package.name for package in packages if package.name.startswith(f"{SERVER}_"))
    return name.split("_")[1]


def _loaded(root: Path) -> list[Path]:
    """Find the loader and the libraries that the server needs."""
    (loader,) = (root / "lib").glob("*/ld-linux-*.so.*")
    command = [loader, "--library-path", loader.parent, "--list", root / "sbin" / "mysqld"]
    listed = subprocess.run(command, capture_output=True, text=True, check=False)
    if listed.returncode != 0:
        raise BuildError(f"this machine cannot run the MySQL server: {listed.stdout}{listed.stderr}")
    return [
        loader,
        *(Path(path) for path in re.findall(r"^\s*lib\S+ => (/\S+)", listed.stdout, re.MULTILINE)),
    ]


def _make_client(workshop: Workshop, place: Path) -> None:
    apt = _private_apt(workshop, _release())
    _update(workshop, apt)
    downloads = workshop.home / "client"
    downloads.mkdir()
    workshop.run([*apt, "download", *CLIENT], cwd=downloads)
    for package in sorted(downloads.glob("*.deb")):
        workshop.run(["dpkg-deb", "--extract", package, downloads], cwd=downloads)
    (folder,) = (downloads / "usr" / "lib").glob("*-linux-gnu*")
    shutil.move(folder, place / "lib")
    shutil.move(downloads / "usr" / "include", place / "include")


def _update(workshop: Workshop, apt: list[str]) -> None:
    # A mirror that is not Debian's has no such release; if one that is needed fails, the next command does.
    with suppress(BuildError):
        workshop.run([*apt, "update"], cwd=workshop.home)


def _private_apt(workshop: Workshop, suite: str) -> list[str]:
    """Configure an apt that knows one release, from the hosts that this machine gets its own one from."""
    home = workshop.home / suite
    for folder in ("lists/partial", "cache/archives/partial"):
        (home / folder).mkdir(parents=True)
    sources = home / "sources.list"
    sources.write_text("".join(f"deb [signed-by={KEYS}] {mirror} {suite} main\n" for mirror in _mirrors()))
    options = {
        "Dir::Etc::sourcelist": sources,
        "Dir::Etc::sourceparts": "/dev/null",
        "Dir::State::lists": home / "lists",
        "Dir::State::status": "/dev/null",
        "Dir::Cache": home / "cache",
        # Its unprivileged user cannot write into a folder of ours.
        "APT::Sandbox::User": "root",
        "Acquire::Retries": "3",
    }
    return ["apt-get", "--quiet", *(f"-o{key}={value}" for key, value in options.items())]


def _mirrors() -> list[str]:
    """Find the addresses that this machine gets its release from."""
    command = ["apt-get", "indextargets", "--format", "$(RELEASE) $(REPO_URI)", "Created-By: Packages"]
    targets = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    mirrors = re.findall(rf"^{_release()} (\S+)$", targets, re.MULTILINE)
    if not mirrors:
        raise BuildError(f"apt knows no mirror of Debian {_release()}, from which to fetch MySQL")
    return sorted(set(mirrors))


def _release() -> str:
    found = re.search(r"^VERSION_CODENAME=(\w+)$", Path("/etc/os-release").read_text(), re.MULTILINE)
    return found[1] if found else ""
