# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""``breeze static-checks``: everything that can be told from reading the files."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

from breeze.locking import unlocked_requirements
from breeze.paths import PROJECTS, relative
from breeze.provider_info import check_provider_info, write_provider_info
from breeze.repository_rules import broken_rules
from breeze.steps import Step, console, run_program, run_steps, run_tool

_TYPED_PACKAGES = (
    "airflow_resilience",
    "airflow.providers.cncf.kubernetes_resilience",
    "airflow_kubernetes_resilience_launcher",
    "benchmarks",
    "breeze",
    "cluster_lab",
    "demo",
    "testbed",
)
#: import-linter cannot be run with ``python -m``.
_LINT_IMPORTS = Path(sys.executable).parent / "lint-imports"
#: To find our portion of the namespace it imports airflow, which then prints every log line of the linter.
_QUIET_AIRFLOW = {"AIRFLOW__LOGGING__LOGGING_LEVEL": "WARNING"}


def run_static_checks(*, fix: bool = False) -> int:
    """Run every static check.

    :param fix: whether ruff may change files and generated files may be written anew, before checking.
    :returns: 0 if each passed, otherwise 1.
    """
    if fix:
        write_provider_info()
    packages = [word for package in _TYPED_PACKAGES for word in ("-p", package)]
    return run_steps(
        "breeze static-checks",
        [
            Step("ruff check", partial(run_tool, "ruff", "check", *(["--fix"] if fix else []))),
            Step("ruff format", partial(run_tool, "ruff", "format", *([] if fix else ["--check"]))),
            Step("mypy", partial(run_tool, "mypy", *packages)),
            Step("import-linter", partial(run_program, [_LINT_IMPORTS, "--no-logo"], env=_QUIET_AIRFLOW)),
            Step("provider info", lambda: _report(check_provider_info())),
            *(
                Step(f"dependencies of {relative(project)}", partial(_check_imports, project))
                for project in PROJECTS
            ),
            Step("dependencies are locked", lambda: _report(unlocked_requirements())),
            Step("rules of the repository", lambda: _report(broken_rules())),
        ],
    )


def _check_imports(project: Path) -> int:
    """Have deptry compare what a project imports with what it declares. Below ``airflow``, it cannot tell."""
    return run_program([sys.executable, "-m", "deptry", "--no-ansi", "src"], cwd=project)


def _report(problems: list[str]) -> int:
    for problem in problems:
        console.print(problem, markup=False, soft_wrap=True)
    return int(bool(problems))
