# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The glossary says where things are, and they are there."""

from __future__ import annotations

import re

import pytest

from breeze.paths import PROVIDER_PACKAGE, ROOT

PLACES = re.findall(r"`([\w.-]+/[\w./-]*)`", (ROOT / "docs" / "glossary.md").read_text())


@pytest.mark.parametrize("place", sorted(set(PLACES)))
def test_a_place_that_the_glossary_names_exists(place):
    assert any((folder / place).exists() for folder in (PROVIDER_PACKAGE, ROOT))
