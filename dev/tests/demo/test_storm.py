# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""What the third act shows."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from demo.storm import Storm, storm_text
from testbed.records import Outcome

GOOD = Outcome(state="success", pods=2, begun=1, ended=1, launch_failures=1)
STORM = Storm(outcomes={"report_1": GOOD, "report_2": GOOD}, seconds_away=21.4, seconds_after=9.6)


def test_the_price_of_an_outage_is_shown() -> None:
    console = Console(file=StringIO(), width=132, highlight=False)
    console.print(storm_text(STORM, "heading"))
    assert isinstance(console.file, StringIO)
    output = console.file.getvalue()
    row = next(line for line in output.splitlines() if "report_1" in line)
    assert row.split() == ["report_1", "success", "1", "2", "0", "of", "0", "1"]
    assert "2 of 2 tasks that started while the registry was away, for 21 s" in output
    assert "4; the last one 10 s after the registry's return" in output


@pytest.mark.parametrize(
    "outcome",
    [
        replace(GOOD, state="failed"),
        replace(GOOD, try_number=2),
        replace(GOOD, begun=2),
        replace(GOOD, pods=3),
    ],
)
def test_what_is_not_as_it_should_be(outcome: Outcome) -> None:
    assert STORM.unexpected == []
    assert replace(STORM, outcomes={"a": GOOD, "b": outcome}).unexpected == ["b"]
