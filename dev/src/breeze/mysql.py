# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""``breeze testing mysql``: what depends on the metadata database, on MySQL instead of PostgreSQL."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from functools import partial
from pathlib import Path

import typer

from breeze.control_plane import control_plane_environment, control_plane_possible
from breeze.distributions import build_distributions
from breeze.environments import make_environment, run_pytest
from breeze.paths import BUILD, DEV, ROOT
from breeze.steps import Step, console, run_steps
from breeze.suites import IN_PARALLEL, SHORT, SUITES, SYSTEM

_COMMAND = [sys.executable, str(ROOT / "scripts" / "fetch_mysql.py")]

_DRIVERS = ("mysqlclient==2.2.8", "aiomysql==0.3.2", "pymysql==1.2.4")
"""
The one that Airflow's documentation names, and what its API server uses besides. Not locked: the first has to
be compiled, for which not every contributor's machine has a compiler.

Not mysqlclient 2.3: it writes a member of an ``Enum`` by its name and not by its value, so that the scheduler
of Airflow 3.3.2 ends when it stores a callback.
"""


def check_mysql(context: typer.Context) -> int:
    """Run on MySQL what depends on the database. Other arguments go to pytest, and nothing else runs."""
    from cluster_lab.database import MYSQL_VARIABLE

    headers = Path(sysconfig.get_path("include"), "Python.h")
    if shutil.which("cc") is None or not headers.exists():
        console.print("Python's driver for MySQL is compiled, for which a C compiler or Python.h is missing.")
        return 1
    binaries = Path(subprocess.check_output(_COMMAND, text=True).strip())
    client = binaries / "client"
    python = make_environment(
        "mysql",
        [*build_distributions(BUILD / "wheels"), *_DRIVERS, f"-e {DEV}"],
        env={
            "MYSQLCLIENT_CFLAGS": f"-I{client / 'include' / 'mariadb'}",
            "MYSQLCLIENT_LDFLAGS": f"-L{client / 'lib'} -lmariadb",
        },
    )
    env = {
        MYSQL_VARIABLE: str(binaries),
        # The driver finds the client library by this, and that its way with passwords by the next.
        "LD_LIBRARY_PATH": str(client / "lib"),
        "MARIADB_PLUGIN_DIR": str(client / "lib" / "libmariadb3" / "plugin"),
        **(control_plane_environment() if control_plane_possible() else {}),
    }
    pytest = partial(run_pytest, python, env=env)
    if context.args:
        return pytest(*context.args)
    tests = [SUITES["core-tests"], SUITES["providers-tests"], *IN_PARALLEL]
    steps = [
        Step("tests of the database", partial(pytest, *tests, "-m", f"database and {SHORT}")),
        Step("deployment", partial(pytest, SYSTEM / "test_each_version.py")),
    ]
    return run_steps("breeze testing mysql", steps)
