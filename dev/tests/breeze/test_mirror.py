# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The unit tests lie where the modules lie that they test."""

from __future__ import annotations

from pathlib import Path

import pytest

from breeze.paths import CORE, PROVIDER, PROVIDER_PACKAGE, ROOT

MIRRORS = (
    (CORE / "tests", CORE / "src" / "airflow_resilience"),
    (PROVIDER / "tests" / "unit", PROVIDER_PACKAGE),
)
TESTS = {
    path.relative_to(ROOT).as_posix(): (path.relative_to(tests), package)
    for tests, package in MIRRORS
    for path in sorted(tests.rglob("test_*.py"))
}


@pytest.mark.parametrize(("test", "package"), TESTS.values(), ids=TESTS)
def test_a_folder_of_tests_is_one_of_modules(test: Path, package: Path):
    assert (package / test.parent).is_dir()


@pytest.mark.parametrize(("test", "package"), TESTS.values(), ids=TESTS)
def test_a_test_with_the_name_of_a_module_lies_in_its_folder(test: Path, package: Path):
    """Others are about more than one module of their folder, or about one from one side."""
    name = test.name.removeprefix("test_")
    folders = {path.parent.relative_to(package) for path in package.rglob(name)}
    assert not folders or test.parent in folders
