# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""``breeze testing all``: what CI runs, in one command."""

from __future__ import annotations

from functools import partial

from breeze.compat import check_versions
from breeze.conformance import run_conformance
from breeze.control_plane import control_plane_possible
from breeze.docs import build_site
from breeze.static_checks import run_static_checks
from breeze.steps import Step, run_steps, run_tool
from breeze.suites import SUITES, run_suite


def run_everything() -> int:
    """Run all checks, the quick ones first and the demo last.

    :returns: 0 if each passed, otherwise 1.
    """
    return run_steps(
        "breeze testing all",
        [
            Step("static-checks", run_static_checks),
            *(Step(f"testing {name}", partial(run_suite, name)) for name in SUITES),
            *([Step("testing conformance", run_conformance)] if control_plane_possible() else []),
            Step(
                "testing soak",
                partial(run_tool, "breeze", "testing", "soak", "--minutes", "2", "--seed", "1"),
            ),
            Step("testing compat", check_versions),
            Step("build-docs", build_site),
            # A program of its own: it installs signal handlers and changes the environment.
            Step("demo", partial(run_tool, "breeze", "demo")),
        ],
    )
