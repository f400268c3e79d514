# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.exc import OperationalError

from cluster_lab.database import MYSQL_VARIABLE, make_database
from cluster_lab.managed_process import ProcessError
from cluster_lab.mysql import SERVER_SETTINGS, EmbeddedMysql

pytestmark = [
    pytest.mark.database,
    pytest.mark.skipif(
        MYSQL_VARIABLE not in os.environ, reason="needs a MySQL server: `breeze testing mysql` fetches one"
    ),
]


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedMysql]:
    made = make_database()
    assert isinstance(made, EmbeddedMysql)
    with made:
        yield made


def query(url: object, *statements: str) -> list[tuple[object, ...]]:
    engine = create_engine(str(url))
    try:
        with engine.begin() as connection:
            *_, last = [connection.execute(text(statement)) for statement in statements]
            return [tuple(row) for row in last] if last.returns_rows else []
    finally:
        engine.dispose()


def test_it_comes_back_with_what_was_committed(server: EmbeddedMysql) -> None:
    query(server.url, "CREATE TABLE t AS SELECT 7 AS n")
    with server.gone(), pytest.raises(OperationalError, match="connect"):
        query(server.url, "SELECT 1")
    assert query(server.url, "SELECT n FROM t") == [(7,)]


def test_nothing_is_left_after_the_block() -> None:
    with EmbeddedMysql(Path(os.environ[MYSQL_VARIABLE])) as running:
        home, pid = running._home, running._process.pid
        assert home.exists()
    assert not home.exists()
    with pytest.raises(ProcessLookupError):
        os.kill(pid or 0, 0)


def test_failed_start_says_why_and_cleans_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SERVER_SETTINGS, "innodb-flush-method", "no method")
    failing = EmbeddedMysql(Path(os.environ[MYSQL_VARIABLE]))
    with pytest.raises(ProcessError, match="no method"), failing:
        pass
    assert not failing._home.exists()
