# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""One deployment for each module of tests: it takes some 15 seconds to start."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .stage import Stage, open_stage


@pytest.fixture(scope="module")
def stage(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """
    A deployment that runs.

    A module says in ``DEPLOYMENT`` what its configuration has in addition. No test relies on another one, but
    a test may leave behind another scheduler than it found.
    """
    home = tmp_path_factory.mktemp("airflow")
    with open_stage(home, getattr(request.module, "DEPLOYMENT", {})) as stage:
        yield stage
