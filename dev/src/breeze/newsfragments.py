# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The changelogs: what is released, with what is waiting in newsfragments/ on top."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

#: towncrier writes a release below this line; it is its default for reStructuredText.
_START = ".. towncrier release notes start\n"
CHANGELOGS = {"airflow-core": "CHANGELOG.rst", "kubernetes_resilience": "docs/changelog.rst"}


def changelog_with_news(project: Path) -> str:
    """Render a project's changelog together with the news of the next release.

    :param project: the folder of a project that has newsfragments.
    :returns: a page in reStructuredText.
    """
    # A draft changes nothing: neither the changelog nor the fragments.
    draft = subprocess.run(
        [sys.executable, "-m", "towncrier", "build", "--draft", "--version=Unreleased", "--date="],
        cwd=project,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    released = (project / CHANGELOGS[project.name]).read_text()
    return released.replace(_START, f"{_START}\n{draft}\n")
