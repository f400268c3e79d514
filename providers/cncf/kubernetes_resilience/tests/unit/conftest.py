# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""How property tests are run."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# A property takes as long as it takes: what fails on a busy machine only says that the machine was busy.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")
