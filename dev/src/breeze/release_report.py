# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The report of ``breeze testing release``, from which a run is taken up again where it stopped."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from functools import partial
from typing import TYPE_CHECKING

from breeze.paths import BUILD, ROOT
from breeze.steps import Step, console, timed

if TYPE_CHECKING:
    from collections.abc import Sequence

REPORT = BUILD / "release.md"
_PASSED = re.compile(r"^\| (?P<step>.+) \| passed \| [\d.]+ \|$", re.MULTILINE)


def reported(steps: Sequence[Step], *, resume: bool) -> list[Step]:
    """Return steps that write their results into :data:`REPORT`.

    :param resume: leave out what has passed, according to the report, on the commit that is checked out. A
        change that is not committed has no report to go by.
    """
    title = f"# Release tests of {_commit()}\n"
    before = REPORT.read_text() if resume and REPORT.exists() else ""
    if not before.startswith(title) or "-dirty" in title:
        REPORT.parent.mkdir(parents=True, exist_ok=True)
        machine = f"{os.cpu_count()} cores, {platform.platform()}, Python {platform.python_version()}"
        before = f"{title}\nMachine: {machine}\n\n| step | result | seconds |\n|---|---|---:|\n"
        REPORT.write_text(before)
    passed = {row["step"] for row in _PASSED.finditer(before)}
    console.print(f"The report is {REPORT}. Passed before: {', '.join(sorted(passed)) or 'none'}.")
    return [Step(step.name, partial(_run, step)) for step in steps if step.name not in passed]


def _run(step: Step) -> int:
    outcome = timed(step)
    with REPORT.open("a") as report:
        report.write(f"| {outcome.name} | {outcome.result} | {outcome.seconds:.0f} |\n")
    return outcome.exit_code or 0


def _commit() -> str:
    words = ["git", "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty"]
    return subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
