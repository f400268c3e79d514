# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Regular expressions in linear time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_resilience.retry_policy.patterns import Pattern, PatternError


def test_same_text_makes_the_same_pattern() -> None:
    assert Pattern("a+") == Pattern("a+") != Pattern("a*")
    assert repr(Pattern("a+")) == "Pattern(text='a+')"


@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [
        ("no (space|room)", "error: no room left", True),
        ("(?i)NO SPACE", "no space", True),
        ("^b", "a\nb", False),
        ("(?m)^b", "a\nb", True),
        ("é+", "caféé", True),
        (".$", "\ud800", True),
        ("\ud800", "a?", False),
    ],
)
def test_found_anywhere(pattern: str, text: str, found: bool) -> None:
    assert Pattern(pattern).found_in(text) is found


@given(pattern=st.text(max_size=30) | st.text(alphabet="ab(|)*+?[]{}^$\\.1=!<P", max_size=15), text=st.text())
def test_any_pattern_answers_or_is_refused(pattern: str, text: str) -> None:
    try:
        compiled = Pattern(pattern)
    except PatternError:
        return
    assert compiled.found_in(text) in (True, False)


def test_refusal_writes_nothing_to_standard_error(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(PatternError, match=r"^missing \): \($"):
        Pattern("(")
    assert capfd.readouterr().err == ""
