# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Airflow's configuration, which it reads when it is imported. There is no database behind it,
but for tests that ask for one in memory."""

from __future__ import annotations

import atexit
import os
import tempfile
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

_home = tempfile.TemporaryDirectory(prefix="airflow-home-")
atexit.register(_home.cleanup)

# What is set already is that of the whole suite, whose fixtures have a database.
os.environ.setdefault("AIRFLOW_HOME", _home.name)
os.environ.setdefault("AIRFLOW__CORE__LOAD_EXAMPLES", "False")
os.environ.setdefault("AIRFLOW__API_AUTH__JWT_SECRET", "a secret for tests " * 4)


@pytest.fixture
def session() -> Iterator[Session]:
    """Give a session on a database in memory, with all of Airflow's tables."""
    from airflow.models.base import Base
    from sqlalchemy import create_engine
    from sqlalchemy.orm import Session
    from sqlalchemy.pool import StaticPool

    engine = create_engine("sqlite://", poolclass=StaticPool)
    Base.metadata.create_all(engine)
    with Session(engine) as session:
        yield session
    engine.dispose()
