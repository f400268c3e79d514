# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Airflow's configuration, which it reads when it is imported. There is no database behind it."""

from __future__ import annotations

import atexit
import os
import tempfile

_home = tempfile.TemporaryDirectory(prefix="airflow-home-")
atexit.register(_home.cleanup)

# What is set already is that of the whole suite, whose fixtures have a database.
os.environ.setdefault("AIRFLOW_HOME", _home.name)
os.environ.setdefault("AIRFLOW__CORE__LOAD_EXAMPLES", "False")
os.environ.setdefault("AIRFLOW__API_AUTH__JWT_SECRET", "a secret for tests " * 4)
