# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""docs/versions.md says which versions meet which tests."""

from __future__ import annotations

import re
from itertools import product

from breeze.compat import COMING, CORES, DEPLOYED, DEPLOYED_BRIEFLY, NEWEST, PROVIDERS, Versions
from breeze.distributions import OFFICIAL
from breeze.paths import ROOT

LOCK = (ROOT / "requirements.lock").read_text()
PAGE = (ROOT / "docs" / "versions.md").read_text()


def test_each_airflow_is_deployed_with_the_oldest_and_the_newest_provider():
    assert f"apache-airflow-core=={NEWEST.core} " in LOCK
    assert f"{OFFICIAL}=={NEWEST.provider} " in LOCK
    deployed = [*DEPLOYED, *DEPLOYED_BRIEFLY]
    corners = [pair[:2] for pair in [NEWEST, *deployed] if not pair.in_place and pair != COMING]
    assert sorted(corners) == sorted(product(CORES, (PROVIDERS[0], PROVIDERS[-1])))
    assert [pair[:2] for pair in deployed if pair.in_place] == [NEWEST[:2]]
    assert COMING in deployed


def test_the_page_has_a_row_for_each_deployment():
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in PAGE.splitlines()
        if "compat --full" in line and "| deployment" in line
    ]
    assert sorted(
        Versions(core, provider.partition(",")[0], "in its place" in provider, python)
        for core, provider, python, *_ in rows
    ) == sorted(pair._replace(python=pair.python or "own") for pair in (NEWEST, *DEPLOYED, *DEPLOYED_BRIEFLY))


def test_the_page_has_a_row_for_each_module_that_runs_on_the_newest_version():
    rows = re.findall(r"`tests/(\w+)\.py` \|$", PAGE, re.MULTILINE)
    assert len(rows) == 5
    assert sorted(rows) == sorted(marked("newest_version"))
    # If a test of these were not long, `testing all` would run it, and compat would not.
    assert set(rows) <= set(marked("long"))


def marked(name):
    """Return the modules of system tests that have a test with a marker."""
    modules = (ROOT / "tests").glob("test_*.py")
    return [module.stem for module in modules if f"pytest.mark.{name}" in module.read_text()]
