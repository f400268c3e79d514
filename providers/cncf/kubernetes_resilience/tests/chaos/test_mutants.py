# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Each promise is broken on purpose, and the state machine has to notice: else its silence proves nothing."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from .mutants import MUTANTS

SEARCH = settings(
    max_examples=300,
    stateful_step_count=50,
    deadline=None,
    database=None,
    derandomize=True,
    report_multiple_bugs=False,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
@pytest.mark.timeout(300)
def test_a_broken_promise_is_found(machine, monkeypatch, mutant):
    mutant(monkeypatch)
    with pytest.raises(AssertionError, match=f"^{MUTANTS[mutant]}"):
        run_state_machine_as_test(machine(2), settings=SEARCH)
