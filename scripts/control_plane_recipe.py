# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""How a Kubernetes control plane is made from Debian's packages.

Debian 12 has etcd and kubectl as binaries, and of Kubernetes 1.20 the source, which its Go 1.19 compiles.
Nothing is installed: apt runs on package lists of its own, in a temporary folder, and the packages are
unpacked there. The hosts are those of the machine's apt.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

PACKAGES = ("etcd-server", "kubernetes-client", "golang-1.19-go", "golang-1.19-src")
SERVERS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
DEBIAN_BINARIES = ("etcd", "kubectl")
PARALLEL = 2
"""Compilers at a time: each takes up to a gigabyte of memory."""

LOG_LINES = 30
_GENERATE_TAG = re.compile(r"^// *\+k8s:openapi-gen=true", re.MULTILINE)
_NOT_SERVED = ("example", "testing", "sample", "code-generator", "kube-openapi")
"""Packages that carry the tag and are no part of the servers."""
_VERSIONED = ("component-base/version", "client-go/pkg/version")


class BuildError(RuntimeError):
    """The control plane cannot be built here; the message says why, for the reader of a terminal."""


@dataclass(frozen=True)
class Workshop:
    """A temporary folder in which everything happens."""

    home: Path

    @property
    def packages(self) -> Path:
        """Where the packages are unpacked, as if it were the root folder of a machine."""
        return self.home / "packages"

    @property
    def source(self) -> Path:
        """The source of Kubernetes, at the place that Go wants it to be in."""
        return self.home / "go" / "src" / "k8s.io" / "kubernetes"

    @property
    def go_environment(self) -> dict[str, str]:
        """How Go compiles a program that knows no modules, without a C compiler."""
        root = self.packages / "usr" / "lib" / "go-1.19"
        return {
            "GOROOT": str(root),
            "GOPATH": str(self.home / "go"),
            "GOCACHE": str(self.home / "compiled"),
            "GOTMPDIR": str(self.home),
            "GO111MODULE": "off",
            "GOFLAGS": "",
            "CGO_ENABLED": "0",
            # Compilers that seldom collect their garbage: it takes more memory, and less time.
            "GOGC": "400",
            "PATH": f"{root / 'bin'}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        }

    def run(self, command: Sequence[str | Path], cwd: Path, env: Mapping[str, str] | None = None) -> None:
        """Run a command, its output in a log file.

        :raises BuildError: with the end of that output, if it fails.
        """
        log = self.home / "log"
        with (
            log.open("ab") as output,
            subprocess.Popen(
                command,
                cwd=cwd,
                env={**os.environ, **(env or {})},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            ) as process,
        ):
            try:
                code = process.wait()
            except BaseException:
                # Its compilers too: they would go on writing into a folder that is about to be removed.
                os.killpg(process.pid, signal.SIGKILL)
                raise
        if code:
            tail = "\n".join(log.read_text(errors="replace").splitlines()[-LOG_LINES:])
            raise BuildError(f"{' '.join(map(str, command))[:200]} failed ({code}):\n{tail}")


def make(workshop: Workshop, result: Path) -> str:
    """Make the programs.

    :param result: the folder to put them into.
    :returns: the version of the package ``kubernetes``.
    :raises BuildError: if a step fails.
    """
    version = _fetch(workshop)
    for name in DEBIAN_BINARIES:
        shutil.move(workshop.packages / "usr" / "bin" / name, result / name)
    _compile(workshop, version, result)
    return version


def _fetch(workshop: Workshop) -> str:
    """Download and unpack everything.

    :returns: the version of the package ``kubernetes``.
    """
    say("fetching Kubernetes' source, Go and etcd from Debian")
    downloads = workshop.home / "downloads"
    downloads.mkdir()
    apt = _private_apt(workshop)
    # A source that is not Debian's may be out of order; if one that is needed is, the next command fails.
    with suppress(BuildError):
        workshop.run([*apt, "update"], cwd=downloads)
    workshop.run([*apt, "download", *PACKAGES], cwd=downloads)
    workshop.run([*apt, "source", "--download-only", "kubernetes"], cwd=downloads)
    for package in sorted(downloads.glob("*.deb")):
        workshop.run(["dpkg-deb", "--extract", package, workshop.packages], cwd=downloads)
    workshop.source.mkdir(parents=True)
    # Debian's patches are about what kubectl prints, and kubectl is here as a binary.
    (tarball,) = downloads.glob("kubernetes_*.orig.tar.*")
    workshop.run(["tar", "-x", "--strip-components=1", "-f", tarball], cwd=workshop.source)
    (description,) = downloads.glob("kubernetes_*.dsc")
    return description.stem.removeprefix("kubernetes_")


def _private_apt(workshop: Workshop) -> list[str]:
    """Configure an apt that knows the machine's sources, also as sources of source packages."""
    home = workshop.home / "apt"
    for folder in ("sources", "lists/partial", "cache/archives/partial"):
        (home / folder).mkdir(parents=True)
    configured = subprocess.run(
        ["apt-config", "shell", "LIST", "Dir::Etc::sourcelist/f", "PARTS", "Dir::Etc::sourceparts/d"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    names = dict(re.findall(r"^(\w+)='(.*)'$", configured, re.MULTILINE))
    for path in (Path(names["LIST"]), *Path(names["PARTS"]).glob("*")):
        if path.is_file() and path.suffix in {".list", ".sources"}:
            (home / "sources" / path.name).write_text(with_source_packages(path.read_text()))
    options = {
        "Dir::Etc::sourcelist": "/dev/null",
        "Dir::Etc::sourceparts": home / "sources",
        "Dir::State::lists": home / "lists",
        "Dir::Cache": home / "cache",
        # Its unprivileged user cannot write into a folder of ours.
        "APT::Sandbox::User": "root",
        "Acquire::Retries": "3",
    }
    return ["apt-get", "--quiet", *(f"-o{key}={value}" for key, value in options.items())]


def with_source_packages(sources: str) -> str:
    """Add source packages to one of apt's lists of sources, in either of its two formats."""
    text = re.sub(r"^deb(\s.*)$", r"deb\1\ndeb-src\1", sources, flags=re.MULTILINE)
    return re.sub(r"^Types:.*$", "Types: deb deb-src", text, flags=re.MULTILINE)


def _compile(workshop: Workshop, version: str, result: Path) -> None:
    _generate_openapi(workshop)
    say(f"compiling {', '.join(SERVERS)} {version}: some minutes")
    # 1.20.5+really1.20.2-1.1: what Debian calls a version is not always one.
    release = re.sub(r"^.*\+really", "", version).partition("-")[0]
    major, minor, _ = release.split(".", 2)
    told = {"gitVersion": f"v{release}", "gitMajor": major, "gitMinor": minor}
    packages = [
        f"k8s.io/kubernetes/vendor/k8s.io/{name}"
        for name in ("component-base/version", "client-go/pkg/version")
    ]
    flags = [f"-X {package}.{key}={value}" for package in packages for key, value in told.items()]
    workshop.run(
        [
            *("go", "build", "-p", str(PARALLEL), "-trimpath", "-ldflags", " ".join(["-s -w", *flags])),
            *("-o", f"{result}/", *(f"./cmd/{server}" for server in SERVERS)),
        ],
        cwd=workshop.source,
        env=workshop.go_environment,
    )


def _generate_openapi(workshop: Workshop) -> None:
    """Generate the one source file that is in no tarball: the API server does not compile without it."""
    say("generating the API server's OpenAPI definitions")
    folders = {
        path.parent.relative_to(workshop.source)
        for top in ("cmd", "pkg", "staging/src/k8s.io")
        for path in (workshop.source / top).rglob("*.go")
        if _GENERATE_TAG.search(path.read_text())
    }
    served = sorted(str(folder) for folder in folders if not any(word in str(folder) for word in _NOT_SERVED))
    packages = [f"k8s.io/kubernetes/{folder.replace('staging/src', 'vendor')}" for folder in served]
    generator = workshop.home / "openapi-gen"
    source, env = workshop.source, workshop.go_environment
    command = "./vendor/k8s.io/kube-openapi/cmd/openapi-gen"
    workshop.run(["go", "build", "-o", generator, command], cwd=source, env=env)
    workshop.run(
        [
            *(generator, "--input-dirs", ",".join(packages), "--output-file-base", "zz_generated.openapi"),
            *("--output-package", "k8s.io/kubernetes/pkg/generated/openapi"),
            *("--go-header-file", "hack/boilerplate/boilerplate.generatego.txt"),
            *("--report-filename", workshop.home / "violations"),
        ],
        cwd=source,
        env=env,
    )


def say(text: str) -> None:
    """Tell the user how far it is; standard output is for the result."""
    print(f"control plane: {text}", file=sys.stderr, flush=True)
