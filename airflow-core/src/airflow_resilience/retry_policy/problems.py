# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
Problems of a policy file, in the words of its author.

The data is checked twice: pydantic checks each mapping by itself, and this module the file as a whole. The
second check uses plain data: a mistake in one rule does not hide an unknown name of a policy.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from typing import Final

from pydantic import ValidationError

from airflow_resilience.retry_policy.fields import (
    IN_PLAIN_WORDS,
    allowed,
    fields_of,
    is_name,
    model_in,
    nearest,
    shown,
    type_at,
)
from airflow_resilience.retry_policy.marked_yaml import Location
from airflow_resilience.retry_policy.rule import INFRASTRUCTURE
from airflow_resilience.retry_policy.schema import PolicyFile

_Finding = tuple[Location, str]
_EACH: Final = "*"
"""In the path of a value, stands for every item of a list."""
_Names = Iterable[tuple[Location, str]]
_PLAIN_KEY: Final = re.compile(r"[A-Za-z_][\w-]{0,60}", re.ASCII)
_LISTED_NAMES: Final = 20


def path_of(location: Location) -> str:
    """Return a location as text, as ``policies[0].rules[2].action``."""
    text = ""
    for part in location:
        if isinstance(part, str) and _PLAIN_KEY.fullmatch(part):
            text += f".{part}" if text else part
        else:
            text += f"[{shown(part)}]"
    return text


def find_problems(data: object, taken: Collection[str]) -> dict[Location, str]:
    """
    Return the problems of a policy file, at most one for each location.

    :param data: the contents, as :mod:`marked_yaml <airflow_resilience.retry_policy.marked_yaml>` reads them
    :param taken: names of the policies that exist without the file
    """
    # The last problem of a location is kept: a missing value says more than a value that is no list.
    return dict([*_within_mappings(data), *_across_mappings(data, taken), *_empty_fields(data, ())])


def _within_mappings(data: object) -> Iterator[_Finding]:
    try:
        PolicyFile.model_validate(data)
    except ValidationError as error:
        for details in error.errors(include_url=False):
            location = details["loc"]
            match details["type"]:
                case "extra_forbidden":
                    text = _unknown_field(location)
                case "missing":
                    text = f"is missing; allowed: {allowed(type_at(PolicyFile, location))}"
                case kind if kind == IN_PLAIN_WORDS:
                    text = details["msg"]
                case _:
                    text = f"got {shown(details['input'])}; allowed: {allowed(type_at(PolicyFile, location))}"
            yield location, text


def _unknown_field(location: Location) -> str:
    model = model_in(type_at(PolicyFile, location[:-1]))
    assert model, "only mappings have fields"
    fields = list(fields_of(model))
    return f"is no field here{nearest(str(location[-1]), fields)}; allowed: {', '.join(fields)}"


def _across_mappings(data: object, taken: Collection[str]) -> Iterator[_Finding]:
    policies = list(_names(data, "policies", _EACH, "name"))
    yield from _repeated(policies)
    yield from _repeated(_names(data, "policies", _EACH, "rules", _EACH, "name"))
    for location, name in policies:
        if name in taken or name == INFRASTRUCTURE:
            yield location, f"got {shown(name)}, which there is without this file too; allowed: another name"
    known = {*(name for _, name in policies), *taken}
    names = sorted(filter(is_name, known))
    listed = ", ".join([*names[:_LISTED_NAMES], *(["..."] if names[_LISTED_NAMES:] else [])])
    for location, name in [*_names(data, "defaultPolicy"), *_names(data, "selection", _EACH, "policy")]:
        if name not in known:
            yield (
                location,
                f"got {shown(name)}, which is no policy{nearest(name, names)}; allowed: {listed}",
            )


def _repeated(names: _Names) -> Iterator[_Finding]:
    """Find items with the name of another item of their list."""
    first: dict[tuple[Location, str], Location] = {}
    for location, name in names:
        other = first.setdefault((location[:-2], name), location)
        if other != location:
            yield (
                location,
                f"got {shown(name)}, the name of {path_of(other[:-1])}; allowed: a name of its own",
            )


def _names(data: object, *way: str, location: Location = ()) -> Iterator[tuple[Location, str]]:
    """Yield every text at the end of the path. Pydantic reports other types."""
    if not way:
        if isinstance(data, str):
            yield location, data
    elif way[0] == _EACH or not isinstance(data, list):
        for part, value in _entries(data):
            if way[0] in (_EACH, part):
                yield from _names(value, *way[1:], location=(*location, part))


def _empty_fields(data: object, location: Location) -> Iterator[_Finding]:
    """Find fields without a value, which would look like conditions without being any."""
    for part, value in _entries(data):
        if value is None:
            yield (*location, part), "got nothing; allowed: a value, or to leave it out"
        yield from _empty_fields(value, (*location, part))


def _entries(data: object) -> Iterable[tuple[str | int, object]]:
    if isinstance(data, dict):
        return data.items()
    return enumerate(data) if isinstance(data, list) else ()
