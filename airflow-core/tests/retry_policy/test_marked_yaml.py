# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""YAML with its lines: what is read, what is refused, and that nothing else can happen."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_resilience.retry_policy.marked_yaml import (
    MAX_DEPTH,
    Location,
    MarkedYaml,
    NotYamlError,
    Problem,
    read_marked,
)

DOCUMENT = """\
# a comment
policies:
  - name: standard
    rules:
    - phases: [
        Launch]
  -
    name: gpu
on:
  yes
"""

#: Whatever YAML gives a meaning to, and little else, so that much of it is nearly YAML.
YAML_ALPHABET = st.sampled_from(
    [*"abe01_.-+:,?!&*<>|%@`'\"\\{}[]#~= \t\n\r\0\ufeff\x85\u2028\U0001f600", "\ud800"]
)


@pytest.mark.parametrize(
    ("location", "line"),
    [
        ((), 2),
        (("policies",), 2),
        (("policies", 0), 3),
        (("policies", 0, "name"), 3),
        (("policies", 0, "rules"), 4),
        (("policies", 0, "rules", 0, "phases", 0), 6),
        (("policies", 1), 8),
        (("on",), 9),
        # What is not there has the line of what it is missing from.
        (("policies", 0, "rules", 0, "action"), 5),
        (("policies", 7, "rules", 0), 2),
        (("selection",), 2),
    ],
)
def test_each_place_has_its_line(location: Location, line: int) -> None:
    assert read_marked(DOCUMENT).line(location) == line


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5", 5),
        ("'5'", "5"),
        ("0x10", 16),
        ("2.5", 2.5),
        ("yes", True),
        ("Off", False),
        ("~", None),
        ("", None),
        ("2026-02-30", "2026-02-30"),  # no day, at which PyYAML would stop
        ("2026-02-01", "2026-02-01"),
        ("0b_", "0b_"),
        ("0x_", "0x_"),
        ("1" * 5000, "1" * 5000),
        ("0x" + "f" * 9000, "0x" + "f" * 9000),
        ("=", "="),
        ("<<", "<<"),
        ("&anchor x", "x"),
    ],
)
def test_scalars(text: str, value: object) -> None:
    assert read_marked(f"key: {text}").data == {"key": value}


def test_keys_are_text_as_it_stands() -> None:
    assert read_marked("{on: 1, 5: 2, ~: 3, <<: 4, '': 5}").data == {"on": 1, "5": 2, "~": 3, "<<": 4, "": 5}


@pytest.mark.parametrize("text", ["", "# only a comment", "---", "--- ~", "\ufeff"])
def test_document_without_content_is_none(text: str) -> None:
    assert read_marked(text).data is None


def test_key_that_is_there_twice_keeps_its_first_value() -> None:
    document = read_marked("a:\n  b: 1\n  c: 2\n  b: 3\n  b: 4\n")
    assert document.data == {"a": {"b": 1, "c": 2}}
    assert document.line(("a", "b")) == 2
    assert document.problems == tuple(
        Problem(line, ("a", "b"), "is there twice, first in line 2") for line in (4, 5)
    )


def test_key_that_is_no_text_is_a_problem() -> None:
    document = read_marked("a:\n  ? [x]\n  : 1\n  ? {y: z}\n  : 2\n  b: 3")
    assert document.data == {"a": {"b": 3}}
    assert document.problems == (
        Problem(2, ("a",), "a key is no text"),
        Problem(4, ("a",), "a key is no text"),
    )


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("a: 1\nb: [1, 2\n", 3, "expected ',' or ']'"),
        ("a:\n  b: 1\n c: 2", 3, "while parsing a block mapping in line 1"),
        ("a: 1\n\tb: 2", 2, "cannot start any token"),
        ("a: b: c", 1, "mapping values are not allowed here"),
        ("a: 'b", 1, "unexpected end of stream"),
        ("a: 1\n---\nb: 2", 2, "found another document"),
        ("a: 1\nb: \0", 2, "not YAML: the character U+0000"),
        ("a: 1\n\nb: \ud800", 3, "not YAML: the character U+D800"),
        ('a: 1\nb: "\\ud800"', 2, "half of a surrogate pair is not allowed"),
        ('a: 1\nb: "\\UFFFFFFFF"', 2, "a number that is too large"),
        (f"%YAML 1.{'9' * 5000}\n---\na", 1, "a number that is too large"),
        ("a: &x 1\nb: *x", 2, "an alias is not allowed"),
        ("a: &x\n  b: *x", 2, "an alias is not allowed"),
        ("a:\n- !!python/name:os.system x", 2, "a tag is not allowed"),
        ("a: !!int x", 1, "a tag is not allowed"),
        ("a: !x {}", 1, "a tag is not allowed"),
        ("! a", 1, "a tag is not allowed"),
    ],
)
def test_what_is_not_plain_yaml_is_refused_with_its_line(text: str, line: int, message: str) -> None:
    with pytest.raises(NotYamlError) as error:
        read_marked(text)
    assert error.value.problem.line == line
    assert error.value.problem.location == ()
    assert message in error.value.problem.text
    assert str(error.value) == f"line {line}: {error.value.problem.text}"


@pytest.mark.parametrize("opening", ["[", "- ", "? ", "{", "{a: ", "[{", "&a - "])
def test_deep_nesting_is_refused_before_it_costs_anything(opening: str) -> None:
    with pytest.raises(NotYamlError):
        read_marked(opening * 100_000)


def test_nesting_is_allowed_up_to_its_limit() -> None:
    depth = MAX_DEPTH - 1
    document = read_marked("[" * depth + "x" + "]" * depth)
    assert document.line((0,) * depth) == 1
    with pytest.raises(NotYamlError, match=f"more than {MAX_DEPTH} levels"):
        read_marked("[" * MAX_DEPTH + "x" + "]" * MAX_DEPTH)


@given(st.text() | st.text(YAML_ALPHABET))
def test_any_text_is_read_or_refused_with_a_line_that_it_has(text: str) -> None:
    try:
        document = read_marked(text)
    except NotYamlError as error:
        lines = [error.problem.line]
    else:
        assert isinstance(document, MarkedYaml)
        lines = [*document.lines.values(), *(problem.line for problem in document.problems)]
    breaks = sum(map(text.count, "\n\r\x85\u2028\u2029"))
    assert all(1 <= line <= breaks + 1 for line in lines)
