# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""What ``breeze testing quick``, ``all`` and ``long`` consist of; CI runs the latter two."""

from __future__ import annotations

from functools import partial

from breeze.compat import check_versions
from breeze.conformance import run_conformance
from breeze.control_plane import control_plane_possible
from breeze.docs import build_site
from breeze.static_checks import run_static_checks
from breeze.steps import Step, run_tool
from breeze.suites import SUITES, Part, run_suite, run_unit_tests


def quick_steps() -> list[Step]:
    """Return what tells in two minutes whether a change is worth more of them; ``all`` has all of it."""
    return [Step("static-checks", run_static_checks), Step("unit tests", run_unit_tests)]


def all_steps() -> list[Step]:
    """Return what has to pass before a change is submitted, the quick ones first."""
    return [
        Step("static-checks", run_static_checks),
        *(Step(f"testing {name}", partial(run_suite, name, part=Part.SHORT)) for name in SUITES),
        Step("build-docs", build_site),
    ]


def long_steps() -> list[Step]:
    """Return what ``all`` leaves out because it takes longer; no step is in both."""
    return [
        # What it shows, the system tests of `all` check.
        _breeze("demo"),
        *(Step(f"testing {name}, long", partial(run_suite, name, part=Part.LONG)) for name in SUITES),
        *([Step("testing conformance", run_conformance)] if control_plane_possible() else []),
        # A failure of CI is to be about the change and not about luck, hence the seed.
        _breeze("testing soak", "--minutes", "2", "--seed", "1"),
        Step("testing compat", partial(check_versions, full=True)),
    ]


def _breeze(command: str, *options: str) -> Step:
    """Return a command as a step, in a process of its own: signal handlers and environment are its own."""
    return Step(command, partial(run_tool, "breeze", *command.split(), *options))
