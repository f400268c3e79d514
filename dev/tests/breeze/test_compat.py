# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The documentation says which versions meet which tests."""

from __future__ import annotations

import re
from itertools import product

from breeze import compat
from breeze.paths import LOCK, ROOT


def test_each_airflow_is_deployed_with_the_oldest_and_the_newest_provider():
    locked = [
        (core, provider)
        for core, provider in product(compat._CORES, compat._PROVIDERS)
        if f"apache-airflow-core=={core} " in LOCK.read_text()
        and f"{compat.OFFICIAL}=={provider} " in LOCK.read_text()
    ]
    assert locked == [(compat._NEWEST.core, compat._NEWEST.provider)]
    deployed = [*compat._DEPLOYED, *compat._DEPLOYED_BRIEFLY]
    corners = [
        (pair.core, pair.provider) for pair in deployed if not pair.in_place and pair != compat._COMING
    ]
    assert sorted([*locked, *corners]) == sorted(
        product(compat._CORES, (compat._PROVIDERS[0], compat._PROVIDERS[-1]))
    )
    assert [(pair.core, pair.provider) for pair in deployed if pair.in_place] == locked
    assert compat._COMING in deployed


def test_the_documentation_has_a_row_for_each_deployment():
    rows = [
        tuple(cell.strip() for cell in line.strip("|").split("|"))
        for line in (ROOT / "docs" / "versions.md").read_text().splitlines()
        if "compat --full" in line and "| deployment" in line
    ]
    assert sorted(
        (core, provider.partition(",")[0], "in its place" in provider, python)
        for core, provider, python, *_ in rows
    ) == sorted(
        (pair.core, pair.provider, pair.in_place, pair.python or "that of the machine")
        for pair in (compat._NEWEST, *compat._DEPLOYED, *compat._DEPLOYED_BRIEFLY)
    )


def test_the_documentation_has_a_row_for_each_module_that_runs_on_the_newest_version():
    rows = re.findall(
        r"`\./breeze testing system-tests tests/(\w+)\.py` \|$",
        (ROOT / "docs" / "versions.md").read_text(),
        re.MULTILINE,
    )
    assert len(rows) == 5
    assert sorted(rows) == sorted(marked("newest_version"))
    # If a test of these were not long, `testing all` would run it, and compat would not.
    assert set(rows) <= set(marked("long"))


def marked(name):
    """Return the modules of system tests that have a test with a marker."""
    return [
        module.stem
        for module in (ROOT / "tests").glob("test_*.py")
        if f"pytest.mark.{name}" in module.read_text()
    ]
