# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
YAML as plain data with line numbers, for problems with their lines.

Total: any text is read or refused, in linear time. Aliases, tags and deep nesting are refused: no policy
needs them, and each can make a short text large or slow.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import yaml
from yaml.error import MarkedYAMLError
from yaml.reader import ReaderError

Location = tuple[str | int, ...]
"""Path of a value from the top of the document: keys of mappings, indices of lists."""

MAX_DEPTH: Final = 20
"""Levels of nesting; a policy file has seven."""
_LONGEST_NUMBER: Final = 64
"""Characters. A longer number stays text: Python refuses to convert integers of some thousand digits."""
_CONVERTED: Final = frozenset(f"tag:yaml.org,2002:{kind}" for kind in ("bool", "float", "int", "null"))
"""Tags of scalars that are converted. A date stays text."""
_SURROGATE: Final = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem of a document."""

    line: int
    """From 1; 0 for the document as a whole."""
    location: Location
    """Empty for the document as a whole."""
    text: str


class NotYamlError(ValueError):
    """The text is not YAML, or uses more of YAML than allowed."""

    def __init__(self, line: int, text: str) -> None:
        super().__init__(f"line {line}: {text}")
        self.problem = Problem(line, (), text)


@dataclass(frozen=True, slots=True)
class MarkedYaml:
    """A document."""

    data: object
    """Mappings with text as keys, lists, text, numbers, booleans; None for an empty document."""
    lines: Mapping[Location, int]
    """First line of each entry of a mapping and each item of a list."""
    problems: tuple[Problem, ...]
    """Keys that are duplicate or no text, and are not in the data."""

    def line(self, location: Location) -> int:
        """Return the line of a location, or of its nearest parent in the document."""
        while location and location not in self.lines:
            location = location[:-1]
        return self.lines.get(location, 1)


def read_marked(text: str) -> MarkedYaml:
    """
    Read a text that holds one document. Scalars are those of YAML 1.1, except that dates are text.

    :raises NotYamlError: for any other text, with the line
    """
    try:
        loader = _Loader(text)
    except ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise NotYamlError(line, f"not YAML: the character U+{error.character:04X}") from error
    try:
        node = loader.get_single_node()
    except MarkedYAMLError as error:
        raise _refusal(error) from error
    except (ValueError, OverflowError) as error:  # the number of an escape, or of a %YAML line
        raise NotYamlError(loader.line + 1, "not YAML: a number that is too large") from error
    reader = _DataReader(loader)
    data = None if node is None else reader.read(node, ())
    return MarkedYaml(data, reader.lines, tuple(reader.problems))


class _Loader(yaml.SafeLoader):
    """Composes nodes, and refuses syntax that is not allowed."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        if isinstance(event, yaml.AliasEvent):
            raise _refused("an alias", event.start_mark)
        if getattr(event, "tag", None) is not None:
            raise _refused("a tag", event.start_mark)
        if self._depth == MAX_DEPTH:
            raise _refused(f"more than {MAX_DEPTH} levels of nesting", event.start_mark)
        self._depth += 1
        node = super().compose_node(parent, index)
        self._depth -= 1
        if isinstance(node, yaml.ScalarNode) and _SURROGATE.search(node.value):
            raise _refused("half of a surrogate pair", event.start_mark)
        return node


def _refused(what: str, mark: Any) -> MarkedYAMLError:
    return MarkedYAMLError(problem=f"{what} is not allowed in this file", problem_mark=mark)


def _refusal(error: MarkedYAMLError) -> NotYamlError:
    mark = error.problem_mark or error.context_mark
    text = error.problem or ""
    if error.context:
        since = f" in line {error.context_mark.line + 1}" if error.context_mark else ""
        text += f" ({error.context}{since})"
    return NotYamlError(mark.line + 1 if mark else 1, text)


class _DataReader:
    """Turns nodes into data and keeps the lines. The depth of the nodes bounds the recursion."""

    def __init__(self, loader: _Loader) -> None:
        self._loader = loader
        self.lines: dict[Location, int] = {}
        self.problems: list[Problem] = []

    def read(self, node: yaml.Node, location: Location) -> object:
        self.lines.setdefault(location, _line(node))
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, location)
        if isinstance(node, yaml.SequenceNode):
            return [self.read(item, (*location, index)) for index, item in enumerate(node.value)]
        return self._scalar(node)

    def _mapping(self, node: yaml.MappingNode, location: Location) -> dict[str, object]:
        data: dict[str, object] = {}
        for key_node, value in node.value:
            # The text itself: in YAML 1.1 the key ``on`` would be the boolean True.
            key, line = key_node.value, _line(key_node)
            if not isinstance(key, str):
                self.problems.append(Problem(line, location, "a key is no text"))
            elif key in data:
                text = f"is there twice, first in line {self.lines[*location, key]}"
                self.problems.append(Problem(line, (*location, key), text))
            else:
                self.lines[*location, key] = line
                data[key] = self.read(value, (*location, key))
        return data

    def _scalar(self, node: yaml.Node) -> object:
        if node.tag not in _CONVERTED or len(node.value) > _LONGEST_NUMBER:
            return node.value
        try:
            return self._loader.construct_object(node)
        except ValueError:  # YAML reads 0b_ as a number, and Python does not
            return node.value


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1
