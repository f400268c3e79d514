# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
Types of the fields of a policy file, and their allowed values in words.

Errors and the reference use the same words.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from enum import Enum
from itertools import islice
from types import UnionType
from typing import Annotated, Any, Final, Literal, TypeVar, Union, get_args, get_origin

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError

from airflow_resilience.context import StateChangeCategory
from airflow_resilience.decision import AvoidNode
from airflow_resilience.retry_policy.durations import parse_duration
from airflow_resilience.retry_policy.marked_yaml import Location
from airflow_resilience.retry_policy.matchers import Operator
from airflow_resilience.retry_policy.patterns import Pattern, PatternError

IN_PLAIN_WORDS: Final = "in_plain_words"
"""Type of those pydantic errors whose message is ours and complete."""
_SHOWN_LENGTH: Final = 60
_UNIONS: Final = (Union, UnionType)
_COMPARED_WORDS: Final = 200
"""Thousands of words take minutes to compare with each other."""


@dataclass(frozen=True, slots=True)
class Allowed:
    """Annotation of a type with its allowed values, if the type itself does not show them."""

    text: str


def refusal(text: str) -> PydanticCustomError:
    """Return an error for a validator to raise. The text of the error reaches the reader unchanged."""
    return PydanticCustomError(IN_PLAIN_WORDS, "{text}", {"text": text})


def shown(value: object) -> str:
    """Return a value of a file for an error: in one line, and cut to a limit."""
    match value:
        case None:
            return "nothing"
        case bool():
            return f"{str(value).lower()} (a boolean)"
        case dict():
            return "a mapping"
        case list():
            return "a list" if value else "an empty list"
    text = repr(value)
    return text if len(text) <= _SHOWN_LENGTH else f"{text[:_SHOWN_LENGTH]}..."


def nearest(word: str, possible: Iterable[str]) -> str:
    """Return a clause with the most similar known word, ignoring case; empty without one."""
    words = {name.lower(): name for name in islice(possible, _COMPARED_WORDS)}
    found = get_close_matches(word.lower(), list(words), n=1)
    return f" (did you mean {words[found[0]]}?)" if found else ""


def _duration(value: object) -> float:
    # The length is limited: the time for a match is quadratic in the length.
    if not isinstance(value, str) or len(value) > _SHOWN_LENGTH:
        raise ValueError("no duration")
    return parse_duration(value)


def _regex(pattern: str) -> str:
    try:
        Pattern(pattern)
    except PatternError as error:
        raise refusal(
            f"got {shown(pattern)}; not a regular expression of RE2, which has no look-around and no"
            f" back-references: {error}"
        ) from error
    return pattern


def _unique(values: list[int]) -> list[int]:
    if repeated := [value for value in dict.fromkeys(values) if values.count(value) > 1]:
        listed = ", ".join(map(str, repeated))
        raise refusal(f"got {listed} more than once; allowed: each value once")
    return values


def _node_selector(value: object) -> object:
    if not isinstance(value, dict) or not value:
        raise ValueError("no labels")
    for key, label in value.items():
        if not _is(_LABEL_KEYS, key):
            raise refusal(f"got the key {shown(key)}; allowed: {allowed(LabelKey)}")
        if not _is(_LABEL_VALUES, label):
            raise refusal(f"got {shown(label)} for {key}; allowed: {allowed(LabelValue)}")
    return value


def is_name(text: str) -> bool:
    """Return whether a text can be the name of a policy, a rule or a container."""
    return _is(_NAMES, text)


def _is(kind: TypeAdapter[str], value: object) -> bool:
    try:
        kind.validate_python(value, strict=True)
    except ValidationError:
        return False
    return True


_Item = TypeVar("_Item")
SomeOf = Annotated[list[_Item], Field(min_length=1)]
"""A list that is not empty. An empty list could mean anything, or nothing."""
_DNS_LABEL: Final = Allowed("lower-case letters, digits and - (not first or last), at most 63")
Name = Annotated[str, Field(pattern="^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", max_length=63), _DNS_LABEL]
"""Of a policy, a rule or a container: a DNS label of Kubernetes."""
Text = Annotated[
    str,
    Field(min_length=1, max_length=256),
    Allowed("text, at most 256 characters; in quotes if it is like a number or yes"),
]
Limit = Annotated[int, Field(ge=-1), Allowed("a whole number from 0, or -1 (unlimited)")]
GlobalLimit = Annotated[int, Field(ge=0), Allowed("a whole number from 0")]
Duration = Annotated[
    float, BeforeValidator(_duration), Allowed("a duration such as 30s, 5m or 1m30s, at most 24h")
]
Count = Annotated[int, Field(ge=1), Allowed("a whole number from 1")]
Seconds = Annotated[int, Field(ge=0, lt=2**31), Allowed("a whole number of seconds, from 0")]
Growth = Annotated[float, Field(gt=1, le=100), Allowed("a number above 1, such as 1.5, at most 100")]
Memory = Annotated[
    str,
    Field(pattern=r"^[1-9][0-9]{0,17}([kMGTPE]|[KMGTPE]i)?$"),
    Allowed("a quantity of memory such as 16Gi or 512M; in quotes if it has no suffix"),
]
_LABEL: Final = r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
LabelKey = Annotated[
    str,
    Field(pattern=f"^([a-z0-9]([-a-z0-9.]{{0,251}}[a-z0-9])?/)?{_LABEL}$"),
    Allowed("the key of a label, such as karpenter.sh/capacity-type"),
]
LabelValue = Annotated[
    str,
    Field(pattern=f"^({_LABEL})?$"),
    Allowed("the value of a label, in quotes if it is like a number or yes"),
]
_NAMES: Final = TypeAdapter[str](Name)
_LABEL_KEYS: Final = TypeAdapter[str](LabelKey)
_LABEL_VALUES: Final = TypeAdapter[str](LabelValue)
NodeSelector = Annotated[
    dict[str, str],
    BeforeValidator(_node_selector),
    Allowed("a mapping of labels, such as karpenter.sh/capacity-type: on-demand"),
]
ObjectName = Annotated[
    str,
    Field(pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$", max_length=253),
    Allowed("lower-case letters, digits, - and . (neither first nor last), at most 253"),
]
Multiplier = Annotated[float, Field(ge=1, allow_inf_nan=False), Allowed("a number from 1")]
Share = Annotated[float, Field(ge=0, le=1), Allowed("a number from 0 (none) to 1 (all of it)")]
Regex = Annotated[
    str,
    Field(min_length=1, max_length=1000),
    AfterValidator(_regex),
    Allowed("a regular expression of RE2 (no look-around, no back-references), at most 1000 characters"),
]
ExitCode = Annotated[int, Field(ge=-(2**31), lt=2**31), Allowed("an exit code (a whole number)")]
ExitCodes = Annotated[
    list[ExitCode],
    Field(min_length=1, max_length=255),
    AfterValidator(_unique),
    Allowed("a list of 1 to 255 exit codes (whole numbers)"),
]
ConditionStatus = Annotated[
    Literal["True", "False", "Unknown"], Allowed('"True", "False" or "Unknown", in quotes')
]
Category = Annotated[StateChangeCategory, Field(strict=False)]
NodeAvoidance = Annotated[AvoidNode, Field(strict=False)]
ExitCodeOperator = Annotated[Operator, Field(strict=False)]


def allowed(kind: Any, annotations: Iterable[object] = ()) -> str:
    """Return the allowed values of a type, in words."""
    for annotation in annotations:
        if isinstance(annotation, Allowed):
            return annotation.text
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return allowed(arguments[0], arguments[1:])
    if origin in _UNIONS:
        return allowed(arguments[0])
    if origin is list:
        return f"a list with one or more of: {allowed(arguments[0])}"
    if origin is Literal:
        return ", ".join(arguments)
    if issubclass(kind, BaseModel):
        return f"a mapping with {', '.join(fields_of(kind))}"
    return ", ".join(member.value for member in kind) if issubclass(kind, Enum) else "true, false"


def fields_of(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """Return the fields of a mapping by their names in the file."""
    return {field.alias or name: field for name, field in model.model_fields.items()}


def type_of(field: FieldInfo) -> Any:
    """Return the whole type of a field; pydantic keeps it in two parts."""
    return Annotated[field.annotation, *field.metadata] if field.metadata else field.annotation


def model_in(kind: Any) -> type[BaseModel] | None:
    """Return the mapping in a type, alone or as items of a list; None without a mapping."""
    while arguments := get_args(kind):
        kind = arguments[0]
    return kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None


def type_at(model: type[BaseModel], location: Location) -> Any:
    """Return the type at a location of the file, all of whose fields are known."""
    kind: Any = model
    for part in location:
        kind = _item(kind) if isinstance(part, int) else type_of(fields_of(_bare(kind))[part])
    return kind


def _bare(kind: Any) -> Any:
    """Return a type without its annotations, and without the None of an optional field."""
    while get_origin(kind) in (Annotated, *_UNIONS):
        kind = get_args(kind)[0]
    return kind


def _item(kind: Any) -> Any:
    return get_args(_bare(kind))[0]
