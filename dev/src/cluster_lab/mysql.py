# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""A throw-away MySQL server on loopback, from what ``scripts/fetch_mysql.py`` has fetched."""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
from pathlib import Path

from sqlalchemy import create_engine
from sqlalchemy.exc import OperationalError
from sqlalchemy.pool import NullPool

from cluster_lab.managed_process import ManagedProcess, Service, inherited_environment, run_well
from cluster_lab.ports import LOOPBACK, free_port

START_TIMEOUT = 120.0
USER = "airflow"
DATABASE = "airflow"

SERVER_SETTINGS = {
    "bind-address": LOOPBACK,
    "mysqlx": "OFF",
    "skip-name-resolve": "ON",
    "secure-file-priv": "NULL",
    "max-connections": "300",
    # As Airflow's documentation asks for. Times are stored without a zone.
    "explicit-defaults-for-timestamp": "ON",
    "default-time-zone": "+00:00",
    # A database that is deleted afterwards has nothing to lose in a power cut: no write waits for the disk.
    "disable-log-bin": "ON",
    "innodb-flush-log-at-trx-commit": "0",
    "innodb-flush-method": "nosync",
    "innodb-doublewrite": "OFF",
    "innodb-redo-log-capacity": "64M",
}


class EmbeddedMysql(Service):
    """
    A MySQL server that lives as long as the ``with`` block, in a temporary folder, with one database.

    :param binaries: The folder of the programs.
    :raises ProcessError: On entering, if the server cannot be set up, or is not ready in ``START_TIMEOUT``
        seconds.
    """

    def __init__(self, binaries: Path) -> None:
        self._server = binaries / "server"
        self._password = secrets.token_urlsafe(16)
        self.port = free_port()
        """Known before it starts: its clients are configured by then."""

    @property
    def url(self) -> str:
        """The SQLAlchemy URL (mysqlclient) of the database that exists from the start."""
        return f"mysql+mysqldb://{USER}:{self._password}@{LOOPBACK}:{self.port}/{DATABASE}"

    def stop(self) -> None:
        """Stop the server and remove its files; without effect if that has been done."""
        self._process.stop()
        shutil.rmtree(self._home, ignore_errors=True)

    def _start(self) -> None:
        self._home = Path(tempfile.mkdtemp(prefix="lab-mysql-"))
        self._process = ManagedProcess(
            "mysqld", self._command(), inherited_environment(), self._home / "mysql.log"
        )
        self._initialise()
        self._process.start()
        self._process.wait_until("it answers", self._answers, START_TIMEOUT)

    def _initialise(self) -> None:
        script = self._home / "setup.sql"
        script.touch(mode=0o600)
        # The user has to be able to make triggers and to see other connections, as the tests do.
        script.write_text(
            f"CREATE DATABASE {DATABASE} CHARACTER SET utf8mb4;\n"
            f"CREATE USER {USER} IDENTIFIED BY '{self._password}';\n"
            f"GRANT ALL ON *.* TO {USER};\n"
            "DROP USER root@localhost;\n"
        )
        run_well(self._command("--initialize-insecure", f"--init-file={script}"), inherited_environment())

    def _answers(self) -> bool:
        try:
            create_engine(self.url, poolclass=NullPool).connect().close()
        except OperationalError:
            return False
        return True

    def _command(self, *options: str) -> list[str]:
        libraries = self._server / "lib"
        (loader,) = libraries.glob("ld-linux-*.so.*")
        files = {
            "datadir": self._home / "data",
            "socket": self._home / "socket",
            "pid-file": self._home / "pid",
            "tmpdir": self._home,
            "basedir": self._server,
            "lc-messages-dir": self._server / "share",
            "character-sets-dir": self._server / "share" / "charsets",
        }
        return [
            *(str(loader), "--library-path", str(libraries), str(self._server / "sbin" / "mysqld")),
            "--no-defaults",
            *(f"--{key}={value}" for key, value in {**SERVER_SETTINGS, **files, "port": self.port}.items()),
            # As root it has to be told so. What it may read is ours, and only this machine reaches it.
            *(["--user=root"] if os.geteuid() == 0 else []),
            *options,
        ]
