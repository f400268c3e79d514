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
from typing import TYPE_CHECKING

from breeze.control_plane import control_plane_environment
from breeze.distributions import build_distributions
from breeze.environments import make_environment
from breeze.locking import foreign_requirements
from breeze.paths import BUILD, DEV, ROOT, relative
from breeze.steps import Step, console, run_program, run_steps
from breeze.suites import IN_PARALLEL, SUITES, SYSTEM, Part
from cluster_lab.database import MYSQL_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Sequence

_COMMAND = [sys.executable, str(ROOT / "scripts" / "fetch_mysql.py")]

_DRIVERS = ("mysqlclient==2.2.8", "aiomysql==0.3.2", "pymysql==1.2.4")
"""
The one that Airflow's documentation names, and what its API server uses besides. Not locked: the first has to
be compiled, for which not every contributor's machine has a compiler.

Not mysqlclient 2.3: it writes a member of an ``Enum`` by its name and not by its value, so that the scheduler
of Airflow 3.3.2 ends when it stores a callback.
"""

_DEPLOYMENT_TESTS = SYSTEM / "test_each_version.py"
_SERVER_TESTS = DEV / "tests" / "cluster_lab" / "test_mysql.py"


def mysql_possible() -> bool:
    """Tell whether this machine has, or can get, a MySQL server and its driver; why not has been printed."""
    headers = Path(sysconfig.get_path("include"), "Python.h")
    if shutil.which("cc") is None or not headers.exists():
        console.print("Python's driver for MySQL is compiled, for which a C compiler or Python.h is missing.")
        return False
    return subprocess.run([*_COMMAND, "--check"], check=False).returncode == 0


def check_mysql(extra: Sequence[str] = ()) -> int:
    """Run the tests that use the metadata database, and a deployment, on MySQL.

    :param extra: arguments for pytest; with any, nothing else runs.
    :returns: 0 if all passed; otherwise not, also where there can be no MySQL.
    """
    if not mysql_possible():
        return 1
    fetched = subprocess.run(_COMMAND, stdout=subprocess.PIPE, text=True, check=False)
    if fetched.returncode != 0:
        return 1
    binaries = Path(fetched.stdout.strip())
    python = _make_environment(binaries / "client")
    if python is None:
        return 1
    client = binaries / "client" / "lib"
    env = {
        MYSQL_VARIABLE: str(binaries),
        # The driver finds the client library by this, and that its way with passwords by the next.
        "LD_LIBRARY_PATH": str(client),
        "MARIADB_PLUGIN_DIR": str(client / "libmariadb3" / "plugin"),
        **control_plane_environment(),
    }

    def pytest(*words: str) -> int:
        return run_program([python, "-m", "pytest", "-p", "no:cacheprovider", "-q", *words], env=env)

    if extra:
        return pytest(*extra)
    tests = (SUITES["core-tests"], SUITES["providers-tests"], _SERVER_TESTS)
    unit_tests = [*map(relative, tests), *IN_PARALLEL]
    steps = [
        Step("tests of the database", partial(pytest, *unit_tests, "-m", f"database and {Part.SHORT}")),
        Step("deployment", partial(pytest, relative(_DEPLOYMENT_TESTS))),
    ]
    return run_steps("breeze testing mysql", steps)


def _make_environment(client: Path) -> Path | None:
    wheels = build_distributions(BUILD / "wheels")
    if not wheels:
        return None
    return make_environment(
        "mysql",
        wheels,
        [*_DRIVERS, *map(str, foreign_requirements(DEV))],
        sources=[DEV / "src"],
        env={
            "MYSQLCLIENT_CFLAGS": f"-I{client / 'include' / 'mariadb'}",
            "MYSQLCLIENT_LDFLAGS": f"-L{client / 'lib'} -lmariadb",
        },
    )
