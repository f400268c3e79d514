# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Whatever a policy file contains, it is loaded or its mistakes are told: nothing else happens."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import yaml
from hypothesis import given
from hypothesis import strategies as st

from airflow_resilience.retry_policy.built_in import built_in
from airflow_resilience.retry_policy.document import PolicyFileError, parse_policies

VALID = Path(__file__).with_name("policies.yaml").read_text()
FALLBACK = built_in(1, ("Error",))

JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=5),
    st.sampled_from(
        ["10s", "-5m", "1" * 100, "built-in", "standard", "(", "a" * 70, "2026-01-01", "0b_", "on"]
    ),
    st.lists(st.integers() | st.text(max_size=3), max_size=3),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)
KEYS = st.text(max_size=8) | st.sampled_from(["name", "rules", "onReasons"])
PIECES = st.text(max_size=4) | st.sampled_from([*":-[]{}&*!?|>#", "\n", "  "])
#: Where in a document something is changed: each number chooses among the entries of a level.
PLACES = st.lists(st.integers(min_value=0, max_value=30), min_size=1, max_size=8)


def holder_of(data: Any, places: list[int]) -> tuple[Any, Any]:
    """Follow the numbers down into the data, as far as it goes; return the container and the key."""
    holder, key = data, None
    for place in places:
        inner = holder if key is None else holder[key]
        if not isinstance(inner, dict | list) or not inner:
            break
        keys = list(inner) if isinstance(inner, dict) else range(len(inner))
        holder, key = inner, keys[place % len(inner)]
    return holder, key


@st.composite
def mutated_documents(draw: st.DrawFn) -> str:
    data = copy.deepcopy(yaml.safe_load(VALID))
    for places in draw(st.lists(PLACES, min_size=1, max_size=3)):
        holder, key = holder_of(data, places)
        match draw(st.sampled_from(["replace", "delete", "insert"])):
            case "replace" if key is not None:
                holder[key] = draw(JUNK)
            case "delete" if key is not None:
                del holder[key]
            case _ if isinstance(holder, list):
                holder.append(draw(JUNK))
            case _:
                holder[draw(KEYS)] = draw(JUNK)
    return yaml.dump(data, Dumper=_PlainDumper, allow_unicode=True)


class _PlainDumper(yaml.SafeDumper):
    def ignore_aliases(self, data: object) -> bool:
        return True


@st.composite
def mutated_texts(draw: st.DrawFn) -> str:
    text = VALID
    for _ in range(draw(st.integers(min_value=1, max_value=4))):
        begin = draw(st.integers(min_value=0, max_value=len(text)))
        length = draw(st.integers(min_value=0, max_value=30))
        text = text[:begin] + draw(PIECES) + text[begin + length :]
    return text


def loads_or_is_told(content: str | bytes) -> None:
    try:
        policies = parse_policies(content, "f.yaml", FALLBACK)
    except PolicyFileError as error:
        lines = str(error).split("\n")
    else:
        assert policies.default in policies.policies
        return
    assert all(re.match(r"f\.yaml:(\d+:)? .", line) for line in lines)


@given(st.binary(max_size=200) | st.text(max_size=200))
def test_any_content_loads_or_is_told(content: str | bytes) -> None:
    loads_or_is_told(content)


@given(mutated_documents())
def test_any_change_of_a_document_loads_or_is_told(content: str) -> None:
    loads_or_is_told(content)


@given(mutated_texts())
def test_any_change_of_its_text_loads_or_is_told(content: str) -> None:
    loads_or_is_told(content)


@given(st.integers(min_value=0, max_value=len(VALID) - 1))
def test_file_that_is_cut_off_loads_or_is_told(length: int) -> None:
    loads_or_is_told(VALID[:length])
