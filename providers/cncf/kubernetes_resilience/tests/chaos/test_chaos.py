# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import time

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

SHORT = settings(
    max_examples=60,
    stateful_step_count=50,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    print_blob=True,
)


@pytest.mark.parametrize("limit", [0, 1, 3])
@pytest.mark.timeout(600)
def test_promises_hold(machine, limit):
    end = time.monotonic() + 60 * float(os.environ.get("CHAOS_MINUTES", "0")) / 3
    while True:
        run_state_machine_as_test(machine(limit), settings=SHORT)
        if time.monotonic() >= end:
            break
