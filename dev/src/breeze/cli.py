# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The commands of breeze, each of which returns an exit code. What is slow to import, a command imports."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from typer import Option

from breeze.compat import check_versions
from breeze.control_plane import (
    control_plane_binaries,
    control_plane_environment,
    control_plane_possible,
    run_conformance,
    show_control_plane,
)
from breeze.distributions import prepare_distributions
from breeze.docs import build_site
from breeze.environments import SUPPORTED_PYTHONS, find_pythons, write_lock
from breeze.mysql import check_mysql
from breeze.paths import BUILD, ROOT
from breeze.provider_info import write_provider_info
from breeze.static_checks import run_static_checks
from breeze.steps import Step, console, run_steps, run_tool
from breeze.suites import (
    SHORT,
    SUITES,
    SYSTEM,
    UNIT_TESTS,
    WITHOUT_DEPLOYMENT,
    run_chaos,
    run_suite,
    run_tests,
)

#: What breeze does not know itself goes to pytest: ``-k name``, ``-x``, ``--pdb``, a path.
_PASS_ON = {"allow_extra_args": True, "ignore_unknown_options": True}

_REPORT = BUILD / "release.md"

_KeepGoing = Annotated[
    bool, Option("--keep-going", help="Run all there is, whatever fails; otherwise stop at the first.")
]


def _exit(exit_code: int | None) -> None:
    raise typer.Exit(exit_code or 0)


app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Develop, test and show Airflow Resilience.",
    result_callback=_exit,
)
testing = typer.Typer(no_args_is_help=True, help="Run tests.")
cluster = typer.Typer(no_args_is_help=True, help="A real Kubernetes control plane on this machine.")
release_management = typer.Typer(no_args_is_help=True, help="Generate files and build distributions.")
for name, commands in {"testing": testing, "k8s": cluster, "release-management": release_management}.items():
    app.add_typer(commands, name=name)


@app.command()
def demo(
    upstream: Annotated[
        bool,
        Option("--upstream", help="Use the official executor; exits with 0 however it copes."),
    ] = False,
    keep: Annotated[bool, Option("--keep", help="Leave everything running at the end.")] = False,
    control_plane: Annotated[
        bool, Option("--control-plane", help="Use a real one, not the embedded API server.")
    ] = False,
    picture: Annotated[
        Path | None, Option(help="Write what the terminal shows in the end into this SVG.", dir_okay=False)
    ] = None,
) -> int:
    """Show a real Airflow losing worker pods, and finishing every task."""
    from demo.cli import run

    binaries = control_plane_binaries() if control_plane else None
    return run(upstream=upstream, keep=keep, binaries=binaries, picture=picture)


@app.command()
def benchmark(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME]...", help="Which: by default all, see docs/performance.md."),
    ] = None,
    runs: Annotated[int, Option(min=1, help="How often each executor is measured.")] = 5,
) -> int:
    """Measure our executor beside the official one, on the same control plane; nothing is a timed test."""
    from benchmarks.cli import run

    return run(names or [], runs, control_plane_binaries() if control_plane_possible() else None)


@app.command()
def pictures() -> None:
    """Take the site's pictures of the pages, in a real Chromium, light and dark."""
    from pictures.take import take_pictures

    take_pictures()


app.command("static-checks")(run_static_checks)
app.command("build-docs")(build_site)
app.command("lock")(write_lock)
cluster.command("build")(show_control_plane)
release_management.command("generate-provider-info")(write_provider_info)
release_management.command("prepare-provider-distributions")(prepare_distributions)


for name, folder in SUITES.items():
    what = f"Run all of {folder.relative_to(ROOT)}, or what pytest makes of other arguments."
    testing.command(name, context_settings=_PASS_ON, help=what)(run_suite)
testing.command("conformance", context_settings=_PASS_ON)(run_conformance)
testing.command("chaos")(run_chaos)
testing.command("compat")(check_versions)
testing.command("mysql", context_settings=_PASS_ON)(check_mysql)


@testing.command()
def quick() -> int:
    """Run the static checks and the unit tests: four minutes."""
    unit_tests = Step("unit tests", partial(run_tests, *UNIT_TESTS, part=SHORT))
    return run_steps("breeze testing quick", [_breeze("static-checks"), unit_tests])


@testing.command("all")
def everything(keep_going: _KeepGoing = False) -> int:
    """Run what has to pass before a change is submitted: ten to eighteen minutes."""
    steps = [
        _breeze("static-checks"),
        Step("tests", partial(run_tests, *WITHOUT_DEPLOYMENT, part=SHORT, keep_going=keep_going)),
        Step("system tests", partial(run_tests, SYSTEM, part=SHORT, keep_going=keep_going)),
        _breeze("build-docs"),
        _breeze("demo"),
    ]
    return run_steps("breeze testing all", steps, keep_going=keep_going)


@testing.command()
def release(
    resume: Annotated[bool, Option("--resume", help="Leave out what has passed on this commit.")] = False,
    keep_going: _KeepGoing = False,
) -> int:
    """Run what is too long for every change, before a release: hours, with a report in .build/release.md."""
    # A test whose Debian package is missing fails.
    os.environ["CI"] = "true"
    run = partial(run_tests, keep_going=keep_going)
    at_random = {"HYPOTHESIS_PROFILE": "release"}
    steps = [
        _breeze("k8s build"),
        *(
            Step(f"testing {name}, long", partial(run, SUITES[name], part="long"))
            for name in ("core-tests", "providers-tests", "dev-tests")
        ),
        Step("unit tests, coverage", partial(run, *UNIT_TESTS, part=SHORT, options=["--cov"])),
        Step("unit tests, random examples", partial(run, *UNIT_TESTS, part=SHORT, env=at_random)),
        _breeze("testing conformance"),
        Step(
            "testing system-tests, control plane",
            # `compat` runs the others, on the same versions.
            lambda: run(SYSTEM, part="not newest_version", env=control_plane_environment()),
        ),
        _breeze("testing compat --full"),
        _breeze("release-management prepare-provider-distributions"),
        # Its server comes from a release of Debian that changes every day.
        _breeze("testing mysql"),
    ]
    words = ["git", "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty"]
    title = f"# Release tests of {subprocess.check_output(words, cwd=ROOT, text=True)}"
    before = _REPORT.read_text() if resume and _REPORT.exists() else ""
    # A change that is not committed has no report to go by.
    if not before.startswith(title) or "-dirty" in title:
        machine = f"{os.cpu_count()} cores, {platform.platform()}, Python {platform.python_version()}"
        missing = ", ".join(sorted({*SUPPORTED_PYTHONS} - find_pythons().keys())) or "none"
        head = f"Machine: {machine}\nSupported versions of Python that are missing: {missing}"
        before = f"{title}\n{head}\n\n| step | result | seconds |\n|---|---|---:|\n"
        _REPORT.write_text(before)
    passed = re.findall(r"^\| (.+) \| passed \|", before, re.MULTILINE)
    console.print(f"The report is {_REPORT}. Passed before: {', '.join(passed) or 'none'}.")
    left = [step for step in steps if step.name not in passed]
    return run_steps("breeze testing release", left, keep_going=keep_going, report=_REPORT)


def _breeze(command: str) -> Step:
    """Return a command as a step, in a process of its own: signal handlers and environment are its own."""
    return Step(command, partial(run_tool, "breeze.cli", *command.split()))


if __name__ == "__main__":
    # Nothing of this may read or write the contributor's own ~/airflow.
    os.environ["AIRFLOW_HOME"] = str(BUILD / "airflow-home" / "default")
    try:
        app(prog_name="./breeze")
    except subprocess.CalledProcessError as error:
        sys.exit(error.returncode)
