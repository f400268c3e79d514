# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""What a deployment has written, for whoever asks why a test on it has failed."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from cluster_lab.managed_process import last_lines

LINES = 60
"""Of each log."""

WORKERS = 8
"""How many logs of containers are shown, those that were written last. All are kept."""


def post_mortem(home: Path, folder: Path, since: float = 0.0) -> Iterator[tuple[str, str]]:
    """
    Keep the logs of a deployment, which are removed with it, and tell the last lines of each.

    :param home: the deployment's folder
    :param folder: where copies are kept; what an earlier run has left there is removed
    :param since: leave out what has written nothing since, in seconds of the epoch
    :return: what wrote them, and the lines
    """
    shutil.rmtree(folder, ignore_errors=True)
    for file in home.rglob("*.log"):
        copy = folder / file.relative_to(home)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, copy)

    def written(*patterns: str) -> list[Path]:
        found = {file: file.stat() for pattern in patterns for file in home.glob(pattern)}
        files = [file for file, stat in found.items() if stat.st_size and stat.st_mtime >= since]
        return sorted(files, key=lambda file: found[file].st_mtime)

    for file in (*written("*.log", "control-plane/*.log"), *written("pods/*/*.log")[-WORKERS:]):
        yield str(file.relative_to(home).with_suffix("")), last_lines(file, LINES)
    yield "all logs", f"kept in {folder}"
