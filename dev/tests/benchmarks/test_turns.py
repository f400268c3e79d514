# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from benchmarks.turns import Turns, parse_turns

NOTED = "begin 1.0\nend 1.5\nwork 2.0\nbegin 2.25\nend 4.25\nbegin 5.0\nen"


def test_turns_are_read_as_far_as_they_are_noted() -> None:
    assert parse_turns(NOTED) == Turns(work=[2.0], begin=[1.0, 2.25, 5.0], end=[1.5, 4.25])
    assert parse_turns("") == Turns()


def test_only_turns_that_have_ended_have_a_duration() -> None:
    assert parse_turns(NOTED).durations == [0.5, 2.0]


@pytest.mark.parametrize(
    ("moment", "expected"),
    [
        (0.0, parse_turns(NOTED)),
        (1.1, Turns([2.0], [2.25, 5.0], [4.25])),
        (2.25, Turns([], [2.25, 5.0], [4.25])),
        (5.1, Turns()),
    ],
)
def test_turns_since_a_moment_are_those_that_began_after_it(moment: float, expected: Turns) -> None:
    assert parse_turns(NOTED).since(moment) == expected
