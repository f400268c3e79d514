# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""What ``breeze testing quick``, ``all`` and ``release`` consist of; CI runs ``all``."""

from __future__ import annotations

from functools import partial

from breeze.compat import check_versions
from breeze.conformance import run_conformance
from breeze.control_plane import control_plane_environment
from breeze.docs import build_site
from breeze.mysql import check_mysql
from breeze.static_checks import run_static_checks
from breeze.steps import Step, run_tool
from breeze.suites import Part, check_coverage, run_suites, run_unit_tests

_SUITES = ("core-tests", "providers-tests", "dev-tests")
"""What needs no deployment."""


def quick_steps() -> list[Step]:
    """Return what tells in four minutes whether a change is worth more of them; ``all`` has all of it."""
    return [Step("static-checks", run_static_checks), Step("unit tests", run_unit_tests)]


def all_steps(*, keep_going: bool = False) -> list[Step]:
    """Return what has to pass before a change is submitted, the quick ones first.

    :param keep_going: what :func:`breeze.suites.run_suites` is told.
    """
    short = partial(run_suites, part=Part.SHORT, keep_going=keep_going)
    return [
        Step("static-checks", run_static_checks),
        Step("tests", partial(short, *_SUITES)),
        Step("system tests", partial(short, "system-tests")),
        Step("build-docs", build_site),
        _breeze("demo"),
    ]


def release_steps(*, keep_going: bool = False) -> list[Step]:
    """Return what ``all`` leaves out: longer searches, other versions, and a real control plane.

    :param keep_going: what :func:`breeze.suites.run_suites` is told.
    """
    return [
        _breeze("k8s build"),
        *(
            Step(f"testing {name}, long", partial(run_suites, name, part=Part.LONG, keep_going=keep_going))
            for name in _SUITES
        ),
        Step("unit tests, coverage", check_coverage),
        Step("unit tests, random examples", partial(run_unit_tests, env={"HYPOTHESIS_PROFILE": "release"})),
        Step("testing conformance", run_conformance),
        Step("testing system-tests, control plane", partial(_on_control_plane, keep_going)),
        Step("testing compat", partial(check_versions, full=True)),
        # Its server comes from a release of Debian that changes every day.
        Step("testing mysql", check_mysql),
    ]


def _on_control_plane(keep_going: bool) -> int:
    """Run the system tests of the newest versions on a real control plane."""
    if not (env := control_plane_environment()):
        return 1
    return run_suites("system-tests", part=Part.BUT_COMPAT, keep_going=keep_going, env=env)


def _breeze(command: str, *options: str) -> Step:
    """Return a command as a step, in a process of its own: signal handlers and environment are its own."""
    return Step(command, partial(run_tool, "breeze", *command.split(), *options))
