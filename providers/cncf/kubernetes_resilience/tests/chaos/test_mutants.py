# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Each promise is broken on purpose, and the state machine has to notice: else its silence proves nothing."""

from __future__ import annotations

from contextlib import suppress
from inspect import isfunction, signature

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.database import InMemoryExampleDatabase
from hypothesis.errors import Unsatisfiable
from hypothesis.stateful import run_state_machine_as_test

from . import mutants
from .mutants import DIRECTED, SEARCHED

STEPS = (50, 45, 40)
"""Of a history that is searched. Each number finds another one."""

SEARCH = settings(
    max_examples=300,
    # Also before a release: a mutant that is missed by chance says nothing of the change.
    derandomize=True,
    report_multiple_bugs=False,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.long
@pytest.mark.parametrize("mutant", SEARCHED, ids=lambda mutant: mutant.__name__)
@pytest.mark.timeout(900)
def test_a_broken_promise_is_found(machine, monkeypatch, mutant):
    for steps in STEPS:
        found = InMemoryExampleDatabase()
        search = settings(SEARCH, database=found, stateful_step_count=steps)
        with monkeypatch.context() as patch:
            mutant(patch)
            with pytest.raises(AssertionError, match=f"^{SEARCHED[mutant]}:"):
                run_state_machine_as_test(machine(2), settings=search)
        assert found.data
        # The same history holds without the mutant, so it is the mutant that was found.
        with suppress(Unsatisfiable):  # without the mutant a step of it is impossible
            run_state_machine_as_test(machine(2), settings=settings(search, phases=[Phase.reuse]))
            return
    pytest.fail("no history that was found can be played without the mutant")


@pytest.mark.parametrize("mutant", DIRECTED, ids=lambda mutant: mutant.__name__)
def test_a_broken_promise_is_found_by_design(by_hand, monkeypatch, mutant):
    mutant(monkeypatch)
    history, promise = DIRECTED[mutant]
    chaos = history.func.__globals__["begin"](by_hand)
    with pytest.raises(AssertionError, match=promise and f"^{promise}:"):
        history(chaos=chaos, world=chaos.world)


def test_each_mutant_is_to_be_found():
    defined = {
        item for item in vars(mutants).values() if isfunction(item) and "patch" in signature(item).parameters
    }
    assert defined == {*SEARCHED, *DIRECTED}
