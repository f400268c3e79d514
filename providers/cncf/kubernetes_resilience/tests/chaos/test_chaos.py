# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import time

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

MINUTES = float(os.environ.get("CHAOS_MINUTES", "0"))
"""How long to search with ever new histories; 0: the short profile, the same histories each time, so that a
failure in CI is about the change and not about luck."""

HISTORIES = settings(
    max_examples=60,
    stateful_step_count=50,
    deadline=None,
    derandomize=not MINUTES,
    suppress_health_check=list(HealthCheck),
    print_blob=True,
)


@pytest.mark.parametrize("limit", [0, 1, 3])
@pytest.mark.timeout(600 + 60 * MINUTES)
def test_promises_hold(machine, limit):
    end = time.monotonic() + 60 * MINUTES / 3
    while True:
        run_state_machine_as_test(machine(limit), settings=HISTORIES)
        if time.monotonic() >= end:
            break
