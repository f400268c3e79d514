# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Rules about the files of this repository that no other tool knows."""

from __future__ import annotations

import re
import subprocess
from typing import TYPE_CHECKING

from breeze.paths import DISTRIBUTIONS, ROOT, relative

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# Put together from parts, because this file is checked too.
_REGISTRIES = tuple(
    ".".join(parts)
    for parts in (
        ("pypi", "org"),
        ("pypi", "python", "org"),
        ("files", "pythonhosted", "org"),
        ("registry", "npmjs", "org"),
        ("deb", "debian", "org"),
        ("security", "debian", "org"),
        ("archive", "ubuntu", "com"),
    )
)
_FORBIDDEN = {
    # A mirror has to be a matter of each machine's configuration, or a build behind a firewall fails.
    "names a package registry": re.compile("|".join(map(re.escape, _REGISTRIES))),
    # It holds on the machine where it was written, and nowhere else.
    "has an absolute path of one machine": re.compile(r"(?<![\w.:/-])/(?:work|home|Users|root)/\w"),
}
_LICENCE = "SPDX-License-Identifier: Apache-2.0"
_LICENSED_SUFFIXES = frozenset({".py", ".sh", ".toml", ".yaml", ".yml"})
_LICENSED_FILES = frozenset({"breeze", ".ci/run"})


def broken_rules() -> list[str]:
    """Check every file that is, or is about to be, under version control.

    :returns: one sentence for each violation.
    """
    problems = []
    for path in _tracked_files():
        text = path.read_bytes().decode(errors="replace")
        problems += [f"{relative(path)}:{number}: {rule}" for rule, number in _forbidden_lines(text)]
        if _needs_licence(path) and _LICENCE not in "\n".join(text.splitlines()[:6]):
            problems.append(f"{relative(path)}: the licence header is missing")
    return problems + list(_different_copies())


def _tracked_files() -> list[Path]:
    # The owner of the checkout may be another user in CI, at which git refuses to work otherwise.
    listing = subprocess.run(
        ["git", "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    paths = [ROOT / name for name in listing.split("\0") if name]
    return [path for path in paths if path.is_file()]


def _forbidden_lines(text: str) -> Iterator[tuple[str, int]]:
    for number, line in enumerate(text.splitlines(), start=1):
        for rule, pattern in _FORBIDDEN.items():
            if pattern.search(line):
                yield rule, number


def _needs_licence(path: Path) -> bool:
    return path.suffix in _LICENSED_SUFFIXES or relative(path) in _LICENSED_FILES


def _different_copies() -> Iterator[str]:
    """Each distribution has to contain the licence, and a build cannot reach above its own folder."""
    for distribution in DISTRIBUTIONS:
        for name in ("LICENSE", "NOTICE"):
            copy = distribution / name
            if not copy.is_file() or copy.read_bytes() != (ROOT / name).read_bytes():
                yield f"{relative(copy)}: differs from {name} at the root of the repository"
