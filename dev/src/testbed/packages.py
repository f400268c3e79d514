# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Tests that need a program of one of Debian's packages."""

from __future__ import annotations

import os

import pytest


def needs(package: str, program: str | None) -> pytest.MarkDecorator:
    """
    Return the mark of tests that are left out without a package.

    CI installs the package: where the environment variable ``CI`` is set, the tests run, and fail without it.

    :param package: the package's name
    :param program: the path of its program; None: there is none
    """
    missing = program is None and "CI" not in os.environ
    return pytest.mark.skipif(missing, reason=f"needs Debian's package {package}")
