# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""How property tests are run: the same examples each time, but for ``HYPOTHESIS_PROFILE=release``."""

from __future__ import annotations

import os

from hypothesis import settings
from hypothesis.internal.conjecture import providers

# Hypothesis' own profile for CI has no limits of time either: a property that fails on a busy machine would
# only say that the machine was busy.
settings.register_profile("release", settings.get_profile("ci"), derandomize=False)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

# Hypothesis mixes in constants of the modules that the process has imported so far, which depends on the
# tests that have run before in it. The seed alone is to decide what is tried.
providers._get_local_constants = providers.Constants
