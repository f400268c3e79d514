# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The embedded PostgreSQL server: it runs whoever installed it."""

from __future__ import annotations

import pytest

from cluster_lab import postgres
from cluster_lab.postgres import EmbeddedPostgres
from testbed.database import execute


def test_works_from_an_environment_that_the_server_user_cannot_enter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(postgres, "_all_may_enter", lambda folder: False)
    with EmbeddedPostgres() as running:
        assert execute(running.url, "select 1") == [1]
