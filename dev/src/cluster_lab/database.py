# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Which database server tests bring along: PostgreSQL, or MySQL if ``MYSQL_BINARIES`` names its folder."""

from __future__ import annotations

import os
from pathlib import Path

from cluster_lab.mysql import EmbeddedMysql
from cluster_lab.postgres import EmbeddedPostgres

MYSQL_VARIABLE = "MYSQL_BINARIES"
EmbeddedDatabase = EmbeddedPostgres | EmbeddedMysql


def make_database() -> EmbeddedDatabase:
    """Return a server that does not run yet."""
    binaries = os.environ.get(MYSQL_VARIABLE)
    return EmbeddedMysql(Path(binaries)) if binaries else EmbeddedPostgres()
