# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""``breeze static-checks``: everything that can be told from reading the files."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Annotated

from typer import Option

from breeze.paths import DEV, DISTRIBUTIONS, ROOT, UV
from breeze.provider_info import check_provider_info, write_provider_info
from breeze.steps import Step, console, run_program, run_steps, run_tool

#: import-linter cannot be run with ``python -m``.
_LINT_IMPORTS = Path(sys.executable).parent / "lint-imports"
#: To find our portion of the namespace it imports airflow, which then prints every log line of the linter.
_QUIET_AIRFLOW = {"AIRFLOW__LOGGING__LOGGING_LEVEL": "WARNING"}
#: A mirror has to be a matter of each machine's configuration, or a build behind a firewall fails.
_REGISTRIES = (
    r"pypi\.(python\.)?org|files\.pythonhosted\.org|registry\.npmjs\.org|(deb|security)\.debian\.org"
    r"|archive\.ubuntu\.com"
)
#: It holds on the machine where it was written, and nowhere else.
_PATH_OF_ONE_MACHINE = r"(^|[^[:alnum:]_.:/-])/(work|home|Users|root)/[[:alnum:]_]"
_LICENSED = ("*.py", "*.sh", "*.toml", "*.yaml", "*.yml", "breeze", ".ci/run")


def run_static_checks(
    fix: Annotated[bool, Option("--fix", help="Mend what can be mended mechanically.")] = False,
) -> int:
    """Check style, types, layers, generated files and the rules of the repository."""
    if fix:
        write_provider_info()
    rules = [
        ("no package registry, no path of one machine", "-nE", f"{_REGISTRIES}|{_PATH_OF_ONE_MACHINE}"),
        ("licence headers", "-L", "SPDX-License-Identifier: Apache-2.0", "--", *_LICENSED),
    ]
    return run_steps(
        "breeze static-checks",
        [
            Step("ruff check", partial(run_tool, "ruff", "check", *(["--fix"] if fix else []))),
            Step("ruff format", partial(run_tool, "ruff", "format", *([] if fix else ["--check"]))),
            Step("mypy", partial(run_tool, "mypy")),
            Step("import-linter", partial(run_program, [_LINT_IMPORTS, "--no-logo"], env=_QUIET_AIRFLOW)),
            Step("provider info", lambda: _report(check_provider_info())),
            # Of what is imported below ``airflow``, deptry cannot tell who has it.
            *(
                Step(
                    f"dependencies of {project.name}",
                    partial(run_tool, "deptry", "--no-ansi", "src", cwd=project),
                )
                for project in (*DISTRIBUTIONS, DEV)
            ),
            # What is installed is what is locked: ./breeze sees to it.
            Step("dependencies are locked", partial(run_program, [UV, "pip", "check", "-p", sys.executable])),
            *(Step(name, partial(_find_nothing, *words)) for name, *words in rules),
            Step("copies of the licence", lambda: _report(_different_copies())),
        ],
    )


def _find_nothing(*words: str) -> int:
    """Have git look for what breaks a rule, in all that is, or is about to be, under version control."""
    # The owner of the checkout may be another user in CI, at which git refuses to work otherwise.
    command = ["git", "-c", "safe.directory=*", "grep", "--untracked", "-I", *words]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    return _report(done.stdout.splitlines()) or int(done.returncode > 1)


def _different_copies() -> list[str]:
    """Compare the copies in each distribution, a build of which sees nothing above its folder."""
    copies = [project / name for project in DISTRIBUTIONS for name in ("LICENSE", "NOTICE")]
    return [f"{copy} differs" for copy in copies if copy.read_bytes() != (ROOT / copy.name).read_bytes()]


def _report(problems: list[str]) -> int:
    for problem in problems:
        console.print(problem, markup=False, soft_wrap=True)
    return int(bool(problems))
